//! Reno (RFC 2581): fast retransmit, and fast recovery that ends with the first ACK of new data.

use super::{Agent, LossRecovery, WindowAction, DUP_ACKS};
use crate::tcp::congestion::{CongestionControl, Indication};
use crate::tcp::connection::{Ack, SenderStep};

/// The loss recovery of ns-2's Reno agent.
#[derive(Clone, Debug, Default)]
pub struct Reno;

impl LossRecovery for Reno {
    #[inline(always)]
    fn on_ack<C: CongestionControl>(
        &mut self,
        agent: &mut Agent<C>,
        ack: &Ack,
        step: &mut SenderStep,
    ) {
        if ack.next > agent.connection.una {
            if agent.action == WindowAction::FastRetransmit {
                agent.action = WindowAction::Recovered;
            }
            agent.inflation = 0;
            agent.new_ack_and_grow(ack, step);
        } else {
            agent.dup_acks += 1;
            match agent.dup_acks.cmp(&DUP_ACKS) {
                std::cmp::Ordering::Less => agent.send_limited(step),
                std::cmp::Ordering::Equal => {
                    fast_retransmit(agent, step, agent.action == WindowAction::FastRetransmit)
                }
                std::cmp::Ordering::Greater if agent.action == WindowAction::FastRetransmit => {
                    agent.inflation += 1;
                }
                std::cmp::Ordering::Greater => {}
            }
        }
        if agent.dup_acks == 0 || agent.dup_acks >= DUP_ACKS {
            agent.send_window(step, u32::MAX);
        }
    }
}

/// Resends the first packet and reduces the window, at the third duplicate ACK.
///
/// Nothing happens if the loss belongs to a window of data for which the window was reduced already
/// (RFC 6582 section 3.2), unless `again` is true.
#[inline(never)]
pub fn fast_retransmit<C: CongestionControl>(
    agent: &mut Agent<C>,
    step: &mut SenderStep,
    again: bool,
) {
    let una = agent.connection.una;
    // A loss right after the SYN cannot belong to an earlier window.
    let first_window = una == 1;
    if una > agent.recover || again || first_window {
        agent.recover = agent.connection.max_sent;
        agent.action = WindowAction::FastRetransmit;
        agent.reduce(Indication::Loss, step.config);
    } else if step.config.ecn() && agent.action == WindowAction::Ecn {
        // The window was reduced for a mark in this window of data, so the packet is only resent.
        agent.action = WindowAction::FastRetransmit;
    } else {
        return;
    }
    agent.restart_timer(step);
    agent.transmit(una, step);
    agent.inflation = DUP_ACKS;
}
