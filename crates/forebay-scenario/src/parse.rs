//! From TOML text to an experiment.

use std::collections::BTreeSet;

use forebay_core::param::ParamType;
use forebay_core::{ParamError, Params, Value};

use crate::document::Document;
use crate::error::{Fault, Origin, ScenarioError};
use crate::files::{Files, ARRIVALS_KEY, TRACE_KEY};
use crate::law_choice::LawChoice;
use crate::model::Scenario;
use crate::options::Options;
use crate::path::Target;
use crate::top::Top;
use crate::tree::{command_line_value, Section};
use crate::{changes, laws, limits, links, sweep, traffic};

/// Every law at every point with every seed.
#[derive(Clone)]
pub struct Experiment {
    pub title: String,
    pub source: String,
    /// 1, 2, and so on.
    pub seeds: Vec<u64>,
    /// Labels of the laws, the same at every point.
    pub laws: Vec<String>,
    /// At least one.
    pub points: Vec<Point>,
}

/// One point of the sweep.
#[derive(Clone)]
pub struct Point {
    /// "traffic.0.flows = 100"; empty where nothing is swept.
    pub label: String,
    /// Values of this point, by the keys of `[sweep]`.
    pub settings: Vec<(String, Value)>,
    pub scenario: Scenario,
    /// Each has been built once at this point's bottleneck, so building it again succeeds.
    pub laws: Vec<LawChoice>,
}

/// Reads an experiment. `file` only names it in errors; nothing is opened.
///
/// # Errors
/// The first thing that is wrong, in one line.
pub fn parse(text: &[u8], file: &str, options: &Options) -> Result<Experiment, ScenarioError> {
    read(text, options).map_err(|fault| fault.in_file(file))
}

/// Names of the files that an experiment needs in [`Options::files`], at any of its points.
///
/// # Errors
/// As [`parse`].
pub fn files(
    text: &[u8],
    file: &str,
    options: &Options,
) -> Result<BTreeSet<String>, ScenarioError> {
    named_files(text, options).map_err(|fault| fault.in_file(file))
}

/// Laws in files of Python that an experiment needs in [`Options::own`]: FILE.py:CLASS, and whether
/// the scenario names it, or else [`Options::laws`].
///
/// # Errors
/// As [`parse`].
pub fn prototypes(
    text: &[u8],
    file: &str,
    options: &Options,
) -> Result<Vec<(String, bool)>, ScenarioError> {
    let document = Document::read(text).map_err(|fault| fault.in_file(file))?;
    Ok(laws::prototypes(&document, options))
}

fn named_files(text: &[u8], options: &Options) -> Result<BTreeSet<String>, Fault> {
    let mut document = Document::read(text)?;
    let chosen = laws::choose(&mut document, options)?;
    let fixed = apply_sets(&mut document, options)?;
    let tables = std::iter::once(&document.bottleneck).chain(&document.links);
    let traces = tables.filter_map(|table| table.text(TRACE_KEY));
    let tables = document.traffic.iter();
    let arrivals = tables.filter_map(|table| table.text(ARRIVALS_KEY));
    let mut names: BTreeSet<String> = traces.chain(arrivals).map(Into::into).collect();
    for settings in sweep::points(&document, &fixed, &chosen)? {
        for key in [TRACE_KEY, ARRIVALS_KEY] {
            names.extend(settings.texts(key).map(str::to_owned));
        }
    }
    Ok(names)
}

fn read(text: &[u8], options: &Options) -> Result<Experiment, Fault> {
    let mut document = Document::read(text)?;
    let chosen = laws::choose(&mut document, options)?;
    let fixed = apply_sets(&mut document, options)?;
    let files = Files::of(options);
    let mut points = Vec::new();
    for settings in sweep::points(&document, &fixed, &chosen)? {
        let mut here = document.clone();
        settings.apply(&mut here);
        let both = |document: &Document| {
            let scenario = scenario(document, &files)?;
            let laws = laws::read(document, &chosen, &scenario, options)?;
            Ok((scenario, laws))
        };
        let (scenario, laws) = both(&here).map_err(|fault: Fault| {
            // Where the file is at fault without the sweep, the point does not matter.
            match both(&document) {
                Err(same) if same == fault => fault,
                _ => settings.blame(fault),
            }
        })?;
        points.push(Point {
            label: settings.label(),
            settings: settings.values(),
            scenario,
            laws,
        });
    }
    let top = Top::of(&document.top)?;
    let laws = points[0].laws.iter().map(|law| law.label.clone()).collect();
    Ok(Experiment {
        title: top.title.0,
        source: top.source.0,
        seeds: (1..=seeds(options, top.seeds)?).map(u64::from).collect(),
        laws,
        points,
    })
}

fn seeds(options: &Options, in_file: u32) -> Result<u32, Fault> {
    let Some(seeds) = options.seeds else {
        return Ok(in_file);
    };
    let mut top = Top::defaults();
    top.set("seeds", &Value::Integer(seeds.into()))
        .map_err(|error| Fault {
            origin: Origin::Option("--seeds"),
            error,
        })?;
    Ok(seeds)
}

/// Applies `--set` and returns what it has set.
fn apply_sets(document: &mut Document, options: &Options) -> Result<Vec<Target>, Fault> {
    let mut fixed = Vec::with_capacity(options.sets.len());
    for (path, text) in &options.sets {
        let located = |error: ParamError| Fault {
            origin: Origin::Option("--set"),
            error,
        };
        let target = document.target(path).map_err(located)?;
        document.put(&target, command_line_value(path, text, "--set")?);
        fixed.push(target);
    }
    Ok(fixed)
}

fn scenario(document: &Document, files: &Files) -> Result<Scenario, Fault> {
    let top = Top::of(&document.top)?;
    let mut links = links::read(document, files)?;
    let traffic = traffic::read(document, &links, files)?;
    let changes = changes::read(document, top.duration)?;
    let mut scenario = Scenario {
        measure: top.window(),
        title: top.title.0,
        source: top.source.0,
        duration: top.duration,
        sample: top.sample,
        target: top.target.0,
        windows: top.windows,
        bottleneck: links.remove(0),
        links,
        traffic,
        changes,
    };
    links::check_buffers(document, &scenario)?;
    check_target(document, &scenario)?;
    limits::check(document, &scenario)?;
    links::read_laws(document, &mut scenario)?;
    Ok(scenario)
}

/// Refuses a target beyond the buffer.
fn check_target(document: &Document, scenario: &Scenario) -> Result<(), Fault> {
    let site = scenario.site();
    match scenario.target {
        Some(target) if site.pkts(target) > site.buffer_pkts => {
            let section = Section {
                table: &document.top,
                name: "",
            };
            let allowed = format!("at most {}", site.buffer_as(target));
            Err(section.fault("target", target.to_value(), allowed))
        }
        _ => Ok(()),
    }
}
