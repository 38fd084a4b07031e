//! A link for real traffic as Python classes, from its settings to its observations.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, TryFromFloatSecsError};

use forebay_link::control::Control;
use forebay_link::live::LiveChange;
use forebay_link::prometheus::Endpoint;
use forebay_link::{
    Attendance, Capture, Command, Commands, DirectionSettings, End, Ended, Error, Outcome,
    Programs, QueueCapture, Settings, TrafficMap, Watchers,
};
use forebay_scenario::link_options::DirectionChoice;
use forebay_scenario::LinkOptions;
use forebay_units::{ParamError, ParamType, Span, Time, Value};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::Observed;
use crate::facts::{self, ChangeInfo, LawInfo, LinkInfo};
use crate::laws::{read_value, text, value, values};
use crate::record::record;
use crate::ScenarioError;

/// Exit status of a command that could not be started.
const NOT_FOUND: i32 = 127;

/// A file's name and contents.
type Files = Vec<(String, Vec<u8>)>;

/// Number of entries of `[[traffic]]`, the entry of each program, and the entry of the flows to a
/// port.
type TrafficApart = (u32, Vec<u8>, Vec<(u16, u8)>);

fn refused(error: &ParamError) -> PyErr {
    let (text, line) = (format!("link: {error}"), None::<usize>);
    ScenarioError::new_err((text, "", line, error.key.clone(), error.expected.clone()))
}

fn failed(error: Error) -> PyErr {
    match error {
        Error::Input(error) => refused(&error),
        Error::Machine(line) => PyOSError::new_err(line),
    }
}

/// Settings of a link, read and checked.
#[pyclass(frozen, module = "forebay._native")]
pub struct LinkSettings {
    given: Vec<(String, Value)>,
    files: Files,
    options: LinkOptions,
    settings: Settings,
}

#[pymethods]
impl LinkSettings {
    /// `given` has options by the names of `link_options`, and `files` the contents of traces by
    /// name.
    ///
    /// Raises ScenarioError with one line.
    #[new]
    #[pyo3(signature = (given, files=Vec::new()))]
    fn new(given: &Bound<PyDict>, files: Files) -> PyResult<LinkSettings> {
        let mut read = Vec::with_capacity(given.len());
        for (name, option) in given {
            let option = read_value(&option).map_err(|error| refused(&error))?;
            read.push((name.extract()?, option));
        }
        let options = LinkOptions::read(&read, &files).map_err(|error| refused(&error))?;
        let settings = Settings::of(&options).map_err(|error| refused(&error))?;
        forebay_link::direction::both(&settings).map_err(|error| refused(&error))?;
        Ok(LinkSettings {
            given: read,
            files,
            options,
            settings,
        })
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, Files)> {
        Ok((self.given(py)?, self.files.clone()))
    }

    /// Returns the options that were given, by the names of `link_options`.
    #[getter]
    fn given<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let given = PyDict::new(py);
        for (name, option) in &self.given {
            given.set_item(name, value(py, option)?)?;
        }
        Ok(given)
    }

    /// Client to server.
    #[getter]
    fn up(&self, py: Python) -> PyResult<LinkDirectionSettings> {
        let ends = ["up", "client", "server"];
        self.direction(py, ends, &self.options.up, &self.settings.up)
    }

    /// Server to client.
    #[getter]
    fn down(&self, py: Python) -> PyResult<LinkDirectionSettings> {
        let ends = ["down", "server", "client"];
        self.direction(py, ends, &self.options.down, &self.settings.down)
    }

    #[getter]
    fn mtu(&self) -> u32 {
        self.settings.mtu
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.settings.seed
    }

    /// The measurement window as an option writes it, such as "5s.."
    #[getter]
    fn measure(&self) -> String {
        text(&self.options.whole.measure.to_value())
    }
}

