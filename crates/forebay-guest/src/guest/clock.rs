//! Clock of a run, and the one timer that wakes the guest.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use forebay_units::Time;
use nix::libc;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use nix::time::{clock_gettime, ClockId as Clocks};

/// The time that passes in a guest while a process looks at a clock (`TIMER_MULTIPLIER` in
/// arch/um).
const LOOK_NS: u64 = 256;

/// Returns the time of a clock, in ns.
fn nanos(clock: Clocks) -> u64 {
    as_nanos(clock_gettime(clock).expect("every Linux has these clocks"))
}

/// Returns a time in ns.
fn as_nanos(time: TimeSpec) -> u64 {
    let time = Duration::from(time);
    time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
}

/// A clock that shows the time since the start of the run, with a timer.
pub struct GuestClock {
    /// The start of the run on CLOCK_MONOTONIC.
    start_ns: u64,
    /// The start of the run on CLOCK_REALTIME, with which the kernel stamps packets.
    real_start_ns: u64,
    timer: TimerFd,
    /// The time for which the timer is set; `Time::ZERO` where it must be set again.
    set_for: Time,
}

impl GuestClock {
    /// Starts the clock.
    ///
    /// # Errors
    /// Those of timerfd_create(2).
    pub fn start() -> io::Result<GuestClock> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(GuestClock {
            start_ns: nanos(Clocks::CLOCK_MONOTONIC),
            // This reading of the clock is later than the reading above.
            real_start_ns: nanos(Clocks::CLOCK_REALTIME) - LOOK_NS,
            timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?,
            set_for: Time::ZERO,
        })
    }

    /// Returns the start of the run on CLOCK_MONOTONIC, in ns.
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// Returns the present time.
    pub fn now(&self) -> Time {
        Time::from_nanos(nanos(Clocks::CLOCK_MONOTONIC) - self.start_ns)
    }

    /// Returns a time of CLOCK_MONOTONIC as a time of the run.
    pub fn at(&self, monotonic: libc::timespec) -> Time {
        Time::from_nanos(as_nanos(monotonic.into()) - self.start_ns)
    }

    /// Returns the time stamp of a packet as a time of the run.
    pub fn stamped(&self, seconds: u64, nanos: u64) -> Time {
        Time::from_nanos((seconds * 1_000_000_000 + nanos).saturating_sub(self.real_start_ns))
    }

    /// Returns the file that is readable when the timer has expired.
    pub fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Returns the arguments of timerfd_settime(2) that set the timer for `at`; `None` where it is
    /// already set for it. `Time::MAX` stops the timer.
    pub fn alarm(&mut self, at: Time) -> Option<(libc::c_int, libc::itimerspec)> {
        if at == self.set_for {
            return None;
        }
        self.set_for = at;
        let (flags, at) = match at {
            Time::MAX => (0, Duration::ZERO),
            at => (
                libc::TFD_TIMER_ABSTIME,
                Duration::from_nanos(self.start_ns + at.as_nanos()),
            ),
        };
        let alarm = libc::itimerspec {
            it_interval: *TimeSpec::from_duration(Duration::ZERO).as_ref(),
            it_value: *TimeSpec::from_duration(at).as_ref(),
        };
        Some((flags, alarm))
    }

    /// Notes that the timer has expired. It is set again before the next wait, which also clears
    /// the expiration.
    pub fn rang(&mut self) {
        self.set_for = Time::ZERO;
    }
}
