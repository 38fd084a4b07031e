//! Laws written in Python as entries like those of the registry: `python/forebay/scenario/python_laws.py`
//! finds and describes them, with their parameters.

use std::sync::Arc;

use forebay_aqm::{ConfiguredLaw, Law, LawSpec, ReadLaw};
use forebay_scenario::{prototypes, Options, Own, Text};
use forebay_units::cast::whole_i64;
use forebay_units::{
    in_range, Bytes, Packets, ParamError, ParamSpec, ParamTable, ParamType, ParamValues, Rate,
    SetPoint, Shape, Site, Span, Value,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::files::refused;
use crate::hooks::{Made, PyLaw};
use crate::laws::read_value;
use crate::ScenarioError;

/// `forebay.scenario.python_laws.Described`.
#[derive(FromPyObject)]
struct Described<'py> {
    kind: String,
    label: String,
    source: String,
    params: Vec<Parameter<'py>>,
    /// Attributes of the law that a scenario cannot set, such as its set-point.
    constants: Vec<(String, String)>,
    made: Bound<'py, PyAny>,
}

/// `forebay.scenario.python_laws.Parameter`.
#[derive(FromPyObject)]
struct Parameter<'py> {
    name: String,
    unit: String,
    shape: String,
    /// The default as a scenario writes it; None if the parameter is required.
    default: Option<Bound<'py, PyAny>>,
    low: f64,
    high: f64,
    doc: String,
}

/// The law that Python has described.
struct Prototype {
    params: &'static [ParamSpec],
    constants: Vec<(&'static str, Value)>,
    /// Takes the parameters by their names and gives what [`Made`] reads.
    made: Py<PyAny>,
}

/// Puts into `options` the laws in Python that the scenario or the command line names, loaded by
/// `forebay.scenario.python_laws`; `brought` are classes to run as they are.
pub fn add(
    py: Python,
    options: &mut Options,
    text: &[u8],
    file: &str,
    brought: &[Bound<PyAny>],
) -> PyResult<()> {
    options.brings_laws = !brought.is_empty();
    let wanted = prototypes(text, file, options).map_err(refused)?;
    if wanted.is_empty() && brought.is_empty() {
        return Ok(());
    }
    let module = py.import("forebay.scenario.python_laws")?;
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
            let error = ParamError::new(
                "--law",
                format!("{:?}", law.label),
                "laws with different labels",
            );
            return Err(ScenarioError::new_err(
                error.because("occurs twice").to_string(),
            ));
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
    let read: &'static ReadLaw = Box::leak(Box::new(|given: &ParamValues| law.read(given)));
    let spec = LawSpec::custom(kind, title, source, params, read);
    Ok(Own {
        spec: Box::leak(Box::new(spec)),
        label: described.label,
        runs,
    })
}

fn spec(param: Parameter) -> PyResult<ParamSpec> {
    let fault = |error: ParamError| ScenarioError::new_err(error.to_string());
    let (shape, expected) = match (param.unit.as_str(), param.shape.as_str()) {
        ("s", _) => (Shape::Quantity, Span::EXPECTED),
        ("p", _) => (Shape::Quantity, Packets::EXPECTED),
        ("bit/s", _) => (Shape::Quantity, Rate::EXPECTED),
        ("B", _) => (Shape::Quantity, Bytes::EXPECTED),
        (_, "integer") => (Shape::Integer, i64::EXPECTED),
        (_, "flag") => (Shape::Flag, bool::EXPECTED),
        (_, "text") => (Shape::Text, Text::EXPECTED),
        _ => (Shape::Number, f64::EXPECTED),
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
        expected,
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

/// Returns a value in the base unit: seconds, packets, bit/s or bytes.
fn plain(spec: &ParamSpec, given: &Value) -> Result<Plain, ParamError> {
    fn read<T: ParamType>(
        spec: &ParamSpec,
        given: &Value,
        plain: impl Fn(f64) -> Value,
    ) -> Result<Plain, ParamError> {
        let wrong = |expected| ParamError::new(spec.name, given, expected);
        let value = T::from_value(given).map_err(wrong)?;
        in_range(spec, &value, given)?;
        let base = value.extent().map(|(low, _)| low);
        let value = base.map_or_else(|| value.to_value(), plain);
        Ok(Plain { base, value })
    }
    let whole = |x: f64| Value::Integer(whole_i64(x));
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

impl Prototype {
    fn read(&'static self, given: &ParamValues) -> Result<Arc<dyn ConfiguredLaw>, ParamError> {
        let mut values = Vec::new();
        for spec in self.params {
            let given = given.iter().find(|(name, _)| name == spec.name);
            let value = match given {
                Some((_, value)) => value.clone(),
                None if spec.required => return Err(ParamError::missing(spec.name, spec.expected)),
                None => (spec.default)(),
            };
            plain(spec, &value)?;
            values.push((spec.name, value));
        }
        values.extend(self.constants.iter().cloned());
        let prototype = self;
        Ok(Arc::new(ConfiguredPrototype { prototype, values }))
    }
}

/// A prototype with a value for each parameter, and its constants.
struct ConfiguredPrototype {
    prototype: &'static Prototype,
    values: Vec<(&'static str, Value)>,
}

impl ParamTable for ConfiguredPrototype {
    fn values(&self) -> Vec<(&'static str, Value)> {
        self.values.clone()
    }
}

impl ConfiguredLaw for ConfiguredPrototype {
    fn build(&self, _: &Site, seed: u64) -> Result<Box<dyn Law>, ParamError> {
        Python::attach(|py| {
            let values = PyDict::new(py);
            for spec in self.prototype.params {
                let entry = self.values.iter().find(|(name, _)| *name == spec.name);
                let Some((_, value)) = entry else { continue };
                let Plain { value, .. } = plain(spec, value)?;
                // Neither a name nor such a value can fail to go to Python.
                let _ = crate::laws::value(py, &value).map(|it| values.set_item(spec.name, it));
            }
            let made = self.prototype.made.bind(py).call1((values,));
            let made: Made = made.and_then(|made| made.extract()).map_err(|error| {
                let part = |name| {
                    error
                        .value(py)
                        .getattr(name)
                        .and_then(|it| it.extract::<String>())
                };
                match (part("key"), part("reason"), part("expected")) {
                    (Ok(key), Ok(reason), Ok(expected)) => {
                        ParamError::stated(key, reason, expected)
                    }
                    _ => {
                        let reason = format!("the class cannot be instantiated ({error})");
                        ParamError::stated("kind", reason, "a class without required arguments")
                    }
                }
            })?;
            Ok(Box::new(PyLaw::new(py, made, seed)?) as Box<dyn Law>)
        })
    }

    fn set_point(&self) -> Option<SetPoint> {
        let target = self.values.iter().find(|(name, _)| *name == "target");
        SetPoint::from_value(&target?.1).ok()
    }
}
