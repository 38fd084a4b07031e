//! The Python module `forebay._native`: conversions between the crates and Python, and no logic.
//!
//! `python/forebay/_native.pyi` declares every class and function with its types; the package
//! `python/forebay` is their only user. A `Plan` (`plan.rs`) is an experiment that has been read;
//! its `start` returns a `Batch` (`batch.rs`) of runs in background threads; and each `Run` has an
//! `Observed` for every link, whose columns are numpy arrays. `facts.rs` describes a plan's points,
//! `hooks.rs` and `prototype.rs` let laws be written in Python, `session.rs` and `network.rs` step a
//! simulation, `theory.rs`, `plant.rs` and `control.rs` give linear models and operating points, and
//! `link.rs` and `guest.rs` run real traffic.
//!
//! ```python
//! from forebay import _native
//!
//! plan = _native.plan(text, "scenario.toml")
//! batch = plan.start(threads=2)
//! ```
//!
//! Plain records, which are the same in Rust and in Python, are declared by the macro of
//! `record.rs`. Errors of a scenario become `ScenarioError`, which is declared in Python. Start
//! reading at `plan.rs`.

#![forbid(unsafe_code)]

mod batch;
mod control;
mod facts;
mod files;
mod fluid;
mod guest;
mod hooks;
mod keys;
mod laws;
#[cfg(all(feature = "link", target_os = "linux"))]
mod link;
mod link_options;
mod measures;
mod network;
mod plan;
mod plant;
mod prototype;
mod reading;
mod record;
mod search;
mod senders;
mod session;
mod sweep;
mod tc;
mod theory;
mod twin;

use pyo3::import_exception;
use pyo3::prelude::*;

// The tree of errors is declared in Python, where its other members are raised.
import_exception!(forebay._base.errors, ScenarioError);

/// Returns the JSON Schema of a scenario, for editors.
#[pyfunction]
fn schema() -> String {
    forebay_scenario::schema()
}

#[pymodule]
fn _native(module: &Bound<PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("RESULTS_VERSION", forebay_batch::RESULTS_VERSION)?;
    module.add("ScenarioError", module.py().get_type::<ScenarioError>())?;
    module.add_function(wrap_pyfunction!(laws::laws, module)?)?;
    module.add_function(wrap_pyfunction!(laws::queues, module)?)?;
    module.add_function(wrap_pyfunction!(senders::senders, module)?)?;
    module.add_function(wrap_pyfunction!(schema, module)?)?;
    module.add_function(wrap_pyfunction!(keys::keys, module)?)?;
    module.add_function(wrap_pyfunction!(measures::metrics, module)?)?;
    module.add_function(wrap_pyfunction!(measures::measures, module)?)?;
    module.add_function(wrap_pyfunction!(measures::class_metrics, module)?)?;
    module.add_function(wrap_pyfunction!(measures::traffic_metrics, module)?)?;
    module.add_function(wrap_pyfunction!(measures::measure, module)?)?;
    module.add_function(wrap_pyfunction!(plan::plan, module)?)?;
    module.add_function(wrap_pyfunction!(fluid::fluid_run, module)?)?;
    module.add_function(wrap_pyfunction!(fluid::fluid_halving, module)?)?;
    module.add_class::<fluid::FluidTrace>()?;
    module.add_class::<plan::Plan>()?;
    module.add_class::<sweep::Sweep>()?;
    module.add_class::<batch::PyBatch>()?;
    module.add_class::<batch::Observed>()?;
    module.add_class::<batch::ClassObserved>()?;
    module.add_class::<batch::TrafficObserved>()?;
    module.add_class::<batch::GoodputSeries>()?;
    module.add_class::<batch::Run>()?;
    module.add_class::<batch::Fault>()?;
    facts::register(module)?;
    reading::register(module)?;
    control::register(module)?;
    plant::register(module)?;
    theory::register(module)?;
    twin::register(module)?;
    module.add_function(wrap_pyfunction!(link_options::link_options, module)?)?;
    #[cfg(all(feature = "link", target_os = "linux"))]
    link::register(module)?;
    guest::register(module)?;
    search::register(module)?;
    session::register(module)?;
    network::register(module)?;
    tc::register(module)?;
    module.add_class::<hooks::JudgedPacket>()?;
    module.add_class::<hooks::Queue>()
}
