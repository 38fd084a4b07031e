//! Changes that a scenario makes during its run.

use forebay_scenario::{LinkSetting, Setting};
use forebay_units::Time;

use super::hosts::{Alarm, Hosts};
use super::{PacketEngine, Topology};
use crate::traffic::Switch;

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
    /// Runs the first `active` flows of a traffic and stops the other ones.
    pub fn set_active(&mut self, now: Time, traffic: usize, active: u32) {
        let class = &mut self.network.classes[traffic];
        let first = class.first;
        let (tcp, routes) = (&mut class.tcp, &self.network.routes);
        let switches = class.script.set_active(now, active, |flow| {
            let sender = routes[first.nth(flow).index()].sender;
            tcp.as_mut().is_some_and(|tcp| tcp.senders.endless(sender))
        });
        for (flow, switch) in switches {
            let flow = first.nth(flow);
            match switch {
                Switch::Closes => self.close(flow),
                Switch::Starts(Some(at)) => self.set_alarm(at, Alarm::Act(flow)),
                Switch::Starts(None) => {}
            }
        }
    }
}
