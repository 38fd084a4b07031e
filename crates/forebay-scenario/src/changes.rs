//! `[[at]]`: what changes while the simulation runs.

use forebay_core::{params, ParamError, Params, Span, Time};

use crate::bottleneck::BottleneckKeys;
use crate::document::{Data, Document, Entry, Section};
use crate::error::Fault;
use crate::model::{Change, Setting, Traffic};
use crate::path::Place;

params! {
    /// Keys of `[[at]]` besides `set`.
    pub struct AtKeys {
        /// When it changes.
        time: Span = Span::from_secs(50), 0.0 => 1e7, required;
    }
}

/// What `set` may name.
pub const CHANGEABLE: &str =
    "bottleneck.rate, bottleneck.delay, bottleneck.buffer, traffic.N.flows";

/// The changes in order of time.
///
/// # Errors
/// A time outside the run, or something that cannot change.
pub fn read(
    document: &Document,
    traffic: &[Traffic],
    duration: Span,
) -> Result<Vec<Change>, Fault> {
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
        let allowed = || format!("a table of what changes: {CHANGEABLE}");
        let Some(entry) = table.entry("set") else {
            return Err(section.fault("set", "nothing", allowed()));
        };
        let Data::Table(set) = &entry.node.data else {
            return Err(section.fault("set", entry.node.to_value(), allowed()));
        };
        if set.entries.is_empty() {
            return Err(section.fault("set", "an empty table", allowed()));
        }
        for entry in &set.entries {
            let what = setting(document, traffic, entry).map_err(|error| Fault {
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

fn setting(document: &Document, traffic: &[Traffic], entry: &Entry) -> Result<Setting, ParamError> {
    let value = entry.node.to_value();
    let target = document.target(&entry.name)?;
    match (target.place, target.key.as_str()) {
        (Place::Bottleneck, key @ ("rate" | "delay" | "buffer")) => {
            let mut keys = BottleneckKeys::defaults();
            keys.set(key, &value)?;
            Ok(match key {
                "rate" => Setting::Rate(keys.rate),
                "delay" => Setting::Delay(keys.delay),
                _ => Setting::Buffer(keys.buffer.0),
            })
        }
        (Place::Traffic(index), "flows") => {
            let most = traffic[index].flows;
            match value {
                forebay_core::Value::Integer(n) if (0..=i64::from(most)).contains(&n) => {
                    Ok(Setting::Flows {
                        traffic: index,
                        flows: n as u32,
                    })
                }
                _ => Err(ParamError::new(
                    "flows",
                    value,
                    format!("a whole number, 0 to {most} (all flows of traffic.{index})"),
                )),
            }
        }
        _ => Err(ParamError::new(
            &entry.name,
            "something that cannot change",
            CHANGEABLE,
        )),
    }
}
