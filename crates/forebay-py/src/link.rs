//! A link for real traffic, as Python sees it: settings in, one table of what was observed out.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_batch::Outcome as Observation;
use forebay_core::{ParamError, Rate, Span, Time};
use forebay_link::lateness::Bounds;
use forebay_link::live::{Change, Shared};
use forebay_link::prometheus::Endpoint;
use forebay_link::text::{self, WayText};
use forebay_link::watch;
use forebay_link::{
    Capture, Command, Commands, Ended, Error, Outcome, Ready, Settings, Watchers,
    SUPER_PACKETS_ABOVE_BPS,
};
use forebay_scenario::LawChoice;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::batch::{Key, Run};
use crate::control::values;
use crate::plan::LawInfo;
use crate::ScenarioError;

/// What a view has to give the terminal back.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(FromPyObject)]
struct PyWay {
    suffix: String,
    rate: Option<String>,
    /// Name and lines.
    trace: Option<(String, String)>,
    delay: String,
    buffer: String,
    loss: String,
    ecn: bool,
    aqm: String,
    set: Vec<(String, String)>,
}

#[derive(FromPyObject)]
pub struct PySettings {
    up: PyWay,
    down: PyWay,
    device: String,
    /// Its range, and the seed's, `Settings.check` has seen to.
    mtu: u32,
    /// Chosen by the rate where it is None.
    super_packets: Option<bool>,
    seed: u64,
    sample: String,
    measure: String,
    void_lateness: String,
    void_rate: String,
}

impl PyWay {
    fn read(self) -> Result<forebay_link::Way, ParamError> {
        WayText {
            suffix: self.suffix,
            rate: self.rate,
            trace: self.trace,
            delay: self.delay,
            buffer: self.buffer,
            loss: self.loss,
            ecn: self.ecn,
            aqm: self.aqm,
            set: values(self.set),
        }
        .read()
    }
}

impl PySettings {
    fn read(self) -> Result<Settings, ParamError> {
        let (up, down) = (self.up.read()?, self.down.read()?);
        let rates = [&up, &down].map(|way| way.capacity.mean_rate());
        let fast = rates
            .iter()
            .any(|rate| *rate > Rate::from_bps(SUPER_PACKETS_ABOVE_BPS));
        let device = text::device(&self.device)?;
        let plain = matches!(device, forebay_link::DeviceKind::Packets);
        if plain && self.super_packets == Some(true) {
            return Err(ParamError::new(
                "device",
                "packets",
                "tun, which super-packets need",
            ));
        }
        Ok(Settings {
            up,
            down,
            device,
            mtu: self.mtu,
            super_packets: self
                .super_packets
                .unwrap_or_else(|| fast && !plain && forebay_link::tun_there()),
            seed: self.seed,
            sample: text::span(
                "sample",
                &self.sample,
                Span::from_millis(1),
                Span::from_secs(60),
            )?,
            measure: text::measure(&self.measure)?,
            bounds: Bounds {
                lateness_p999: text::span(
                    "void-lateness",
                    &self.void_lateness,
                    Span::from_micros(1),
                    Span::from_secs(60),
                )?,
                rate: text::rate_bound(&self.void_rate)?,
            },
        })
    }
}

fn refused(error: &ParamError) -> PyErr {
    ScenarioError::new_err(format!("link: {error}"))
}

fn failed(error: Error) -> PyErr {
    match error {
        Error::Input(error) => refused(&error),
        Error::Machine(line) => PyOSError::new_err(line),
    }
}

/// Checks settings, and describes the law of each direction: up, then down.
///
/// Raises ScenarioError with one line.
#[pyfunction]
pub fn link_check(py: Python, settings: PySettings) -> PyResult<Vec<LinkLaw>> {
    let settings = settings.read().map_err(|error| refused(&error))?;
    settings.directions().map_err(|error| refused(&error))?;
    let law = |way: &forebay_link::Way| {
        let choice = LawChoice {
            label: way.law.spec.kind.into(),
            spec: way.law.spec,
            given: way.law.given.clone(),
        };
        Ok(LinkLaw {
            law: Py::new(py, LawInfo::of_choice(&choice))?,
            rate_bps: way.capacity.mean_rate().as_bps(),
        })
    };
    [&settings.up, &settings.down]
        .into_iter()
        .map(law)
        .collect()
}

/// A direction's law, and its rate (the mean of a trace).
#[pyclass(frozen, get_all, module = "forebay._native")]
pub struct LinkLaw {
    law: Py<LawInfo>,
    rate_bps: u64,
}

