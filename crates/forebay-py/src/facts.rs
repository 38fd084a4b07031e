//! What was run, as Python classes: the same for a scenario and for a link of real traffic.
//! Quantities are numbers with their unit in the name.

use forebay_scenario::{
    Change, EcnChoice, Instant, KeyNumber, LawChoice, Link, LinkSetting, Point, RateTrace,
    Scenario, Setting, Traffic, TrafficKind,
};
use forebay_units::{Buffer, SetPoint, Site};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::laws::{value, values};
use crate::record::record;

record! {
    /// One point of the sweep, or a direction of a link of real traffic.
    PointInfo {
        label: String,
        settings: Py<PyDict>,
        duration_s: f64,
        measure_s: (f64, f64),
        sample_s: f64,
        target_pkts: Option<f64>,
        /// The bottleneck first.
        links: Vec<Py<LinkInfo>>,
        laws: Vec<Py<LawInfo>>,
        traffic: Vec<Py<TrafficInfo>>,
        /// The changes during the run, in order of time.
        changes: Vec<Py<ChangeInfo>>,
    }
}

impl PointInfo {
    /// Returns the facts about a point of an experiment.
    pub fn of(py: Python, point: &Point) -> PyResult<PointInfo> {
        let scenario = &point.scenario;
        let site = scenario.site();
        let settings = PyDict::new(py);
        for (key, one) in &point.settings {
            settings.set_item(key, value(py, one)?)?;
        }
        let laws = point.laws.iter();
        let (start, end) = scenario.measure;
        let links = scenario.links.iter();
        let traffic = scenario.traffic.iter();
        let changes = scenario.changes.iter();
        Ok(PointInfo {
            label: point.label.clone(),
            settings: settings.unbind(),
            duration_s: scenario.duration.as_secs_f64(),
            measure_s: (start.as_secs_f64(), end.as_secs_f64()),
            sample_s: scenario.sample.as_secs_f64(),
            target_pkts: scenario.target_pkts(),
            links: links
                .map(|link| Py::new(py, LinkInfo::of(py, link, &scenario.site_of(link))?))
                .collect::<PyResult<_>>()?,
            laws: laws
                .map(|law| Py::new(py, LawInfo::of(py, law, &site)?))
                .collect::<PyResult<_>>()?,
            traffic: traffic
                .map(|traffic| Py::new(py, TrafficInfo::of(py, traffic, scenario)?))
                .collect::<PyResult<_>>()?,
            changes: changes
                .map(|change| Py::new(py, ChangeInfo::of(change)))
                .collect::<PyResult<_>>()?,
        })
    }
}

record! {
    /// A link, and the queue before it.
    LinkInfo {
        name: String,
        /// The node at which the queue is.
        from_node: String,
        to_node: String,
        /// The rate that laws assume.
        rate_bps: u64,
        /// The size of the token bucket: bytes that may leave back to back after a pause.
        burst_bytes: u64,
        /// Mean rate in bit/s of the recorded times at which it sends, and their length in s.
        trace: Option<(u64, f64)>,
        /// Smallest and largest one-way delay of the flows.
        delay_s: (f64, f64),
        /// One of both.
        buffer_pkts: Option<u32>,
        buffer_bytes: Option<u64>,
        ecn: bool,
        /// The link's own law, which it has whichever law is under test; None for the law under
        /// test.
        law: Option<Py<LawInfo>>,
    }
}

impl LinkInfo {
    fn of(py: Python, link: &Link, site: &Site) -> PyResult<LinkInfo> {
        let own = link.law.as_ref();
        let own = own.map(|law| Py::new(py, LawInfo::of(py, law, site)?));
        let (buffer_pkts, buffer_bytes) = buffer(link.buffer);
        let delay_s = link.delay.as_secs_f64();
        Ok(LinkInfo {
            name: link.name.clone(),
            from_node: link.from.clone(),
            to_node: link.to.clone(),
            rate_bps: link.rate.as_bps(),
            burst_bytes: link.burst.0,
            trace: link.trace.as_deref().map(trace),
            delay_s: (delay_s, delay_s),
            buffer_pkts,
            buffer_bytes,
            ecn: link.ecn,
            law: own.transpose()?,
        })
    }
}

