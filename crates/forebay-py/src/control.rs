//! Linear models, operating points and design rules as Python values.

use std::sync::Arc;

use forebay_aqm::{ConfiguredLaw, LawSpec};
use forebay_scenario::law_named;
use forebay_theory::averaging;
use forebay_theory::design::{Design, DesignRequest};
use forebay_theory::equilibrium::{Equilibrium, RenoFlows};
use forebay_theory::linear::{self, LoopFilter};
use forebay_theory::self_tuning;
use forebay_units::{Bytes, Packets, ParamError, Rate, SetPoint, Site, Span, Value};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyString};

use crate::laws::{read_setting, text};
use crate::ScenarioError;

/// Parameters by name; texts are read as on the command line.
type Settings<'py> = Vec<(String, Bound<'py, PyAny>)>;

/// An operating point of flows on a link, and TCP and the queue linearised at this point.
#[pyclass(frozen, module = "forebay._native")]
pub struct OperatingPoint(pub linear::OperatingPoint);

#[pymethods]
impl OperatingPoint {
    #[new]
    fn new(flows: f64, rtt_s: f64, capacity_pkts_per_s: f64) -> Self {
        OperatingPoint(linear::OperatingPoint::of_flows(
            flows,
            rtt_s,
            capacity_pkts_per_s,
        ))
    }
    /// N.
    #[getter]
    fn flows(&self) -> f64 {
        self.0.flows()
    }
    /// R, with queueing delay.
    #[getter]
    fn rtt_s(&self) -> f64 {
        self.0.rtt_s
    }
    /// C.
    #[getter]
    fn capacity_pkts_per_s(&self) -> f64 {
        self.0.capacity_pkts_per_s
    }
    /// W0 = RC/N.
    #[getter]
    fn window_pkts(&self) -> f64 {
        self.0.window_pkts()
    }
    /// p0 = 2/W0².
    #[getter]
    fn probability(&self) -> f64 {
        self.0.probability()
    }
    /// 2N/(R²C), in rad/s.
    #[getter]
    fn tcp_pole(&self) -> f64 {
        self.0.tcp_pole()
    }
    /// 1/R, in rad/s.
    #[getter]
    fn queue_pole(&self) -> f64 {
        self.0.queue_pole()
    }
    /// C²/(2N).
    #[getter]
    fn plant_gain(&self) -> f64 {
        self.0.plant_gain()
    }
    /// (RC)³/(2N)², in packets.
    #[getter]
    fn gain_at_rest(&self) -> f64 {
        self.0.gain_at_rest()
    }
    fn __repr__(&self) -> String {
        format!(
            "OperatingPoint(flows={}, rtt_s={}, capacity_pkts_per_s={})",
            self.0.flows(),
            self.0.rtt_s,
            self.0.capacity_pkts_per_s
        )
    }
}

/// A law with parameters, on a link.
#[pyclass(frozen, module = "forebay._native")]
pub struct LawModel {
    pub spec: &'static LawSpec,
    pub law: Arc<dyn ConfiguredLaw>,
    pub site: Site,
}

#[pymethods]
impl LawModel {
    /// Raises `ScenarioError` where the law or a parameter is wrong, or the link carries nothing.
    #[new]
    fn new(
        kind: &str,
        params: Settings,
        rate_bps: u64,
        packet_bytes: u64,
        buffer_pkts: f64,
    ) -> PyResult<Self> {
        let spec = known(kind)?;
        for (key, size) in [("rate", rate_bps), ("packet", packet_bytes)] {
            if size == 0 {
                return Err(fault(ParamError::new(key, size, "a value above zero")));
            }
        }
        let law = spec.read(&read(params)?).map_err(fault)?;
        let site = Site {
            rate: Rate::from_bps(rate_bps),
            packet: Bytes(packet_bytes),
            buffer_pkts,
        };
        Ok(LawModel { spec, law, site })
    }

    /// C, in packets per second.
    #[getter]
    pub fn capacity_pkts_per_s(&self) -> f64 {
        self.site.rate.packets_per_sec(self.site.packet)
    }

    #[getter]
    fn buffer_pkts(&self) -> f64 {
        self.site.buffer_pkts
    }

