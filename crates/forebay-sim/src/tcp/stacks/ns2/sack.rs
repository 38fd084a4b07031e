//! SACK recovery with the "pipe" estimate (RFC 3517), as in ns-2's Sack1.

use super::{Agent, LossRecovery, WindowAction, DUP_ACKS};
use crate::tcp::congestion::{CongestionControl, Indication};
use crate::tcp::connection::{Ack, SenderStep};

/// The loss recovery of ns-2's Sack1 agent, with its scoreboard.
#[derive(Clone, Debug, Default)]
pub struct Sack {
    /// Ranges [start, end) of packets known to have arrived, in order.
    sacked: Vec<(u32, u32)>,
    /// Holes below this number have been resent in this recovery.
    resent_to: u32,
    /// Estimated number of packets in flight during recovery.
    pipe: i64,
    recovering: bool,
    /// True from a timeout until new data is acknowledged; duplicate ACKs are ignored meanwhile.
    timed_out: bool,
    /// Highest number acknowledged during recovery; `Connection::una` follows when recovery ends.
    partial: u32,
}

impl Sack {
    fn clear(&mut self) {
        self.sacked.clear();
        self.resent_to = 0;
    }

    /// Enters the number and the blocks of an ACK; true if any of them was new.
    fn update(&mut self, ack: &Ack) -> bool {
        let mut is_new = false;
        let before = self.sacked.len();
        self.sacked.retain(|&(_, end)| end > ack.next);
        is_new |= before != self.sacked.len();
        if let Some(first) = self.sacked.first_mut() {
            if first.0 < ack.next {
                first.0 = ack.next;
                is_new = true;
            }
        }
        for &(start, end) in ack.blocks {
            if start >= ack.next {
                is_new |= self.add(start, end);
            }
        }
        is_new
    }

    /// Adds a block; true if some of it was new.
    fn add(&mut self, mut start: u32, mut end: u32) -> bool {
        let at = self.sacked.partition_point(|&(_, e)| e < start);
        let until = at + self.sacked[at..].partition_point(|&(s, _)| s <= end);
        if let [(s, e)] = self.sacked[at..until] {
            if s <= start && end <= e {
                return false;
            }
        }
        for &(s, e) in &self.sacked[at..until] {
            start = start.min(s);
            end = end.max(e);
        }
        self.sacked.splice(at..until, [(start, end)]);
        true
    }

    /// Returns the first hole at or above `una` that was not resent and above which a packet has
    /// arrived.
    fn next_hole(&self, una: u32) -> Option<u32> {
        let mut seq = self.resent_to.max(una);
        for &(start, end) in &self.sacked {
            if seq < start {
                return Some(seq);
            }
            seq = seq.max(end);
        }
        None
    }
}

impl LossRecovery for Sack {
    fn on_ack<C: CongestionControl>(
        &mut self,
        agent: &mut Agent<C>,
        ack: &Ack,
        step: &mut SenderStep,
    ) {
        if self.recovering {
            self.on_ack_in_recovery(agent, ack, step);
            self.send(agent, step);
            return;
        }
        if ack.next > agent.connection.una {
            self.timed_out = false;
            self.clear();
            agent.new_ack_and_grow(ack, step);
        } else if !self.timed_out && self.update(ack) {
            agent.dup_acks += 1;
            if agent.dup_acks == DUP_ACKS {
                self.enter_recovery(agent, step);
            } else if agent.dup_acks < DUP_ACKS {
                agent.send_limited(step);
            }
        }
        if agent.dup_acks == 0 {
            self.send(agent, step);
        }
    }

    fn on_timeout<C: CongestionControl>(&mut self, agent: &mut Agent<C>) {
        self.recovering = false;
        self.timed_out = true;
        self.clear();
        agent.connection.una = agent.connection.una.max(self.partial);
    }

    fn send<C: CongestionControl>(&mut self, agent: &mut Agent<C>, step: &mut SenderStep) {
        loop {
            let config = step.config;
            let connection = &agent.connection;
            let una = connection.una.max(self.partial);
            let window = agent.usable_pkts(config);
            let open = if self.recovering {
                self.pipe < i64::from(agent.congestion.cwnd_pkts())
            } else {
                connection.next < connection.una.saturating_add(window)
            };
            if !open || connection.una >= connection.limit || connection.held(step) {
                break;
            }
            let reach = if self.recovering {
                config.window_pkts
            } else {
                window
            };
            let next = connection.next;
            let seq = match self.next_hole(una) {
                Some(hole) if agent.recover > 1 => {
                    self.resent_to = hole + 1;
                    hole
                }
                None if next < una.saturating_add(reach) && next < connection.limit => next,
                _ => break,
            };
            agent.transmit(seq, step);
            agent.connection.next = next.max(seq + 1);
            self.pipe += 1;
        }
    }

