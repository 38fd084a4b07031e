//! The expiry of Linux's timers (`calc_wheel_index` of kernel/time/timer.c).
//!
//! A timer fires at a tick of the host. Timers that are due later have coarser ticks, and a time is
//! always rounded up. Flows share the ticks, like the connections of one host, so that timeouts
//! with backoff occur in bursts.

use forebay_units::{Span, Time};

/// The length of a tick at HZ = 1000.
const TICK: Span = Span::from_millis(1);
/// Number of buckets that lie ahead on a level of the wheel, which has 64 (`LVL_SIZE`).
const BUCKETS_AHEAD: u64 = 63;
/// A bucket of each level is 2^3 times as long as one of the level below (`LVL_CLK_SHIFT`).
const LEVEL_SHIFT: u32 = 3;

/// Returns the time at which a timer fires that is set at `now` to expire after `timeout`.
#[inline(always)]
pub fn expiry(now: Time, timeout: Span) -> Time {
    let delta = timeout.as_nanos().div_ceil(TICK.as_nanos());
    let expires = now.since_start() / TICK + delta;
    // Find the first level that reaches the expiry.
    let mut shift = 0;
    while delta >= BUCKETS_AHEAD << shift {
        shift += LEVEL_SHIFT;
    }
    let ticks = ((expires >> shift) + 1) << shift;
    Time::from_nanos(ticks * TICK.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::testing::{at, MS};

    const NS: Span = Span::from_nanos(1);

    #[test]
    fn a_timer_fires_at_the_next_bucket_of_its_level() {
        // Times are rounded up to 1 tick below 63 ticks, then to 8, from 504 on to 64, and from
        // 4032 on to 512.
        assert_eq!(expiry(at(10 * MS), 5 * MS), at(16 * MS));
        assert_eq!(expiry(at(10 * MS + NS), 5 * MS + NS), at(17 * MS));
        assert_eq!(expiry(Time::ZERO, 62 * MS), at(63 * MS));
        assert_eq!(expiry(Time::ZERO, 63 * MS), at(64 * MS));
        assert_eq!(expiry(at(3 * MS), 200 * MS), at(208 * MS));
        assert_eq!(expiry(Time::ZERO, 504 * MS), at(512 * MS));
        assert_eq!(expiry(Time::ZERO, 1000 * MS), at(1024 * MS));
        assert_eq!(expiry(Time::ZERO, 4032 * MS), at(4096 * MS));
        assert_eq!(expiry(at(64 * MS), 8000 * MS), at(8192 * MS));
    }

    #[test]
    fn no_timer_fires_early_nor_later_than_a_seventh_and_two_ticks() {
        for after in (1..200_000).step_by(7) {
            for now in [0, 1, 999_999, 123_456_789].map(Time::from_nanos) {
                let fires = expiry(now, after * MS);
                assert!(fires >= now + after * MS, "{now} {after}: {fires}");
                let late = fires - now - after * MS;
                assert!(late <= after * MS / 7 + 2 * MS, "{now} {after}: {late}");
            }
        }
    }
}