/// Runs a link in this process, which must have one thread, until `command` ends or `stop` is
/// readable; `ready` is called with a table once it is up.
///
/// Raises ScenarioError for wrong settings, and OSError for what the machine does not allow.
///
/// `output` takes what command and server write; `watch` shows the run while it goes on, on the
/// terminal or as lines; `metrics` is an address to serve them on; `captures` is a folder.
#[pyfunction]
#[pyo3(signature = (
    settings, *, command=None, server=None, output=None, stop=None, ready=None, watch=false,
    metrics=None, captures=None
))]
#[allow(clippy::too_many_arguments)] // keywords in Python
pub fn link_run<'py>(
    py: Python<'py>,
    settings: PySettings,
    command: Option<Vec<OsString>>,
    server: Option<String>,
    output: Option<PathBuf>,
    stop: Option<RawFd>,
    ready: Option<Py<PyAny>>,
    watch: bool,
    metrics: Option<&str>,
    captures: Option<PathBuf>,
) -> PyResult<Bound<'py, PyDict>> {
    let settings = settings.read().map_err(|error| refused(&error))?;
    let commands = Commands {
        client: command.map(|arguments| Command {
            arguments,
            output: output.clone(),
            ..Command::default()
        }),
        server: server.map(|line| Command {
            arguments: vec!["/bin/sh".into(), "-c".into(), line.into()],
            output,
            ..Command::default()
        }),
    };
    let mut watchers = Watchers {
        stop,
        capture: captures
            .map(|folder| Capture::create(&folder))
            .transpose()?,
        ..Watchers::default()
    };
    // Bound before the process leaves the machine's own network.
    let endpoint = metrics.map(endpoint).transpose()?;
    let address = endpoint.as_ref().map(Endpoint::address).transpose()?;
    let view: Arc<Mutex<Option<JoinHandle<()>>>> = Arc::default();
    if watch || endpoint.is_some() {
        let shared = Shared::default();
        watchers.picture = Some(Arc::clone(&shared));
        let (changes, asked) = channel();
        watchers.changes = Some(asked);
        let (settings, view) = (settings.clone(), Arc::clone(&view));
        watchers.attend = Some(Box::new(move || {
            if watch {
                let started = watch::start(&settings, Arc::clone(&shared), changes);
                *view.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
            }
            if let Some(endpoint) = endpoint {
                endpoint.serve(shared);
            }
        }));
    }
    let mut raised = None;
    let outcome = py.detach(|| {
        forebay_link::run(&settings, &commands, watchers, |up| {
            if let Some(ready) = &ready {
                let told = Python::attach(|py| {
                    let up = tell(py, up)?;
                    up.set_item("metrics", address.map(|it| it.to_string()))?;
                    ready.call1(py, (up,))
                });
                raised = told.err();
            }
        })
    });
    // It gives the terminal back; where that has closed, reading from it may never end.
    let view = view.lock().unwrap_or_else(PoisonError::into_inner).take();
    let start = Instant::now();
    while view.as_ref().is_some_and(|it| !it.is_finished()) && start.elapsed() < PATIENCE {
        py.detach(|| thread::sleep(Duration::from_millis(5)));
    }
    match raised {
        Some(error) => Err(error),
        None => observed(py, &settings, outcome.map_err(failed)?),
    }
}

fn endpoint(address: &str) -> PyResult<Endpoint> {
    let wrong = |why: String| {
        let allowed = "an address of this machine with a free port, such as 127.0.0.1:9100";
        refused(&ParamError::new("metrics", why, allowed))
    };
    let address = address.parse().map_err(|_| wrong(format!("{address:?}")))?;
    Endpoint::bind(address).map_err(|error| wrong(format!("{address}, {error}")))
}

/// The root queue of a device: a table, or None where it has none.
#[pyfunction]
pub fn link_queue<'py>(py: Python<'py>, device: &str) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(queue) = forebay_link::root_queue(device)? else {
        return Ok(None);
    };
    let table = PyDict::new(py);
    table.set_item("kind", queue.kind)?;
    table.set_item("packets", queue.packets)?;
    table.set_item("bytes", queue.bytes)?;
    table.set_item("drops", queue.drops)?;
    table.set_item("sent_bytes", queue.sent_bytes)?;
    Ok(Some(table))
}

fn tell<'py>(py: Python<'py>, up: &Ready) -> PyResult<Bound<'py, PyDict>> {
    let table = PyDict::new(py);
    table.set_item("pid", up.pid)?;
    table.set_item("user", &up.user)?;
    table.set_item("networks", up.networks.to_vec())?;
    table.set_item("ipv6", up.ipv6)?;
    let environment = PyDict::new(py);
    for (name, value) in &up.environment {
        environment.set_item(name, value)?;
    }
    table.set_item("environment", environment)?;
    Ok(table)
}

