//! When a timer of Linux fires (`calc_wheel_index` of kernel/time/timer.c): at a tick of the host, and the later it
//! is due the coarser are the ticks, always rounded up. Flows share the ticks, as connections of one
//! host do: timeouts that are backed off come in bursts.

/// A tick at HZ = 1000.
const TICK_NS: u64 = 1_000_000;
/// A level of the wheel has 64 buckets, of which one is never ahead (`LVL_SIZE`).
const BUCKETS_AHEAD: u64 = 63;
/// A bucket of each level is 2^3 of the one below (`LVL_CLK_SHIFT`).
const LEVEL_SHIFT: u32 = 3;

/// The time at which a timer fires that is set now to expire after `after_ns`.
#[inline(always)]
pub fn expiry_ns(now: u64, after_ns: u64) -> u64 {
    let delta = after_ns.div_ceil(TICK_NS);
    let expires = now / TICK_NS + delta;
    // The first level that reaches so far.
    let mut shift = 0;
    while delta >= BUCKETS_AHEAD << shift {
        shift += LEVEL_SHIFT;
    }
    (((expires >> shift) + 1) << shift) * TICK_NS
}

#[cfg(test)]
mod tests {
    use super::expiry_ns;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_timer_fires_at_the_next_bucket_of_its_level() {
        // Below 63 ticks to the tick, then to 8, from 504 on to 64, from 4032 on to 512.
        assert_eq!(expiry_ns(10 * MS, 5 * MS), 16 * MS);
        assert_eq!(expiry_ns(10 * MS + 1, 5 * MS + 1), 17 * MS);
        assert_eq!(expiry_ns(0, 62 * MS), 63 * MS);
        assert_eq!(expiry_ns(0, 63 * MS), 64 * MS);
        assert_eq!(expiry_ns(3 * MS, 200 * MS), 208 * MS);
        assert_eq!(expiry_ns(0, 504 * MS), 512 * MS);
        assert_eq!(expiry_ns(0, 1000 * MS), 1024 * MS);
        assert_eq!(expiry_ns(0, 4032 * MS), 4096 * MS);
        assert_eq!(expiry_ns(64 * MS, 8000 * MS), 8192 * MS);
    }

    #[test]
    fn no_timer_fires_early_nor_later_than_a_seventh_and_two_ticks() {
        for after in (1..200_000).step_by(7) {
            for now in [0, 1, 999_999, 123_456_789] {
                let late = expiry_ns(now, after * MS) - now - after * MS;
                assert!(late <= after * MS / 7 + 2 * MS, "{now} {after}: {late}");
            }
        }
    }
}
