//! CAKE: a shaper, tins by DSCP, and in each tin flow queueing that is fair between hosts first
//! (Høiland-Jørgensen, Täht and Morton 2018). Details follow Linux's net/sched/sch_cake.c. The
//! option `autorate-ingress`, which estimates the rate, is left out: the link's rate is known here.

use forebay_linux_tc::{Tc, TcSite};
use forebay_units::cast::whole_u32;
use forebay_units::{
    params, Buffer, Bytes, Packets, ParamError, ParamType, QueueSite, Rate, Rng, SetPoint, Time,
    Value,
};

use crate::band::Band;
use crate::bands::Bands;
use crate::discipline::{
    Dequeued, Discipline, DisciplineParams, DropReason, LawFactory, Packet, Sink,
};
use crate::law::OtherQueues;

mod ack_filter;
mod framing;
mod isolation;
mod longest;
mod schedule;
#[cfg(test)]
mod tests;
mod tin;
mod tins;

use ack_filter::AckFilter;
use framing::Framing;
use isolation::{FlowKeys, Isolation};
use longest::LongestQueue;
use schedule::ServeResult;
use tin::{FlowQueue, Set, Tin, QUEUES};
use tins::{class_of, Share, Tins};

params! {
    /// The parameters of CAKE. Each flow queue has a law of its own, and all queues share the
    /// buffer: if an arrival overfills it, packets are dropped from the head of the longest queue.
    pub struct CakeParams {
        /// Rate of CAKE's own shaper; with 0bit/s the link paces the packets, and a queue's quantum
        /// is that of a shaper of the link's rate.
        bandwidth: Rate = Rate::from_bps(0), 0.0 => 1e13;
        /// Tins that packets are sorted into by their DSCP: "diffserv3" has tins for best effort,
        /// background and voice, "diffserv4" also one for video, "precedence" one for each of the
        /// eight precedences, and "besteffort" a single tin for all packets.
        tins: Tins = Tins::Diffserv3;
        /// Unit that has a queue of its own: a flow, a host, or the whole tin ("flowblind").
        /// "triple-isolate" shares between hosts first, on both sides, then between the flows of a
        /// host; "dual-srchost" and "dual-dsthost" look at one side.
        isolation: Isolation = Isolation::TripleIsolate;
        /// Bytes that the link adds to each packet.
        overhead: Bytes = Bytes(0), 0.0 => 256.0;
        /// Least size of a packet on the link, overhead included.
        mpu: Bytes = Bytes(0), 0.0 => 256.0;
        /// Cells of the link: "atm" sends 53 bytes for each 48 begun, "ptm" adds one for each 64
        /// begun.
        framing: Framing = Framing::None;
        /// Drop ACKs that a later one in the same queue makes useless: "filter" leaves two of a
        /// flow, "aggressive" one. In simulations; real packets are left as they are.
        ack_filter: AckFilter = AckFilter::Off;
        /// Clear the DSCP of each packet once it has chosen the tin. In simulations.
        wash: bool = false;
        /// Packets that the queues hold together, as `memlimit` of Linux's cake has it; 0p takes
        /// the buffer of the link.
        limit: Packets = Packets(0.0), 0.0 => 1e9;
    }
}

impl DisciplineParams for CakeParams {
    const KIND: &'static str = "cake";
    const TITLE: &'static str = "A shaper, tins by DSCP, and a queue for each flow under a law";
    const SOURCE: &'static str = "Høiland-Jørgensen et al. 2018; Linux tc-cake(8)";

    fn per_flow(&self) -> bool {
        self.isolation != Isolation::Blind
    }

    fn own_limit(&self) -> Option<u32> {
        (self.limit.0 > 0.0).then(|| whole_u32(self.limit.0).max(1))
    }

    fn build<P: Packet + Send + 'static>(
        &self,
        site: &QueueSite,
        laws: LawFactory,
    ) -> Result<Box<dyn Discipline<P>>, ParamError> {
        let salt = laws.salt();
        let shaped = self.bandwidth.as_bps() > 0;
        // The laws are checked for the rate at which packets leave: the lower of shaper and link.
        let checked = QueueSite {
            rate: if shaped {
                self.bandwidth.min(site.rate)
            } else {
                site.rate
            },
            ..*site
        };
        let paced = if shaped { self.bandwidth } else { site.rate };
        let tin = |share: &Share| Tin::new(share, self.bandwidth, paced);
        let mut cake = Cake {
            tins: self.tins.shares().iter().map(tin).collect(),
            params: self.clone(),
            shaped,
            salt,
            rng: Rng::new(salt, "quanta"),
            bands: Bands::new(&checked, laws)?,
            longest: LongestQueue::default(),
            current: 0,
            next_packet: Time::ZERO,
            remainder: 0,
            packets: 0,
            bytes: 0,
        };
        cake.spread_rate();
        Ok(Box::new(cake))
    }

    fn tc(&self, tc: &mut Tc, site: &TcSite) -> Result<(), ParamError> {
        tc.shapes = true;
        match self.bandwidth.as_bps() {
            0 => tc.word(Tc::UNLIMITED),
            bps => tc.pair("bandwidth", format!("{bps}bit")),
        }
        tc.word(&spelled(self.tins));
        tc.word(&spelled(self.isolation));
        tc.word(match self.wash {
            true => "wash",
            false => "nowash",
        });
        tc.word(match self.ack_filter {
            AckFilter::Off => "no-ack-filter",
            AckFilter::Filter => "ack-filter",
            AckFilter::Aggressive => "ack-filter-aggressive",
        });
        // `overhead` is added to the size of IP packets; `raw` counts the sizes that tc counts.
        let plain = self.overhead.0 == 0 && self.mpu.0 == 0 && self.framing == Framing::None;
        if plain && site.header.0 == 0 {
            tc.word("raw");
        } else {
            tc.pair("overhead", self.overhead.0 + site.in_packet.0);
            tc.pair("mpu", self.mpu.0);
            tc.word(match self.framing {
                Framing::None => "noatm",
                Framing::Atm => "atm",
                Framing::Ptm => "ptm",
            });
        }
        tc.memory(site);
        Ok(())
    }
}

