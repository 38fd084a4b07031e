//! Changes that a scenario makes during its run.

use forebay_scenario::{LinkSetting, Setting};
use forebay_units::Time;

use super::hosts::Hosts;
use super::{PacketEngine, Topology};
use crate::ids::FlowId;
use crate::traffic::{Act, Action};

impl<T: Topology> PacketEngine<T> {
    /// Returns the time of the next change.
    pub(super) fn next_change(&self) -> Time {
        let next = self.scenario.changes.get(self.changed);
        next.map_or(Time::NEVER, |change| change.at)
    }

    /// Makes the next change, which is due at `now`.
    pub(super) fn apply_change(&mut self, now: Time) {
        let Some(change) = self.scenario.changes.get(self.changed).cloned() else {
            return;
        };
        self.changed += 1;
        match change.what {
            Setting::Link { link, what } => {
                // The link and its line back know their changes already. Here the values at the
                // present time follow.
                let (port, line_back) = self.links.link_mut(link);
                match what {
                    LinkSetting::Rate(rate) => port.set_rate(now, rate),
                    LinkSetting::Delay(delay) => {
                        port.delay = delay;
                        line_back.wire.delay = delay;
                    }
                    LinkSetting::Buffer(buffer) => port.bottleneck.discipline.set_buffer(buffer),
                }
            }
            Setting::Flows { traffic, flows } => self.hosts.set_active(now, traffic, flows),
        }
        self.links.set_lookahead(&mut self.hosts);
        self.hosts.agenda.change = self.next_change();
    }
}

impl Hosts {
    /// True if the flow's application has endless data.
    fn endless(&mut self, flow: FlowId) -> bool {
        let (class, index) = self.network.class_of(flow);
        let tcp = class.tcp.as_mut();
        tcp.is_some_and(|tcp| tcp.senders.endless(index))
    }

    /// Runs the first `active` flows of a traffic and stops the other ones.
    pub fn set_active(&mut self, now: Time, traffic: usize, active: u32) {
        let class = &mut self.network.classes[traffic];
        class.application.set_active(active);
        let first = class.first;
        let transfers = class.most_connections > 0;
        for flow in class.flows() {
            let wanted = flow.offset_from(first) < active;
            let was_stopped =
                std::mem::replace(&mut self.network.flows[flow.index()].stopped, !wanted);
            let running = self.network.flows[flow.index()].next_act.is_some()
                || self.endless(flow)
                // The application may be waiting for the end of a transfer.
                || transfers && !was_stopped;
            if running && !wanted {
                // A transfer ends by itself.
                if !transfers {
                    self.close(flow);
                }
                self.network.flows[flow.index()].next_act = None;
            } else if wanted && !running {
                let stop = self.network.flows[flow.index()].stop;
                let class = &mut self.network.classes[traffic];
                let act = class
                    .application
                    .first(flow.offset_from(first), now, stop)
                    .map(|act| Act {
                        // The flow may have run before, so that it needs a new connection.
                        action: match act.action {
                            Action::Open => Action::Fresh,
                            other => other,
                        },
                        ..act
                    });
                self.network.flows[flow.index()].next_act = act;
                self.schedule_act(flow);
            }
        }
    }
}
