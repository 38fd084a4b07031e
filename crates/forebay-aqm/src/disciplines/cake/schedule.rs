//! The scheduler: it chooses the tin and the queue to serve, and charges the shaper for each
//! packet.

use forebay_units::{Span, Time};

use crate::discipline::{Dequeued, Packet, Sink};
use crate::disciplines::cake::tin::Set;
use crate::disciplines::cake::tins::class_of;
use crate::disciplines::cake::Cake;
use crate::law::OtherQueues;

/// The result of serving one queue of a tin.
pub enum ServeResult<P> {
    /// A packet leaves.
    Packet(Dequeued<P>),
    /// The queue's turn has ended: the same tin continues with its next queue.
    TurnEnded,
    /// The queue was empty: a tin is chosen again.
    Empty,
}

impl<P: Packet + Send> Cake<P> {
    /// Puts a queue that has received a packet into the round, if it is not in it already.
    pub fn join_round(&mut self, tin: usize, number: usize) {
        let isolation = self.params.isolation;
        let tin = &mut self.tins[tin];
        match tin.set_of(number) {
            Set::Resting | Set::Decaying => {
                let turn = tin.turn_of(number, isolation, &mut self.rng);
                let queue = tin.queue(number);
                queue.stamp = queue.stamp.wrapping_add(1);
                queue.set = Set::Sparse;
                queue.deficit = turn;
                let stamp = queue.stamp;
                tin.new.push_back((number, stamp));
                tin.sparse_queues += 1;
            }
            Set::SparseWait => {
                tin.queue(number).set = Set::Bulk;
                tin.sparse_queues -= 1;
                tin.bulk_queues += 1;
                tin.count_hosts(number, isolation, true);
            }
            Set::Sparse | Set::Bulk => {}
        }
    }

    /// Ends the turn of a queue that has used up its deficit. A sparse queue that still holds
    /// packets becomes a bulk queue.
    pub fn end_turn(&mut self, tin: usize, number: usize) {
        let isolation = self.params.isolation;
        let tin = &mut self.tins[tin];
        let queue = tin.queue(number);
        let holds_packets = queue.band.len_packets() > 0;
        if queue.set == Set::Sparse {
            queue.set = if holds_packets {
                Set::Bulk
            } else {
                Set::SparseWait
            };
            if holds_packets {
                tin.sparse_queues -= 1;
                tin.bulk_queues += 1;
                tin.count_hosts(number, isolation, true);
            }
        }
        let turn = tin.turn_of(number, isolation, &mut self.rng);
        let queue = tin.queue(number);
        queue.deficit += turn;
        let stamp = queue.stamp;
        tin.old.push_back((number, stamp));
    }

    /// Returns the tin to serve. With a shaper, this is the last tin that is within its share of
    /// the rate, else the tin that will be within it first; without a shaper, tins take turns by
    /// deficit round robin.
    pub fn choose_tin(&mut self, now: Time) -> usize {
        if self.shaped {
            let (mut best, mut best_wait) = (0, Span::from_nanos(u64::MAX));
            for (i, tin) in self.tins.iter().enumerate().filter(|(_, tin)| tin.busy()) {
                let wait = tin.next_packet.since(now.min(tin.next_packet));
                if wait == Span::ZERO || wait <= best_wait {
                    (best, best_wait) = (i, wait);
                }
            }
            return best;
        }
        let count = self.tins.len();
        loop {
            let tin = &mut self.tins[self.current];
            if tin.busy() && tin.deficit >= 0 {
                return self.current;
            }
            if tin.deficit <= 0 {
                tin.deficit += tin.turn;
            }
            self.current = (self.current + 1) % count;
        }
    }

    /// Charges a packet to the shaper and to the tin's share (`cake_advance_shaper`).
    pub fn charge(&mut self, tin: usize, bytes: u32, now: Time) {
        let tin = &mut self.tins[tin];
        tin.deficit -= i64::from(bytes);
        if !self.shaped {
            return;
        }
        let (duration, remainder) = self.params.bandwidth.transmission(bytes, self.remainder);
        (self.next_packet, self.remainder) = (self.next_packet + duration, remainder);
        let (duration, _) = tin.rate.transmission(bytes, 0);
        if tin.next_packet < now {
            tin.next_packet += duration;
        } else if tin.next_packet < now + duration {
            tin.next_packet = now + duration;
        }
    }

    /// Serves the next queue of a tin. `first` is true for the first queue that is looked at for
    /// this departure.
    pub fn serve(
        &mut self,
        tin: usize,
        now: Time,
        first: bool,
        sink: &mut dyn Sink<P>,
    ) -> ServeResult<P> {
        let Some(number) = self.tins[tin].pop_next(first) else {
            return ServeResult::Empty;
        };
        let isolation = self.params.isolation;
        if self.tins[tin].queue(number).deficit <= 0 {
            self.end_turn(tin, number);
            return ServeResult::TurnEnded;
        }
        let total_bytes = self.bytes;
        let class = class_of(tin);
        let queue = self.tins[tin].queue(number);
        let before = (queue.band.len_packets(), queue.band.len_bytes());
        queue.band.set_other_queues(OtherQueues {
            bytes: total_bytes - before.1,
            head_since: None,
        });
        let departure = queue.band.take(now, class, sink);
        let after = (queue.band.len_packets(), queue.band.len_bytes());
        let timeout = queue.band.poll_timeout();
        self.recount(tin, before, after);
        self.bands.note_timeout(timeout);
        let Some(departure) = departure else {
            self.tins[tin].retire(number, now, isolation);
            return ServeResult::Empty;
        };
        let bytes = self.wire_bytes(&departure.packet);
        let queue = self.tins[tin].queue(number);
        queue.deficit -= i64::from(bytes);
        let entry = (number, queue.stamp);
        let list = match queue.set {
            Set::Sparse => &mut self.tins[tin].new,
            _ => &mut self.tins[tin].old,
        };
        list.push_front(entry);
        self.charge(tin, bytes, now);
        ServeResult::Packet(Dequeued::Packet(departure))
    }
}
