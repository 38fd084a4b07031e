//! The sending side of TCP without congestion control, as in ns-2's agents and as in the Linux
//! kernel. A stack detects and repairs losses, keeps sequence numbers, timers and round-trip times,
//! and asks a congestion control how much may be in flight.

mod linux;
mod ns2;

pub use linux::{timer_wheel, Linux};
pub use ns2::{NewReno, Ns2, Reno, Sack};
