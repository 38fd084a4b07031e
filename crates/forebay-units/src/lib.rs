//! Quantities with their unit in the type, declared parameters, and seeded random streams: the
//! vocabulary of all crates of Forebay.
//!
//! - [`Time`], [`Span`], [`Rate`], [`Bytes`], [`Packets`] and [`SetPoint`] carry their unit in the
//!   type. Times are integer nanoseconds. Each type parses and prints its notation, such as `15ms`.
//! - [`params!`] declares a struct of parameters once, with type, default, range and a sentence for
//!   each. Parsing, help texts, reference pages, JSON Schema and error messages derive from the
//!   declaration. [`words!`] declares a parameter that is one of a few names.
//! - [`Rng`] is a random stream that is identified by a seed and a name.
//! - [`Site`] and [`QueueSite`] describe the place in which a law and a queue work.
//!
//! The crate has no dependencies, no clock and no I/O.
//!
//! # Example
//!
//! ```
//! use forebay_units::{params, Bytes, Params, Rate, Span, Value};
//!
//! params! {
//!     /// Parameters of a law.
//!     pub struct Example {
//!         /// Queuing delay to control.
//!         target: Span = Span::from_millis(15), 1e-6 => 10.0;
//!     }
//! }
//!
//! let law = Example::read(&[("target".into(), Value::Text("5ms".into()))]).unwrap();
//! assert_eq!(law.target, Span::from_millis(5));
//! let error = Example::read(&[("taget".into(), Value::Text("5ms".into()))]).unwrap_err();
//! assert_eq!(error.to_string(), "taget: unknown key; expected target");
//!
//! // 500 bytes at 40 Mbit/s take 100 us.
//! let (duration, _) = Rate::parse("40Mbit/s").unwrap().transmission(500, 0);
//! assert_eq!(duration, Span::from_micros(100));
//! assert_eq!(Rate::parse("40Mbit/s").unwrap().packets_per_sec(Bytes(500)), 10_000.0);
//! ```
//!
//! # Where to start reading
//!
//! `quantity.rs` has the quantities and their notation, `param.rs` the declaration of parameters.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cast;
mod fnv;
mod param;
mod quantity;
mod ring;
mod rng;
mod site;
mod stop;

pub use fnv::Fnv1a;
pub use param::{
    in_range, nearest, no_goals, one_of, unknown_key, ParamError, ParamSpec, ParamTable, ParamType,
    ParamValues, Params, Shape, Value,
};
pub use quantity::{
    number_and_unit, unit, unit_names, Bytes, Expected, Packets, Rate, SetPoint, Span, Time,
};
pub use ring::Ring;
pub use rng::Rng;
pub use site::{Buffer, QueueSite, Site};
pub use stop::Stop;
