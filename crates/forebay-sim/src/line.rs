//! A link that delays but never drops: serialisation, queueing behind what went before, and
//! propagation. Packets enter in order of time, so no event is needed: it is arithmetic.

use crate::packet::HEADER_BYTES;

/// Fixed-point binary digits of the time per byte.
const FRACTION: u32 = 20;

/// Rate and propagation delay of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// ns per byte, in units of 2^-20.
    per_byte: u64,
    pub delay_ns: u64,
    /// Serialisation of an ACK.
    pub ack_ns: u64,
}

impl Wire {
    pub fn new(rate_bps: u64, delay_ns: u64) -> Wire {
        let per_byte = ((8u128 * 1_000_000_000) << FRACTION) / u128::from(rate_bps);
        let mut wire = Wire {
            per_byte: u64::try_from(per_byte).expect("a rate of 1 bit/s leaves it at 2^53"),
            delay_ns,
            ack_ns: 0,
        };
        wire.ack_ns = wire.serialisation_ns(HEADER_BYTES);
        wire
    }

    #[inline]
    pub fn serialisation_ns(&self, bytes: u16) -> u64 {
        (u64::from(bytes) * self.per_byte) >> FRACTION
    }

    /// Returns how long that takes here which takes `span_ns` on a line of another rate.
    pub fn restated_ns(&self, span_ns: u64, other: &Wire) -> u64 {
        let scaled = u128::from(span_ns) * u128::from(self.per_byte);
        let restated = scaled / u128::from(other.per_byte.max(1));
        u64::try_from(restated).unwrap_or(u64::MAX)
    }

    /// When a packet that enters at `now` comes out; `free` is when the wire is next free.
    #[inline]
    pub fn pass(&self, free: &mut u64, now: u64, bytes: u16) -> u64 {
        *free = now.max(*free) + self.serialisation_ns(bytes);
        *free + self.delay_ns
    }

    /// The same for an ACK.
    #[inline]
    pub fn pass_ack(&self, free: &mut u64, now: u64) -> u64 {
        *free = now.max(*free) + self.ack_ns;
        *free + self.delay_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_queue_behind_each_other() {
        // 500 bytes at 100 Mbit/s take 40 us.
        let wire = Wire::new(100_000_000, 5_000_000);
        let mut free = 0;
        assert_eq!(wire.pass(&mut free, 0, 500), 5_040_000);
        assert_eq!(wire.pass(&mut free, 10_000, 500), 5_080_000);
        assert_eq!(wire.pass(&mut free, 1_000_000, 500), 6_040_000);
        assert_eq!(
            wire.pass_ack(&mut free, 2_000_000),
            Wire::pass(&wire, &mut 0, 2_000_000, HEADER_BYTES)
        );
    }
}
