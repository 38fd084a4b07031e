//! `[kernel]`: the settings of the hosts of a guest. Other engines ignore this table.

use forebay_units::{params, ParamType, Params, Shape, Value};

use crate::document::Document;
use crate::error::Fault;
use crate::model::{KernelSettings, Offloads, Shaper};
use crate::tree::Section;
use crate::types::Maybe;

params! {
    /// Keys of the hosts of a guest; `--engine kernel` follows all of them, `--engine link` follows
    /// `pcap`.
    pub struct KernelKeys {
        /// Congestion control of every flow, in place of its `tcp`: a name that the guest's kernel
        /// has, such as "prague" in a tree that brings it.
        tcp: Maybe<Algorithm> = Maybe(None);
        /// Offloads of the hosts' devices: with true, devices cut senders' segments into packets (GSO)
        /// and join packets that arrive together (GRO), and the queue holds packets; with "all",
        /// segments are not cut (TSO), and a queue of the kernel holds whole segments.
        offloads: Offloads = Offloads::Off;
        /// The qdisc that shapes the link, above a queue of the kernel that has no rate of its own:
        /// tbf holds a packet until the end of its transmission, htb releases it at the beginning.
        shaper: Shaper = Shaper::Tbf;
        /// Settings of every host, under its namespace: `{ "net.ipv4.tcp_rmem" = "4096 131072
        /// 6291456" }`. They override those of Forebay.
        sysctls: Sysctls = Sysctls(Vec::new());
        /// Keep the headers of every packet at the bottleneck: `pcap/LAW-SEED.pcapng` of the result,
        /// with a comment where it was dropped or marked.
        pcap: bool = false;
    }
}

/// The name of a congestion control of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algorithm(pub String);

impl ParamType for Algorithm {
    const SHAPE: Shape = Shape::Text;
    const EXPECTED: &'static str = "a name of 1 to 15 lower-case letters, digits, \"_\" and \"-\"";
    fn from_value(value: &Value) -> Result<Algorithm, String> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
        match value {
            Value::Text(text) if (1..=15).contains(&text.len()) && text.chars().all(fits) => {
                Ok(Algorithm(text.clone()))
            }
            _ => Err(Self::EXPECTED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::Text(self.0.clone())
    }
}

/// Settings of the kernel's by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysctls(pub Vec<(String, String)>);

impl ParamType for Sysctls {
    const SHAPE: Shape = Shape::Table;
    const EXPECTED: &'static str =
        "a table of sysctls below net with their values, such as { \"net.ipv4.tcp_sack\" = 0 }";
    fn from_value(value: &Value) -> Result<Sysctls, String> {
        let Value::Table(fields) = value else {
            return Err(Self::EXPECTED.into());
        };
        let mut flat = Vec::new();
        flatten("", fields, &mut flat)?;
        Ok(Sysctls(flat))
    }
    fn to_value(&self) -> Value {
        let field = |(name, value): &(String, String)| (name.clone(), Value::Text(value.clone()));
        Value::Table(self.0.iter().map(field).collect())
    }
}

/// Names without quotes are nested tables in TOML.
fn flatten(
    prefix: &str,
    fields: &[(String, Value)],
    flat: &mut Vec<(String, String)>,
) -> Result<(), String> {
    for (name, value) in fields {
        let name = format!("{prefix}{name}");
        let value = match value {
            Value::Table(inner) => {
                flatten(&format!("{name}."), inner, flat)?;
                continue;
            }
            Value::Text(text) if !text.is_empty() && !text.chars().any(char::is_control) => {
                text.clone()
            }
            Value::Integer(number) => number.to_string(),
            _ => return Err(format!("a text or a whole number as the value of {name:?}")),
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        let mut parts = name.split('.');
        let whole = parts.next() == Some("net") && name.contains('.');
        if !whole || !parts.all(|part| !part.is_empty() && part.chars().all(fits)) {
            return Err(format!(
                "a sysctl below net, such as \"net.ipv4.tcp_rmem\", in place of {name:?}"
            ));
        }
        flat.push((name, value));
    }
    Ok(())
}

/// # Errors
/// A key that is unknown or wrong.
pub fn read(document: &Document) -> Result<KernelSettings, Fault> {
    let section = Section {
        table: &document.kernel,
        name: "kernel",
    };
    section.only(&[], &[KernelKeys::SPECS])?;
    let keys: KernelKeys = section.read()?;
    Ok(KernelSettings {
        given: !document.kernel.entries.is_empty(),
        tcp: keys.tcp.0.map(|algorithm| algorithm.0),
        offloads: keys.offloads,
        shaper: keys.shaper,
        sysctls: keys.sysctls.0,
        pcap: keys.pcap,
    })
}
