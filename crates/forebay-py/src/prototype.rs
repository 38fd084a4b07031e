//! A law written in Python, next to the built-in ones: `python/forebay/run/prototypes.py` says what
//! its class has, makes the law of a run, and words what is wrong.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::Arc;

use forebay_batch::Control;
use forebay_core::law::ParamValues;
use forebay_core::param::{in_range, ParamType, Shape};
use forebay_core::{
    Bytes, Ecn, Law, LawSpec, OwnLaw, PacketMeta, Packets, ParamError, ParamSpec, QueueView, Rate,
    Rng, Site, Span, Stop, Time, Value, Verdict,
};
use forebay_scenario::{prototypes, Options, Own, Text};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};

use crate::files::refused;
use crate::laws::read_value;
use crate::ScenarioError;

/// What a prototype sees of its queue; the packet being sent is not in it.
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
    /// How long the packet at the head has waited; 0 where there is none.
    head_age_s: f64,
    /// How long the link has had nothing to send; None while it is busy.
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

/// What a prototype sees of a packet that comes or leaves.
#[pyclass(frozen, get_all, module = "forebay")]
pub struct Packet {
    bytes: u32,
    /// Number of its flow.
    flow: u64,
    /// "not-ect", "ect0", "ect1" or "ce" (RFC 3168).
    ecn: &'static str,
    /// Whether a mark can reach it; otherwise the verdict "mark" drops it.
    marks: bool,
    /// Whether TCP carries it.
    tcp: bool,
    /// How long it has waited; 0 on arrival.
    sojourn_s: f64,
}

impl Packet {
    fn of(p: &PacketMeta) -> Packet {
        Packet {
            bytes: p.bytes,
            flow: p.flow,
            ecn: match p.ecn {
                Ecn::NotEct => "not-ect",
                Ecn::Ect0 => "ect0",
                Ecn::Ect1 => "ect1",
                Ecn::Ce => "ce",
            },
            marks: p.signal == forebay_core::Signal::Mark,
            tcp: p.tcp,
            sojourn_s: p.sojourn.as_secs_f64(),
        }
    }
}

#[pymethods]
impl Packet {
    fn __repr__(&self) -> String {
        format!(
            "Packet(bytes={}, flow={}, ecn={:?}, sojourn_s={})",
            self.bytes, self.flow, self.ecn, self.sojourn_s
        )
    }
}

/// `forebay.run.prototypes.Described`.
#[derive(FromPyObject)]
struct Described<'py> {
    kind: String,
    label: String,
    source: String,
    params: Vec<Parameter<'py>>,
    /// What it has that a scenario cannot set, such as its set-point.
    constants: Vec<(String, String)>,
    made: Bound<'py, PyAny>,
}

/// `forebay.run.prototypes.Parameter`.
#[derive(FromPyObject)]
struct Parameter<'py> {
    name: String,
    unit: String,
    shape: String,
    /// As a scenario writes it; None where it must be given.
    default: Option<Bound<'py, PyAny>>,
    low: f64,
    high: f64,
    doc: String,
}

/// The law that Python has described.
struct Prototype {
    params: &'static [ParamSpec],
    constants: Vec<(&'static str, Value)>,
    /// Takes the parameters by their names and gives `Made`.
    made: Py<PyAny>,
}

/// `forebay.run.prototypes.Made`.
#[derive(FromPyObject)]
struct Made {
    /// Seconds, or a text with a unit; only beside `sample`.
    interval: Option<Py<PyAny>>,
    sample: Option<Py<PyAny>>,
    on_enqueue: Option<Py<PyAny>>,
    on_dequeue: Option<Py<PyAny>>,
    seeded: Py<PyAny>,
    /// Words for what is wrong with a hook.
    blame: Py<PyAny>,
}

/// Puts into `options` the laws in Python that the scenario or the command line names, loaded by
/// `forebay.run.prototypes`; `brought` are classes to run as they are.
pub fn add(
    py: Python,
    options: &mut Options,
    text: &[u8],
    file: &str,
    brought: &[Bound<PyAny>],
) -> PyResult<()> {
    let wanted = prototypes(text, file, options).map_err(refused)?;
    if wanted.is_empty() && brought.is_empty() {
        return Ok(());
    }
    let module = py.import("forebay.run.prototypes")?;
    for (kind, in_file) in wanted {
        let scenario = in_file.then_some(file);
        let described = module.call_method1("named", (&kind, scenario))?;
        options.own.push(own(described.extract()?, false)?);
    }
    for class in brought {
        let law = own(module.call_method1("brought", (class,))?.extract()?, true)?;
        if options
            .own
            .iter()
            .any(|one| one.runs && one.label == law.label)
        {
            return Err(ScenarioError::new_err(format!(
                "--law: {}: found twice, allowed: laws with different labels",
                law.label
            )));
        }
        options.own.push(law);
    }
    Ok(())
}

/// An entry like one of the registry. It lives as long as the process, as those do: a few hundred
/// bytes for each class that was run.
fn own(described: Described, runs: bool) -> PyResult<Own> {
    let keep = |text: String| -> &'static str { text.leak() };
    let params = described.params.into_iter().map(spec);
    let params: &'static [ParamSpec] = params.collect::<PyResult<Vec<_>>>()?.leak();
    let constants = described.constants.into_iter();
    let law: &'static Prototype = Box::leak(Box::new(Prototype {
        params,
        constants: constants
            .map(|(name, text)| (keep(name), Value::Text(text)))
            .collect(),
        made: described.made.unbind(),
    }));
    let kind = keep(described.kind);
    let (title, source) = ("a prototype in Python", keep(described.source));
    let spec = LawSpec::own(kind, title, source, params, law);
    Ok(Own {
        spec: Box::leak(Box::new(spec)),
        label: described.label,
        runs,
    })
}

