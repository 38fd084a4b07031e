//! The dual queue with coupled AQM (RFC 9332): scalable traffic has a queue of its own. It is
//! marked by a step in the sojourn time, and in proportion to the square root of the classic
//! queue's signal probability, so that flows of both kinds get similar rates. Details follow RFC
//! 9332 appendix A, and Linux's net/sched/sch_dualpi2.c where the RFC leaves a choice.

use std::collections::VecDeque;

use forebay_linux_tc::{Tc, TcSite};
use forebay_units::{params, Buffer, ParamError, QueueSite, Rate, Rng, SetPoint, Span, Time};

use crate::band::Band;
use crate::discipline::{
    Departure, Dequeued, Discipline, DisciplineParams, DropReason, LawFactory, Packet, Sink,
};
use crate::law::{Ecn, OtherQueues};

params! {
    /// The law decides on packets of the classic queue; its signals per packet, p_C, give those of
    /// the low latency queue: k √p_C. Packets of ECT(1) and CE go to the latter.
    pub struct DualPi2Params {
        /// Coupling factor k (RFC 9332, section 2.1).
        coupling: f64 = 2.0, 0.1 => 100.0;
        /// Sojourn time above which the low latency queue marks every packet (RFC 9332, section
        /// 2.4).
        step: Span = Span::from_millis(1), 0.0 => 10.0;
        /// Sojourn time by which the share of marks grows from nothing to one, above `step`; 0 is
        /// the step itself (RFC 9332, appendix A.1).
        ramp: Span = Span::ZERO, 0.0 => 10.0;
        /// Packets that the low latency queue holds at an arrival before the step can mark it, so
        /// that a slow link may hold two; Linux's default is 0.
        step_least: u32 = 2, 0.0 => 1e6;
        /// Packets of ECT(0) go to the low latency queue as well.
        any_ect: bool = false;
        /// Share of the link that the classic queue keeps while both hold packets (RFC 9332,
        /// section 4.2.2).
        classic_share: f64 = 0.1, 0.0 => 1.0;
        /// In overload, where k √p_C reaches 1: drop packets of both queues (true), or only mark
        /// those of the low latency queue (false) (RFC 9332, section 4.2.3).
        drop_overload: bool = true;
    }
}

impl DisciplineParams for DualPi2Params {
    const KIND: &'static str = "dualpi2";
    const TITLE: &'static str = "A classic queue under a law, coupled with a queue for L4S";
    const SOURCE: &'static str = "RFC 9332; Linux tc-dualpi2(8)";

    fn build<P: Packet + Send + 'static>(
        &self,
        site: &QueueSite,
        mut laws: LawFactory,
    ) -> Result<Box<dyn Discipline<P>>, ParamError> {
        let rng = Rng::new(laws.salt(), "low latency");
        Ok(Box::new(DualPi2 {
            params: self.clone(),
            site: *site,
            classic: Band::new(site, &mut laws)?,
            low: VecDeque::new(),
            low_bytes: 0,
            credit: self.first_credit(site),
            rng,
        }))
    }

    fn tc(&self, tc: &mut Tc, _site: &TcSite) -> Result<(), ParamError> {
        tc.defaults(self, &["ramp"])?;
        let coupling = tc.steps("coupling", self.coupling, 1.0, 255.0)?;
        tc.pair("coupling_factor", coupling);
        tc.time("step_thresh", "step", self.step);
        tc.pair("min_qlen_step", self.step_least);
        tc.word(match self.any_ect {
            true => "any_ect",
            false => "l4s_ect",
        });
        let percent = tc.steps("classic_share", self.classic_share, 100.0, 1.0)?;
        tc.pair("classic_protection", format!("{percent}%"));
        tc.word(match self.drop_overload {
            true => "drop_on_overload",
            false => "overflow",
        });
        Ok(())
    }
}

impl DualPi2Params {
    /// Returns the scheduler's initial credit, by which the queue with the larger share goes first.
    fn first_credit(&self, site: &QueueSite) -> f64 {
        (2.0 * self.classic_share - 1.0) * site.packet.0 as f64
    }