/// Returns the name of an option's value, which scenarios and tc spell alike.
fn spelled(option: impl ParamType) -> String {
    match option.to_value() {
        Value::Text(text) => text,
        value => value.to_string(),
    }
}

struct Cake<P> {
    params: CakeParams,
    /// True if CAKE shapes to a bandwidth of its own.
    shaped: bool,
    /// Perturbation of the hash that maps flows to queues.
    salt: u64,
    rng: Rng,
    bands: Bands<P>,
    tins: Vec<Tin<P>>,
    /// The queues of all tins, numbered tin by tin in the order in which they were first used.
    longest: LongestQueue,
    /// The tin that is being served in the round robin without a shaper.
    current: usize,
    /// The earliest time at which the shaper releases a packet.
    next_packet: Time,
    /// The remainder of rounding to nanoseconds, which keeps the long-run rate exact.
    remainder: u64,
    packets: u32,
    bytes: u64,
}

impl<P: Packet + Send> Cake<P> {
    /// Returns the rate that a tin's laws see: the tin's share of the shaper's rate, or the link's
    /// rate.
    fn rate_of(&self, tin: usize) -> Rate {
        match self.shaped {
            true => self.tins[tin].rate,
            false => self.bands.site.rate,
        }
    }

    /// Sets the rate that the law of every queue sees.
    fn spread_rate(&mut self) {
        for tin in 0..self.tins.len() {
            let rate = self.rate_of(tin);
            let queues = self.tins[tin].queues.iter_mut().flatten();
            queues.for_each(|queue| queue.band.set_rate(rate));
        }
    }

    /// Returns the size of a packet on the link, with overhead and framing.
    fn wire_bytes(&self, packet: &P) -> u32 {
        let overhead = u32::try_from(self.params.overhead.0).unwrap_or(u32::MAX);
        let mpu = u32::try_from(self.params.mpu.0).unwrap_or(u32::MAX);
        let bytes = packet.bytes().saturating_add(overhead).max(mpu);
        self.params.framing.bytes(bytes)
    }

    /// Returns the number of the packet's queue in its tin, and assigns the queue to the packet's
    /// flow.
    fn classify(&mut self, tin: usize, packet: &P) -> usize {
        let FlowKeys {
            source,
            destination,
            tag,
        } = self.params.isolation.keys(packet, self.salt);
        let rate = self.rate_of(tin);
        let isolation = self.params.isolation;
        let number = self.tins[tin].place(tag);
        if self.tins[tin].queues[number].is_none() {
            let queue = FlowQueue {
                band: self.bands.make(rate),
                deficit: 0,
                set: Set::Resting,
                stamp: 0,
                source: 0,
                destination: 0,
                opened: self.tins[tin].open.len(),
            };
            self.tins[tin].queues[number] = Some(Box::new(queue));
            self.tins[tin].open.push(number);
        }
        let tin = &mut self.tins[tin];
        let set = tin.set_of(number);
        if set == Set::Resting || tin.tags[number] != tag {
            // The queue now belongs to this flow, even if it still holds packets of the last one.
            let is_bulk = set == Set::Bulk;
            if is_bulk {
                tin.count_hosts(number, isolation, false);
            }
            tin.tags[number] = tag;
            let source = Tin::<P>::host(&mut tin.sources, source);
            let destination = Tin::<P>::host(&mut tin.destinations, destination);
            let queue = tin.queue(number);
            (queue.source, queue.destination) = (source, destination);
            if is_bulk {
                tin.count_hosts(number, isolation, true);
            }
        }
        number
    }

