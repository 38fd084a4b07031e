//! `[[law]]` and `--law`: the laws under test.

use forebay_core::disciplines::keys;
use forebay_core::laws::find;
use forebay_core::param::Value;
use forebay_core::{params, LawSpec, Params};

use crate::document::Document;
use crate::error::{Fault, Origin};
use crate::law_choice::{law_kinds, with_hint, LawChoice};
use crate::limits::check_law;
use crate::model::Scenario;
use crate::options::{is_prototype, Options};
use crate::path::{labels, unique_labels};
use crate::tree::{Data, Node, Section, Table};
use crate::types::{Gains, Label, Maybe, Queue};

params! {
    /// Keys of every law besides `kind`; the others are its parameters.
    pub struct LawKeys {
        /// Name in reports; by default the kind.
        label: Maybe<Label> = Maybe(None), 0.0 => 0.0;
        /// Queue that holds the law, "fifo" where it is absent and the law's name has no other;
        /// one with parameters is a table, and a queue of several classes or flows has a law of
        /// this kind in each.
        queue: Maybe<Queue> = Maybe(None), 0.0 => 0.0;
        /// Numbers that are not given: "auto" designs them for the bottleneck and the long-lived
        /// flows of the scenario before it runs, "paper" has the defaults.
        gains: Gains = Gains::Paper, 0.0 => 0.0;
    }
}

