//! `[sweep]`: the points of an experiment.

use std::collections::HashSet;

use forebay_core::param::Value;
use forebay_core::ParamError;

use crate::document::Document;
use crate::error::{Fault, Origin};
use crate::path::{TableId, Target};
use crate::tree::{Data, Entry, Node};

/// Most points of one experiment.
const MOST_POINTS: usize = 10_000;
/// Most tables of all its points together.
const MOST_TABLES: usize = 1_000_000;
/// Most lines of `[sweep]`.
const MOST_LINES: usize = 100;
/// Keys of one line: a study sets every number of many laws.
const MOST_KEYS: usize = 1000;

/// Keys that are swept together, and the values they take.
struct Dimension {
    /// Each as it was written, and what it names.
    keys: Vec<(String, Target)>,
    /// One value per key.
    rows: Vec<Vec<Node>>,
}

/// One point: what is set there.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    settings: Vec<(String, Target, Node)>,
}

impl Settings {
    /// "traffic.0.flows = 100"; empty where nothing is swept.
    pub fn label(&self) -> String {
        let line = |(key, _, node): &(String, Target, Node)| format!("{key} = {}", text(node));
        let all: Vec<String> = self.settings.iter().map(line).collect();
        all.join(", ")
    }

    pub fn values(&self) -> Vec<(String, Value)> {
        let value = |(key, _, node): &(String, Target, Node)| (key.clone(), node.to_value());
        self.settings.iter().map(value).collect()
    }

    /// Texts that any table's `key` takes here.
    pub fn texts<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let of_key = move |(_, target, _): &&(String, Target, Node)| target.key == key;
        let settings = self.settings.iter().filter(of_key);
        settings.filter_map(|(_, _, node)| node.text())
    }

    /// Adds the point to a fault, unless a swept value itself is wrong.
    pub fn blame(&self, mut fault: Fault) -> Fault {
        let swept = |(_, _, node): &(String, Target, Node)| node.origin == fault.origin;
        if !self.settings.is_empty() && !self.settings.iter().any(swept) {
            fault.error.allowed += &format!(" (at {})", self.label());
        }
        fault
    }

    pub fn apply(&self, document: &mut Document) {
        for (_, target, node) in &self.settings {
            document.put(target, node.clone());
        }
    }
}

/// The cross product of all swept keys, the last varying fastest; keys of `fixed` are not swept.
/// `laws` are the numbers of those that run.
///
/// # Errors
/// A key that leads nowhere or cannot be swept, or is of a law that does not run, values that are
/// not a list or occur twice, too many points.
pub fn points(
    document: &Document,
    fixed: &[Target],
    laws: &[usize],
) -> Result<Vec<Settings>, Fault> {
    let lines = document.sweep.entries.len();
    if lines > MOST_LINES {
        let found = format!("{lines} lines");
        let allowed = format!("at most {MOST_LINES}");
        return Err(Fault::new(document.sweep.origin, "sweep", found, allowed));
    }
    let mut dimensions: Vec<Dimension> = Vec::new();
    for entry in &document.sweep.entries {
        let mut dimension = dimension(document, entry)?;
        let twice = |(_, target): &&(String, Target)| {
            let earlier = dimensions.iter().flat_map(|other| &other.keys);
            earlier
                .map(|(_, target)| target)
                .any(|other| other == target)
        };
        if let Some((key, _)) = dimension.keys.iter().find(twice) {
            let key = format!("sweep.{key}");
            let found = "a key that is swept twice";
            return Err(Fault::new(entry.origin, key, found, "each key once"));
        }
        dimension.release(fixed);
        dimension.of_laws_that_run(entry, laws)?;
        if !dimension.keys.is_empty() {
            dimensions.push(dimension);
        }
    }
    let count = dimensions
        .iter()
        .try_fold(1usize, |product, dimension| {
            product.checked_mul(dimension.rows.len())
        })
        .filter(|count| *count <= MOST_POINTS);
    let tables =
        document.links.len() + document.traffic.len() + document.laws.len() + document.at.len();
    match count {
        Some(count) if count * tables <= MOST_TABLES => {
            Ok((0..count).map(|index| point(&dimensions, index)).collect())
        }
        _ => Err(Fault::new(
            document.sweep.origin,
            "sweep",
            "too many points",
            format!(
                "at most {} points, all keys together",
                MOST_POINTS.min(MOST_TABLES / tables.max(1))
            ),
        )),
    }
}