    /// Begins a new connection. ns-2's `Sack1` empties its scoreboard but keeps the recovery and
    /// the pipe.
    ///
    /// If the old pipe is one packet or more, the new connection does not even send its SYN.
    /// Without a timer it stays silent for good, and so do the connections after it.
    fn reset(&mut self, ns2_reset: bool) {
        let old = std::mem::take(self);
        if ns2_reset {
            self.pipe = old.pipe;
            self.recovering = old.recovering;
            self.timed_out = old.timed_out;
        }
    }
}

impl Sack {
    /// Enters recovery at the third duplicate ACK.
    fn enter_recovery<C: CongestionControl>(
        &mut self,
        agent: &mut Agent<C>,
        step: &mut SenderStep,
    ) {
        let una = agent.connection.una;
        let first_window = una == 1;
        let marked = step.config.ecn() && agent.action == WindowAction::Ecn;
        let fresh = una > agent.recover || first_window;
        if !fresh && !marked {
            return;
        }
        agent.action = WindowAction::FastRetransmit;
        if fresh {
            agent.recover = agent.connection.max_sent;
        }
        // The duplicate ACKs' packets have left the pipe.
        self.pipe = i64::from(agent.connection.max_sent - una) - i64::from(DUP_ACKS);
        self.recovering = true;
        self.partial = una;
        self.resent_to = self.resent_to.max(una + 1);
        agent.restart_timer(step);
        if fresh {
            agent.reduce(Indication::Loss, step.config);
        }
        agent.transmit(una, step);
    }

    fn on_ack_in_recovery<C: CongestionControl>(
        &mut self,
        agent: &mut Agent<C>,
        ack: &Ack,
        step: &mut SenderStep,
    ) {
        self.pipe -= 1;
        if ack.next >= agent.recover {
            // All packets sent before the loss are acknowledged.
            self.recovering = false;
            self.timed_out = false;
            self.clear();
            self.partial = 0;
            agent.recover = 1;
            agent.new_ack(ack, step);
        } else if ack.next > self.partial {
            // A hole was filled, so its resent packet has left the pipe, too.
            self.partial = ack.next;
            self.update(ack);
            self.pipe -= 1;
            agent.arm_timer(step);
            agent.end_backoff(step.config);
        } else if self.update(ack) {
            agent.dup_acks += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ns2;
    use super::*;
    use crate::tcp::congestion::Reno;
    use crate::tcp::connection::Config;
    use crate::tcp::senders::TcpSender;
    use crate::tcp::testing::{self, ack};
    use crate::uplink::testing::TestLink;
    use forebay_aqm::Ecn;
    use forebay_units::Time;

    #[test]
    fn holes_are_found_below_what_arrived() {
        let mut board = Sack::default();
        assert!(board.update(&ack(10, &[(12, 14), (16, 17)])));
        assert!(!board.update(&ack(10, &[(12, 14)])));
        assert_eq!(board.next_hole(10), Some(10));
        board.resent_to = 11;
        assert_eq!(board.next_hole(10), Some(11));
        board.resent_to = 12;
        assert_eq!(board.next_hole(10), Some(14));
        board.resent_to = 16;
        // Packet 17 may still be under way, because no packet above it has arrived.
        assert_eq!(board.next_hole(10), None);
    }

    #[test]
    fn a_reset_keeps_the_recovery_where_ns_2_does() {
        let recovering = |pipe| Sack {
            sacked: vec![(12, 14)],
            pipe,
            recovering: true,
            partial: 10,
            ..Sack::default()
        };
        let first_packets = |ns2_reset, pipe| {
            let config = Config {
                initial_window_pkts: 2,
                ect: Ecn::NotEct,
                ns2_reset,
                ..testing::config()
            };
            let mut sender = Ns2::<Sack, Reno>::new(&config, 0.0);
            sender.loss = recovering(pipe);
            sender.reset(&config, 0.0);
            let mut link = TestLink::new();
            let mut step = SenderStep {
                config: &config,
                now: Time::ZERO,
                link: link.uplink(),
                held: false,
                sent_pkts: 0,
                resent_pkts: 0,
            };
            sender.connection().limit = u32::MAX;
            sender.send(&mut step);
            let segments = link.take().into_iter();
            segments.map(|segment| segment.seq).collect::<Vec<_>>()
        };
        assert_eq!(first_packets(false, 5), [0]);
        // The window is one packet, and five are thought to be in flight.
        assert!(first_packets(true, 5).is_empty());
        assert_eq!(first_packets(true, 0), [0]);
        assert_eq!(first_packets(true, -2), [0, 1, 2]);
    }

    #[test]
    fn blocks_join() {
        let mut board = Sack::default();
        board.update(&ack(1, &[(5, 6), (7, 8)]));
        assert!(board.update(&ack(1, &[(6, 7)])));
        assert_eq!(board.sacked, [(5, 8)]);
        assert!(board.update(&ack(6, &[])));
        assert_eq!(board.sacked, [(6, 8)]);
    }
}
