//! A TOML text as a tree of keys and values that remember where they were written.

use forebay_units::{unknown_key, ParamError, ParamSpec, Params, Value};
use toml::de::{DeTable, DeValue};

use crate::error::{Fault, Origin};

/// Longest text that is read, in bytes.
const LONGEST: usize = 1 << 20;

/// A value and the place where it was written.
#[derive(Clone, Debug)]
pub struct Node {
    pub origin: Origin,
    pub data: Data,
}

/// The contents of a value.
#[derive(Clone, Debug)]
pub enum Data {
    /// A flag, a number or a text.
    Plain(Value),
    List(Vec<Node>),
    Table(Table),
}

/// A table and the place where it was written.
#[derive(Clone, Debug)]
pub struct Table {
    pub origin: Origin,
    /// The entries in the order of the file.
    pub entries: Vec<Entry>,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    /// The position of the key; its value may be on a later line.
    pub origin: Origin,
    pub node: Node,
}

impl Node {
    /// Creates a node from a value and the position at which it was written.
    pub fn of(origin: Origin, value: Value) -> Node {
        let data = match value {
            Value::List(items) => {
                let items = items.into_iter();
                Data::List(items.map(|item| Node::of(origin, item)).collect())
            }
            Value::Table(fields) => {
                let mut table = Table::empty(origin);
                for (name, field) in fields {
                    table.put(&name, Node::of(origin, field));
                }
                Data::Table(table)
            }
            plain => Data::Plain(plain),
        };
        Node { origin, data }
    }

    /// Returns the value without its place.
    pub fn to_value(&self) -> Value {
        match &self.data {
            Data::Plain(value) => value.clone(),
            Data::List(items) => Value::List(items.iter().map(Node::to_value).collect()),
            Data::Table(table) => Value::Table(
                table
                    .entries
                    .iter()
                    .map(|entry| (entry.name.clone(), entry.node.to_value()))
                    .collect(),
            ),
        }
    }

    /// Returns the text, if the value is one.
    pub fn text(&self) -> Option<&str> {
        match &self.data {
            Data::Plain(Value::Text(text)) => Some(text),
            _ => None,
        }
    }
}

impl Table {
    /// Returns an empty table.
    pub fn empty(origin: Origin) -> Table {
        Table {
            origin,
            entries: Vec::new(),
        }
    }

    /// Returns the entry of a key.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Returns the text of a key, if its value is one.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.entry(name)?.node.text()
    }

    /// Returns the texts of a list, or the one that stands for it.
    pub fn texts(&self, name: &str) -> Vec<String> {
        let nodes = match self.entry(name).map(|entry| &entry.node) {
            Some(Node {
                data: Data::List(items),
                ..
            }) => items.iter().collect(),
            node => Vec::from_iter(node),
        };
        let texts = nodes.into_iter().filter_map(Node::text);
        texts.map(str::to_owned).collect()
    }

    /// Replaces a value, or adds it.
    pub fn put(&mut self, name: &str, node: Node) {
        self.entries.retain(|entry| entry.name != name);
        self.entries.push(Entry {
            name: name.to_owned(),
            origin: node.origin,
            node,
        });
    }

    /// Keys inside nested tables become dotted keys of this one, so that
    /// `bottleneck.rate` means the same with and without quotes.
    pub fn flattened(self) -> Table {
        fn walk(prefix: &str, table: Table, flat: &mut Vec<Entry>) {
            for mut entry in table.entries {
                let name = format!("{prefix}{}", entry.name);
                match entry.node.data {
                    Data::Table(inner) => walk(&format!("{name}."), inner, flat),
                    _ => {
                        entry.name = name;
                        flat.push(entry);
                    }
                }
            }
        }
        let mut flat = Table::empty(self.origin);
        walk("", self, &mut flat.entries);
        flat
    }
}

/// One table of the file, under the name that errors give it.
#[derive(Clone, Copy)]
pub struct Section<'a> {
    pub table: &'a Table,
    /// "traffic.0"; empty at the top.
    pub name: &'a str,
}

impl Section<'_> {
    /// Returns the dotted path of a key of this section.
    pub fn key(&self, key: &str) -> String {
        match self.name {
            "" => key.to_owned(),
            name => format!("{name}.{key}"),
        }
    }

    /// Returns the place where `key` is written, or else that of its table.
    pub fn origin(&self, key: &str) -> Origin {
        match self.table.entry(key) {
            Some(entry) => entry.origin,
            None => self.table.origin,
        }
    }

    /// Returns the fault of a key whose value is not valid.
    pub fn fault(&self, key: &str, value: impl ToString, expected: impl Into<String>) -> Fault {
        Fault::new(self.origin(key), self.key(key), value, expected)
    }

    /// Returns the fault of a key that is missing.
    pub fn missing(&self, key: &str, expected: impl Into<String>) -> Fault {
        Fault::missing(self.origin(key), self.key(key), expected)
    }

    /// Returns a fault of a key that concerns no single value.
    pub fn stated(
        &self,
        key: &str,
        reason: impl Into<String>,
        expected: impl Into<String>,
    ) -> Fault {
        Fault::stated(self.origin(key), self.key(key), reason, expected)
    }

    /// Returns `error` with the name of this section before its key.
    pub fn locate(&self, error: ParamError) -> Fault {
        let fault = self.fault(&error.key, error.value, error.expected);
        fault.because(error.reason)
    }

    /// Refuses keys that are not in `extra` and not declared in `parts`.
    ///
    /// # Errors
    /// The first such key, with a suggestion.
    pub fn only(&self, extra: &[&str], parts: &[&[ParamSpec]]) -> Result<(), Fault> {
        let declared = parts.iter().flat_map(|part| part.iter());
        let known: Vec<&str> = extra
            .iter()
            .copied()
            .chain(declared.map(|spec| spec.name))
            .collect();
        match self
            .table
            .entries
            .iter()
            .find(|entry| !known.contains(&entry.name.as_str()))
        {
            Some(entry) => Err(self.locate(unknown_key(&entry.name, known.into_iter()))),
            None => Ok(()),
        }
    }

    /// Returns the values of the keys that are not in `without`.
    pub fn given(&self, without: &[&str]) -> Vec<(String, Value)> {
        self.table
            .entries
            .iter()
            .filter(|entry| !without.contains(&entry.name.as_str()))
            .map(|entry| (entry.name.clone(), entry.node.to_value()))
            .collect()
    }

    /// Reads the keys that `P` declares, and ignores the others.
    ///
    /// # Errors
    /// The first key that is wrong or missing.
    pub fn read<P: Params>(&self) -> Result<P, Fault> {
        let mut given = self.given(&[]);
        given.retain(|(name, _)| P::SPECS.iter().any(|spec| spec.name == name));
        P::read(&given).map_err(|error| self.locate(error))
    }
}

