//! TCP: senders and receivers.
//!
//! A sender is a stack with a congestion control, as in an operating system; the registry in
//! `senders.rs` names the combinations. All senders share one receiver, whose ACK policy follows
//! ns-2 or Linux.
//!
//! Windows count packets. Sequence numbers are numbers of packets; packet 0 is the SYN.

mod congestion;
mod connection;
mod pacing;
mod receiver;
#[cfg(test)]
mod scripted;
mod senders;
mod stacks;
#[cfg(test)]
mod testing;

pub use connection::{Config, SenderStep};
pub use receiver::{AckPolicy, Block, Receiver, Reply, MAX_BLOCKS};
pub use senders::{senders, Senders, StepOutcome};
