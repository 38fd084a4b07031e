//! The end of a link that takes packets from a queue: at a constant rate, from a token bucket, or
//! as a recorded trace lets it. It knows when it is next free and when a packet is out; packets stay
//! with the caller.

use std::sync::Arc;

use crate::discipline::{Departure, Dequeued, Discipline, Packet, Sink};
use crate::queue::Queue;
use crate::rate_trace::RateTrace;
use crate::units::{Bytes, Rate, Span, Time};

/// What a link can carry.
#[derive(Clone, Debug, PartialEq)]
pub enum Capacity {
    Constant(Rate),
    /// A constant rate that saves what a pause leaves unused, up to `burst`: it leaves at once
    /// after the pause, as from Linux's `tbf`.
    Bucket {
        rate: Rate,
        burst: Bytes,
    },
    /// A constant rate at which packets are let go whole: each is out at once, and the next one after
    /// its time, as from Linux's CAKE.
    Shaped(Rate),
    Recorded(Arc<RateTrace>),
}

impl Capacity {
    /// A constant rate, saved up where `burst` is not zero.
    pub fn of(rate: Rate, burst: Bytes) -> Capacity {
        match burst {
            Bytes(0) => Capacity::Constant(rate),
            burst => Capacity::Bucket { rate, burst },
        }
    }

    /// What it is behind this queue: one that shapes stands in the place of the bucket, as in Linux.
    pub fn behind<P: Packet>(self, queue: &dyn Discipline<P>) -> Capacity {
        match self {
            Capacity::Bucket { rate, .. } if queue.shapes() => Capacity::Shaped(rate),
            capacity => capacity,
        }
    }

    /// Over all of it. A law is told this rate, unless a scenario names one.
    pub fn mean_rate(&self) -> Rate {
        match self {
            Capacity::Constant(rate) | Capacity::Shaped(rate) | Capacity::Bucket { rate, .. } => {
                *rate
            }
            Capacity::Recorded(trace) => trace.mean_rate(),
        }
    }

    /// Rate at all times; zero where the link carries a packet now and then.
    pub fn steady_rate(&self) -> Rate {
        match self {
            Capacity::Constant(rate) | Capacity::Shaped(rate) | Capacity::Bucket { rate, .. } => {
                *rate
            }
            Capacity::Recorded(_) => Rate::from_bps(0),
        }
    }

    /// Bits that it can carry from the start up to and at `end`, besides the steady rate.
    pub fn recorded_bits(&self, end: Time) -> u64 {
        match self {
            Capacity::Constant(_) | Capacity::Shaped(_) | Capacity::Bucket { .. } => 0,
            Capacity::Recorded(trace) => trace.bits_until(end),
        }
    }

    /// The rate from here on; a recorded link has a constant one then.
    pub fn set_rate(&mut self, to: Rate) {
        match self {
            Capacity::Bucket { rate, .. } | Capacity::Shaped(rate) => *rate = to,
            Capacity::Constant(_) | Capacity::Recorded(_) => *self = Capacity::Constant(to),
        }
    }
}

/// A packet that the link has taken.
#[derive(Debug)]
pub struct Sent<P> {
    pub departure: Departure<P>,
    /// When its last bit is out.
    pub out: Time,
}

/// The sending end of a link, in exact time: a late call gives the same times.
#[derive(Debug)]
pub struct Transmitter {
    pace: Pace,
    due: Time,
    free: bool,
}

#[derive(Debug)]
enum Pace {
    Constant {
        rate: Rate,
        /// Rest of the rounding to ns, so that the long-run rate is exact.
        remainder: u64,
        /// A packet is out before its time and not behind it.
        at_once: bool,
    },
    Bucket(Bucket),
    Recorded(Box<Opportunities>),
}

