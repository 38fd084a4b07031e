//! The way of a packet: to a queue, over its link, through the receiver, and its ACK back.

use super::*;

impl<const ONE: bool> Engine<'_, ONE> {
    #[inline]
    pub(super) fn pair_of(&self, packet: &Packet) -> &Pair {
        let route = self.network.routes[packet.flow as usize];
        &self.network.pairs[route.pair as usize]
    }

    /// A packet reaches a station. Out of line, so that the usual single bottleneck stays fast.
    #[inline(never)]
    pub(super) fn reach(&mut self, now: u64, hop: Hop, packet: Packet) {
        match hop {
            Hop::Port(link) => self.arrive_at_port(now, link, packet),
            Hop::Back(link) => self.go_back(now, link, packet),
            Hop::Sink | Hop::Source => unreachable!("not a station"),
        }
    }

    #[inline(always)]
    pub(super) fn arrive_at_port(&mut self, now: u64, link: u16, packet: Packet) {
        let link = usize::from(link);
        let port = &mut self.ports[link];
        let sent = port.arrive(now, packet);
        if let Some(sent) = sent {
            self.look_at_links();
            self.leave_port(link, sent);
        }
    }

    /// Finds the link that is free first.
    #[inline]
    pub(super) fn look_at_links(&mut self) {
        if ONE {
            self.agenda.link = self.ports[0].done_at;
            return;
        }
        let (mut first, mut at) = (NEVER, 0);
        for (link, port) in self.ports.iter().enumerate() {
            if port.done_at < first {
                (first, at) = (port.done_at, link);
            }
        }
        (self.agenda.link, self.agenda.link_at) = (first, at);
    }

    /// A packet that left a port goes on: to its sink as a rule, and an ACK to its source.
    #[inline]
    pub(super) fn leave_port(&mut self, link: usize, sent: Sent) {
        if ONE {
            return self.deliver(sent);
        }
        let packet = sent.packet;
        match self.network.after_port(self.pair_of(&packet).path, link) {
            Hop::Sink => self.deliver(sent),
            hop => self.go_on(sent.arrives_at, hop, packet),
        }
    }

    /// An ACK crosses a line back, where flows meet, and its source's access link as a rule.
    #[inline(always)]
    pub(super) fn go_back(&mut self, now: u64, link: u16, ack: Packet) {
        let link = usize::from(link);
        let back = &mut self.backs[link];
        let at = back.wire.pass(&mut back.free, now, ack.bytes);
        if ONE {
            return self.return_to_source(at, ack);
        }
        match self.network.after_back(self.pair_of(&ack).path, link) {
            Hop::Source => self.return_to_source(at, ack),
            hop => self.go_on(at, hop, ack),
        }
    }

    #[inline(always)]
    pub(super) fn return_to_source(&mut self, at: u64, ack: Packet) {
        let route = self.network.routes[ack.flow as usize];
        let pair = &mut self.network.pairs[route.pair as usize];
        let at = pair.wire.pass(&mut pair.ack_down, at, ack.bytes);
        let line = LINES * usize::from(pair.class) + ACK;
        self.packets.push_on(line, at, Event::Ack(ack));
    }

    /// A packet that left a station reaches the next one at `at`. Out of line, so that the
    /// usual single bottleneck stays fast.
    #[inline(never)]
    pub(super) fn go_on(&mut self, at: u64, hop: Hop, packet: Packet) {
        match hop {
            Hop::Port(_) | Hop::Back(_) => {
                let station = self.network.number(hop);
                let packet = Packet { station, ..packet };
                self.packets.push(at, Event::Station(packet));
            }
            Hop::Source => self.return_to_source(at, packet),
            Hop::Sink => unreachable!("data reaches its sink from a port"),
        }
    }

    /// A packet that left its last port goes to its sink: a FIFO all the way, so the receiver
    /// can be run now, at the time when the packet reaches it.
    #[inline]
    pub(super) fn deliver(&mut self, sent: Sent) {
        let packet = sent.packet;
        let route = self.network.routes[packet.flow as usize];
        let pair = &mut self.network.pairs[route.pair as usize];
        let now = pair
            .wire
            .pass(&mut pair.data_down, sent.arrives_at, packet.bytes);
        let class = &self.network.classes[route.class as usize];
        let receiver = &mut self.network.receivers[packet.flow as usize];
        let counted = now > self.window.0 && now <= self.window.1;
        let Some(config) = &class.tcp else {
            if counted {
                receiver.delivered_bytes += u64::from(packet.bytes - class.header_bytes);
            }
            return;
        };
        let (acks, payload_bytes) = (config.acks, u64::from(config.payload_bytes));
        // A delayed ACK that falls due before this packet goes out first.
        if receiver.ack_due < now {
            let due = std::mem::replace(&mut receiver.ack_due, NEVER);
            self.send_ack(due, packet.flow);
        }
        let receiver = &mut self.network.receivers[packet.flow as usize];
        let (reply, delivered) = receiver.receive(now, &packet, acks);
        if counted {
            receiver.delivered_bytes += u64::from(delivered) * payload_bytes;
        }
        match reply {
            Reply::Now => self.send_ack(now, packet.flow),
            Reply::Later => {
                let due = receiver.ack_due;
                self.set_alarm(due, Alarm::DelayedAck(packet.flow));
            }
            Reply::Stale => {}
        }
    }

    pub(super) fn check_delayed_ack(&mut self, now: u64, flow: u32) {
        let receiver = &mut self.network.receivers[flow as usize];
        if receiver.ack_due == now {
            receiver.ack_due = NEVER;
            self.send_ack(now, flow);
        }
    }

    /// The receiver sends an ACK at `now`, which may lie ahead of the clock.
    #[inline]
    pub(super) fn send_ack(&mut self, now: u64, flow: u32) {
        let receiver = &self.network.receivers[flow as usize];
        let route = self.network.routes[flow as usize];
        let pair = &mut self.network.pairs[route.pair as usize];
        let class = &self.network.classes[route.class as usize];
        let blocks = match &class.tcp {
            Some(config) if config.sack => self.blocks.put(receiver.blocks()),
            _ => NO_BLOCKS,
        };
        let ack = Packet {
            flow,
            seq: receiver.next(),
            blocks,
            bytes: HEADER_BYTES,
            connection: receiver.connection(),
            ecn: Ecn::NotEct,
            flags: Flags {
                ecn_signal: receiver.echo(),
                ..Flags::default()
            },
            station: 0,
        };
        let at = pair.wire.pass(&mut pair.ack_up, now, HEADER_BYTES);
        let line = LINES * usize::from(pair.class) + ACK_RETURNS;
        self.packets.push_on(line, at, Event::AckReturns(ack));
    }

    #[inline]
    pub(super) fn take_ack(&mut self, now: u64, ack: Packet) {
        let (blocks, count) = self.blocks.take(ack.blocks);
        self.with_sender(now, ack.flow, |sender, step| {
            // An ACK of an earlier connection is not this one's.
            if ack.connection == sender.connection {
                let ack = Ack {
                    next: ack.seq,
                    ece: ack.flags.ecn_signal,
                    blocks: &blocks[..count],
                };
                sender.on_ack(&ack, step);
            }
        });
    }

    pub(super) fn check_timer(&mut self, now: u64, flow: u32) {
        let sender = &mut self.network.senders[flow as usize];
        // The timer is re-armed without touching its event: this one may be early, or stale.
        if sender.timer_event != now {
            return;
        }
        sender.timer_event = NEVER;
        let due = sender.rto_due <= now;
        self.with_sender(now, flow, |sender, step| {
            if due {
                sender.on_timer(step);
            }
        });
    }

    /// Runs a step of a sender, puts its packets on the access link and its timer in the
    /// calendar.
    #[inline]
    pub(super) fn with_sender(
        &mut self,
        now: u64,
        flow: u32,
        step: impl FnOnce(&mut crate::sender::Sender, &mut Step),
    ) {
        let at = self.network.routes[flow as usize];
        let class = &self.network.classes[at.class as usize];
        let Some(config) = &class.tcp else { return };
        let sender = &mut self.network.senders[flow as usize];
        step(
            sender,
            &mut Step {
                config,
                now,
                out: &mut self.segments,
            },
        );
        if sender.rto_due < sender.timer_event {
            sender.timer_event = sender.rto_due;
            self.alarms.push(sender.rto_due, Alarm::Retransmit(flow));
            self.agenda.alarm = self.agenda.alarm.min(sender.rto_due);
        }
        if self.segments.is_empty() {
            // Only a closed connection or a transfer has an end.
            if sender.una == sender.limit {
                self.end_transfer(now, flow);
            }
            return;
        }
        let connection = sender.connection;
        let ecn = if config.ecn { Ecn::Ect0 } else { Ecn::NotEct };
        let pair = &mut self.network.pairs[at.pair as usize];
        for segment in self.segments.drain(..) {
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
                connection,
                ecn: if syn || !segment.ect {
                    Ecn::NotEct
                } else {
                    ecn
                },
                flags: Flags {
                    ecn_signal: segment.cwr,
                    ..Flags::default()
                },
                station: 0,
            };
            let free = pair.data_up <= now && !syn;
            let at = pair.wire.pass(&mut pair.data_up, now, packet.bytes);
            // A packet that waits for its access link would hold up the others' line.
            if free {
                let line = LINES * usize::from(pair.class) + DATA;
                self.packets.push_on(line, at, Event::Data(packet));
            } else {
                self.packets.push(at, Event::Data(packet));
            }
        }
    }
}
