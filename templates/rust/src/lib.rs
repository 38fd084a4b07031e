//! Your transport stands here. This one is an example: a window that grows by a packet a round trip,
//! and is halved by a loss or a mark; every packet is acknowledged.
//!
//! It does no input or output and reads no clock: it is given packets and times, and asked for
//! packets and for its next timer. Times are in ns.

use std::collections::BTreeMap;

/// Bytes of a data packet's payload.
const PACKET_BYTES: usize = 1472;
/// Of an acknowledgement: a packet's number, and whether it came with a mark.
const ACK_BYTES: usize = 9;
/// A packet is lost once one sent so many later has arrived (RFC 9002 section 6.1.1).
const REORDERING: u64 = 3;
/// Before the first measurement of a round trip (RFC 9002 section 6.2.2).
const FIRST_RTT_NS: u64 = 333_000_000;
const INITIAL_WINDOW: f64 = 10.0;
const LEAST_WINDOW: f64 = 2.0;

/// The end that sends data without end.
pub struct Sender {
    start: u64,
    window: f64,
    threshold: f64,
    next: u64,
    /// By number, when each packet under way was sent.
    under_way: BTreeMap<u64, u64>,
    /// Losses and marks of packets before this one belong to a round trip that was answered.
    recovered: u64,
    rtt_ns: u64,
    deviation_ns: u64,
    measured: bool,
    /// When the last packet was sent, or acknowledged.
    heard: u64,
    backoff: u32,
}

impl Sender {
    /// Sends from `start` on.
    pub fn new(start: u64) -> Sender {
        Sender {
            start,
            window: INITIAL_WINDOW,
            threshold: f64::INFINITY,
            next: 0,
            under_way: BTreeMap::new(),
            recovered: 0,
            rtt_ns: FIRST_RTT_NS,
            deviation_ns: FIRST_RTT_NS / 2,
            measured: false,
            heard: start,
            backoff: 0,
        }
    }

    /// The next packet, if the window has room for one.
    pub fn transmit(&mut self, now: u64) -> Option<Vec<u8>> {
        if now < self.start || self.under_way.len() as f64 >= self.window.floor() {
            return None;
        }
        let mut packet = self.next.to_be_bytes().to_vec();
        packet.resize(PACKET_BYTES, 0);
        self.under_way.insert(self.next, now);
        self.next += 1;
        self.heard = now;
        Some(packet)
    }

    /// An acknowledgement has come.
    pub fn receive(&mut self, now: u64, ack: &[u8]) {
        let Some((number, marked)) = read_ack(ack) else {
            return;
        };
        let Some(sent) = self.under_way.remove(&number) else {
            return;
        };
        self.measure(now - sent);
        (self.heard, self.backoff) = (now, 0);
        let lost = self
            .under_way
            .range(..(number + 1).saturating_sub(REORDERING));
        let lost: Vec<u64> = lost.map(|(number, _)| *number).collect();
        for number in &lost {
            self.under_way.remove(number);
        }
        match lost.last().copied().max(marked.then_some(number)) {
            Some(congested) if congested >= self.recovered => {
                self.threshold = (self.window / 2.0).max(LEAST_WINDOW);
                self.window = self.threshold;
                self.recovered = self.next;
            }
            Some(_) => {}
            None if self.window < self.threshold => self.window += 1.0,
            None => self.window += 1.0 / self.window,
        }
    }

    /// When [`handle_timeout`](Sender::handle_timeout) is due.
    pub fn timeout(&self) -> Option<u64> {
        if self.next == 0 {
            return Some(self.start);
        }
        let wait_ns = (self.rtt_ns + 4 * self.deviation_ns).max(1_000_000) << self.backoff.min(6);
        (!self.under_way.is_empty()).then_some(self.heard + wait_ns)
    }

    /// Nothing has been heard for too long: all under way is lost.
    pub fn handle_timeout(&mut self, now: u64) {
        if self.timeout().is_none_or(|due| now < due) || self.under_way.is_empty() {
            return;
        }
        self.under_way.clear();
        self.threshold = (self.window / 2.0).max(LEAST_WINDOW);
        self.window = LEAST_WINDOW;
        self.recovered = self.next;
        self.backoff += 1;
        self.heard = now;
    }

    fn measure(&mut self, rtt_ns: u64) {
        if !self.measured {
            self.measured = true;
            (self.rtt_ns, self.deviation_ns) = (rtt_ns, rtt_ns / 2);
            return;
        }
        self.deviation_ns = (3 * self.deviation_ns + self.rtt_ns.abs_diff(rtt_ns)) / 4;
        self.rtt_ns = (7 * self.rtt_ns + rtt_ns) / 8;
    }
}

/// The end that takes data.
#[derive(Default)]
pub struct Receiver {
    acks: Vec<Vec<u8>>,
    /// Packets that have come, and those of them with a mark.
    pub received: u64,
    pub marked: u64,
}

impl Receiver {
    /// A packet has come.
    pub fn receive(&mut self, packet: &[u8], marked: bool) {
        let Some(number) = packet.first_chunk::<8>() else {
            return;
        };
        self.received += 1;
        self.marked += u64::from(marked);
        let mut ack = number.to_vec();
        ack.push(u8::from(marked));
        self.acks.push(ack);
    }

    /// An acknowledgement to be sent now.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        self.acks.pop()
    }
}

fn read_ack(ack: &[u8]) -> Option<(u64, bool)> {
    let number = ack.first_chunk::<8>()?;
    (ack.len() == ACK_BYTES).then(|| (u64::from_be_bytes(*number), ack[8] == 1))
}