fn spec(param: Parameter) -> PyResult<ParamSpec> {
    let fault = |error: ParamError| ScenarioError::new_err(error.to_string());
    let (shape, allowed) = match (param.unit.as_str(), param.shape.as_str()) {
        ("s", _) => (Shape::Quantity, Span::ALLOWED),
        ("p", _) => (Shape::Quantity, Packets::ALLOWED),
        ("bit/s", _) => (Shape::Quantity, Rate::ALLOWED),
        ("B", _) => (Shape::Quantity, Bytes::ALLOWED),
        (_, "integer") => (Shape::Integer, i64::ALLOWED),
        (_, "flag") => (Shape::Flag, bool::ALLOWED),
        (_, "text") => (Shape::Text, Text::ALLOWED),
        _ => (Shape::Number, f64::ALLOWED),
    };
    let default = param
        .default
        .as_ref()
        .map(read_value)
        .transpose()
        .map_err(fault)?;
    let mut spec = ParamSpec {
        name: param.name.leak(),
        unit: param.unit.leak(),
        shape,
        allowed,
        default: &|| Value::Text(String::new()),
        default_base: &|| None,
        required: default.is_none(),
        min: param.low,
        max: param.high,
        doc: param.doc.leak(),
    };
    if let Some(default) = default {
        let Plain { base, .. } = plain(&spec, &default).map_err(fault)?;
        spec.default = Box::leak(Box::new(move || default.clone()));
        spec.default_base = Box::leak(Box::new(move || base));
    }
    Ok(spec)
}

/// A parameter's value as Python gets it.
struct Plain {
    base: Option<f64>,
    value: Value,
}

/// In the base unit: seconds, packets, bit/s or bytes.
fn plain(spec: &ParamSpec, given: &Value) -> Result<Plain, ParamError> {
    fn read<T: ParamType>(
        spec: &ParamSpec,
        given: &Value,
        plain: impl Fn(f64) -> Value,
    ) -> Result<Plain, ParamError> {
        let wrong = |allowed| ParamError::new(spec.name, given, allowed);
        let value = T::from_value(given).map_err(wrong)?;
        in_range(spec, &value, given)?;
        let base = value.extent().map(|(low, _)| low);
        let value = base.map_or_else(|| value.to_value(), plain);
        Ok(Plain { base, value })
    }
    let whole = |x: f64| Value::Integer(x as i64);
    match (spec.unit, spec.shape) {
        ("s", _) => read::<Span>(spec, given, Value::Number),
        ("p", _) => read::<Packets>(spec, given, Value::Number),
        ("bit/s", _) => read::<Rate>(spec, given, whole),
        ("B", _) => read::<Bytes>(spec, given, whole),
        (_, Shape::Integer) => read::<i64>(spec, given, whole),
        (_, Shape::Flag) => read::<bool>(spec, given, Value::Number),
        (_, Shape::Text) => read::<Text>(spec, given, Value::Number),
        _ => read::<f64>(spec, given, Value::Number),
    }
}

