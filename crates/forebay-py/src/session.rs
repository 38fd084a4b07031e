//! A simulation that Python advances step by step, and whose law Python may steer.

use std::sync::{Arc, Mutex, PoisonError};

use forebay_aqm::{Aqm, Helm};
use forebay_scenario::{Point, Scenario};
use forebay_sim::Session as Simulation;
use forebay_trace::Metrics;
use forebay_units::{ParamError, SetPoint, Site, Span, Time};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::batch::Observed;
use crate::control::fault;
use crate::hooks::detached;

/// The events at the link under test in one step.
#[pyclass(frozen, get_all, module = "forebay._native")]
pub struct Step {
    /// Its end.
    time_s: f64,
    /// The queue at the end of the step, without the packet that is being sent.
    queue_pkts: u32,
    queue_bytes: u64,
    arrivals: u32,
    /// Packets dropped by the law and by the full buffer.
    drops: u32,
    marks: u32,
    departed_bytes: u64,
    /// Bits that the link could have carried.
    capacity_bits: f64,
    /// Bytes that receivers delivered in order to their applications.
    delivered_bytes: u64,
    /// The law's probability at the end; NaN for a law without one.
    p: f64,
}

/// One run of a scenario's first point, which waits after each sample.
#[pyclass(module = "forebay._native")]
pub struct Session {
    /// The simulation, in a lock because Python may share the object between threads.
    simulation: Mutex<Option<Simulation>>,
    over: bool,
    scenario: Arc<Scenario>,
    helm: Option<Helm>,
    label: String,
    target_pkts: Option<f64>,
    /// The number of the link under test.
    tested: usize,
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
    /// A buffer in bytes counts as packets of the usual size.
    #[pyo3(get)]
    buffer_pkts: f64,
}

#[pymethods]
impl Session {
    /// Returns the set-point in packets at the link's first rate; None without one.
    #[getter]
    fn target_pkts(&self) -> Option<f64> {
        self.target_pkts
    }

    /// True if the run has ended.
    #[getter]
    fn done(&self) -> bool {
        self.over || self.now + self.scenario.sample > self.end()
    }

    /// Signals every packet with this probability from now on.
    fn hold(&self, probability: f64) -> PyResult<()> {
        if !(0.0..=1.0).contains(&probability) {
            return Err(fault(ParamError::new(
                "p",
                probability,
                "a probability from 0 to 1",
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
            let gains = format!("{k_p}, {k_i}, {k_d}");
            return Err(fault(ParamError::new("gains", gains, "finite numbers")));
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
        let mut trace = detached(
            py,
            || {
                simulation.run_until(end);
                simulation.finish()
            },
            &self.label,
        )?;
        let metrics = Metrics::of(trace.link(self.tested), self.target_pkts);
        Observed::of(py, &mut trace, self.tested, &metrics, true)
    }
}

/// The way in which Python steers the law of a session.
pub struct Steering {
    set_point: SetPoint,
    interval: Span,
}

impl Steering {
    /// Reads texts such as "50p" and "10ms".
    pub fn read(set_point: &str, interval: &str) -> PyResult<Steering> {
        let refused = |key: &str, text: &str, expected: String| {
            fault(ParamError::new(key, format!("{text:?}"), expected))
        };
        let in_range = |span: &Span| (Span::from_micros(1)..=Span::from_secs(60)).contains(span);
        let span = Span::parse(interval).ok().filter(in_range);
        Ok(Steering {
            set_point: SetPoint::parse(set_point)
                .map_err(|expected| refused("target", set_point, expected))?,
            interval: span.ok_or_else(|| {
                let expected = format!("{}, from 1us to 60s", Span::EXPECTED);
                refused("interval", interval, expected)
            })?,
        })
    }
}

impl Session {
    /// Returns a run at `point`, under the first law or under a law that Python steers.
    pub fn of(point: &Point, seed: u64, steering: Option<Steering>) -> PyResult<Session> {
        let choice = &point.laws[0];
        let scenario = Arc::new(point.scenario.clone());
        let site = scenario.site();
        let helm = steering
            .as_ref()
            .map(|it| Helm::new(it.set_point, it.interval));
        let (aqm, target_pkts) = match (&helm, steering) {
            (Some(helm), Some(Steering { set_point, .. })) => {
                let helm = helm.clone();
                let law = move |site: &Site, _: u64| Ok(helm.law(site));
                let aqm = Aqm::in_default_queue(Arc::new(law));
                (aqm, Some(site.pkts(set_point)))
            }
            _ => (choice.aqm(), choice.target_pkts(&site)),
        };
        let simulation = Simulation::new(&scenario, &aqm, seed).map_err(fault)?;
        Ok(Session {
            simulation: Mutex::new(Some(simulation)),
            over: false,
            helm,
            label: choice.label.clone(),
            target_pkts: scenario.target_pkts().or(target_pkts),
            tested: scenario.tested,
            now: Time::ZERO,
            delivered_bytes: 0,
            interval_s: scenario.sample.as_secs_f64(),
            duration_s: scenario.duration.as_secs_f64(),
            rate_bps: scenario.tested_link().rate.as_bps(),
            packet_bytes: scenario.packet().0,
            buffer_pkts: site.buffer_pkts,
            scenario,
        })
    }

    fn end(&self) -> Time {
        Time::ZERO + self.scenario.duration
    }

    fn held(&mut self) -> &mut Option<Simulation> {
        self.simulation
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the simulation, which the caller puts back unless a law in Python fails and the run is
    /// over.
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

/// Adds the functions and classes of this file to the module.
pub fn register(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_class::<Step>()?;
    module.add_class::<Session>()
}
