//! A tin: its queues, the hosts that they are counted for, and the lists in which they take turns.

use std::collections::VecDeque;

use forebay_units::{Rate, Rng, Time};

use crate::band::Band;
use crate::discipline::Packet;
use crate::disciplines::cake::isolation::Isolation;
use crate::disciplines::cake::tins::Share;

/// Number of queues of a tin.
pub const QUEUES: usize = 1024;
/// Number of queues among which a flow finds its own.
const WAYS: usize = 8;

/// Where a flow or a host is looked for first.
fn direct(tag: u64) -> usize {
    usize::try_from(tag % QUEUES as u64).expect("less than QUEUES")
}

/// Where a queue stands in the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    Resting,
    Sparse,
    /// In the round of bulk queues for its deficit's sake, empty, and counted as sparse.
    SparseWait,
    Bulk,
    /// Empty, with a law that has something left to decay.
    Decaying,
}

pub struct Queue<P> {
    pub band: Band<P>,
    /// Bytes that it may still send in this turn.
    pub deficit: i64,
    pub set: Set,
    /// Its entries in lists with another stamp are void.
    pub stamp: u32,
    /// Where its hosts are counted.
    pub source: usize,
    pub destination: usize,
    /// Its place in [`Tin::open`].
    pub opened: usize,
}

/// A host on one side.
#[derive(Clone, Copy, Default)]
pub struct Host {
    tag: u64,
    pub bulk_queues: u16,
}

/// Numbers of queues, with the stamps that they had.
pub type List = VecDeque<(usize, u32)>;

pub struct Tin<P> {
    pub rate: Rate,
    pub queues: Vec<Option<Box<Queue<P>>>>,
    /// Queues that have been used.
    pub open: Vec<usize>,
    /// The flow for which a queue is kept.
    pub tags: Vec<u64>,
    pub sources: Vec<Host>,
    pub destinations: Vec<Host>,
    pub new: List,
    pub old: List,
    pub decaying: List,
    pub sparse_queues: u32,
    pub bulk_queues: u32,
    /// Bytes of a queue's turn, for a host with one.
    pub quantum: u32,
    pub packets: u32,
    pub bytes: u64,
    /// When its share of the rate lets it go before others.
    pub next_packet: Time,
    /// Without a shaper: bytes of its turns, and what is left of this one.
    pub turn: i64,
    pub deficit: i64,
}

impl<P: Packet> Tin<P> {
    /// `bandwidth` is that of its own shaper, or none; packets leave at the rate `paced`.
    pub fn new(share: &Share, bandwidth: Rate, paced: Rate) -> Tin<P> {
        Tin {
            rate: match bandwidth.as_bps() {
                0 => Rate::from_bps(0),
                _ => share.of(bandwidth),
            },
            queues: (0..QUEUES).map(|_| None).collect(),
            open: Vec::new(),
            tags: vec![0; QUEUES],
            sources: vec![Host::default(); QUEUES],
            destinations: vec![Host::default(); QUEUES],
            new: List::new(),
            old: List::new(),
            decaying: List::new(),
            sparse_queues: 0,
            bulk_queues: 0,
            quantum: share.quantum_of(paced),
            packets: 0,
            bytes: 0,
            next_packet: Time::ZERO,
            turn: share.quantum,
            deficit: 0,
        }
    }

    pub fn set_of(&self, number: usize) -> Set {
        self.queues[number]
            .as_ref()
            .map_or(Set::Resting, |queue| queue.set)
    }

    pub fn queue(&mut self, number: usize) -> &mut Queue<P> {
        self.queues[number]
            .as_mut()
            .expect("a queue in a list exists")
    }

