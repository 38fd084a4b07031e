//! `gains = "auto"`: the laws to be designed, and the link and load of each design. The designed
//! numbers are returned by the number of the law; no text is edited.

use forebay_theory::window_law::WindowLaw;
use forebay_units::{Buffer, Value};

use crate::model::{EcnChoice, Link, LinkSetting, Scenario, Setting, Traffic, TrafficKind};
use crate::offered::{offered, Offered};

/// Usual packet size, in bytes, of a scenario in which no traffic has a round trip.
const USUAL_PACKET: u64 = 1500;
/// Round trip of a scenario in which no traffic has one.
const USUAL_RTT_S: f64 = 0.1;
/// Buffer of a scenario in which every queue has a law of its own.
const ROOM_WITHOUT_QUEUE_PKTS: f64 = 1_048_576.0;

/// A law with `gains = "auto"`.
#[derive(Clone, Debug, PartialEq)]
pub struct GainsRequest {
    /// Number of its `[[law]]`; those that only `--law` names come last.
    pub law: usize,
    /// The label of the law.
    pub label: String,
    /// The kind of the law.
    pub kind: &'static str,
    /// Parameters that are given; for a sweep, those of its first point.
    pub given: Vec<(String, Value)>,
    /// True if the law closes one loop for each flow, and not one for all.
    pub per_flow: bool,
    /// The load of the link.
    pub load: Load,
}

/// Designed parameters of a law; parameters that are given stay.
#[derive(Clone, Debug, PartialEq)]
pub struct DesignedGains {
    /// The index of the law, as in [`GainsRequest`].
    pub law: usize,
    /// The designed parameters.
    pub params: Vec<(String, Value)>,
}

/// The bottleneck with its long-lived flows, over every point and every change.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The greatest.
    pub rate_bps: u64,
    /// The largest.
    pub packet_bytes: u64,
    /// Least and most propagation both ways.
    pub rtt_s: (f64, f64),
    /// The smallest buffer, in packets of the usual size at its point.
    pub room_pkts: f64,
    /// Fewest and most long-lived flows; `None` without any.
    pub flows: Option<(f64, f64)>,
    /// The smallest other load in parallel with these flows.
    pub beside: Offered,
    /// The window law of the senders: Reno's if senders differ, or if linear theory has no model of
    /// the sender.
    pub window_law: WindowLaw,
}

impl Load {
    /// Returns the load of these points, of which there must be at least one.
    pub fn of<'a>(points: impl Iterator<Item = &'a Scenario>) -> Load {
        let mut extremes = Extremes::default();
        points.for_each(|point| extremes.add(point));
        let Extremes {
            rates_bps,
            packets,
            rtts_s,
            rooms_pkts,
            flows,
            beside,
            window_laws,
        } = extremes;
        let least = |of: fn(&Offered) -> f64| beside.iter().map(of).reduce(f64::min);
        Load {
            rate_bps: rates_bps.into_iter().max().unwrap_or(1),
            packet_bytes: packets.into_iter().max().unwrap_or(USUAL_PACKET),
            rtt_s: ends(rtts_s).unwrap_or((USUAL_RTT_S, USUAL_RTT_S)),
            room_pkts: ends(rooms_pkts).map_or(ROOM_WITHOUT_QUEUE_PKTS, |(least, _)| least),
            flows: ends(flows),
            beside: Offered {
                short_flows: least(|one| one.short_flows).unwrap_or(0.0),
                bps: least(|one| one.bps).unwrap_or(0.0),
            },
            window_law: match window_laws.as_slice() {
                [Some(one)] => *one,
                _ => WindowLaw::Reno,
            },
        }
    }
}

fn ends(values: Vec<f64>) -> Option<(f64, f64)> {
    let least = values.iter().copied().reduce(f64::min)?;
    let most = values.iter().copied().reduce(f64::max)?;
    Some((least, most))
}

#[derive(Default)]
struct Extremes {
    rates_bps: Vec<u64>,
    packets: Vec<u64>,
    rtts_s: Vec<f64>,
    rooms_pkts: Vec<f64>,
    flows: Vec<f64>,
    beside: Vec<Offered>,
    /// Each once.
    window_laws: Vec<Option<WindowLaw>>,
}

impl Extremes {
    fn add(&mut self, point: &Scenario) {
        let lasting = || point.traffic.iter().filter(|one| lasts(one));
        let usual: Vec<&Traffic> = match lasting().next() {
            Some(_) => lasting().collect(),
            None => {
                let with_rtt = |one: &&Traffic| !one.rtts.is_empty();
                point.traffic.iter().filter(with_rtt).collect()
            }
        };
        let packet = usual.iter().map(|one| one.packet.0).max();
        let packet = packet.unwrap_or(USUAL_PACKET);
        self.packets.push(packet);
        let rtts = usual.iter().flat_map(|one| &one.rtts);
        self.rtts_s.extend(rtts.map(|rtt| rtt.as_secs_f64()));
        self.rates_bps.push(point.tested_link().rate.as_bps());
        let room_pkts = |buffer: Buffer| match buffer {
            Buffer::Packets(packets) => f64::from(packets),
            Buffer::Bytes(bytes) => bytes as f64 / packet as f64,
        };
        let tested = |link: &&Link| link.law.is_none();
        let buffers = point.links.iter().filter(tested).map(|link| link.buffer);
        self.rooms_pkts.extend(buffers.map(room_pkts));
        self.beside.push(offered(point));
        let declared: u32 = lasting().map(|one| one.flows).sum();
        let (mut fewest, mut most) = (f64::from(declared), f64::from(declared));
        for change in &point.changes {
            match change.what {
                Setting::Link { link: 0, what } => match what {
                    LinkSetting::Rate(rate) => self.rates_bps.push(rate.as_bps()),
                    LinkSetting::Buffer(buffer) => self.rooms_pkts.push(room_pkts(buffer)),
                    LinkSetting::Delay(_) => {}
                },
                Setting::Link { .. } => {}
                Setting::Flows { traffic, flows } => {
                    let before = &point.traffic[traffic];
                    if lasts(before) {
                        let now = most - f64::from(before.flows) + f64::from(flows);
                        (fewest, most) = (fewest.min(now), most.max(now));
                    }
                }
            }
        }
        if lasting().next().is_some() {
            self.flows.extend([fewest.max(1.0), most.max(1.0)]);
        }
        for window_law in lasting().map(|one| window_law(one, point.tested_link())) {
            if !self.window_laws.contains(&window_law) {
                self.window_laws.push(window_law);
            }
        }
    }
}

/// Returns true if the flows are long-lived, so a law is designed for them.
fn lasts(traffic: &Traffic) -> bool {
    matches!(traffic.kind, TrafficKind::Ftp(_))
}

fn window_law(traffic: &Traffic, bottleneck: &Link) -> Option<WindowLaw> {
    let tcp = traffic.kind.tcp()?;
    let law = tcp.sender().window_law?;
    let marked = tcp.ecn != EcnChoice::Off && bottleneck.ecn;
    Some(if marked { law } else { law.on_drops() })
}
