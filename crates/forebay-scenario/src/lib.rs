//! An experiment as types, read from TOML text. Opens no file and runs nothing.
//!
//! Text → [`document`] (a tree that remembers its lines) → overrides and sweeps
//! ([`path`], [`sweep`]) → one typed [`Scenario`] and its laws per point ([`parse`]).
//! Every key is declared once, with `params!`; [`schema`] and [`keys`] derive from that.

mod changes;
mod document;
mod error;
mod keys;
mod laws;
mod limits;
mod links;
pub mod model;
mod parse;
mod path;
mod schema;
mod sweep;
mod top;
mod traffic;
mod types;

pub use error::ScenarioError;
pub use keys::{keys, KeyDoc};
pub use model::*;
pub use parse::{files, parse, Experiment, Options, Point};
pub use schema::schema;