impl LinkSettings {
    fn direction(
        &self,
        py: Python,
        [name, from, to]: [&str; 3],
        choice: &DirectionChoice,
        read: &DirectionSettings,
    ) -> PyResult<LinkDirectionSettings> {
        let site = read.site(self.settings.mtu);
        let options = &choice.options;
        let (buffer_pkts, buffer_bytes) = facts::buffer(options.buffer.at(choice.mean_rate()));
        let link = LinkInfo {
            name: name.to_owned(),
            from_node: from.to_owned(),
            to_node: to.to_owned(),
            rate_bps: choice.mean_rate().as_bps(),
            burst_bytes: options.burst.0,
            trace: choice.trace.as_deref().map(facts::trace),
            delay_s: (
                options.delay.least.as_secs_f64(),
                options.delay.most.as_secs_f64(),
            ),
            buffer_pkts,
            buffer_bytes,
            ecn: self.options.whole.ecn,
            law: None,
        };
        Ok(LinkDirectionSettings {
            link: Py::new(py, link)?,
            trace: options.trace.0.as_ref().map(|file| file.0.clone()),
            buffer_mtu_pkts: site.buffer_pkts,
            loss: options.loss.0,
            aqm: choice.law.spec.kind.to_owned(),
            params: values(py, choice.law.given())?,
            law: Py::new(py, LawInfo::of(py, &choice.law, &site)?)?,
        })
    }
}

record! {
    /// Settings of one direction.
    LinkDirectionSettings {
        link: Py<LinkInfo>,
        /// Name of the file with the times at which the link can send, for a recorded link.
        trace: Option<String>,
        /// Packets of the MTU that the buffer holds.
        buffer_mtu_pkts: f64,
        /// Share of packets lost after the queue.
        loss: f64,
        aqm: String,
        /// Parameters that were given for the law.
        params: Vec<(String, Py<PyAny>)>,
        law: Py<LawInfo>,
    }
}

record! {
    /// A link that is up, with the paths by which other processes enter it.
    LinkReady {
        pid: u32,
        /// Path of the user namespace, if there is one of its own.
        user: Option<String>,
        /// Paths of the network namespaces of client and server.
        networks: Vec<String>,
        ipv6: bool,
        environment: std::collections::BTreeMap<String, String>,
        /// Address on which metrics are served.
        metrics: Option<String>,
    }
}

record! {
    /// The lateness of released packets by quantile, in s; NaN without packets.
    LinkLateness {
        p50_s: f64,
        p99_s: f64,
        p999_s: f64,
        max_s: f64,
        /// Upper end of each bin in s, and packets in it.
        bins: Vec<(f64, u64)>,
    }
}

record! {
    /// The observations of one direction.
    LinkDirection {
        observed: Py<Observed>,
        /// Changes that were made by hand while the link was up.
        changes: Vec<Py<ChangeInfo>>,
        /// Rates at which the busy link released packets, and at which they were due, in bit/s.
        achieved_bps: f64,
        asked_bps: f64,
        /// Packets lost after the queue, by the option `loss`.
        lost_packets: u64,
        /// TCP flows that carried data.
        tcp_flows: u64,
        /// Number of flows whose sender was seen, by congestion control.
        congestion_controls: std::collections::BTreeMap<String, u64>,
    }
}

record! {
    /// A client, and a server if there is one, on hosts of their own; what the server sends goes
    /// up. Both are lines for the shell.
    LinkPrograms {
        client: String,
        server: Option<String>,
        /// The folder in which the programs run.
        folder: PathBuf,
        /// Files for what client and server write.
        outputs: (PathBuf, PathBuf),
        /// The times at which the client starts and both programs are stopped, since the start of
        /// the link's command.
        start_s: f64,
        stop_s: f64,
        /// Settings of both hosts, such as ("net.ipv4.tcp_ecn", "1").
        sysctls: Vec<(String, String)>,
    }
}

impl LinkPrograms {
    fn of(&self) -> Result<Programs, TryFromFloatSecsError> {
        let stop = Some(Duration::try_from_secs_f64(self.stop_s)?);
        let command = |line: &str, output: &PathBuf, start| Command {
            arguments: vec!["/bin/sh".into(), "-c".into(), line.into()],
            output: Some(output.clone()),
            folder: Some(self.folder.clone()),
            start,
            stop,
            ..Command::default()
        };
        let start = Some(Duration::try_from_secs_f64(self.start_s)?);
        let (of_client, of_server) = &self.outputs;
        let server = self.server.as_ref();
        Ok(Programs {
            server_at: End::Client,
            client: command(&self.client, of_client, start),
            server: server.map(|line| command(line, of_server, None)),
            sysctls: self.sysctls.clone(),
        })
    }
}

