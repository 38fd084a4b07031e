//! A FIFO under one law. Disciplines are made of it.

use forebay_units::{Buffer, ParamError, QueueSite, Rate, Ring, SetPoint, Span, Time};

use crate::discipline::{Departure, DropReason, LawFactory, Packet, Sink};
use crate::law::{Ecn, Others, PacketMeta, QueueView, Signal, Verdict};
use crate::law_driver::LawDriver;

/// A FIFO under one law. The discipline that it is part of says whether an arrival has room, and
/// when a packet may leave.
pub struct Band<P> {
    queue: Ring<(P, Time)>,
    /// The queue as the law sees it, kept up to date: no packet has to build it.
    view: QueueView,
    buffer: Buffer,
    /// Whether a signal may be a CE mark.
    ecn: bool,
    law: LawDriver,
}

impl<P: Packet> Band<P> {
    /// An empty queue under the factory's next law, idle since the start.
    ///
    /// # Errors
    /// A parameter of the law that does not fit the others or the queue.
    pub fn new(site: &QueueSite, laws: &mut LawFactory) -> Result<Band<P>, ParamError> {
        let (law, rng) = laws.build(&site.law_site())?;
        Ok(Band {
            queue: Ring::new(),
            view: QueueView {
                idle_since: Some(Time::ZERO),
                ..QueueView::busy(0, 0, limit_packets(site.buffer), site.rate)
            },
            buffer: site.buffer,
            ecn: site.ecn,
            law: LawDriver::new(law, rng),
        })
    }

    #[inline(always)]
    fn meta(&self, packet: &P, sojourn: Span) -> PacketMeta {
        let ecn = packet.ecn();
        PacketMeta {
            bytes: packet.bytes(),
            flow: packet.flow(),
            ecn,
            // An ECN-capable packet is marked instead of dropped (RFC 3168 section 5).
            signal: if self.ecn && ecn != Ecn::NotEct {
                Signal::Mark
            } else {
                Signal::Drop
            },
            tcp: packet.tcp(),
            sojourn,
        }
    }

    /// As [`Law::costs_arrivals`](crate::Law::costs_arrivals).
    pub fn costs_arrivals(&self) -> bool {
        self.law.costs_arrivals()
    }

    /// Whether a packet of this size fits into the buffer beside what is here.
    #[inline]
    pub fn has_room(&self, bytes: u32) -> bool {
        self.buffer
            .has_room(self.view.packets, self.view.bytes, bytes)
    }

    /// Acts on a verdict: the packet if it goes on, marked if need be.
    #[inline(always)]
    fn act(
        verdict: Verdict,
        signal: Signal,
        now: Time,
        mut packet: P,
        class: u8,
        sink: &mut dyn Sink<P>,
    ) -> Option<P> {
        match verdict {
            Verdict::Pass => return Some(packet),
            Verdict::Signal if signal == Signal::Mark => {
                packet.set_ce();
                sink.marked(now, &packet, class);
                return Some(packet);
            }
            Verdict::Signal => sink.dropped(now, packet, DropReason::Early, class),
            Verdict::Drop => sink.dropped(now, packet, DropReason::Forced, class),
        }
        None
    }

    /// The law judges an arrival of `class`, also one that finds no room: RED's average counts it.
    #[inline(always)]
    pub fn offer(
        &mut self,
        now: Time,
        packet: P,
        has_room: bool,
        class: u8,
        sink: &mut dyn Sink<P>,
    ) {
        if !has_room {
            return self.overflow(now, packet, class, sink);
        }
        let bytes = packet.bytes();
        let mut kept = true;
        if self.law.watches_arrivals() {
            let meta = self.meta(&packet, Span::ZERO);
            // In its place before it is judged: it stays there as a rule, and need not be kept at
            // hand while the law is called, which sees the view alone.
            self.queue.push((packet, now));
            let verdict = self.law.arrive(now, &self.view, &meta, true);
            if verdict != Verdict::Pass {
                kept = self.signal_newest(verdict, meta.signal, now, class, sink);
            }
        } else {
            self.queue.push((packet, now));
        }
        let view = &mut self.view;
        if kept {
            view.idle_since = None;
            view.bytes += u64::from(bytes);
            view.packets += 1;
            view.head_since = view.head_since.or(Some(now));
        } else {
            self.stay_idle(now);
        }
    }

    /// An arrival that finds no room.
    #[inline(never)]
    fn overflow(&mut self, now: Time, packet: P, class: u8, sink: &mut dyn Sink<P>) {
        let meta = self.meta(&packet, Span::ZERO);
        self.law.arrive(now, &self.view, &meta, false);
        sink.dropped(now, packet, DropReason::Overflow, class);
        self.stay_idle(now);
    }

    /// Acts on a verdict about the packet that came last; whether it stays.
    #[inline(never)]
    fn signal_newest(
        &mut self,
        verdict: Verdict,
        signal: Signal,
        now: Time,
        class: u8,
        sink: &mut dyn Sink<P>,
    ) -> bool {
        let kept = (self.queue.pop_last())
            .and_then(|(packet, _)| Self::act(verdict, signal, now, packet, class, sink));
        kept.map(|packet| self.queue.push((packet, now))).is_some()
    }

