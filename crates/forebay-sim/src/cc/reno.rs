//! Reno (RFC 2581): fast retransmit and fast recovery, which one ACK of new data ends.

use super::CongestionControl;
use crate::sender::{Ack, Sender, Step, WindowAction, DUP_ACKS};

pub struct Reno;

impl CongestionControl for Reno {
    fn on_ack(&self, sender: &mut Sender, ack: &Ack, step: &mut Step) {
        if ack.next < sender.una {
            return;
        }
        if ack.next > sender.una {
            if sender.action == WindowAction::FastRetransmit {
                sender.action = WindowAction::Recovered;
            }
            sender.inflation = 0;
            sender.new_ack_and_grow(ack, step);
        } else {
            sender.dup_acks += 1;
            match sender.dup_acks.cmp(&DUP_ACKS) {
                std::cmp::Ordering::Less => sender.send_limited(step),
                std::cmp::Ordering::Equal => {
                    fast_retransmit(sender, step, sender.action == WindowAction::FastRetransmit)
                }
                std::cmp::Ordering::Greater if sender.action == WindowAction::FastRetransmit => {
                    sender.inflation += 1;
                }
                std::cmp::Ordering::Greater => {}
            }
        }
        if sender.dup_acks == 0 || sender.dup_acks >= DUP_ACKS {
            sender.send_window(step, u32::MAX);
        }
    }
}

/// Third duplicate ACK: resend and halve, unless the loss belongs to a window that was
/// already answered for (RFC 6582 section 3.2) and `again` is false. True if it was resent.
pub fn fast_retransmit(sender: &mut Sender, step: &mut Step, again: bool) {
    // A loss right after the SYN has no earlier window.
    let first_window = sender.una == 1;
    if sender.una > sender.recover || again || first_window {
        sender.recover = sender.max_sent;
        sender.action = WindowAction::FastRetransmit;
        sender.reduce(step.config);
    } else if step.config.ecn && sender.action == WindowAction::Ecn {
        // The window was halved for a mark in this window of data: only resend.
        sender.action = WindowAction::FastRetransmit;
    } else {
        return;
    }
    sender.restart_timer(step);
    sender.transmit(sender.una, step);
    sender.inflation = DUP_ACKS;
}
