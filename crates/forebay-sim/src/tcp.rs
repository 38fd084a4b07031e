//! TCP between its ends: a sender is a recovery over a window, each one a file; the registry in
//! `senders.rs` names the combinations. The receiver is one for all.
//!
//! Windows count packets; sequence numbers are those of packets, 0 being the SYN.

mod connection;
mod pacing;
mod receiver;
mod recovery;
mod senders;
mod window;

pub use connection::{Ack, Config, Segment, Step, NEVER};
pub use receiver::{AckPolicy, Block, Receiver, Reply, MAX_BLOCKS};
pub use senders::{senders, Outcome, Senders};
