//! The way of a packet: to a queue, over its link, through the receiver, and its ACK back.

use super::*;

impl<const ONE: bool> Engine<ONE> {
    /// Lets pass all that happens inside the network before these two times: at its links, and
    /// at the packets that reach its stations.
    #[inline]
    pub(super) fn pass_inside(&mut self, links_before: u64, packets_before: u64) {
        loop {
            let (free, packet) = (self.next_link(), self.inside.next_time());
            if free <= packet {
                if free >= links_before {
                    break;
                }
                let link = if ONE { 0 } else { self.link_at };
                self.send_from(free, link);
                self.look_at_links();
            } else {
                if packet >= packets_before {
                    break;
                }
                self.next_inside();
            }
        }
        self.agenda.inside = self.next_inside_deadline();
    }

    #[inline(always)]
    pub(super) fn next_inside_deadline(&self) -> u64 {
        let next = self.next_link().min(self.inside.next_time());
        next.saturating_add(self.inside_ahead_ns)
    }

    #[inline(always)]
    pub(super) fn next_returns_deadline(&self) -> u64 {
        let next = self.returns.next_time();
        next.saturating_add(self.returns_ahead_ns)
    }

    /// A packet reaches a station.
    #[inline(always)]
    fn next_inside(&mut self) {
        let network = &self.network;
        let fetch = |packet: &Packet| {
            prefetch(network.pair_of(packet));
            prefetch(&network.receivers[packet.flow as usize]);
        };
        let Some((now, packet)) = self.inside.peek() else {
            return;
        };
        if ONE {
            let sends = self.ports[0].arrive(now, *packet);
            self.inside.pop(fetch);
            if sends {
                self.send_at_once(now, 0);
            }
            return;
        }
        let packet = *packet;
        self.inside.pop(fetch);
        match self.network.station(packet.station) {
            Hop::Port(link) => {
                let link = usize::from(link);
                if self.ports[link].arrive(now, packet) {
                    self.send_at_once(now, link);
                } else if self.ports[link].transmitter.is_free() {
                    self.look_at_links();
                }
            }
            Hop::Back(link) => self.go_back(now, link, packet),
            Hop::Sink | Hop::Source => unreachable!("not a station"),
        }
    }

    /// A link that was free takes the packet that has just come, if its queue lets one go.
    #[inline(never)]
    fn send_at_once(&mut self, now: u64, link: usize) {
        let sent = self.ports[link].send_next(now);
        self.look_at_links();
        if let Some(sent) = sent {
            self.leave_port(link, sent);
        }
    }

    /// A link takes the next packet from its queue.
    #[inline(always)]
    fn send_from(&mut self, now: u64, link: usize) {
        if let Some(sent) = self.ports[link].send_next(now) {
            self.leave_port(link, sent);
        }
    }

    /// When a link is free next.
    #[inline(always)]
    fn next_link(&self) -> u64 {
        match ONE {
            true => self.ports[0].due(),
            false => self.link_free,
        }
    }

    /// Finds the link that is free first.
    #[inline]
    pub(super) fn look_at_links(&mut self) {
        if ONE {
            return;
        }
        let (mut first, mut at) = (NEVER, 0);
        for (link, port) in self.ports.iter().enumerate() {
            if port.due() < first {
                (first, at) = (port.due(), link);
            }
        }
        (self.link_free, self.link_at) = (first, at);
    }

    /// A packet that left a port goes on: to its sink as a rule, and an ACK to its source.
    #[inline(always)]
    pub(super) fn leave_port(&mut self, link: usize, sent: Sent) {
        if ONE {
            return self.deliver(sent);
        }
        let packet = sent.packet;
        match self
            .network
            .after_port(self.network.pair_of(&packet).path, link)
        {
            Hop::Sink => self.deliver(sent),
            hop => self.go_on(sent.arrives_at, hop, packet),
        }
    }

    /// With one bottleneck nothing but ACKs crosses the line back, and nothing but their arrival
    /// at their sources depends on it: those that have reached it before this time cross together.
    pub(super) fn pass_back(&mut self, before: u64) {
        if !ONE {
            return;
        }
        while self.returns.next_time() < before {
            let Some((now, ack)) = self.returns.peek() else {
                break;
            };
            let back = &mut self.backs[0];
            let at = back.wire.pass(&mut back.free, now, ack.bytes);
            let route = self.network.routes[ack.flow as usize];
            let pair = &mut self.network.pairs[route.pair as usize];
            let at = pair.wire.pass(&mut pair.ack_down, at, ack.bytes);
            self.acks.push_on(usize::from(pair.class), at, *ack);
            let network = &self.network;
            self.returns.pop(|ack| prefetch(network.pair_of(ack)));
        }
        self.agenda.returns = self.next_returns_deadline();
    }

