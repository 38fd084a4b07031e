//! CAKE: a shaper, tins by DSCP, and in each tin flow queueing that shares between hosts first
//! (Høiland-Jørgensen, Täht and Morton 2018). Details follow Linux's net/sched/sch_cake.c. It has no
//! filter of ACKs, no washing of code points and no estimate of the rate: a discipline sees no
//! headers of TCP, and its link knows its rate.

use std::collections::VecDeque;

use crate::band::Band;
use crate::discipline::{
    mix, Buffer, Dequeued, Discipline, DisciplineParams, Drop, LawFactory, Packet, QueueSite, Sink,
};
use crate::law::Others;
use crate::param::{ParamError, ParamType, Shape, Value};
use crate::params;
use crate::rng::Rng;
use crate::units::{Bytes, Rate, SetPoint, Span, Time};

/// A choice among words, the first of which is the default.
macro_rules! words {
    ($(#[$outer:meta])* $name:ident, $allowed:literal: $($variant:ident $word:literal,)*) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($variant),* }

        impl ParamType for $name {
            const SHAPE: Shape = Shape::Word(&[$($word),*]);
            const UNIT: &'static str = "";
            const ALLOWED: &'static str = $allowed;
            fn from_value(value: &Value) -> Result<$name, String> {
                match value {
                    $(Value::Text(text) if text == $word => Ok($name::$variant),)*
                    _ => Err(Self::ALLOWED.to_owned()),
                }
            }
            fn to_value(&self) -> Value {
                Value::Text(match self { $($name::$variant => $word),* }.to_owned())
            }
            fn extent(&self) -> Option<(f64, f64)> {
                None
            }
        }
    };
}

words! {
    /// How packets go to tins by their DSCP.
    Tins, "diffserv3, besteffort, diffserv4, precedence":
    Diffserv3 "diffserv3",
    BestEffort "besteffort",
    Diffserv4 "diffserv4",
    Precedence "precedence",
}

words! {
    /// What has a queue, and what shares the link.
    Isolation, "triple-isolate, flows, hosts, srchost, dsthost, dual-srchost, dual-dsthost, flowblind":
    TripleIsolate "triple-isolate",
    Flows "flows",
    Hosts "hosts",
    SourceHost "srchost",
    DestinationHost "dsthost",
    DualSource "dual-srchost",
    DualDestination "dual-dsthost",
    Blind "flowblind",
}

words! {
    /// What a link layer makes of a packet.
    Framing, "none, atm, ptm":
    None "none",
    Atm "atm",
    Ptm "ptm",
}

params! {
    /// A law judges each queue. The queues share the buffer: an arrival that overfills it has
    /// packets dropped from the head of the longest queue.
    pub struct CakeParams {
        /// Rate of its own shaper; 0bit/s leaves the pace to the link.
        bandwidth: Rate = Rate::from_bps(0), 0.0 => 1e13;
        /// Tins by DSCP, best effort, background, video and voice: "diffserv3" without video,
        /// "diffserv4" with it; "precedence" has eight, "besteffort" one.
        tins: Tins = Tins::Diffserv3, 0.0 => 0.0;
        /// What has a queue: a flow, a host or all ("flowblind"). "triple-isolate" shares between
        /// hosts first, on both sides, then between the flows of a host; "dual-srchost" and
        /// "dual-dsthost" look at one side.
        isolation: Isolation = Isolation::TripleIsolate, 0.0 => 0.0;
        /// Bytes that the link adds to each packet.
        overhead: Bytes = Bytes(0), 0.0 => 256.0;
        /// Least size of a packet on the link, overhead included.
        mpu: Bytes = Bytes(0), 0.0 => 256.0;
        /// Cells of the link: "atm" sends 53 bytes for each 48 begun, "ptm" adds one for each 64
        /// begun.
        framing: Framing = Framing::None, 0.0 => 0.0;
    }
}

impl DisciplineParams for CakeParams {
    const KIND: &'static str = "cake";
    const TITLE: &'static str = "A shaper, tins by DSCP, and a queue for each flow under a law";
    const SOURCE: &'static str = "Høiland-Jørgensen et al. 2018; Linux tc-cake(8)";

    fn build<P: Packet + Send + 'static>(
        &self,
        site: &QueueSite,
        mut laws: LawFactory,
    ) -> Result<Box<dyn Discipline<P>>, ParamError> {
        let salt = laws.salt();
        // Shows that the law can be built here: the others are built as flows come.
        let first = Band::new(site, &mut laws)?;
        let shaped = self.bandwidth.as_bps() > 0;
        let tin = |share: &Share| Tin::new(share, self.bandwidth);
        let mut cake = Cake {
            next_timeout: first.poll_timeout(),
            spare: Some(first),
            tins: self.tins.shares().iter().map(tin).collect(),
            params: self.clone(),
            shaped,
            site: *site,
            salt,
            rng: Rng::new(salt, "quanta"),
            laws,
            current: 0,
            next_packet: Time::ZERO,
            remainder: 0,
            packets: 0,
            bytes: 0,
            set_point: None,
        };
        cake.spread_rate();
        Ok(Box::new(cake))
    }
}

