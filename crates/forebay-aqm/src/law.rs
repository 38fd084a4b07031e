//! AQM laws: a law decides about packets and holds none.

use std::any::Any;

use forebay_units::{Bytes, Rate, Rng, SetPoint, Site, Span, Time};

/// The decision of a law about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet goes on unchanged.
    Pass,
    /// Congestion is signalled: the queue marks the packet with CE if it may, and drops it
    /// otherwise.
    Signal,
    /// The queue drops the packet even if it is ECN-capable, as RED does above its upper threshold
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

/// The ECN field of the IP header. The numbers are those on the wire (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    #[default]
    /// The packet is not ECN-capable.
    NotEct = 0b00,
    /// ECN-capable, and identified as L4S traffic (RFC 9331).
    Ect1 = 0b01,
    /// ECN-capable; the codepoint of classic senders.
    Ect0 = 0b10,
    /// Congestion was experienced.
    Ce = 0b11,
}

/// The byte of an IP header that carries the DSCP and the ECN field: IPv4's former TOS, IPv6's
/// traffic class (RFC 2474 section 3, RFC 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficClass(pub u8);

impl TrafficClass {
    /// Returns the byte with a DSCP of 0 to 63 and an ECN field.
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

/// The effect of [`Verdict::Signal`] on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The queue sets CE.
    Mark,
    /// The queue drops the packet, because it is not ECN-capable or the queue does not mark.
    Drop,
}

/// The properties of a packet that a law can see.
#[derive(Clone, Copy, Debug)]
pub struct PacketMeta {
    /// The size of the packet in bytes.
    pub bytes: u32,
    /// The identifier of the flow: see [`Packet::flow`](crate::Packet::flow). Zero in the fluid
    /// model.
    pub flow: u64,
    /// The ECN field on arrival.
    pub ecn: Ecn,
    /// The effect of [`Verdict::Signal`] on the packet at this queue.
    pub signal: Signal,
    /// True if the packet belongs to TCP. Other packets use capacity without responding to signals.
    pub tcp: bool,
    /// The time that the packet has spent in the queue; zero on arrival.
    pub sojourn: Span,
}

/// The state of a queue that its law can see. The packet in transmission is not part of it.
#[derive(Clone, Copy, Debug)]
pub struct QueueView {
    /// Packets in the queue.
    pub packets: u32,
    /// Bytes in the queue.
    pub bytes: u64,
    /// The largest number of packets that the queue can hold; `u32::MAX` if only bytes bound it.
    pub limit_packets: u32,
    /// The current rate of the link that the queue feeds.
    pub rate: Rate,
    /// The time since which the link has been idle; `None` while it is busy.
    pub idle_since: Option<Time>,
    /// The arrival time of the head packet; `None` if the queue is empty.
    pub head_since: Option<Time>,
    /// The other queues of the discipline that wait for the same link.
    pub other_queues: OtherQueues,
}

/// The state of the other queues of a discipline that a law can see.
#[derive(Clone, Copy, Debug, Default)]
pub struct OtherQueues {
    /// Bytes in these queues.
    pub bytes: u64,
    /// The arrival time of the oldest packet in them; `None` if the discipline does not report it.
    pub head_since: Option<Time>,
}

impl QueueView {
    /// Returns the view of a single queue of packets of equal size at a busy link, without arrival
    /// times.
    pub fn busy(packets: u32, packet_bytes: u32, limit_packets: u32, rate: Rate) -> Self {
        QueueView {
            packets,
            bytes: u64::from(packets) * u64::from(packet_bytes),
            limit_packets,
            rate,
            idle_since: None,
            head_since: None,
            other_queues: OtherQueues::default(),
        }
    }

    /// Returns the time that the head packet has waited; zero if the queue is empty.
    pub fn head_age(&self, now: Time) -> Span {
        self.head_since.map_or(Span::ZERO, |since| now.since(since))
    }

    /// Returns the bytes that wait for the link, in this queue and in the other queues of the
    /// discipline.
    pub fn link_bytes(&self) -> u64 {
        self.bytes + self.other_queues.bytes
    }

    /// Returns the time that the oldest packet for the link has waited, in this queue or in the
    /// other queues of the discipline; zero if there is none.
    pub fn link_age(&self, now: Time) -> Span {
        let other = self.other_queues.head_since;
        let oldest = match (self.head_since, other) {
            (Some(head), Some(other)) => Some(head.min(other)),
            (head, other) => head.or(other),
        };
        oldest.map_or(Span::ZERO, |since| now.since(since))
    }
}

/// The unit in which a law measures its queue: packets of any size, or bytes in units of the usual
/// packet size, so that ACKs and data can share a queue.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    packet_bytes: Option<f64>,
}

impl Scale {
    /// Returns the scale of a law that counts bytes if `in_bytes`, and packets otherwise.
    pub fn new(site: &Site, in_bytes: bool) -> Scale {
        Scale {
            packet_bytes: in_bytes.then_some(site.packet.0 as f64),
        }
    }

