//! The registry of senders, and the senders of one traffic as the engine sees them.

use forebay_units::Time;

use super::congestion;
use super::connection::{Ack, Config, Connection, SenderStep};
use super::stacks::{Linux, NewReno, Ns2, Reno, Sack};
use crate::number::count;
use crate::prefetch::prefetch;

/// A connection's sending end: a stack over a congestion control.
pub trait TcpSender: Send {
    /// A closed connection; `phase` of its clock in [0, 1).
    fn new(config: &Config, phase: f64) -> Self;

    /// Forgets everything and becomes the flow's next connection.
    fn reset(&mut self, config: &Config, phase: f64);

    fn connection(&mut self) -> &mut Connection;

    /// Packets that are taken to be in the network; here those sent and not acknowledged.
    fn in_flight_pkts(&mut self) -> u32 {
        let connection = self.connection();
        connection.next.saturating_sub(connection.una)
    }

    /// Takes an ACK and sends what it allows.
    fn on_ack(&mut self, ack: &Ack, step: &mut SenderStep);

    /// The timer is due.
    fn on_timer(&mut self, step: &mut SenderStep);

    /// Sends what the window allows.
    fn send(&mut self, step: &mut SenderStep);

    /// Sends what pacing has kept back.
    fn on_pace(&mut self, step: &mut SenderStep) {
        self.send(step);
    }
}

/// What a step leaves to the engine, besides the packets to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepOutcome {
    /// Put an event for the timer into the calendar at this time; [`Time::NEVER`] where it needs none.
    pub timer: Time,
    /// All that the application offered is acknowledged.
    pub done: bool,
    /// Number of the connection.
    pub connection: u16,
}

/// The senders of one traffic: all of one type, so that a step costs one call that the compiler
/// does not see through, and a sender's state takes no more room than its stack and its congestion
/// control need.
pub trait Senders: Send {
    /// Adds a closed connection, whose index is the number of those before it; `phase` of its
    /// clock in [0, 1).
    fn add(&mut self, config: &Config, phase: f64) -> u32;

    /// Begins the next connection in the place of this one; returns its number.
    fn reset(&mut self, index: u32, config: &Config, phase: f64) -> u16;

    /// The application has endless data from now on.
    fn open(&mut self, index: u32, step: &mut SenderStep) -> StepOutcome;

    /// The application has this many packets of data, behind the SYN.
    fn transfer(&mut self, index: u32, packets: u32, step: &mut SenderStep) -> StepOutcome;

    /// The application offers nothing new; what was sent is still delivered.
    fn close(&mut self, index: u32);

    /// Whether the application has endless data.
    fn endless(&mut self, index: u32) -> bool;

    /// Packets in flight, where the application has endless data.
    fn endless_in_flight_pkts(&mut self, index: u32) -> Option<u32>;

    /// Takes an ACK of the connection with this number.
    fn on_ack(&mut self, index: u32, number: u16, ack: &Ack, step: &mut SenderStep) -> StepOutcome;

    /// An event for the timer has come; it may be early, or stale.
    fn on_timer(&mut self, index: u32, step: &mut SenderStep) -> StepOutcome;

    /// When to put an event for pacing into the calendar, after a step that kept packets back;
    /// none where one is there.
    fn pace_at(&mut self, index: u32) -> Option<Time>;

    /// The event for pacing has come.
    fn on_pace(&mut self, index: u32, step: &mut SenderStep) -> StepOutcome;

    /// Starts to bring a sender's state into the cache.
    fn prefetch(&self, index: u32);
}

struct List<S>(Vec<S>);

impl<S: TcpSender> List<S> {
    #[inline(always)]
    fn step(&mut self, index: u32, act: impl FnOnce(&mut S)) -> StepOutcome {
        let sender = &mut self.0[index as usize];
        act(sender);
        let connection = sender.connection();
        let timer = match connection.timer_due < connection.timer_event {
            true => {
                connection.timer_event = connection.timer_due;
                connection.timer_due
            }
            false => Time::NEVER,
        };
        StepOutcome {
            timer,
            // Only a closed connection or a transfer has an end.
            done: connection.una == connection.limit,
            connection: connection.number,
        }
    }
}

impl<S: TcpSender> Senders for List<S> {
    fn add(&mut self, config: &Config, phase: f64) -> u32 {
        self.0.push(S::new(config, phase));
        count(self.0.len() - 1)
    }