/// Parts of the rate that a tin may take before others, and of the link in turns without a shaper.
struct Share {
    numerator: u64,
    denominator: u64,
    quantum: i64,
}

const fn share(numerator: u64, denominator: u64, quantum: i64) -> Share {
    Share {
        numerator,
        denominator,
        quantum,
    }
}

const BEST_EFFORT: [Share; 1] = [share(1, 1, 65535)];
const DIFFSERV3: [Share; 3] = [share(1, 1, 1024), share(1, 16, 64), share(1, 4, 256)];
const DIFFSERV4: [Share; 4] = [
    share(1, 1, 1024),
    share(1, 16, 64),
    share(1, 2, 512),
    share(1, 4, 256),
];
/// Each has 7/8 of the one before, rounded down.
const PRECEDENCE: [Share; 8] = [
    share(1, 1, 256),
    share(7, 8, 224),
    share(49, 64, 196),
    share(343, 512, 171),
    share(2401, 4096, 149),
    share(16_807, 32_768, 130),
    share(117_649, 262_144, 113),
    share(823_543, 2_097_152, 98),
];

impl Tins {
    fn shares(self) -> &'static [Share] {
        match self {
            Tins::BestEffort => &BEST_EFFORT,
            Tins::Diffserv3 => &DIFFSERV3,
            Tins::Diffserv4 => &DIFFSERV4,
            Tins::Precedence => &PRECEDENCE,
        }
    }

    /// What tins are called as classes; one alone is none.
    fn names(self) -> &'static [&'static str] {
        match self {
            Tins::BestEffort => &[],
            Tins::Diffserv3 => &["best-effort", "background", "voice"],
            Tins::Diffserv4 => &["best-effort", "background", "video", "voice"],
            Tins::Precedence => &[
                "precedence-0",
                "precedence-1",
                "precedence-2",
                "precedence-3",
                "precedence-4",
                "precedence-5",
                "precedence-6",
                "precedence-7",
            ],
        }
    }

    /// The tin of a code point: 0 is best effort, 1 background; video and voice follow.
    fn of(self, dscp: u8) -> usize {
        match (self, dscp) {
            (Tins::BestEffort, _) => 0,
            (Tins::Precedence, _) => usize::from(dscp >> 3),
            // LE and CS1.
            (_, 1 | 8) => 1,
            // VA, EF, CS6 and CS7.
            (Tins::Diffserv3, 4 | 44 | 46 | 48 | 56) => 2,
            // CS4 and CS5 besides.
            (Tins::Diffserv4, 32 | 40 | 44 | 46 | 48 | 56) => 3,
            // The low delay of RFC 1349, CS2, CS3, and AF2x to AF4x.
            (Tins::Diffserv4, 4 | 16 | 18 | 20 | 22 | 24 | 26 | 28 | 30 | 34 | 36 | 38) => 2,
            _ => 0,
        }
    }
}

/// A tin as the class of a departure.
fn class_of(tin: usize) -> u8 {
    u8::try_from(tin).unwrap_or(u8::MAX)
}