    /// Returns the marking probability that the low latency queue's own sojourn time asks for: p'_L
    /// of RFC 9332 appendix A.1.
    fn native(&self, sojourn: Span) -> f64 {
        let over_s = sojourn.as_secs_f64() - self.step.as_secs_f64();
        if over_s <= 0.0 {
            0.0
        } else {
            over_s / self.ramp.as_secs_f64().max(f64::MIN_POSITIVE)
        }
    }
}

/// The class of departures from the low latency queue.
const LOW: u8 = 0;
/// The class of departures from the classic queue.
const CLASSIC: u8 = 1;

/// A packet in the low latency queue.
struct Waiting<P> {
    packet: P,
    since: Time,
    /// True if the step may mark the packet.
    step_applies: bool,
}

struct DualPi2<P> {
    params: DualPi2Params,
    site: QueueSite,
    classic: Band<P>,
    low: VecDeque<Waiting<P>>,
    low_bytes: u64,
    /// The scheduler's credit: the low latency queue sends while it is not above zero.
    credit: f64,
    rng: Rng,
}

impl<P: Packet + Send> DualPi2<P> {
    /// Returns the coupled marking probability of the low latency queue, p_CL = k p', where p' is
    /// the square root of the classic law's probability (RFC 9332 eq. (1) and (2)).
    fn coupled(&self) -> f64 {
        self.params.coupling * self.classic.intensity().unwrap_or(0.0).max(0.0).sqrt()
    }

    /// Updates what the classic law sees of the low latency queue.
    fn see_other_queue(&mut self) {
        self.classic.set_other_queues(OtherQueues {
            bytes: self.low_bytes,
            head_since: self.low.front().map(|waiting| waiting.since),
        });
    }

    /// Passes, marks or drops a packet of the low latency queue. Returns it unless it was dropped.
    fn judge_low(&mut self, now: Time, waiting: Waiting<P>, sink: &mut dyn Sink<P>) -> Option<P> {
        self.see_other_queue();
        let Waiting {
            mut packet,
            since,
            step_applies,
        } = waiting;
        let coupled = self.coupled();
        let backlog = self.classic.len_bytes() + self.low_bytes;
        // A backlog of less than two packets gets no coupled signals.
        let coupled = match backlog < 2 * self.site.packet.0 {
            true => 0.0,
            false => coupled,
        };
        let mut marks = coupled >= 1.0 || coupled > 0.0 && self.rng.chance(coupled);
        if coupled > 1.0 && self.params.drop_overload {
            let p_c = (coupled / self.params.coupling).powi(2);
            if self.rng.chance(p_c.min(1.0)) {
                sink.dropped(now, packet, DropReason::Forced, LOW);
                return None;
            }
        }
        let native = match step_applies {
            true => self.params.native(now.since(since)),
            false => 0.0,
        };
        marks |= native >= 1.0 || native > 0.0 && self.rng.chance(native);
        if marks && packet.ecn() != Ecn::Ce {
            packet.set_ce();
            sink.marked(now, &packet, LOW);
        }
        Some(packet)
    }

    /// Removes the oldest packet of the low latency queue. Returns `None` if it was dropped, or if
    /// the queue is empty.
    fn take_low(&mut self, now: Time, sink: &mut dyn Sink<P>) -> Option<Departure<P>> {
        let waiting = self.low.pop_front()?;
        let since = waiting.since;
        self.low_bytes -= u64::from(waiting.packet.bytes());
        let packet = self.judge_low(now, waiting, sink)?;
        Some(Departure {
            packet,
            sojourn: now.since(since),
            class: LOW,
        })
    }
}

impl<P: Packet + Send> Discipline<P> for DualPi2<P> {
    fn enqueue(&mut self, now: Time, packet: P, sink: &mut dyn Sink<P>) {
        let bytes = packet.bytes();
        let has_room = self
            .site
            .buffer
            .has_room(self.len_packets(), self.len_bytes(), bytes);
        // The L4S identifier (RFC 9331 section 5). Without marking, every packet is classic.
        let low = self.site.ecn
            && match packet.ecn() {
                Ecn::Ect1 | Ecn::Ce => true,
                Ecn::Ect0 => self.params.any_ect,
                Ecn::NotEct => false,
            };
        self.see_other_queue();
        if !low {
            return self.classic.offer(now, packet, has_room, CLASSIC, sink);
        }
        if !has_room {
            return sink.dropped(now, packet, DropReason::Overflow, LOW);
        }
        self.low_bytes += u64::from(bytes);
        self.low.push_back(Waiting {
            packet,
            since: now,
            step_applies: self.low.len() as u64 >= u64::from(self.params.step_least),
        });
    }

