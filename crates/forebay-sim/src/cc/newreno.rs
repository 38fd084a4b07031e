//! NewReno (RFC 6582): recovery lasts until everything sent before the loss is acknowledged.

use super::reno::fast_retransmit;
use super::CongestionControl;
use crate::sender::{Ack, Sender, Step, WindowAction, DUP_ACKS};

/// New packets per ACK during recovery, as in ns-2.
const RECOVERY_BURST: u32 = 2;

pub struct NewReno;

impl CongestionControl for NewReno {
    fn on_ack(&self, sender: &mut Sender, ack: &Ack, step: &mut Step) {
        if ack.next < sender.una {
            return;
        }
        if ack.next > sender.una {
            let recovering = sender.action == WindowAction::FastRetransmit;
            if recovering && ack.next < sender.recover {
                partial_ack(sender, ack, step);
            } else {
                if recovering && sender.inflation > 0 {
                    sender.action = WindowAction::Recovered;
                }
                sender.inflation = 0;
                sender.partial_ack_seen = false;
                sender.new_ack_and_grow(ack, step);
            }
        } else {
            sender.dup_acks += 1;
            match sender.dup_acks.cmp(&DUP_ACKS) {
                std::cmp::Ordering::Less => sender.send_limited(step),
                std::cmp::Ordering::Equal => fast_retransmit(sender, step, false),
                std::cmp::Ordering::Greater if sender.action == WindowAction::FastRetransmit => {
                    sender.inflation += 1;
                }
                std::cmp::Ordering::Greater => {}
            }
        }
        if sender.dup_acks == 0 {
            sender.send_window(step, u32::MAX);
        } else if sender.dup_acks >= DUP_ACKS {
            sender.send_window(step, RECOVERY_BURST);
        }
    }
}

/// An ACK that leaves part of the lost window open: resend the next hole (RFC 6582 section 3.2
/// step 3), deflate by what was acknowledged, and restart the timer the first time only (the
/// "impatient" variant).
fn partial_ack(sender: &mut Sender, ack: &Ack, step: &mut Step) {
    let acked = ack.next - sender.una;
    if sender.inflation > acked {
        sender.inflation -= acked - 1;
    } else {
        sender.cwnd -= f64::from(acked - sender.inflation);
        // Above zero it still says that recovery lasts.
        sender.inflation = 1;
    }
    sender.cwnd = sender.cwnd.max(1.0);
    if !sender.partial_ack_seen {
        sender.partial_ack_seen = true;
        sender.arm_timer(step);
    }
    sender.una = ack.next;
    sender.next = sender.next.max(sender.una);
    sender.end_measurement(ack.next);
    sender.transmit(sender.una, step);
}
