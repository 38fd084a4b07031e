//! The parts of a scenario, each still a tree.

use forebay_units::Params;

use crate::error::{Fault, Origin};
use crate::top::Top;
use crate::tree::{self, Data, Entry, Node, Section, Table};

/// Most tables of one name.
const MOST_TABLES: usize = 1000;

/// Tables that stand beside the keys at the top.
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
                let allowed = if required == "traffic" {
                    "at least one [[traffic]]"
                } else {
                    "a table, [bottleneck]"
                };
                return Err(Fault::new(Origin::File, required, "nothing", allowed));
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
            format!("a table, [{}]", entry.name),
        )),
    }
}

fn tables(entry: Entry) -> Result<Vec<Table>, Fault> {
    let wrong = |found: &Node| {
        let allowed = format!("one or more tables, [[{}]]", entry.name);
        Fault::new(entry.origin, &entry.name, found.to_value(), allowed)
    };
    let Data::List(items) = &entry.node.data else {
        return Err(wrong(&entry.node));
    };
    if items.is_empty() {
        return Err(wrong(&entry.node));
    }
    if items.len() > MOST_TABLES {
        let found = format!("{} tables", items.len());
        let allowed = format!("at most {MOST_TABLES}");
        return Err(Fault::new(entry.origin, &entry.name, found, allowed));
    }
    items
        .iter()
        .map(|item| match &item.data {
            Data::Table(table) => Ok(table.clone()),
            _ => Err(wrong(item)),
        })
        .collect()
}