    /// Drops the oldest packet of the queue with the most bytes, or with the most packets if no
    /// packet has any bytes (`cake_drop`).
    fn drop_from_longest(&mut self, now: Time, sink: &mut dyn Sink<P>) {
        let tins = &self.tins;
        let longest = self.longest.find(|rank| {
            let tin = &tins[rank / QUEUES];
            let queue = tin.queues[tin.open[rank % QUEUES]].as_ref();
            queue.map_or((0, 0), |queue| {
                (queue.band.len_bytes(), queue.band.len_packets())
            })
        });
        let Some(rank) = longest else {
            return;
        };
        let (tin, number) = (rank / QUEUES, self.tins[rank / QUEUES].open[rank % QUEUES]);
        let class = class_of(tin);
        let queue = self.tins[tin].queue(number);
        if let Some(packet) = queue.band.pop_oldest() {
            queue.band.trimmed(now, 1);
            let bytes = u64::from(packet.bytes());
            let tin = &mut self.tins[tin];
            (tin.packets, tin.bytes) = (tin.packets - 1, tin.bytes - bytes);
            (self.packets, self.bytes) = (self.packets - 1, self.bytes - bytes);
            sink.dropped(now, packet, DropReason::Overflow, class);
        }
    }

    /// Updates the counts of packets and bytes after the length of a queue has changed from `before`
    /// to `now`.
    fn recount(&mut self, tin: usize, before: (u32, u64), now: (u32, u64)) {
        let tin = &mut self.tins[tin];
        tin.packets = tin.packets + now.0 - before.0;
        tin.bytes = tin.bytes + now.1 - before.1;
        self.packets = self.packets + now.0 - before.0;
        self.bytes = self.bytes + now.1 - before.1;
    }
}

/// Returns the bands of all queues.
fn bands<P>(tins: &mut [Tin<P>]) -> impl Iterator<Item = &mut Band<P>> {
    let queues = tins
        .iter_mut()
        .flat_map(|tin| tin.queues.iter_mut().flatten());
    queues.map(|queue| &mut queue.band)
}

impl<P: Packet + Send> Discipline<P> for Cake<P> {
    fn shapes(&self) -> bool {
        !self.shaped
    }

    fn enqueue(&mut self, now: Time, mut packet: P, sink: &mut dyn Sink<P>) {
        let tin = self.params.tins.of(packet.dscp());
        let number = self.classify(tin, &packet);
        if self.params.wash {
            packet.clear_dscp();
        }
        // An empty tin has saved no credit: its schedule, and an idle shaper's, restart at `now`.
        if self.tins[tin].packets == 0 {
            self.tins[tin].next_packet = self.tins[tin].next_packet.max(now);
            if self.packets == 0 && self.next_packet < now {
                (self.next_packet, self.remainder) = (now, 0);
            }
        }
        let total_bytes = self.bytes;
        let queue = self.tins[tin].queue(number);
        let before = (queue.band.len_packets(), queue.band.len_bytes());
        queue.band.set_other_queues(OtherQueues {
            bytes: total_bytes - before.1,
            head_since: None,
        });
        queue.band.offer(now, packet, true, class_of(tin), sink);
        if queue.band.len_packets() > before.0 {
            let redundant = self.params.ack_filter.redundant(&queue.band);
            if let Some(packet) = redundant.and_then(|position| queue.band.remove(position)) {
                sink.dropped(now, packet, DropReason::Forced, class_of(tin));
            }
        }
        let after = (queue.band.len_packets(), queue.band.len_bytes());
        let rank = QUEUES * tin + queue.opened;
        let timeout = queue.band.poll_timeout();
        self.recount(tin, before, after);
        self.bands.note_timeout(timeout);
        if after.0 > 0 {
            // Of equally long queues, the one of the first tin loses a packet, and within a tin the
            // one that was used first.
            self.longest.grow(rank, (after.1, after.0));
            self.join_round(tin, number);
        }
        while self.bands.is_exceeded(self.packets, self.bytes) {
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
                    ServeResult::Packet(packet) => return packet,
                    ServeResult::TurnEnded => first = false,
                    ServeResult::Empty => break,
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
        (self.packets, self.bytes) = (0, 0);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.bands.next_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.bands.handle_timeout(now, bands(&mut self.tins));
    }

    fn len_packets(&self) -> u32 {
        self.packets
    }

    fn len_bytes(&self) -> u64 {
        self.bytes
    }

    fn set_rate(&mut self, rate: Rate) {
        self.bands.site.rate = rate;
        if !self.shaped {
            for (tin, share) in self.tins.iter_mut().zip(self.params.tins.shares()) {
                tin.quantum = share.quantum_of(rate);
            }
        }
        self.spread_rate();
    }

    fn set_buffer(&mut self, buffer: Buffer) {
        if self.params.own_limit().is_none() {
            self.bands.set_buffer(buffer, bands(&mut self.tins));
        }
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.bands.set_point(set_point, bands(&mut self.tins))
    }

    /// Reports the numbers of sparse and of bulk queues.
    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        let sum = |count: fn(&Tin<P>) -> u32| f64::from(self.tins.iter().map(count).sum::<u32>());
        out("sparse_queues", sum(|tin| tin.sparse_queues));
        out("bulk_queues", sum(|tin| tin.bulk_queues));
    }

    fn classes(&self) -> &'static [&'static str] {
        self.params.tins.names()
    }
}
