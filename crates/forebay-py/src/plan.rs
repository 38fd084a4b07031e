//! A scenario that has been read and checked, described for reports and ready to start.

use std::collections::HashSet;
use std::sync::Arc;

use forebay_batch::{Batch, Build, Job};
use forebay_core::discipline::Buffer;
use forebay_core::{Packets, Site, Span};
use forebay_scenario::{
    parse, Change, EcnChoice, Experiment, Instant, LawChoice, Link, LinkSetting, Options, Pareto2,
    Point, RateTrace, Scenario, Setting, Traffic, TrafficKind,
};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::batch::{Key, PyBatch};
use crate::prototype::Prototype;
use crate::ScenarioError;
use crate::{files, laws};

/// Reads a scenario. `laws` are names, or classes (or functions) that make a prototype; `file`
/// only names it in errors; `read` gives the contents of a file that the scenario names, or None.
///
/// Raises ScenarioError with the one line that says what is wrong.
#[pyfunction]
#[pyo3(signature = (text, file, *, sets=Vec::new(), laws=Vec::new(), seeds=None, read=None))]
pub fn plan(
    text: &Bound<PyBytes>,
    file: &str,
    sets: Vec<(String, String)>,
    laws: Vec<Bound<PyAny>>,
    seeds: Option<u32>,
    read: Option<Bound<PyAny>>,
) -> PyResult<Plan> {
    let mut options = Options {
        sets,
        seeds,
        ..Options::default()
    };
    let mut prototypes = Vec::new();
    for law in &laws {
        if let Ok(name) = law.cast::<PyString>() {
            options.laws.push(name.to_string());
            continue;
        }
        let prototype = Prototype::new(law)?;
        if options.prototypes.contains(&prototype.label) {
            return Err(ScenarioError::new_err(format!(
                "--law: {}: found twice, allowed: laws with different labels",
                prototype.label
            )));
        }
        options.prototypes.push(prototype.label.clone());
        prototypes.push(prototype);
    }
    files::add(&mut options, text.as_bytes(), file, read.as_ref())?;
    let experiment = parse(text.as_bytes(), file, &options).map_err(files::refused)?;
    let py = text.py();
    let points = experiment.points.iter();
    let points: PyResult<Vec<_>> = points
        .map(|point| describe(py, point, &prototypes))
        .collect();
    Ok(Plan {
        points: PyTuple::new(py, points?)?.unbind(),
        experiment,
        prototypes,
    })
}

/// Every law at every point with every seed.
#[pyclass(frozen, module = "forebay._native")]
pub struct Plan {
    experiment: Experiment,
    /// They come after the scenario's laws.
    prototypes: Vec<Prototype>,
    /// A PointInfo each.
    #[pyo3(get)]
    points: Py<PyTuple>,
}

#[pymethods]
impl Plan {
    #[getter]
    fn title(&self) -> &str {
        &self.experiment.title
    }

    #[getter]
    fn source(&self) -> &str {
        &self.experiment.source
    }

    #[getter]
    fn seeds(&self) -> Vec<u64> {
        self.experiment.seeds.clone()
    }

    /// Labels, the same at every point.
    #[getter]
    fn laws(&self) -> Vec<&str> {
        let prototypes = self.prototypes.iter().map(|it| &it.label);
        let laws = self.experiment.laws.iter().chain(prototypes);
        laws.map(String::as_str).collect()
    }

