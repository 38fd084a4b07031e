//! The acts of applications on their connections.

use forebay_trace::Transfer;
use forebay_units::Time;

use super::hosts::{Alarm, Hosts};
use crate::ids::FlowId;
use crate::network::{Begun, TcpTraffic};
use crate::packet::{Flags, Packet};
use crate::traffic::Action;

impl Hosts {
    /// Sets an alarm for the next act of the flow's application, if there is one.
    pub fn schedule_act(&mut self, flow: FlowId) {
        let (script, number) = self.network.script_of(flow);
        if let Some(at) = script.next_at(number) {
            self.set_alarm(at, Alarm::Act(flow));
        }
    }

    /// Performs the act that is due at `now` and schedules the next one.
    pub fn act(&mut self, now: Time, flow: FlowId) {
        let (script, number) = self.network.script_of(flow);
        if let Some(action) = script.take_due(number, now) {
            self.perform(now, flow, action);
            self.schedule_act(flow);
        }
    }

    /// Performs an action of the flow's application.
    pub fn perform(&mut self, now: Time, flow: FlowId, action: Action) {
        match action {
            Action::Open => self.open(now, flow),
            Action::Close => self.close(flow),
            Action::Fresh => {
                let phase = self.network.phases.uniform();
                self.reset_connection(flow, phase);
                self.open(now, flow);
            }
            Action::Transfer(packets) => self.begin_transfer(now, flow, packets),
            Action::Send => self.send_plain(now, flow),
        }
    }

    /// Replaces a connection by a new one with this clock phase, at the sender and the receiver.
    pub fn reset_connection(&mut self, number: FlowId, phase: f64) {
        let (class, index) = self.network.class_of(number);
        if let Some(TcpTraffic { config, senders }) = &mut class.tcp {
            let connection = senders.reset(index, config, phase);
            self.network.receivers[number.index()].reset(connection);
        }
    }

    /// Gives the flow's sender endless data.
    fn open(&mut self, now: Time, flow: FlowId) {
        self.step(now, flow, |senders, index, step| senders.open(index, step));
    }

    /// Ends the data of the flow's sender. Packets already sent are still delivered.
    pub fn close(&mut self, flow: FlowId) {
        let (class, index) = self.network.class_of(flow);
        if let Some(tcp) = &mut class.tcp {
            tcp.senders.close(index);
        }
    }

    /// Starts a transfer of this many packets on a free connection. The request is lost if there is
    /// none.
    pub fn begin_transfer(&mut self, now: Time, flow: FlowId, packets: u32) {
        // The phase is drawn for a lost request, too, so that the draws of later requests do not
        // depend on the loss.
        let class = self.network.routes[flow.index()].class as usize;
        let phase = self.network.classes[class].phases.uniform();
        let Some(number) = self
            .network
            .take_connection(flow, Begun { at: now, packets })
        else {
            return;
        };
        self.reset_connection(number, phase);
        self.step(now, number, |senders, index, step| {
            senders.transfer(index, packets, step)
        });
    }

    /// Ends a transfer whose last packet was acknowledged, and schedules the act for which the flow
    /// waited, if any.
    #[cold]
    pub fn end_transfer(&mut self, now: Time, number: FlowId) {
        let Some((flow, begun)) = self.network.release_connection(number) else {
            return;
        };
        let class = self.network.routes[flow.index()].class as usize;
        let class = &mut self.network.classes[class];
        let (start, end) = self.window;
        if start < now && now <= end {
            class.transfers.push(Transfer {
                traffic: self.network.routes[flow.index()].class,
                packets: begun.packets,
                took: now - begun.at,
            });
        }
        let act = class.script.transferred(flow.offset_from(class.first), now);
        if let Some(at) = act {
            self.set_alarm(at, Alarm::Act(flow));
        }
    }

    /// Sets an alarm for the next arrival of flows of a traffic.
    pub fn schedule_arrival(&mut self, class: u32, at: Option<Time>) {
        if let Some(at) = at {
            self.set_alarm(at, Alarm::Arrival(class));
        }
    }

    /// Starts a flow of the traffic if one arrives at `now`, and schedules the next arrival.
    pub fn arrive(&mut self, now: Time, class: u32) {
        let of_class = &mut self.network.classes[class as usize];
        let (flow, next) = of_class.script.arrive(now);
        if let Some(flow) = flow {
            let flow = of_class.first.nth(flow);
            self.schedule_act(flow);
        }
        self.schedule_arrival(class, next);
    }

    /// Sets an alarm for the next recorded packets of a traffic.
    pub fn schedule_coming(&mut self, class: u32, at: Option<Time>) {
        if let Some(at) = at {
            self.set_alarm(at, Alarm::Coming(class));
        }
    }

    /// Schedules the arrivals of a traffic's next recorded packets at their first station.
    pub fn take_coming(&mut self, class: u32) {
        let Hosts {
            network,
            arrivals,
            agenda,
            lookahead,
            ..
        } = self;
        let at = &mut network.classes[class as usize];
        let (first, packet, mut earliest) = (at.first, at.packet.unpack(), Time::NEVER);
        let station = network.pairs[network.routes[first.index()].pair.index()].data_enters;
        let next = at.script.coming(&mut |coming| {
            let flags = match coming.tcp {
                true => Flags::of_tcp(false),
                false => Flags::of_udp(),
            };
            let (flags, seq) = match coming.hosts {
                Some((from, to)) => (flags.with_hosts(), u32::from(from) << 16 | u32::from(to)),
                None => (flags, 0),
            };
            earliest = earliest.min(coming.at);
            arrivals.push(
                coming.at,
                Packet {
                    flow: first.nth(coming.flow),
                    seq,
                    bytes: coming.bytes,
                    traffic_class: coming.class,
                    flags,
                    ..packet
                }
                .pack(),
                station,
            );
        });
        agenda.links_by(earliest + *lookahead);
        self.schedule_coming(class, next);
    }

    /// Sends one packet of a source without congestion control.
    pub fn send_plain(&mut self, now: Time, flow: FlowId) {
        let at = self.network.routes[flow.index()];
        let class = &mut self.network.classes[at.class as usize];
        let packet = Packet {
            flow,
            // Only the sinks of calls read the number.
            seq: match &mut class.calls {
                Some(calls) => calls.sent(flow.offset_from(class.first), now),
                None => 0,
            },
            ..class.packet.unpack()
        };
        let pair = &mut self.network.pairs[at.pair.index()];
        let arrives = pair.wire.pass(&mut pair.data_up, now, packet.bytes);
        (self.arrivals).push(arrives, packet.pack(), pair.data_enters);
        self.agenda.links_by(arrives + self.lookahead);
    }
}
