//! TCP's sending side but for congestion control, as two systems have it: ns-2's agents and the
//! Linux kernel. A stack finds losses and repairs them, keeps numbers, timers and the round trip, and
//! asks a congestion control how much may be in flight.

mod linux;
mod ns2;

pub use linux::{timer_wheel, Linux};
pub use ns2::{NewReno, Ns2, Reno, Sack};