    /// The queue for a flow: one that is kept for it, else a free one of its set, else one that it
    /// shares (`cake_hash`).
    pub fn place(&self, tag: u64) -> usize {
        let direct = direct(tag);
        let ways = || (0..WAYS).map(|way| direct - direct % WAYS + (direct + way) % WAYS);
        let kept = ways().find(|&it| self.tags[it] == tag && self.queues[it].is_some());
        kept.or_else(|| ways().find(|&it| self.set_of(it) == Set::Resting))
            .unwrap_or(direct)
    }

    /// A queue becomes, or ceases to be, one of the bulk queues of its hosts.
    pub fn count_hosts(&mut self, number: usize, isolation: Isolation, joins: bool) {
        let queue = self.queue(number);
        let (source, destination) = (queue.source, queue.destination);
        let count = |host: &mut Host| {
            host.bulk_queues = match joins {
                true => host.bulk_queues + 1,
                false => host.bulk_queues.saturating_sub(1),
            };
        };
        let (by_source, by_destination) = isolation.between_hosts();
        if by_source {
            count(&mut self.sources[source]);
        }
        if by_destination {
            count(&mut self.destinations[destination]);
        }
    }

    /// Bytes of a turn: less where a host has many queues, rounded by a draw.
    pub fn turn_of(&mut self, number: usize, isolation: Isolation, rng: &mut Rng) -> i64 {
        let queue = self.queue(number);
        let (source, destination) = (queue.source, queue.destination);
        let (by_source, by_destination) = isolation.between_hosts();
        let mut load = 1;
        if by_source {
            load = load.max(self.sources[source].bulk_queues);
        }
        if by_destination {
            load = load.max(self.destinations[destination].bulk_queues);
        }
        let draw = rng.next_u64() & 0xffff;
        let bytes = (u64::from(self.quantum) * u64::from(u16::MAX / load) + draw) >> 16;
        bytes.cast_signed()
    }

    /// Where a host is counted: where it was, else where no host has bulk queues.
    pub fn host(hosts: &mut [Host], tag: u64) -> usize {
        let direct = direct(tag);
        let ways = || (0..WAYS).map(|way| direct - direct % WAYS + (direct + way) % WAYS);
        let found = ways()
            .find(|&it| hosts[it].tag == tag)
            .or_else(|| ways().find(|&it| hosts[it].bulk_queues == 0))
            .unwrap_or(direct);
        hosts[found].tag = tag;
        found
    }

    /// Entries of the list whose queue has moved on leave its head.
    pub fn head(list: &mut List, queues: &[Option<Box<Queue<P>>>]) -> Option<usize> {
        loop {
            let &(number, stamp) = list.front()?;
            if queues[number].as_ref().is_some_and(|it| it.stamp == stamp) {
                return Some(number);
            }
            list.pop_front();
        }
    }

    /// The queue to serve, out of its list. Those that decay come once in a departure.
    pub fn pop_next(&mut self, first: bool) -> Option<usize> {
        let queues = &self.queues;
        let mut lists = [&mut self.new, &mut self.old, &mut self.decaying];
        if first {
            lists.rotate_right(1);
        }
        for list in lists {
            if let Some(number) = Self::head(list, queues) {
                list.pop_front();
                return Some(number);
            }
        }
        None
    }

    pub fn busy(&self) -> bool {
        self.sparse_queues + self.bulk_queues > 0
    }

    /// The queue is empty: it leaves the round (`cake_dequeue`).
    pub fn retire(&mut self, number: usize, now: Time, isolation: Isolation) {
        let queue = self.queue(number);
        let was = queue.set;
        queue.band.idle(now);
        let rests = queue.band.rests(now);
        queue.set = if rests { Set::Resting } else { Set::Decaying };
        let stamp = queue.stamp;
        match was {
            Set::Bulk => {
                self.bulk_queues -= 1;
                self.count_hosts(number, isolation, false);
            }
            Set::Sparse | Set::SparseWait => self.sparse_queues -= 1,
            Set::Resting | Set::Decaying => {}
        }
        if !rests {
            self.decaying.push_back((number, stamp));
        }
    }
}
