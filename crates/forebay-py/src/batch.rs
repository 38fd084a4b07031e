//! A batch of runs as a Python object, and its results.

use std::collections::HashMap;
use std::time::Duration;

use forebay_batch::{Batch, Key, Outcome};
use forebay_trace::{
    ClassMetrics, ClassTrace, GoodputOf, LinkTrace, LinkView, Metrics, QueuedTraffic, RunTrace,
    Samples, TrafficMetrics,
};
use forebay_units::Span;
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::record::record;

/// Runs under way in background threads.
#[pyclass(frozen, name = "Batch", module = "forebay._native")]
pub struct PyBatch {
    pub batch: Batch,
    /// One per job.
    pub keys: Vec<Key>,
    /// True if runs keep their samples, delays and flows.
    pub samples: bool,
}

#[pymethods]
impl PyBatch {
    /// Returns the simulated time that has passed, as a fraction of that of all runs.
    fn progress(&self) -> f64 {
        self.batch.progress()
    }

    /// True if every run has ended.
    #[getter]
    fn done(&self) -> bool {
        self.batch.done()
    }

    /// Remarks on runs for the reader; simulated runs have none.
    #[getter]
    fn remarks(&self) -> HashMap<(usize, usize, u64), Vec<String>> {
        HashMap::new()
    }

    /// Results of runs other than the trace; simulated runs have none.
    #[getter]
    fn extras(&self, py: Python) -> Py<PyDict> {
        PyDict::new(py).unbind()
    }

    /// Returns the text that a progress bar adds: nothing.
    #[getter]
    fn more(&self) -> &'static str {
        ""
    }

    /// Tells the runs under way to end, starts no further run, and interrupts laws in Python. If a
    /// law catches the interruption, this must be called again.
    fn cancel(&self) {
        self.batch.cancel();
    }

    /// Fails each run that has taken longer than `most_s`.
    fn fail_longer_than(&self, most_s: f64) {
        let most = Duration::try_from_secs_f64(most_s).unwrap_or(Duration::MAX);
        self.batch.fail_longer_than(most);
    }

    /// Returns the runs that have ended since the last call: those that finished and those that
    /// failed.
    fn take(&self, py: Python) -> PyResult<(Vec<Py<Run>>, Vec<Fault>)> {
        let (mut runs, mut faults) = (Vec::new(), Vec::new());
        for finished in self.batch.take() {
            let key = self.keys[finished.job];
            match finished.result {
                Ok(outcome) => {
                    let run = Run::of(py, key, outcome, self.samples)?;
                    runs.push(Py::new(py, run)?);
                }
                Err(failure) => faults.push(Fault {
                    point: key.point,
                    law: key.law,
                    seed: key.seed,
                    message: failure.message,
                    of_law: failure.of_law,
                }),
            }
        }
        Ok((runs, faults))
    }
}

record! {
    /// The observations at one link.
    Observed(subclass) {
        /// Name of the link.
        link: String,
        /// Name to value; NaN where a metric does not apply.
        metrics: Py<PyDict>,
        /// Columns by name, all of the same length. For a run that keeps only metrics, the mapping
        /// is empty and the columns below are None, so that Python need not load numpy.
        samples: Py<PyDict>,
        /// Upper end of each bin of the queuing delay, s.
        delay_s: Option<Py<PyArray1<f64>>>,
        /// Packets in each bin.
        delay_packets: Option<Py<PyArray1<u64>>>,
        /// Index into the point's traffic, by flow that crosses the link.
        flow_traffic: Option<Py<PyArray1<u32>>>,
        /// Goodput of each flow over the measurement window.
        flow_goodput_bps: Option<Py<PyArray1<f64>>>,
        /// Classes of the queue; empty if it has none.
        classes: Vec<Py<ClassObserved>>,
        /// The traffic that crosses the link; empty if only one does.
        traffic: Vec<Py<TrafficObserved>>,
        /// Completed transfers, in order of time within each traffic: index into the point's
        /// traffic, packets, and time from the SYN to the last ACK.
        transfer_traffic: Option<Py<PyArray1<u32>>>,
        transfer_packets: Option<Py<PyArray1<u32>>>,
        transfer_s: Option<Py<PyArray1<f64>>>,
        /// Goodput over time of the flows of each traffic.
        goodput: Vec<Py<GoodputSeries>>,
    }
}

record! {
    /// The observations of one class of a queue.
    ClassObserved {
        name: String,
        /// Name to value; NaN where no packet left.
        metrics: Py<PyDict>,
        /// The bins of the delay, like those of `Observed`.
        delay_s: Option<Py<PyArray1<f64>>>,
        delay_packets: Option<Py<PyArray1<u64>>>,
    }
}

record! {
    /// The observations of one traffic at a link.
    TrafficObserved {
        /// Index into the point's traffic.
        traffic: u32,
        /// Name to value; NaN where a metric does not apply.
        metrics: Py<PyDict>,
    }
}

