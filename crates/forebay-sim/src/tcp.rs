//! TCP between its ends: a sender is a stack over a congestion control, as in an operating system;
//! the registry in `senders.rs` names the combinations. The receiver is one for all.
//!
//! Windows count packets; sequence numbers are those of packets, 0 being the SYN.

mod congestion;
mod connection;
mod pacing;
mod receiver;
mod senders;
mod stacks;
#[cfg(test)]
mod testing;

pub use connection::{Ack, Config, SenderStep, TcpSegment};
pub use receiver::{AckPolicy, Block, Receiver, Reply, MAX_BLOCKS};
pub use senders::{senders, Senders, StepOutcome};
