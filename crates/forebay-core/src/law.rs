//! What an AQM law is: it judges packets, and holds none.

use crate::linear::{LoopFilter, OperatingPoint};
use crate::param::{ParamError, ParamSpec, Params, Value};
use crate::rng::Rng;
use crate::search::{Conditions, Search};
use crate::units::{Bytes, Rate, SetPoint, Span, Time};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing happens to it.
    Pass,
    /// Congestion is signalled: the queue CE-marks it where it may, and drops it otherwise.
    Mark,
    /// The queue drops it, ECN-capable or not, as RED does above its upper threshold
    /// (RFC 3168 section 7).
    Drop,
}

impl Verdict {
    /// `Mark` to signal, `Pass` otherwise.
    #[inline]
    pub const fn mark_if(signal: bool) -> Verdict {
        if signal {
            Verdict::Mark
        } else {
            Verdict::Pass
        }
    }
}

/// The ECN field of the IP header (RFC 3168 section 5), numbered as it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    #[default]
    NotEct = 0b00,
    Ect1 = 0b01,
    Ect0 = 0b10,
    Ce = 0b11,
}

/// The byte of an IP header that carries the DSCP and the ECN field: IPv4's former TOS, IPv6's
/// traffic class (RFC 2474 section 3, RFC 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficClass(pub u8);

impl TrafficClass {
    /// A DSCP of 0 to 63 and an ECN field.
    pub const fn new(dscp: u8, ecn: Ecn) -> TrafficClass {
        TrafficClass(dscp << 2 | ecn as u8)
    }

    #[inline]
    pub const fn ecn(self) -> Ecn {
        match self.0 & 0b11 {
            0b00 => Ecn::NotEct,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    #[inline]
    pub const fn dscp(self) -> u8 {
        self.0 >> 2
    }

    #[inline]
    pub fn set_ecn(&mut self, ecn: Ecn) {
        *self = TrafficClass::new(self.dscp(), ecn);
    }
}

/// What the verdict [`Verdict::Mark`] does to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Sets CE.
    Mark,
    /// Drops it: the packet is not ECN-capable, or the queue does not mark.
    Drop,
}

/// What a law may know of a packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketMeta {
    pub bytes: u32,
    /// Of the flow, as the queue tells flows apart; zero where packets are a fluid.
    pub flow: u64,
    pub ecn: Ecn,
    /// What [`Verdict::Mark`] does to it here.
    pub signal: Signal,
    /// Whether TCP carries it. UDP takes link capacity away from the flows that answer a signal.
    pub tcp: bool,
    /// How long it waited; zero on arrival.
    pub sojourn: Span,
}

/// What a law may know of its queue. The packet being sent is not in it.
#[derive(Clone, Copy, Debug)]
pub struct QueueView {
    pub packets: u32,
    pub bytes: u64,
    /// Most packets the queue can hold; `u32::MAX` where only bytes bound it.
    pub limit_packets: u32,
    /// Rate of the link that the queue feeds, as it is now.
    pub rate: Rate,
    /// Since when the link has had nothing to send; `None` while it is busy.
    pub idle_since: Option<Time>,
    /// When the packet at the head came; `None` where there is none.
    pub head_since: Option<Time>,
    /// What waits for the link besides this queue.
    pub others: Others,
}

/// What other queues of a discipline hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Others {
    pub bytes: u64,
    /// When the oldest packet there came, if the discipline says.
    pub head_since: Option<Time>,
}

impl QueueView {
    /// How long the packet at the head has waited; zero where there is none.
    pub fn head_age(&self, now: Time) -> Span {
        self.head_since.map_or(Span::ZERO, |since| now.since(since))
    }

    /// Bytes that wait for the link, in this queue and in others of its discipline.
    pub fn link_bytes(&self) -> u64 {
        self.bytes + self.others.bytes
    }

