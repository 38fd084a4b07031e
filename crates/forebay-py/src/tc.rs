//! A law in its queue as a qdisc of Linux.

use forebay_linux_tc::TcSite;
use forebay_scenario::{law_named, set_value, LawChoice, QueueName};
use forebay_units::{Buffer, Bytes, ParamError, ParamType, QueueSite, Rate};
use pyo3::prelude::*;

use crate::reading::read_params;
use crate::record::record;
use crate::ScenarioError;

record! {
    /// A qdisc of Linux.
    TcWords {
        /// Its kind: "fq_codel".
        qdisc: String,
        /// The qdisc with its words, as after `tc qdisc add dev DEVICE root`.
        text: String,
        /// The parameters that the qdisc rounds: key, requested value, value in the kernel.
        rounded: Vec<(String, String, String)>,
    }
}

#[pyfunction]
#[pyo3(signature = (law, params, *, queue, rate_bps, buffer_pkts, buffer_bytes, packet_bytes, ecn,
                    header_bytes, held))]
#[allow(clippy::too_many_arguments, reason = "keywords in Python")]
/// Returns Linux's qdisc for a law in its queue; None if Linux has none. `queue` is written as in a
/// scenario, and None for the law's default queue; one of the two buffers is given. `header_bytes`
/// are the bytes that tc counts for each packet in addition to `packet_bytes`. `held` is True if
/// the shaper leaves the packet that it is sending in the qdisc, as tbf does. Raises
/// `ScenarioError` for a parameter that the qdisc does not have.
pub fn tc_words(
    law: &str,
    params: Vec<(String, Bound<PyAny>)>,
    queue: Option<&str>,
    rate_bps: u64,
    buffer_pkts: Option<u32>,
    buffer_bytes: Option<u64>,
    packet_bytes: u64,
    ecn: bool,
    header_bytes: u64,
    held: bool,
) -> PyResult<Option<TcWords>> {
    let refused = |error: ParamError| ScenarioError::new_err(format!("{law}: {error}"));
    let not_one = |expected: String| refused(ParamError::new("law", format!("{law:?}"), expected));
    let spec = law_named(law).map_err(not_one)?;
    let queue = queue.map(|text| {
        let value = set_value("queue", text)?;
        let read = QueueName::from_value(&value);
        read.map_err(|expected| ParamError::new("queue", format!("{text:?}"), expected))
    });
    let queue = queue.transpose().map_err(refused)?;
    let buffer = match (buffer_pkts, buffer_bytes) {
        (Some(packets), _) => Buffer::Packets(packets),
        (None, bytes) => Buffer::Bytes(bytes.unwrap_or(u64::MAX)),
    };
    let choice = LawChoice::of(spec, read_params(params)?)
        .and_then(|choice| choice.held_by(queue.map(|queue| queue.0)))
        .map_err(refused)?;
    let site = TcSite {
        queue: QueueSite {
            rate: Rate::from_bps(rate_bps),
            buffer,
            packet: Bytes(packet_bytes),
            ecn,
        },
        header: Bytes(header_bytes),
        in_packet: Bytes(0),
        held,
    };
    let tc = choice.tc(&site).map_err(refused)?;
    Ok(tc.map(|tc| TcWords {
        qdisc: tc.qdisc.to_owned(),
        text: tc.to_string(),
        rounded: tc
            .rounded
            .into_iter()
            .map(|rounded| (rounded.key, rounded.requested, rounded.applied))
            .collect(),
    }))
}

/// Adds the functions and classes of this file to the module.
pub fn register(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_class::<TcWords>()?;
    module.add_function(wrap_pyfunction!(tc_words, module)?)
}