    /// No packet has been let in: an idle link stays idle, and what came before `now` the law has
    /// accounted for.
    #[inline(always)]
    fn stay_idle(&mut self, now: Time) {
        self.view.idle_since = self.view.idle_since.map(|_| now);
    }

    /// The oldest packet that the law lets go, as one of `class`.
    #[inline(always)]
    pub fn take(&mut self, now: Time, class: u8, sink: &mut dyn Sink<P>) -> Option<Departure<P>> {
        while let Some(&(packet, since)) = self.queue.get(0) {
            self.queue.pop();
            let sojourn = now.since(since);
            self.view.packets -= 1;
            self.view.bytes -= u64::from(packet.bytes());
            self.view.head_since = self.queue.get(0).map(|(_, since)| *since);
            let kept = match self.law.watches_departures() {
                true => {
                    let meta = self.meta(&packet, sojourn);
                    let verdict = self.law.depart(now, &self.view, &meta);
                    Self::act(verdict, meta.signal, now, packet, class, sink)
                }
                false => Some(packet),
            };
            if let Some(packet) = kept {
                return Some(Departure {
                    packet,
                    sojourn,
                    class,
                });
            }
        }
        None
    }

    /// Tells the law what waits for the link besides this band.
    pub fn set_others(&mut self, others: Others) {
        self.view.others = others;
    }

    /// Whether a signal may be a CE mark from now on.
    pub fn set_ecn(&mut self, ecn: bool) {
        self.ecn = ecn;
    }

    /// Expected signals per packet, where the law can say.
    pub fn intensity(&self) -> Option<f64> {
        self.law.intensity(&self.view)
    }

    /// The oldest packet, unjudged, to make room for another.
    pub fn pop_oldest(&mut self) -> Option<P> {
        let (packet, _) = *self.queue.get(0)?;
        self.queue.pop();
        self.view.packets -= 1;
        self.view.bytes -= u64::from(packet.bytes());
        self.view.head_since = self.queue.get(0).map(|(_, since)| *since);
        Some(packet)
    }

    /// The newest packet, unjudged, to make room for another.
    pub fn pop_newest(&mut self) -> Option<P> {
        let (packet, _) = self.queue.pop_last()?;
        self.view.packets -= 1;
        self.view.bytes -= u64::from(packet.bytes());
        if self.queue.is_empty() {
            self.view.head_since = None;
        }
        Some(packet)
    }

    /// The packet `ahead` places behind the oldest.
    pub fn packet(&self, ahead: usize) -> Option<&P> {
        self.queue.get(ahead).map(|(packet, _)| packet)
    }

    /// Takes that packet out, unjudged.
    pub fn remove(&mut self, ahead: usize) -> Option<P> {
        let (packet, _) = self.queue.remove(ahead)?;
        self.view.packets -= 1;
        self.view.bytes -= u64::from(packet.bytes());
        self.view.head_since = self.queue.get(0).map(|(_, since)| *since);
        Some(packet)
    }

    /// Tells the law that this many of its oldest packets made room for others.
    pub fn trimmed(&mut self, now: Time, packets: u32) {
        self.law.on_trim(now, &self.view, packets);
    }

    /// Whether the law has nothing left to decay while this is empty.
    pub fn rests(&self, now: Time) -> bool {
        self.law.rests(now)
    }

    /// The link found nothing to send here.
    pub fn idle(&mut self, now: Time) {
        self.view.idle_since = Some(now);
        self.law.on_idle(now, &self.view);
    }

    /// The link found nothing to send here, and may have been told so before.
    pub fn run_dry(&mut self, now: Time) {
        if self.view.idle_since.is_none() {
            self.idle(now);
        }
    }

    /// Gives up every packet unjudged, the oldest first.
    pub fn drain(&mut self, give: &mut dyn FnMut(P)) {
        (self.view.packets, self.view.bytes) = (0, 0);
        self.view.head_since = None;
        while let Some(&(packet, _)) = self.queue.get(0) {
            self.queue.pop();
            give(packet);
        }
    }

    pub fn poll_timeout(&self) -> Option<Time> {
        self.law.poll_timeout()
    }

    pub fn handle_timeout(&mut self, now: Time) {
        self.law.handle_timeout(now, &self.view);
    }

    pub fn len_packets(&self) -> u32 {
        self.view.packets
    }

    pub fn len_bytes(&self) -> u64 {
        self.view.bytes
    }

    pub fn set_rate(&mut self, rate: Rate) {
        self.view.rate = rate;
    }

    /// The buffer as the law sees it.
    pub fn set_buffer(&mut self, buffer: Buffer) {
        self.buffer = buffer;
        self.view.limit_packets = limit_packets(buffer);
    }

    pub fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.law.set_point(set_point)
    }

    /// Named inner values of the law.
    pub fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        self.law.probe(out);
    }
}

/// The limit in packets, as a law is told it.
fn limit_packets(buffer: Buffer) -> u32 {
    match buffer {
        Buffer::Packets(limit) => limit,
        Buffer::Bytes(_) => u32::MAX,
    }
}