impl Isolation {
    /// Whether hosts share before their flows: on the side of sources, and of destinations.
    fn between_hosts(self) -> (bool, bool) {
        let source = matches!(self, Isolation::TripleIsolate | Isolation::DualSource);
        let destination = matches!(self, Isolation::TripleIsolate | Isolation::DualDestination);
        (source, destination)
    }
}

impl Framing {
    fn bytes(self, bytes: u32) -> u32 {
        match self {
            Framing::None => bytes,
            Framing::Atm => bytes.div_ceil(48) * 53,
            Framing::Ptm => bytes + bytes.div_ceil(64),
        }
    }
}

/// Queues of a tin, and how many of them a flow can use.
const QUEUES: usize = 1024;
const WAYS: usize = 8;

/// Where a queue stands in the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    Resting,
    Sparse,
    /// In the round of bulk queues for its deficit's sake, empty, and counted as sparse.
    SparseWait,
    Bulk,
    /// Empty, with a law that has something left to decay.
    Decaying,
}

struct Queue<P> {
    band: Band<P>,
    /// Bytes that it may still send in this turn.
    deficit: i64,
    set: Set,
    /// Its entries in lists with another stamp are void.
    stamp: u32,
    /// Where its hosts are counted.
    source: usize,
    destination: usize,
}

/// A host on one side.
#[derive(Clone, Copy, Default)]
struct Host {
    tag: u64,
    bulk_queues: u16,
}

/// Numbers of queues, with the stamps that they had.
type List = VecDeque<(usize, u32)>;

struct Tin<P> {
    rate: Rate,
    queues: Vec<Option<Box<Queue<P>>>>,
    /// Queues that have been used.
    open: Vec<usize>,
    /// The flow for which a queue is kept.
    tags: Vec<u64>,
    sources: Vec<Host>,
    destinations: Vec<Host>,
    new: List,
    old: List,
    decaying: List,
    sparse_queues: u32,
    bulk_queues: u32,
    /// Bytes of a queue's turn, for a host with one.
    quantum: u32,
    packets: u32,
    bytes: u64,
    /// When its share of the rate lets it go before others.
    next_packet: Time,
    /// Without a shaper: bytes of its turns, and what is left of this one.
    turn: i64,
    deficit: i64,
}

impl<P: Packet> Tin<P> {
    fn new(share: &Share, bandwidth: Rate) -> Tin<P> {
        let rate = match bandwidth.as_bps() {
            0 => 0,
            // `cake_set_rate` has no rate below 64 bytes a second.
            bits => (bits * share.numerator / share.denominator).max(512),
        };
        Tin {
            rate: Rate::from_bps(rate),
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
            quantum: match rate {
                0 => 1514,
                // `cake_set_rate`: a 4096th of the bytes of a second.
                bits => u32::try_from(bits / 8 / 4096).map_or(1514, |it| it.clamp(300, 1514)),
            },
            packets: 0,
            bytes: 0,
            next_packet: Time::ZERO,
            turn: share.quantum,
            deficit: 0,
        }
    }

    fn set_of(&self, number: usize) -> Set {
        self.queues[number]
            .as_ref()
            .map_or(Set::Resting, |queue| queue.set)
    }

    fn queue(&mut self, number: usize) -> &mut Queue<P> {
        self.queues[number]
            .as_mut()
            .expect("a queue in a list exists")
    }

    /// The queue for a flow: one that is kept for it, else a free one of its set, else one that it
    /// shares (`cake_hash`).
    fn place(&self, tag: u64) -> usize {
        let direct = (tag % QUEUES as u64) as usize;
        let ways = || (0..WAYS).map(|way| direct - direct % WAYS + (direct + way) % WAYS);
        let kept = ways().find(|&it| self.tags[it] == tag && self.queues[it].is_some());
        kept.or_else(|| ways().find(|&it| self.set_of(it) == Set::Resting))
            .unwrap_or(direct)
    }

