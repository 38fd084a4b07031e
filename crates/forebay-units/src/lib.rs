//! Quantities with their unit in the type, parameters that are declared once, and seeded random
//! streams: what every crate of Forebay speaks.
//!
//! The crate has no dependencies, no clock and no I/O.

#![forbid(unsafe_code)]

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
    in_range, nearest, no_goals, unknown_key, ParamError, ParamSpec, ParamTable, ParamType,
    ParamValues, Params, Shape, Value,
};
pub use quantity::{
    number_and_unit, unit, unit_names, Allowed, Bytes, Packets, Rate, SetPoint, Span, Time,
};
pub use ring::Ring;
pub use rng::Rng;
pub use site::{Buffer, QueueSite, Site};
pub use stop::Stop;
