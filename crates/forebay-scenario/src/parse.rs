//! From TOML text to an experiment.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_units::{ParamError, ParamType, Params, Value};

use crate::document::Document;
use crate::error::{Fault, Origin, ScenarioError};
use crate::files::{Files, ARRIVALS_KEY, PROGRAM_KEY, TRACE_KEY};
use crate::gains::{DesignedGains, GainsRequest, Load};
use crate::law_choice::LawChoice;
use crate::laws::Asking;
use crate::model::Scenario;
use crate::options::Options;
use crate::path::Target;
use crate::sweep::{Settings, Sweep, POINTS};
use crate::top::Top;
use crate::tree::{command_line_value, Section};
use crate::{changes, kernel, laws, limits, links, traffic};

/// Key of traffic that names its sender.
const SENDER_KEY: &str = "tcp";

/// Every law at every point with every seed.
#[derive(Clone)]
pub struct Experiment {
    /// The title.
    pub title: String,
    /// The publication that the experiment reproduces, or an empty text.
    pub source: String,
    /// 1, 2, and so on.
    pub seeds: Vec<u64>,
    /// Labels of the laws, the same at every point.
    pub laws: Vec<String>,
    /// The points of the sweep, at least one.
    pub points: Vec<Point>,
}

/// One point of the sweep.
#[derive(Clone)]
pub struct Point {
    /// "traffic.0.flows = 100"; empty where nothing is swept.
    pub label: String,
    /// Values of this point, by the keys of `[sweep]`.
    pub settings: Vec<(String, Value)>,
    /// The scenario.
    pub scenario: Scenario,
    /// The laws of this point. Each has been built once at the point's bottleneck, so building it
    /// again succeeds.
    pub laws: Vec<LawChoice>,
}

/// Reads an experiment. `file` only names it in errors; nothing is opened.
///
/// # Errors
/// The first thing that is wrong, in one line; also a sample that must be drawn, and a law that
/// must be designed, which [`Reading`] leaves to its caller.
pub fn parse(text: &[u8], file: &str, options: &Options) -> Result<Experiment, ScenarioError> {
    let reading = Reading::new(text, file, options.clone())?;
    if reading.sweep.sample().is_some() {
        let expected = "lists, and ranges with a number of steps";
        let reason = "ranges without a number of steps are sampled, which parse does not do";
        let fault = Fault::stated(Origin::File, "sweep", reason, expected);
        return Err(fault.in_file(file));
    }
    reading.experiment(&reading.points(&[])?, |_| &[])
}

/// Returns the names of the files that an experiment needs in [`Options::files`], at any of its
/// points.
///
/// # Errors
/// As [`parse`].
pub fn files(
    text: &[u8],
    file: &str,
    options: &Options,
) -> Result<BTreeSet<String>, ScenarioError> {
    Ok(Reading::new(text, file, options.clone())?.files())
}

/// Returns the laws in Python files that an experiment needs in [`Options::own`]: FILE.py:CLASS,
/// with true if the scenario names the law, and false if [`Options::laws`] does.
///
/// # Errors
/// As [`parse`].
pub fn prototypes(
    text: &[u8],
    file: &str,
    options: &Options,
) -> Result<Vec<(String, bool)>, ScenarioError> {
    let document = Document::read(text).map_err(|fault| fault.in_file(file))?;
    laws::prototypes(&document, options).map_err(|fault| fault.in_file(file))
}

/// The inputs from which a scenario is read; a copy is cheap.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The text of the scenario.
    pub text: Arc<[u8]>,
    /// The name of the scenario in errors.
    pub file: String,
    /// The options without the files.
    pub options: Options,
    /// The files that it names, with their contents.
    pub files: Vec<(String, Arc<[u8]>)>,
}

/// A scenario whose tables are read. Its points are made when they are asked for, and what it needs
/// from elsewhere comes in between: contents of files, samples of its sweep, designs of its laws.
pub struct Reading {
    text: Arc<[u8]>,
    file: String,
    document: Document,
    /// Indices of the laws that take part.
    chosen: Vec<usize>,
    sweep: Sweep,
    options: Options,
    files: Files,
}

