//! A periodic law written in Python, next to the built-in ones.

use std::sync::Arc;

use forebay_batch::{Build, Control, OwnLaw};
use forebay_core::param::ParamType;
use forebay_core::periodic::{Controller, Periodic, Sample};
use forebay_core::{Aqm, Law, ParamError, SetPoint, Site, Span};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

use crate::facts::LawInfo;
use crate::laws::values;
use crate::ScenarioError;

/// What a prototype sees of its queue.
#[pyclass(frozen, get_all, module = "forebay")]
pub struct Queue {
    /// Backlog in packets, without the one being sent.
    packets: u32,
    /// Backlog in bytes.
    bytes: u64,
    /// Most packets the queue can hold; None where only bytes bound it.
    limit_packets: Option<u32>,
    /// Rate of the link, as it is now.
    rate_bps: u64,
}

#[pymethods]
impl Queue {
    fn __repr__(&self) -> String {
        format!(
            "Queue(packets={}, bytes={}, rate_bps={})",
            self.packets, self.bytes, self.rate_bps
        )
    }
}

/// What makes a law written in Python: a class, or a function that gives an instance, with
/// `interval` and `sample(queue) -> p`, and perhaps `target` (in packets, or a text such as "15ms")
/// and `label`.
pub struct Prototype {
    factory: Py<PyAny>,
    pub label: String,
    interval: Span,
    set_point: Option<SetPoint>,
}

impl Prototype {
    /// Makes one instance to see that it is fit.
    pub fn new(factory: &Bound<PyAny>) -> PyResult<Prototype> {
        let instance = factory.call0().map_err(|error| {
            ScenarioError::new_err(format!(
                "--law: {}: found {error}, allowed: the name of a law, or a class that needs no arguments",
                shown(factory)
            ))
        })?;
        let label = match attribute(&instance, "label", "a text")? {
            Some(label) => label,
            None => instance.get_type().name()?.to_string(),
        };
        if !instance.getattr("sample").is_ok_and(|it| it.is_callable()) {
            return Err(ScenarioError::new_err(format!(
                "--law: {label}.sample: found nothing to call, allowed: a method sample(self, queue) that returns a probability"
            )));
        }
        Ok(Prototype {
            factory: factory.clone().unbind(),
            interval: interval(&instance)?,
            set_point: target(&instance)?,
            label,
        })
    }

    pub fn info(&self, py: Python, site: &Site) -> PyResult<LawInfo> {
        let target = self.set_point.map(|it| ("target", it.to_value()));
        let interval = ("interval", self.interval.to_value());
        let params: Vec<_> = target.into_iter().chain([interval]).collect();
        Ok(LawInfo {
            label: self.label.clone(),
            kind: None,
            integrates: false,
            title: "a prototype in Python".into(),
            source: String::new(),
            params: values(py, &params)?,
            target_pkts: self.set_point.map(|set_point| site.pkts(set_point)),
            queue: None,
        })
    }

    pub fn law(&self, py: Python) -> OwnLaw {
        OwnLaw {
            build: self.build(py),
            set_point: self.set_point,
        }
    }

    fn build(&self, py: Python) -> Build {
        let factory = self.factory.clone_ref(py);
        let factory = Arc::new(factory);
        Arc::new(move |control| {
            let (factory, control) = (Arc::clone(&factory), Arc::clone(control));
            let make = move |_: &Site| {
                Python::attach(|py| {
                    let instance = factory.bind(py).call0()?;
                    let controller = PyController {
                        interval: interval(&instance)?,
                        instance: instance.unbind(),
                        control: Arc::clone(&control),
                        failed: false,
                    };
                    Ok(Box::new(Periodic::new(controller)) as Box<dyn Law>)
                })
                .map_err(|error: PyErr| {
                    control.fail(Python::attach(|py| traceback(py, &error)));
                    ParamError::new("law", "an exception", "a class that needs no arguments")
                })
            };
            Aqm::in_default_queue(Arc::new(make))
        })
    }
}

