//! A link that delays packets but never drops them: serialisation, waiting for earlier packets, and
//! propagation.
//!
//! Packets enter in order of time, so that the time at which a packet comes out is computed when it
//! enters, without an event.

use forebay_units::{Rate, Span, Time};

use crate::packet::HEADER_BYTES;

/// Fixed-point binary digits of the time per byte.
const FRACTION: u32 = 20;

/// Rate and propagation delay of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Serialisation time per byte, in units of 2^-20 ns.
    per_byte: u64,
    /// Propagation delay.
    pub delay: Span,
    /// Serialisation time of an ACK without data.
    pub ack: Span,
}

impl Wire {
    /// Creates a wire with this rate and propagation delay.
    pub fn new(rate: Rate, delay: Span) -> Wire {
        let per_byte = ((8u128 * 1_000_000_000) << FRACTION) / u128::from(rate.as_bps());
        let mut wire = Wire {
            per_byte: u64::try_from(per_byte).expect("a rate of 1 bit/s leaves it at 2^53"),
            delay,
            ack: Span::ZERO,
        };
        wire.ack = wire.serialisation(HEADER_BYTES);
        wire
    }

    /// Returns the time that `bytes` take to enter the wire, rounded down to 1 ns.
    #[inline]
    pub fn serialisation(&self, bytes: u16) -> Span {
        Span::from_nanos((u64::from(bytes) * self.per_byte) >> FRACTION)
    }

    /// Returns the time that data takes on this wire if it takes `span` on `other`.
    pub fn restated(&self, span: Span, other: &Wire) -> Span {
        let scaled = u128::from(span.as_nanos()) * u128::from(self.per_byte);
        let restated = scaled / u128::from(other.per_byte.max(1));
        Span::from_nanos(u64::try_from(restated).unwrap_or(u64::MAX))
    }

    /// Returns the time at which a packet that arrives at `now` comes out. `free` is the time at
    /// which the wire becomes free, and is updated.
    #[inline]
    pub fn pass(&self, free: &mut Time, now: Time, bytes: u16) -> Time {
        *free = now.max(*free) + self.serialisation(bytes);
        *free + self.delay
    }

    /// Returns the time at which an ACK without data that arrives at `now` comes out, like
    /// [`pass`](Wire::pass).
    #[inline]
    pub fn pass_ack(&self, free: &mut Time, now: Time) -> Time {
        *free = now.max(*free) + self.ack;
        *free + self.delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_queue_behind_each_other() {
        // 500 bytes at 100 Mbit/s take 40 us.
        let wire = Wire::new(Rate::from_bps(100_000_000), Span::from_millis(5));
        let at = |us| Time::ZERO + Span::from_micros(us);
        let mut free = Time::ZERO;
        assert_eq!(wire.pass(&mut free, at(0), 500), at(5040));
        assert_eq!(wire.pass(&mut free, at(10), 500), at(5080));
        assert_eq!(wire.pass(&mut free, at(1000), 500), at(6040));
        assert_eq!(
            wire.pass_ack(&mut free, at(2000)),
            Wire::pass(&wire, &mut at(0), at(2000), HEADER_BYTES)
        );
    }
}
