//! NewReno (RFC 6582): recovery lasts until everything sent before the loss is acknowledged.

use super::reno::fast_retransmit;
use super::{Agent, LossRecovery, WindowAction, DUP_ACKS};
use crate::tcp::congestion::CongestionControl;
use crate::tcp::connection::{Ack, SenderStep};

/// Largest number of new packets per ACK during recovery, as in ns-2.
const RECOVERY_BURST: u32 = 2;

/// The loss recovery of ns-2's NewReno agent.
#[derive(Clone, Debug, Default)]
pub struct NewReno {
    /// True if this recovery has had a partial ACK.
    partial_ack_seen: bool,
}

impl LossRecovery for NewReno {
    #[inline(always)]
    fn on_ack<C: CongestionControl>(
        &mut self,
        agent: &mut Agent<C>,
        ack: &Ack,
        step: &mut SenderStep,
    ) {
        if ack.next > agent.connection.una {
            let recovering = agent.action == WindowAction::FastRetransmit;
            if recovering && ack.next < agent.recover {
                self.partial_ack(agent, ack, step);
            } else {
                if recovering && agent.inflation > 0 {
                    agent.action = WindowAction::Recovered;
                }
                agent.inflation = 0;
                self.partial_ack_seen = false;
                agent.new_ack_and_grow(ack, step);
            }
        } else {
            agent.dup_acks += 1;
            match agent.dup_acks.cmp(&DUP_ACKS) {
                std::cmp::Ordering::Less => agent.send_limited(step),
                std::cmp::Ordering::Equal => fast_retransmit(agent, step, false),
                std::cmp::Ordering::Greater if agent.action == WindowAction::FastRetransmit => {
                    agent.inflation += 1;
                }
                std::cmp::Ordering::Greater => {}
            }
        }
        if agent.dup_acks == 0 {
            agent.send_window(step, u32::MAX);
        } else if agent.dup_acks >= DUP_ACKS {
            agent.send_window(step, RECOVERY_BURST);
        }
    }

    fn reset(&mut self, ns2_reset: bool) {
        self.partial_ack_seen &= ns2_reset;
    }
}

impl NewReno {
    /// Takes a partial ACK, which leaves part of the lost window unacknowledged: resends the next
    /// hole (RFC 6582 section 3.2 step 3), deflates the window by the acknowledged packets, and
    /// restarts the timer for the first partial ACK only (the "impatient" variant).
    fn partial_ack<C: CongestionControl>(
        &mut self,
        agent: &mut Agent<C>,
        ack: &Ack,
        step: &mut SenderStep,
    ) {
        let acked = ack.next - agent.connection.una;
        let mut cwnd = agent.congestion.cwnd();
        if agent.inflation > acked {
            agent.inflation -= acked - 1;
        } else {
            cwnd -= f64::from(acked - agent.inflation);
            // An inflation above zero shows that recovery goes on.
            agent.inflation = 1;
        }
        agent.congestion.set_cwnd(cwnd.max(1.0));
        if !self.partial_ack_seen {
            self.partial_ack_seen = true;
            agent.arm_timer(step);
        }
        agent.advance(ack.next);
        agent.end_measurement(ack.next, step.config);
        agent.transmit(ack.next, step);
    }
}