    fn dequeue(&mut self, now: Time, sink: &mut dyn Sink<P>) -> Dequeued<P> {
        let share = self.params.classic_share;
        loop {
            let backlogged = (!self.low.is_empty(), self.classic.len_packets() > 0);
            let (departure, change) = match backlogged {
                (false, false) => {
                    self.credit = self.params.first_credit(&self.site);
                    self.classic.idle_once(now);
                    return Dequeued::Idle;
                }
                (true, classic) if !classic || self.credit <= 0.0 => {
                    let change = if classic { share } else { 0.0 };
                    (self.take_low(now, sink), change)
                }
                (low, _) => {
                    self.see_other_queue();
                    // In overload the classic queue drops instead of marking (RFC 9332 section
                    // 4.2.3).
                    let overload = self.params.drop_overload && self.coupled() > 1.0;
                    self.classic.set_ecn(self.site.ecn && !overload);
                    let change = if low { share - 1.0 } else { 0.0 };
                    (self.classic.take(now, CLASSIC, sink), change)
                }
            };
            if let Some(departure) = departure {
                self.credit += change * f64::from(departure.packet.bytes());
                return Dequeued::Packet(departure);
            }
        }
    }

    fn drain(&mut self, give: &mut dyn FnMut(P)) {
        self.low_bytes = 0;
        self.low.drain(..).for_each(|waiting| give(waiting.packet));
        self.classic.drain(give);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.classic.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.see_other_queue();
        self.classic.handle_timeout(now);
    }

    fn len_packets(&self) -> u32 {
        let low = u32::try_from(self.low.len()).expect("fewer packets than a u32 counts");
        self.classic.len_packets() + low
    }

    fn len_bytes(&self) -> u64 {
        self.classic.len_bytes() + self.low_bytes
    }

    fn set_rate(&mut self, rate: Rate) {
        self.site.rate = rate;
        self.classic.set_rate(rate);
    }

    fn set_buffer(&mut self, buffer: Buffer) {
        self.site.buffer = buffer;
        self.classic.set_buffer(buffer);
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.classic.set_point(set_point)
    }

