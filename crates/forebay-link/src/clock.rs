//! What time it is.

use forebay_core::Time;
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
    Time::from_nanos(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
