//! A network whose packets Python sends: `forebay.Network` is the loop around it.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use forebay_aqm::{DropReason, Ecn};
use forebay_net::{End, Event, Loss, Payload};
use forebay_scenario::Point;
use forebay_units::{one_of, ParamError, Span, Time};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::batch::Observed;
use crate::control::fault;
use crate::hooks::detached;

/// An object that Python sends, and its length as a packet.
struct Sent {
    payload: Py<PyAny>,
    length: usize,
    /// A copy of a payload of bytes, while a capture is written.
    bytes: Vec<u8>,
}

impl Payload for Sent {
    fn length(&self) -> usize {
        self.length
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A packet that has reached the other end.
#[pyclass(frozen, get_all, module = "forebay._native")]
pub struct Delivered {
    /// The time at which its last byte arrived.
    time_s: f64,
    flow: u32,
    /// The end that it has reached, "source" or "sink".
    end: &'static str,
    /// "ce" where a queue has marked it.
    ecn: &'static str,
    /// The payload as it was sent.
    payload: Py<PyAny>,
}

/// A packet that does not reach the other end.
#[pyclass(frozen, get_all, module = "forebay._native")]
pub struct Lost {
    /// The time at which it was lost.
    time_s: f64,
    flow: u32,
    /// The end that has sent it, "source" or "sink".
    end: &'static str,
    /// "early", "forced", "overflow" or "random".
    why: &'static str,
    /// The payload as it was sent.
    payload: Py<PyAny>,
}

/// A simulated network; the caller sends the packets of its external flows.
#[pyclass(module = "forebay._native")]
pub struct Network {
    /// The network, in a lock because Python may share the object between threads; None while it
    /// runs, and after a law in Python has failed.
    network: Mutex<Option<forebay_net::Network<Sent>>>,
    label: String,
    #[pyo3(get)]
    flows: u32,
    /// The time at which the scenario ends.
    #[pyo3(get)]
    end_s: f64,
    /// True if the scenario has ended.
    #[pyo3(get)]
    over: bool,
}

const ECN: [(&str, Ecn); 4] = [
    ("not-ect", Ecn::NotEct),
    ("ect0", Ecn::Ect0),
    ("ect1", Ecn::Ect1),
    ("ce", Ecn::Ce),
];
const ENDS: [(&str, End); 2] = [("source", End::Source), ("sink", End::Sink)];

fn named<T: Copy>(key: &str, name: &str, all: &[(&str, T)]) -> PyResult<T> {
    let entry = all.iter().find(|(known, _)| *known == name);
    entry.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|(known, _)| *known).collect();
        fault(ParamError::new(
            key,
            format!("{name:?}"),
            one_of(&known, name),
        ))
    })
}