    /// Reports the classic law's state, the low latency backlog and the coupled probability.
    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("low_packets", self.low.len() as f64);
        out("p_coupled", self.coupled());
        self.classic.probe(out);
    }

    fn classes(&self) -> &'static [&'static str] {
        &["l4s", "classic"]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discipline::testing::buffer_of;
    use crate::law::{FluidLaw, Law, PacketMeta, QueueView, Verdict};
    use forebay_units::Params;
    use std::sync::Arc;

    #[derive(Clone, Copy)]
    struct Sent(Ecn);

    impl Packet for Sent {
        fn bytes(&self) -> u32 {
            1000
        }
        fn flow(&self) -> u64 {
            0
        }
        fn ecn(&self) -> Ecn {
            self.0
        }
        fn dscp(&self) -> u8 {
            0
        }
        fn set_ce(&mut self) {
            self.0 = Ecn::Ce;
        }
    }

    #[derive(Default)]
    struct Count {
        dropped: u32,
        marked: u32,
    }

    impl Sink<Sent> for Count {
        fn dropped(&mut self, _: Time, _: Sent, _: DropReason, _: u8) {
            self.dropped += 1;
        }
        fn marked(&mut self, _: Time, _: &Sent, _: u8) {
            self.marked += 1;
        }
    }

    /// A law that signals with a constant probability.
    struct Always(f64);

    impl Law for Always {
        fn on_dequeue(&mut self, _: Time, _: &QueueView, _: &PacketMeta, rng: &mut Rng) -> Verdict {
            match rng.chance(self.0) {
                true => Verdict::Signal,
                false => Verdict::Pass,
            }
        }
    }

    impl FluidLaw for Always {
        fn intensity(&self, _: &QueueView) -> Option<f64> {
            Some(self.0)
        }
    }

    fn queue(params: &DualPi2Params, p_c: f64) -> Box<dyn Discipline<Sent>> {
        let (site, _) = buffer_of(100_000);
        let make = move |_: &forebay_units::Site, _: u64| Ok(Box::new(Always(p_c)) as Box<dyn Law>);
        params
            .build(&site, LawFactory::new(Arc::new(make), 1, "law"))
            .unwrap()
    }

    fn fill(queue: &mut dyn Discipline<Sent>, ecn: Ecn, packets: u32) -> Count {
        let mut count = Count::default();
        for _ in 0..packets {
            queue.enqueue(Time::ZERO, Sent(ecn), &mut count);
        }
        count
    }

    #[test]
    fn the_low_latency_queue_is_marked_with_k_times_the_root() {
        let never = DualPi2Params {
            step: Span::from_secs(1),
            ..DualPi2Params::defaults()
        };
        let mut q = queue(&never, 0.01);
        let mut count = fill(&mut *q, Ecn::Ect1, 50_000);
        while let Dequeued::Packet(_) = q.dequeue(Time::ZERO, &mut count) {}
        // 2 √0.01 = 0.2.
        let share = f64::from(count.marked) / 50_000.0;
        assert!((share - 0.2).abs() < 0.01, "{share}");
        assert_eq!(count.dropped, 0);
    }

    #[test]
    fn the_step_marks_packets_that_waited_longer() {
        let mut q = queue(&DualPi2Params::defaults(), 0.0);
        let mut count = fill(&mut *q, Ecn::Ect1, 10);
        let at = |us: u64| Time::ZERO + Span::from_micros(us);
        for us in [0, 1000, 1001, 5000] {
            let Dequeued::Packet(_) = q.dequeue(at(us), &mut count) else {
                panic!("a packet");
            };
        }
        assert_eq!(count.marked, 2);
    }

    #[test]
    fn the_classic_queue_keeps_its_share() {
        let mut q = queue(&DualPi2Params::defaults(), 0.0);
        let mut count = fill(&mut *q, Ecn::Ect1, 1000);
        fill(&mut *q, Ecn::NotEct, 1000);
        let mut classic = 0;
        for _ in 0..1000 {
            let Dequeued::Packet(departure) = q.dequeue(Time::ZERO, &mut count) else {
                panic!("a packet");
            };
            classic += u32::from(departure.class == CLASSIC);
        }
        assert!((95..=105).contains(&classic), "{classic}");
    }

    #[test]
    fn overload_drops_packets_of_both_queues() {
        // p' = 0.7, so that k p' is 1.4.
        let mut q = queue(&DualPi2Params::defaults(), 0.49);
        let mut count = fill(&mut *q, Ecn::Ect1, 10_000);
        while let Dequeued::Packet(_) = q.dequeue(Time::ZERO, &mut count) {}
        let share = f64::from(count.dropped) / 10_000.0;
        assert!((share - 0.49).abs() < 0.02, "{share}");
        // Classic ECN-capable packets are dropped as well.
        let mut count = fill(&mut *q, Ecn::Ect0, 10_000);
        while let Dequeued::Packet(_) = q.dequeue(Time::ZERO, &mut count) {}
        assert_eq!(count.marked, 0);
        assert!(count.dropped > 4500, "{}", count.dropped);
    }

    /// Linux starts with the difference of the two shares, in packets: with a classic share of a
    /// tenth the low latency queue has nine tenths, and is 0.8 packets ahead.
    #[test]
    fn the_queue_with_the_larger_share_starts_ahead_by_the_difference_of_the_shares() {
        let (site, _) = buffer_of(10);
        for (classic_share, credit) in [(0.1, -800.0), (0.5, 0.0), (0.9, 800.0)] {
            let params = DualPi2Params {
                classic_share,
                ..DualPi2Params::defaults()
            };
            assert!(
                (params.first_credit(&site) - credit).abs() < 1e-9,
                "{classic_share}"
            );
        }
    }
}