    /// An ACK crosses a line back, where flows meet, and its source's access link as a rule.
    fn go_back(&mut self, now: u64, link: u16, ack: Packet) {
        let link = usize::from(link);
        let back = &mut self.backs[link];
        let at = back.wire.pass(&mut back.free, now, ack.bytes);
        let path = self.network.pair_of(&ack).path;
        match self.network.after_back(path, link) {
            Hop::Source => self.return_to_source(at, ack),
            hop => self.go_on(at, hop, ack),
        }
    }

    fn return_to_source(&mut self, at: u64, ack: Packet) {
        let route = self.network.routes[ack.flow as usize];
        let pair = &mut self.network.pairs[route.pair as usize];
        let at = pair.wire.pass(&mut pair.ack_down, at, ack.bytes);
        self.acks.push_on(usize::from(pair.class), at, ack);
    }

    /// A packet that left a station reaches the next one at `at`. Out of line, so that the
    /// usual single bottleneck stays fast.
    #[inline(never)]
    pub(super) fn go_on(&mut self, at: u64, hop: Hop, packet: Packet) {
        match hop {
            Hop::Port(_) | Hop::Back(_) => {
                let station = self.network.number(hop);
                self.inside.push(at, Packet { station, ..packet });
            }
            Hop::Source => self.return_to_source(at, packet),
            Hop::Sink => unreachable!("data reaches its sink from a port"),
        }
    }

    /// A packet that left its last port goes to its sink: a FIFO all the way, so the receiver
    /// can be run now, at the time when the packet reaches it.
    #[inline(always)]
    pub(super) fn deliver(&mut self, sent: Sent) {
        let packet = sent.packet;
        let route = self.network.routes[packet.flow as usize];
        let pair = &mut self.network.pairs[route.pair as usize];
        let now = (pair.wire).pass(&mut pair.data_down, sent.arrives_at, packet.bytes);
        // A delayed ACK that falls due before this packet goes out first.
        if self.network.receivers[packet.flow as usize].ack_due < now {
            self.send_due_ack(packet.flow);
        }
        let network = &mut self.network;
        let pair = &mut network.pairs[route.pair as usize];
        let class = &mut network.classes[route.class as usize];
        let receiver = &mut network.receivers[packet.flow as usize];
        let counted = now > self.window.0 && now <= self.window.1;
        let Some(Tcp { config, .. }) = &class.tcp else {
            receiver.count(u64::from(packet.bytes - class.header_bytes), counted);
            if let Some(calls) = &mut class.calls {
                calls.received(packet.flow - class.first, packet.seq, now, counted);
            }
            return;
        };
        let (reply, delivered) = receiver.receive(now, &packet, config.acks);
        receiver.count(
            u64::from(delivered) * u64::from(config.payload_bytes),
            counted,
        );
        match reply {
            Reply::Now => {
                let ack = ack(packet.flow, receiver, class, pair, &mut self.blocks);
                let at = pair.wire.pass(&mut pair.ack_up, now, HEADER_BYTES);
                let class = usize::from(pair.class);
                self.enter_way_back(class, at, ack);
            }
            Reply::Later => {
                let due = receiver.ack_due;
                self.set_alarm(due, Alarm::DelayedAck(packet.flow));
            }
            Reply::Stale => {}
        }
    }

    #[cold]
    #[inline(never)]
    fn send_due_ack(&mut self, flow: u32) {
        let receiver = &mut self.network.receivers[flow as usize];
        let due = std::mem::replace(&mut receiver.ack_due, NEVER);
        self.send_ack(due, flow);
    }

    pub(super) fn check_delayed_ack(&mut self, now: u64, flow: u32) {
        let receiver = &mut self.network.receivers[flow as usize];
        if receiver.ack_due == now {
            receiver.ack_due = NEVER;
            self.send_ack(now, flow);
        }
    }

    /// The receiver sends an ACK at `now`, which may lie ahead of the clock.
    fn send_ack(&mut self, now: u64, flow: u32) {
        let network = &mut self.network;
        let route = network.routes[flow as usize];
        let pair = &mut network.pairs[route.pair as usize];
        let class = &network.classes[route.class as usize];
        let receiver = &network.receivers[flow as usize];
        let ack = ack(flow, receiver, class, pair, &mut self.blocks);
        let at = pair.wire.pass(&mut pair.ack_up, now, HEADER_BYTES);
        let class = usize::from(pair.class);
        self.enter_way_back(class, at, ack);
    }

    /// An ACK reaches the first station of its way back.
    #[inline(always)]
    fn enter_way_back(&mut self, class: usize, at: u64, ack: Packet) {
        if ONE {
            self.returns.push_on(class, at, ack);
            self.agenda.returns_by(at + self.returns_ahead_ns);
        } else {
            self.inside.push_on(INSIDE_LINES * class + ACK, at, ack);
            self.agenda.inside_by(at + self.inside_ahead_ns);
        }
    }