    /// Returns the goals of the design rule: [(name, default, doc)].
    #[getter]
    fn goals(&self) -> Vec<(&'static str, String, &'static str)> {
        let goals = self.spec.goals.iter();
        goals
            .map(|goal| (goal.name, text(&(goal.default)()), goal.doc.trim()))
            .collect()
    }

    /// Returns the goal or parameter whose smaller values make a designed loop slower, or None.
    #[getter]
    fn slowed_by(&self) -> Option<&'static str> {
        self.spec.slowed_by
    }

    /// Factor k of a law that couples the probabilities of classic and of L4S flows, or None.
    #[getter]
    fn coupling(&self) -> Option<f64> {
        self.law.theory()?.coupling()
    }

    /// Returns the gains with which the law controls the arrival rate: (utilisation, k_p, k_i,
    /// k_d), or None for a law that acts on the queue.
    #[getter]
    fn rate_control(&self) -> Option<(f64, f64, f64, f64)> {
        let control = self.law.theory()?.rate_control()?;
        Some((control.utilisation, control.k_p, control.k_i, control.k_d))
    }

    /// Returns the equilibrium of flows with this propagation RTT, and the law's model there:
    /// (point, filter), or None if there is no equilibrium; `rest` says why.
    fn operate<'py>(
        &self,
        py: Python<'py>,
        flows: f64,
        propagation_s: f64,
    ) -> PyResult<Option<(OperatingPoint, Bound<'py, PyDict>)>> {
        match self.settle(flows, propagation_s)? {
            Equilibrium::Linear { point, model, .. } => {
                Ok(Some((OperatingPoint(point), filter(py, &model)?)))
            }
            _ => Ok(None),
        }
    }

    /// Returns the kind of equilibrium of flows with this propagation RTT: (kind, queue_pkts,
    /// probability), None for what does not apply. "linear": law and TCP agree. "unmodelled": the
    /// law has no linear model. "empty": the law signals more than the flows need with an empty
    /// queue. "saturated": TCP needs a probability of one or more. "full": the queue would exceed
    /// the buffer. "jump": the law's probability jumps past the one that TCP needs.
    fn rest(
        &self,
        flows: f64,
        propagation_s: f64,
    ) -> PyResult<(&'static str, Option<f64>, Option<f64>)> {
        let found = self.settle(flows, propagation_s)?;
        let (queue_pkts, probability) = place(&found);
        Ok(match found {
            Equilibrium::Linear { model, .. } => ("linear", Some(model.queue_pkts), probability),
            // The buffer overflows before law and TCP agree.
            Equilibrium::Full { .. } => ("full", queue_pkts, None),
            other => (outcome(&other), queue_pkts, probability),
        })
    }

    /// Returns the law's linear model at the equilibrium with this point's probability, or None.
    fn linear<'py>(
        &self,
        py: Python<'py>,
        point: &OperatingPoint,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let found = self.law.linear(&point.0, &self.site);
        let found = found.map_err(fault)?;
        found.map(|model| filter(py, &model)).transpose()
    }

    /// Applies the law's design rule to a point and returns {gains, params, settings, notes}, or
    /// None for a law without a design rule. `target` is the wanted queue, as a number of packets
    /// or a text such as "15ms". `probability` is what the link's flows need; None takes that of
    /// the point. `marked` is True if the flows respond to the share of marks.
    #[pyo3(signature = (point, target, goals, probability = None, *, marked = false))]
    fn design<'py>(
        &self,
        py: Python<'py>,
        point: &OperatingPoint,
        target: Bound<PyAny>,
        goals: Settings,
        probability: Option<f64>,
        marked: bool,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let request = DesignRequest {
            point: point.0,
            probability: probability.unwrap_or_else(|| point.0.probability()),
            marked,
            set_point: set_point(&target)
                .ok_or_else(|| fault(ParamError::new("target", &target, SetPoint::EXPECTED)))?,
            site: self.site,
        };
        let goals = read(goals)?;
        let design = match self.law.theory() {
            Some(law) => law.design(&request, &goals).map_err(fault)?,
            None => None,
        };
        design.map(|design| designed(py, &design)).transpose()
    }

    /// Returns the parameters that the authors of a law without a design rule advise for this link:
    /// [(name, value)].
    fn fitted(&self, rtt_s: f64) -> Vec<(&'static str, String)> {
        let rtt = Span::from_secs_f64(rtt_s);
        let fitted = self.law.fitted(rtt, &self.site);
        fitted
            .iter()
            .map(|(name, value)| (*name, text(value)))
            .collect()
    }
}

