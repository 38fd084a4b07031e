//! A tin: its queues, the hosts to which they belong, and the lists in which queues take turns.

use std::collections::VecDeque;

use forebay_units::{Rate, Rng, Time};

use crate::band::Band;
use crate::discipline::Packet;
use crate::disciplines::cake::isolation::Isolation;
use crate::disciplines::cake::tins::Share;

/// The number of queues of a tin.
pub const QUEUES: usize = 1024;
/// The associativity of the hash: a flow may use any of this many neighbouring queues.
const WAYS: usize = 8;

/// Returns the index at which a flow or a host is looked for first.
fn direct(tag: u64) -> usize {
    usize::try_from(tag % QUEUES as u64).expect("less than QUEUES")
}

/// The state of a queue in the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// The queue is empty and in no list.
    Resting,
    /// The queue is in its first turn.
    Sparse,
    /// The queue was sparse and has become empty. It is in the list of bulk queues until its
    /// deficit is made up, and still counts as sparse.
    SparseWait,
    /// The queue takes turns with other bulk queues.
    Bulk,
    /// The queue is empty, and the state of its law still decays.
    Decaying,
}

/// A flow's queue in a tin.
pub struct FlowQueue<P> {
    /// The packets and their law.
    pub band: Band<P>,
    /// The bytes that the queue may still send in this turn.
    pub deficit: i64,
    /// The queue's state in the round.
    pub set: Set,
    /// The stamp of the queue's valid list entry: entries with another stamp are void.
    pub stamp: u32,
    /// The index of the queue's source in [`Tin::sources`].
    pub source: usize,
    /// The index of the queue's destination in [`Tin::destinations`].
    pub destination: usize,
    /// The index of the queue in [`Tin::open`].
    pub opened: usize,
}

/// A source or a destination host.
#[derive(Clone, Copy, Default)]
pub struct Host {
    tag: u64,
    /// The number of the host's bulk queues.
    pub bulk_queues: u16,
}

/// Queue numbers, each with the stamp that the queue had when it joined the list.
pub type List = VecDeque<(usize, u32)>;

/// A tin of CAKE.
pub struct Tin<P> {
    /// The tin's share of the shaper's rate; zero without a shaper.
    pub rate: Rate,
    /// The queues, which are built when a flow first needs them.
    pub queues: Vec<Option<Box<FlowQueue<P>>>>,
    /// The numbers of the queues that have been built.
    pub open: Vec<usize>,
    /// The hash of the flow to which each queue is assigned.
    pub tags: Vec<u64>,
    /// The source hosts.
    pub sources: Vec<Host>,
    /// The destination hosts.
    pub destinations: Vec<Host>,
    /// Queues in their first turn, which go first.
    pub new: List,
    /// Queues in later turns.
    pub old: List,
    /// Empty queues whose law's state decays.
    pub decaying: List,
    /// The number of sparse queues.
    pub sparse_queues: u32,
    /// The number of bulk queues.
    pub bulk_queues: u32,
    /// The bytes of a queue's turn if its hosts have no other queue.
    pub quantum: u32,
    /// The packets in the tin.
    pub packets: u32,
    /// The bytes in the tin.
    pub bytes: u64,
    /// The time from which on the tin is within its share of the rate and has priority over the
    /// others.
    pub next_packet: Time,
    /// The bytes of the tin's turn, without a shaper.
    pub turn: i64,
    /// The bytes that remain of the current turn, without a shaper.
    pub deficit: i64,
}

impl<P: Packet> Tin<P> {
    /// Creates an empty tin. `bandwidth` is that of CAKE's shaper, zero without one; packets leave
    /// at the rate `paced`.
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

    /// Returns the state of a queue in the round.
    pub fn set_of(&self, number: usize) -> Set {
        self.queues[number]
            .as_ref()
            .map_or(Set::Resting, |queue| queue.set)
    }

    /// Returns a queue.
    ///
    /// # Panics
    /// If the queue has not been built.
    pub fn queue(&mut self, number: usize) -> &mut FlowQueue<P> {
        self.queues[number]
            .as_mut()
            .expect("a queue in a list exists")
    }

    /// Returns the number of the queue for a flow: the queue that is assigned to it, else a free
    /// queue among its [`WAYS`], else a queue that it shares with another flow (`cake_hash`).
    pub fn place(&self, tag: u64) -> usize {
        let direct = direct(tag);
        let ways = || (0..WAYS).map(|way| direct - direct % WAYS + (direct + way) % WAYS);
        let assigned = ways().find(|&i| self.tags[i] == tag && self.queues[i].is_some());
        assigned
            .or_else(|| ways().find(|&i| self.set_of(i) == Set::Resting))
            .unwrap_or(direct)
    }

    /// Counts a queue as one of the bulk queues of its hosts if `joins`, and no longer otherwise.
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

    /// Returns the bytes of a queue's turn: the quantum over the number of bulk queues of its
    /// busier host, rounded up or down at random (`cake_get_flow_quantum`).
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

    /// Returns the index of a host: the one that it has, else one whose host has no bulk queues.
    pub fn host(hosts: &mut [Host], tag: u64) -> usize {
        let direct = direct(tag);
        let ways = || (0..WAYS).map(|way| direct - direct % WAYS + (direct + way) % WAYS);
        let index = ways()
            .find(|&i| hosts[i].tag == tag)
            .or_else(|| ways().find(|&i| hosts[i].bulk_queues == 0))
            .unwrap_or(direct);
        hosts[index].tag = tag;
        index
    }

    /// Returns the number of the first queue in the list, after removing void entries before it.
    pub fn head(list: &mut List, queues: &[Option<Box<FlowQueue<P>>>]) -> Option<usize> {
        loop {
            let &(number, stamp) = list.front()?;
            if queues[number]
                .as_ref()
                .is_some_and(|queue| queue.stamp == stamp)
            {
                return Some(number);
            }
            list.pop_front();
        }
    }

    /// Removes the queue to serve next from its list. A decaying queue is visited at most once for
    /// each departure, as the `first` queue.
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

    /// Returns true if the tin has sparse or bulk queues.
    pub fn busy(&self) -> bool {
        self.sparse_queues + self.bulk_queues > 0
    }

    /// Takes an empty queue out of the round (`cake_dequeue`).
    pub fn retire(&mut self, number: usize, now: Time, isolation: Isolation) {
        let queue = self.queue(number);
        let previous = queue.set;
        queue.band.idle(now);
        let is_quiescent = queue.band.is_quiescent(now);
        queue.set = if is_quiescent {
            Set::Resting
        } else {
            Set::Decaying
        };
        let stamp = queue.stamp;
        match previous {
            Set::Bulk => {
                self.bulk_queues -= 1;
                self.count_hosts(number, isolation, false);
            }
            Set::Sparse | Set::SparseWait => self.sparse_queues -= 1,
            Set::Resting | Set::Decaying => {}
        }
        if !is_quiescent {
            self.decaying.push_back((number, stamp));
        }
    }
}
