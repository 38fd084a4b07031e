//! A scenario that has been read and checked, described for reports and ready to start.

use std::collections::HashSet;

use forebay_batch::{fluid_jobs, jobs, Batch, Job, Key};
use forebay_fluid::{from_scenario, Step};
use forebay_scenario::{
    DesignedGains, Experiment, Inputs, KernelSettings, Offloads, Reading, Shaper,
};
use forebay_sim::traffic::starts;
use forebay_units::Time;
use pyo3::exceptions::{PyIndexError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::batch::PyBatch;
use crate::facts::PointInfo;
use crate::files;
use crate::fluid::{labels, quantity, refused, windows};
use crate::laws::values;
use crate::network::Network;
use crate::reading::{
    self, read_params, read_rows, shares, Asked, Designed, GainsRequest, Links, PointGains, Row,
    GAINS,
};
use crate::session::{Session, Steering};

#[pyfunction]
#[pyo3(signature = (
    text, file, *, overrides=Vec::new(), laws=Vec::new(), seeds=None, read=None, without_own_laws=false,
    link=None, rows=None, gains=Vec::new(), programs=false, external=false
))]
#[allow(clippy::too_many_arguments, reason = "keywords in Python")]
/// Reads a scenario with every point of its sweep, or with the points of `rows`, for which `gains`
/// has the numbers of laws with automatic gains. `laws` are names, or classes or functions that
/// make a prototype. `file` is the name of the scenario in errors. `read` returns the contents of a
/// file that the scenario names, or None. `without_own_laws` leaves out the laws of the file.
/// `link` moves the scenario from one link to another; each link is a rate in bit/s and a delay in
/// s, and the usual packet size is in bytes. `programs` is True if the engine can run programs, and
/// `external` if the caller sends the packets of external traffic.
///
/// Raises ScenarioError with the one line that says what is wrong.
pub fn plan(
    text: &Bound<PyBytes>,
    file: &str,
    overrides: Vec<(String, String)>,
    laws: Vec<Bound<PyAny>>,
    seeds: Option<u32>,
    read: Option<Bound<PyAny>>,
    without_own_laws: bool,
    link: Option<Links>,
    rows: Option<Vec<Row>>,
    gains: Vec<PointGains>,
    programs: bool,
    external: bool,
) -> PyResult<Plan> {
    let asked = Asked {
        sets: overrides,
        laws,
        seeds,
        read,
        without_own_laws,
        link,
        programs,
        external,
    };
    let reading = reading::read(text, file, asked)?;
    match rows {
        Some(rows) => plan_of_rows(text.py(), &reading, rows, gains),
        None => plan_of_all(text.py(), &reading),
    }
}

/// The answer of Python for a law with automatic gains: its parameters, and a line that describes
/// them.
type Made<'py> = (Vec<(String, Bound<'py, PyAny>)>, String);

/// Returns every point of a scenario as a plan, with the numbers of laws with automatic gains.
/// Points with the same link and load share a design.
fn plan_of_all(py: Python, reading: &Reading) -> PyResult<Plan> {
    let shares = shares(py, reading)?;
    let points = reading.points(&shares).map_err(files::refused)?;
    // Each request once, with the points that have it.
    let mut requests: Vec<(forebay_scenario::GainsRequest, Vec<usize>)> = Vec::new();
    for (point, settings) in points.iter().enumerate() {
        let found = reading.gains_requests_of(settings);
        for request in found.map_err(files::refused)? {
            match requests.iter_mut().find(|(known, _)| *known == request) {
                Some((_, at)) => at.push(point),
                None => requests.push((request, vec![point])),
            }
        }
    }
    let mut gains: Vec<Vec<DesignedGains>> = vec![Vec::new(); points.len()];
    let mut designed = Vec::new();
    if !requests.is_empty() {
        let asked = requests.iter();
        let asked = asked.map(|(request, _)| GainsRequest::of(py, request.clone()));
        let asked: Vec<GainsRequest> = asked.collect::<PyResult<_>>()?;
        let made = py.import(GAINS)?.call_method1("designed", (asked,))?;
        let made: Vec<Made> = made.extract()?;
        for ((request, at), (params, line)) in requests.into_iter().zip(made) {
            let params = read_params(params)?;
            for point in &at {
                let (law, params) = (request.law, params.clone());
                gains[*point].push(DesignedGains { law, params });
            }
            designed.push(Designed {
                law: request.law,
                label: request.label,
                params: values(py, &params)?,
                line,
                points: at,
            });
        }
    }
    // By law, and within a law in the order of the points.
    designed.sort_by_key(|one| one.law);
    let experiment = reading.experiment(&points, |point| &gains[point]);
    let experiment = experiment.map_err(files::refused)?;
    Plan::of(py, reading, experiment, gains, designed)
}

