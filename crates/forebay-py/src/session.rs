//! A simulation that Python takes further step by step, and whose law it steers.

use std::sync::{Arc, Mutex, PoisonError};

use forebay_core::steered::Helm;
use forebay_core::{Aqm, SetPoint, Site, Span, Time};
use forebay_scenario::{parse, Options, Scenario};
use forebay_sim::Session as Simulation;
use forebay_trace::Metrics;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::batch::Observed;
use crate::control::fault;
use crate::hooks::detached;
use crate::{files, prototype, ScenarioError};

/// What passed at the bottleneck in one step.
#[pyclass(frozen, get_all, module = "forebay._native")]
pub struct Step {
    /// Its end.
    time_s: f64,
    /// At its end, without the packet being sent.
    queue_pkts: u32,
    queue_bytes: u64,
    arrivals: u32,
    /// Of all kinds: by the law, and where the buffer was full.
    drops: u32,
    marks: u32,
    departed_bytes: u64,
    /// What the link could have carried.
    capacity_bits: f64,
    /// In-order bytes that receivers handed to their applications.
    delivered_bytes: u64,
    /// The law's probability at the end; NaN for a law without one.
    p: f64,
}

/// One run of a scenario's first point, which waits after each sample.
#[pyclass(module = "forebay._native")]
pub struct Session {
    /// In a lock for Python, which may share the object between threads.
    simulation: Mutex<Option<Simulation>>,
    over: bool,
    scenario: Arc<Scenario>,
    helm: Option<Helm>,
    label: String,
    target_pkts: Option<f64>,
    now: Time,
    delivered_bytes: u64,
    #[pyo3(get)]
    interval_s: f64,
    #[pyo3(get)]
    duration_s: f64,
    #[pyo3(get)]
    rate_bps: u64,
    #[pyo3(get)]
    packet_bytes: u64,
    /// One of bytes counts as packets of the usual size.
    #[pyo3(get)]
    buffer_pkts: f64,
}

