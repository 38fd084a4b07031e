//! `[[law]]` and `--law`: the laws under test.

use forebay_aqm::disciplines::keys;
use forebay_aqm::laws::find;
use forebay_aqm::{LawSpec, QueueChoice};
use forebay_units::{one_of, params, ParamType, Params, Value};

use crate::document::Document;
use crate::error::{Fault, Origin};
use crate::gains::DesignedGains;
use crate::law_choice::{law_kinds, LawChoice};
use crate::limits::check_law;
use crate::model::Scenario;
use crate::options::{is_prototype, Options};
use crate::path::{labels, unique_labels};
use crate::sweep::Sweep;
use crate::tree::{Node, Section, Table};
use crate::types::{Gains, InnerFile, Label, Maybe, Queue};

/// Key of a law that says where its numbers come from.
pub const GAINS: &str = "gains";

params! {
    /// Keys of every law besides `kind`; the others are its parameters.
    pub struct LawKeys {
        /// Name in reports; by default the kind.
        label: Maybe<Label> = Maybe(None);
        /// Queue discipline of the law; by default the one in the law's name, or "fifo". A queue
        /// with parameters is a table. A queue with several classes or flows has a law of this kind
        /// for each.
        queue: Maybe<Queue> = Maybe(None);
        /// Parameters that are not given: "auto" designs them for the bottleneck and the long-lived
        /// flows of the scenario before it runs, "paper" has the defaults.
        gains: Gains = Gains::Paper;
    }
}

/// Returns the indices of the laws that take part, and adds to the document those that only `--law`
/// names.
///
/// # Errors
/// A name that is not in the file and no known kind; no law at all.
pub fn choose(document: &mut Document, options: &Options) -> Result<Vec<usize>, Fault> {
    label_own(document, options);
    let brought = options.own.iter().filter(|own| own.runs);
    if options.laws.is_empty() && brought.clone().next().is_none() {
        if document.laws.is_empty() {
            let expected = "a [[law]] in the file, or --law KIND";
            return Err(Fault::missing(Origin::File, "law", expected));
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
            let expected = match name.ends_with(".py") {
                true => "a law in Python as FILE.py:CLASS, or the name of another law".to_owned(),
                false => one_of(&known, name),
            };
            return Err(Fault::new(origin, "law", format!("{name:?}"), expected));
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
            table.put(key, Node::of(origin, Value::Text(text.to_owned())));
        }
    }
    table
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
            table.put("label", Node::of(table.origin, Value::Text(label)));
        }
    }
}

/// Returns the kinds of laws in Python files, FILE.py:CLASS, that may run, each with true if the
/// document names it and false if the caller does. Such a file is a program that runs when it is
/// loaded; laws of the document that the caller leaves out are therefore not included.
///
/// # Errors
/// A law of the document whose file is not in the scenario's folder or below it.
pub fn prototypes(document: &Document, options: &Options) -> Result<Vec<(String, bool)>, Fault> {
    let all_labels = labels(&document.laws);
    let mut in_file: Vec<&str> = Vec::new();
    if !options.without_own_laws {
        for (number, table) in document.laws.iter().enumerate() {
            let Some(kind) = table.text("kind").filter(|kind| is_prototype(kind)) else {
                continue;
            };
            if !may_run(document, options, table, &all_labels) {
                continue;
            }
            let path = kind.rsplit_once(':').map_or(kind, |(path, _)| path);
            if !InnerFile::is_inner(path.strip_prefix("./").unwrap_or(path)) {
                let name = name_in_errors(table, number, &all_labels[number]);
                let section = Section { table, name: &name };
                let expected = "FILE.py:CLASS with a file in the folder of the scenario or below it, without \"..\"";
                return Err(section.fault("kind", format!("{kind:?}"), expected));
            }
            if !in_file.contains(&kind) {
                in_file.push(kind);
            }
        }
    }
    let mut all: Vec<(String, bool)> = Vec::new();
    all.extend(in_file.iter().map(|kind| ((*kind).to_owned(), true)));
    let known = |name: &String| {
        let of_document = |table: &Table| table.text("kind") == Some(name);
        document.laws.iter().any(of_document) || all_labels.contains(name)
    };
    let by_caller = options
        .laws
        .iter()
        .filter(|name| is_prototype(name) && !known(name));
    for kind in by_caller {
        if all.iter().all(|(other, _)| other != kind) {
            all.push((kind.clone(), false));
        }
    }
    Ok(all)
}

