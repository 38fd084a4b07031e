//! C interface of Forebay: queues with AQM laws, and a simulated network, for programs in C.
//!
//! The library `libforebay` exports the functions of `include/forebay.h`, which documents them.
//! docs/reference/capi.md says how to build with the library.
//!
//! # Central types
//!
//! - [`queue::Queue`] is one queue with one law in the caller's time. It is safe Rust, and takes
//!   its settings as texts with the syntax of the command line.
//! - [`ffi`] has the functions that begin with `forebay_`: it checks pointers, converts the types
//!   of C, and catches panics. A queue that panicked fails all later calls.
//! - [`network`] has the functions that begin with `forebay_network_`, around a
//!   [`forebay_net::Network`].
//!
//! # Example
//!
//! A packet goes through a queue with CoDel:
//!
//! ```
//! use forebay::queue::{Held, Queue, Settings};
//! use forebay_aqm::{Dequeued, Ecn};
//! use forebay_units::Time;
//!
//! let settings = Settings {
//!     law: "codel",
//!     rate: "10Mbit/s",
//!     buffer: "100p",
//!     ..Settings::default()
//! };
//! let mut queue = Queue::new(&settings)?;
//! let packet = Held {
//!     handle: 7,
//!     flow: 1,
//!     hosts: (1, 1),
//!     bytes: 1500,
//!     ecn: Ecn::NotEct,
//!     dscp: 0,
//!     traffic: None,
//!     tcp: true,
//!     marked: false,
//! };
//! queue.enqueue(Time::from_nanos(1_000), packet)?;
//! let Dequeued::Packet(departure) = queue.dequeue(Time::from_nanos(2_000))? else {
//!     panic!("the queue has a packet");
//! };
//! assert_eq!(departure.packet.handle, 7);
//! assert_eq!(departure.sojourn.as_nanos(), 1_000);
//! # Ok::<(), forebay_units::ParamError>(())
//! ```
//!
//! # Where to start reading
//!
//! `queue.rs` has the behaviour, `ffi.rs` the conversion to C, and `tests/bottleneck.rs` a complete
//! event loop. `examples/capi/queue.c` is the same loop in C.

#![warn(missing_docs)]

pub mod ffi;
pub mod network;
pub mod queue;