#[pymethods]
impl Session {
    /// Reads a scenario as `plan` does, without its laws: the caller steers one around
    /// `set_point`, "20p" or "15ms", whose controller samples each `interval`. With `law`, that
    /// law runs instead, and cannot be steered.
    #[new]
    #[pyo3(signature = (text, file, seed, *, sets=Vec::new(), set_point="50p", interval="10ms", law=None, read=None))]
    #[allow(
        clippy::too_many_arguments,
        reason = "keywords of a constructor in Python"
    )]
    fn new(
        text: &Bound<PyBytes>,
        file: &str,
        seed: u64,
        sets: Vec<(String, String)>,
        set_point: &str,
        interval: &str,
        law: Option<Bound<PyAny>>,
        read: Option<Bound<PyAny>>,
    ) -> PyResult<Session> {
        let py = text.py();
        let mut options = Options {
            sets,
            ..Options::default()
        };
        let mut brought = Vec::new();
        if let Some(law) = law.as_ref() {
            match law.cast::<PyString>() {
                Ok(name) => options.laws.push(name.to_string()),
                Err(_) => brought.push(law.clone()),
            }
        }
        prototype::add(py, &mut options, text.as_bytes(), file, &brought)?;
        let steered = law.is_none();
        if steered {
            // A scenario needs some law; this one is as good as any, and not run.
            options
                .laws
                .push(forebay_core::laws::baseline().kind.into());
        }
        files::add(&mut options, text.as_bytes(), file, read.as_ref())?;
        let experiment = parse(text.as_bytes(), file, &options).map_err(files::refused)?;
        let point = &experiment.points[0];
        let choice = &point.laws[0];
        let scenario = Arc::new(point.scenario.clone());
        let site = scenario.site();
        let quantity = |key: &str, text: &str, allowed: String| {
            ScenarioError::new_err(format!("{key}: found \"{text}\", allowed: {allowed}"))
        };
        let helm = if steered {
            let set_point = SetPoint::parse(set_point)
                .map_err(|allowed| quantity("target", set_point, allowed))?;
            let span = Span::parse(interval)
                .ok()
                .filter(|span| (Span::from_micros(1)..=Span::from_secs(60)).contains(span))
                .ok_or_else(|| {
                    quantity(
                        "interval",
                        interval,
                        format!("{}, 1us to 60s", Span::ALLOWED),
                    )
                })?;
            Some((Helm::new(set_point, span), set_point))
        } else {
            None
        };
        let (aqm, target_pkts) = match &helm {
            Some((helm, set_point)) => {
                let helm = helm.clone();
                let law = move |site: &Site| Ok(helm.law(site));
                let aqm = Aqm::in_default_queue(Arc::new(law));
                (aqm, Some(site.pkts(*set_point)))
            }
            None => (choice.aqm(), choice.target_pkts(&site)),
        };
        let simulation = Simulation::new(&scenario, &aqm, seed).map_err(fault)?;
        Ok(Session {
            simulation: Mutex::new(Some(simulation)),
            over: false,
            helm: helm.map(|(helm, _)| helm),
            label: choice.label.clone(),
            target_pkts: scenario.target_pkts().or(target_pkts),
            now: Time::ZERO,
            delivered_bytes: 0,
            interval_s: scenario.sample.as_secs_f64(),
            duration_s: scenario.duration.as_secs_f64(),
            rate_bps: scenario.bottleneck.rate.as_bps(),
            packet_bytes: scenario.packet().0,
            buffer_pkts: site.buffer_pkts,
            scenario,
        })
    }

    /// The set-point in packets at the link's first rate; None without one.
    #[getter]
    fn target_pkts(&self) -> Option<f64> {
        self.target_pkts
    }

    /// Whether the run is at its end.
    #[getter]
    fn done(&self) -> bool {
        self.over || self.now + self.scenario.sample > self.end()
    }

    /// Signals every packet with this probability from now on.
    fn hold(&self, probability: f64) -> PyResult<()> {
        if !(0.0..=1.0).contains(&probability) {
            return Err(ScenarioError::new_err(format!(
                "p: found {probability}, allowed: a probability, 0 to 1"
            )));
        }
        self.helm()?.hold(probability);
        Ok(())
    }

    /// Lets a PID controller move the probability from now on: `k_p` per packet, `k_i` per packet
    /// and second, `k_d` in seconds per packet.
    #[pyo3(signature = (k_p, k_i, k_d=0.0))]
    fn control(&self, k_p: f64, k_i: f64, k_d: f64) -> PyResult<()> {
        if ![k_p, k_i, k_d].iter().all(|gain| gain.is_finite()) {
            return Err(ScenarioError::new_err(format!(
                "gains: found {k_p}, {k_i}, {k_d}, allowed: finite numbers"
            )));
        }
        self.helm()?.control(k_p, k_i, k_d);
        Ok(())
    }

    /// Runs until the next sample. Raises `RuntimeError` at the end of the run.
    fn step(&mut self, py: Python) -> PyResult<Step> {
        if self.done() {
            return Err(PyRuntimeError::new_err("the run is at its end"));
        }
        let until = self.now + self.scenario.sample;
        let mut simulation = self.take()?;
        let simulation = detached(
            py,
            || {
                simulation.run_until(until);
                simulation
            },
            &self.label,
        )?;
        self.now = until;
        let delivered = simulation.delivered_bytes();
        let samples = simulation.samples();
        let last = samples.len() - 1;
        let p = samples.probes.iter().find(|(name, _)| *name == "p");
        let step = Step {
            time_s: until.as_secs_f64(),
            queue_pkts: samples.queue_pkts[last],
            queue_bytes: samples.queue_bytes[last],
            arrivals: samples.arrivals[last],
            drops: samples.early_drops[last]
                + samples.forced_drops[last]
                + samples.overflow_drops[last],
            marks: samples.marks[last],
            departed_bytes: samples.departed_bytes[last],
            capacity_bits: samples.capacity_bits[last],
            delivered_bytes: delivered - self.delivered_bytes,
            p: p.map_or(f64::NAN, |(_, column)| column[last]),
        };
        self.delivered_bytes = delivered;
        *self.held() = Some(simulation);
        self.over = false;
        Ok(step)
    }

    /// Runs to the end, and gives the metrics and samples that a run of the same law has.
    fn finish(&mut self, py: Python) -> PyResult<Observed> {
        let mut simulation = self.take()?;
        let end = self.end();
        let trace = detached(
            py,
            || {
                simulation.run_until(end);
                simulation.finish()
            },
            &self.label,
        )?;
        let metrics = Metrics::of(&trace, self.target_pkts);
        Observed::of(py, trace, &metrics, true)
    }
}

impl Session {
    fn end(&self) -> Time {
        Time::ZERO + self.scenario.duration
    }

    fn held(&mut self) -> &mut Option<Simulation> {
        self.simulation
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The simulation, to be put back: where a law in Python fails, the run is over.
    fn take(&mut self) -> PyResult<Simulation> {
        self.over = true;
        let over = || PyRuntimeError::new_err("the run is at its end");
        self.held().take().ok_or_else(over)
    }

    fn helm(&self) -> PyResult<&Helm> {
        let none = || PyRuntimeError::new_err("this run has a law of its own, and is not steered");
        self.helm.as_ref().ok_or_else(none)
    }
}

pub fn register(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_class::<Step>()?;
    module.add_class::<Session>()
}