/// Returns true if the caller's choice may have this law of the document, which is in a file of
/// Python. A name that belongs to no other law may be the label of this law, which only its file
/// declares.
fn may_run(document: &Document, options: &Options, table: &Table, labels: &[String]) -> bool {
    if options.laws.is_empty() {
        // With laws that the caller brings as classes, those of the document stay out.
        return !options.brings_laws;
    }
    options.laws.iter().any(|name| {
        let (kind, label) = (table.text("kind"), table.text("label"));
        let other = |other: &Table| other.text("kind") == Some(name);
        kind == Some(name)
            || label == Some(name)
            || label.is_none()
                && find(name).is_none()
                && !is_prototype(name)
                && !document.laws.iter().any(other)
                && !labels.contains(name)
    })
}

/// Returns true if a law of `chosen` has automatic gains, in the document or at a point of the
/// sweep.
pub fn some_ask(document: &Document, chosen: &[usize], sweep: &Sweep) -> bool {
    let asks = |text: &str| Gains::from_value(&Value::Text(text.to_owned())) == Ok(Gains::Auto);
    let mut tables = chosen.iter().map(|law| &document.laws[*law]);
    tables.any(|table| table.text(GAINS).is_some_and(asks)) || sweep.texts(GAINS).any(asks)
}

/// Returns the laws of `chosen` with `gains = "auto"`, without the load of their designs.
///
/// # Errors
/// A law or a parameter that is unknown or wrong, or a law that nobody can design.
pub fn asking(
    document: &Document,
    chosen: &[usize],
    options: &Options,
) -> Result<Vec<Asking>, Fault> {
    let mut asking = Vec::new();
    for (law, label) in labels(&document.laws).into_iter().enumerate() {
        if !chosen.contains(&law) {
            continue;
        }
        let name = name_in_errors(&document.laws[law], law, &label);
        let section = Section {
            table: &document.laws[law],
            name: &name,
        };
        let draft = Draft::read(&section, label, options)?;
        if draft.gains != Gains::Auto {
            continue;
        }
        if draft.spec.is_custom() {
            let expected = "\"paper\", since a law in Python has no design rule";
            return Err(section.fault(GAINS, "\"auto\"", expected));
        }
        asking.push(Asking {
            law,
            choice: draft.choice(&section)?,
            given: draft.given,
        });
    }
    Ok(asking)
}

/// A law with `gains = "auto"`.
pub struct Asking {
    /// Number of its table.
    pub law: usize,
    /// Everything that its table gives, including the keys of its queue.
    pub given: Vec<(String, Value)>,
    pub choice: LawChoice,
}

