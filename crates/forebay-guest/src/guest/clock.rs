//! Virtual time, and the one timer that wakes the guest.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use forebay_core::Time;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{clock_gettime, ClockId as Clocks};

fn nanos(clock: Clocks) -> u64 {
    let time = Duration::from(clock_gettime(clock).expect("every Linux has these clocks"));
    time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
}

/// Time since the start of the run.
pub struct Clock {
    start_ns: u64,
    /// The same moment as the kernel stamps packets.
    real_start_ns: u64,
    timer: TimerFd,
    set_for: Time,
}

impl Clock {
    /// # Errors
    /// As timerfd_create(2) says.
    pub fn start() -> io::Result<Clock> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Clock {
            start_ns: nanos(Clocks::CLOCK_MONOTONIC),
            real_start_ns: nanos(Clocks::CLOCK_REALTIME),
            timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?,
            set_for: Time::ZERO,
        })
    }

    pub fn now(&self) -> Time {
        Time::from_nanos(nanos(Clocks::CLOCK_MONOTONIC) - self.start_ns)
    }

    /// The time of a packet's stamp.
    pub fn stamped(&self, seconds: u64, nanos: u64) -> Time {
        Time::from_nanos((seconds * 1_000_000_000 + nanos).saturating_sub(self.real_start_ns))
    }

    pub fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Wakes at `at`.
    ///
    /// # Errors
    /// As timerfd_settime(2) says.
    pub fn wake(&mut self, at: Time) -> io::Result<()> {
        if at == self.set_for {
            return Ok(());
        }
        self.set_for = at;
        if at == Time::MAX {
            self.timer.unset()?;
            return Ok(());
        }
        let at = TimeSpec::from_duration(Duration::from_nanos(self.start_ns + at.as_nanos()));
        let absolute = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
        self.timer.set(Expiration::OneShot(at), absolute)?;
        Ok(())
    }

    /// The timer has rung. It is set anew before the next wait, which takes the ring back.
    pub fn rang(&mut self) {
        self.set_for = Time::ZERO;
    }
}