impl Reading {
    /// Reads the tables and the sweep. `file` only names the scenario in errors; nothing is opened.
    ///
    /// # Errors
    /// The first thing that is wrong whatever the point is, in one line.
    pub fn new(text: &[u8], file: &str, mut options: Options) -> Result<Reading, ScenarioError> {
        let mut files = Files::default();
        files.add(std::mem::take(&mut options.files));
        let read = || {
            let mut document = Document::read(text)?;
            if options.without_own_laws {
                document.laws.clear();
            }
            if let Some(relink) = &options.link {
                relink.apply(&mut document)?;
            }
            let chosen = laws::choose(&mut document, &options)?;
            let fixed = apply_sets(&mut document, &options)?;
            let sweep = Sweep::read(&document, &fixed, &chosen)?;
            Ok((document, chosen, sweep))
        };
        let (document, chosen, sweep) = read().map_err(|fault: Fault| fault.in_file(file))?;
        Ok(Reading {
            text: text.into(),
            file: file.to_owned(),
            document,
            chosen,
            sweep,
            options,
            files,
        })
    }

    /// Returns the names of the files that the scenario names, at any of its points.
    pub fn files(&self) -> BTreeSet<String> {
        let mut names = self.data_files();
        names.extend(self.program_files());
        names
    }

    /// Returns the names of rate traces, captures and lists of packets.
    pub fn data_files(&self) -> BTreeSet<String> {
        let tables = &self.document.links;
        let traces = tables.iter().filter_map(|table| table.text(TRACE_KEY));
        let tables = &self.document.traffic;
        let arrivals = tables.iter().filter_map(|table| table.text(ARRIVALS_KEY));
        let swept = [TRACE_KEY, ARRIVALS_KEY].into_iter();
        let swept = swept.flat_map(|key| self.sweep.texts(key));
        let names = traces.chain(arrivals).chain(swept);
        names.map(str::to_owned).collect()
    }

    /// Returns the names of the files that programs read, byte by byte as they are.
    pub fn program_files(&self) -> BTreeSet<String> {
        let tables = self.document.traffic.iter();
        tables.flat_map(|table| table.texts(PROGRAM_KEY)).collect()
    }

    /// Contents of a file that the scenario names.
    pub fn add_file(&mut self, name: String, contents: Vec<u8>) {
        self.files.add(vec![(name, contents)]);
    }

    /// Returns the inputs of this reading, from which another process can repeat it.
    pub fn inputs(&self) -> Inputs {
        Inputs {
            text: Arc::clone(&self.text),
            file: self.file.clone(),
            options: self.options.clone(),
            files: self.files.all().to_vec(),
        }
    }

    /// Returns the name of the scenario in errors.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the sweep.
    pub fn sweep(&self) -> &Sweep {
        &self.sweep
    }

    /// Returns every point; `shares` as [`Sweep::points`] has them.
    ///
    /// # Errors
    /// Too many points.
    pub fn points(&self, shares: &[f64]) -> Result<Vec<Settings>, ScenarioError> {
        self.located(self.sweep.points(shares))
    }

    /// Returns the points that have these values of the sweep's keys.
    ///
    /// # Errors
    /// Another number of values than keys.
    pub fn points_at(&self, rows: Vec<Vec<Value>>) -> Result<Vec<Settings>, ScenarioError> {
        let points = rows.into_iter().map(|row| self.sweep.point(row));
        self.located(points.collect())
    }

    /// Returns the laws with `gains = "auto"`, for the extremes of these points, of which there is
    /// at least one.
    ///
    /// # Errors
    /// The first thing that is wrong with a link, the traffic, or such a law.
    pub fn gains_requests(&self, points: &[Settings]) -> Result<Vec<GainsRequest>, ScenarioError> {
        self.located(self.requests(points))
    }

    /// Returns the requests for gains at a point that has been read already.
    ///
    /// # Errors
    /// If [`gains_requests_at`](Reading::gains_requests_at) fails.
    pub fn gains_requests_of(&self, point: &Settings) -> Result<Vec<GainsRequest>, ScenarioError> {
        self.gains_requests_at(point.values().into_iter().map(|(_, value)| value).collect())
    }

    /// Returns the requests for gains for the link of one point. Senders that the sweep compares
    /// get the same gains, because a queue does not know its senders.
    ///
    /// # Errors
    /// If [`gains_requests`](Reading::gains_requests) fails.
    pub fn gains_requests_at(&self, row: Vec<Value>) -> Result<Vec<GainsRequest>, ScenarioError> {
        let points = self.located(self.sweep.alike_but_for(SENDER_KEY, row))?;
        self.gains_requests(&points)
    }

