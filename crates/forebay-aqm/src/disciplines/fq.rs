//! Flow queueing: every flow has a queue, queues are served by deficit round robin, and sparse
//! flows go first (DRR++; RFC 8290). Each queue has a law of its own, of any kind.

use std::collections::VecDeque;

use forebay_linux_tc::{Tc, TcSite};
use forebay_units::cast::whole_u32;
use forebay_units::{params, Buffer, Bytes, Packets, ParamError, QueueSite, Rate, SetPoint, Time};

use crate::band::Band;
use crate::bands::Bands;
use crate::discipline::{
    mix, Dequeued, Discipline, DisciplineParams, DropReason, LawFactory, Packet, Sink,
};
use crate::law::OtherQueues;

params! {
    /// The queues share the buffer. An arrival that overfills it has packets dropped from the
    /// head of the longest queue; under PIE it is dropped itself, as in Linux.
    pub struct FqParams {
        /// Number of queues, over which a hash deals the flows (RFC 8290, section 4.1).
        queues: u32 = 1024, 1.0 => 65536.0;
        /// Bytes that a queue may send in its turn (RFC 8290, section 4.2).
        quantum: Bytes = Bytes(1514), 40.0 => 1e6;
        /// Largest number of packets dropped together when the buffer is full, up to half of the
        /// longest queue (RFC 8290, section 4.1.2). Under PIE the arrival is dropped, as in Linux.
        drop_batch: u32 = 64, 1.0 => 1e6;
        /// Packets that the queues hold together, as `limit` of Linux's fq_codel has it; 0p takes
        /// the buffer of the link.
        limit: Packets = Packets(0.0), 0.0 => 1e9;
    }
}

impl DisciplineParams for FqParams {
    const KIND: &'static str = "fq";
    const TITLE: &'static str = "A queue for each flow, served in turn, each under a law";
    const SOURCE: &'static str = "RFC 8290 (FQ-CoDel), for any law";

    fn per_flow(&self) -> bool {
        self.queues > 1
    }

    fn own_limit(&self) -> Option<u32> {
        (self.limit.0 > 0.0).then(|| whole_u32(self.limit.0).max(1))
    }

    fn build<P: Packet + Send + 'static>(
        &self,
        site: &QueueSite,
        laws: LawFactory,
    ) -> Result<Box<dyn Discipline<P>>, ParamError> {
        let fq = Fq {
            params: self.clone(),
            salt: laws.salt(),
            bands: Bands::new(site, laws)?,
            queues: (0..self.queues).map(|_| None).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            packets: 0,
            bytes: 0,
        };
        Ok(Box::new(fq))
    }

    fn tc(&self, tc: &mut Tc, site: &TcSite) -> Result<(), ParamError> {
        tc.pair("flows", self.queues);
        tc.pair("quantum", self.quantum.0);
        match tc.qdisc {
            "fq_codel" => tc.pair("drop_batch", self.drop_batch),
            // Linux's fq_pie drops the arrival that finds it full, so it has no batch.
            _ => tc.defaults(self, &["drop_batch"])?,
        }
        tc.memory_limit(site);
        Ok(())
    }
}

/// The class of departures from new queues: flows that send little.
const SPARSE: u8 = 0;
/// The class of departures from old queues.
const BULK: u8 = 1;

/// The list of RFC 8290 section 4 that a queue is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Neither,
    New,
    Old,
}

/// The queue of the flows with the same hash.
struct FlowQueue<P> {
    band: Band<P>,
    /// The bytes that the queue may still send in this turn.
    deficit: i64,
    list: List,
}

impl<P> FlowQueue<P> {
    /// Returns the class that an arrival joins.
    fn class(&self) -> u8 {
        match self.list {
            List::Neither | List::New => SPARSE,
            List::Old => BULK,
        }
    }
}

struct Fq<P> {
    params: FqParams,
    /// Perturbation of the hash that maps flows to queues (RFC 8290 section 4.1.1).
    salt: u64,
    bands: Bands<P>,
    queues: Vec<Option<Box<FlowQueue<P>>>>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    packets: u32,
    bytes: u64,
}

