//! An experiment as types, read from TOML text. Opens no file and runs nothing.
//!
//! Text → [`document`] (a tree that remembers its lines) → another link ([`relink`]), overrides
//! ([`path`]) and the sweep ([`sweep`], [`range`]) → one typed [`Scenario`] and its laws per point
//! ([`parse`]), some of which ask for numbers ([`gains`]).
//! Every key is declared once, with `params!`; [`schema`] and [`keys`] derive from that.

#![forbid(unsafe_code)]

mod changes;
mod document;
mod error;
mod files;
mod gains;
mod kernel;
mod keys;
mod law_choice;
mod laws;
mod limits;
pub mod link_options;
mod link_types;
mod links;
pub mod model;
mod offered;
mod options;
mod parse;
mod path;
mod range;
mod relink;
mod resolved;
mod schema;
mod senders;
mod sweep;
mod top;
mod traffic;
mod tree;
mod types;

pub use error::ScenarioError;
pub use forebay_aqm::RateTrace;
pub use forebay_packets::FrameCounts;
pub use gains::{DesignedGains, GainsRequest, Load};
pub use keys::{keys, KeyDoc};
pub use law_choice::{law_kinds, law_named, LawChoice};
pub use link_options::{link_options, LinkOptions};
pub use link_types::{DelayRange, DeviceKind, FileName, LawKind, MeasureWindow, Seed, Share};
pub use model::*;
pub use offered::Offered;
pub use options::{set_value, Options, Own};
pub use parse::{files, parse, prototypes, Experiment, Inputs, Point, Reading};
pub use path::link_path;
pub use range::Range;
pub use relink::{LinkPlace, Relink};
pub use schema::schema;
pub use senders::{SenderSpec, SENDERS};
pub use sweep::{Sample, Settings, Sweep};
pub use types::{check_buffer, BufferSize, Maybe, Queue as QueueName, Text};
