//! The key `stack`: one word for the properties of a traffic's hosts.

use std::borrow::Cow;

use forebay_units::{ParamType, Value};

use super::TrafficSpec;
use crate::error::Fault;
use crate::model::Stack;
use crate::tree::{Node, Section, Table};

/// Returns the keys that `stack = "linux"` stands for. Linux paces only where a congestion control
/// or a queue discipline asks for it, so `pacing` is not among them, nor are keys whose defaults
/// are Linux's.
fn linux() -> [(&'static str, Value); 7] {
    [
        ("tcp", Value::Text("linux-cubic".into())),
        ("packet", Value::Text("1500B".into())),
        // IPv4, TCP and timestamps (RFC 791, 9293, 7323).
        ("header", Value::Text("52B".into())),
        ("initial_window", Value::Text("10p".into())),
        ("delayed_ack", Value::Flag(true)),
        ("ack_delay", Value::Text("40ms".into())),
        ("quick_acks", Value::Integer(16)),
    ]
}

/// Returns the table of a traffic with the keys that its `stack` stands for, where they are not
/// written.
///
/// # Errors
/// A stack that does not exist.
pub fn expanded<'a>(section: &Section<'a>, spec: &TrafficSpec) -> Result<Cow<'a, Table>, Fault> {
    let (Some(entry), Some(_)) = (section.table.entry("stack"), spec.key("stack")) else {
        return Ok(Cow::Borrowed(section.table));
    };
    let value = entry.node.to_value();
    let stack = Stack::from_value(&value)
        .map_err(|expected| section.fault("stack", value.clone(), expected))?;
    let mut table = section.table.clone();
    if stack == Stack::Linux {
        for (key, value) in linux() {
            if table.entry(key).is_none() {
                table.put(key, Node::of(entry.origin, value));
            }
        }
    }
    Ok(Cow::Owned(table))
}
