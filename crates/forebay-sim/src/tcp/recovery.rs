//! How a sender finds out what was lost, and repairs it: as ns-2's agents do, or as the Linux
//! kernel does.

mod linux;
mod ns2;

pub use linux::Linux;
pub use ns2::{NewReno, Ns2, Reno, Sack};