/// Returns the points of these rows as a plan, with the numbers of each.
pub fn plan_of_rows(
    py: Python,
    reading: &Reading,
    rows: Vec<Row>,
    gains: Vec<PointGains>,
) -> PyResult<Plan> {
    let points = read_rows(reading, rows)?;
    let of_law = |(law, params)| {
        let params = read_params(params)?;
        Ok(DesignedGains { law, params })
    };
    let gains: Vec<Vec<DesignedGains>> = gains
        .into_iter()
        .map(|point| point.into_iter().map(of_law).collect())
        .collect::<PyResult<_>>()?;
    let none: &[DesignedGains] = &[];
    let experiment = reading.experiment(&points, |point| gains.get(point).map_or(none, |it| it));
    let experiment = experiment.map_err(files::refused)?;
    Plan::of(py, reading, experiment, gains, Vec::new())
}

/// The runs of every law at every point with every seed. A plan that Python makes describes real
/// traffic, and cannot be started.
#[pyclass(frozen, module = "forebay._native")]
pub struct Plan {
    #[pyo3(get)]
    title: String,
    #[pyo3(get)]
    source: String,
    /// Labels, the same at every point.
    #[pyo3(get)]
    laws: Vec<String>,
    #[pyo3(get)]
    seeds: Vec<u64>,
    /// A PointInfo each.
    #[pyo3(get)]
    points: Py<PyTuple>,
    /// A `Designed` for each law with automatic gains, and for each link and load for which it was
    /// designed.
    #[pyo3(get)]
    designed: Py<PyTuple>,
    /// Name in errors.
    file: String,
    read: Option<Read>,
}

/// The inputs from which a plan was read, and the experiment that they gave.
pub struct Read {
    pub experiment: Experiment,
    pub inputs: Inputs,
    /// By point: gains that were designed.
    pub gains: Vec<Vec<DesignedGains>>,
}

impl Plan {
    /// Creates the plan of an experiment that was read, with its designed gains.
    pub fn of(
        py: Python,
        reading: &Reading,
        experiment: Experiment,
        gains: Vec<Vec<DesignedGains>>,
        designed: Vec<Designed>,
    ) -> PyResult<Plan> {
        let points = experiment.points.iter();
        let points: PyResult<Vec<_>> = points
            .map(|point| Py::new(py, PointInfo::of(py, point)?))
            .collect();
        Ok(Plan {
            title: experiment.title.clone(),
            source: experiment.source.clone(),
            laws: experiment.laws.clone(),
            seeds: experiment.seeds.clone(),
            points: PyTuple::new(py, points?)?.unbind(),
            designed: PyTuple::new(py, designed)?.unbind(),
            file: reading.file().to_owned(),
            read: Some(Read {
                experiment,
                inputs: reading.inputs(),
                gains,
            }),
        })
    }

    /// Returns the inputs and the experiment of the plan.
    ///
    /// # Errors
    /// The plan describes real traffic, which cannot be run.
    pub fn read(&self) -> PyResult<&Read> {
        let none = || PyRuntimeError::new_err("real traffic has nothing to run");
        self.read.as_ref().ok_or_else(none)
    }

    /// Returns the kernel's settings at each point.
    fn kernels(&self) -> impl Iterator<Item = &KernelSettings> {
        let points = self.read.iter().flat_map(|read| &read.experiment.points);
        points.map(|point| &point.scenario.kernel)
    }

    fn experiment(&self) -> PyResult<&Experiment> {
        Ok(&self.read()?.experiment)
    }

    /// Starts jobs in background threads.
    fn batch(&self, jobs: Vec<(Key, Job)>, threads: usize, samples: bool) -> PyResult<PyBatch> {
        let experiment = self.experiment()?;
        let (keys, jobs) = jobs.into_iter().unzip();
        let mut laws = experiment.points.iter().flat_map(|point| &point.laws);
        let batch = match laws.any(|law| law.spec.is_custom()) {
            // Python makes a state for a thread at its first call; the state lives as long as this
            // value.
            true => Batch::start_within(jobs, threads, |run| {
                Python::attach(|py| py.detach(run));
            }),
            false => Batch::start(jobs, threads),
        };
        let batch = batch.map_err(PyRuntimeError::new_err)?;
        Ok(PyBatch {
            batch,
            keys,
            samples,
        })
    }
}

#[pymethods]
impl Plan {
    #[new]
    fn new(
        py: Python,
        title: String,
        source: String,
        laws: Vec<String>,
        seeds: Vec<u64>,
        points: Py<PyTuple>,
    ) -> Plan {
        Plan {
            title,
            source,
            laws,
            seeds,
            points,
            designed: PyTuple::empty(py).unbind(),
            file: String::new(),
            read: None,
        }
    }