impl Transmitter {
    /// Idle.
    ///
    /// A trace has an opportunity to send 1500 bytes at each of its times. The link takes a packet
    /// from the queue at an opportunity, so that its sojourn counts the wait for one. The packet
    /// is out with its last byte, which may be several opportunities later. Bytes that are left
    /// let the next packet go at the same time; bytes that the queue does not use are lost.
    pub fn new(capacity: &Capacity) -> Transmitter {
        Transmitter {
            pace: match capacity {
                Capacity::Constant(rate) => Pace::constant(*rate, false),
                Capacity::Shaped(rate) => Pace::constant(*rate, true),
                Capacity::Bucket { rate, burst } => Pace::Bucket(Bucket::new(*rate, *burst)),
                Capacity::Recorded(trace) => {
                    Pace::Recorded(Box::new(Opportunities::new(Arc::clone(trace))))
                }
            },
            due: Time::MAX,
            free: true,
        }
    }

    /// When the queue must be [asked](Transmitter::ask) next; `Time::MAX` while it is empty.
    #[inline]
    pub fn due(&self) -> Time {
        self.due
    }

    /// Whether nothing is being sent, so that an arrival may change [`due`](Transmitter::due).
    #[inline]
    pub fn is_free(&self) -> bool {
        self.free
    }

    /// A packet has come to the queue while the link is free: whether to [ask](Transmitter::ask)
    /// for one at once. An arrival at the time of an opportunity comes after it.
    #[inline(always)]
    pub fn arrived(&mut self, now: Time) -> bool {
        if !self.free {
            return false;
        }
        match &mut self.pace {
            Pace::Constant { .. } | Pace::Bucket(_) => true,
            Pace::Recorded(opportunities) => {
                opportunities.skip_until(now);
                self.due = self.due.min(opportunities.at());
                false
            }
        }
    }

    /// Takes the next packet from the queue, at [`due`](Transmitter::due), or at an arrival while
    /// the link is free.
    #[inline(always)]
    pub fn ask<P: Packet + Send>(
        &mut self,
        now: Time,
        queue: &mut Queue<P>,
        sink: &mut dyn Sink<P>,
    ) -> Option<Sent<P>> {
        let departure = match queue.dequeue(now, sink) {
            Dequeued::Packet(departure) => departure,
            Dequeued::Idle => {
                self.pause(now, Time::MAX);
                return None;
            }
            Dequeued::Wait(until) => {
                self.pause(now, until);
                return None;
            }
        };
        let bytes = departure.packet.bytes();
        self.free = false;
        let out = match &mut self.pace {
            Pace::Constant {
                rate,
                remainder,
                at_once,
            } => {
                let (span, left) = rate.transmission(bytes, *remainder);
                *remainder = left;
                self.due = now + span;
                match at_once {
                    true => now,
                    false => self.due,
                }
            }
            Pace::Bucket(bucket) => {
                self.due = bucket.send(now, bytes);
                self.due
            }
            Pace::Recorded(opportunities) => {
                let (out, due) = opportunities.send(now, bytes);
                self.due = due;
                out
            }
        };
        Some(Sent { departure, out })
    }

    /// Nothing is sent before `until`, unless a packet arrives that may go.
    #[inline(never)]
    fn pause(&mut self, now: Time, until: Time) {
        debug_assert!(until > now, "a queue waits for a time that has passed");
        self.free = true;
        self.due = match &mut self.pace {
            Pace::Constant { remainder, .. } => {
                *remainder = 0;
                until.max(Time::from_nanos(now.as_nanos() + 1))
            }
            Pace::Bucket(_) => until.max(Time::from_nanos(now.as_nanos() + 1)),
            Pace::Recorded(opportunities) => {
                // The opportunity of `now` is lost.
                opportunities.skip_until(now);
                opportunities.first_from(until)
            }
        };
    }

    /// From here on the rate is constant; the packet that is being sent keeps its time.
    pub fn set_rate(&mut self, rate: Rate) {
        match &mut self.pace {
            Pace::Bucket(bucket) => bucket.set_rate(rate),
            Pace::Constant { at_once, .. } => self.pace = Pace::constant(rate, *at_once),
            Pace::Recorded(_) => self.pace = Pace::constant(rate, false),
        }
    }
}

impl Pace {
    fn constant(rate: Rate, at_once: bool) -> Pace {
        Pace::Constant {
            rate,
            remainder: 0,
            at_once,
        }
    }
}

