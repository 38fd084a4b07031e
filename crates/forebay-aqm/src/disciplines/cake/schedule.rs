//! Which tin and which queue is served, and what the shaper is charged for it.

use forebay_units::{Span, Time};

use crate::discipline::{Dequeued, Packet, Sink};
use crate::disciplines::cake::tin::Set;
use crate::disciplines::cake::tins::class_of;
use crate::disciplines::cake::Cake;
use crate::law::Others;

pub enum Served<P> {
    Packet(Dequeued<P>),
    /// The same tin goes on with its next queue.
    TurnEnded,
    /// The queue was empty: tins are looked at anew.
    Nothing,
}

impl<P: Packet + Send> Cake<P> {
    /// An arrival has made its queue busy.
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

    /// The queue has no bytes left in its turn: it has the next one as a bulk queue.
    pub fn end_turn(&mut self, tin: usize, number: usize) {
        let isolation = self.params.isolation;
        let tin = &mut self.tins[tin];
        let queue = tin.queue(number);
        let holds = queue.band.len_packets() > 0;
        if queue.set == Set::Sparse {
            queue.set = if holds { Set::Bulk } else { Set::SparseWait };
            if holds {
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

    /// With a shaper: the last tin that keeps to its share, else the one that will first. Without
    /// one: tins by turns.
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

    /// The shaper and the tin's share are charged for a packet (`cake_advance_shaper`).
    pub fn charge(&mut self, tin: usize, bytes: u32, now: Time) {
        let tin = &mut self.tins[tin];
        tin.deficit -= i64::from(bytes);
        if !self.shaped {
            return;
        }
        let (takes, left) = self.params.bandwidth.transmission(bytes, self.remainder);
        (self.next_packet, self.remainder) = (self.next_packet + takes, left);
        let (takes, _) = tin.rate.transmission(bytes, 0);
        if tin.next_packet < now {
            tin.next_packet += takes;
        } else if tin.next_packet < now + takes {
            tin.next_packet = now + takes;
        }
    }

    /// The next packet of a tin; none where its queue has turned out empty.
    pub fn serve(
        &mut self,
        tin: usize,
        now: Time,
        first: bool,
        sink: &mut dyn Sink<P>,
    ) -> Served<P> {
        let Some(number) = self.tins[tin].pop_next(first) else {
            return Served::Nothing;
        };
        let isolation = self.params.isolation;
        if self.tins[tin].queue(number).deficit <= 0 {
            self.end_turn(tin, number);
            return Served::TurnEnded;
        }
        let all = self.bytes;
        let class = class_of(tin);
        let queue = self.tins[tin].queue(number);
        let before = (queue.band.len_packets(), queue.band.len_bytes());
        queue.band.set_others(Others {
            bytes: all - before.1,
            head_since: None,
        });
        let taken = queue.band.take(now, class, sink);
        let timeout = queue.band.poll_timeout();
        self.recount(tin, number, before);
        self.bands.note_timeout(timeout);
        let Some(departure) = taken else {
            self.tins[tin].retire(number, now, isolation);
            return Served::Nothing;
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
        Served::Packet(Dequeued::Packet(departure))
    }
}