/// Returns the kind of an equilibrium as one word.
pub fn outcome(found: &Equilibrium) -> &'static str {
    match found {
        Equilibrium::Linear { .. } => "linear",
        Equilibrium::Unmodelled => "unmodelled",
        Equilibrium::Empty { .. } => "empty",
        Equilibrium::Saturated { .. } => "saturated",
        Equilibrium::Full { .. } => "full",
        Equilibrium::Jump { .. } => "jump",
        Equilibrium::Small { .. } => "small",
    }
}

/// Returns the queue in packets and the probability of an equilibrium, if it has them.
pub fn place(found: &Equilibrium) -> (Option<f64>, Option<f64>) {
    match *found {
        Equilibrium::Linear {
            point, queue_pkts, ..
        } => (Some(queue_pkts), Some(point.probability())),
        Equilibrium::Unmodelled => (None, None),
        Equilibrium::Empty { probability } => (None, Some(probability)),
        Equilibrium::Saturated {
            queue_pkts,
            probability,
        }
        | Equilibrium::Full {
            queue_pkts,
            probability,
        }
        | Equilibrium::Jump {
            queue_pkts,
            probability,
        }
        | Equilibrium::Small {
            queue_pkts,
            probability,
        } => (Some(queue_pkts), Some(probability)),
    }
}

impl LawModel {
    fn settle(&self, flows: f64, propagation_s: f64) -> PyResult<Equilibrium> {
        let flows = RenoFlows {
            flows,
            propagation_s,
            capacity_pkts_per_s: self.capacity_pkts_per_s(),
        };
        self.law.settle(&flows, &self.site).map_err(fault)
    }
}

/// Returns a number of packets, or a text with its unit.
pub fn set_point(value: &Bound<PyAny>) -> Option<SetPoint> {
    if let Ok(text) = value.cast::<PyString>() {
        return SetPoint::parse(text.to_str().ok()?).ok();
    }
    if value.is_instance_of::<PyBool>() {
        return None;
    }
    let packets: f64 = value.extract().ok()?;
    packets.is_finite().then_some(SetPoint::Packets(packets))
}

/// Returns the law of this name.
pub fn known(kind: &str) -> PyResult<&'static LawSpec> {
    law_named(kind).map_err(|expected| fault(ParamError::new("law", format!("{kind:?}"), expected)))
}

/// Converts a parameter error to a `ScenarioError` with its key and the values that the key
/// accepts.
pub fn fault(error: ParamError) -> PyErr {
    let (text, file, line) = (error.to_string(), "", None::<usize>);
    ScenarioError::new_err((text, file, line, error.key, error.expected))
}

fn read(settings: Settings) -> PyResult<Vec<(String, Value)>> {
    let one = |(name, value): (String, Bound<PyAny>)| {
        let value = read_setting(&name, &value).map_err(fault)?;
        Ok((name, value))
    };
    settings.into_iter().map(one).collect()
}

/// Returns the linear model of a law as a dictionary.
pub fn filter<'py>(py: Python<'py>, model: &LoopFilter) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    entry.set_item("queue_pkts", model.queue_pkts)?;
    entry.set_item(
        "average",
        model.average.map(|it| (it.weight, it.interval_s)),
    )?;
    entry.set_item("direct", model.direct)?;
    let sampled = model.sampled.as_ref();
    entry.set_item(
        "sampled",
        sampled.map(|it| (it.interval_s, it.numerator.clone(), it.denominator.clone())),
    )?;
    entry.set_item("one_sided", model.one_sided)?;
    entry.set_item("age_s", model.age_s)?;
    entry.set_item("integrates", model.integrates())?;
    entry.set_item("proportional", model.proportional())?;
    Ok(entry)
}