struct PyController {
    instance: Py<PyAny>,
    interval: Span,
    control: Arc<Control>,
    failed: bool,
}

impl Controller for PyController {
    fn interval(&self) -> Span {
        self.interval
    }

    fn sample(&mut self, s: &Sample) -> f64 {
        let q = s.q;
        // The simulator takes a moment to stop; the first exception is the one to see.
        if self.failed {
            return 0.0;
        }
        Python::attach(|py| {
            let queue = Queue {
                packets: q.packets,
                bytes: q.bytes,
                limit_packets: (q.limit_packets != u32::MAX).then_some(q.limit_packets),
                rate_bps: q.rate.as_bps(),
            };
            let p = self.instance.bind(py).call_method1("sample", (queue,));
            p.and_then(|p| probability(&p)).unwrap_or_else(|error| {
                self.failed = true;
                self.control.fail(traceback(py, &error));
                0.0
            })
        })
    }
}

fn probability(value: &Bound<PyAny>) -> PyResult<f64> {
    value.extract().map_err(|_| {
        PyTypeError::new_err(format!(
            "sample: returned {}, allowed: a number, the probability until the next sample",
            shown(value)
        ))
    })
}

/// An attribute that may be absent, or None.
fn attribute<'py, T>(instance: &Bound<'py, PyAny>, name: &str, allowed: &str) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    match instance.getattr(name) {
        Ok(value) => value
            .extract()
            .map_err(|_| unfit(instance, name, &shown(&value), allowed)),
        Err(_) => Ok(None),
    }
}

/// `target` of an instance: packets as a number, or a text with its unit.
fn target(instance: &Bound<PyAny>) -> PyResult<Option<SetPoint>> {
    match instance.getattr("target") {
        Ok(value) if !value.is_none() => {
            crate::control::set_point(&value).map(Some).ok_or_else(|| {
                let allowed = format!("a number of packets, or {}", SetPoint::ALLOWED);
                unfit(instance, "target", &shown(&value), &allowed)
            })
        }
        _ => Ok(None),
    }
}

/// `interval` of an instance: seconds as a number, or text with a unit.
fn interval(instance: &Bound<PyAny>) -> PyResult<Span> {
    let allowed = format!("seconds as a number, or {}, 1us to 60s", Span::ALLOWED);
    let Ok(value) = instance.getattr("interval") else {
        return Err(unfit(instance, "interval", "nothing", &allowed));
    };
    let span = if let Ok(text) = value.cast::<PyString>() {
        Span::parse(text.to_str()?).ok()
    } else if value.is_instance_of::<PyBool>() {
        None
    } else {
        value.extract().ok().map(Span::from_secs_f64)
    };
    // The range of `interval` in the built-in laws.
    span.filter(|span| (Span::from_micros(1)..=Span::from_secs(60)).contains(span))
        .ok_or_else(|| unfit(instance, "interval", &shown(&value), &allowed))
}

fn unfit(instance: &Bound<PyAny>, name: &str, found: &str, allowed: &str) -> PyErr {
    let class = instance.get_type();
    ScenarioError::new_err(format!(
        "--law: {}.{name}: found {found}, allowed: {allowed}",
        class
            .name()
            .map_or_else(|_| "?".into(), |name| name.to_string())
    ))
}

/// As Python writes it.
fn shown(value: &Bound<PyAny>) -> String {
    value
        .repr()
        .map_or_else(|_| "?".into(), |text| text.to_string())
}

/// As Python prints it.
fn traceback(py: Python, error: &PyErr) -> String {
    let formatted = py
        .import("traceback")
        .and_then(|module| module.call_method1("format_exception", (error,)))
        .and_then(|lines| lines.extract::<Vec<String>>());
    formatted.map_or_else(|_| error.to_string(), |lines| lines.concat())
}