    /// Starts every run in background threads, and returns at once. Without `samples`, runs
    /// keep only their metrics. `only` leaves out all but these (point, law, seed), the first
    /// two as indices.
    #[pyo3(signature = (threads, *, samples=true, only=None))]
    fn start(
        &self,
        py: Python,
        threads: usize,
        samples: bool,
        only: Option<HashSet<(usize, usize, u64)>>,
    ) -> PyResult<PyBatch> {
        let points: Vec<_> = self.experiment.points.iter().collect();
        let scenarios: Vec<_> = points
            .iter()
            .map(|point| Arc::new(point.scenario.clone()))
            .collect();
        let builds: Vec<Vec<(Build, Option<f64>)>> =
            points.iter().map(|point| self.builds(py, point)).collect();
        let (mut jobs, mut keys) = (Vec::new(), Vec::new());
        // Seed by seed, so that what is there after an interruption compares all laws.
        for &seed in &self.experiment.seeds {
            for (point, scenario) in scenarios.iter().enumerate() {
                for (law, (build, target_pkts)) in builds[point].iter().enumerate() {
                    if only
                        .as_ref()
                        .is_some_and(|only| !only.contains(&(point, law, seed)))
                    {
                        continue;
                    }
                    keys.push(Key { point, law, seed });
                    jobs.push(Job {
                        scenario: Arc::clone(scenario),
                        law: Arc::clone(build),
                        target_pkts: *target_pkts,
                        seed,
                    });
                }
            }
        }
        let batch = Batch::start(jobs, threads).map_err(PyRuntimeError::new_err)?;
        Ok(PyBatch {
            batch,
            keys,
            samples,
        })
    }
}

impl Plan {
    /// How to make each law at `point`, and its set-point.
    fn builds(&self, py: Python, point: &Point) -> Vec<(Build, Option<f64>)> {
        let site = point.scenario.site();
        let of_scenario = point.laws.iter().cloned().map(|choice| {
            let target_pkts = choice.target_pkts(&site);
            let build: Build = Arc::new(move |_| choice.aqm());
            (build, target_pkts)
        });
        let of_python = self
            .prototypes
            .iter()
            .map(|prototype| (prototype.build(py), prototype.target_pkts(&site)));
        of_scenario
            .chain(of_python)
            .map(|(build, own)| (build, point.scenario.target_pkts().or(own)))
            .collect()
    }
}

fn describe(py: Python, point: &Point, prototypes: &[Prototype]) -> PyResult<PointInfo> {
    let scenario = &point.scenario;
    let settings = PyDict::new(py);
    for (key, value) in &point.settings {
        settings.set_item(key, laws::value(py, value)?)?;
    }
    let of_scenario = point
        .laws
        .iter()
        .map(|law| LawInfo::of_choice(law, &scenario.site()));
    let of_python = prototypes
        .iter()
        .map(|it| LawInfo::of_prototype(it, &scenario.site()));
    let (start, end) = scenario.measure;
    Ok(PointInfo {
        label: point.label.clone(),
        settings: settings.unbind(),
        duration_s: scenario.duration.as_secs_f64(),
        measure_s: (start.as_secs_f64(), end.as_secs_f64()),
        sample_s: scenario.sample.as_secs_f64(),
        target_pkts: scenario.target_pkts(),
        rate: scenario.bottleneck.rate.to_string(),
        links: scenario
            .all_links()
            .map(|link| Py::new(py, LinkInfo::new(py, link, &scenario.site_of(link))?))
            .collect::<PyResult<_>>()?,
        laws: of_scenario
            .chain(of_python)
            .map(|law| Py::new(py, law))
            .collect::<PyResult<_>>()?,
        traffic: scenario
            .traffic
            .iter()
            .map(|traffic| Py::new(py, TrafficInfo::new(traffic, scenario)))
            .collect::<PyResult<_>>()?,
        changes: scenario
            .changes
            .iter()
            .map(|change| what_changes(change, scenario))
            .collect(),
    })
}

/// One point of the sweep. Quantities are texts with their unit.
#[pyclass(frozen, get_all, module = "forebay._native")]
pub struct PointInfo {
    label: String,
    settings: Py<PyDict>,
    duration_s: f64,
    measure_s: (f64, f64),
    sample_s: f64,
    target_pkts: Option<f64>,
    /// Of the bottleneck.
    rate: String,
    /// The bottleneck first.
    links: Vec<Py<LinkInfo>>,
    laws: Vec<Py<LawInfo>>,
    traffic: Vec<Py<TrafficInfo>>,
    /// Time in s, what changes, and to what.
    changes: Vec<(f64, String, String)>,
}

