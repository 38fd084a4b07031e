//! A receiver as ns-2's: an ACK that is delayed waits for the next packet, or for a time that is the
//! same throughout.

use forebay_units::Time;

use super::{AckPolicy, Receiver, ReceiverStack};

/// The stack of a receiver without quick ACKs.
pub struct Ns2Receiver;

impl ReceiverStack for Ns2Receiver {
    #[inline(always)]
    fn ack_due(_receiver: &Receiver, now: Time, acks: &AckPolicy) -> Time {
        now + acks.delay
    }
}