/// Returns the mean rate of a rate trace in bit/s, and its length in s.
pub fn trace(trace: &RateTrace) -> (u64, f64) {
    let length_s = f64::from(trace.round_ms()) / 1e3;
    (trace.mean_rate().as_bps(), length_s)
}

/// Returns a buffer's size as (packets, bytes), of which exactly one is present.
pub fn buffer(buffer: Buffer) -> (Option<u32>, Option<u64>) {
    match buffer {
        Buffer::Packets(packets) => (Some(packets), None),
        Buffer::Bytes(bytes) => (None, Some(bytes)),
    }
}

record! {
    /// A law at one point.
    LawInfo {
        label: String,
        /// Name in the registry; None for a prototype.
        kind: Option<String>,
        /// True if the linear model of the law integrates the distance to the set-point.
        integrates: bool,
        title: String,
        source: String,
        /// Every parameter with its value, in the order of its table.
        params: Vec<(String, Py<PyAny>)>,
        target_pkts: Option<f64>,
        /// The set-point if it is a delay, in s; None otherwise.
        target_s: Option<f64>,
        /// The queue that holds the law, as a scenario writes it; None for the default.
        queue: Option<String>,
        /// True if each flow has a queue of its own under the law.
        per_flow: bool,
    }
}

impl LawInfo {
    /// Returns the facts about a law at a point.
    pub fn of(py: Python, choice: &LawChoice, site: &Site) -> PyResult<LawInfo> {
        Ok(LawInfo {
            label: choice.label.clone(),
            kind: (!choice.spec.is_custom()).then(|| choice.spec.kind.to_owned()),
            integrates: choice.law().integrates(),
            title: choice.spec.title.into(),
            source: choice.spec.source.into(),
            params: values(py, &choice.law().values())?,
            target_pkts: choice.target_pkts(site),
            target_s: match choice.set_point() {
                Some(SetPoint::Delay(delay)) => Some(delay.as_secs_f64()),
                _ => None,
            },
            queue: (!choice.queue.is_default()).then(|| choice.queue.to_string()),
            per_flow: choice.queue.is_per_flow(),
        })
    }
}

record! {
    /// A set of like flows.
    TrafficInfo {
        label: String,
        kind: String,
        flows: u32,
        packet_bytes: u64,
        /// Bytes of each packet that goodput does not count.
        header_bytes: u64,
        /// Nodes that the data passes, in order.
        path: Vec<String>,
        rtts_s: Vec<f64>,
        /// Pairs of hosts that the flows share in turn; each takes a round-trip time in turn.
        pairs: Option<u32>,
        access_bps: u64,
        /// Earliest and latest.
        start_s: (f64, f64),
        stop_s: Option<(f64, f64)>,
        /// The scenario's name of the sender; None without congestion control.
        tcp: Option<String>,
        /// "off", "classic" (RFC 3168) or "l4s".
        ecn: String,
        pacing: bool,
        /// Name of the file with the recorded packets; None for other kinds.
        file: Option<String>,
        /// Frames of that file, counted by how they were read, if it is a capture.
        frames: Option<Py<FrameCounts>>,
        /// Programs at both ends, and the files that they need; None and empty for other kinds.
        client: Option<String>,
        server: Option<String>,
        program_files: Vec<String>,
        /// Numbers that belong to the kind, by the scenario's keys with their unit: "on_s".
        numbers: Py<PyDict>,
    }
}

record! {
    /// Frames of a capture, counted by how they were read.
    FrameCounts {
        frames: u64,
        /// Left out: no IP packet in them.
        not_ip: u64,
        /// Left out: too little of them was captured.
        too_short: u64,
        /// Left out: they have no time.
        without_time: u64,
        /// Frames whose length in the IP header exceeds that of their record; the length in the
        /// header is used.
        longer_than_recorded: u64,
    }
}

impl FrameCounts {
    fn of(counts: &forebay_scenario::FrameCounts) -> FrameCounts {
        FrameCounts {
            frames: counts.frames,
            not_ip: counts.not_ip,
            too_short: counts.too_short,
            without_time: counts.without_time,
            longer_than_recorded: counts.longer_than_recorded,
        }
    }
}

