//! Seeded random streams, one per component. The draws of a component do not affect those of
//! others, so runs under different laws share their random numbers.

use crate::Fnv1a;

/// The generator xoshiro256++ of Blackman and Vigna, seeded by SplitMix64 as its authors recommend.
#[derive(Clone, Debug)]
pub struct Rng {
    s: [u64; 4],
}

/// Returns the next output of SplitMix64.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// Creates the stream named `stream` of the run with this seed.
    pub fn new(seed: u64, stream: &str) -> Rng {
        // The state is a hash of name and seed, on every platform and in every version.
        let mut hash = Fnv1a::default();
        hash.write(stream.bytes().chain(seed.to_le_bytes()));
        let mut state = hash.finish();
        Rng {
            s: std::array::from_fn(|_| split_mix(&mut state)),
        }
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.s;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a number that is uniform on [0, 1), with 53 random bits.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns true with probability `p`: never if p ≤ 0 or NaN, always if p ≥ 1.
    #[inline]
    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform() < p
    }

    /// Returns a number that is uniform on [low, high).
    pub fn uniform_in(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Returns an exponentially distributed number with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_is_that_of_the_reference_implementation() {
        // The first outputs of the authors' xoshiro256plusplus.c for the state 1, 2, 3, 4.
        let mut rng = Rng { s: [1, 2, 3, 4] };
        let actual: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        assert_eq!(
            actual,
            [41943041, 58720359, 3588806011781223, 3591011842654386]
        );
    }

    #[test]
    fn different_streams_and_seeds_give_different_numbers() {
        let first = |seed, stream| Rng::new(seed, stream).next_u64();
        assert_eq!(first(1, "law"), first(1, "law"));
        assert_ne!(first(1, "law"), first(2, "law"));
        assert_ne!(first(1, "law"), first(1, "start"));
    }

    #[test]
    fn means_are_those_of_the_distributions() {
        let mut rng = Rng::new(7, "moments");
        let n = 200_000;
        let mean = (0..n).map(|_| rng.uniform()).sum::<f64>() / n as f64;
        assert!((mean - 0.5).abs() < 4.0 / (12.0f64.sqrt() * (n as f64).sqrt()));
        let mean = (0..n).map(|_| rng.exponential(2.0)).sum::<f64>() / n as f64;
        assert!((mean - 2.0).abs() < 4.0 * 2.0 / (n as f64).sqrt());
    }
}
