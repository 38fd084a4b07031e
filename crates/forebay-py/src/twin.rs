//! A law in fixed point, as the kernel takes it.

use forebay_scenario::law_named;
use forebay_units::{Bytes, ParamError, Rate, Site};
use pyo3::prelude::*;

use crate::reading::read_params;
use crate::record::record;
use crate::ScenarioError;

record! {
    /// The numbers of a law's header for the kernel.
    LawTwin {
        /// The time between two calls of its clock; None for a law that packets drive.
        interval_ns: Option<u64>,
        /// The constants in the order of the header.
        config: Vec<(String, i64)>,
        /// The initial state; fields that are left out are zero.
        state: Vec<(String, i64)>,
        /// The set-point in packets; None for a law without one.
        target_pkts: Option<f64>,
    }
}

/// Returns a law in fixed point; None where the kernel has no header of it. Raises `ScenarioError`
/// for a parameter that is unknown, does not fit the link, or would saturate.
#[pyfunction]
#[pyo3(signature = (law, params, *, rate_bps, buffer_pkts, packet_bytes))]
pub fn law_twin(
    law: &str,
    params: Vec<(String, Bound<PyAny>)>,
    rate_bps: u64,
    buffer_pkts: f64,
    packet_bytes: u64,
) -> PyResult<Option<LawTwin>> {
    let refused = |error: ParamError| ScenarioError::new_err(format!("{law}: {error}"));
    let not_one = |expected: String| refused(ParamError::new("law", format!("{law:?}"), expected));
    let spec = law_named(law).map_err(not_one)?;
    let site = Site {
        rate: Rate::from_bps(rate_bps),
        buffer_pkts,
        packet: Bytes(packet_bytes),
    };
    let configured = spec.read(&read_params(params)?).map_err(refused)?;
    let twin = configured.twin(&site).map_err(refused)?;
    let named = |fields: Vec<(&str, i64)>| {
        let fields = fields.into_iter();
        fields
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    };
    Ok(twin.map(|twin| LawTwin {
        interval_ns: twin.interval.map(|interval| interval.as_nanos()),
        config: named(twin.config),
        state: named(twin.state),
        target_pkts: configured.set_point().map(|target| site.pkts(target)),
    }))
}

/// Adds the functions and classes of this file to the module.
pub fn register(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_class::<LawTwin>()?;
    module.add_function(wrap_pyfunction!(law_twin, module)?)
}
