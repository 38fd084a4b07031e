//! The ACK policy of ns-2's receiver: a delayed ACK waits for the next packet or for a constant
//! time.

use forebay_units::Time;

use super::{AckPolicy, Receiver, ReceiverStack};

/// The receiver stack of ns-2, which has no quick ACKs.
pub struct Ns2Receiver;

impl ReceiverStack for Ns2Receiver {
    #[inline(always)]
    fn ack_due(_receiver: &Receiver, now: Time, acks: &AckPolicy) -> Time {
        now + acks.delay
    }
}