    /// A queue becomes, or ceases to be, one of the bulk queues of its hosts.
    fn count_hosts(&mut self, number: usize, isolation: Isolation, joins: bool) {
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
    fn turn_of(&mut self, number: usize, isolation: Isolation, rng: &mut Rng) -> i64 {
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
        bytes as i64
    }

    /// Where a host is counted: where it was, else where no host has bulk queues.
    fn host(hosts: &mut [Host], tag: u64) -> usize {
        let direct = (tag % QUEUES as u64) as usize;
        let ways = || (0..WAYS).map(|way| direct - direct % WAYS + (direct + way) % WAYS);
        let found = ways()
            .find(|&it| hosts[it].tag == tag)
            .or_else(|| ways().find(|&it| hosts[it].bulk_queues == 0))
            .unwrap_or(direct);
        hosts[found].tag = tag;
        found
    }

    /// Entries of the list whose queue has moved on leave its head.
    fn head(list: &mut List, queues: &[Option<Box<Queue<P>>>]) -> Option<usize> {
        loop {
            let &(number, stamp) = list.front()?;
            if queues[number].as_ref().is_some_and(|it| it.stamp == stamp) {
                return Some(number);
            }
            list.pop_front();
        }
    }

    /// The queue to serve, out of its list. Those that decay come once in a departure.
    fn pop_next(&mut self, first: bool) -> Option<usize> {
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

    fn busy(&self) -> bool {
        self.sparse_queues + self.bulk_queues > 0
    }

    /// The queue is empty: it leaves the round (`cake_dequeue`).
    fn retire(&mut self, number: usize, now: Time, isolation: Isolation) {
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

    /// What a band has gained or lost since it held this much.
    fn recount(&mut self, number: usize, before: (u32, u64)) {
        let band = &self.queue(number).band;
        let (packets, bytes) = (band.len_packets(), band.len_bytes());
        self.packets = self.packets + packets - before.0;
        self.bytes = self.bytes + bytes - before.1;
    }
}

struct Cake<P> {
    params: CakeParams,
    shaped: bool,
    site: QueueSite,
    /// Decides, with the flow, which queue a packet joins.
    salt: u64,
    rng: Rng,
    laws: LawFactory,
    /// The first law, until a flow comes.
    spare: Option<Band<P>>,
    tins: Vec<Tin<P>>,
    /// The tin whose turn it is, without a shaper.
    current: usize,
    /// The shaper lets nothing go before.
    next_packet: Time,
    /// What rounding to ns left over, so that the long-run rate is exact.
    remainder: u64,
    packets: u32,
    bytes: u64,
    /// No law wants to be called before.
    next_timeout: Option<Time>,
    /// Moved while traffic runs; queues to come take it as well.
    set_point: Option<SetPoint>,
}

impl<P: Packet + Send> Cake<P> {
    /// A tin's laws see its share of the shaper's rate, or the link's.
    fn rate_of(&self, tin: usize) -> Rate {
        match self.shaped {
            true => self.tins[tin].rate,
            false => self.site.rate,
        }
    }

    fn spread_rate(&mut self) {
        for tin in 0..self.tins.len() {
            let rate = self.rate_of(tin);
            let queues = self.tins[tin].queues.iter_mut().flatten();
            queues.for_each(|queue| queue.band.set_rate(rate));
        }
    }

    /// What a packet takes of the link.
    fn wire_bytes(&self, packet: &P) -> u32 {
        let overhead = u32::try_from(self.params.overhead.0).unwrap_or(u32::MAX);
        let least = u32::try_from(self.params.mpu.0).unwrap_or(u32::MAX);
        let bytes = packet.bytes().saturating_add(overhead).max(least);
        self.params.framing.bytes(bytes)
    }

    /// The queue of a packet in its tin, kept for its flow.
    fn classify(&mut self, tin: usize, packet: &P) -> usize {
        let (source, destination) = packet.hosts();
        // The two sides of one host are not the same.
        let source = mix(source ^ self.salt);
        let destination = mix(!destination ^ self.salt);
        let tag = match self.params.isolation {
            Isolation::Blind => 0,
            Isolation::SourceHost => source,
            Isolation::DestinationHost => destination,
            Isolation::Hosts => mix(source ^ destination.rotate_left(32)),
            Isolation::Flows
            | Isolation::DualSource
            | Isolation::DualDestination
            | Isolation::TripleIsolate => mix(packet.flow() ^ self.salt),
        };
        let rate = self.rate_of(tin);
        let isolation = self.params.isolation;
        let number = self.tins[tin].place(tag);
        if self.tins[tin].queues[number].is_none() {
            let mut band = self.spare.take().unwrap_or_else(|| {
                Band::new(&self.site, &mut self.laws).expect("the first law was built alike")
            });
            band.set_rate(rate);
            band.set_buffer(self.site.buffer);
            if let Some(set_point) = self.set_point {
                band.set_point(set_point);
            }
            let queue = Queue {
                band,
                deficit: 0,
                set: Set::Resting,
                stamp: 0,
                source: 0,
                destination: 0,
            };
            self.tins[tin].queues[number] = Some(Box::new(queue));
            self.tins[tin].open.push(number);
        }
        let tin = &mut self.tins[tin];
        let set = tin.set_of(number);
        if set == Set::Resting || tin.tags[number] != tag {
            // It is another flow's from here on, also where it holds packets of the last.
            let bulk = set == Set::Bulk;
            if bulk {
                tin.count_hosts(number, isolation, false);
            }
            tin.tags[number] = tag;
            let source = Tin::<P>::host(&mut tin.sources, source);
            let destination = Tin::<P>::host(&mut tin.destinations, destination);
            let queue = tin.queue(number);
            (queue.source, queue.destination) = (source, destination);
            if bulk {
                tin.count_hosts(number, isolation, true);
            }
        }
        number
    }

    /// An arrival has made its queue busy.
    fn join_round(&mut self, tin: usize, number: usize) {
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
    fn end_turn(&mut self, tin: usize, number: usize) {
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
    fn choose_tin(&mut self, now: Time) -> usize {
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
    fn charge(&mut self, tin: usize, bytes: u32, now: Time) {
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

    fn overfull(&self) -> bool {
        self.site.buffer.is_exceeded(self.packets, self.bytes)
    }

    /// The longest queue loses its oldest packet (`cake_drop`).
    fn drop_from_longest(&mut self, now: Time, sink: &mut dyn Sink<P>) {
        let mut longest = (0, 0, 0);
        for (i, tin) in self.tins.iter().enumerate() {
            for &number in &tin.open {
                let queue = tin.queues[number].as_ref();
                let bytes = queue.map_or(0, |queue| queue.band.len_bytes());
                if bytes > longest.0 {
                    longest = (bytes, i, number);
                }
            }
        }
        let (_, tin, number) = longest;
        let class = class_of(tin);
        let queue = self.tins[tin].queue(number);
        if let Some(packet) = queue.band.pop_oldest() {
            queue.band.trimmed(now, 1);
            let bytes = u64::from(packet.bytes());
            let tin = &mut self.tins[tin];
            (tin.packets, tin.bytes) = (tin.packets - 1, tin.bytes - bytes);
            (self.packets, self.bytes) = (self.packets - 1, self.bytes - bytes);
            sink.dropped(now, packet, Drop::Overflow, class);
        }
    }

    fn count_all(&mut self) {
        self.packets = self.tins.iter().map(|tin| tin.packets).sum();
        self.bytes = self.tins.iter().map(|tin| tin.bytes).sum();
    }

    fn note_timeout(&mut self, timeout: Option<Time>) {
        self.next_timeout = match (self.next_timeout, timeout) {
            (Some(next), Some(timeout)) => Some(next.min(timeout)),
            (next, timeout) => next.or(timeout),
        };
    }

    fn bands(&self) -> impl Iterator<Item = &Band<P>> {
        let queues = self.tins.iter().flat_map(|tin| tin.queues.iter().flatten());
        queues.map(|queue| &queue.band).chain(&self.spare)
    }

    fn bands_mut(&mut self) -> impl Iterator<Item = &mut Band<P>> {
        let queues = self
            .tins
            .iter_mut()
            .flat_map(|tin| tin.queues.iter_mut().flatten());
        queues.map(|queue| &mut queue.band).chain(&mut self.spare)
    }

    /// The next packet of a tin; none where its queue has turned out empty.
    fn serve(&mut self, tin: usize, now: Time, first: bool, sink: &mut dyn Sink<P>) -> Served<P> {
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
        self.tins[tin].recount(number, before);
        self.count_all();
        self.note_timeout(timeout);
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

enum Served<P> {
    Packet(Dequeued<P>),
    /// The same tin goes on with its next queue.
    TurnEnded,
    /// The queue was empty: tins are looked at anew.
    Nothing,
}

impl<P: Packet + Send> Discipline<P> for Cake<P> {
    fn enqueue(&mut self, now: Time, packet: P, sink: &mut dyn Sink<P>) {
        let tin = self.params.tins.of(packet.dscp());
        let number = self.classify(tin, &packet);
        // What was not sent earlier is not made up for.
        if self.tins[tin].packets == 0 {
            self.tins[tin].next_packet = self.tins[tin].next_packet.max(now);
            if self.packets == 0 && self.next_packet < now {
                (self.next_packet, self.remainder) = (now, 0);
            }
        }
        let all = self.bytes;
        let queue = self.tins[tin].queue(number);
        let before = (queue.band.len_packets(), queue.band.len_bytes());
        queue.band.set_others(Others {
            bytes: all - before.1,
            head_since: None,
        });
        queue.band.offer(now, packet, true, class_of(tin), sink);
        let holds = queue.band.len_packets() > 0;
        let timeout = queue.band.poll_timeout();
        self.tins[tin].recount(number, before);
        self.count_all();
        self.note_timeout(timeout);
        if holds {
            self.join_round(tin, number);
        }
        while self.overfull() {
            self.drop_from_longest(now, sink);
        }
    }

    fn dequeue(&mut self, now: Time, sink: &mut dyn Sink<P>) -> Dequeued<P> {
        let mut first = true;
        while self.packets > 0 {
            if self.shaped && self.next_packet > now {
                return Dequeued::Wait(self.next_packet);
            }
            let tin = self.choose_tin(now);
            loop {
                match self.serve(tin, now, first, sink) {
                    Served::Packet(packet) => return packet,
                    Served::TurnEnded => first = false,
                    Served::Nothing => break,
                }
            }
            first = false;
        }
        Dequeued::Idle
    }

    fn drain(&mut self, give: &mut dyn FnMut(P)) {
        for tin in &mut self.tins {
            for list in [&mut tin.new, &mut tin.old, &mut tin.decaying] {
                for (number, stamp) in list.drain(..) {
                    let queue = tin.queues[number].as_mut();
                    if let Some(queue) = queue.filter(|queue| queue.stamp == stamp) {
                        queue.set = Set::Resting;
                        queue.band.drain(give);
                    }
                }
            }
            for host in tin.sources.iter_mut().chain(&mut tin.destinations) {
                host.bulk_queues = 0;
            }
            (tin.sparse_queues, tin.bulk_queues) = (0, 0);
            (tin.packets, tin.bytes) = (0, 0);
        }
        self.count_all();
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.next_timeout
    }

    fn handle_timeout(&mut self, now: Time) {
        for band in self.bands_mut() {
            if band.poll_timeout().is_some_and(|due| due <= now) {
                band.handle_timeout(now);
            }
        }
        self.next_timeout = self.bands().filter_map(Band::poll_timeout).min();
    }

    fn len_packets(&self) -> u32 {
        self.packets
    }

    fn len_bytes(&self) -> u64 {
        self.bytes
    }

    fn set_rate(&mut self, rate: Rate) {
        self.site.rate = rate;
        self.spread_rate();
    }

    fn set_buffer(&mut self, buffer: Buffer) {
        self.site.buffer = buffer;
        self.bands_mut().for_each(|band| band.set_buffer(buffer));
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.set_point = Some(set_point);
        let can = self.bands_mut().map(|band| band.set_point(set_point));
        // Every law is asked, also after one that cannot.
        can.fold(true, |all, can| all & can)
    }

    /// Queues in their first turn, those in the round, and those that decay.
    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        let sum = |count: fn(&Tin<P>) -> u32| f64::from(self.tins.iter().map(count).sum::<u32>());
        out("sparse_queues", sum(|tin| tin.sparse_queues));
        out("bulk_queues", sum(|tin| tin.bulk_queues));
    }

    fn classes(&self) -> &'static [&'static str] {
        self.params.tins.names()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discipline::testing::buffer_of;
    use crate::law::Ecn;
    use crate::param::Params;

    #[derive(Clone, Copy)]
    struct Sent {
        flow: u64,
        source: u64,
        bytes: u32,
        dscp: u8,
    }

    impl Packet for Sent {
        fn bytes(&self) -> u32 {
            self.bytes
        }
        fn flow(&self) -> u64 {
            self.flow
        }
        fn hosts(&self) -> (u64, u64) {
            (self.source, 0)
        }
        fn ecn(&self) -> Ecn {
            Ecn::NotEct
        }
        fn dscp(&self) -> u8 {
            self.dscp
        }
        fn set_ce(&mut self) {
            unreachable!("not ECN-capable")
        }
    }

    struct Count(u32);

    impl Sink<Sent> for Count {
        fn dropped(&mut self, _: Time, _: Sent, _: Drop, _: u8) {
            self.0 += 1;
        }
        fn marked(&mut self, _: Time, _: &Sent, _: u8) {}
    }

    fn queue(params: &CakeParams, packets: u32) -> Box<dyn Discipline<Sent>> {
        let (site, laws) = buffer_of(packets);
        params.build(&site, laws).unwrap()
    }

    fn sent(flow: u64, source: u64, dscp: u8) -> Sent {
        Sent {
            flow,
            source,
            bytes: 1000,
            dscp,
        }
    }

    /// What leaves a link of any speed in a second, where each of these is sent again as it
    /// leaves, four times in the queue.
    fn second(queue: &mut dyn Discipline<Sent>, kinds: &[Sent]) -> Vec<Sent> {
        let (mut now, mut sink) = (Time::ZERO, Count(0));
        for packet in [kinds; 4].concat() {
            queue.enqueue(now, packet, &mut sink);
        }
        let mut left = Vec::new();
        loop {
            match queue.dequeue(now, &mut sink) {
                Dequeued::Packet(departure) => {
                    left.push(departure.packet);
                    queue.enqueue(now, departure.packet, &mut sink);
                }
                Dequeued::Wait(until) => now = until,
                Dequeued::Idle => panic!("idle with packets"),
            }
            if now >= Time::ZERO + Span::from_secs(1) {
                assert_eq!(sink.0, 0);
                return left;
            }
        }
    }

    fn at(bandwidth: Rate) -> CakeParams {
        CakeParams {
            bandwidth,
            ..CakeParams::defaults()
        }
    }

    fn share_of(left: &[Sent], is: impl Fn(&Sent) -> bool) -> f64 {
        left.iter().filter(|packet| is(packet)).count() as f64 / left.len() as f64
    }

    #[test]
    fn it_shapes_to_its_rate_with_the_framing_counted() {
        let plain = at(Rate::from_bps(8_000_000));
        // 1000 bytes and 44 of overhead are 22 cells of 53 bytes, or 17 more bytes.
        let framed = |framing| CakeParams {
            overhead: Bytes(44),
            framing,
            ..plain.clone()
        };
        let small = Sent {
            bytes: 20,
            ..sent(1, 1, 0)
        };
        let least = CakeParams {
            mpu: Bytes(64),
            ..plain.clone()
        };
        for (params, packet, wire_bytes) in [
            (plain.clone(), sent(1, 1, 0), 1000.0),
            (framed(Framing::None), sent(1, 1, 0), 1044.0),
            (framed(Framing::Atm), sent(1, 1, 0), 22.0 * 53.0),
            (framed(Framing::Ptm), sent(1, 1, 0), 1061.0),
            (least, small, 64.0),
        ] {
            let mut queue = queue(&params, 100);
            let left = second(&mut *queue, &[packet]).len() as f64;
            assert!((left - 1e6 / wire_bytes).abs() <= 1.0, "{params:?}: {left}");
        }
    }

    #[test]
    fn hosts_share_before_their_flows() {
        // One flow of host 1, nine of host 2.
        let kinds: Vec<Sent> = (0..10)
            .map(|i| sent(i, if i == 0 { 1 } else { 2 }, 0))
            .collect();
        let of_first = |isolation| {
            let params = CakeParams {
                isolation,
                ..at(Rate::from_bps(80_000_000))
            };
            let left = second(&mut *queue(&params, 100), &kinds);
            share_of(&left, |packet| packet.source == 1)
        };
        for (isolation, share) in [
            (Isolation::DualSource, 0.5),
            (Isolation::SourceHost, 0.5),
            (Isolation::Flows, 0.1),
            // They all go to one host.
            (Isolation::DualDestination, 0.1),
        ] {
            let got = of_first(isolation);
            assert!((got - share).abs() < 0.02, "{isolation:?}: {got}");
        }
    }

    #[test]
    fn a_tin_keeps_its_share_against_those_before_it() {
        let share = |tins, dscp| {
            let params = CakeParams {
                tins,
                ..at(Rate::from_bps(80_000_000))
            };
            let left = second(
                &mut *queue(&params, 100),
                &[sent(0, 0, 0), sent(1, 1, dscp)],
            );
            share_of(&left, |packet| packet.dscp == dscp)
        };
        // Background, video and voice beside best effort; EF has no tin of its own in the last.
        for (tins, dscp, want) in [
            (Tins::Diffserv3, 8, 1.0 / 16.0),
            (Tins::Diffserv3, 46, 0.25),
            (Tins::Diffserv4, 34, 0.5),
            (Tins::Diffserv4, 46, 0.25),
            (Tins::Precedence, 8, 7.0 / 8.0),
            (Tins::BestEffort, 46, 0.5),
        ] {
            let got = share(tins, dscp);
            assert!((got - want).abs() < 0.02, "{tins:?} {dscp}: {got}");
        }
    }

    #[test]
    fn without_a_shaper_tins_take_turns() {
        let (mut queue, mut sink) = (queue(&CakeParams::defaults(), 4000), Count(0));
        for _ in 0..2000 {
            queue.enqueue(Time::ZERO, sent(0, 0, 0), &mut sink);
            queue.enqueue(Time::ZERO, sent(1, 1, 46), &mut sink);
        }
        let voice = (0..2000)
            .filter_map(|_| queue.dequeue(Time::ZERO, &mut sink).packet())
            .filter(|departure| departure.class == 2)
            .count();
        // 256 of 1024 and 256.
        assert!((380..=420).contains(&voice), "{voice}");
    }

    #[test]
    fn no_flow_shares_a_queue_while_its_set_has_room() {
        let params = CakeParams {
            isolation: Isolation::Flows,
            ..at(Rate::from_bps(80_000_000))
        };
        let (mut queue, mut sink) = (queue(&params, 10_000), Count(0));
        for flow in 0..300 {
            queue.enqueue(Time::ZERO, sent(flow, 0, 0), &mut sink);
        }
        let mut queues = 0.0;
        queue.probe(&mut |name, value| {
            if name == "sparse_queues" {
                queues = value;
            }
        });
        assert_eq!(queues, 300.0);
    }

    #[test]
    fn a_full_buffer_costs_the_longest_queue_its_head() {
        let (mut queue, mut sink) = (queue(&CakeParams::defaults(), 10), Count(0));
        for _ in 0..10 {
            queue.enqueue(Time::ZERO, sent(1, 1, 0), &mut sink);
        }
        queue.enqueue(Time::ZERO, sent(2, 2, 0), &mut sink);
        assert_eq!((sink.0, queue.len_packets()), (1, 10));
        let of_second = (0..10)
            .filter_map(|_| queue.dequeue(Time::ZERO, &mut sink).packet())
            .filter(|departure| departure.packet.flow == 2)
            .count();
        assert_eq!(of_second, 1);
    }
}