    /// How long the oldest packet for the link has waited, in this queue or in others of its
    /// discipline; zero where there is none.
    pub fn link_age(&self, now: Time) -> Span {
        let other = self.others.head_since;
        let oldest = match (self.head_since, other) {
            (Some(head), Some(other)) => Some(head.min(other)),
            (head, other) => head.or(other),
        };
        oldest.map_or(Span::ZERO, |since| now.since(since))
    }
}

/// What a law counts its queue in: packets as they are, or bytes in units of the usual packet
/// (so that ACKs and data can share a queue).
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    packet_bytes: Option<f64>,
}

impl Scale {
    pub fn new(site: &Site, in_bytes: bool) -> Scale {
        Scale {
            packet_bytes: in_bytes.then_some(site.packet.0 as f64),
        }
    }

    /// Length of the queue, in packets.
    pub fn queue_pkts(&self, q: &QueueView) -> f64 {
        match self.packet_bytes {
            Some(unit) => q.bytes as f64 / unit,
            None => f64::from(q.packets),
        }
    }

    /// What one packet of this size counts, in packets.
    pub fn packet_pkts(&self, bytes: u32) -> f64 {
        self.packet_bytes
            .map_or(1.0, |unit| f64::from(bytes) / unit)
    }
}

/// The set-point of a law at a queue.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub set_point: SetPoint,
    packet: Bytes,
}

impl Target {
    /// `site` gives the usual packet, in which a delay is counted.
    pub fn new(set_point: SetPoint, site: &Site) -> Target {
        Target {
            set_point,
            packet: site.packet,
        }
    }

    /// Moves the set-point; true, as [`Law::set_point`] answers.
    pub fn move_to(&mut self, set_point: SetPoint) -> bool {
        self.set_point = set_point;
        true
    }

    /// In packets; a delay at the rate that the link has now.
    pub fn pkts(&self, q: &QueueView) -> f64 {
        self.set_point.pkts(q.rate, self.packet)
    }

    /// As the time that a packet waits; a length at the rate that the link has now.
    #[inline]
    pub fn delay(&self, q: &QueueView) -> Span {
        match self.set_point {
            SetPoint::Delay(delay) => delay,
            SetPoint::Packets(pkts) => {
                Span::from_secs_f64(pkts / q.rate.packets_per_sec(self.packet))
            }
        }
    }
}

/// Packets of a fluid that pass a queue in a short time, evenly. The queue is empty all the time, or
/// never; arrivals that find no room are reported after it.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// The end of that time.
    pub end: Time,
    /// At its start and its end, in packets.
    pub queue_pkts: [f64; 2],
    pub arrivals: u32,
    pub departures: u32,
    /// What the link could have sent besides, had the queue not been empty.
    pub missed: u32,
    /// Each of them; `sojourn` is that of the last to leave.
    pub packet: PacketMeta,
    /// At the end.
    pub view: QueueView,
}

/// An AQM law. Every method has a default, so that DropTail is an empty one.
///
/// A discipline calls the hooks in order of time. A law is driven either by packets
/// (`on_enqueue`, `on_dequeue`) or by its own clock (`poll_timeout`, `handle_timeout`).
#[allow(unused_variables, reason = "names say what a default leaves alone")]
pub trait Law: Send {
    /// Comes before every other call: a seed for random numbers of the law's own, besides the
    /// stream that it is handed.
    fn seeded(&mut self, seed: u64) {}