    /// Returns the length of the queue in packets.
    pub fn queue_pkts(&self, q: &QueueView) -> f64 {
        match self.packet_bytes {
            Some(unit) => q.bytes as f64 / unit,
            None => f64::from(q.packets),
        }
    }

    /// Returns the number of packets as which a packet of this size counts.
    pub fn packet_pkts(&self, bytes: u32) -> f64 {
        self.packet_bytes
            .map_or(1.0, |unit| f64::from(bytes) / unit)
    }
}

/// The set-point of a law at a queue.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The queue length or queuing delay.
    pub set_point: SetPoint,
    packet: Bytes,
}

impl Target {
    /// Returns a target at `site`, whose usual packet size converts between a delay and a length.
    pub fn new(set_point: SetPoint, site: &Site) -> Target {
        Target {
            set_point,
            packet: site.packet,
        }
    }

    /// Moves the set-point. Returns true, the answer of [`Law::set_point`].
    pub fn move_to(&mut self, set_point: SetPoint) -> bool {
        self.set_point = set_point;
        true
    }

    /// Returns the target in packets; a delay is converted at the link's current rate.
    pub fn pkts(&self, q: &QueueView) -> f64 {
        self.set_point.pkts(q.rate, self.packet)
    }

    /// Returns the target as a delay; a length is converted at the link's current rate.
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

/// A step of the fluid model: packets that pass a queue at constant rates in a short time. The
/// queue is either empty throughout the step, or never. Arrivals that overflow the buffer are
/// reported after it.
#[derive(Clone, Copy, Debug)]
pub struct FluidStep {
    /// The end of the step.
    pub end: Time,
    /// The queue length at the start and at the end of the step, in packets.
    pub queue_pkts: [f64; 2],
    /// Packets that arrived and joined the queue.
    pub arrivals: u32,
    /// Packets that left.
    pub departures: u32,
    /// Packets that the link could have sent in addition if the queue had not been empty.
    pub missed: u32,
    /// The properties of each packet; `sojourn` is that of the last departure.
    pub packet: PacketMeta,
    /// The queue at the end of the step.
    pub view: QueueView,
}

impl FluidStep {
    /// Returns an exponentially weighted average after the arrivals of this step. Each arrival
    /// moves the average towards the queue length by the fraction `weight` of their difference.
    ///
    /// With r = 1 − w and n arrivals, the i-th of which finds qᵢ = q₀ + (q₁ − q₀)·i/n, the result
    /// is rⁿ·x + w·Σ rⁿ⁻ⁱ·qᵢ, where w·Σ rⁿ⁻ⁱ = 1 − rⁿ and w·Σ i·rⁿ⁻ⁱ = n − r(1 − rⁿ)/w.
    pub fn averaged(&self, average: f64, weight: f64) -> f64 {
        let [first, last] = self.queue_pkts;
        let n = f64::from(self.arrivals);
        if self.arrivals == 0 || weight >= 1.0 {
            return if self.arrivals == 0 { average } else { last };
        }
        let decayed = -(n * (-weight).ln_1p()).exp_m1();
        let ramp = 1.0 - (1.0 - weight) * decayed / (weight * n);
        average + decayed * (first - average) + ramp * (last - first)
    }
}

/// An AQM law as a discipline calls it. Every method has a default; with all defaults, a law is
/// DropTail.
///
/// A discipline calls the hooks in order of time. A law acts on packets (`on_enqueue`,
/// `on_dequeue`), on its own clock (`poll_timeout`, `handle_timeout`), or on both.
#[allow(unused_variables, reason = "names say what a default leaves alone")]
pub trait Law: FluidLaw + Send + Any {
    /// Returns true if the law decides on arrivals or counts them. A law that does not implement
    /// [`on_enqueue`](Law::on_enqueue) returns false, always, and saves a call per packet.
    fn watches_arrivals(&self) -> bool {
        true
    }

    /// Decides on an arrival; `q` is the queue without it.
    fn on_enqueue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        Verdict::Pass
    }

    /// Returns true if the law decides on departures or counts them. A law that does not implement
    /// [`on_dequeue`](Law::on_dequeue) returns false, always, and saves a call per packet.
    fn watches_departures(&self) -> bool {
        true
    }