/// Returns the bands of all queues.
fn bands<P>(queues: &mut [Option<Box<FlowQueue<P>>>]) -> impl Iterator<Item = &mut Band<P>> {
    queues.iter_mut().flatten().map(|queue| &mut queue.band)
}

/// Returns what a law sees of the other queues: their bytes.
fn other_queues(bytes: u64) -> OtherQueues {
    OtherQueues {
        bytes,
        head_since: None,
    }
}

impl<P: Packet + Send> Fq<P> {
    /// Returns the number of the queue that a packet joins.
    fn queue_of(&self, packet: &P) -> u32 {
        let queue = mix(packet.flow() ^ self.salt) % u64::from(self.params.queues);
        u32::try_from(queue).expect("less than the number of queues")
    }

    /// Returns the queue with this number, and builds it for its first packet.
    fn open(&mut self, number: u32) -> &mut FlowQueue<P> {
        let slot = &mut self.queues[number as usize];
        let bands = &mut self.bands;
        slot.get_or_insert_with(|| {
            let band = bands.make(bands.site.rate);
            Box::new(FlowQueue {
                band,
                deficit: 0,
                list: List::Neither,
            })
        })
    }

    /// Returns the queue with this number.
    ///
    /// # Panics
    /// If the queue has not been built.
    fn queue(&mut self, number: u32) -> &mut FlowQueue<P> {
        self.queues[number as usize]
            .as_mut()
            .expect("a queue in a list exists")
    }

    /// Drops packets from the head of the queue with the most bytes: half of its bytes, but at most
    /// a batch of packets (RFC 8290 section 4.1.2), and at least one packet even if packets have no
    /// bytes. The queue's law is informed.
    fn drop_from_longest(&mut self, now: Time, sink: &mut dyn Sink<P>) {
        let open = self.queues.iter().enumerate();
        let lengths = open.filter_map(|(i, queue)| {
            let band = &queue.as_ref()?.band;
            Some((band.len_bytes(), band.len_packets(), i))
        });
        // Among equally long queues, the first.
        let longest =
            lengths.max_by_key(|&(bytes, packets, i)| (bytes, packets, std::cmp::Reverse(i)));
        let Some((bytes, _, longest)) = longest else {
            return;
        };
        let (mut dropped_bytes, mut dropped) = (0, 0);
        let class = self.queues[longest]
            .as_ref()
            .map_or(BULK, |queue| queue.class());
        let more = |dropped, dropped_bytes| {
            dropped < self.params.drop_batch && dropped_bytes < bytes.div_ceil(2)
        };
        while dropped == 0 || more(dropped, dropped_bytes) {
            let queue = self.queues[longest].as_mut();
            let Some(packet) = queue.and_then(|queue| queue.band.pop_oldest()) else {
                break;
            };
            let size = u64::from(packet.bytes());
            (dropped, dropped_bytes) = (dropped + 1, dropped_bytes + size);
            (self.packets, self.bytes) = (self.packets - 1, self.bytes - size);
            sink.dropped(now, packet, DropReason::Overflow, class);
        }
        if let Some(queue) = &mut self.queues[longest] {
            queue.band.trimmed(now, dropped);
        }
    }

    /// Updates the counts of packets and bytes after a queue has changed. `before` is its length
    /// before the change.
    fn recount(&mut self, number: u32, before: (u32, u64)) {
        let band = &self.queue(number).band;
        let (packets, bytes) = (band.len_packets(), band.len_bytes());
        self.packets = self.packets + packets - before.0;
        self.bytes = self.bytes + bytes - before.1;
    }
}