impl OwnLaw for Prototype {
    fn build(&self, given: &ParamValues, _: &Site) -> Result<Box<dyn Law>, ParamError> {
        let resolved = self.resolve(given)?;
        Python::attach(|py| {
            let values = PyDict::new(py);
            for spec in self.params {
                let found = resolved.iter().find(|(name, _)| *name == spec.name);
                let Some((_, value)) = found else { continue };
                let Plain { value, .. } = plain(spec, value)?;
                // Neither a name nor such a value can fail to go to Python.
                let _ = crate::laws::value(py, &value).map(|it| values.set_item(spec.name, it));
            }
            let made = self.made.bind(py).call1((values,));
            let made: Made = made.and_then(|made| Ok(made.extract()?)).map_err(|error| {
                let part = |name| error.value(py).getattr(name).and_then(|it| it.extract());
                match (part("key"), part("found"), part("allowed")) {
                    (Ok(key), Ok(found), Ok(allowed)) => ParamError {
                        key,
                        found,
                        allowed,
                    },
                    _ => ParamError::new("kind", error, "a class that can be made"),
                }
            })?;
            Ok(Box::new(PyLaw::new(py, made)?) as Box<dyn Law>)
        })
    }

    fn resolve(&self, given: &ParamValues) -> Result<Vec<(&'static str, Value)>, ParamError> {
        let mut resolved = Vec::new();
        for spec in self.params {
            let given = given.iter().find(|(name, _)| name == spec.name);
            let value = match given {
                Some((_, value)) => value.clone(),
                None if spec.required => {
                    return Err(ParamError::new(spec.name, "nothing", spec.allowed))
                }
                None => (spec.default)(),
            };
            plain(spec, &value)?;
            resolved.push((spec.name, value));
        }
        resolved.extend(self.constants.iter().cloned());
        Ok(resolved)
    }
}

/// One object of the class, on its clock.
struct PyLaw {
    made: Made,
    /// Time between two samples, and when the next is due.
    clock: Option<(Span, Time)>,
    probability: f64,
    control: Option<Arc<Control>>,
}

impl PyLaw {
    fn new(py: Python, made: Made) -> Result<PyLaw, ParamError> {
        let interval = made.interval.as_ref().map(|it| interval(it.bind(py)));
        let interval = interval.transpose()?;
        let control = Control::current();
        if let Some(control) = &control {
            let interrupt = || -> PyResult<Arc<dyn Fn() + Send + Sync>> {
                let module = py.import("forebay.run.hooks")?;
                let interrupt = module.getattr("interrupter")?.call0()?.unbind();
                Ok(Arc::new(move || {
                    // Python has already said what went wrong with it, if anything did.
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
            // Under Python's lock, which whoever cancels holds: later it would be too late.
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
                let words = words.and_then(|words| Ok(words.extract::<String>(py)?));
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
            |py| hook.call1(py, (q, Packet::of(p))),
            |value| match value.cast::<PyString>().ok()?.to_str().ok()? {
                "pass" => Some(Verdict::Pass),
                "mark" => Some(Verdict::Mark),
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
            let found = value
                .repr()
                .map_or_else(|_| "?".into(), |text| text.to_string());
            let allowed = format!("seconds as a number, or {}, 1us to 60s", Span::ALLOWED);
            ParamError::new("interval", found, allowed)
        })
}

/// A number in [0, 1]; a flag is none.
fn probability(value: &Bound<PyAny>) -> Option<f64> {
    if value.is_instance_of::<PyBool>() {
        return None;
    }
    let p = value.extract().ok()?;
    (0.0..=1.0).contains(&p).then_some(p)
}

impl Law for PyLaw {
    fn seeded(&mut self, seed: u64) {
        let seeded = Python::attach(|py| self.made.seeded.call1(py, (seed,)).map(|_| ()));
        if let Err(error) = seeded {
            Stop::Fault(error.to_string()).now();
        }
    }

    fn on_enqueue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        match &self.made.on_enqueue {
            Some(hook) => self.verdict("on_enqueue", hook, Queue::of(now, q), p),
            // As `Periodic` has it: the same draws as a law in Rust.
            None if self.clock.is_some() => Verdict::mark_if(rng.chance(self.probability)),
            None => Verdict::Pass,
        }
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
        while let (Some((interval, next)), Some(hook)) = (self.clock, &self.made.sample) {
            if next > now {
                break;
            }
            let queue = Queue::of(next, q);
            self.probability = self.ask("sample", |py| hook.call1(py, (queue,)), probability);
            self.clock = Some((interval, next + interval));
        }
    }

    fn intensity(&self, _: &QueueView) -> Option<f64> {
        let by_clock = self.clock.is_some() && self.made.on_enqueue.is_none();
        by_clock.then_some(self.probability)
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        if self.clock.is_some() {
            out("p", self.probability);
        }
    }
}