/// Reads TOML.
///
/// # Errors
/// Text that is too long, not UTF-8 or not TOML, or a value that no key takes.
pub fn read(text: &[u8]) -> Result<Table, Fault> {
    if text.len() > LONGEST {
        return Err(Fault::stated(
            Origin::File,
            "size",
            format!("{} bytes are too many", text.len()),
            format!("at most {LONGEST} bytes"),
        ));
    }
    let text = std::str::from_utf8(text).map_err(|error| {
        let place = error.valid_up_to();
        Fault::new(
            Origin::Line(1 + count_lines(&text[..place])),
            "encoding",
            format!("byte 0x{:02x}", text[place]),
            "UTF-8 text",
        )
    })?;
    let lines = Lines::of(text);
    let root = DeTable::parse(text).map_err(|error| lines.syntax(text, &error))?;
    lines.table("", Origin::File, root.into_inner())
}

/// Reads a value from the command line: TOML where it is TOML, else the text itself.
///
/// # Errors
/// A TOML value that no key takes.
pub fn command_line_value(key: &str, text: &str, option: &'static str) -> Result<Node, Fault> {
    let origin = Origin::Option(option);
    match DeValue::parse(text) {
        Ok(value) => Lines::none(option).node(key, origin, value.into_inner()),
        Err(_) => Ok(Node::of(origin, Value::Text(text.to_owned()))),
    }
}

fn count_lines(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}

/// Turns places in the text into line numbers.
struct Lines {
    /// The offset of the end of each line in bytes.
    ends: Vec<usize>,
    /// Set where the text is an option's and has no lines.
    option: Option<&'static str>,
}

impl Lines {
    fn of(text: &str) -> Lines {
        Lines {
            ends: text.match_indices('\n').map(|(place, _)| place).collect(),
            option: None,
        }
    }

    fn none(option: &'static str) -> Lines {
        Lines {
            ends: Vec::new(),
            option: Some(option),
        }
    }

    fn at(&self, place: usize) -> Origin {
        match self.option {
            Some(option) => Origin::Option(option),
            None => Origin::Line(1 + self.ends.partition_point(|end| *end < place)),
        }
    }

    fn syntax(&self, text: &str, error: &toml::de::Error) -> Fault {
        let place = error.span().map_or(0, |span| span.start).min(text.len());
        let before = self.ends.partition_point(|end| *end < place);
        let line = text.split('\n').nth(before).unwrap_or("").trim();
        Fault::new(
            self.at(place),
            "syntax",
            format!("{line:?}"),
            format!("TOML ({})", error.message().replace('\n', ", ")),
        )
    }

    fn table(&self, path: &str, origin: Origin, table: DeTable) -> Result<Table, Fault> {
        let mut entries = Vec::with_capacity(table.len());
        for (key, value) in table {
            let origin = self.at(key.span().start);
            let name = key.into_inner().into_owned();
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            let node = self.node(&path, self.at(value.span().start), value.into_inner())?;
            entries.push(Entry { name, origin, node });
        }
        Ok(Table { origin, entries })
    }

    fn node(&self, path: &str, origin: Origin, value: DeValue) -> Result<Node, Fault> {
        let fault = |value: &str, expected: &str| Err(Fault::new(origin, path, value, expected));
        let data = match value {
            DeValue::Boolean(flag) => Data::Plain(Value::Flag(flag)),
            DeValue::String(text) => Data::Plain(Value::Text(text.into_owned())),
            DeValue::Integer(digits) => {
                match i64::from_str_radix(digits.as_str(), digits.radix()) {
                    Ok(integer) => Data::Plain(Value::Integer(integer)),
                    Err(_) => return fault(digits.as_str(), "a whole number below 2^63"),
                }
            }
            DeValue::Float(digits) => match digits.as_str().parse::<f64>() {
                Ok(number) if number.is_finite() => Data::Plain(Value::Number(number)),
                _ => return fault(digits.as_str(), "a finite number"),
            },
            DeValue::Datetime(date) => {
                return fault(
                    &format!("the date {date}"),
                    "true or false, a number, a text, a list or a table",
                )
            }
            DeValue::Array(items) => Data::List(
                items
                    .into_iter()
                    .enumerate()
                    .map(|(i, item)| {
                        let origin = self.at(item.span().start);
                        self.node(&format!("{path}.{i}"), origin, item.into_inner())
                    })
                    .collect::<Result<_, _>>()?,
            ),
            DeValue::Table(table) => Data::Table(self.table(path, origin, table)?),
        };
        Ok(Node { origin, data })
    }
}
