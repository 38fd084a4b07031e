//! A bottleneck and its record: a discipline, the transmitter that it feeds, and what is observed of
//! both. It is the same in virtual time and in real time; what becomes of packets is the caller's.

use forebay_aqm::{Capacity, DropReason, Packet, Queue, Sink, Transmission, Transmitter};
use forebay_units::{Rate, Time};

use crate::recorder::{Recorder, Settings};

/// A queue before a link, recorded; `S` takes what the discipline drops and marks, too.
pub struct Bottleneck<P, S> {
    pub discipline: Queue<P>,
    pub transmitter: Transmitter,
    pub record: Record<S>,
    capacity: Capacity,
    /// Bits that a trace could carry up to the last account.
    carried_bits: u64,
}

/// Records what a discipline drops and marks, and hands it on.
pub struct Record<S> {
    pub recorder: Recorder,
    pub sink: S,
}

impl<P: Packet, S: Sink<P>> Sink<P> for Record<S> {
    fn dropped(&mut self, now: Time, packet: P, why: DropReason, class: u8) {
        self.recorder.dropped(now, why, class);
        if let Some(of) = self.recorder.traffic(now, packet.traffic()) {
            of.dropped_packets += 1;
        }
        self.sink.dropped(now, packet, why, class);
    }

    fn marked(&mut self, now: Time, packet: &P, class: u8) {
        self.recorder.marked(now, class);
        if let Some(of) = self.recorder.traffic(now, packet.traffic()) {
            of.marked_packets += 1;
        }
        self.sink.marked(now, packet, class);
    }
}

impl<P: Packet + Send + 'static, S: Sink<P>> Bottleneck<P, S> {
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

    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// When the link must be asked next.
    #[inline]
    pub fn due(&self) -> Time {
        self.transmitter.due()
    }

    /// A packet arrives: whether to [send](Self::send_next) at once, since the link is free.
    #[inline(always)]
    pub fn arrive(&mut self, now: Time, packet: P) -> bool {
        self.record.recorder.arrived();
        self.discipline.enqueue(now, packet, &mut self.record);
        self.transmitter.arrived(now)
    }

    /// Takes the next packet from the queue onto the link, at [`due`](Self::due) or at an arrival.
    #[inline(always)]
    pub fn send_next(&mut self, now: Time) -> Option<Transmission<P>> {
        let sent = (self.transmitter).ask(now, &mut self.discipline, &mut self.record)?;
        let departure = &sent.departure;
        let bytes = departure.packet.bytes();
        let recorder = &mut self.record.recorder;
        recorder.departed(now, bytes, departure.sojourn, departure.class);
        if let Some(of) = recorder.traffic(now, departure.packet.traffic()) {
            of.left(departure.sojourn);
        }
        Some(sent)
    }

    /// Changes the rate from `now` on; what is left of the packet being sent goes at the new one.
    ///
    /// Returns when the last bit of that packet is out, as [`Transmitter::set_rate`] does.
    pub fn set_rate(&mut self, now: Time, rate: Rate) -> Option<Time> {
        self.account(now);
        self.carried_bits = 0;
        self.capacity.set_rate(rate);
        let out = self.transmitter.set_rate(now, rate);
        self.discipline.set_rate(rate);
        self.record.recorder.rate_changed(now, rate);
        out
    }

    /// Another discipline takes over, with the packets of the one before.
    pub fn set_discipline(&mut self, now: Time, next: Queue<P>) {
        let mut former = std::mem::replace(&mut self.discipline, next);
        let Bottleneck {
            discipline, record, ..
        } = self;
        record.recorder.tell_apart(discipline.classes());
        former.drain(&mut |packet| discipline.enqueue(now, packet, record));
    }

    /// Ends a row of samples; `more` adds values to those that the discipline reports.
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

    /// Tells the recorder what a recorded link could carry since the last call.
    fn account(&mut self, now: Time) {
        let bits = self.capacity.recorded_bits(now);
        self.record
            .recorder
            .could_carry((bits - self.carried_bits) as f64);
        self.carried_bits = bits;
    }
}
