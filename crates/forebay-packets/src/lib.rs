//! Real packets as bytes: the headers of IP, and captures and lists of packets as [`Arrivals`] at a
//! simulated queue.

#![forbid(unsafe_code)]
#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

mod arrivals;
mod capture;
mod capture_writer;
mod file;
pub mod ip;
mod link_layer;
mod list;
mod prefix;

pub use arrivals::{Arrival, Arrivals, FrameCounts, Selection};
pub use capture_writer::{dropped_comment, CaptureWriter};
pub use prefix::Prefix;