    /// An ACK reaches its sender.
    #[inline(always)]
    pub(super) fn next_ack(&mut self) {
        let network = &self.network;
        let fetch = |ack: &Packet| {
            prefetch(network.pair_of(ack));
            network.prefetch_sender(ack.flow);
        };
        let Some((now, ack)) = self.acks.peek() else {
            return;
        };
        let ack = *ack;
        self.acks.pop(fetch);
        let options = match ack.blocks {
            NO_BLOCKS => None,
            index => Some(self.blocks.take(index)),
        };
        self.step(now, ack.flow, |senders, index, step| {
            let news = Ack {
                next: ack.seq,
                ece: ack.flags.ecn_signal(),
                ce_pkts: options.as_ref().map_or(0, |options| options.ce_pkts),
                blocks: options.as_ref().map_or(&[], AckOptions::blocks),
            };
            senders.on_ack(index, ack.connection, &news, step)
        });
    }

    pub(super) fn check_timer(&mut self, now: u64, flow: u32) {
        self.step(now, flow, |senders, index, step| {
            senders.on_timer(index, step)
        });
    }

    /// Pacing lets a flow go on.
    pub(super) fn pace(&mut self, now: u64, flow: u32) {
        self.step(now, flow, |senders, index, step| {
            senders.on_pace(index, step)
        });
    }

    /// Runs a step of a flow's sender, puts its packets on the access link and its timer in the
    /// calendar.
    #[inline(always)]
    pub(super) fn step(
        &mut self,
        now: u64,
        flow: u32,
        act: impl FnOnce(&mut dyn Senders, u32, &mut Step) -> Outcome,
    ) {
        let at = self.network.routes[flow as usize];
        let class = &mut self.network.classes[at.class as usize];
        let Some(Tcp { config, senders }) = &mut class.tcp else {
            return;
        };
        let mut step = Step {
            config,
            now,
            out: &mut self.segments,
            held: false,
        };
        let outcome = act(&mut **senders, at.sender, &mut step);
        if outcome.timer != NEVER {
            self.alarms.push(outcome.timer, Alarm::Retransmit(flow));
            self.agenda.alarm_by(outcome.timer);
        }
        if step.held {
            if let Some(due) = senders.pace_at(at.sender) {
                self.alarms.push(due, Alarm::Pace(flow));
                self.agenda.alarm_by(due);
            }
        }
        if self.segments.is_empty() {
            if outcome.done {
                self.end_transfer(now, flow);
            }
            return;
        }
        let pair = &mut self.network.pairs[at.pair as usize];
        let line = match ONE {
            true => usize::from(pair.class),
            false => INSIDE_LINES * usize::from(pair.class) + DATA,
        };
        let mut first = NEVER;
        for segment in &self.segments {
            // The SYN is a bare header and not ECN-capable (RFC 3168 section 6.1.1).
            let syn = segment.seq == 0;
            let packet = Packet {
                flow,
                seq: segment.seq,
                blocks: NO_BLOCKS,
                bytes: if syn {
                    HEADER_BYTES
                } else {
                    config.packet_bytes
                },
                connection: outcome.connection,
                traffic_class: TrafficClass::new(
                    class.dscp,
                    if syn { Ecn::NotEct } else { segment.ecn },
                ),
                flags: Flags::of_tcp(segment.cwr),
                station: pair.data_enters,
            };
            // One whose link falls free just now has waited too, as in ns-2.
            let free = pair.data_up < now && !syn;
            let at = pair.wire.pass(&mut pair.data_up, now, packet.bytes);
            first = first.min(at);
            // A packet that waits for its access link would hold up the others' line.
            if free {
                self.inside.push_on(line, at, packet);
            } else {
                self.inside.push(at, packet);
            }
        }
        self.segments.clear();
        self.agenda.inside_by(first + self.inside_ahead_ns);
    }
}

/// The ACK that a receiver sends now.
#[inline(always)]
fn ack(
    flow: u32,
    receiver: &Receiver,
    class: &Class,
    pair: &Pair,
    blocks: &mut BlockStore,
) -> Packet {
    let blocks = match class.tcp.as_ref().map(|tcp| &tcp.config) {
        Some(config) if config.sack || config.counts_marks => {
            let held = if config.sack { receiver.blocks() } else { &[] };
            let ce_pkts = receiver.ce_pkts() * u32::from(config.counts_marks);
            blocks.put(held, ce_pkts)
        }
        _ => NO_BLOCKS,
    };
    Packet {
        flow,
        seq: receiver.next(),
        blocks,
        bytes: HEADER_BYTES,
        connection: receiver.connection(),
        traffic_class: TrafficClass::new(class.dscp, Ecn::NotEct),
        flags: Flags::of_ack(receiver.echo()),
        station: pair.ack_enters,
    }
}