/// (exit status, number of the error if it was not started)
fn status(ended: Option<Ended>) -> (Option<i32>, Option<i32>) {
    match ended {
        None => (None, None),
        Some(Ended::Status(status)) => (Some(status), None),
        Some(Ended::NotStarted(errno)) => (None, Some(errno)),
    }
}

/// A change as a table: its time, the direction, and the rate, or the law and what was set of it.
fn changed<'py>(py: Python<'py>, time: Time, change: &Change) -> PyResult<Bound<'py, PyDict>> {
    let table = PyDict::new(py);
    table.set_item("time_s", time.as_secs_f64())?;
    match change {
        Change::Rate(way, rate) => {
            table.set_item("way", *way)?;
            table.set_item("rate", rate.to_string())?;
        }
        Change::Law(way, law) => {
            table.set_item("way", *way)?;
            table.set_item("aqm", law.spec.kind)?;
            let set = law.given.iter();
            let set: Vec<_> = set
                .map(|(name, it)| (name, crate::laws::text(it)))
                .collect();
            table.set_item("set", set)?;
        }
        Change::Stop(_) => {}
    }
    Ok(table)
}

fn observed<'py>(
    py: Python<'py>,
    settings: &Settings,
    outcome: Outcome,
) -> PyResult<Bound<'py, PyDict>> {
    let table = PyDict::new(py);
    let late = |quantile: f64| outcome.lateness.quantile_s(quantile);
    let lateness = PyDict::new(py);
    lateness.set_item("p50_s", late(0.5))?;
    lateness.set_item("p99_s", late(0.99))?;
    lateness.set_item("p999_s", late(0.999))?;
    lateness.set_item("max_s", outcome.lateness.max_s())?;
    lateness.set_item("bins", outcome.lateness.bins())?;
    table.set_item("lateness", lateness)?;
    table.set_item("void", &outcome.void)?;
    table.set_item("capture_failed", &outcome.capture_failed)?;
    table.set_item("command", status(outcome.command))?;
    table.set_item("server", status(outcome.server))?;
    table.set_item("duration_s", outcome.duration.as_secs_f64())?;
    table.set_item("sample_s", settings.sample.as_secs_f64())?;
    let end = Time::ZERO + outcome.duration;
    let (start, measured) = settings.measure;
    let measured = measured.unwrap_or(end).min(end);
    let changes = outcome.changes.iter();
    let changes: PyResult<Vec<_>> = changes.map(|(time, it)| changed(py, *time, it)).collect();
    table.set_item("changes", changes?)?;
    table.set_item("measure_s", (start.as_secs_f64(), measured.as_secs_f64()))?;
    let ways = PyList::empty(py);
    for (index, way) in outcome.ways.into_iter().enumerate() {
        let counts = way.counts;
        let row = PyDict::new(py);
        row.set_item("achieved_bps", way.achieved_bps)?;
        row.set_item("asked_bps", way.asked_bps)?;
        row.set_item("lost_packets", counts.lost_packets)?;
        row.set_item("congestion_controls", way.congestion_controls)?;
        row.set_item("tcp_flows", way.tcp_flows)?;
        let key = Key {
            point: index,
            law: index,
            seed: settings.seed,
        };
        let observation = Observation {
            metrics: way.metrics,
            trace: way.trace,
            user_cpu_s: outcome.user_cpu_s,
            others: Vec::new(),
        };
        let run = Bound::new(py, Run::new(py, key, observation, true)?)?;
        for name in [
            "metrics",
            "samples",
            "delay_s",
            "delay_packets",
            "flow_traffic",
            "flow_goodput_bps",
        ] {
            row.set_item(name, run.getattr(name)?)?;
        }
        ways.append(row)?;
    }
    table.set_item("ways", ways)?;
    Ok(table)
}

/// Enters the namespaces with these paths, for a process that then becomes another program.
#[pyfunction]
#[pyo3(signature = (network, user=None))]
pub fn link_enter(network: &str, user: Option<&str>) -> PyResult<()> {
    forebay_link::enter(network, user).map_err(failed)
}

pub fn register(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(link_check, module)?)?;
    module.add_function(wrap_pyfunction!(link_run, module)?)?;
    module.add_function(wrap_pyfunction!(link_enter, module)?)?;
    module.add_function(wrap_pyfunction!(link_queue, module)?)?;
    module.add_class::<LinkLaw>()
}
