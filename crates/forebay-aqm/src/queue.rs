//! The queue before a link, under any discipline of the registry.

use std::ops::{Deref, DerefMut};

use forebay_units::Time;

use crate::discipline::{Dequeued, Discipline, Packet, Sink};
use crate::disciplines::fifo::Fifo;

/// A discipline, called for every packet of a link. What a FIFO does is compiled into the caller:
/// calls that the compiler does not see through were a sixth of the simulator's instructions.
pub enum Queue<P> {
    /// A FIFO under one law.
    Fifo(Fifo<P>),
    /// Any other discipline, behind virtual calls.
    Other(Box<dyn Discipline<P>>),
}

impl<P: Packet + Send> Queue<P> {
    /// As [`Discipline::enqueue`].
    #[inline(always)]
    pub fn enqueue(&mut self, now: Time, packet: P, sink: &mut dyn Sink<P>) {
        match self {
            Queue::Fifo(fifo) => fifo.enqueue(now, packet, sink),
            Queue::Other(other) => other.enqueue(now, packet, sink),
        }
    }

    /// As [`Discipline::dequeue`].
    #[inline(always)]
    pub fn dequeue(&mut self, now: Time, sink: &mut dyn Sink<P>) -> Dequeued<P> {
        match self {
            Queue::Fifo(fifo) => fifo.dequeue(now, sink),
            Queue::Other(other) => other.dequeue(now, sink),
        }
    }
}

/// What is not done for every packet.
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
