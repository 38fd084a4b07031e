//! The script of a traffic: what the applications of its flows do, and when.
//!
//! A script knows no connections. Its performer, which is the simulator or the hosts in a guest,
//! schedules the times that the script returns, asks for the action that is due, and carries it out
//! with senders of its own or with sockets. So both perform the same actions, drawn from the same
//! random streams.

use forebay_scenario::{Change, Traffic, TrafficKind};
use forebay_trace::Viewer;
use forebay_units::{Rng, Time};

use super::{application, draw, Act, Action, Application, Coming};
use crate::number::count;

/// The name of the random stream from which flows draw their starts.
const START: &str = "start";

/// Returns the random stream of a traffic for the purpose `what`.
pub fn stream(seed: u64, index: usize, what: &str) -> Rng {
    Rng::new(seed, &format!("traffic {index} {what}"))
}

/// Returns the start times of a traffic's declared flows, as a run with this seed draws them.
pub fn starts(seed: u64, index: usize, traffic: &Traffic) -> Vec<Time> {
    let mut rng = stream(seed, index, START);
    (0..traffic.flows)
        .map(|_| draw(traffic.start, &mut rng))
        .collect()
}

/// The actions of the flows of one traffic, which are numbered from 0.
pub struct Script {
    application: Box<dyn Application>,
    flows: Vec<FlowScript>,
    /// Number of flows that run from the beginning, which are the first ones.
    declared: u32,
    most_transfers: u32,
}

/// The state of one flow's application.
struct FlowScript {
    next: Option<Act>,
    start: Time,
    stop: Option<Time>,
    /// True while the flow is switched off, because a change of the scenario stopped it or has not
    /// started it yet.
    stopped: bool,
}

/// The effect of a change of the number of flows on one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The flow's next act is at this time; `None` if its application does nothing.
    Starts(Option<Time>),
    /// The flow's data ends now.
    Closes,
}

impl Script {
    /// Creates the script of the traffic with this index, which draws from streams of `seed`.
    ///
    /// It has as many flows as are active at any time of the run. Those beyond the declared number
    /// wait for a change that starts them.
    pub fn new(seed: u64, index: usize, traffic: &Traffic, changes: &[Change]) -> Script {
        let size = most_flows(index, traffic, changes);
        let mut application = application(traffic, size, stream(seed, index, "application"));
        let mut starts = stream(seed, index, START);
        let mut stops = stream(seed, index, "stop");
        let flows = (0..size).map(|flow| {
            let start = draw(traffic.start, &mut starts);
            let stop = traffic.stop.map(|stop| draw(stop, &mut stops));
            let declared = flow < traffic.flows;
            FlowScript {
                next: match declared {
                    true => application.first(flow, start, stop),
                    false => None,
                },
                start,
                stop,
                stopped: !declared,
            }
        });
        let flows = flows.collect();
        application.set_active(traffic.flows);
        Script {
            application,
            flows,
            declared: traffic.flows,
            most_transfers: match &traffic.kind {
                TrafficKind::Web(web, ..) => web.connections,
                TrafficKind::Video(..) => size,
                TrafficKind::Pages(pages, ..) => size.saturating_mul(pages.objects),
                _ => 0,
            },
        }
    }

    /// Returns the number of flows.
    pub fn flows(&self) -> u32 {
        count(self.flows.len())
    }

    /// Returns the largest number of transfers at a time; 0 if the flows send no transfers.
    pub fn most_transfers(&self) -> u32 {
        self.most_transfers
    }

    /// Returns the start and the stop of a flow that runs from the beginning, and `None` for a flow
    /// that waits for a change.
    pub fn declared(&self, flow: u32) -> Option<(Time, Option<Time>)> {
        let state = &self.flows[flow as usize];
        (flow < self.declared).then_some((state.start, state.stop))
    }

    /// Returns the time of the flow's next act, if there is one.
    pub fn next_at(&self, flow: u32) -> Option<Time> {
        self.flows[flow as usize].next.map(|act| act.at)
    }

    /// Returns the flow's action at `now` and moves on to the act after it. `None` if a change has
    /// replaced the act that was scheduled for `now`.
    pub fn take_due(&mut self, flow: u32, now: Time) -> Option<Action> {
        let state = &mut self.flows[flow as usize];
        let act = state.next.filter(|act| act.at == now)?;
        state.next = self.application.next(flow, act, state.stop);
        Some(act.action)
    }

    /// Takes note that a transfer of the flow is complete. Returns the time of the act that waited
    /// for it, if there is one.
    pub fn transferred(&mut self, flow: u32, now: Time) -> Option<Time> {
        let state = &mut self.flows[flow as usize];
        let act = self.application.transferred(flow, now, state.stop)?;
        if state.stopped {
            return None;
        }
        state.next = Some(act);
        Some(act.at)
    }

    /// Returns the time of the first check for arriving flows, if flows arrive by themselves.
    pub fn first_arrival(&mut self) -> Option<Time> {
        self.application.first_arrival()
    }

    /// Checks for a flow that arrives at `now`. Returns the flow, whose next act is then known, and
    /// the time of the next check.
    pub fn arrive(&mut self, now: Time) -> (Option<u32>, Option<Time>) {
        let arrival = self.application.arrive(now);
        let flow = arrival.begins.map(|(flow, act)| {
            self.flows[flow as usize].next = Some(act);
            flow
        });
        (flow, arrival.next)
    }