    /// Returns the keys of the table `[kernel]` that are set.
    #[getter]
    fn kernel_keys(&self) -> Vec<&'static str> {
        let any = |says: fn(&KernelSettings) -> bool| self.kernels().any(says);
        let keys = [
            ("tcp", any(|it| it.tcp.is_some())),
            ("offloads", any(|it| it.offloads != Offloads::Off)),
            ("shaper", any(|it| it.shaper != Shaper::Tbf)),
            ("sysctls", any(|it| !it.sysctls.is_empty())),
            ("pcap", any(|it| it.pcap)),
        ];
        let said = keys.into_iter().filter(|(_, says)| *says);
        said.map(|(key, _)| key).collect()
    }

    /// Returns true if the packets of the bottleneck are to be kept.
    #[getter]
    fn keeps_packets(&self) -> bool {
        self.kernels().any(|kernel| kernel.pcap)
    }

    /// Returns everything but the seed on which the runs at a point depend: a text for the point,
    /// and one for each law; None for a prototype, whose behaviour no text describes.
    fn resolved(&self, point: usize) -> PyResult<(String, Vec<Option<String>>)> {
        let point = self
            .experiment()?
            .points
            .get(point)
            .ok_or_else(|| PyIndexError::new_err("point"))?;
        let laws = point.laws.iter();
        let laws = laws.map(|law| (!law.spec.is_custom()).then(|| law.resolved()));
        Ok((point.scenario.resolved(), laws.collect()))
    }

    /// Returns the times in s at which the flows of a traffic start at a point, as the simulator
    /// draws them for this seed.
    fn starts_s(&self, point: usize, traffic: usize, seed: u64) -> PyResult<Vec<f64>> {
        let points = &self.experiment()?.points;
        let one = points
            .get(point)
            .and_then(|point| point.scenario.traffic.get(traffic))
            .ok_or_else(|| PyIndexError::new_err("no such traffic"))?;
        let starts = starts(seed, traffic, one);
        Ok(starts.into_iter().map(Time::as_secs_f64).collect())
    }

    /// Starts every run in background threads, and returns at once. Without `samples`, runs
    /// keep only their metrics. `only` leaves out all but these (point, law, seed), the first
    /// two as indices.
    #[pyo3(signature = (threads, *, samples=true, only=None))]
    fn start(
        &self,
        threads: usize,
        samples: bool,
        only: Option<HashSet<(usize, usize, u64)>>,
    ) -> PyResult<PyBatch> {
        let jobs = jobs(self.experiment()?, wanted(only.as_ref()));
        self.batch(jobs, threads, samples)
    }

    /// Starts every run by the fluid model, like `start`. `step` is a time, or "auto"; with
    /// `sawtooth`, windows are described more closely than by the published equations.
    ///
    /// Raises ScenarioError for what the fluid cannot express.
    #[pyo3(signature = (threads, *, sawtooth=false, step="auto", samples=true, only=None))]
    fn start_fluid(
        &self,
        threads: usize,
        sawtooth: bool,
        step: &str,
        samples: bool,
        only: Option<HashSet<(usize, usize, u64)>>,
    ) -> PyResult<PyBatch> {
        let step = fluid_step(step)?;
        let only = wanted(only.as_ref());
        let jobs = fluid_jobs(self.experiment()?, windows(sawtooth), step, only);
        let jobs = jobs.map_err(|error| refused(&self.file, &error))?;
        self.batch(jobs, threads, samples)
    }

    /// Raises ScenarioError for what the fluid cannot express, of any law at any point.
    #[pyo3(signature = (*, sawtooth=false, step="auto"))]
    fn check_fluid(&self, sawtooth: bool, step: &str) -> PyResult<()> {
        let step = fluid_step(step)?;
        for point in &self.experiment()?.points {
            for law in &point.laws {
                from_scenario(&point.scenario, law, windows(sawtooth), step)
                    .map_err(|error| refused(&self.file, &error))?;
            }
        }
        Ok(())
    }

    /// Labels of the classes that the fluid model has at a point, in the order of its columns.
    ///
    /// Raises ScenarioError for what the fluid cannot express.
    fn fluid_classes(&self, point: usize) -> PyResult<Vec<String>> {
        let points = &self.experiment()?.points;
        let point = points
            .get(point)
            .ok_or_else(|| PyIndexError::new_err("no such point"))?;
        let model = from_scenario(&point.scenario, &point.laws[0], windows(false), Step::AUTO);
        Ok(labels(&model.map_err(|error| refused(&self.file, &error))?))
    }

    /// Returns the first point under its first law, with external traffic for the caller.
    fn network(&self, seed: u64) -> PyResult<Network> {
        Network::of(&self.experiment()?.points[0], seed)
    }

    /// Returns one run at the first point, which waits after each sample. Without `set_point` it is
    /// under the first law; with a `set_point`, such as "20p" or "15ms", it is under a law that the
    /// caller steers, whose controller samples the queue every `interval`.
    #[pyo3(signature = (seed, *, set_point=None, interval="10ms"))]
    fn session(&self, seed: u64, set_point: Option<&str>, interval: &str) -> PyResult<Session> {
        let steering = set_point.map(|set_point| Steering::read(set_point, interval));
        Session::of(&self.experiment()?.points[0], seed, steering.transpose()?)
    }
}

/// Returns a filter for the runs that are asked for, or for all runs if none are.
fn wanted(only: Option<&HashSet<(usize, usize, u64)>>) -> impl Fn(&Key) -> bool + '_ {
    move |key| only.is_none_or(|only| only.contains(&(key.point, key.law, key.seed)))
}

fn fluid_step(text: &str) -> PyResult<Step> {
    quantity("step", text, Step::parse).map_err(|error| refused("--step", &error))
}