    fn reset(&mut self, index: u32, config: &Config, phase: f64) -> u16 {
        let sender = &mut self.0[index as usize];
        sender.reset(config, phase);
        sender.connection().number
    }

    fn open(&mut self, index: u32, step: &mut SenderStep) -> StepOutcome {
        self.transfer(index, u32::MAX - 1, step)
    }

    fn transfer(&mut self, index: u32, packets: u32, step: &mut SenderStep) -> StepOutcome {
        self.step(index, |sender| {
            sender.connection().limit = 1 + packets;
            sender.send(step);
        })
    }

    fn close(&mut self, index: u32) {
        self.0[index as usize].connection().close();
    }

    fn endless(&mut self, index: u32) -> bool {
        self.0[index as usize].connection().limit == u32::MAX
    }

    fn endless_in_flight_pkts(&mut self, index: u32) -> Option<u32> {
        let endless = self.endless(index);
        endless.then(|| self.0[index as usize].in_flight_pkts())
    }

    fn on_ack(&mut self, index: u32, number: u16, ack: &Ack, step: &mut SenderStep) -> StepOutcome {
        self.step(index, |sender| {
            let connection = sender.connection();
            // An ACK of an earlier connection is not this one's.
            if number != connection.number {
                return;
            }
            if step.config.counts_marks {
                let ack = connection.count_marks(ack);
                sender.on_ack(&ack, step);
            } else {
                sender.on_ack(ack, step);
            }
        })
    }

    fn on_timer(&mut self, index: u32, step: &mut SenderStep) -> StepOutcome {
        self.step(index, |sender| {
            let connection = sender.connection();
            // The timer is re-armed without touching its event.
            if connection.timer_event != step.now {
                return;
            }
            connection.timer_event = Time::NEVER;
            if connection.timer_due <= step.now {
                sender.on_timer(step);
            }
        })
    }

    fn pace_at(&mut self, index: u32) -> Option<Time> {
        let connection = self.0[index as usize].connection();
        let wanted = !std::mem::replace(&mut connection.pacer_event, true);
        wanted.then(|| connection.pacer.next_at())
    }

    fn on_pace(&mut self, index: u32, step: &mut SenderStep) -> StepOutcome {
        self.step(index, |sender| {
            sender.connection().pacer_event = false;
            sender.on_pace(step);
        })
    }

    fn prefetch(&self, index: u32) {
        if let Some(sender) = self.0.get(index as usize) {
            prefetch(sender);
        }
    }
}

fn list<S: TcpSender + 'static>() -> Box<dyn Senders> {
    Box::new(List::<S>(Vec::new()))
}

type Make = fn() -> Box<dyn Senders>;

/// Every sender by its name in a scenario: a stack over a congestion control.
const SENDERS: &[(&str, Make)] = &[
    ("reno", list::<Ns2<Reno, congestion::Reno>>),
    ("newreno", list::<Ns2<NewReno, congestion::Reno>>),
    ("sack", list::<Ns2<Sack, congestion::Reno>>),
    ("cubic", list::<Ns2<Sack, congestion::Cubic>>),
    ("linux-reno", list::<Linux<congestion::LinuxReno>>),
    ("linux-cubic", list::<Linux<congestion::LinuxCubic>>),
    ("dctcp", list::<Linux<congestion::Dctcp>>),
    ("bbr", list::<Linux<congestion::Bbr>>),
    ("bbr3", list::<Linux<congestion::Bbr3>>),
    ("prague", list::<Linux<congestion::Prague>>),
    ("ledbat++", list::<Linux<congestion::Ledbat>>),
];

/// An empty list of senders of this name.
///
/// # Panics
/// Where the name is none of the scenario's.
pub fn senders(name: &str) -> Box<dyn Senders> {
    let known = SENDERS.iter().find(|(known, _)| *known == name);
    known
        .expect("every sender of a scenario is in the registry")
        .1()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sender_that_a_scenario_can_name_is_here() {
        let declared = forebay_scenario::SENDERS.iter().map(|sender| sender.name);
        assert!(declared.eq(SENDERS.iter().map(|(name, _)| *name)));
    }

    #[test]
    fn the_state_of_ns2_s_senders_stays_small() {
        assert_eq!(std::mem::size_of::<Ns2<Reno, congestion::Reno>>(), 128);
        assert_eq!(std::mem::size_of::<Ns2<NewReno, congestion::Reno>>(), 128);
    }
}
