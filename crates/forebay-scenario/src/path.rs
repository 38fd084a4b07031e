//! Paths such as `traffic.0.flows` and `law.red.max_p`, as `[sweep]`, `[[at]]` and `--set`
//! write them.

use std::collections::{HashMap, HashSet};

use forebay_units::{nearest, one_of, ParamError, Params};

use crate::document::{Document, SECTIONS};
use crate::top::Top;
use crate::tree::{Node, Table};

/// The identity of a table of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableId {
    Top,
    /// The link with this number: `[bottleneck]` is 0.
    Link(usize),
    Traffic(usize),
    Law(usize),
    Kernel,
}

/// A key of the document, whether or not it is written there yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub table: TableId,
    pub key: String,
}

impl Document {
    /// Finds what `path` names. The reader of the table checks whether the key exists.
    ///
    /// # Errors
    /// A path that names no key, with the allowed ones.
    pub fn target(&self, path: &str) -> Result<Target, ParamError> {
        let at = |table, key: &str| {
            Ok(Target {
                table,
                key: key.to_owned(),
            })
        };
        let (name, key) = match path.split_once('.') {
            None if SECTIONS.contains(&path) => return Err(no_such_path(path)),
            None => return at(TableId::Top, path),
            Some(("bottleneck", key)) => return at(TableId::Link(0), key),
            Some(("kernel", key)) => return at(TableId::Kernel, key),
            // A label may itself hold a dot.
            Some((_, rest)) => rest.rsplit_once('.').unwrap_or((rest, "")),
        };
        if key.is_empty() {
            return Err(no_such_path(path));
        }
        match path.split_once('.') {
            Some(("link", _)) => {
                let tables = &self.links[1..];
                let link = pick(path, "link", name, tables, &link_names(tables))?;
                at(TableId::Link(1 + link), key)
            }
            Some(("traffic", _)) => {
                let labels = labels(&self.traffic);
                let traffic = pick(path, "traffic", name, &self.traffic, &labels)?;
                at(TableId::Traffic(traffic), key)
            }
            Some(("law", _)) => {
                let labels = labels(&self.laws);
                let law = pick(path, "law", name, &self.laws, &labels)?;
                at(TableId::Law(law), key)
            }
            _ => Err(no_such_path(path)),
        }
    }

    fn table(&mut self, id: TableId) -> &mut Table {
        match id {
            TableId::Top => &mut self.top,
            TableId::Link(i) => &mut self.links[i],
            TableId::Traffic(i) => &mut self.traffic[i],
            TableId::Law(i) => &mut self.laws[i],
            TableId::Kernel => &mut self.kernel,
        }
    }

    /// Sets what `target` names.
    pub fn put(&mut self, target: &Target, node: Node) {
        self.table(target.table).put(&target.key, node);
    }
}

fn no_such_path(path: &str) -> ParamError {
    let mut known: Vec<&str> = Top::SPECS.iter().map(|spec| spec.name).collect();
    let tables = ["bottleneck.KEY", "link.N.KEY", "traffic.N.KEY", "law.N.KEY"];
    known.extend(tables);
    known.push("kernel.KEY");
    let section = path.split('.').next().unwrap_or("");
    let hint = match nearest(section, SECTIONS) {
        Some(near) if near != section => format!(" (did you mean {near:?}?)"),
        _ => String::new(),
    };
    let expected = format!("{}{hint}", one_of(&known, ""));
    ParamError::stated(path, "unknown key", expected)
}

/// Returns the table with this index or label, or the only one of this kind.
fn pick(
    path: &str,
    section: &str,
    name: &str,
    tables: &[Table],
    labels: &[String],
) -> Result<usize, ParamError> {
    if let Ok(index) = name.parse::<usize>() {
        if index < tables.len() {
            return Ok(index);
        }
    }
    if let Some(index) = labels.iter().position(|label| label == name) {
        return Ok(index);
    }
    let kind = |table: &&Table| table.text("kind") == Some(name);
    let reason = match tables.iter().filter(kind).count() {
        1 => return Ok(tables.iter().position(|table| kind(&table)).unwrap_or(0)),
        0 => format!("no {section} {name:?}"),
        several => format!("{several} tables of kind {name:?}"),
    };
    let expected = match tables.len() {
        0 => format!("a [[{section}]] in the file"),
        1 => format!("the number 0 or the label {}", labels[0]),
        n => format!("a number from 0 to {} or {}", n - 1, label_of(labels)),
    };
    Err(ParamError::stated(path, reason, expected))
}

/// Returns a description of a label that is one of these.
fn label_of(labels: &[String]) -> String {
    format!("one of the labels {}", labels.join(", "))
}

/// Returns the label of each table: its own, or its kind, numbered from the second on.
pub fn labels(tables: &[Table]) -> Vec<String> {
    let mut unnamed: HashMap<&str, usize> = HashMap::new();
    tables
        .iter()
        .map(|table| {
            if let Some(label) = table.text("label") {
                return label.to_owned();
            }
            let kind = table.text("kind").unwrap_or("");
            let count = unnamed.entry(kind).or_default();
            *count += 1;
            match count {
                1 => kind.to_owned(),
                n => format!("{kind} {n}"),
            }
        })
        .collect()
}

/// Returns the name of each link: its own, or FROM-TO.
pub fn link_names(tables: &[Table]) -> Vec<String> {
    let name = |table: &Table| match table.text("name") {
        Some(name) => name.to_owned(),
        None => {
            let end = |key| table.text(key).unwrap_or("");
            format!("{}-{}", end("from"), end("to"))
        }
    };
    tables.iter().map(name).collect()
}

/// Returns the path of the table of the link with this number, such as `link.0` for link 1.
pub fn link_path(number: usize) -> String {
    match number.checked_sub(1) {
        None => "bottleneck".to_owned(),
        Some(i) => format!("link.{i}"),
    }
}

/// Returns the labels like [`labels`], or an error if a label occurs twice.
///
/// # Errors
/// A label that two tables have, with the index of the second.
pub fn unique_labels(tables: &[Table]) -> Result<Vec<String>, (usize, String)> {
    let labels = labels(tables);
    let mut seen = HashSet::new();
    match labels.iter().position(|label| !seen.insert(label)) {
        Some(i) => Err((i, labels[i].clone())),
        None => Ok(labels),
    }
}