record! {
    /// Goodput over time of the flows of one traffic.
    GoodputSeries {
        /// Index into the point's traffic.
        traffic: u32,
        flows: u32,
        /// The interval of a row: row i covers the time from i to i + 1 intervals.
        interval_s: f64,
        /// The quantiles over the flows, from 0 to 1, one for each column; empty if there is a
        /// column for each flow.
        quantiles: Vec<f64>,
        /// Goodput in bit/s: a column for each quantile, or for each flow.
        columns: Vec<Py<PyArray1<f32>>>,
    }
}

/// One finished run: the observations at its links, and as attributes of its own those at the link
/// under test.
#[pyclass(frozen, extends = Observed, get_all, module = "forebay._native")]
pub struct Run {
    /// Index into the plan's points.
    point: usize,
    /// Index into the plan's laws.
    law: usize,
    seed: u64,
    /// The observations at every link, in the order of the scenario; the link under test is first.
    links: Vec<Py<Observed>>,
}

#[pymethods]
impl Run {
    /// Returns a run with the observations at its links, such as a run from the store. The link
    /// under test is first.
    #[new]
    fn new(
        py: Python,
        point: usize,
        law: usize,
        seed: u64,
        links: Vec<Py<Observed>>,
    ) -> PyResult<PyClassInitializer<Run>> {
        let tested = links
            .first()
            .ok_or_else(|| PyValueError::new_err("a run has a link"))?;
        let tested = tested.get().copy(py);
        let run = Run {
            point,
            law,
            seed,
            links,
        };
        Ok(PyClassInitializer::from(tested).add_subclass(run))
    }
}

/// A run that failed.
#[pyclass(frozen, get_all, module = "forebay._native")]
pub struct Fault {
    point: usize,
    law: usize,
    seed: u64,
    /// The error of the law in Python, or the text of a panic.
    message: String,
    /// True if the law in Python is at fault.
    of_law: bool,
}

#[pymethods]
impl Fault {
    /// Returns the failure of a run of another engine.
    #[new]
    #[pyo3(signature = (point, law, seed, message, *, of_law = false))]
    fn new(point: usize, law: usize, seed: u64, message: String, of_law: bool) -> Fault {
        Fault {
            point,
            law,
            seed,
            message,
            of_law,
        }
    }
}

impl Run {
    /// Converts a finished run. Without `samples`, only metrics are kept.
    pub fn of(
        py: Python,
        key: Key,
        outcome: Outcome,
        samples: bool,
    ) -> PyResult<PyClassInitializer<Run>> {
        let mut trace = outcome.trace;
        let links = outcome.metrics.iter().enumerate().map(|(link, metrics)| {
            let observed = Observed::of(py, &mut trace, link, metrics, samples)?;
            if link == 0 {
                let metrics = observed.metrics.bind(py);
                metrics.set_item("user_cpu_s", outcome.user_cpu_s)?;
            }
            Py::new(py, observed)
        });
        let links = links.collect::<PyResult<_>>()?;
        Run::new(py, key.point, key.law, key.seed, links)
    }
}

impl Observed {
    /// Converts what `trace` has of its link `number`. With `samples`, the columns of samples are
    /// moved out of the trace.
    pub fn of(
        py: Python,
        trace: &mut RunTrace,
        number: usize,
        metrics: &Metrics,
        samples: bool,
    ) -> PyResult<Observed> {
        let link = trace.link(number);
        let table = PyDict::new(py);
        for (name, value) in metrics.fields() {
            table.set_item(name, value)?;
        }
        let mut observed = Observed {
            link: link.name.clone(),
            metrics: table.unbind(),
            samples: PyDict::new(py).unbind(),
            delay_s: None,
            delay_packets: None,
            flow_traffic: None,
            flow_goodput_bps: None,
            classes: ClassObserved::all_of(py, &link, samples)?,
            traffic: TrafficObserved::all_of(py, link)?,
            transfer_traffic: None,
            transfer_packets: None,
            transfer_s: None,
            goodput: Vec::new(),
        };
        if samples {
            observed.keep(py, link)?;
            let columns_of = std::mem::take(&mut trace.links[number].samples);
            let interval = trace.links[number].settings.interval;
            observed.samples = columns(py, interval, columns_of)?.unbind();
        }
        Ok(observed)
    }

    /// Drops the samples and keeps everything else.
    fn keep(&mut self, py: Python, link: LinkView) -> PyResult<()> {
        let (delay_s, delay_packets): (Vec<_>, Vec<_>) = link.delay_bins().unzip();
        let flow_traffic: Vec<_> = link.flows().map(|flow| flow.traffic).collect();
        let flow_goodput_bps: Vec<_> = link.goodputs_bps().collect();
        let transfer_traffic: Vec<_> = link.transfers().map(|it| it.traffic).collect();
        let transfer_packets: Vec<_> = link.transfers().map(|it| it.packets).collect();
        let transfer_s: Vec<_> = link.transfers().map(|it| it.took.as_secs_f64()).collect();
        self.transfer_traffic = Some(transfer_traffic.into_pyarray(py).unbind());
        self.transfer_packets = Some(transfer_packets.into_pyarray(py).unbind());
        self.transfer_s = Some(transfer_s.into_pyarray(py).unbind());
        let interval_s = link.goodput_interval().as_secs_f64();
        self.goodput = link
            .goodput()
            .map(|of| Py::new(py, GoodputSeries::of(py, of, interval_s)))
            .collect::<PyResult<_>>()?;
        self.delay_s = Some(delay_s.into_pyarray(py).unbind());
        self.delay_packets = Some(delay_packets.into_pyarray(py).unbind());
        self.flow_traffic = Some(flow_traffic.into_pyarray(py).unbind());
        self.flow_goodput_bps = Some(flow_goodput_bps.into_pyarray(py).unbind());
        Ok(())
    }