fn name_of<T: PartialEq>(value: &T, all: &[(&'static str, T)]) -> &'static str {
    let found = all.iter().find(|(_, known)| known == value);
    found.map_or("", |(name, _)| *name)
}

fn time(key: &str, time_s: f64) -> PyResult<Time> {
    if time_s >= 0.0 {
        return Ok(Time::ZERO + Span::from_secs_f64(time_s));
    }
    let expected = "a number of seconds of at least 0";
    Err(fault(ParamError::new(key, time_s, expected)))
}

#[pymethods]
impl Network {
    /// Returns the time of the last event, or of the last packet that was sent after that event.
    #[getter]
    fn now_s(&self) -> PyResult<f64> {
        self.with(|network| network.now().as_secs_f64())
    }

    /// Returns the longest payload of a flow, in bytes; 0 where there is no such flow.
    fn most_bytes(&self, flow: u32) -> PyResult<usize> {
        self.with(|network| network.most_bytes(flow))
    }

    /// Sends `payload`, which has `length` bytes, from an end of a flow.
    #[pyo3(signature = (flow, end, payload, length, *, now_s, ecn))]
    fn send(
        &self,
        flow: u32,
        end: &str,
        payload: Bound<PyAny>,
        length: usize,
        now_s: f64,
        ecn: &str,
    ) -> PyResult<()> {
        let (end, ecn) = (named("end", end, &ENDS)?, named("ecn", ecn, &ECN)?);
        let now = time("now_s", now_s)?;
        let bytes = payload.cast::<PyBytes>().ok().map(|it| it.as_bytes());
        let sent = self.with(|network| {
            let kept = bytes.filter(|_| network.is_recording());
            let sent = Sent {
                length,
                bytes: kept.map(Vec::from).unwrap_or_default(),
                payload: payload.clone().unbind(),
            };
            network.send(flow, end, now, sent, ecn)
        });
        sent?.map_err(fault)
    }

    /// Lets time pass until a packet arrives or is lost, or until `until_s`; returns a Delivered, a
    /// Lost or None.
    fn poll<'py>(&mut self, py: Python<'py>, until_s: f64) -> PyResult<Option<Bound<'py, PyAny>>> {
        let until = time("until_s", until_s)?;
        let mut network = self.take()?;
        let (network, event) = detached(
            py,
            || {
                let event = network.poll(until);
                (network, event)
            },
            &self.label,
        )?;
        *self.held() = Some(network);
        Ok(Some(match event {
            Event::Delivered(it) => Bound::new(
                py,
                Delivered {
                    time_s: it.at.as_secs_f64(),
                    flow: it.flow,
                    end: name_of(&it.to, &ENDS),
                    ecn: name_of(&it.ecn, &ECN),
                    payload: it.payload.payload,
                },
            )?
            .into_any(),
            Event::Lost(it) => Bound::new(
                py,
                Lost {
                    time_s: it.at.as_secs_f64(),
                    flow: it.flow,
                    end: name_of(&it.from, &ENDS),
                    why: match it.why {
                        Loss::Queue(DropReason::Early) => "early",
                        Loss::Queue(DropReason::Forced) => "forced",
                        Loss::Queue(DropReason::Overflow) => "overflow",
                        Loss::Random => "random",
                    },
                    payload: it.payload.payload,
                },
            )?
            .into_any(),
            Event::Time(_) => return Ok(None),
            Event::End(_) => {
                self.over = true;
                return Ok(None);
            }
        }))
    }

    /// Records the fate of each of the caller's packets from now on, in these files.
    #[pyo3(signature = (capture=None, events=None))]
    fn record(&self, capture: Option<PathBuf>, events: Option<PathBuf>) -> PyResult<()> {
        let recorded = self.with(|it| it.record(capture.as_deref(), events.as_deref()))?;
        recorded.map_err(PyErr::from)
    }

    /// Runs to the end of the scenario, and gives the metrics and samples that a run has.
    fn finish(&mut self, py: Python) -> PyResult<Observed> {
        let network = self.take()?;
        self.over = true;
        let mut report = detached(py, || network.finish(), &self.label)?;
        report.recording?;
        Observed::of(py, &mut report.trace, report.tested, &report.metrics, true)
    }
}

impl Network {
    /// Returns a point under its first law.
    pub fn of(point: &Point, seed: u64) -> PyResult<Network> {
        let network = forebay_net::Network::of_point(point, seed).map_err(fault)?;
        Ok(Network {
            label: point.laws[0].label.clone(),
            flows: network.flows(),
            end_s: network.end().as_secs_f64(),
            over: false,
            network: Mutex::new(Some(network)),
        })
    }

    fn with<T>(&self, call: impl FnOnce(&mut forebay_net::Network<Sent>) -> T) -> PyResult<T> {
        let mut held = self.network.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_mut().map(call).ok_or_else(over)
    }

    fn held(&mut self) -> &mut Option<forebay_net::Network<Sent>> {
        self.network
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&mut self) -> PyResult<forebay_net::Network<Sent>> {
        self.held().take().ok_or_else(over)
    }
}

fn over() -> PyErr {
    PyRuntimeError::new_err("the network has finished")
}

/// Adds the functions and classes of this file to the module.
pub fn register(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_class::<Delivered>()?;
    module.add_class::<Lost>()?;
    module.add_class::<Network>()
}