/// A token bucket as Linux's `tbf`: a packet is out when there are tokens for all of it.
#[derive(Debug)]
struct Bucket {
    rate: Rate,
    burst: Bytes,
    /// In which it fills.
    depth: Span,
    /// When it held no tokens; it has filled at the rate since then.
    empty: Time,
    /// Rest of the rounding to ns, so that the long-run rate is exact.
    remainder: u64,
}

impl Bucket {
    /// It fills from time zero on.
    fn new(rate: Rate, burst: Bytes) -> Bucket {
        let mut bucket = Bucket {
            rate,
            burst,
            depth: Span::ZERO,
            empty: Time::ZERO,
            remainder: 0,
        };
        bucket.set_rate(rate);
        bucket
    }

    /// Tokens stay, as the time in which they came.
    fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
        let depth_ns = u128::from(self.burst.0) * 8 * 1_000_000_000 / u128::from(rate.as_bps());
        self.depth = Span::from_nanos(u64::try_from(depth_ns).unwrap_or(u64::MAX));
    }

    /// Takes a packet's tokens; when the packet is out.
    fn send(&mut self, now: Time, bytes: u32) -> Time {
        // A full bucket takes no more.
        if now.since(self.empty) > self.depth {
            self.empty = Time::from_nanos(now.as_nanos() - self.depth.as_nanos());
            self.remainder = 0;
        }
        let (span, left) = self.rate.transmission(bytes, self.remainder);
        self.empty += span;
        self.remainder = left;
        self.empty.max(now)
    }
}

/// Where a trace stands: at an opportunity that has not passed, or one with bytes left.
#[derive(Debug)]
struct Opportunities {
    trace: Arc<RateTrace>,
    next: usize,
    /// When this round began.
    round: Time,
    /// Bytes that the opportunity at hand still lets out; zero where it has not come.
    left_bytes: u32,
}

impl Opportunities {
    fn new(trace: Arc<RateTrace>) -> Opportunities {
        Opportunities {
            trace,
            next: 0,
            round: Time::ZERO,
            left_bytes: 0,
        }
    }

    fn at(&self) -> Time {
        self.round + self.trace.time(self.next)
    }

    fn advance(&mut self) {
        self.left_bytes = 0;
        if self.next + 1 == self.trace.times_ms.len() {
            self.round = self.at();
            self.next = 0;
        } else {
            self.next += 1;
        }
    }

    /// Goes to the first opportunity after `now`.
    fn skip_until(&mut self, now: Time) {
        while self.at() <= now {
            self.advance();
        }
    }

    /// The first opportunity from `time` on; the trace stays where it is.
    fn first_from(&self, time: Time) -> Time {
        if time == Time::MAX {
            return Time::MAX;
        }
        let mut ahead = Opportunities {
            trace: Arc::clone(&self.trace),
            ..*self
        };
        while ahead.at() < time {
            ahead.advance();
        }
        ahead.at()
    }

