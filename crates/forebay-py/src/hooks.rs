//! The hooks of a law in Python while it runs: `python/forebay/scenario/python_laws.py` makes the
//! law, and words the errors of hooks.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::Arc;

use forebay_aqm::clock::{self, State, Ticking};
use forebay_aqm::{Ecn, FluidLaw, Law, PacketMeta, QueueView, Signal, Verdict};
use forebay_batch::Control;
use forebay_units::{ParamError, Rng, Span, Stop, Time};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

use crate::ScenarioError;

/// The queue as a prototype sees it, without the packet that is being sent.
#[pyclass(frozen, get_all, module = "forebay")]
pub struct Queue {
    /// Time since the start of the run.
    now_s: f64,
    /// Backlog in packets.
    packets: u32,
    /// Backlog in bytes.
    bytes: u64,
    /// Most packets the queue can hold; None where only bytes bound it.
    limit_packets: Option<u32>,
    /// Rate of the link, as it is now.
    rate_bps: u64,
    /// Time for which the packet at the head has waited; 0 if the queue is empty.
    head_age_s: f64,
    /// Time for which the link has been idle; None while it is busy.
    idle_s: Option<f64>,
}

impl Queue {
    fn of(now: Time, q: &QueueView) -> Queue {
        Queue {
            now_s: now.as_secs_f64(),
            packets: q.packets,
            bytes: q.bytes,
            limit_packets: (q.limit_packets != u32::MAX).then_some(q.limit_packets),
            rate_bps: q.rate.as_bps(),
            head_age_s: q.head_age(now).as_secs_f64(),
            idle_s: q.idle_since.map(|since| now.since(since).as_secs_f64()),
        }
    }
}

#[pymethods]
impl Queue {
    fn __repr__(&self) -> String {
        format!(
            "Queue(now_s={}, packets={}, bytes={}, rate_bps={}, head_age_s={})",
            self.now_s, self.packets, self.bytes, self.rate_bps, self.head_age_s
        )
    }
}

/// An arriving or departing packet as a prototype sees it.
#[pyclass(frozen, get_all, module = "forebay", name = "Packet")]
pub struct JudgedPacket {
    bytes: u32,
    /// Number of its flow.
    flow: u64,
    /// "not-ect", "ect0", "ect1" or "ce" (RFC 3168).
    ecn: &'static str,
    /// True if the packet can be marked; otherwise the verdict "mark" drops it.
    marks: bool,
    /// True if the packet is TCP.
    tcp: bool,
    /// Time for which the packet has waited; 0 on arrival.
    sojourn_s: f64,
}

impl JudgedPacket {
    fn of(p: &PacketMeta) -> JudgedPacket {
        JudgedPacket {
            bytes: p.bytes,
            flow: p.flow,
            ecn: match p.ecn {
                Ecn::NotEct => "not-ect",
                Ecn::Ect0 => "ect0",
                Ecn::Ect1 => "ect1",
                Ecn::Ce => "ce",
            },
            marks: p.signal == Signal::Mark,
            tcp: p.tcp,
            sojourn_s: p.sojourn.as_secs_f64(),
        }
    }
}

#[pymethods]
impl JudgedPacket {
    fn __repr__(&self) -> String {
        format!(
            "Packet(bytes={}, flow={}, ecn={:?}, sojourn_s={})",
            self.bytes, self.flow, self.ecn, self.sojourn_s
        )
    }
}

/// `forebay.scenario.python_laws.Made`.
#[derive(FromPyObject)]
pub struct Made {
    /// Interval in seconds, or a text with a unit; only for a law with the hook `sample`.
    interval: Option<Py<PyAny>>,
    sample: Option<Py<PyAny>>,
    on_enqueue: Option<Py<PyAny>>,
    on_dequeue: Option<Py<PyAny>>,
    seeded: Py<PyAny>,
    /// The function that words an error of a hook.
    blame: Py<PyAny>,
}

/// One object of the class, on its clock.
pub struct PyLaw {
    made: Made,
    /// Time between two samples, and when the next is due.
    clock: Option<(Span, Time)>,
    probability: f64,
    control: Option<Arc<Control>>,
}

impl PyLaw {
    /// Creates the law from an object of its class, with a generator of this seed.
    pub fn new(py: Python, made: Made, seed: u64) -> Result<PyLaw, ParamError> {
        let seeded = made.seeded.call1(py, (seed,));
        seeded.map_err(|error| {
            let reason = format!("the generator cannot be stored ({error})");
            ParamError::stated("rng", reason, "a law with an attribute rng")
        })?;
        let interval = made.interval.as_ref().map(|it| interval(it.bind(py)));
        let interval = interval.transpose()?;
        let control = Control::current();
        if let Some(control) = &control {
            let interrupt = || -> PyResult<Arc<dyn Fn() + Send + Sync>> {
                let module = py.import("forebay.scenario.python_laws")?;
                let interrupt = module.getattr("interrupter")?.call0()?.unbind();
                Ok(Arc::new(move || {
                    // If the hook failed, Python has already reported the error.
                    Python::attach(|py| interrupt.call0(py).map_or((), |_| ()));
                }))
            };
            if let Ok(interrupt) = interrupt() {
                control.on_cancel(interrupt);
            }
        }
        Ok(PyLaw {
            clock: interval.map(|interval| (interval, Time::ZERO + interval)),
            made,
            probability: 0.0,
            control,
        })
    }

