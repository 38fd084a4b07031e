//! FIFO: first in, first out, under one law.

use forebay_units::{params, Buffer, ParamError, QueueSite, Rate, SetPoint, Time};

use crate::band::Band;
use crate::discipline::{Dequeued, Discipline, DisciplineParams, LawFactory, Packet, Sink};

params! {
    /// A FIFO has no parameters.
    pub struct FifoParams {}
}

impl DisciplineParams for FifoParams {
    const KIND: &'static str = "fifo";
    const TITLE: &'static str = "First in, first out, under one law";
    const SOURCE: &'static str = "RFC 7567, section 2.1";

    fn build<P: Packet + Send + 'static>(
        &self,
        site: &QueueSite,
        laws: LawFactory,
    ) -> Result<Box<dyn Discipline<P>>, ParamError> {
        Ok(Box::new(self.fifo(site, laws)?))
    }
}

impl FifoParams {
    /// Builds an empty queue, idle since time zero.
    ///
    /// # Errors
    /// If a parameter of the law is inconsistent with the others or with the queue.
    pub fn fifo<P: Packet>(
        &self,
        site: &QueueSite,
        mut laws: LawFactory,
    ) -> Result<Fifo<P>, ParamError> {
        Ok(Fifo(Band::new(site, &mut laws)?))
    }
}

/// A FIFO under one law.
pub struct Fifo<P>(Band<P>);

impl<P: Packet + Send> Discipline<P> for Fifo<P> {
    #[inline(always)]
    fn enqueue(&mut self, now: Time, packet: P, sink: &mut dyn Sink<P>) {
        let has_room = self.0.has_room(packet.bytes());
        self.0.offer(now, packet, has_room, 0, sink);
    }

    #[inline(always)]
    fn dequeue(&mut self, now: Time, sink: &mut dyn Sink<P>) -> Dequeued<P> {
        match self.0.take(now, 0, sink) {
            Some(departure) => Dequeued::Packet(departure),
            None => {
                self.0.idle(now);
                Dequeued::Idle
            }
        }
    }

    fn drain(&mut self, give: &mut dyn FnMut(P)) {
        self.0.drain(give);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.0.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.0.handle_timeout(now);
    }

    fn len_packets(&self) -> u32 {
        self.0.len_packets()
    }

    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }

    fn set_rate(&mut self, rate: Rate) {
        self.0.set_rate(rate);
    }

    fn set_buffer(&mut self, buffer: Buffer) {
        self.0.set_buffer(buffer);
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.0.set_point(set_point)
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        self.0.probe(out);
    }
}
