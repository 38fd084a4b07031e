//! Virtual time, and the one timer that wakes the guest.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use forebay_units::Time;
use nix::libc;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use nix::time::{clock_gettime, ClockId as Clocks};

fn nanos(clock: Clocks) -> u64 {
    of(clock_gettime(clock).expect("every Linux has these clocks"))
}

fn of(time: TimeSpec) -> u64 {
    let time = Duration::from(time);
    time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
}

/// Time since the start of the run.
pub struct GuestClock {
    start_ns: u64,
    /// The same moment as the kernel stamps packets.
    real_start_ns: u64,
    timer: TimerFd,
    set_for: Time,
}

impl GuestClock {
    /// # Errors
    /// As timerfd_create(2) says.
    pub fn start() -> io::Result<GuestClock> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(GuestClock {
            start_ns: nanos(Clocks::CLOCK_MONOTONIC),
            real_start_ns: nanos(Clocks::CLOCK_REALTIME),
            timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?,
            set_for: Time::ZERO,
        })
    }

    pub fn now(&self) -> Time {
        Time::from_nanos(nanos(Clocks::CLOCK_MONOTONIC) - self.start_ns)
    }

    /// The time that CLOCK_MONOTONIC has said.
    pub fn said(&self, monotonic: libc::timespec) -> Time {
        Time::from_nanos(of(monotonic.into()) - self.start_ns)
    }

    /// The time of a packet's stamp.
    pub fn stamped(&self, seconds: u64, nanos: u64) -> Time {
        Time::from_nanos((seconds * 1_000_000_000 + nanos).saturating_sub(self.real_start_ns))
    }

    pub fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// How the timer is to be set to ring at `at` (timerfd_settime(2)); `None` where it is.
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

    /// The timer has rung. It is set anew before the next wait, which takes the ring back.
    pub fn rang(&mut self) {
        self.set_for = Time::ZERO;
    }
}