/// A link, and the queue before it.
#[pyclass(frozen, get_all, module = "forebay._native")]
pub struct LinkInfo {
    name: String,
    /// Where the queue is.
    from_node: String,
    to_node: String,
    rate: String,
    /// Mean rate of the recorded times at which it sends, and how long they are, in s.
    trace: Option<(String, f64)>,
    /// One way.
    delay: String,
    buffer: String,
    ecn: bool,
    /// The law that it has whatever law is under test.
    law: Option<Py<LawInfo>>,
}

impl LinkInfo {
    fn new(py: Python, link: &Link, site: &Site) -> PyResult<LinkInfo> {
        let own = link.law.as_ref().map(|law| LawInfo::of_choice(law, site));
        let round_s = |trace: &RateTrace| f64::from(*trace.times_ms.last().unwrap_or(&0)) / 1e3;
        let trace = link.trace.as_ref();
        Ok(LinkInfo {
            name: link.name.clone(),
            from_node: link.from.clone(),
            to_node: link.to.clone(),
            rate: link.rate.to_string(),
            trace: trace.map(|it| (it.mean_rate().to_string(), round_s(it))),
            delay: link.delay.to_string(),
            buffer: buffer(link.buffer),
            ecn: link.ecn,
            law: own.map(|law| Py::new(py, law)).transpose()?,
        })
    }
}

/// A law at one point.
#[pyclass(frozen, get_all, module = "forebay._native")]
pub struct LawInfo {
    label: String,
    /// Name in the registry; None for a prototype.
    kind: Option<&'static str>,
    /// Whether it integrates the distance to its set-point, by its linear model.
    integrates: bool,
    title: String,
    source: String,
    /// Every parameter as it is written, in the order of its table.
    params: Vec<(String, String)>,
    target_pkts: Option<f64>,
    /// The queue that holds it, as a scenario writes it; None for the default.
    queue: Option<String>,
}

impl LawInfo {
    pub fn of_choice(choice: &LawChoice, site: &Site) -> LawInfo {
        // It was built once when the scenario was read, so it resolves.
        let resolved = choice.spec.resolve(&choice.given).unwrap_or_default();
        LawInfo {
            label: choice.label.clone(),
            kind: Some(choice.spec.kind),
            integrates: choice.spec.integrates(&choice.given),
            title: choice.spec.title.into(),
            source: choice.spec.source.into(),
            params: resolved
                .iter()
                .map(|(name, value)| ((*name).into(), laws::text(value)))
                .collect(),
            target_pkts: choice.target_pkts(site),
            queue: (!choice.queue.is_default()).then(|| choice.queue.to_string()),
        }
    }

    fn of_prototype(prototype: &Prototype, site: &Site) -> LawInfo {
        let target = prototype.set_point.map(|target| target.to_string());
        let interval = Some(prototype.interval.to_string());
        let params = [("target", target), ("interval", interval)];
        LawInfo {
            label: prototype.label.clone(),
            kind: None,
            integrates: false,
            title: "a prototype in Python".into(),
            source: String::new(),
            params: params
                .into_iter()
                .filter_map(|(name, text)| Some((name.into(), text?)))
                .collect(),
            target_pkts: prototype.target_pkts(site),
            queue: None,
        }
    }
}