    /// Calls a hook and reads its answer, or ends the run.
    #[inline]
    fn ask<T>(
        &self,
        name: &str,
        call: impl FnOnce(Python) -> PyResult<Py<PyAny>>,
        read: impl FnOnce(&Bound<PyAny>) -> Option<T>,
    ) -> T {
        let answer = Python::attach(|py| {
            // The check is made under Python's lock, which a thread that cancels holds: a later
            // check could miss the cancellation.
            if self.control.as_ref().is_some_and(|it| it.cancelled()) {
                return Err(Stop::Cancelled);
            }
            let wrong = |error: Option<PyErr>, value: Option<&Bound<PyAny>>| {
                let interrupt = |it: &PyErr| it.is_instance_of::<PyKeyboardInterrupt>(py);
                if error.as_ref().is_some_and(interrupt) {
                    return Stop::Cancelled;
                }
                let error = error.map(|it| it.into_value(py));
                let words = self.made.blame.call1(py, (name, error, value));
                let words = words.and_then(|words| words.extract::<String>(py));
                match words {
                    Ok(words) => Stop::Fault(words),
                    Err(error) if interrupt(&error) => Stop::Cancelled,
                    Err(error) => Stop::Fault(error.to_string()),
                }
            };
            let value = call(py).map_err(|error| wrong(Some(error), None))?;
            let value = value.bind(py);
            read(value).ok_or_else(|| wrong(None, Some(value)))
        });
        answer.unwrap_or_else(|stop| stop.now())
    }

    fn verdict(&self, name: &str, hook: &Py<PyAny>, q: Queue, p: &PacketMeta) -> Verdict {
        self.ask(
            name,
            |py| hook.call1(py, (q, JudgedPacket::of(p))),
            |value| match value.cast::<PyString>().ok()?.to_str().ok()? {
                "pass" => Some(Verdict::Pass),
                "mark" => Some(Verdict::Signal),
                "drop" => Some(Verdict::Drop),
                _ => None,
            },
        )
    }
}

/// Runs what may call hooks, on this thread. Raises `ScenarioError` where the law `label` is at
/// fault, and Ctrl-C.
pub fn detached<T: Send>(py: Python, run: impl FnOnce() -> T + Send, label: &str) -> PyResult<T> {
    let caught = py.detach(|| catch_unwind(AssertUnwindSafe(run)));
    caught.map_err(|panic| match panic.downcast::<Stop>().map(|stop| *stop) {
        Ok(Stop::Cancelled) => PyKeyboardInterrupt::new_err(()),
        Ok(Stop::Fault(why)) => ScenarioError::new_err(format!("{label}: {why}")),
        Err(panic) => resume_unwind(panic),
    })
}

/// Seconds as a number, or a text with a unit, in the range of `interval` in the built-in laws.
fn interval(value: &Bound<PyAny>) -> Result<Span, ParamError> {
    let text = value.cast::<PyString>().ok();
    let span = if let Some(text) = text {
        text.to_str().ok().and_then(|text| Span::parse(text).ok())
    } else if value.is_instance_of::<PyBool>() {
        None
    } else {
        value.extract().ok().map(Span::from_secs_f64)
    };
    span.filter(|span| (Span::from_micros(1)..=Span::from_secs(60)).contains(span))
        .ok_or_else(|| {
            let written = value
                .repr()
                .map_or_else(|_| "?".into(), |text| text.to_string());
            let expected = format!("a number of seconds or {}, from 1us to 60s", Span::EXPECTED);
            ParamError::new("interval", written, expected)
        })
}

/// Returns a number in [0, 1]; a flag is not a number.
fn probability(value: &Bound<PyAny>) -> Option<f64> {
    if value.is_instance_of::<PyBool>() {
        return None;
    }
    let p = value.extract().ok()?;
    (0.0..=1.0).contains(&p).then_some(p)
}

impl Law for PyLaw {
    fn watches_arrivals(&self) -> bool {
        self.made.on_enqueue.is_some() || self.clock.is_some()
    }

    fn on_enqueue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        match &self.made.on_enqueue {
            Some(hook) => self.verdict("on_enqueue", hook, Queue::of(now, q), p),
            // This follows `Periodic`, so the law draws the same random numbers as a law in Rust.
            None if self.clock.is_some() => Verdict::signal_if(rng.chance(self.probability)),
            None => Verdict::Pass,
        }
    }

    fn watches_departures(&self) -> bool {
        self.made.on_dequeue.is_some()
    }

    fn on_dequeue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, _: &mut Rng) -> Verdict {
        match &self.made.on_dequeue {
            Some(hook) => self.verdict("on_dequeue", hook, Queue::of(now, q), p),
            None => Verdict::Pass,
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.clock.map(|(_, next)| next)
    }

    fn handle_timeout(&mut self, now: Time, q: &QueueView) {
        if let Some((interval, next)) = self.clock {
            self.clock = Some((interval, clock::run(self, next, now, q)));
        }
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        if self.clock.is_some() {
            out("p", self.probability);
        }
    }
}

impl Ticking for PyLaw {
    fn interval(&self) -> Span {
        self.clock.map_or(Span::MAX, |(interval, _)| interval)
    }

    fn tick(&mut self, due: Time, q: &QueueView) {
        if let Some(hook) = &self.made.sample {
            let queue = Queue::of(due, q);
            self.probability = self.ask("sample", |py| hook.call1(py, (queue,)), probability);
        }
    }

    /// Returns None, since the state of a law in Python is not known here.
    fn state(&self) -> Option<State> {
        None
    }

    fn skip(&mut self, _: Time, _: u64, _: &QueueView) {}
}

impl FluidLaw for PyLaw {
    fn intensity(&self, _: &QueueView) -> Option<f64> {
        let by_clock = self.clock.is_some() && self.made.on_enqueue.is_none();
        by_clock.then_some(self.probability)
    }
}