    /// Sends a packet from `now` on, which is an opportunity; when it is out, and when the queue
    /// is asked next.
    fn send(&mut self, now: Time, bytes: u32) -> (Time, Time) {
        while self.at() < now {
            self.advance();
        }
        let mut left = bytes;
        loop {
            if self.left_bytes == 0 {
                self.left_bytes = RateTrace::BYTES;
            }
            let part = left.min(self.left_bytes);
            self.left_bytes -= part;
            left -= part;
            let out = self.at();
            if self.left_bytes == 0 {
                self.advance();
            }
            if left == 0 {
                return (out, self.at());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discipline::testing::{buffer_of, sized, Gone, Packet};
    use crate::discipline::Discipline;
    use crate::disciplines::QueueChoice;
    use crate::units::Span;

    fn at_ms(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    /// A queue before a transmitter, and what came out: number, when taken, when out, in us.
    struct Bench {
        queue: Queue<Packet>,
        link: Transmitter,
        gone: Gone,
        out: Vec<(u32, u64, u64)>,
        next: u32,
    }

    impl Bench {
        fn new(capacity: &Capacity) -> Bench {
            let (site, laws) = buffer_of(1000);
            Bench {
                queue: QueueChoice::default().build(&site, laws).unwrap(),
                link: Transmitter::new(capacity),
                gone: Gone::default(),
                out: Vec::new(),
                next: 0,
            }
        }

        fn traced(text: &str) -> Bench {
            let trace = RateTrace::parse(text.as_bytes(), "trace", "test").unwrap();
            Bench::new(&Capacity::Recorded(Arc::new(trace)))
        }

        fn keep(&mut self, now: Time, sent: Option<Sent<Packet>>) {
            if let Some(sent) = sent {
                assert_eq!(
                    sent.departure.sojourn,
                    now.since(sent.departure.packet.came)
                );
                let us = |time: Time| time.as_nanos() / 1000;
                self.out
                    .push((sent.departure.packet.id, us(now), us(sent.out)));
            }
        }

        /// Does all that is due by `end`.
        fn run(&mut self, end: Time) {
            while self.link.due() <= end {
                let now = self.link.due();
                let sent = self.link.ask(now, &mut self.queue, &mut self.gone);
                self.keep(now, sent);
            }
        }

        fn arrive(&mut self, now: Time, bytes: u32) {
            self.run(now);
            let packet = sized(self.next, bytes, now);
            self.next += 1;
            self.queue.enqueue(now, packet, &mut self.gone);
            if self.link.arrived(now) {
                let sent = self.link.ask(now, &mut self.queue, &mut self.gone);
                self.keep(now, sent);
            }
        }
    }

    #[test]
    fn a_constant_rate_is_exact_over_a_busy_period() {
        let mut bench = Bench::new(&Capacity::Constant(Rate::from_bps(45_000_000)));
        for _ in 0..9 {
            bench.arrive(at_ms(1), 500);
        }
        bench.run(at_ms(100));
        // 4000 bits at 45 Mbit/s take 88.9 us, and nine of them exactly 800 us.
        assert_eq!(bench.out[0], (0, 1000, 1088));
        assert_eq!(bench.out[8].2, 1800);
        assert!(bench.link.is_free() && bench.link.due() == Time::MAX);
    }

    #[test]
    fn a_shaper_lets_a_packet_go_whole() {
        let mut bench = Bench::new(&Capacity::Shaped(Rate::from_bps(8_000_000)));
        for _ in 0..3 {
            bench.arrive(at_ms(10), 1000);
        }
        // A pause saves nothing.
        bench.arrive(at_ms(30), 1000);
        bench.arrive(at_ms(30), 1000);
        bench.run(at_ms(100));
        let out: Vec<u64> = bench.out.iter().map(|(_, _, out)| out / 1000).collect();
        assert_eq!(out, [10, 11, 12, 30, 31]);
    }

    #[test]
    fn a_bucket_lets_out_at_once_what_a_pause_has_saved() {
        // 1000 bytes take 1 ms; it saves two of them.
        let rate = Rate::from_bps(8_000_000);
        let burst = Bytes(2000);
        let mut bench = Bench::new(&Capacity::Bucket { rate, burst });
        for _ in 0..4 {
            bench.arrive(at_ms(10), 1000);
        }
        // Half a millisecond's tokens; then, after 30 ms, two packets' and no more.
        bench.arrive(Time::from_nanos(12_500_000), 1000);
        for _ in 0..3 {
            bench.arrive(at_ms(42), 1000);
        }
        bench.run(at_ms(100));
        let out: Vec<u64> = bench.out.iter().map(|(_, _, out)| *out).collect();
        assert_eq!(
            out,
            [10_000, 10_000, 11_000, 12_000, 13_000, 42_000, 42_000, 43_000]
        );
    }

    #[test]
    fn a_trace_is_replayed_and_repeated() {
        let mut bench = Bench::traced("2\n2\n5\n10\n");
        for _ in 0..8 {
            bench.arrive(Time::ZERO, 1500);
        }
        bench.run(at_ms(100));
        let out: Vec<u64> = bench.out.iter().map(|(_, _, out)| out / 1000).collect();
        assert_eq!(out, [2, 2, 5, 10, 12, 12, 15, 20]);
    }

    #[test]
    fn a_packet_is_taken_at_an_opportunity_and_out_with_its_last_byte() {
        let mut bench = Bench::traced("2\n5\n10\n");
        for bytes in [1000, 500, 1600, 100] {
            bench.arrive(at_ms(1), bytes);
        }
        bench.run(at_ms(100));
        // The third takes a time and 100 bytes of the next; the fourth shares that.
        let want = [(0, 2, 2), (1, 2, 2), (2, 5, 10), (3, 10, 10)];
        assert_eq!(
            bench.out,
            want.map(|(id, now, out)| (id, 1000 * now, 1000 * out))
        );
    }

    #[test]
    fn what_is_not_used_is_lost() {
        let mut bench = Bench::traced("2\n5\n5\n10\n");
        bench.arrive(at_ms(1), 700);
        // 800 bytes were left at 2 ms; at 3 ms they are gone.
        bench.arrive(at_ms(3), 700);
        // An arrival at an opportunity comes after it, and after its twin.
        bench.arrive(at_ms(5), 700);
        bench.arrive(at_ms(1001), 1500);
        bench.run(at_ms(2000));
        let want = [(0, 2), (1, 5), (2, 10), (3, 1002)];
        assert_eq!(bench.out, want.map(|(id, at)| (id, 1000 * at, 1000 * at)));
    }

    /// Gives a packet at even ms only.
    struct Gate(Vec<Packet>);

    impl Discipline<Packet> for Gate {
        fn enqueue(&mut self, _: Time, packet: Packet, _: &mut dyn Sink<Packet>) {
            self.0.push(packet);
        }
        fn dequeue(&mut self, now: Time, _: &mut dyn Sink<Packet>) -> Dequeued<Packet> {
            let ms = now.as_nanos() / 1_000_000;
            if self.0.is_empty() {
                return Dequeued::Idle;
            }
            if now != at_ms(ms) || !ms.is_multiple_of(2) {
                return Dequeued::Wait(at_ms(ms + 2 - ms % 2));
            }
            let packet = self.0.remove(0);
            Dequeued::Packet(Departure {
                sojourn: now.since(packet.came),
                packet,
                class: 0,
            })
        }
        fn drain(&mut self, _: &mut dyn FnMut(Packet)) {}
        fn poll_timeout(&self) -> Option<Time> {
            None
        }
        fn handle_timeout(&mut self, _: Time) {}
        fn len_packets(&self) -> u32 {
            self.0.len() as u32
        }
        fn len_bytes(&self) -> u64 {
            0
        }
        fn set_rate(&mut self, _: Rate) {}
        fn set_buffer(&mut self, _: crate::discipline::Buffer) {}
        fn set_point(&mut self, _: crate::units::SetPoint) -> bool {
            false
        }
        fn probe(&self, _: &mut dyn FnMut(&'static str, f64)) {}
    }

    #[test]
    fn a_queue_that_waits_is_asked_again() {
        // 1000 bytes take 1 ms.
        let mut bench = Bench::new(&Capacity::Constant(Rate::from_bps(8_000_000)));
        bench.queue = Queue::Other(Box::new(Gate(Vec::new())));
        bench.arrive(at_ms(1), 1000);
        assert!(bench.link.is_free() && bench.link.due() == at_ms(2));
        bench.arrive(Time::from_nanos(1_500_000), 1000);
        bench.run(at_ms(100));
        assert_eq!(bench.out, [(0, 2000, 3000), (1, 4000, 5000)]);

        let mut bench = Bench::traced("3\n4\n5\n6\n7\n");
        bench.queue = Queue::Other(Box::new(Gate(Vec::new())));
        bench.arrive(at_ms(1), 1000);
        bench.arrive(at_ms(1), 1000);
        bench.run(at_ms(100));
        // Both at 4 ms: the first leaves 500 bytes, and the second is out with the next time.
        assert_eq!(bench.out, [(0, 4000, 4000), (1, 4000, 5000)]);
    }
}