fn point(dimensions: &[Dimension], mut index: usize) -> Settings {
    let mut settings = Vec::new();
    for dimension in dimensions.iter().rev() {
        let row = &dimension.rows[index % dimension.rows.len()];
        index /= dimension.rows.len();
        let pairs = dimension.keys.iter().zip(row).rev();
        settings
            .extend(pairs.map(|((key, target), node)| (key.clone(), target.clone(), node.clone())));
    }
    settings.reverse();
    Settings { settings }
}

impl Dimension {
    /// Refuses keys of laws that do not run, all of them: their points would be the same.
    fn of_laws_that_run(&self, entry: &Entry, laws: &[usize]) -> Result<(), Fault> {
        let idle = |(_, target): &(String, Target)| match target.table {
            TableId::Law(law) => !laws.contains(&law),
            _ => false,
        };
        match self.keys.first() {
            Some((key, _)) if self.keys.iter().all(idle) => Err(Fault::new(
                entry.origin,
                format!("sweep.{}", entry.name),
                "a law that does not run",
                format!("a law that runs; or --set {key}=VALUE, which ends this sweep"),
            )),
            _ => Ok(()),
        }
    }

    /// Takes out the keys that the command line has fixed, and what is then there twice.
    fn release(&mut self, fixed: &[Target]) {
        for column in (0..self.keys.len()).rev() {
            if fixed.contains(&self.keys[column].1) {
                self.keys.remove(column);
                for row in &mut self.rows {
                    row.remove(column);
                }
            }
        }
        let mut seen = HashSet::new();
        self.rows.retain(|row| seen.insert(written(row)));
    }
}

/// A row as its point's label has it.
fn written(row: &[Node]) -> String {
    let texts: Vec<String> = row.iter().map(text).collect();
    texts.join(", ")
}

fn text(node: &Node) -> String {
    match node.to_value() {
        Value::Text(text) => text,
        value => value.to_string(),
    }
}

/// Reads `"a" = [1, 2]` or `"a, b" = [[1, 2], [3, 4]]`.
fn dimension(document: &Document, entry: &Entry) -> Result<Dimension, Fault> {
    let fault = |origin: Origin, found: String, allowed: String| {
        Err(Fault::new(
            origin,
            format!("sweep.{}", entry.name),
            found,
            allowed,
        ))
    };
    let names: Vec<&str> = entry.name.split(',').map(str::trim).collect();
    if names.len() > MOST_KEYS {
        let allowed = format!("at most {MOST_KEYS} keys together");
        return fault(entry.origin, format!("{} keys", names.len()), allowed);
    }
    let mut keys: Vec<(String, Target)> = Vec::with_capacity(names.len());
    for name in &names {
        let target = sweepable(document, name).map_err(|error| Fault {
            origin: entry.origin,
            error: ParamError {
                key: format!("sweep.{name}"),
                ..error
            },
        })?;
        if keys.iter().any(|(_, other)| *other == target) {
            let found = "a key that is swept twice";
            return fault(entry.origin, found.into(), "each key once".into());
        }
        keys.push(((*name).to_owned(), target));
    }
    let shape = match names.len() {
        1 => "a list of values".to_owned(),
        n => format!("a list of lists of {n} values, one for each key"),
    };
    let Data::List(items) = &entry.node.data else {
        let found = entry.node.to_value().to_string();
        return fault(entry.node.origin, found, shape);
    };
    if items.is_empty() {
        return fault(
            entry.node.origin,
            "[]".into(),
            format!("{shape}, not empty"),
        );
    }
    let mut rows = Vec::with_capacity(items.len());
    let mut seen = HashSet::new();
    for item in items {
        let row = match &item.data {
            _ if names.len() == 1 => vec![item.clone()],
            Data::List(row) if row.len() == names.len() => row.clone(),
            _ => return fault(item.origin, item.to_value().to_string(), shape),
        };
        if !seen.insert(written(&row)) {
            let found = format!("{} twice", item.to_value());
            return fault(item.origin, found, "each value once".into());
        }
        rows.push(row);
    }
    Ok(Dimension { keys, rows })
}

fn sweepable(document: &Document, name: &str) -> Result<Target, ParamError> {
    let target = document.target(name)?;
    let fixed = match target.table {
        TableId::Top => matches!(target.key.as_str(), "title" | "source" | "seeds"),
        TableId::Bottleneck | TableId::Link(_) => target.key == "name",
        TableId::Traffic(_) | TableId::Law(_) => matches!(target.key.as_str(), "kind" | "label"),
    };
    if fixed {
        let allowed = "a key that may differ between points";
        return Err(ParamError::new(
            name,
            "a key that names the experiment",
            allowed,
        ));
    }
    Ok(target)
}
