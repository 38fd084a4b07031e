//! Packets of the caller: sending them, and running from one outcome to the next.

use forebay_aqm::TrafficClass;
use forebay_units::Time;

use super::hosts::Hosts;
use super::{PacketEngine, Topology};
use crate::external::{End, Loss, Outgoing, PacketOutcome, QueueEvent};
use crate::number::count;
use crate::packet::{Flags, Packet, NO_TRAFFIC};
use crate::Watch;

impl Hosts {
    /// Puts a packet of the caller onto its access link at `now`, which is not before any processed
    /// event.
    fn send_external(&mut self, now: Time, sent: &Outgoing) {
        let flow = self.external.flows[sent.flow as usize];
        let route = self.network.routes[flow.index()];
        let class = &self.network.classes[route.class as usize];
        let pair = &mut self.network.pairs[route.pair.index()];
        let from_sink = sent.from == End::Sink;
        let usual = class.packet.unpack();
        let packet = Packet {
            flow,
            seq: sent.number,
            bytes: sent.bytes,
            traffic_class: TrafficClass::new(usual.traffic_class.dscp(), sent.ecn),
            flags: Flags::of_external(from_sink),
            traffic: match from_sink {
                true => NO_TRAFFIC,
                false => usual.traffic,
            },
            ..usual
        };
        let late = usize::from(pair.class);
        let prompt = usize::from(pair.prompt_line);
        let (at, line) = match from_sink {
            // The last prompt line of a kind is for packets towards the source.
            true => {
                let at = pair.wire.pass(&mut pair.ack_up, now, sent.bytes);
                (at, prompt + self.prompt_lines - 1)
            }
            false => {
                let waited = pair.data_up >= now;
                let at = pair.wire.pass(&mut pair.data_up, now, sent.bytes);
                (at, if waited { late } else { prompt })
            }
        };
        let enters = match from_sink {
            true => pair.ack_enters,
            false => pair.data_enters,
        };
        self.arrivals.push_on(line, at, packet.pack(), enters);
        self.agenda.links_by(at + self.lookahead);
    }
}

impl<T: Topology> PacketEngine<T> {
    /// Returns the number of flows whose packets the caller sends.
    pub fn external_flows(&self) -> u32 {
        count(self.hosts.external.flows.len())
    }

    /// Sends a packet of the caller at `now`, which is not before the last outcome.
    pub fn send_external(&mut self, now: Time, packet: &Outgoing) {
        self.hosts.send_external(now, packet);
    }

    /// Runs to the next outcome and returns it; `None` if there is none up to `until` or the end.
    pub fn next_outcome(&mut self, until: Time) -> Option<PacketOutcome> {
        debug_assert!(!T::LOOKS_AHEAD, "links must not be ahead of the caller");
        let until = until.min(self.end);
        loop {
            let told = self.hosts.external.next_time();
            let here = self.hosts.agenda.first_besides_the_end();
            let next = here.min(self.links.next_ack());
            if told <= next.min(until) {
                return self.hosts.external.pop();
            }
            // Process all events of the next time, and none of a later time.
            let to = next.min(until);
            self.run_until(to, &Watch::default());
            self.collect_lost();
            if next > until {
                return None;
            }
        }
    }

    /// Starts to log the actions of queues on packets of the caller.
    pub fn log_queues(&mut self) {
        for port in self.links.ports_mut() {
            port.bottleneck.record.sink.log.get_or_insert_default();
        }
    }

    /// Returns the entries logged since the last call, in order of time.
    pub fn take_queue_log(&mut self) -> Vec<QueueEvent> {
        let mut events = Vec::new();
        let PacketEngine { links, hosts, .. } = self;
        for (link, port) in links.ports_mut().iter_mut().enumerate() {
            let log = port.bottleneck.record.sink.log.iter_mut();
            let logged = log.flat_map(|log| log.drain(..));
            events.extend(logged.map(|entry| hosts.external.event(link, &entry)));
        }
        // The sort is stable, so that entries of one queue keep their order.
        events.sort_by_key(|event| event.at);
        events
    }

    /// Moves the packets of the caller that queues dropped to the pending outcomes.
    fn collect_lost(&mut self) {
        for port in self.links.ports_mut() {
            let lost = &mut port.bottleneck.record.sink.external;
            for (at, packet, why) in lost.drain(..) {
                let fate = Err(Loss::Queue(why));
                self.hosts.external.push(at, packet, fate);
            }
        }
    }
}
