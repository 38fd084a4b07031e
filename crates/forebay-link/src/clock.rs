//! What time it is.

use std::time::Duration;

use forebay_units::Time;
use nix::time::{clock_gettime, ClockId};

/// Nanoseconds since the start of the run.
#[derive(Clone, Copy)]
pub struct Clock {
    start_ns: u64,
}

impl Clock {
    pub fn start() -> Clock {
        let mut clock = Clock { start_ns: 0 };
        clock.start_ns = clock.now().as_nanos();
        clock
    }

    pub fn now(self) -> Time {
        let time = time_of(ClockId::CLOCK_MONOTONIC);
        Time::from_nanos(time.as_nanos() - self.start_ns)
    }
}

/// What a clock shows.
pub fn time_of(clock: ClockId) -> Time {
    let time = clock_gettime(clock).expect("every Linux has these clocks");
    let time = Duration::from(time);
    Time::from_nanos(time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos()))
}
