//! A FIFO under one law: the building block of every discipline.

use forebay_units::{Buffer, ParamError, QueueSite, Rate, Ring, SetPoint, Span, Time};

use crate::discipline::{Departure, DropReason, LawFactory, Packet, Sink};
use crate::law::{Ecn, OtherQueues, PacketMeta, QueueView, Signal, Verdict};
use crate::law_driver::LawDriver;

/// A FIFO under one law. The discipline that owns it decides whether an arrival fits into the
/// buffer and when a packet may leave.
pub struct Band<P> {
    queue: Ring<(P, Time)>,
    /// The law's view of the queue. It is kept up to date, so that no packet has to build it.
    view: QueueView,
    buffer: Buffer,
    /// True if a signal may be a CE mark.
    ecn: bool,
    law: LawDriver,
}

impl<P: Packet> Band<P> {
    /// Builds an empty queue, idle since time zero, under the factory's next law.
    ///
    /// # Errors
    /// If a parameter of the law is inconsistent with the others or with the queue.
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

    /// Returns the properties of a packet that the law can see. `marks` is true if a signal may be
    /// a CE mark.
    #[inline(always)]
    fn meta(marks: bool, packet: &P, sojourn: Span) -> PacketMeta {
        PacketMeta {
            bytes: packet.bytes(),
            flow: packet.flow(),
            ecn: packet.ecn(),
            signal: Self::signal(marks, packet),
            tcp: packet.tcp(),
            sojourn,
        }
    }

    /// Returns how congestion is signalled on a packet: an ECN-capable one is marked instead of
    /// dropped (RFC 3168 section 5).
    #[inline(always)]
    fn signal(marks: bool, packet: &P) -> Signal {
        match marks && packet.ecn() != Ecn::NotEct {
            true => Signal::Mark,
            false => Signal::Drop,
        }
    }

    /// Returns true if a full buffer drops the arrival: see
    /// [`Law::drops_arrival_when_full`](crate::Law::drops_arrival_when_full).
    pub fn drops_arrival_when_full(&self) -> bool {
        self.law.drops_arrival_when_full()
    }

    /// Returns true if a packet of this size fits into the buffer with the packets held now.
    #[inline]
    pub fn has_room(&self, bytes: u32) -> bool {
        self.buffer
            .has_room(self.view.packets, self.view.bytes, bytes)
    }

    /// Carries out a verdict. Returns the packet, marked if the verdict asks for it, or `None` if
    /// it was dropped.
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