/// Which laws of the document take part, by index; adds those that only `--law` names.
///
/// # Errors
/// A name that is not in the file and no known kind; no law at all.
pub fn choose(document: &mut Document, options: &Options) -> Result<Vec<usize>, Fault> {
    label_own(document, options);
    let brought = options.own.iter().filter(|own| own.runs);
    if options.laws.is_empty() && brought.clone().next().is_none() {
        if document.laws.is_empty() {
            let allowed = "a [[law]] in the file, or --law KIND";
            return Err(Fault::new(Origin::File, "law", "nothing", allowed));
        }
        return Ok((0..document.laws.len()).collect());
    }
    let mut chosen = Vec::new();
    for name in &options.laws {
        let labels = labels(&document.laws);
        let named = |i: &usize| labels[*i] == *name || document.laws[*i].text("kind") == Some(name);
        let before = chosen.len();
        chosen.extend((0..labels.len()).filter(named));
        if chosen.len() > before {
            continue;
        }
        if let Some(own) = options.own(name) {
            chosen.push(document.laws.len());
            document.laws.push(added(own.spec, Some(&own.label)));
            continue;
        }
        let Some(spec) = find(name) else {
            let kinds = law_kinds();
            let mut known: Vec<&str> = labels.iter().map(String::as_str).collect();
            known.extend(
                kinds
                    .into_iter()
                    .filter(|kind| !labels.iter().any(|label| label == kind)),
            );
            let origin = Origin::Option("--law");
            let allowed = match name.ends_with(".py") {
                true => "a law, or FILE.py:CLASS".to_owned(),
                false => with_hint(name, &known),
            };
            return Err(Fault::new(origin, "law", format!("{name:?}"), allowed));
        };
        chosen.push(document.laws.len());
        document.laws.push(added(spec, None));
    }
    for own in brought {
        chosen.push(document.laws.len());
        document.laws.push(added(own.spec, Some(&own.label)));
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

fn added(spec: &LawSpec, label: Option<&str>) -> Table {
    let origin = Origin::Option("--law");
    let mut table = Table::empty(origin);
    let keys = [("kind", Some(spec.kind)), ("label", label)];
    for (key, text) in keys {
        if let Some(text) = text {
            table.put(key, plain(origin, text));
        }
    }
    table
}

fn plain(origin: Origin, text: &str) -> Node {
    let data = Data::Plain(Value::Text(text.to_owned()));
    Node { origin, data }
}

/// The caller's laws under their own labels; the second of a kind gets a number, as others do.
fn label_own(document: &mut Document, options: &Options) {
    for own in &options.own {
        let unnamed = |table: &&mut Table| {
            table.text("kind") == Some(own.spec.kind) && table.entry("label").is_none()
        };
        for (n, table) in document.laws.iter_mut().filter(unnamed).enumerate() {
            let label = match n {
                0 => own.label.clone(),
                n => format!("{} {}", own.label, n + 1),
            };
            table.put("label", plain(table.origin, &label));
        }
    }
}

/// Kinds of laws in files of Python, FILE.py:CLASS, and whether the document names them, or else
/// the caller.
pub fn prototypes(document: &Document, options: &Options) -> Vec<(String, bool)> {
    let in_file = document.laws.iter().filter_map(|table| table.text("kind"));
    let in_file: Vec<&str> = in_file.filter(|kind| is_prototype(kind)).collect();
    let labels = labels(&document.laws);
    let known = |name: &str| in_file.contains(&name) || labels.iter().any(|label| label == name);
    let by_caller = options.laws.iter().map(String::as_str);
    let by_caller = by_caller.filter(|name| is_prototype(name) && !known(name));
    let mut all: Vec<(String, bool)> = Vec::new();
    for (kind, named) in
        (in_file.iter().map(|kind| (*kind, true))).chain(by_caller.map(|kind| (kind, false)))
    {
        if all.iter().all(|(other, _)| other != kind) {
            all.push((kind.to_owned(), named));
        }
    }
    all
}

/// The chosen laws, each built once at the scenario's bottleneck.
///
/// # Errors
/// The first law or parameter that is unknown, wrong, or does not fit the queue.
pub fn read(
    document: &Document,
    chosen: &[usize],
    scenario: &Scenario,
    options: &Options,
) -> Result<Vec<LawChoice>, Fault> {
    let taken = |i: usize, label: String| {
        let section = Section {
            table: &document.laws[i],
            name: &format!("law.{i}"),
        };
        let allowed = "a label that no other law has";
        section.fault("label", format!("{label:?}"), allowed)
    };
    let labels = unique_labels(&document.laws).map_err(|(i, label)| taken(i, label))?;
    let mut choices = Vec::with_capacity(chosen.len());
    // A law that is not chosen must be right as well: a file is sound or it is not.
    for (i, label) in labels.into_iter().enumerate() {
        let name = match document.laws[i].origin {
            Origin::Option(_) => format!("law.{label}"),
            _ => format!("law.{i}"),
        };
        let section = Section {
            table: &document.laws[i],
            name: &name,
        };
        let choice = one(&section, label, scenario, options)?;
        if chosen.contains(&i) {
            choices.push(choice);
        }
    }
    Ok(choices)
}

fn one(
    section: &Section,
    label: String,
    scenario: &Scenario,
    options: &Options,
) -> Result<LawChoice, Fault> {
    let written = section.table.text("kind").unwrap_or("");
    let spec = match (section.table.entry("kind"), options.law(written)) {
        (Some(_), Ok(spec)) => spec,
        (Some(entry), Err(allowed)) => {
            return Err(section.fault("kind", entry.node.to_value(), allowed))
        }
        (None, _) => return Err(section.fault("kind", "nothing", law_kinds().join(", "))),
    };
    let keys = keys(spec).into_iter().cloned().collect::<Vec<_>>();
    section.only(&["kind"], &[LawKeys::SPECS, &keys])?;
    let LawKeys {
        label: _,
        queue,
        gains,
    } = section.read()?;
    if gains == Gains::Auto {
        // Python designs, and gives this the numbers.
        let allowed = "\"paper\" in a text that no command of forebay has resolved";
        return Err(section.fault("gains", "\"auto\"", allowed));
    }
    let choice = LawChoice::of(spec, section.given(&["kind", "label", "queue", "gains"]))
        .held_by(queue.0.map(|queue| queue.0))
        .map_err(|error| section.locate(error))?;
    let choice = LawChoice { label, ..choice };
    // The same law acts on every queue that has none of its own.
    for site in scenario.tested() {
        choice
            .aqm()
            .check(&site)
            .map_err(|error| section.locate(error))?;
    }
    check_law(section, &choice, scenario.duration)?;
    Ok(choice)
}
