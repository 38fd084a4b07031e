//! Exact timers and a real-time priority for this thread.

use forebay_units::{Span, Time};
use nix::libc;
use nix::time::ClockId;

use crate::clock::time_of;

/// A thread under SCHED_FIFO that has used 95 % of a second is halted for the rest of it
/// (sched_rt_runtime_us). A thread that needs more than this share runs better without the
/// priority.
const MOST_OF_A_CORE: f64 = 0.9;
/// Time over which the share is taken.
const LOOK: Span = Span::from_millis(200);

/// The most exact timers and the highest priority that the user may have; dropping it gives both back.
pub struct RealTime {
    former_slack: i32,
    first_in_first_out: bool,
    /// When the share of the processor was looked at last.
    looked: Time,
    /// Processor time of the thread by then.
    used: Time,
}

impl RealTime {
    /// Asks for SCHED_FIFO, which most users may not have.
    pub fn take() -> RealTime {
        // SAFETY: prctl and sched_setscheduler take values; the parameter lives through the call.
        unsafe {
            let former_slack = libc::prctl(libc::PR_GET_TIMERSLACK);
            libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64);
            let parameter = libc::sched_param { sched_priority: 10 };
            // Commands must not inherit it.
            let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
            let got = libc::sched_setscheduler(0, policy, &parameter) == 0;
            RealTime {
                former_slack,
                first_in_first_out: got,
                looked: Time::ZERO,
                used: processor_time(),
            }
        }
    }

    /// Whether the thread has priority, and has used nearly all of a core since this was asked
    /// last.
    pub fn hungry(&mut self, now: Time) -> bool {
        if !self.first_in_first_out || now < self.looked + LOOK {
            return false;
        }
        let used = processor_time();
        let share = used.since(self.used).as_secs_f64() / now.since(self.looked).as_secs_f64();
        (self.looked, self.used) = (now, used);
        share > MOST_OF_A_CORE
    }

    pub fn give_priority_back(&mut self) {
        self.first_in_first_out = false;
        let parameter = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameter lives through the call.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &parameter) };
    }
}

/// Processor time of this thread.
fn processor_time() -> Time {
    time_of(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

impl std::ops::Drop for RealTime {
    fn drop(&mut self) {
        // Zero, where the former slack is not known, is the thread's default.
        let slack = u64::from(self.former_slack.max(0).cast_unsigned());
        // SAFETY: prctl takes a value.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack) };
        if self.first_in_first_out {
            self.give_priority_back();
        }
    }
}
