//! What an AQM law is: it judges packets, and holds none.

use forebay_units::{Bytes, Rate, Rng, SetPoint, Site, Span, Time};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing happens to it.
    Pass,
    /// Congestion is signalled: the queue CE-marks it where it may, and drops it otherwise.
    Signal,
    /// The queue drops it, ECN-capable or not, as RED does above its upper threshold
    /// (RFC 3168 section 7).
    Drop,
}

impl Verdict {
    /// Returns `Signal` if `signal` is true, `Pass` otherwise.
    #[inline]
    pub const fn signal_if(signal: bool) -> Verdict {
        if signal {
            Verdict::Signal
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
    /// The packet is not ECN-capable.
    NotEct = 0b00,
    /// ECN-capable, and with the low latency of L4S (RFC 9331).
    Ect1 = 0b01,
    /// ECN-capable, as classic senders say it.
    Ect0 = 0b10,
    /// Congestion was experienced.
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

    /// Returns the ECN field.
    #[inline]
    pub const fn ecn(self) -> Ecn {
        match self.0 & 0b11 {
            0b00 => Ecn::NotEct,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// Returns the differentiated services code point, 0 to 63.
    #[inline]
    pub const fn dscp(self) -> u8 {
        self.0 >> 2
    }

    /// Changes the ECN field and keeps the DSCP.
    #[inline]
    pub fn set_ecn(&mut self, ecn: Ecn) {
        *self = TrafficClass::new(self.dscp(), ecn);
    }
}

/// What the verdict [`Verdict::Signal`] does to a packet.
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
    /// Size of the packet.
    pub bytes: u32,
    /// Of the flow, as the queue tells flows apart; zero where packets are a fluid.
    pub flow: u64,
    /// The ECN field on arrival.
    pub ecn: Ecn,
    /// What [`Verdict::Signal`] does to it here.
    pub signal: Signal,
    /// Whether TCP carries it. UDP takes link capacity away from the flows that answer a signal.
    pub tcp: bool,
    /// How long it waited; zero on arrival.
    pub sojourn: Span,
}

/// What a law may know of its queue. The packet being sent is not in it.
#[derive(Clone, Copy, Debug)]
pub struct QueueView {
    /// Packets that wait.
    pub packets: u32,
    /// Bytes that wait.
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
    /// Bytes that wait there.
    pub bytes: u64,
    /// When the oldest packet there came, if the discipline says.
    pub head_since: Option<Time>,
}

impl QueueView {
    /// Packets of one size behind a busy link, alone, without the time at which they came.
    pub fn busy(packets: u32, packet_bytes: u32, limit_packets: u32, rate: Rate) -> Self {
        QueueView {
            packets,
            bytes: u64::from(packets) * u64::from(packet_bytes),
            limit_packets,
            rate,
            idle_since: None,
            head_since: None,
            others: Others::default(),
        }
    }

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
    /// Returns the scale of a law that counts bytes, or packets.
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
    /// A length or a delay.
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
pub struct FluidStep {
    /// The end of that time.
    pub end: Time,
    /// At its start and its end, in packets.
    pub queue_pkts: [f64; 2],
    /// Packets that came and were let in.
    pub arrivals: u32,
    /// Packets that left.
    pub departures: u32,
    /// What the link could have sent besides, had the queue not been empty.
    pub missed: u32,
    /// Each of them; `sojourn` is that of the last to leave.
    pub packet: PacketMeta,
    /// At the end.
    pub view: QueueView,
}

impl FluidStep {
    /// Returns an average after the arrivals of this step, each of which moves it by `weight` of
    /// its difference from the queue.
    ///
    /// With r = 1 − w and n arrivals, of which the i-th finds q₀ + (q₁ − q₀)·i/n:
    /// rⁿ·x + w·Σ rⁿ⁻ⁱ·qᵢ, where w·Σ rⁿ⁻ⁱ = 1 − rⁿ and w·Σ i·rⁿ⁻ⁱ = n − r(1 − rⁿ)/w.
    pub fn averaged(&self, average: f64, weight: f64) -> f64 {
        let [first, last] = self.queue_pkts;
        let n = f64::from(self.arrivals);
        if self.arrivals == 0 || weight >= 1.0 {
            return if self.arrivals == 0 { average } else { last };
        }
        let gone = -(n * (-weight).ln_1p()).exp_m1();
        let ramp = 1.0 - (1.0 - weight) * gone / (weight * n);
        average + gone * (first - average) + ramp * (last - first)
    }
}

/// An AQM law as packets meet it. Every method has a default, so that DropTail is an empty one.
///
/// A discipline calls the hooks in order of time. A law is driven either by packets
/// (`on_enqueue`, `on_dequeue`) or by its own clock (`poll_timeout`, `handle_timeout`).
#[allow(unused_variables, reason = "names say what a default leaves alone")]
pub trait Law: FluidLaw + Send {
    /// Whether arrivals are judged or counted. A law that leaves [`on_enqueue`](Law::on_enqueue) as
    /// it is says no, once and for all, and is spared a call at each.
    fn watches_arrivals(&self) -> bool {
        true
    }

    /// Judges an arrival; `q` is the queue without it.
    fn on_enqueue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        Verdict::Pass
    }

    /// As [`watches_arrivals`](Law::watches_arrivals), of [`on_dequeue`](Law::on_dequeue).
    fn watches_departures(&self) -> bool {
        true
    }

    /// Judges a departure; `q` is the queue without it.
    fn on_dequeue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        Verdict::Pass
    }

    /// An arrival found the buffer full; called after `on_enqueue` for the same packet.
    fn on_overflow(&mut self, now: Time, q: &QueueView) {}

    /// The discipline has dropped this many packets from the head to make room.
    fn on_trim(&mut self, now: Time, q: &QueueView, packets: u32) {}

    /// Whether an arrival is what a full buffer costs where each flow has a queue, as in Linux's
    /// `fq_pie`; else the longest queue pays (RFC 8290 section 4.1.2).
    fn costs_arrivals(&self) -> bool {
        false
    }

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

    /// Comes to where all ticks that are due at `now` lead at this queue. The work is bounded however
    /// late the call is: see [`clock`](crate::clock).
    fn handle_timeout(&mut self, now: Time, q: &QueueView) {}

    /// Moves the set-point while traffic runs, and keeps all else; whether the law can.
    fn set_point(&mut self, set_point: SetPoint) -> bool {
        false
    }

    /// Reports named inner values ("p", "average", …) for plots; the names never change.
    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {}
}

/// A law as the fluid model meets it, besides its hooks for packets. One that leaves this empty is
/// shown the packets of the fluid one by one, and its verdicts are counted.
#[allow(unused_variables, reason = "names say what a default leaves alone")]
pub trait FluidLaw {
    /// Takes many packets at once, where one by one they would take too long;
    /// [`intensity`](FluidLaw::intensity) must come to what it would be then. False: one by one.
    fn take_fluid(&mut self, step: &FluidStep) -> bool {
        false
    }

    /// Expected signals per arriving packet.
    fn intensity(&self, q: &QueueView) -> Option<f64> {
        None
    }

    /// With what probability an ECT(1) packet is marked where a classic one is signalled with
    /// `classic`; the same, but for coupled laws (RFC 9332 section 2.1).
    fn marks_l4s(&self, classic: f64) -> f64 {
        classic
    }
}
