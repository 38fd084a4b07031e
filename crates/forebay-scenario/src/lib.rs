//! An experiment as types, read from TOML text. The crate opens no file and runs nothing.
//!
//! [`parse`] reads the text of a scenario with [`Options`] (overrides, other laws, the contents of
//! the files it names) and returns an [`Experiment`]: a [`Point`] for each combination of values
//! that the sweep sets. A point has a [`Scenario`], in which every default is filled in, and the
//! laws under test as [`LawChoice`]s. Links, traffic and changes of a scenario are numbered from 0;
//! `[bottleneck]`, the link under test, is link 0.
//!
//! Bad input is a [`ScenarioError`] with the file, the line, the key, the value and what is
//! expected. Every key is declared once, with `params!`: [`keys()`] and [`schema()`] derive the
//! reference pages and a JSON Schema from these declarations.
//!
//! ```
//! use forebay_scenario::{parse, Options};
//!
//! let text = r#"
//! duration = "10s"
//! bottleneck = { rate = "45Mbit/s", delay = "40ms", buffer = "1125p" }
//! traffic = [{ kind = "ftp", flows = 100, rtt = "100ms" }]
//! law = [{ kind = "codel" }]
//! sweep = { "traffic.0.flows" = [100, 2000] }
//! "#;
//! let experiment = parse(text.as_bytes(), "example", &Options::default())?;
//! let flows = experiment.points.iter().map(|point| point.scenario.traffic[0].flows);
//! assert_eq!(flows.collect::<Vec<_>>(), [100, 2000]);
//! assert_eq!(experiment.points[0].scenario.tested_link().name, "bottleneck");
//! # Ok::<(), forebay_scenario::ScenarioError>(())
//! ```
//!
//! Start reading at `parse.rs`. The stages are: text → `document.rs` (a tree that remembers its
//! lines) → another link (`relink.rs`), overrides (`path.rs`) and the sweep (`sweep.rs`, `range.rs`)
//! → types (`model.rs`), some of which need designed gains first (`gains.rs`).

#![forbid(unsafe_code)]
#![warn(missing_docs)]

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
mod traffic_keys;
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
pub use senders::{Sender, SenderSpec, SENDERS};
pub use sweep::{Sample, Settings, Sweep};
pub use types::{check_buffer, BufferSize, Maybe, Queue as QueueName, Text, WholePackets};