    /// Offers an arrival of `class` to the law. An arrival that finds the buffer full is decided on
    /// too, because RED's average counts it.
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
        // The packet joins the queue before the law decides on it, because most packets pass. The
        // law sees only the view, which does not count the packet yet.
        self.queue.push((packet, now));
        let mut is_queued = true;
        if self.law.watches_arrivals() {
            let meta = || Self::meta(self.ecn, &packet, Span::ZERO);
            let verdict = self.law.judge_arrival(now, &self.view, meta);
            if verdict != Verdict::Pass {
                is_queued = self.signal_newest(verdict, now, class, sink);
            }
        }
        let view = &mut self.view;
        if is_queued {
            view.idle_since = None;
            view.bytes += u64::from(bytes);
            view.packets += 1;
            if view.head_since.is_none() {
                view.head_since = Some(now);
            }
        } else {
            self.stay_idle(now);
        }
    }

    /// Drops an arrival that finds the buffer full.
    #[inline(never)]
    fn overflow(&mut self, now: Time, packet: P, class: u8, sink: &mut dyn Sink<P>) {
        let meta = Self::meta(self.ecn, &packet, Span::ZERO);
        self.law.arrive(now, &self.view, &meta, false);
        sink.dropped(now, packet, DropReason::Overflow, class);
        self.stay_idle(now);
    }

    /// Carries out a verdict on the newest packet. Returns true if the packet stays in the queue.
    #[inline(never)]
    fn signal_newest(
        &mut self,
        verdict: Verdict,
        now: Time,
        class: u8,
        sink: &mut dyn Sink<P>,
    ) -> bool {
        let marks = self.ecn;
        let packet = self.queue.pop_last().and_then(|(packet, _)| {
            let signal = Self::signal(marks, &packet);
            Self::act(verdict, signal, now, packet, class, sink)
        });
        packet
            .map(|packet| self.queue.push((packet, now)))
            .is_some()
    }

    /// Moves the start of the idle time to `now`: no packet has joined the queue, so an idle link
    /// stays idle, and the law has accounted for the idle time before `now`.
    #[inline(always)]
    fn stay_idle(&mut self, now: Time) {
        self.view.idle_since = self.view.idle_since.map(|_| now);
    }

    /// Removes and returns the oldest packet that the law does not drop, as a departure of `class`.
    #[inline(always)]
    pub fn take(&mut self, now: Time, class: u8, sink: &mut dyn Sink<P>) -> Option<Departure<P>> {
        while let Some(&(packet, since)) = self.queue.get(0) {
            self.queue.pop();
            let sojourn = now.since(since);
            self.view.packets -= 1;
            self.view.bytes -= u64::from(packet.bytes());
            self.view.head_since = self.queue.get(0).map(|(_, since)| *since);
            let packet = match self.law.watches_departures() {
                true => {
                    let meta = Self::meta(self.ecn, &packet, sojourn);
                    let verdict = self.law.depart(now, &self.view, &meta);
                    Self::act(verdict, meta.signal, now, packet, class, sink)
                }
                false => Some(packet),
            };
            if let Some(packet) = packet {
                return Some(Departure {
                    packet,
                    sojourn,
                    class,
                });
            }
        }
        None
    }

    /// Sets what the law sees of the other queues that wait for the same link.
    pub fn set_other_queues(&mut self, other_queues: OtherQueues) {
        self.view.other_queues = other_queues;
    }

    /// Sets whether a signal may be a CE mark from now on.
    pub fn set_ecn(&mut self, ecn: bool) {
        self.ecn = ecn;
    }

    /// Returns the expected signals per packet; `None` if the law has no such number.
    pub fn intensity(&self) -> Option<f64> {
        self.law.intensity(&self.view)
    }

    /// Removes and returns the oldest packet without asking the law, to free buffer space.
    pub fn pop_oldest(&mut self) -> Option<P> {
        let (packet, _) = *self.queue.get(0)?;
        self.queue.pop();
        self.view.packets -= 1;
        self.view.bytes -= u64::from(packet.bytes());
        self.view.head_since = self.queue.get(0).map(|(_, since)| *since);
        Some(packet)
    }

    /// Removes and returns the newest packet without asking the law, to free buffer space.
    pub fn pop_newest(&mut self) -> Option<P> {
        let (packet, _) = self.queue.pop_last()?;
        self.view.packets -= 1;
        self.view.bytes -= u64::from(packet.bytes());
        if self.queue.is_empty() {
            self.view.head_since = None;
        }
        Some(packet)
    }

    /// Returns the packet at `position`, counted from the oldest, which is at 0.
    pub fn packet(&self, position: usize) -> Option<&P> {
        self.queue.get(position).map(|(packet, _)| packet)
    }

    /// Removes the packet at `position`, counted from the oldest, without asking the law.
    pub fn remove(&mut self, position: usize) -> Option<P> {
        let (packet, _) = self.queue.remove(position)?;
        self.view.packets -= 1;
        self.view.bytes -= u64::from(packet.bytes());
        self.view.head_since = self.queue.get(0).map(|(_, since)| *since);
        Some(packet)
    }

    /// Informs the law that this many of its oldest packets were dropped to free buffer space.
    pub fn trimmed(&mut self, now: Time, packets: u32) {
        self.law.on_trim(now, &self.view, packets);
    }

    /// Returns true if nothing in the law decays any more while the queue is empty.
    pub fn is_quiescent(&self, now: Time) -> bool {
        self.law.is_quiescent(now)
    }

    /// Informs the law that the link found the queue empty.
    pub fn idle(&mut self, now: Time) {
        self.view.idle_since = Some(now);
        self.law.on_idle(now, &self.view);
    }

    /// Calls [`idle`](Self::idle) unless the queue is idle already.
    pub fn idle_once(&mut self, now: Time) {
        if self.view.idle_since.is_none() {
            self.idle(now);
        }
    }

    /// Hands every packet to `give` without asking the law, the oldest first.
    pub fn drain(&mut self, give: &mut dyn FnMut(P)) {
        (self.view.packets, self.view.bytes) = (0, 0);
        self.view.head_since = None;
        while let Some(&(packet, _)) = self.queue.get(0) {
            self.queue.pop();
            give(packet);
        }
    }

    /// Returns when the law must be called next, if it keeps a clock.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.law.poll_timeout()
    }

    /// Runs the law's ticks that are due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.law.handle_timeout(now, &self.view);
    }

    /// Returns the number of packets in the queue.
    pub fn len_packets(&self) -> u32 {
        self.view.packets
    }

    /// Returns the number of bytes in the queue.
    pub fn len_bytes(&self) -> u64 {
        self.view.bytes
    }

    /// Sets the link's rate that the law sees.
    pub fn set_rate(&mut self, rate: Rate) {
        self.view.rate = rate;
    }

    /// Sets the buffer that bounds the queue and that the law sees.
    pub fn set_buffer(&mut self, buffer: Buffer) {
        self.buffer = buffer;
        self.view.limit_packets = limit_packets(buffer);
    }

    /// Moves the law's set-point. Returns false if the law cannot.
    pub fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.law.set_point(set_point)
    }

    /// Reports the law's state variables by name.
    pub fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        self.law.probe(out);
    }
}

/// Returns the limit in packets that a law sees: `u32::MAX` if only bytes bound the buffer.
fn limit_packets(buffer: Buffer) -> u32 {
    match buffer {
        Buffer::Packets(limit) => limit,
        Buffer::Bytes(_) => u32::MAX,
    }
}