    fn requests(&self, points: &[Settings]) -> Result<Vec<GainsRequest>, Fault> {
        if !laws::some_ask(&self.document, &self.chosen, &self.sweep) {
            return Ok(Vec::new());
        }
        let (mut asking, mut scenarios) = (Vec::<Asking>::new(), Vec::new());
        for settings in points {
            let (scenario, some) = self.at_point(settings, |document| {
                let some = laws::asking(document, &self.chosen, &self.options)?;
                Ok((scenario(document, &self.files, &self.options)?, some))
            })?;
            scenarios.push(scenario);
            for one in some {
                if asking.iter().all(|other| other.law != one.law) {
                    asking.push(one);
                }
            }
        }
        let load = Load::of(scenarios.iter());
        let request = |asking: Asking| GainsRequest {
            law: asking.law,
            label: asking.choice.label,
            kind: asking.choice.spec.kind,
            given: asking.given,
            per_flow: asking.choice.queue.is_per_flow(),
            load: load.clone(),
        };
        Ok(asking.into_iter().map(request).collect())
    }

    /// Returns these points as an experiment; `gains` has the numbers of laws with automatic gains,
    /// by the index of the point.
    ///
    /// # Errors
    /// The first thing that is wrong, in one line.
    pub fn experiment<'a>(
        &self,
        points: &[Settings],
        gains: impl Fn(usize) -> &'a [DesignedGains],
    ) -> Result<Experiment, ScenarioError> {
        self.located(self.read(points, gains))
    }

    fn read<'a>(
        &self,
        points: &[Settings],
        gains: impl Fn(usize) -> &'a [DesignedGains],
    ) -> Result<Experiment, Fault> {
        let mut read = Vec::with_capacity(points.len());
        for (number, settings) in points.iter().enumerate() {
            let (scenario, laws) = self.at_point(settings, |document| {
                let scenario = scenario(document, &self.files, &self.options)?;
                let gains = gains(number);
                let laws = laws::read(document, &self.chosen, &scenario, &self.options, gains)?;
                Ok((scenario, laws))
            })?;
            read.push(Point {
                label: settings.label(),
                settings: settings.values(),
                scenario,
                laws,
            });
        }
        let top = Top::of(&self.document.top)?;
        let laws = read
            .first()
            .map_or(&[] as &[LawChoice], |point| &point.laws);
        Ok(Experiment {
            title: top.title.0,
            source: top.source.0,
            seeds: (1..=seeds(&self.options, top.seeds)?)
                .map(u64::from)
                .collect(),
            laws: laws.iter().map(|law| law.label.clone()).collect(),
            points: read,
        })
    }

    /// Applies `read` to the document with the values that a point sets; an error names the point.
    fn at_point<T>(
        &self,
        settings: &Settings,
        read: impl Fn(&Document) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut here = self.document.clone();
        settings.apply(&mut here);
        read(&here).map_err(|fault| match read(&self.document) {
            // Where the file is at fault without the sweep, the point does not matter.
            Err(same) if same == fault => fault,
            _ => settings.blame(fault),
        })
    }

    fn located<T>(&self, result: Result<T, Fault>) -> Result<T, ScenarioError> {
        result.map_err(|fault| fault.in_file(&self.file))
    }
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
        if path.strip_prefix("sweep.") == Some(POINTS) {
            document
                .sweep
                .put(POINTS, command_line_value(path, text, "--set")?);
            continue;
        }
        let target = document.target(path).map_err(located)?;
        document.put(&target, command_line_value(path, text, "--set")?);
        fixed.push(target);
    }
    Ok(fixed)
}

fn scenario(document: &Document, files: &Files, options: &Options) -> Result<Scenario, Fault> {
    let top = Top::of(&document.top)?;
    let links = links::read(document, files)?;
    let traffic = traffic::read(
        document,
        &links,
        files,
        top.duration,
        (options.external, options.programs),
    )?;
    let changes = changes::read(document, top.duration)?;
    let mut scenario = Scenario {
        measure: top.window(),
        title: top.title.0,
        source: top.source.0,
        duration: top.duration,
        sample: top.sample,
        target: top.target.0,
        windows: top.windows,
        links,
        tested: 0,
        traffic,
        changes,
        kernel: kernel::read(document)?,
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
            let expected = format!("at most {}", site.buffer_as(target));
            Err(section.fault("target", target.to_value(), expected))
        }
        _ => Ok(()),
    }
}
