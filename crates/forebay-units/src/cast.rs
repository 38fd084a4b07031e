//! Conversions that lose something, under names that say what. `as` says nothing of it, and the
//! crates deny it.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "that is what they are for"
)]

/// The whole part of `x`: rounded toward zero, 0 where negative or NaN, and at most `u32::MAX`.
#[inline]
#[must_use]
pub const fn whole_u32(x: f64) -> u32 {
    x as u32
}

/// The whole part of `x`: rounded toward zero, 0 where negative or NaN, and at most `u64::MAX`.
#[inline]
#[must_use]
pub const fn whole_u64(x: f64) -> u64 {
    x as u64
}

/// The whole part of `x`: rounded toward zero, 0 where negative or NaN, and at most `usize::MAX`.
#[inline]
#[must_use]
pub const fn whole_usize(x: f64) -> usize {
    x as usize
}

/// The whole part of `x`: rounded toward zero, 0 where NaN, and within the range of `i64`.
#[inline]
#[must_use]
pub const fn whole_i64(x: f64) -> i64 {
    x as i64
}

/// The number of single precision that is nearest to `x`.
#[inline]
#[must_use]
pub const fn nearest_f32(x: f64) -> f32 {
    x as f32
}

/// `x` where it is a whole number that a float holds exactly; none otherwise.
#[must_use]
pub fn exact_i64(x: f64) -> Option<i64> {
    (x.fract() == 0.0 && x.abs() < 9e15).then_some(x as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_float_may_be_a_whole_number() {
        assert_eq!(exact_i64(1e9), Some(1_000_000_000));
        assert_eq!(exact_i64(-20.0), Some(-20));
        for x in [0.5, 1e16, f64::NAN, f64::INFINITY] {
            assert_eq!(exact_i64(x), None, "{x}");
        }
    }

    #[test]
    fn what_does_not_fit_saturates() {
        for (x, want) in [(-1.5, 0), (f64::NAN, 0), (0.999, 0), (7.9, 7)] {
            assert_eq!(whole_u32(x), want, "{x}");
            assert_eq!(whole_u64(x), u64::from(want), "{x}");
            assert_eq!(u32::try_from(whole_usize(x)), Ok(want), "{x}");
        }
        assert_eq!([-1.5, f64::NAN, 7.9].map(whole_i64), [-1, 0, 7]);
        assert_eq!(whole_i64(-1e30), i64::MIN);
        assert_eq!(nearest_f32(0.1), 0.1_f32);
        assert_eq!(whole_u32(1e10), u32::MAX);
        assert_eq!(whole_u64(1e10), 10_000_000_000);
        assert_eq!(whole_u64(f64::INFINITY), u64::MAX);
    }
}
