//! SACK recovery by the "pipe" estimate (RFC 3517, as ns-2's Sack1 runs it).

use super::{CongestionControl, Extra};
use crate::sender::{Ack, Sender, Step, WindowAction, DUP_ACKS};

pub struct Sack;

/// What the sender knows of the data past the first hole.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    /// [start, end) of packets known to have arrived, in order.
    sacked: Vec<(u32, u32)>,
    /// Holes below this have been resent in this recovery.
    resent_to: u32,
    /// Packets thought to be in flight during recovery.
    pipe: i64,
    recovering: bool,
    /// After a timeout duplicate ACKs say nothing until new data is acknowledged.
    timed_out: bool,
    /// Highest number acknowledged during recovery; `Sender::una` waits for its end.
    partial: u32,
}

impl Scoreboard {
    fn clear(&mut self) {
        self.sacked.clear();
        self.resent_to = 0;
    }

    /// Takes an ACK's news; true if there were any.
    fn update(&mut self, ack: &Ack) -> bool {
        let mut news = false;
        let before = self.sacked.len();
        self.sacked.retain(|&(_, end)| end > ack.next);
        news |= before != self.sacked.len();
        if let Some(first) = self.sacked.first_mut() {
            if first.0 < ack.next {
                first.0 = ack.next;
                news = true;
            }
        }
        for &(start, end) in ack.blocks {
            if start >= ack.next {
                news |= self.add(start, end);
            }
        }
        news
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

    /// The first hole at or above `una` that was not resent and has arrivals above it.
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

fn board(sender: &mut Sender) -> &mut Scoreboard {
    &mut sender.extra.as_mut().expect("SACK senders have one").board
}

impl CongestionControl for Sack {
    fn extra(&self) -> Option<Box<Extra>> {
        Some(Box::default())
    }

    fn on_ack(&self, sender: &mut Sender, ack: &Ack, step: &mut Step) {
        if ack.next < sender.una {
            return;
        }
        if board(sender).recovering {
            in_recovery(sender, ack, step);
            self.send(sender, step);
            return;
        }
        if ack.next > sender.una {
            sender.partial_ack_seen = false;
            let board = board(sender);
            board.timed_out = false;
            board.clear();
            sender.new_ack_and_grow(ack, step);
        } else if !board(sender).timed_out && board(sender).update(ack) {
            sender.dup_acks += 1;
            if sender.dup_acks == DUP_ACKS {
                enter_recovery(sender, step);
            } else if sender.dup_acks < DUP_ACKS {
                sender.send_limited(step);
            }
        }
        if sender.dup_acks == 0 {
            self.send(sender, step);
        }
    }

    fn on_timeout(&self, sender: &mut Sender) {
        let partial = board(sender).partial;
        let board = board(sender);
        board.recovering = false;
        board.timed_out = true;
        board.clear();
        sender.una = sender.una.max(partial);
    }

    fn send(&self, sender: &mut Sender, step: &mut Step) {
        loop {
            let config = step.config;
            let una = sender.una.max(board(sender).partial);
            let window = sender.window(config);
            let cwnd = i64::from(sender.cwnd as u32);
            let (recovering, pipe) = (board(sender).recovering, board(sender).pipe);
            let open = if recovering {
                pipe < cwnd
            } else {
                sender.next < sender.una.saturating_add(window)
            };
            if !open || sender.una >= sender.limit {
                break;
            }
            let reach = if recovering {
                config.window_pkts
            } else {
                window
            };
            let seq = match board(sender).next_hole(una) {
                Some(hole) if sender.recover > 1 => {
                    board(sender).resent_to = hole + 1;
                    hole
                }
                None if sender.next < una.saturating_add(reach) && sender.next < sender.limit => {
                    sender.next
                }
                _ => break,
            };
            sender.transmit(seq, step);
            sender.next = sender.next.max(seq + 1);
            board(sender).pipe += 1;
        }
    }
}

/// Third duplicate ACK.
fn enter_recovery(sender: &mut Sender, step: &mut Step) {
    let first_window = sender.una == 1;
    let marked = step.config.ecn && sender.action == WindowAction::Ecn;
    let fresh = sender.una > sender.recover || first_window;
    if !fresh && !marked {
        return;
    }
    sender.action = WindowAction::FastRetransmit;
    if fresh {
        sender.recover = sender.max_sent;
    }
    let (una, in_flight) = (sender.una, sender.max_sent - sender.una);
    let board = board(sender);
    // The duplicate ACKs' packets have left the pipe.
    board.pipe = i64::from(in_flight) - i64::from(DUP_ACKS);
    board.recovering = true;
    board.partial = una;
    board.resent_to = board.resent_to.max(una + 1);
    sender.restart_timer(step);
    if fresh {
        sender.reduce(step.config);
    }
    sender.transmit(sender.una, step);
}

fn in_recovery(sender: &mut Sender, ack: &Ack, step: &mut Step) {
    let recover = sender.recover;
    let board = board(sender);
    board.pipe -= 1;
    if ack.next >= recover {
        // Everything sent before the loss is acknowledged.
        board.recovering = false;
        board.timed_out = false;
        board.clear();
        board.partial = 0;
        sender.recover = 1;
        sender.new_ack(ack, step);
    } else if ack.next > board.partial {
        // A hole was filled: its resent packet has left the pipe as well.
        board.partial = ack.next;
        board.update(ack);
        board.pipe -= 1;
        sender.arm_timer(step);
        sender.rto.reset_backoff();
    } else if board.update(ack) {
        sender.dup_acks += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(next: u32, blocks: &[(u32, u32)]) -> Ack<'_> {
        Ack {
            next,
            ece: false,
            blocks,
        }
    }

    #[test]
    fn holes_are_found_below_what_arrived() {
        let mut board = Scoreboard::default();
        assert!(board.update(&ack(10, &[(12, 14), (16, 17)])));
        assert!(!board.update(&ack(10, &[(12, 14)])));
        assert_eq!(board.next_hole(10), Some(10));
        board.resent_to = 11;
        assert_eq!(board.next_hole(10), Some(11));
        board.resent_to = 12;
        assert_eq!(board.next_hole(10), Some(14));
        board.resent_to = 16;
        // 17 may still be on its way: nothing above it has arrived.
        assert_eq!(board.next_hole(10), None);
    }

    #[test]
    fn blocks_join() {
        let mut board = Scoreboard::default();
        board.update(&ack(1, &[(5, 6), (7, 8)]));
        assert!(board.update(&ack(1, &[(6, 7)])));
        assert_eq!(board.sacked, [(5, 8)]);
        assert!(board.update(&ack(6, &[])));
        assert_eq!(board.sacked, [(6, 8)]);
    }
}
