//! The queue in front of a link, under any registered discipline.

use std::ops::{Deref, DerefMut};

use forebay_units::Time;

use crate::discipline::{Dequeued, Discipline, Packet, Sink};
use crate::disciplines::fifo::Fifo;

/// A discipline that is called for every packet of a link. The methods of a FIFO are inlined into the
/// caller: without that, a sixth of the simulator's instructions were spent on dynamic calls.
pub enum Queue<P> {
    /// A FIFO under one law.
    Fifo(Fifo<P>),
    /// Any other discipline, called dynamically.
    Other(Box<dyn Discipline<P>>),
}

impl<P: Packet + Send> Queue<P> {
    /// Enqueues an arrival: see [`Discipline::enqueue`].
    #[inline(always)]
    pub fn enqueue(&mut self, now: Time, packet: P, sink: &mut dyn Sink<P>) {
        match self {
            Queue::Fifo(fifo) => fifo.enqueue(now, packet, sink),
            Queue::Other(other) => other.enqueue(now, packet, sink),
        }
    }

    /// Returns the next packet for the link: see [`Discipline::dequeue`].
    #[inline(always)]
    pub fn dequeue(&mut self, now: Time, sink: &mut dyn Sink<P>) -> Dequeued<P> {
        match self {
            Queue::Fifo(fifo) => fifo.dequeue(now, sink),
            Queue::Other(other) => other.dequeue(now, sink),
        }
    }
}

/// Gives access to the methods that are not called for every packet.
impl<P: Packet + Send + 'static> Deref for Queue<P> {
    type Target = dyn Discipline<P>;

    fn deref(&self) -> &Self::Target {
        match self {
            Queue::Fifo(fifo) => fifo,
            Queue::Other(other) => &**other,
        }
    }
}

impl<P: Packet + Send + 'static> DerefMut for Queue<P> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Queue::Fifo(fifo) => fifo,
            Queue::Other(other) => &mut **other,
        }
    }
}
