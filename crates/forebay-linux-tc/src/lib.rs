//! AQM laws in Linux: the syntax and limits of tc(8), and fixed-point arithmetic for laws that run
//! in the kernel as BPF programs.
//!
//! A law of Forebay can run in the Linux kernel in two ways:
//!
//! - as one of the kernel's own qdiscs. [`LinuxQdisc`] returns the tc(8) line, a [`Tc`], that
//!   configures the qdisc like the law at a [`TcSite`]. Values that the qdisc stores with less
//!   precision are rounded and reported as [`Rounded`].
//! - as a BPF program that Forebay attaches. [`fixed_point::FixedPointLaw`] returns a
//!   [`fixed_point::Twin`]: the configuration and the initial state of the law's C header, as
//!   64-bit integers.
//!
//! The laws themselves are in `forebay-aqm`, which implements these traits.
//!
//! # Example
//!
//! ```
//! use forebay_linux_tc::{Tc, TcSite};
//! use forebay_units::{Buffer, Bytes, QueueSite, Rate, Span};
//!
//! let queue = QueueSite {
//!     rate: Rate::from_bps(15_000_000),
//!     buffer: Buffer::Packets(1000),
//!     packet: Bytes(1500),
//!     ecn: true,
//! };
//! let site = TcSite { queue, header: Bytes(14), in_packet: Bytes(0), held: false };
//! let mut tc = Tc::new("codel");
//! tc.limit(&site);
//! tc.time("target", "target", Span::from_millis(5));
//! tc.ecn(&site);
//! assert_eq!(tc.to_string(), "codel limit 1000 target 5ms ecn");
//! ```
//!
//! # Where to start reading
//!
//! `tc.rs` has the tc(8) line; `laws/codel.rs` in `forebay-aqm` is a short user. `fixed_point.rs`
//! has the number formats, which `python/forebay/linux/bpf/fixed.h` shares.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod fixed_point;
mod tc;

pub use tc::{LinuxQdisc, Rounded, StateVariable, Tc, TcSite};