    /// Decides on a departure; `q` is the queue without it.
    fn on_dequeue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        Verdict::Pass
    }

    /// Reacts to an arrival that found the buffer full. Called after `on_enqueue` for the same
    /// packet.
    fn on_overflow(&mut self, now: Time, q: &QueueView) {}

    /// Reacts to `packets` packets that the discipline dropped from the head to free buffer space.
    fn on_trim(&mut self, now: Time, q: &QueueView, packets: u32) {}

    /// Returns true if, with one queue per flow, a full buffer drops the arrival, as Linux's
    /// `fq_pie` does. Otherwise it drops from the longest queue (RFC 8290 section 4.1.2).
    fn drops_arrival_when_full(&self) -> bool {
        false
    }

    /// Reacts to a link that has run out of packets.
    fn on_idle(&mut self, now: Time, q: &QueueView) {}

    /// Returns true if the law's state no longer decays while its queue is empty. A discipline with
    /// several queues calls [`on_idle`](Law::on_idle) until this is so.
    fn is_quiescent(&self, now: Time) -> bool {
        true
    }

    /// Returns when [`handle_timeout`](Law::handle_timeout) must be called next; `None` if the law
    /// keeps no clock.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// Runs the ticks that are due at `now`, with this queue. The work is bounded however late the
    /// call is: see [`clock`](crate::clock).
    fn handle_timeout(&mut self, now: Time, q: &QueueView) {}

    /// Moves the set-point while traffic runs and keeps all other state. Returns false if the law
    /// cannot.
    fn set_point(&mut self, set_point: SetPoint) -> bool {
        false
    }

    /// Reports state variables by name ("p", "average", …) for plots. A law always reports the same
    /// names.
    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {}
}

/// The interface of a law to the fluid model, in addition to its hooks for packets. For a law that
/// implements none of it, the fluid model calls the packet hooks one by one and counts the
/// verdicts.
#[allow(unused_variables, reason = "names say what a default leaves alone")]
pub trait FluidLaw {
    /// Processes many packets at once. [`intensity`](FluidLaw::intensity) must afterwards be what
    /// it would be after the packet hooks had been called for each of them. Returns false if the
    /// law cannot, and the packet hooks must be called.
    fn take_fluid(&mut self, step: &FluidStep) -> bool {
        false
    }

    /// Returns the expected signals per arriving packet; `None` if the law has no such number.
    fn intensity(&self, q: &QueueView) -> Option<f64> {
        None
    }

    /// Returns the probability that an ECT(1) packet is marked when a classic packet is signalled
    /// with probability `classic`. The two differ for coupled laws only (RFC 9332 section 2.1).
    fn marks_l4s(&self, classic: f64) -> f64 {
        classic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> QueueView {
        // 30 packets of 500 bytes at 8 Mbit/s.
        QueueView::busy(30, 500, 100, Rate::from_bps(8_000_000))
    }

    fn site() -> Site {
        Site {
            rate: Rate::from_bps(1),
            buffer_pkts: 100.0,
            packet: Bytes(1000),
        }
    }

    /// Each of n arrivals moves the average by the weight of its distance to the queue, which rises
    /// evenly from the first to the last length.
    #[test]
    fn an_average_over_a_step_is_that_of_its_arrivals_one_by_one() {
        for weight in [1e-6, 0.002, 0.3, 0.999, 1.0] {
            for arrivals in [0, 1, 2, 7, 1000] {
                for queue_pkts in [[20.0, 50.0], [50.0, 20.0], [30.0, 30.0]] {
                    let step = FluidStep {
                        end: Time::from_nanos(1_000_000),
                        queue_pkts,
                        arrivals,
                        departures: 3,
                        missed: 0,
                        packet: PacketMeta {
                            flow: 0,
                            bytes: 500,
                            ecn: Ecn::NotEct,
                            signal: Signal::Drop,
                            tcp: true,
                            sojourn: Span::ZERO,
                        },
                        view: view(),
                    };
                    let [first, last] = queue_pkts;
                    let mut average = 12.0;
                    for i in 1..=arrivals {
                        let queue = first + (last - first) * f64::from(i) / f64::from(arrivals);
                        average += weight * (queue - average);
                    }
                    let actual = step.averaged(12.0, weight);
                    assert!(
                        (actual - average).abs() < 1e-8,
                        "{weight} {arrivals}: {actual} {average}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_law_counts_packets_or_bytes_in_units_of_the_usual_packet() {
        let (packets, bytes) = (Scale::new(&site(), false), Scale::new(&site(), true));
        assert_eq!(
            (packets.queue_pkts(&view()), bytes.queue_pkts(&view())),
            (30.0, 15.0)
        );
        assert_eq!(
            (packets.packet_pkts(1500), bytes.packet_pkts(1500)),
            (1.0, 1.5)
        );
    }

    /// At 8 Mbit/s a packet of 1000 bytes takes a millisecond; the rate is that of the link now,
    /// and not that of the site.
    #[test]
    fn a_target_is_converted_at_the_current_rate() {
        let mut target = Target::new(SetPoint::Packets(25.0), &site());
        assert_eq!(target.pkts(&view()), 25.0);
        assert_eq!(target.delay(&view()), Span::from_millis(25));
        assert!(target.move_to(SetPoint::Delay(Span::from_millis(40))));
        assert_eq!(target.pkts(&view()), 40.0);
        assert_eq!(target.delay(&view()), Span::from_millis(40));
    }
}
