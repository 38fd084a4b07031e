//! The parts of a scenario, each still a tree.

use forebay_units::Params;

use crate::error::{Fault, Origin};
use crate::top::Top;
use crate::tree::{self, Data, Entry, Node, Section, Table};

/// Most tables of one name.
const MOST_TABLES: usize = 1000;

/// Tables besides the keys at the top.
pub const SECTIONS: &[&str] = &[
    "bottleneck",
    "link",
    "traffic",
    "law",
    "sweep",
    "at",
    "kernel",
];

/// The parts of a scenario, each still untyped.
#[derive(Clone, Debug)]
pub struct Document {
    pub top: Table,
    /// `[bottleneck]`, and then each `[[link]]`.
    pub links: Vec<Table>,
    pub traffic: Vec<Table>,
    pub laws: Vec<Table>,
    /// Dotted keys to lists of values.
    pub sweep: Table,
    pub at: Vec<Table>,
    pub kernel: Table,
}

impl Document {
    /// Reads TOML.
    ///
    /// # Errors
    /// Text that is not UTF-8 or not TOML, a value that no key takes, a part that is missing
    /// or of the wrong kind.
    pub fn read(text: &[u8]) -> Result<Document, Fault> {
        Document::split(tree::read(text)?)
    }

    fn split(root: Table) -> Result<Document, Fault> {
        let mut document = Document {
            top: Table::empty(Origin::File),
            links: vec![Table::empty(Origin::File)],
            traffic: Vec::new(),
            laws: Vec::new(),
            sweep: Table::empty(Origin::File),
            at: Vec::new(),
            kernel: Table::empty(Origin::File),
        };
        let section = Section {
            table: &root,
            name: "",
        };
        section.only(SECTIONS, &[Top::SPECS])?;
        for required in ["bottleneck", "traffic"] {
            if root.entry(required).is_none() {
                let expected = if required == "traffic" {
                    "at least one [[traffic]]"
                } else {
                    "the table [bottleneck]"
                };
                return Err(Fault::missing(Origin::File, required, expected));
            }
        }
        for entry in root.entries {
            match entry.name.as_str() {
                "bottleneck" => document.links[0] = one_table(entry)?,
                "sweep" => document.sweep = one_table(entry)?.flattened(),
                "kernel" => document.kernel = one_table(entry)?,
                "link" => document.links.extend(tables(entry)?),
                "traffic" => document.traffic = tables(entry)?,
                "law" => document.laws = tables(entry)?,
                "at" => document.at = tables(entry)?,
                _ => document.top.entries.push(entry),
            }
        }
        for at in &mut document.at {
            for entry in &mut at.entries {
                if let Data::Table(table) = &mut entry.node.data {
                    let whole = std::mem::replace(table, Table::empty(Origin::File));
                    *table = whole.flattened();
                }
            }
        }
        Ok(document)
    }
}

fn one_table(entry: Entry) -> Result<Table, Fault> {
    match entry.node.data {
        Data::Table(table) => Ok(table),
        _ => Err(Fault::new(
            entry.origin,
            &entry.name,
            entry.node.to_value(),
            format!("the table [{}]", entry.name),
        )),
    }
}

fn tables(entry: Entry) -> Result<Vec<Table>, Fault> {
    let wrong = |node: &Node| {
        let expected = format!("one or more tables [[{}]]", entry.name);
        Fault::new(entry.origin, &entry.name, node.to_value(), expected)
    };
    let Data::List(items) = &entry.node.data else {
        return Err(wrong(&entry.node));
    };
    if items.is_empty() {
        return Err(wrong(&entry.node));
    }
    if items.len() > MOST_TABLES {
        let reason = format!("{} tables are too many", items.len());
        let expected = format!("at most {MOST_TABLES} tables");
        return Err(Fault::stated(entry.origin, &entry.name, reason, expected));
    }
    items
        .iter()
        .map(|item| match &item.data {
            Data::Table(table) => Ok(table.clone()),
            _ => Err(wrong(item)),
        })
        .collect()
}
