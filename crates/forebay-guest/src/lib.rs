//! A scenario on the real Linux kernel: User-mode Linux, whose processor is infinitely fast, so that
//! its time is that of the packets. The host hands over [`Orders`]; the guest's first process sets up
//! the network, drives the applications, and records the bottleneck; the host makes a trace of that.

#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

#[cfg(target_os = "linux")]
pub mod guest;
pub mod limits;
pub mod orders;
pub mod record;

pub use limits::check;
pub use orders::Orders;
pub use record::{trace, Outcome};

/// A count that fits.
pub(crate) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
