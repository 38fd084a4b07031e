//! `[[at]]`: changes while the simulation runs.

use forebay_units::{params, ParamError, Params, Span, Time, Value};

use crate::document::Document;
use crate::error::Fault;
use crate::links::LinkKeys;
use crate::model::{Change, LinkSetting, Setting};
use crate::path::TableId;
use crate::traffic;
use crate::traffic_keys::FlowKeys;
use crate::tree::{Data, Entry, Section};
use crate::types::BufferSize;

params! {
    /// Keys of `[[at]]` besides `set`.
    pub struct AtKeys {
        /// Time of the change.
        time: Span = Span::from_secs(50), 0.0 => 1e7, required;
    }
}

/// Keys of `[bottleneck]` and `[[link]]` that may change.
pub const LINK: &[&str] = &["rate", "delay", "buffer"];

/// Returns the keys that `set` may change, in words.
pub fn changeable() -> String {
    let mut all: Vec<String> = LINK.iter().map(|key| format!("bottleneck.{key}")).collect();
    all.push("link.N.rate, link.N.delay, link.N.buffer".into());
    all.push("traffic.N.flows".into());
    all.join(", ")
}

/// Returns the changes in order of time.
///
/// # Errors
/// A time outside the run, or a key that cannot change.
pub fn read(document: &Document, duration: Span) -> Result<Vec<Change>, Fault> {
    let mut changes = Vec::new();
    for (i, table) in document.at.iter().enumerate() {
        let section = Section {
            table,
            name: &format!("at.{i}"),
        };
        section.only(&["set"], &[AtKeys::SPECS])?;
        let AtKeys { time } = section.read()?;
        if time >= duration {
            return Err(section.fault(
                "time",
                format!("\"{time}\""),
                format!("a time within the run, before \"{duration}\""),
            ));
        }
        let expected = || format!("a table with some of the keys {}", changeable());
        let Some(entry) = table.entry("set") else {
            return Err(section.missing("set", expected()));
        };
        let Data::Table(set) = &entry.node.data else {
            return Err(section.fault("set", entry.node.to_value(), expected()));
        };
        if set.entries.is_empty() {
            return Err(section.fault("set", "{}", expected()));
        }
        for entry in &set.entries {
            let what = setting(document, entry).map_err(|error| Fault {
                origin: entry.origin,
                error: ParamError {
                    key: format!("at.{i}.set.{}", entry.name),
                    ..error
                },
            })?;
            let at = Time::ZERO + time;
            changes.push(Change { at, what });
        }
    }
    changes.sort_by_key(|change| change.at);
    Ok(changes)
}

fn setting(document: &Document, entry: &Entry) -> Result<Setting, ParamError> {
    let value = entry.node.to_value();
    let target = document.target(&entry.name)?;
    match (target.table, target.key.as_str()) {
        (TableId::Link(link), key) if LINK.contains(&key) => Ok(Setting::Link {
            link,
            what: link_setting(key, &value)?,
        }),
        (TableId::Traffic(traffic), "flows") if counts_flows(document, traffic) => {
            // Unlike a declared number of flows, this one may be 0.
            if value == Value::Integer(0) {
                return Ok(Setting::Flows { traffic, flows: 0 });
            }
            let mut keys = FlowKeys::defaults();
            keys.set("flows", &value)?;
            let flows = keys.flows;
            Ok(Setting::Flows { traffic, flows })
        }
        _ => Err(ParamError::stated(
            &entry.name,
            "the key cannot change during a run",
            format!("one of {}", changeable()),
        )),
    }
}

/// Returns true if the kind of a traffic has the key `flows`. An unknown kind is reported
/// elsewhere.
fn counts_flows(document: &Document, traffic: usize) -> bool {
    let section = Section {
        table: &document.traffic[traffic],
        name: "",
    };
    traffic::spec(&section).map_or(true, traffic::TrafficSpec::counts_flows)
}

fn link_setting(key: &str, value: &Value) -> Result<LinkSetting, ParamError> {
    let mut keys = LinkKeys::defaults();
    keys.set(key, value)?;
    Ok(match key {
        "rate" => LinkSetting::Rate(keys.rate),
        "delay" => LinkSetting::Delay(keys.delay),
        _ => LinkSetting::Buffer(match keys.buffer {
            BufferSize::Room(buffer) => buffer,
            // The rate may have changed by then, too.
            BufferSize::Time(_) => {
                return Err(ParamError::new(
                    key,
                    value,
                    "a number of packets or bytes, such as \"200p\" or \"64kB\"",
                ))
            }
        }),
    })
}
