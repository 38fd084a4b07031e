//! A law at a queue: when it decides on packets, and when it is told of them.

use std::ops::{Deref, DerefMut};

use forebay_units::{Rng, Time};

use crate::law::{Law, PacketMeta, QueueView, Verdict};
use crate::laws::QueuedLaw;

/// A law with the random stream that it draws from, as a queue calls it.
///
/// A queue of packets and the fluid model call laws by the same rules, which are here: every
/// arrival is decided on before its fate is known, and then reported if it found the buffer full; a
/// departure is decided on when the packet is taken out; and a law that does not watch packets at
/// one end is not called there. The other methods are those of [`Law`].
pub struct LawDriver {
    law: QueuedLaw,
    rng: Rng,
    watches_arrivals: bool,
    watches_departures: bool,
}

impl LawDriver {
    /// Returns the driver of `law`, which draws from `rng`.
    pub fn new(law: Box<dyn Law>, rng: Rng) -> LawDriver {
        LawDriver {
            watches_arrivals: law.watches_arrivals(),
            watches_departures: law.watches_departures(),
            law: QueuedLaw::new(law),
            rng,
        }
    }

    /// Returns the stored result of [`Law::watches_arrivals`], without a dynamic call.
    #[inline(always)]
    pub fn watches_arrivals(&self) -> bool {
        self.watches_arrivals
    }

    /// Returns the stored result of [`Law::watches_departures`], without a dynamic call.
    #[inline(always)]
    pub fn watches_departures(&self) -> bool {
        self.watches_departures
    }

    /// Returns the verdict on an arriving packet, and reports an overflow if it has no room.
    ///
    /// The law decides on a packet without room, too: RED's average counts it.
    #[inline(always)]
    pub fn arrive(
        &mut self,
        now: Time,
        queue: &QueueView,
        packet: &PacketMeta,
        has_room: bool,
    ) -> Verdict {
        let verdict = match self.watches_arrivals {
            true => self.judge_arrival(now, queue, || *packet),
            false => Verdict::Pass,
        };
        if !has_room {
            self.on_overflow(now, queue);
        }
        verdict
    }

    /// Returns the verdict of a law that watches arrivals on a packet that has room.
    #[inline(always)]
    pub fn judge_arrival(
        &mut self,
        now: Time,
        queue: &QueueView,
        packet: impl FnOnce() -> PacketMeta,
    ) -> Verdict {
        self.law.on_enqueue(now, queue, packet, &mut self.rng)
    }

    /// Returns the verdict on a packet that has been taken out of the queue.
    #[inline(always)]
    pub fn depart(&mut self, now: Time, queue: &QueueView, packet: &PacketMeta) -> Verdict {
        match self.watches_departures {
            true => self.law.on_dequeue(now, queue, packet, &mut self.rng),
            false => Verdict::Pass,
        }
    }
}

impl Deref for LawDriver {
    type Target = dyn Law;

    fn deref(&self) -> &(dyn Law + 'static) {
        self.law.get()
    }
}

impl DerefMut for LawDriver {
    fn deref_mut(&mut self) -> &mut (dyn Law + 'static) {
        self.law.get_mut()
    }
}