impl<P: Packet + Send> Discipline<P> for Fq<P> {
    fn enqueue(&mut self, now: Time, packet: P, sink: &mut dyn Sink<P>) {
        let number = self.queue_of(&packet);
        let (total_bytes, quantum) = (self.bytes, self.params.quantum.0);
        let fits = {
            let bytes = self.bytes + u64::from(packet.bytes());
            !self.bands.is_exceeded(self.packets + 1, bytes)
        };
        let queue = self.open(number);
        let has_room = fits || !queue.band.drops_arrival_when_full();
        let before = (queue.band.len_packets(), queue.band.len_bytes());
        queue
            .band
            .set_other_queues(other_queues(total_bytes - before.1));
        let class = queue.class();
        queue.band.offer(now, packet, has_room, class, sink);
        let starts = queue.list == List::Neither && queue.band.len_packets() > 0;
        if starts {
            // A flow that had no queue counts as sparse: it goes first for one turn.
            queue.list = List::New;
            queue.deficit = i64::try_from(quantum).unwrap_or(i64::MAX);
        }
        let timeout = queue.band.poll_timeout();
        if starts {
            self.new.push_back(number);
        }
        self.recount(number, before);
        self.bands.note_timeout(timeout);
        while self.bands.is_exceeded(self.packets, self.bytes) {
            self.drop_from_longest(now, sink);
        }
    }

    fn dequeue(&mut self, now: Time, sink: &mut dyn Sink<P>) -> Dequeued<P> {
        let quantum = i64::try_from(self.params.quantum.0).unwrap_or(i64::MAX);
        loop {
            let (number, class) = match (self.new.front(), self.old.front()) {
                (Some(&number), _) => (number, SPARSE),
                (None, Some(&number)) => (number, BULK),
                (None, None) => return Dequeued::Idle,
            };
            let total_bytes = self.bytes;
            let queue = self.queue(number);
            if queue.deficit <= 0 {
                queue.deficit += quantum;
                queue.list = List::Old;
                self.leave(class);
                self.old.push_back(number);
                continue;
            }
            let before = (queue.band.len_packets(), queue.band.len_bytes());
            queue
                .band
                .set_other_queues(other_queues(total_bytes - before.1));
            let departure = queue.band.take(now, class, sink);
            match &departure {
                Some(departure) => queue.deficit -= i64::from(departure.packet.bytes()),
                None => queue.band.idle_once(now),
            }
            let timeout = queue.band.poll_timeout();
            self.recount(number, before);
            self.bands.note_timeout(timeout);
            if let Some(departure) = departure {
                return Dequeued::Packet(departure);
            }
            self.leave(class);
            // An empty new queue goes to the end of the old list. Otherwise its next packet would
            // make it new again, and it could starve the others (RFC 8290 section 4.2).
            if class == SPARSE && !self.old.is_empty() {
                self.queue(number).list = List::Old;
                self.old.push_back(number);
            } else {
                self.queue(number).list = List::Neither;
            }
        }
    }

    fn drain(&mut self, give: &mut dyn FnMut(P)) {
        for list in [&mut self.new, &mut self.old] {
            for number in list.drain(..) {
                if let Some(queue) = &mut self.queues[number as usize] {
                    queue.list = List::Neither;
                    queue.band.drain(give);
                }
            }
        }
        (self.packets, self.bytes) = (0, 0);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.bands.next_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.bands.handle_timeout(now, bands(&mut self.queues));
    }

    fn len_packets(&self) -> u32 {
        self.packets
    }

    fn len_bytes(&self) -> u64 {
        self.bytes
    }

    fn set_rate(&mut self, rate: Rate) {
        self.bands.set_rate(rate, bands(&mut self.queues));
    }

    fn set_buffer(&mut self, buffer: Buffer) {
        if self.params.own_limit().is_none() {
            self.bands.set_buffer(buffer, bands(&mut self.queues));
        }
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.bands.set_point(set_point, bands(&mut self.queues))
    }

    /// Reports the number of queues that hold packets, and of new queues.
    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        let queues = self.queues.iter().flatten();
        let busy = queues.filter(|queue| queue.band.len_packets() > 0).count();
        out("busy_queues", busy as f64);
        out("new_queues", self.new.len() as f64);
    }

    fn classes(&self) -> &'static [&'static str] {
        &["sparse", "bulk"]
    }
}

