//! The clock of a run.

use std::time::Duration;

use forebay_units::Time;
use nix::time::{clock_gettime, ClockId};

/// A clock that counts nanoseconds since the start of the run (CLOCK_MONOTONIC).
#[derive(Clone, Copy)]
pub struct Clock {
    start_ns: u64,
}

impl Clock {
    /// Returns a clock that shows zero now.
    pub fn start() -> Clock {
        let mut clock = Clock { start_ns: 0 };
        clock.start_ns = clock.now().as_nanos();
        clock
    }

    /// Returns the time since the clock was started.
    pub fn now(self) -> Time {
        let time = time_of(ClockId::CLOCK_MONOTONIC);
        Time::from_nanos(time.as_nanos() - self.start_ns)
    }
}

/// Returns the time that a system clock shows (clock_gettime(2)).
///
/// # Panics
/// Where the kernel does not have `clock`.
pub fn time_of(clock: ClockId) -> Time {
    let time = clock_gettime(clock).expect("every Linux has these clocks");
    let time = Duration::from(time);
    Time::from_nanos(time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos()))
}
