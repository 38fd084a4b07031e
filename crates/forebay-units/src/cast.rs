//! Lossy conversions of numbers, with names that state what is lost. `make lint` denies lossy `as`
//! casts elsewhere.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the purpose of these functions"
)]

/// Returns the integer part of `x`: rounded towards zero, 0 if negative or NaN, at most `u32::MAX`.
#[inline]
#[must_use]
pub const fn whole_u32(x: f64) -> u32 {
    x as u32
}

/// Returns the integer part of `x`: rounded towards zero, 0 if negative or NaN, at most `u64::MAX`.
#[inline]
#[must_use]
pub const fn whole_u64(x: f64) -> u64 {
    x as u64
}

/// Returns the integer part of `x`: rounded towards zero, 0 if negative or NaN, at most `usize::MAX`.
#[inline]
#[must_use]
pub const fn whole_usize(x: f64) -> usize {
    x as usize
}

/// Returns the integer part of `x`: rounded towards zero, 0 if NaN, limited to the range of `i64`.
#[inline]
#[must_use]
pub const fn whole_i64(x: f64) -> i64 {
    x as i64
}

/// Returns the single-precision number nearest to `x`.
#[inline]
#[must_use]
pub const fn nearest_f32(x: f64) -> f32 {
    x as f32
}

/// Returns `x` as an integer if it is one and below 9·10¹⁵, where every integer has an exact
/// floating-point representation; `None` otherwise.
#[must_use]
pub fn exact_i64(x: f64) -> Option<i64> {
    (x.fract() == 0.0 && x.abs() < 9e15).then_some(x as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_integers_are_converted() {
        assert_eq!(exact_i64(1e9), Some(1_000_000_000));
        assert_eq!(exact_i64(-20.0), Some(-20));
        for x in [0.5, 1e16, f64::NAN, f64::INFINITY] {
            assert_eq!(exact_i64(x), None, "{x}");
        }
    }

    #[test]
    fn values_out_of_range_saturate() {
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