impl TrafficInfo {
    fn of(py: Python, traffic: &Traffic, scenario: &Scenario) -> PyResult<TrafficInfo> {
        let tcp = traffic.kind.tcp();
        let numbers = PyDict::new(py);
        for number in traffic.kind.numbers() {
            numbers.set_item(with_unit(&number), number.number)?;
        }
        let nodes = scenario.nodes(traffic).into_iter();
        let program = match &traffic.kind {
            TrafficKind::Program(program) => Some(program),
            _ => None,
        };
        let files = program.into_iter().flat_map(|it| &it.files);
        Ok(TrafficInfo {
            label: traffic.label.clone(),
            kind: traffic.kind.name().to_owned(),
            flows: traffic.flows,
            packet_bytes: traffic.packet.0,
            header_bytes: traffic.header.0,
            path: nodes.map(str::to_owned).collect(),
            rtts_s: traffic.rtts.iter().map(|rtt| rtt.as_secs_f64()).collect(),
            pairs: traffic.pairs,
            access_bps: traffic.access.as_bps(),
            start_s: bounds_s(&traffic.start),
            stop_s: traffic.stop.as_ref().map(bounds_s),
            tcp: tcp.map(|tcp| tcp.sender().name.to_owned()),
            ecn: match traffic.kind.ecn() {
                EcnChoice::Off => "off",
                EcnChoice::Classic => "classic",
                EcnChoice::L4s => "l4s",
            }
            .to_owned(),
            pacing: tcp.is_some_and(|tcp| tcp.pacing),
            file: match &traffic.kind {
                TrafficKind::Arrivals(recorded) => Some(recorded.file.clone()),
                _ => None,
            },
            frames: match &traffic.kind {
                TrafficKind::Arrivals(recorded) if recorded.packets.counts.frames > 0 => {
                    Some(Py::new(py, FrameCounts::of(&recorded.packets.counts))?)
                }
                _ => None,
            },
            client: program.map(|it| it.client.clone()),
            server: program.and_then(|it| it.server.clone()),
            program_files: files.map(|it| it.name.clone()).collect(),
            numbers: numbers.unbind(),
        })
    }
}

fn with_unit(number: &KeyNumber) -> String {
    let unit = match number.unit {
        "s" => "_s",
        "bit/s" => "_bps",
        "B" => "_bytes",
        "p" => "_pkts",
        _ => "",
    };
    format!("{}{unit}", number.name)
}

fn bounds_s(instant: &Instant) -> (f64, f64) {
    let (low, high) = instant.bounds();
    (low.as_secs_f64(), high.as_secs_f64())
}

record! {
    /// A change at one time; fields that are None do not change.
    #[derive(Default)]
    ChangeInfo {
        time_s: f64,
        /// Number of the link, with the bottleneck as 0.
        link: Option<usize>,
        /// Number of the traffic.
        traffic: Option<usize>,
        rate_bps: Option<u64>,
        delay_s: Option<f64>,
        buffer_pkts: Option<u32>,
        buffer_bytes: Option<u64>,
        flows: Option<u32>,
        /// Name of the law, with the parameters that were given for it.
        aqm: Option<String>,
        params: Vec<(String, Py<PyAny>)>,
    }
}

impl ChangeInfo {
    fn of(change: &Change) -> ChangeInfo {
        let at = ChangeInfo {
            time_s: change.at.as_secs_f64(),
            ..ChangeInfo::default()
        };
        match change.what {
            Setting::Flows { traffic, flows } => ChangeInfo {
                traffic: Some(traffic),
                flows: Some(flows),
                ..at
            },
            Setting::Link { link, what } => {
                let mut of_link = ChangeInfo {
                    link: Some(link),
                    ..at
                };
                match what {
                    LinkSetting::Rate(rate) => of_link.rate_bps = Some(rate.as_bps()),
                    LinkSetting::Delay(delay) => of_link.delay_s = Some(delay.as_secs_f64()),
                    LinkSetting::Buffer(size) => {
                        (of_link.buffer_pkts, of_link.buffer_bytes) = buffer(size);
                    }
                }
                of_link
            }
        }
    }
}

/// Adds the functions and classes of this file to the module.
pub fn register(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_class::<PointInfo>()?;
    module.add_class::<LinkInfo>()?;
    module.add_class::<LawInfo>()?;
    module.add_class::<TrafficInfo>()?;
    module.add_class::<FrameCounts>()?;
    module.add_class::<ChangeInfo>()
}