record! {
    /// The outcome of a run on a link.
    LinkOutcome {
        /// Exit status of the command, 128 + n where signal n killed it; None where there was none.
        status: Option<i32>,
        /// Number of the error for which the command could not be started.
        not_started: Option<i32>,
        /// Exit status of the server's command; None while it runs.
        server_status: Option<i32>,
        /// Exit status of each client and of its server; None where it was stopped.
        programs: Vec<(Option<i32>, Option<i32>)>,
        duration_s: f64,
        measure_s: (f64, f64),
        sample_s: f64,
        lateness: Py<LinkLateness>,
        /// The reasons why the run is void; empty if it is valid.
        void: Vec<String>,
        /// The reason why the captures are incomplete; None if they are complete.
        capture_failed: Option<String>,
        user_cpu_s: f64,
        /// Up, then down.
        directions: Vec<Py<LinkDirection>>,
    }
}

#[pyfunction]
#[pyo3(signature = (
    settings, *, command=None, server=None, output=None, stop=None, ready=None, watch=false,
    metrics=None, captures=None, control=None, programs=Vec::new(), packets=None,
    apart=None
))]
#[allow(clippy::too_many_arguments, reason = "keywords in Python")]
/// Runs a link in this process, which must have one thread, until `command` ends or `stop` is
/// readable; `ready` is called with a LinkReady once it is up.
///
/// Raises ScenarioError for wrong settings, and OSError for what the machine does not allow.
///
/// `output` takes what command and server write; `watch` shows the run while it goes on, on the
/// terminal or as lines; `metrics` is an address to serve them on; `captures` is a folder;
/// `control` is a path for a socket that takes changes; `programs` have hosts of their own;
/// `packets` is a file for the packets of the queue up, with the start and end of the part of the
/// run that it covers; `apart` distinguishes the traffic: the number of entries, the entry of each
/// of `programs`, and the entry of the flows to a port.
pub fn link_run(
    py: Python,
    settings: &Bound<LinkSettings>,
    command: Option<Vec<OsString>>,
    server: Option<String>,
    output: Option<PathBuf>,
    stop: Option<i32>,
    ready: Option<Py<PyAny>>,
    watch: bool,
    metrics: Option<&str>,
    captures: Option<PathBuf>,
    control: Option<PathBuf>,
    programs: Vec<Py<LinkPrograms>>,
    packets: Option<(PathBuf, f64, f64)>,
    apart: Option<TrafficApart>,
) -> PyResult<LinkOutcome> {
    let mut settings = settings.get().settings.clone();
    if let Some((count, hosts, ports)) = apart {
        settings.traffic_map = TrafficMap {
            count,
            hosts,
            ports,
            rtt: settings.up.path.delays.least + settings.down.path.delays.least,
        };
    }
    let packets = packets.map(|(path, start_s, end_s)| {
        let [start, end] = [start_s, end_s].map(Span::from_secs_f64);
        QueueCapture::create(&path, start, end)
    });
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
        programs: (programs.iter().map(|it| it.get().of()))
            .collect::<Result<_, _>>()
            .map_err(|error| PyValueError::new_err(error.to_string()))?,
    };
    let mut watchers = Watchers {
        stop: stop.map(forebay_link::duplicate).transpose()?,
        capture: captures
            .map(|folder| Capture::create(&folder))
            .transpose()?,
        queue_capture: packets.transpose()?,
        ..Watchers::default()
    };
    // The address is bound before the process leaves the machine's own network.
    let endpoint = metrics.map(Endpoint::at).transpose();
    let endpoint = endpoint.map_err(|error| refused(&error))?;
    let address = endpoint.as_ref().map(Endpoint::address).transpose()?;
    let control = control.map(|path| Control::at(&path)).transpose();
    let control = control.map_err(|error| refused(&error))?;
    let attendance = Attendance::add(&mut watchers, &settings, watch, endpoint, control);
    let mut raised = None;
    let outcome = py.detach(|| {
        let outcome = forebay_link::run(&settings, &commands, watchers, |up| {
            let Some(ready) = &ready else { return };
            let up = LinkReady {
                pid: up.pid,
                user: up.user.clone(),
                networks: up.networks.to_vec(),
                ipv6: up.ipv6,
                environment: up.environment.iter().cloned().collect(),
                metrics: address.map(|it| it.to_string()),
            };
            raised = Python::attach(|py| ready.call1(py, (up,))).err();
        });
        attendance.end();
        outcome
    });
    match raised {
        Some(error) => Err(error),
        None => observed(py, &settings, outcome.map_err(failed)?),
    }
}