    /// Judges an arrival; `q` is the queue without it.
    fn on_enqueue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        Verdict::Pass
    }

    /// Judges a departure; `q` is the queue without it.
    fn on_dequeue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        Verdict::Pass
    }

    /// An arrival found the buffer full; called after `on_enqueue` for the same packet.
    fn on_overflow(&mut self, now: Time, q: &QueueView) {}

    /// Takes many packets at once, in the fluid model, where one by one they would take too long;
    /// [`intensity`](Law::intensity) must come to what it would be then. False: one by one.
    fn flow(&mut self, flow: &Flow) -> bool {
        false
    }

    /// The discipline has dropped this many packets from the head to make room.
    fn on_trim(&mut self, now: Time, q: &QueueView, packets: u32) {}

    /// The link has run out of packets.
    fn on_idle(&mut self, now: Time, q: &QueueView) {}

    /// Whether the law has nothing left to decay while its queue is empty. A discipline of many
    /// queues goes on to call [`on_idle`](Law::on_idle) until it has.
    fn rests(&self, now: Time) -> bool {
        true
    }

    /// When the law wants to be called next, if it keeps a clock.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// Runs every tick due at `now`: a late call loses none.
    fn handle_timeout(&mut self, now: Time, q: &QueueView) {}

    /// Moves the set-point while traffic runs, and keeps all else; whether the law can.
    fn set_point(&mut self, set_point: SetPoint) -> bool {
        false
    }

    /// Expected signals per arriving packet, for the fluid model.
    fn intensity(&self, q: &QueueView) -> Option<f64> {
        None
    }

    /// With what probability an ECT(1) packet is marked where a classic one is signalled with
    /// `classic`; the same, but for coupled laws (RFC 9332 section 2.1).
    fn marks_l4s(&self, classic: f64) -> f64 {
        classic
    }

    /// Reports named inner values ("p", "average", …) for plots; the names never change.
    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {}
}

/// Where a law is put: what a check of its parameters, or a design, may need.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    pub rate: Rate,
    /// Buffer in packets; one of bytes counts as packets of the usual size.
    pub buffer_pkts: f64,
    /// Usual packet on the link.
    pub packet: Bytes,
}

impl Site {
    /// A set-point in packets, a delay at the link's rate.
    pub fn pkts(&self, set_point: SetPoint) -> f64 {
        set_point.pkts(self.rate, self.packet)
    }

    /// The buffer in words, in packets, or as the delay that it can hold where `like` is a delay.
    pub fn buffer_as(&self, like: SetPoint) -> String {
        let pkts = self.buffer_pkts;
        match like {
            SetPoint::Packets(_) => format!("the buffer, \"{pkts}p\""),
            SetPoint::Delay(_) => {
                let delay_s = pkts / self.rate.packets_per_sec(self.packet);
                format!(
                    "what the buffer holds, \"{}\"",
                    Span::from_secs_f64(delay_s)
                )
            }
        }
    }
}

/// Parameters that a law is built from.
pub trait LawParams: Params + 'static {
    /// Relations between parameters, or to the queue, that ranges cannot say.
    ///
    /// # Errors
    /// The key at fault.
    fn check(&self, _site: &Site) -> Result<(), ParamError> {
        Ok(())
    }

    fn build(&self, site: &Site) -> Box<dyn Law>;

    /// The law near an operating point; `None` where it has no linear model, or no equilibrium.
    fn linear(&self, _point: &OperatingPoint, _site: &Site) -> Option<LoopFilter> {
        None
    }

    /// The key of the set-point, among the parameters of a law that has one.
    const SET_POINT: &'static str = "target";

    /// Whether this is the queue without any law, beside which others are judged.
    const BASELINE: bool = false;

    /// Why real packets differ from simulated ones under the law, where its kind is a reason: a
    /// noun, and sentences.
    const REALITY: Option<(&'static str, &'static str)> = None;

    /// The goal or parameter that makes a designed loop slower where it is smaller.
    const SLOWED_BY: Option<&'static str> = None;

    /// How the law steers the arrival rate, where it acts on rates and not on the queue.
    fn rate_control(&self) -> Option<RateControl> {
        None
    }

    /// How the law is tuned for a range of links and loads.
    fn search(_conditions: &Conditions) -> Search {
        Search::Nothing
    }

    /// What the design rule can be asked for besides the law's own parameters.
    const GOALS: &'static [ParamSpec] = &[];

    /// The law's design rule, with what it does not design left as it is in `self`; `None` where
    /// there is no rule.
    ///
    /// # Errors
    /// A goal that is unknown or out of range, or a request that cannot be met.
    fn design(
        &self,
        _wish: &DesignRequest,
        _goals: &ParamValues,
    ) -> Result<Option<Design>, ParamError> {
        Ok(None)
    }

    /// Parameters that must be others on this link, with a round trip of `rtt` without queueing:
    /// of a law without a design rule, by its authors' advice.
    fn fitted(&self, _rtt: Span, _site: &Site) -> Vec<(&'static str, Value)> {
        Vec::new()
    }
}