impl<P> Fq<P> {
    /// Removes the head of the new list, for the class `SPARSE`, or of the old one.
    fn leave(&mut self, class: u8) {
        if class == SPARSE {
            self.new.pop_front();
        } else {
            self.old.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discipline::testing::{buffer_of, packet, sized, Drops};
    use crate::discipline::Departure;
    use crate::laws::pie;
    use forebay_units::{Params, Site};
    use std::sync::Arc;

    type Packet = crate::discipline::testing::Packet;

    fn queue(packets: u32) -> Box<dyn Discipline<Packet>> {
        let (site, laws) = buffer_of(packets);
        FqParams::defaults().build(&site, laws).unwrap()
    }

    /// Dequeues up to `limit` packets, and returns their numbers and classes.
    fn leave(queue: &mut dyn Discipline<Packet>, limit: usize) -> Vec<(u32, u8)> {
        let mut drops = Drops::default();
        let mut departures = Vec::new();
        while departures.len() < limit {
            let Dequeued::Packet(Departure { packet, class, .. }) =
                queue.dequeue(Time::ZERO, &mut drops)
            else {
                break;
            };
            departures.push((packet.id, class));
        }
        departures
    }

    #[test]
    fn flows_share_by_bytes_and_a_new_flow_goes_first() {
        let (mut queue, mut drops) = (queue(100), Drops::default());
        // Two flows, identified by their DSCP here, of four packets each.
        for id in 0..8 {
            queue.enqueue(Time::ZERO, packet(id, (id % 2) as u8), &mut drops);
        }
        // A quantum of 1514 bytes lets two packets of 1000 bytes go in a turn.
        assert_eq!(
            leave(&mut *queue, 3),
            [(0, SPARSE), (2, SPARSE), (1, SPARSE)]
        );
        queue.enqueue(Time::ZERO, packet(8, 5), &mut drops);
        // The second flow ends its turn, then the third goes before the remaining packets.
        let rest: Vec<u32> = leave(&mut *queue, 9).iter().map(|&(id, _)| id).collect();
        assert_eq!(rest, [3, 8, 4, 6, 5, 7]);
        assert_eq!((queue.len_packets(), queue.len_bytes()), (0, 0));
    }

    #[test]
    fn a_full_buffer_drops_from_the_head_of_the_longest_queue() {
        let (mut queue, mut drops) = (queue(6), Drops::default());
        for id in 0..6 {
            queue.enqueue(Time::ZERO, packet(id, 1), &mut drops);
        }
        queue.enqueue(Time::ZERO, sized(6, 1000, Time::ZERO), &mut drops);
        // The drops are half of the bytes of the flow with six packets.
        assert_eq!(drops.dropped, [0, 1, 2]);
        assert_eq!(queue.len_packets(), 4);
    }

    #[test]
    fn a_full_buffer_under_pie_drops_the_arrival() {
        // 60 packets take 16 ms, above PIE's target of 15 ms.
        let (site, _) = buffer_of(60);
        let make = |site: &Site, seed: u64| pie::LAW.build(&[], site, seed);
        let laws = LawFactory::new(Arc::new(make), 1, "law");
        let mut queue: Box<dyn Discipline<Packet>> =
            FqParams::defaults().build(&site, laws).unwrap();
        let mut drops = Drops::default();
        for id in 0..60 {
            queue.enqueue(Time::ZERO, packet(id, 1), &mut drops);
        }
        queue.enqueue(Time::ZERO, packet(60, 2), &mut drops);
        assert_eq!(drops.dropped, [60]);
        assert_eq!(queue.len_packets(), 60);
    }

    #[test]
    fn a_flow_that_empties_waits_its_turn() {
        let (mut queue, mut drops) = (queue(100), Drops::default());
        for id in 0..6 {
            queue.enqueue(Time::ZERO, packet(id, 1), &mut drops);
        }
        leave(&mut *queue, 2);
        // A flow of one packet goes first, then stays in the old list.
        queue.enqueue(Time::ZERO, packet(10, 2), &mut drops);
        assert_eq!(leave(&mut *queue, 2), [(10, SPARSE), (2, BULK)]);
        queue.enqueue(Time::ZERO, packet(11, 2), &mut drops);
        assert_eq!(leave(&mut *queue, 2), [(3, BULK), (11, BULK)]);
    }
}