/// A set of like flows.
#[pyclass(frozen, get_all, module = "forebay._native")]
pub struct TrafficInfo {
    label: String,
    kind: &'static str,
    flows: u32,
    packet: String,
    /// Of a packet, what goodput does not count.
    header: String,
    /// Nodes that the data passes, in order.
    path: Vec<String>,
    rtts: Vec<String>,
    access: String,
    /// Earliest and latest.
    start: (String, String),
    stop: Option<(String, String)>,
    /// The scenario's name of the sender; None without congestion control.
    tcp: Option<String>,
    ecn: bool,
    /// What is particular to the kind, by the scenario's keys; absent ones are left out.
    params: Vec<(&'static str, String)>,
}

impl TrafficInfo {
    fn new(traffic: &Traffic, scenario: &Scenario) -> TrafficInfo {
        let links: Vec<&Link> = scenario.all_links().collect();
        let first = links[traffic.path[0]].from.clone();
        let nodes = traffic.path.iter().map(|link| links[*link].to.clone());
        let path = std::iter::once(first).chain(nodes).collect();
        let tcp = traffic.kind.tcp();
        let ecn = match &traffic.kind {
            TrafficKind::Cbr { ecn, .. } => *ecn,
            TrafficKind::OnOff(onoff) => onoff.ecn,
            _ => tcp.is_some_and(|tcp| tcp.ecn != EcnChoice::Off),
        };
        TrafficInfo {
            label: traffic.label.clone(),
            kind: traffic.kind.name(),
            flows: traffic.flows,
            packet: traffic.packet.to_string(),
            header: traffic.header.to_string(),
            path,
            rtts: traffic.rtts.iter().map(Span::to_string).collect(),
            access: traffic.access.to_string(),
            start: bounds(&traffic.start),
            stop: traffic.stop.as_ref().map(bounds),
            tcp: tcp.map(|tcp| tcp.sender.name.to_owned()),
            ecn,
            params: particulars(&traffic.kind),
        }
    }
}

fn particulars(kind: &TrafficKind) -> Vec<(&'static str, String)> {
    let size = |size: &Pareto2| {
        [
            ("shape", size.shape.to_string()),
            ("scale", size.scale.to_string()),
        ]
    };
    let mut params = Vec::new();
    match kind {
        TrafficKind::Ftp(_) => {}
        TrafficKind::Mice { on, off, .. } => {
            params.extend([("on", on.to_string()), ("off", off.to_string())]);
        }
        TrafficKind::Cbr { rate, .. } => params.push(("rate", rate.to_string())),
        TrafficKind::Web(web) => {
            params.push(("requests", web.requests_per_s.to_string()));
            params.push(("connections", web.most_connections.to_string()));
            params.extend(size(&web.size));
        }
        TrafficKind::Pages(pages) => {
            params.extend(pages.pages.map(|pages| ("pages", pages.to_string())));
            params.push(("page_gap", pages.page_gap.to_string()));
            params.push(("objects", pages.objects.to_string()));
            params.push(("object_gap", pages.object_gap.to_string()));
            params.extend(size(&pages.size));
        }
        TrafficKind::OnOff(onoff) => {
            params.push(("rate", onoff.rate.to_string()));
            params.push(("on", onoff.on.to_string()));
            params.extend(onoff.on_shape.map(|shape| ("on_shape", shape.to_string())));
            params.push(("off", onoff.off.to_string()));
            params.extend(onoff.bursts.map(|bursts| ("bursts", bursts.to_string())));
            if let Some(arrivals) = onoff.arrivals {
                params.push(("arrivals", arrivals.per_s.to_string()));
                params.push(("swing", arrivals.swing.to_string()));
                params.push(("period", arrivals.period.to_string()));
                params.push(("peak", arrivals.peak.to_string()));
            }
        }
    }
    params
}

fn bounds(instant: &Instant) -> (String, String) {
    let (low, high) = instant.bounds();
    (low.to_string(), high.to_string())
}

fn buffer(buffer: Buffer) -> String {
    match buffer {
        Buffer::Packets(packets) => Packets(f64::from(packets)).to_string(),
        Buffer::Bytes(bytes) => forebay_core::Bytes(bytes).to_string(),
    }
}

fn what_changes(change: &Change, scenario: &Scenario) -> (f64, String, String) {
    let (what, value) = match &change.what {
        Setting::Link { link, what } => {
            let (what, value) = match what {
                LinkSetting::Rate(rate) => ("rate", rate.to_string()),
                LinkSetting::Delay(delay) => ("one-way delay", delay.to_string()),
                LinkSetting::Buffer(size) => ("buffer", buffer(*size)),
            };
            match link {
                0 => (what.into(), value),
                other => (
                    format!("{what} of {}", scenario.links[other - 1].name),
                    value,
                ),
            }
        }
        Setting::Flows { traffic: i, flows } => (
            format!("number of {} flows", scenario.traffic[*i].label),
            flows.to_string(),
        ),
    };
    (change.at.as_secs_f64(), what, value)
}