/// Returns the root queue of a device: a table, or None where it has none.
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

/// (exit status, number of the error if it was not started)
fn status(ended: Option<Ended>) -> (Option<i32>, Option<i32>) {
    match ended {
        None => (None, None),
        Some(Ended::Status(status)) => (Some(status), None),
        Some(Ended::NotStarted(errno)) => (None, Some(errno)),
        Some(Ended::Stopped) => (None, None),
    }
}

/// Returns the rate or the law that a change gives direction `index`; None if it changes neither.
fn changed(
    py: Python,
    time: Time,
    change: &LiveChange,
    index: usize,
) -> PyResult<Option<Py<ChangeInfo>>> {
    let at = ChangeInfo {
        time_s: time.as_secs_f64(),
        link: Some(0),
        ..ChangeInfo::default()
    };
    let info = match change {
        LiveChange::Rate(direction, rate) if *direction == index => ChangeInfo {
            rate_bps: Some(rate.as_bps()),
            ..at
        },
        LiveChange::Law(direction, law) if *direction == index => ChangeInfo {
            aqm: Some(law.spec.kind.to_owned()),
            params: values(py, law.given())?,
            ..at
        },
        LiveChange::Rate(..) | LiveChange::Law(..) | LiveChange::Stop(_) => return Ok(None),
    };
    Py::new(py, info).map(Some)
}

fn observed(py: Python, settings: &Settings, outcome: Outcome) -> PyResult<LinkOutcome> {
    let late = |quantile: f64| outcome.lateness.quantile_s(quantile);
    let lateness = LinkLateness {
        p50_s: late(0.5),
        p99_s: late(0.99),
        p999_s: late(0.999),
        max_s: outcome.lateness.max_s(),
        bins: outcome.lateness.bins(),
    };
    let (status, not_started) = status(outcome.command);
    let (server_status, _) = self::status(outcome.server);
    let of_program = |ended: Option<Ended>| match self::status(ended) {
        // As a shell has it.
        (None, Some(_)) => Some(NOT_FOUND),
        (status, _) => status,
    };
    let programs = outcome.programs.into_iter();
    let programs = programs.map(|[client, server]| (of_program(client), of_program(server)));
    let mut directions = Vec::new();
    for (index, mut direction) in outcome.ways.into_iter().enumerate() {
        let changes = outcome.changes.iter();
        let changes = changes.map(|(time, change)| changed(py, *time, change, index));
        let observed = Observed::of(py, &mut direction.trace, 0, &direction.metrics, true)?;
        let direction = LinkDirection {
            observed: Py::new(py, observed)?,
            changes: changes
                .filter_map(PyResult::transpose)
                .collect::<PyResult<_>>()?,
            achieved_bps: direction.achieved_bps,
            asked_bps: direction.asked_bps,
            lost_packets: direction.counts.lost_packets,
            tcp_flows: direction.tcp_flows,
            congestion_controls: direction.congestion_controls,
        };
        directions.push(Py::new(py, direction)?);
    }
    Ok(LinkOutcome {
        status,
        not_started,
        server_status,
        programs: programs.collect(),
        duration_s: outcome.duration.as_secs_f64(),
        measure_s: settings.measured(outcome.duration),
        sample_s: settings.sample.as_secs_f64(),
        lateness: Py::new(py, lateness)?,
        void: outcome.void,
        capture_failed: outcome.capture_failed,
        user_cpu_s: outcome.user_cpu_s,
        directions,
    })
}

/// Enters the namespaces with these paths, for a process that then becomes another program.
#[pyfunction]
#[pyo3(signature = (network, user=None))]
pub fn link_enter(network: &str, user: Option<&str>) -> PyResult<()> {
    forebay_link::enter(network, user).map_err(failed)
}

/// Adds the functions and classes of this file to the module.
pub fn register(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(link_run, module)?)?;
    module.add_function(wrap_pyfunction!(link_enter, module)?)?;
    module.add_function(wrap_pyfunction!(link_queue, module)?)?;
    module.add_class::<LinkSettings>()?;
    module.add_class::<LinkDirectionSettings>()?;
    module.add_class::<LinkPrograms>()?;
    module.add_class::<LinkReady>()?;
    module.add_class::<LinkLateness>()?;
    module.add_class::<LinkDirection>()?;
    module.add_class::<LinkOutcome>()
}
