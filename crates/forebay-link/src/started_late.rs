//! Adapter for a discipline that starts in the middle of a run: its laws take no samples for the
//! time before.

use forebay_aqm::{Dequeued, Discipline, Packet, Queue, Sink};
use forebay_units::{Buffer, Rate, SetPoint, Span, Time};

/// A discipline whose clock is zero at the time `start` of the run.
pub struct StartedLate<P> {
    /// The discipline.
    pub discipline: Queue<P>,
    /// The time of the run at which the discipline's clock is zero.
    pub start: Span,
}

impl<P> StartedLate<P> {
    /// Returns the time of the discipline's clock at `now`.
    fn local_time(&self, now: Time) -> Time {
        Time::ZERO + now.since(Time::ZERO + self.start)
    }
}

impl<P: Packet + Send + 'static> Discipline<P> for StartedLate<P> {
    fn enqueue(&mut self, now: Time, packet: P, sink: &mut dyn Sink<P>) {
        self.discipline.enqueue(self.local_time(now), packet, sink);
    }

    fn dequeue(&mut self, now: Time, sink: &mut dyn Sink<P>) -> Dequeued<P> {
        match self.discipline.dequeue(self.local_time(now), sink) {
            Dequeued::Wait(until) => Dequeued::Wait(until + self.start),
            other => other,
        }
    }

    fn drain(&mut self, give: &mut dyn FnMut(P)) {
        self.discipline.drain(give);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.discipline.poll_timeout().map(|due| due + self.start)
    }

    fn handle_timeout(&mut self, now: Time) {
        let now = self.local_time(now);
        self.discipline.handle_timeout(now);
    }

    fn len_packets(&self) -> u32 {
        self.discipline.len_packets()
    }

    fn len_bytes(&self) -> u64 {
        self.discipline.len_bytes()
    }

    fn set_rate(&mut self, rate: Rate) {
        self.discipline.set_rate(rate);
    }

    fn set_buffer(&mut self, buffer: Buffer) {
        self.discipline.set_buffer(buffer);
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.discipline.set_point(set_point)
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        self.discipline.probe(out);
    }

    fn classes(&self) -> &'static [&'static str] {
        self.discipline.classes()
    }
}