/// Returns the chosen laws, each built once at the scenario's bottleneck; `gains` has the numbers
/// of laws with automatic gains.
///
/// # Errors
/// The first law or parameter that is unknown, wrong, or does not fit the queue.
pub fn read(
    document: &Document,
    chosen: &[usize],
    scenario: &Scenario,
    options: &Options,
    gains: &[DesignedGains],
) -> Result<Vec<LawChoice>, Fault> {
    let taken = |i: usize, label: String| {
        let section = Section {
            table: &document.laws[i],
            name: &format!("law.{i}"),
        };
        let expected = "a label that no other law has";
        section.fault("label", format!("{label:?}"), expected)
    };
    let labels = unique_labels(&document.laws).map_err(|(i, label)| taken(i, label))?;
    let mut choices = Vec::with_capacity(chosen.len());
    // A law that is not chosen is checked as well, so that an error in a file is always found. Only
    // the file of a law in Python is not loaded for this, because it is a program.
    for (i, label) in labels.into_iter().enumerate() {
        let unloaded = |kind| is_prototype(kind) && options.own(kind).is_none();
        if !chosen.contains(&i) && document.laws[i].text("kind").is_some_and(unloaded) {
            continue;
        }
        let name = name_in_errors(&document.laws[i], i, &label);
        let section = Section {
            table: &document.laws[i],
            name: &name,
        };
        let runs = chosen.contains(&i);
        let mut draft = Draft::read(&section, label, options)?;
        // Nobody designs a law that does not run, so it fits no link yet.
        let designed = gains.iter().find(|designed| designed.law == i);
        match (draft.gains, designed) {
            (Gains::Auto, Some(designed)) => draft.add(designed),
            (Gains::Auto, None) if runs => {
                let expected = "\"paper\", or a command that designs gains";
                return Err(section.fault(GAINS, "\"auto\"", expected));
            }
            _ => {}
        }
        let choice = draft.choice(&section)?;
        if draft.gains == Gains::Paper || designed.is_some() {
            check_fit(&section, &choice, scenario)?;
        }
        if runs {
            choices.push(choice);
        }
    }
    Ok(choices)
}

fn name_in_errors(table: &Table, number: usize, label: &str) -> String {
    match table.origin {
        Origin::Option(_) => format!("law.{label}"),
        _ => format!("law.{number}"),
    }
}

/// A law as its table has it.
struct Draft {
    label: String,
    spec: &'static LawSpec,
    given: Vec<(String, Value)>,
    queue: Option<QueueChoice>,
    gains: Gains,
}

impl Draft {
    fn read(section: &Section, label: String, options: &Options) -> Result<Draft, Fault> {
        let written = section.table.text("kind").unwrap_or("");
        let spec = match (section.table.entry("kind"), options.law(written)) {
            (Some(_), Ok(spec)) => spec,
            (Some(entry), Err(expected)) => {
                return Err(section.fault("kind", entry.node.to_value(), expected))
            }
            (None, _) => return Err(section.missing("kind", one_of(&law_kinds(), ""))),
        };
        let keys = keys(spec).into_iter().cloned().collect::<Vec<_>>();
        section.only(&["kind"], &[LawKeys::SPECS, &keys])?;
        let LawKeys {
            label: _,
            queue,
            gains,
        } = section.read()?;
        Ok(Draft {
            label,
            spec,
            given: section.given(&["kind", "label", "queue", GAINS]),
            queue: queue.0.map(|queue| queue.0),
            gains,
        })
    }

    /// Adds designed values for the parameters that are not given.
    fn add(&mut self, designed: &DesignedGains) {
        for (name, value) in &designed.params {
            if self.given.iter().all(|(given, _)| given != name) {
                self.given.push((name.clone(), value.clone()));
            }
        }
    }

    /// # Errors
    /// A queue that the law does not go into, or a parameter that is wrong on any link.
    fn choice(&self, section: &Section) -> Result<LawChoice, Fault> {
        let label = self.label.clone();
        let choice = LawChoice::of(self.spec, self.given.clone())
            .and_then(|choice| choice.held_by(self.queue.clone()))
            .map_err(|error| section.locate(error))?;
        Ok(LawChoice { label, ..choice })
    }
}

/// Checks that a law fits every queue on which it acts, which are those without a law of their own.
fn check_fit(section: &Section, choice: &LawChoice, scenario: &Scenario) -> Result<(), Fault> {
    for site in scenario.tested_queues() {
        let fits = choice.aqm().check(&site);
        fits.map_err(|error| section.locate(error))?;
    }
    check_law(section, choice, scenario.duration)
}
