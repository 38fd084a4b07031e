//! Packets as bytes: headers of IP, captures that are read and written, and lists of packets.
//!
//! # Central types
//!
//! - [`ip::Headers`] are the fields of a packet that queues and the emulator need; [`ip::Flow`] is
//!   the flow of a packet; [`ip::set_ce`] marks a packet with CE.
//! - [`Arrivals`] are the recorded packets of a file (pcap, pcapng or CSV), which a scenario sends
//!   into a simulated queue. A [`Selection`] chooses them by their addresses ([`Prefix`]).
//! - [`CaptureWriter`] writes a pcapng file with comments on packets.
//!
//! # Example
//!
//! A list of packets as text:
//!
//! ```
//! use forebay_packets::{Arrivals, Selection};
//! use forebay_units::Span;
//!
//! let list = b"time_s,size_bytes,flow\n10.0,1500,web\n10.001,200,call\n";
//! let all = Selection { source: Vec::new(), destination: Vec::new(), mtu: 1500 };
//! let arrivals = Arrivals::parse(list, &all, "file", "packets.csv")?;
//! assert_eq!(arrivals.flows, 2);
//! assert_eq!(arrivals.packets[1].at, Span::from_millis(1));
//! # Ok::<(), forebay_units::ParamError>(())
//! ```
//!
//! # Where to start reading
//!
//! `ip.rs` has the headers. `file.rs` reads a file of either format; `capture.rs` and
//! `link_layer.rs` have the details of captures, `list.rs` those of lists, and `arrivals.rs`
//! collects the packets of both.

#![warn(missing_docs)]
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