/// A PID controller of the capacity of a virtual queue by the arrival rate (e-avq eq. 18):
/// δC̃' = −K_I·δλ − K_P·δλ' − K_D·δλ''.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateControl {
    /// Wanted utilisation of the link.
    pub utilisation: f64,
    pub k_p: f64,
    /// Per second.
    pub k_i: f64,
    /// In seconds.
    pub k_d: f64,
}

/// What a design rule is given.
#[derive(Clone, Copy, Debug)]
pub struct DesignRequest {
    /// The network at the wanted queue length.
    pub point: OperatingPoint,
    /// What to hold the queue at.
    pub set_point: SetPoint,
    pub site: Site,
}

impl DesignRequest {
    /// The set-point in packets, a delay at the point's capacity.
    pub fn target_pkts(&self) -> f64 {
        self.set_point.pkts_at(self.point.capacity_pkts_per_s)
    }
}

/// What a design rule gives.
#[derive(Clone, Debug, Default)]
pub struct Design {
    /// The designed numbers under the paper's names, with those on the way to them.
    pub gains: Vec<(&'static str, f64)>,
    /// The law's parameters, as a scenario takes them.
    pub params: Vec<(&'static str, Value)>,
    /// Why these: sentences.
    pub notes: Vec<String>,
}

/// Named parameter values, as a scenario gives them.
pub type ParamValues = [(String, Value)];

type Built = Result<Box<dyn Law>, ParamError>;
type Resolved = Result<Vec<(&'static str, Value)>, ParamError>;
type Linear = Result<Option<LoopFilter>, ParamError>;
type Designed = Result<Option<Design>, ParamError>;
type Fitted = Result<Vec<(&'static str, Value)>, ParamError>;

/// Where flows settle under a law.
#[derive(Clone, Debug)]
pub enum Rest {
    /// Law, queue and TCP agree: the network there, and the law near it.
    Linear(OperatingPoint, LoopFilter),
    /// The law has no linear model with its parameters.
    Unmodelled,
    /// The law signals more than the flows need before a packet is queued: this is what they need.
    Empty { probability: f64 },
    /// At the queue that the law holds, TCP would need this probability, of one or more.
    Saturated { queue_pkts: f64, probability: f64 },
    /// Law and TCP agree at a queue beyond the buffer, which overflows first.
    Full { queue_pkts: f64 },
    /// At this queue the law's probability jumps past the one that TCP needs: law and queue go to
    /// and fro.
    Jump { queue_pkts: f64, probability: f64 },
}

/// A law's entry in the registry.
pub struct LawSpec {
    /// Name in scenarios and on the command line.
    pub kind: &'static str,
    pub title: &'static str,
    pub source: &'static str,
    pub params: &'static [ParamSpec],
    /// Kind of the queue discipline that holds the law where none is named.
    pub queue: &'static str,
    /// What a design can be asked for besides the law's own parameters.
    pub goals: &'static [ParamSpec],
    /// Whether this is the queue without any law, beside which others are judged.
    pub baseline: bool,
    /// Why real packets differ from simulated ones under the law, where its kind is a reason.
    pub reality: Option<(&'static str, &'static str)>,
    /// The goal or parameter that makes a designed loop slower where it is smaller.
    pub slowed_by: Option<&'static str>,
    set_point: &'static str,
    search: fn(&Conditions) -> Search,
    rate_control: fn(&ParamValues) -> Result<Option<RateControl>, ParamError>,
    build: fn(&ParamValues, &Site) -> Built,
    resolve: fn(&ParamValues) -> Resolved,
    linear: fn(&ParamValues, &OperatingPoint, &Site) -> Linear,
    design: fn(&ParamValues, &DesignRequest, &ParamValues) -> Designed,
    fitted: fn(&ParamValues, Span, &Site) -> Fitted,
    own: Option<&'static dyn OwnLaw>,
}

/// A law that the registry does not have: whoever uses the library brings it.
pub trait OwnLaw: Send + Sync {
    /// As [`LawSpec::build`].
    ///
    /// # Errors
    /// As there.
    fn build(&self, given: &ParamValues, site: &Site) -> Result<Box<dyn Law>, ParamError>;

    /// As [`LawSpec::resolve`].
    ///
    /// # Errors
    /// As there.
    fn resolve(&self, given: &ParamValues) -> Result<Vec<(&'static str, Value)>, ParamError>;
}

impl LawSpec {
    /// A law that is in no registry, with the facts that packets need and no theory.
    pub const fn own(
        kind: &'static str,
        title: &'static str,
        source: &'static str,
        params: &'static [ParamSpec],
        law: &'static dyn OwnLaw,
    ) -> LawSpec {
        LawSpec {
            kind,
            title,
            source,
            params,
            queue: "fifo",
            goals: &[],
            baseline: false,
            reality: None,
            slowed_by: None,
            set_point: "target",
            search: |_| Search::Nothing,
            rate_control: |_| Ok(None),
            build: |_, _| unreachable!("`own` builds it"),
            resolve: |_| unreachable!("`own` resolves it"),
            linear: |_, _, _| Ok(None),
            design: |_, _, _| Ok(None),
            fitted: |_, _, _| Ok(Vec::new()),
            own: Some(law),
        }
    }

    /// Whether the caller brought it.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    pub const fn of<R: LawParams>(
        kind: &'static str,
        title: &'static str,
        source: &'static str,
    ) -> LawSpec {
        LawSpec {
            kind,
            title,
            source,
            params: R::SPECS,
            queue: "fifo",
            goals: R::GOALS,
            baseline: R::BASELINE,
            reality: R::REALITY,
            slowed_by: R::SLOWED_BY,
            set_point: R::SET_POINT,
            search: R::search,
            rate_control: |given| Ok(R::read(given)?.rate_control()),
            build: |given, site| {
                let params = R::read(given)?;
                params.check(site)?;
                Ok(params.build(site))
            },
            resolve: |given| {
                let params = R::read(given)?;
                let value = |spec: &ParamSpec| Some((spec.name, params.get(spec.name)?));
                Ok(R::SPECS.iter().filter_map(value).collect())
            },
            linear: |given, point, site| {
                let params = R::read(given)?;
                params.check(site)?;
                Ok(params.linear(point, site))
            },
            design: |given, request, goals| R::read(given)?.design(request, goals),
            fitted: |given, rtt, site| Ok(R::read(given)?.fitted(rtt, site)),
            own: None,
        }
    }

    /// The same law under the name that it has in another queue.
    #[must_use]
    pub const fn in_queue(
        self,
        queue: &'static str,
        kind: &'static str,
        title: &'static str,
        source: &'static str,
    ) -> LawSpec {
        LawSpec {
            kind,
            title,
            source,
            queue,
            ..self
        }
    }

    /// As [`Self::in_queue`], where the queue makes several loops of the law's one: its linear
    /// model and its design rule hold no more, and a search by them becomes `search`.
    #[must_use]
    pub const fn in_several_queues(
        self,
        queue: &'static str,
        kind: &'static str,
        title: &'static str,
        source: &'static str,
        search: fn(&Conditions) -> Search,
    ) -> LawSpec {
        LawSpec {
            goals: &[],
            slowed_by: None,
            search,
            linear: |_, _, _| Ok(None),
            design: |_, _, _| Ok(None),
            ..self.in_queue(queue, kind, title, source)
        }
    }

    /// What people call the law: the title up to its colon.
    pub fn name(&self) -> &'static str {
        self.title.split(':').next().unwrap_or(self.title)
    }

    /// The parameter that sets where the law holds the queue; `None` for a law without one.
    pub fn set_point(&self) -> Option<&'static ParamSpec> {
        self.params.iter().find(|spec| spec.name == self.set_point)
    }

    /// How the law is tuned for these conditions.
    pub fn search(&self, conditions: &Conditions) -> Search {
        (self.search)(conditions)
    }

    /// How the law steers the arrival rate, where it acts on rates and not on the queue.
    ///
    /// # Errors
    /// A parameter that is unknown or out of range.
    pub fn rate_control(&self, given: &ParamValues) -> Result<Option<RateControl>, ParamError> {
        (self.rate_control)(given)
    }

    /// Whether the law integrates the distance to its set-point, by its linear model; false for
    /// parameters that it does not take.
    pub fn integrates(&self, given: &ParamValues) -> bool {
        // Where the law has an integral, it has it on every link: on one with room for any
        // set-point too.
        let roomy = Site {
            rate: Rate::from_bps(1_000_000_000),
            buffer_pkts: 2e9,
            packet: Bytes(1000),
        };
        let capacity = roomy.rate.packets_per_sec(roomy.packet);
        let point = OperatingPoint::of_flows(100.0, 0.1, capacity);
        let model = self.linear(given, &point, &roomy);
        matches!(model, Ok(Some(model)) if model.integrates())
    }

    /// A fresh law with `given` on top of the defaults.
    ///
    /// # Errors
    /// A parameter that is unknown, out of range, or does not fit the others or the queue.
    pub fn build(&self, given: &ParamValues, site: &Site) -> Built {
        match self.own {
            Some(law) => law.build(given, site),
            None => (self.build)(given, site),
        }
    }

    /// Every parameter's value with `given` on top of the defaults.
    ///
    /// # Errors
    /// A parameter that is unknown or out of range.
    pub fn resolve(&self, given: &ParamValues) -> Resolved {
        match self.own {
            Some(law) => law.resolve(given),
            None => (self.resolve)(given),
        }
    }

    /// The law near an operating point; `None` where it has no linear model, or no equilibrium.
    ///
    /// # Errors
    /// As [`build`](LawSpec::build).
    pub fn linear(&self, given: &ParamValues, point: &OperatingPoint, site: &Site) -> Linear {
        (self.linear)(given, point, site)
    }

    /// Where `flows` with this propagation RTT settle under the law, and its model there.
    ///
    /// The longer the queue, the longer the RTT and the smaller the probability that TCP needs,
    /// so that the queue at which both agree is found by bisection. Where the law's probability
    /// jumps there may be no such queue; see [`Rest`].
    ///
    /// # Errors
    /// As [`build`](LawSpec::build).
    pub fn operate(
        &self,
        given: &ParamValues,
        flows: f64,
        propagation_s: f64,
        site: &Site,
    ) -> Result<Rest, ParamError> {
        let capacity = site.rate.packets_per_sec(site.packet);
        let point = |queue_pkts: f64| {
            let rtt_s = propagation_s + queue_pkts / capacity;
            OperatingPoint::of_flows(flows, rtt_s, capacity)
        };
        let model = |queue_pkts: f64| self.linear(given, &point(queue_pkts), site);
        // Without an equilibrium the law cannot signal enough: the queue is longer.
        let settles_above = |queue_pkts: f64| -> Result<bool, ParamError> {
            Ok(model(queue_pkts)?.is_none_or(|model| model.queue_pkts > queue_pkts))
        };
        let rest = |queue_pkts: f64, model: LoopFilter| {
            let point = point(queue_pkts);
            if point.probability() >= 1.0 {
                let probability = point.probability();
                return Rest::Saturated {
                    queue_pkts,
                    probability,
                };
            }
            if queue_pkts > site.buffer_pkts {
                return Rest::Full { queue_pkts };
            }
            Rest::Linear(point, model)
        };
        // Where the law integrates, its queue does not depend on the network.
        if let Some(first) = model(0.0)? {
            if first.queue_pkts < 0.0 {
                let probability = point(0.0).probability();
                return Ok(Rest::Empty { probability });
            }
            match model(first.queue_pkts)? {
                Some(again) if again.queue_pkts == first.queue_pkts => {
                    return Ok(rest(first.queue_pkts, again));
                }
                _ => {}
            }
        }
        let (mut low, mut high) = (0.0, 1.0);
        while settles_above(high)? {
            if high > 1e12 {
                return Ok(Rest::Unmodelled);
            }
            high *= 2.0;
        }
        while high - low > 1e-12 * high {
            let middle = 0.5 * (low + high);
            if settles_above(middle)? {
                low = middle;
            } else {
                high = middle;
            }
        }
        let Some(found) = model(high)? else {
            return Ok(Rest::Unmodelled);
        };
        if (found.queue_pkts - high).abs() <= 1e-6 * (1.0 + high) {
            return Ok(rest(high, found));
        }
        // The bisection has ended at a jump: there the law's queue is one, and what the flows
        // need there is between its probabilities on both sides of the jump, or above both.
        let queue_pkts = found.queue_pkts;
        let probability = point(queue_pkts).probability();
        Ok(if probability >= 1.0 {
            Rest::Saturated {
                queue_pkts,
                probability,
            }
        } else if queue_pkts > site.buffer_pkts {
            Rest::Full { queue_pkts }
        } else {
            Rest::Jump {
                queue_pkts,
                probability,
            }
        })
    }

    /// The law's design rule with `given` for what it does not design, and `goals` of
    /// [`goals`](LawSpec::goals); `None` where there is no rule.
    ///
    /// # Errors
    /// A parameter or a goal that is unknown or out of range, or a request that cannot be met.
    pub fn design(
        &self,
        given: &ParamValues,
        request: &DesignRequest,
        goals: &ParamValues,
    ) -> Designed {
        (self.design)(given, request, goals)
    }

    /// What of `given` and the defaults must be another on this link, by the authors' advice, for
    /// a law without a design rule.
    ///
    /// # Errors
    /// A parameter that is unknown or out of range.
    pub fn fitted(&self, given: &ParamValues, rtt: Span, site: &Site) -> Fitted {
        (self.fitted)(given, rtt, site)
    }
}

impl Design {
    /// `names` of the params that carry the designed values.
    pub fn of<R: Params>(
        gains: Vec<(&'static str, f64)>,
        params: &R,
        names: &[&'static str],
        notes: Vec<String>,
    ) -> Design {
        let value = |name: &&'static str| Some((*name, rounded(params.get(name)?)));
        Design {
            gains,
            params: names.iter().filter_map(value).collect(),
            notes,
        }
    }
}

/// Ten digits are enough for a gain, and bearable in a file.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(x) => Value::Number(format!("{x:.9e}").parse().unwrap_or(x)),
        other => other,
    }
}

/// Refuses a set-point that the buffer cannot hold.
///
/// # Errors
/// Where it exceeds the buffer; `key` is blamed.
pub fn fits_buffer(key: &str, set_point: SetPoint, site: &Site) -> Result<(), ParamError> {
    let pkts = site.pkts(set_point);
    if pkts <= site.buffer_pkts {
        return Ok(());
    }
    let allowed = format!("at most {}", site.buffer_as(set_point));
    Err(ParamError::new(key, format!("\"{set_point}\""), allowed))
}

/// Refuses a buffer that is not bounded in packets, for laws that divide by it.
///
/// # Errors
/// Where the buffer is infinite; the set-point `key` is blamed.
pub fn needs_packet_buffer(key: &str, set_point: SetPoint, site: &Site) -> Result<(), ParamError> {
    if site.buffer_pkts.is_finite() {
        return Ok(());
    }
    Err(ParamError::new(
        key,
        format!("\"{set_point}\" under a buffer in bytes"),
        "a buffer in packets, since the law relates its error to it",
    ))
}
