//! The registry of senders, and the engine's interface to the senders of one `[[traffic]]` of a
//! scenario.

use forebay_units::Time;

use super::congestion;
use super::connection::{Ack, Config, Connection, SenderStep};
use super::stacks::{Linux, NewReno, Ns2, Reno, Sack};
use crate::blocks::AckOptions;
use crate::number::count;
use crate::packet::PackedPacket;
use crate::prefetch::prefetch;

/// The sending end of a connection: a stack with a congestion control.
pub trait TcpSender: Send {
    /// Creates a closed connection; `phase` is the phase of its clock in [0, 1).
    fn new(config: &Config, phase: f64) -> Self;

    /// Replaces this connection by the flow's next one, with fresh state.
    fn reset(&mut self, config: &Config, phase: f64);

    /// Returns the connection's sequence numbers and timers.
    fn connection(&mut self) -> &mut Connection;

    /// Returns the estimated number of packets in the network; by default those sent and not
    /// acknowledged.
    fn in_flight_pkts(&mut self) -> u32 {
        let connection = self.connection();
        connection.next.saturating_sub(connection.una)
    }

    /// Takes an ACK and sends the packets that it allows.
    fn on_ack(&mut self, ack: &Ack, step: &mut SenderStep);

    /// Handles the expiry of the timer.
    fn on_timer(&mut self, step: &mut SenderStep);

    /// Sends the packets that the window allows.
    fn send(&mut self, step: &mut SenderStep);

    /// Sends packets that pacing held back.
    fn on_pace(&mut self, step: &mut SenderStep) {
        self.send(step);
    }
}

/// The requests of a sender's step to the engine, besides the segments to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepOutcome {
    /// The time at which the timer needs an event in the calendar; [`Time::NEVER`] if it needs
    /// none.
    pub timer: Time,
    /// True if all data of the application is acknowledged.
    pub done: bool,
}

/// The senders of one traffic, which all have the same type. A step therefore needs only one
/// dynamic call, and a sender takes no more memory than its stack and congestion control need.
pub trait Senders: Send {
    /// Adds a closed connection and returns its index, which is the number of those before it.
    /// `phase` is the phase of its clock in [0, 1).
    fn add(&mut self, config: &Config, phase: f64) -> u32;

    /// Replaces the connection at this index by the flow's next one, and returns its number.
    fn reset(&mut self, index: u32, config: &Config, phase: f64) -> u16;

    /// Gives the application endless data from now on.
    fn open(&mut self, index: u32, step: &mut SenderStep) -> StepOutcome;

    /// Gives the application this many packets of data, behind the SYN.
    fn transfer(&mut self, index: u32, packets: u32, step: &mut SenderStep) -> StepOutcome;

    /// Ends the application's data. Packets already sent are still delivered.
    fn close(&mut self, index: u32);

    /// Returns true if the application has endless data.
    fn endless(&mut self, index: u32) -> bool;

    /// Returns the number of packets in flight if the application has endless data.
    fn endless_in_flight_pkts(&mut self, index: u32) -> Option<u32>;

    /// Takes an ACK with its options, and ignores it if its connection has been replaced.
    fn on_ack(
        &mut self,
        index: u32,
        ack: &PackedPacket,
        options: Option<&AckOptions>,
        step: &mut SenderStep,
    ) -> StepOutcome;

    /// Answers an event for the timer at `now` that is early or stale, as most are: returns the
    /// time at which the timer needs its next event, or [`Time::NEVER`] if it needs none. Returns
    /// `None` if the sender must handle the event in [`on_timer`](Senders::on_timer).
    fn early_timer(&mut self, index: u32, now: Time) -> Option<Time>;

    /// An event for the timer has come; it may be early, or stale.
    fn on_timer(&mut self, index: u32, step: &mut SenderStep) -> StepOutcome;

    /// Returns the time at which pacing needs an event in the calendar, after a step that held
    /// packets back; `None` if there is an event already.
    fn pace_at(&mut self, index: u32) -> Option<Time>;

    /// Handles the event for pacing.
    fn on_pace(&mut self, index: u32, step: &mut SenderStep) -> StepOutcome;

    /// Prefetches the state of a sender.
    fn prefetch(&self, index: u32);
}

/// The senders of one traffic, all of type `S`.
struct List<S>(Vec<S>);

impl<S: TcpSender> List<S> {
    /// Runs `act` on a sender and returns its requests to the engine.
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
            // Endless data never reaches its limit; only a closed connection or a transfer does.
            done: connection.una == connection.limit,
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

    fn on_ack(
        &mut self,
        index: u32,
        ack: &PackedPacket,
        options: Option<&AckOptions>,
        step: &mut SenderStep,
    ) -> StepOutcome {
        self.step(index, |sender| {
            let connection = sender.connection();
            let packet = ack.unpack();
            // The ACK belongs to an earlier connection.
            let number = options.map_or(packet.connection, |options| options.connection);
            if number != connection.number {
                return;
            }
            let mut ack = Ack {
                next: packet.seq,
                ece: packet.flags.ecn_signal(),
                ce_pkts: options.map_or(0, |options| options.ce_pkts),
                blocks: options.map_or(&[], AckOptions::blocks),
            };
            if step.config.counts_marks {
                ack = connection.count_marks(&ack);
            }
            sender.on_ack(&ack, step);
        })
    }

    fn early_timer(&mut self, index: u32, now: Time) -> Option<Time> {
        let connection = self.0[index as usize].connection();
        if connection.una == connection.limit {
            return None;
        }
        // An earlier event has replaced this one.
        if connection.timer_event != now {
            return Some(Time::NEVER);
        }
        if connection.timer_due <= now {
            return None;
        }
        connection.timer_event = connection.timer_due;
        Some(connection.timer_due)
    }

    fn on_timer(&mut self, index: u32, step: &mut SenderStep) -> StepOutcome {
        self.step(index, |sender| {
            let connection = sender.connection();
            // The event is outdated: an earlier one has replaced it.
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

/// Returns an empty list of senders of type `S`.
fn list<S: TcpSender + 'static>() -> Box<dyn Senders> {
    Box::new(List::<S>(Vec::new()))
}

/// A function that creates an empty list of senders.
type Make = fn() -> Box<dyn Senders>;

/// Every sender by its name in a scenario: a stack with a congestion control.
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

/// Returns an empty list of senders of this name.
///
/// # Panics
/// If no sender has this name, which the parser of scenarios rules out.
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
        let built = SENDERS.iter().map(|(name, _)| *name);
        assert_eq!(
            declared.collect::<Vec<_>>(),
            built.collect::<Vec<_>>(),
            "`senders!` in crates/forebay-scenario/src/senders.rs (left) and `SENDERS` in \
             crates/forebay-sim/src/tcp/senders.rs (right) must have the same names in the same \
             order"
        );
    }

    #[test]
    fn the_state_of_ns2_s_senders_stays_small() {
        assert_eq!(std::mem::size_of::<Ns2<Reno, congestion::Reno>>(), 128);
        assert_eq!(std::mem::size_of::<Ns2<NewReno, congestion::Reno>>(), 128);
    }
}