    /// Returns a copy that shares the columns.
    fn copy(&self, py: Python) -> Observed {
        Observed {
            link: self.link.clone(),
            metrics: self.metrics.clone_ref(py),
            samples: self.samples.clone_ref(py),
            delay_s: self.delay_s.as_ref().map(|it| it.clone_ref(py)),
            delay_packets: self.delay_packets.as_ref().map(|it| it.clone_ref(py)),
            flow_traffic: self.flow_traffic.as_ref().map(|it| it.clone_ref(py)),
            flow_goodput_bps: self.flow_goodput_bps.as_ref().map(|it| it.clone_ref(py)),
            classes: self.classes.iter().map(|it| it.clone_ref(py)).collect(),
            traffic: self.traffic.iter().map(|it| it.clone_ref(py)).collect(),
            transfer_traffic: self.transfer_traffic.as_ref().map(|it| it.clone_ref(py)),
            transfer_packets: self.transfer_packets.as_ref().map(|it| it.clone_ref(py)),
            transfer_s: self.transfer_s.as_ref().map(|it| it.clone_ref(py)),
            goodput: self.goodput.iter().map(|it| it.clone_ref(py)).collect(),
        }
    }
}

impl ClassObserved {
    fn all_of(py: Python, link: &LinkTrace, samples: bool) -> PyResult<Vec<Py<ClassObserved>>> {
        let of = |class| Py::new(py, ClassObserved::of(py, class, link, samples)?);
        link.classes.iter().map(of).collect()
    }

    fn of(
        py: Python,
        class: &ClassTrace,
        link: &LinkTrace,
        samples: bool,
    ) -> PyResult<ClassObserved> {
        let metrics = PyDict::new(py);
        for (name, value) in ClassMetrics::of(class, link).fields() {
            metrics.set_item(name, value)?;
        }
        let (delay_s, packets): (Vec<_>, Vec<_>) = class.delay_bins().unzip();
        Ok(ClassObserved {
            name: class.name.to_owned(),
            metrics: metrics.unbind(),
            delay_s: samples.then(|| delay_s.into_pyarray(py).unbind()),
            delay_packets: samples.then(|| packets.into_pyarray(py).unbind()),
        })
    }
}

impl TrafficObserved {
    fn all_of(py: Python, link: LinkView) -> PyResult<Vec<Py<TrafficObserved>>> {
        let of = |traffic: &QueuedTraffic| {
            let metrics = PyDict::new(py);
            for (name, value) in TrafficMetrics::of(traffic, link).fields() {
                metrics.set_item(name, value)?;
            }
            let metrics = metrics.unbind();
            let traffic = traffic.traffic;
            Py::new(py, TrafficObserved { traffic, metrics })
        };
        link.traffic.iter().map(of).collect()
    }
}

impl GoodputSeries {
    fn of(py: Python, of: &GoodputOf, interval_s: f64) -> GoodputSeries {
        let columns = of.columns.iter();
        GoodputSeries {
            traffic: of.traffic,
            flows: of.flows,
            interval_s,
            quantiles: of.quantiles.to_vec(),
            columns: columns
                .map(|it| PyArray1::from_slice(py, it).unbind())
                .collect(),
        }
    }
}

fn columns(py: Python<'_>, interval: Span, samples: Samples) -> PyResult<Bound<'_, PyDict>> {
    let table = PyDict::new(py);
    let time_s: Vec<f64> = (0..samples.len())
        .map(|i| Samples::time(interval, i).as_secs_f64())
        .collect();
    table.set_item("time_s", time_s.into_pyarray(py))?;
    table.set_item("queue_pkts", samples.queue_pkts.into_pyarray(py))?;
    table.set_item("queue_bytes", samples.queue_bytes.into_pyarray(py))?;
    table.set_item("arrivals", samples.arrivals.into_pyarray(py))?;
    table.set_item("early_drops", samples.early_drops.into_pyarray(py))?;
    table.set_item("forced_drops", samples.forced_drops.into_pyarray(py))?;
    table.set_item("overflow_drops", samples.overflow_drops.into_pyarray(py))?;
    table.set_item("marks", samples.marks.into_pyarray(py))?;
    table.set_item("departed_bytes", samples.departed_bytes.into_pyarray(py))?;
    table.set_item("capacity_bits", samples.capacity_bits.into_pyarray(py))?;
    for (name, column) in samples.probes {
        table.set_item(name, column.into_pyarray(py))?;
    }
    Ok(table)
}
