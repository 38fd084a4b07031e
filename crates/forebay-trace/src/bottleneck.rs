//! A bottleneck: a discipline, the transmitter that it feeds, and the recorder that observes both.
//! The same code runs in virtual time and in real time; the caller decides what happens to packets
//! that leave the link.

use forebay_aqm::{Capacity, DropReason, Packet, Queue, Sink, Transmission, Transmitter};
use forebay_units::{Rate, Time};

use crate::recorder::{Recorder, Settings};

/// A queue and its link, recorded. The sink `S` also receives the packets that the discipline drops
/// or marks.
pub struct Bottleneck<P, S> {
    /// The queue.
    pub discipline: Queue<P>,
    /// The link.
    pub transmitter: Transmitter,
    /// The recorder and the sink.
    pub record: Record<S>,
    capacity: Capacity,
    /// Bits that a recorded link could have carried when the capacity was last accounted.
    carried_bits: u64,
}

/// A sink that records dropped and marked packets and passes them on to another sink.
pub struct Record<S> {
    /// The recorder.
    pub recorder: Recorder,
    /// The sink to which packets are passed on.
    pub sink: S,
}

impl<P: Packet, S: Sink<P>> Sink<P> for Record<S> {
    fn dropped(&mut self, now: Time, packet: P, why: DropReason, class: u8) {
        self.recorder.dropped(now, why, class);
        if let Some(traffic) = self.recorder.traffic(now, packet.traffic()) {
            traffic.dropped_packets += 1;
        }
        self.sink.dropped(now, packet, why, class);
    }

    fn marked(&mut self, now: Time, packet: &P, class: u8) {
        self.recorder.marked(now, class);
        if let Some(traffic) = self.recorder.traffic(now, packet.traffic()) {
            traffic.marked_packets += 1;
        }
        self.sink.marked(now, packet, class);
    }
}

impl<P: Packet + Send + 'static, S: Sink<P>> Bottleneck<P, S> {
    /// Returns an idle bottleneck of this capacity.
    pub fn new(
        discipline: Queue<P>,
        settings: Settings,
        capacity: Capacity,
        sink: S,
    ) -> Bottleneck<P, S> {
        let capacity = capacity.behind(&*discipline);
        let mut recorder = Recorder::new(settings, capacity.steady_rate());
        recorder.tell_apart(discipline.classes());
        Bottleneck {
            discipline,
            transmitter: Transmitter::new(&capacity),
            record: Record { recorder, sink },
            capacity,
            carried_bits: 0,
        }
    }

    /// Returns the capacity of the link.
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// Returns the time at which [`send_next`](Self::send_next) must be called next.
    #[inline]
    pub fn due(&self) -> Time {
        self.transmitter.due()
    }

    /// Queues an arriving packet. Returns true if the link is free, so the caller must call
    /// [`send_next`](Self::send_next) at once.
    #[inline(always)]
    pub fn arrive(&mut self, now: Time, packet: P) -> bool {
        self.record.recorder.arrived();
        self.discipline.enqueue(now, packet, &mut self.record);
        self.transmitter.arrived(now)
    }

    /// Takes the next packet from the queue onto the link. Call it at [`due`](Self::due), or at an
    /// arrival.
    #[inline(always)]
    pub fn send_next(&mut self, now: Time) -> Option<Transmission<P>> {
        let sent = (self.transmitter).ask(now, &mut self.discipline, &mut self.record)?;
        let departure = &sent.departure;
        let bytes = departure.packet.bytes();
        let recorder = &mut self.record.recorder;
        recorder.departed(now, bytes, departure.sojourn, departure.class);
        if let Some(traffic) = recorder.traffic(now, departure.packet.traffic()) {
            traffic.left(departure.sojourn);
        }
        Some(sent)
    }

    /// Changes the rate from `now` on; the rest of the packet being sent leaves at the new rate.
    ///
    /// Returns the time at which the last bit of that packet leaves, like
    /// [`Transmitter::set_rate`].
    pub fn set_rate(&mut self, now: Time, rate: Rate) -> Option<Time> {
        self.account(now);
        self.carried_bits = 0;
        self.capacity.set_rate(rate);
        let out = self.transmitter.set_rate(now, rate);
        self.discipline.set_rate(rate);
        self.record.recorder.rate_changed(now, rate);
        out
    }

    /// Replaces the discipline; the packets of the former one are queued in the new one.
    pub fn set_discipline(&mut self, now: Time, next: Queue<P>) {
        let mut former = std::mem::replace(&mut self.discipline, next);
        let Bottleneck {
            discipline, record, ..
        } = self;
        record.recorder.tell_apart(discipline.classes());
        former.drain(&mut |packet| discipline.enqueue(now, packet, record));
    }

    /// Ends a row of samples. `more` reports values in addition to those of the discipline.
    pub fn sample(&mut self, now: Time, more: impl FnOnce(&mut dyn FnMut(&'static str, f64))) {
        self.account(now);
        let discipline = &self.discipline;
        self.record.recorder.sample(
            now,
            discipline.len_packets(),
            discipline.len_bytes(),
            |out| {
                discipline.probe(out);
                more(out);
            },
        );
    }

    /// Adds to the record the bits that a recorded link could have carried since the last call.
    fn account(&mut self, now: Time) {
        let bits = self.capacity.recorded_bits(now);
        self.record
            .recorder
            .could_carry((bits - self.carried_bits) as f64);
        self.carried_bits = bits;
    }
}