    /// Returns the time at which recorded packets are first to be requested, if there are any.
    pub fn first_coming(&mut self) -> Option<Time> {
        self.application.first_coming()
    }

    /// Passes the next recorded packets to `give`, in order of time. Returns the time of the next
    /// request, which is not after the packet that follows them.
    pub fn coming(&mut self, give: &mut dyn FnMut(Coming)) -> Option<Time> {
        self.application.coming(give)
    }

    /// Runs the first `active` flows and stops the others, from `now` on. Returns what the performer
    /// has to do for it, in order.
    ///
    /// A flow that stops has no further act; a transfer that is under way ends by itself.
    /// `connected` is true for a flow that has endless data.
    pub fn set_active(
        &mut self,
        now: Time,
        active: u32,
        mut connected: impl FnMut(u32) -> bool,
    ) -> Vec<(u32, Switch)> {
        self.application.set_active(active);
        let transfers = self.most_transfers > 0;
        let mut switches = Vec::new();
        for (flow, state) in (0..).zip(&mut self.flows) {
            let stops = flow >= active;
            let was_stopped = std::mem::replace(&mut state.stopped, stops);
            let running = state.next.is_some()
                || connected(flow)
                // The application may be waiting for the end of a transfer.
                || transfers && !was_stopped;
            match (running, stops) {
                (true, true) => {
                    state.next = None;
                    if !transfers {
                        switches.push((flow, Switch::Closes));
                    }
                }
                (false, false) => {
                    let act = self.application.first(flow, now, state.stop);
                    state.next = act.map(|act| Act {
                        // The flow may have run before, so that it needs a new connection.
                        action: match act.action {
                            Action::Open => Action::Fresh,
                            other => other,
                        },
                        ..act
                    });
                    switches.push((flow, Switch::Starts(act.map(|act| act.at))));
                }
                _ => {}
            }
        }
        switches
    }

    /// Returns the quality that each viewer of video had within `window`.
    pub fn viewers(&self, window: (Time, Time)) -> Vec<Viewer> {
        self.application.viewers(window)
    }
}

/// Returns the largest number of flows of a traffic that are active at any time of the run.
fn most_flows(index: usize, traffic: &Traffic, changes: &[Change]) -> u32 {
    let changed = changes.iter().filter_map(|change| change.flows_of(index));
    changed.fold(traffic.flows, u32::max)
}

#[cfg(test)]
mod tests {
    use forebay_scenario::{parse, Options};
    use forebay_units::Span;

    use super::*;

    fn after(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    /// The script of this traffic, whose number of flows becomes 3 during the run.
    fn script(traffic: &str) -> Script {
        let text = format!(
            "duration = \"60s\"\n\
             [bottleneck]\nrate = \"10Mbit/s\"\ndelay = \"1ms\"\nbuffer = \"100p\"\n\
             [[traffic]]\nflows = 2\nrtt = \"40ms\"\nstart = \"1s\"\n{traffic}\n\
             [[at]]\ntime = \"30s\"\nset = {{ \"traffic.0.flows\" = 3 }}\n\
             [[law]]\nkind = \"droptail\"\n"
        );
        let experiment = parse(text.as_bytes(), "test", &Options::default());
        let experiment = experiment.unwrap_or_else(|error| panic!("{error}"));
        let scenario = &experiment.points[0].scenario;
        Script::new(1, 0, &scenario.traffic[0], &scenario.changes)
    }

    #[test]
    fn a_flow_beyond_the_declared_number_waits_for_a_change() {
        let mut script = script("kind = \"ftp\"");
        assert_eq!((script.flows(), script.declared(2)), (3, None));
        assert_eq!(script.next_at(1), Some(after(1)));
        assert_eq!(script.next_at(2), None);
        let switches = script.set_active(after(30), 3, |flow| flow < 2);
        assert_eq!(switches, [(2, Switch::Starts(Some(after(30))))]);
        assert_eq!(script.take_due(2, after(30)), Some(Action::Fresh));
    }

    #[test]
    fn a_flow_that_stops_closes_and_loses_its_next_act() {
        let mut script = script("kind = \"ftp\"\nstop = \"50s\"");
        assert_eq!(script.take_due(0, after(1)), Some(Action::Open));
        assert_eq!(script.take_due(1, after(1)), Some(Action::Open));
        assert_eq!(script.next_at(1), Some(after(50)));
        let switches = script.set_active(after(30), 1, |_| true);
        assert_eq!(switches[0], (1, Switch::Closes));
        assert_eq!(script.next_at(1), None);
        assert_eq!(script.take_due(1, after(50)), None);
        assert_eq!(script.take_due(0, after(50)), Some(Action::Close));
    }

    #[test]
    fn a_transfer_under_way_ends_by_itself_and_is_the_last_of_a_flow_that_stops() {
        let mut script = script("kind = \"video\"\nladder = [\"1Mbit/s\"]");
        assert_eq!(script.most_transfers(), 3);
        let began = script.next_at(1).expect("a viewer requests a segment");
        assert!(matches!(
            script.take_due(1, began),
            Some(Action::Transfer(_))
        ));
        let switches = script.set_active(after(30), 1, |_| false);
        assert!(switches.is_empty(), "{switches:?}");
        assert_eq!(script.transferred(1, after(31)), None);
        assert_eq!(script.next_at(1), None);
    }
}