fn designed<'py>(py: Python<'py>, design: &Design) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    let gains = PyDict::new(py);
    for (name, gain) in &design.gains {
        gains.set_item(name, gain)?;
    }
    entry.set_item("gains", gains)?;
    for (key, values) in [("params", &design.params), ("settings", &design.settings)] {
        let texts = values.iter().map(|(name, value)| (*name, text(value)));
        entry.set_item(key, texts.collect::<Vec<_>>())?;
    }
    entry.set_item("notes", PyList::new(py, &design.notes)?)?;
    Ok(entry)
}

/// Returns a quantity in base units: "time" in seconds, "rate" in bit/s, "size" in bytes, "queue"
/// in packets. Raises `ScenarioError` with what is expected.
#[pyfunction]
pub fn quantity(key: &str, text: &str, kind: &str) -> PyResult<f64> {
    let read = match kind {
        "time" => Span::parse(text).map(Span::as_secs_f64),
        "rate" => Rate::parse(text).map(|rate| rate.as_bps() as f64),
        "size" => Bytes::parse(text).map(|bytes| bytes.0 as f64),
        _ => Packets::parse(text).map(|packets| packets.0),
    };
    read.map_err(|expected| fault(ParamError::new(key, format!("{text:?}"), expected)))
}

/// A number or a quantity such as "15Mbit/s" in its base unit ("s", "bit/s", "B", "p", "%", or
/// empty for a plain number), and that unit; None for another text.
#[pyfunction]
pub fn number_and_unit(text: &str) -> Option<(f64, &'static str)> {
    let (number, name) = forebay_units::number_and_unit(text)?;
    match name {
        "" => Some((number, "")),
        "%" => Some((number, "%")),
        _ => forebay_units::unit(name).map(|(base, size)| (number * size, base)),
    }
}

/// Returns the queue in packets that a set-point such as "50p" or "15ms" means at this link. Raises
/// `ScenarioError` with what is expected.
#[pyfunction]
pub fn set_point_pkts(key: &str, text: &str, rate_bps: u64, packet_bytes: u64) -> PyResult<f64> {
    let read = SetPoint::parse(text)
        .map_err(|expected| fault(ParamError::new(key, format!("{text:?}"), expected)))?;
    Ok(read.pkts(Rate::from_bps(rate_bps), Bytes(packet_bytes)))
}

/// Returns the time constant 1/K_rc, in seconds, above which self-tuning is stable (theorem 1 of
/// the self-tuning paper, `forebay cite staqm`); inf if none is stable.
#[pyfunction]
pub fn critical_load_time_s(beta: f64, rtt_s: f64) -> f64 {
    self_tuning::critical_load_time_s(beta, rtt_s)
}

/// Returns an averaging law designed for a network (appendix D of the self-tuning paper): {omega_g,
/// k_red, l_red, w_q, q_d}.
#[pyfunction]
pub fn averaging_design<'py>(
    py: Python<'py>,
    phase_margin: f64,
    crossover: f64,
    point: &OperatingPoint,
) -> PyResult<Bound<'py, PyDict>> {
    let found = averaging::design(phase_margin, crossover, &point.0);
    let entry = PyDict::new(py);
    entry.set_item("omega_g", found.omega_g)?;
    entry.set_item("k_red", found.k_red)?;
    entry.set_item("l_red", found.l_red)?;
    entry.set_item("w_q", found.w_q)?;
    entry.set_item("q_d", found.q_d_pkts)?;
    Ok(entry)
}

/// Adds the functions and classes of this file to the module.
pub fn register(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_class::<OperatingPoint>()?;
    module.add_class::<LawModel>()?;
    module.add_function(wrap_pyfunction!(quantity, module)?)?;
    module.add_function(wrap_pyfunction!(number_and_unit, module)?)?;
    module.add_function(wrap_pyfunction!(set_point_pkts, module)?)?;
    module.add_function(wrap_pyfunction!(critical_load_time_s, module)?)?;
    module.add_function(wrap_pyfunction!(averaging_design, module)?)
}
