//! Exact timers and real-time priority of this thread.

use forebay_units::{Span, Time};
use nix::libc;
use nix::time::ClockId;

use crate::clock::time_of;

/// The share of a core above which a thread runs better without real-time priority. The kernel
/// halts a SCHED_FIFO thread that has used 95 % of a second for the rest of that second
/// (sched_rt_runtime_us, sched(7)).
const MAX_SHARE_OF_A_CORE: f64 = 0.9;
/// The time over which the share is measured.
const INTERVAL: Span = Span::from_millis(200);

/// The timer slack and the priority of this thread during a run: the smallest slack, and real-time
/// priority if the user may have it. Dropping the value restores both.
pub struct RealTime {
    former_slack: i32,
    /// True if the thread has real-time priority (SCHED_FIFO).
    first_in_first_out: bool,
    /// The time at which the share of the core was last measured.
    measured: Time,
    /// The CPU time of the thread at that time.
    used: Time,
}

impl RealTime {
    /// Sets the smallest timer slack and asks for SCHED_FIFO, which most users may not have.
    pub fn take() -> RealTime {
        // SAFETY: prctl and sched_setscheduler take values; the parameter lives through the call.
        unsafe {
            let former_slack = libc::prctl(libc::PR_GET_TIMERSLACK);
            libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64);
            let parameter = libc::sched_param { sched_priority: 10 };
            // Commands must not inherit the priority.
            let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
            let granted = libc::sched_setscheduler(0, policy, &parameter) == 0;
            RealTime {
                former_slack,
                first_in_first_out: granted,
                measured: Time::ZERO,
                used: processor_time(),
            }
        }
    }

    /// Returns whether the thread has real-time priority and has used nearly a whole core since the
    /// last measurement.
    pub fn hungry(&mut self, now: Time) -> bool {
        if !self.first_in_first_out || now < self.measured + INTERVAL {
            return false;
        }
        let used = processor_time();
        let share = used.since(self.used).as_secs_f64() / now.since(self.measured).as_secs_f64();
        (self.measured, self.used) = (now, used);
        share > MAX_SHARE_OF_A_CORE
    }

    /// Returns to the normal scheduling policy (SCHED_OTHER).
    pub fn give_priority_back(&mut self) {
        self.first_in_first_out = false;
        let parameter = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameter lives through the call.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &parameter) };
    }
}

/// Returns the CPU time of this thread.
fn processor_time() -> Time {
    time_of(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

impl std::ops::Drop for RealTime {
    fn drop(&mut self) {
        // Where the former slack is unknown, zero restores the thread's default.
        let slack = u64::from(self.former_slack.max(0).cast_unsigned());
        // SAFETY: prctl takes a value.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack) };
        if self.first_in_first_out {
            self.give_priority_back();
        }
    }
}
