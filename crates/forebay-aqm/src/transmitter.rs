//! The end of a link that takes packets from a queue: at a constant rate, from a token bucket, or
//! as a recorded trace lets it. It knows when it is next free and when a packet is out; packets stay
//! with the caller.

use std::sync::Arc;

use forebay_units::{Bytes, Rate, Span, Time};

use crate::discipline::{Departure, Dequeued, Discipline, Packet, Sink};
use crate::queue::Queue;
use crate::rate_trace::RateTrace;

/// What a link can carry.
#[derive(Clone, Debug, PartialEq)]
pub enum Capacity {
    /// A constant rate that saves nothing.
    Constant(Rate),
    /// A constant rate that saves what a pause leaves unused, up to `burst`: it leaves at once
    /// after the pause, as from Linux's `tbf`.
    Bucket {
        /// The long-term rate.
        rate: Rate,
        /// Bytes that a pause can save.
        burst: Bytes,
    },
    /// A constant rate at which packets are let go whole: each is out at once, and the next one after
    /// its time, as from Linux's CAKE.
    Shaped(Rate),
    /// Opportunities to send, as a trace has them.
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
    /// The packet as it left the queue.
    pub departure: Departure<P>,
    /// When its last bit is out.
    pub out: Time,
}

/// A change of the link's rate at a time that is known beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateStep {
    /// When the rate changes.
    pub at: Time,
    /// The rate from then on.
    pub rate: Rate,
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
    /// A rate whose changes are known beforehand. A link whose rate never changes has one of the
    /// variants above and pays nothing for it.
    Stepped(Box<Stepped>),
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

    /// Announces every change of the rate, in order of time, before the first packet. A recorded
    /// link keeps to its trace.
    ///
    /// The end of each transmission is exact from its beginning then, also across changes. The
    /// caller still calls [`set_rate`](Transmitter::set_rate) at the time of each change.
    pub fn announce(&mut self, mut steps: Vec<RateStep>) {
        if steps.is_empty() || matches!(self.pace, Pace::Recorded(_)) {
            return;
        }
        steps.reverse();
        let idle = Pace::constant(Rate::from_bps(1), false);
        let pace = std::mem::replace(&mut self.pace, idle);
        self.pace = Pace::Stepped(Box::new(Stepped { pace, steps }));
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
            Pace::Constant { .. } | Pace::Bucket(_) | Pace::Stepped(_) => true,
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
        let (out, due) = self.pace.send(now, bytes);
        self.due = due;
        Some(Sent { departure, out })
    }

    /// Nothing is sent before `until`, unless a packet arrives that may go.
    #[inline(never)]
    fn pause(&mut self, now: Time, until: Time) {
        debug_assert!(until > now, "a queue waits for a time that has passed");
        self.free = true;
        self.due = match &mut self.pace {
            Pace::Constant { .. } | Pace::Bucket(_) | Pace::Stepped(_) => {
                self.pace.rest();
                until.max(Time::from_nanos(now.as_nanos() + 1))
            }
            Pace::Recorded(opportunities) => {
                // The opportunity of `now` is lost.
                opportunities.skip_until(now);
                opportunities.first_from(until)
            }
        };
    }

    /// Changes the rate from `now` on. What is left of the packet being sent goes at the new rate,
    /// and a recorded link has a constant rate from here on.
    ///
    /// Returns when the last bit of that packet is out, if the change moves this time. The end of a
    /// packet across an [announced](Transmitter::announce) change does not move: it has always
    /// counted with the change.
    pub fn set_rate(&mut self, now: Time, rate: Rate) -> Option<Time> {
        let busy = !self.free && self.due > now;
        match &mut self.pace {
            Pace::Stepped(stepped) => {
                stepped.reach(now, busy.then_some(self.due));
                None
            }
            Pace::Recorded(opportunities) => {
                let left_bytes = match self.free {
                    true => 0,
                    false => opportunities.left_bytes_after(now),
                };
                self.pace = Pace::constant(rate, false);
                if left_bytes == 0 {
                    // What waits for an opportunity goes at once.
                    self.due = self.due.min(now);
                    return None;
                }
                let (out, due) = self.pace.send(now, left_bytes);
                self.due = due;
                Some(out)
            }
            pace => {
                let at_once = matches!(pace, Pace::Constant { at_once: true, .. });
                let due = pace.set_rate(now, rate, busy.then_some(self.due))?;
                self.due = due;
                (!at_once).then_some(due)
            }
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

    /// Sends a packet from `now` on. Returns when it is out, and when the queue is asked next.
    #[inline(always)]
    fn send(&mut self, now: Time, bytes: u32) -> (Time, Time) {
        match self {
            Pace::Stepped(stepped) => stepped.send(now, bytes),
            pace => pace.send_steadily(now, bytes),
        }
    }

    /// The same at the rate of `now`.
    #[inline(always)]
    fn send_steadily(&mut self, now: Time, bytes: u32) -> (Time, Time) {
        match self {
            Pace::Constant {
                rate,
                remainder,
                at_once,
            } => {
                let (span, left) = rate.transmission(bytes, *remainder);
                *remainder = left;
                let due = now + span;
                match at_once {
                    true => (now, due),
                    false => (due, due),
                }
            }
            Pace::Bucket(bucket) => {
                let due = bucket.send(now, bytes);
                (due, due)
            }
            Pace::Recorded(opportunities) => opportunities.send(now, bytes),
            Pace::Stepped(_) => unreachable!("steps hold a steady pace"),
        }
    }

    /// Forgets the rounding of the busy period that has ended.
    fn rest(&mut self) {
        match self {
            Pace::Constant { remainder, .. } => *remainder = 0,
            Pace::Stepped(stepped) => stepped.pace.rest(),
            Pace::Bucket(_) | Pace::Recorded(_) => {}
        }
    }

    /// Changes a steady rate from `now` on. `due` is when a transmission that lasts beyond `now`
    /// ends at the old rate; returns when it ends at the new one.
    #[cold]
    fn set_rate(&mut self, now: Time, to: Rate, due: Option<Time>) -> Option<Time> {
        match self {
            Pace::Constant {
                rate, remainder, ..
            } => {
                let Some(due) = due else {
                    (*rate, *remainder) = (to, 0);
                    return None;
                };
                let (span, left) = unsent(due.since(now), *rate, *remainder, to);
                (*rate, *remainder) = (to, left);
                Some(now + span)
            }
            Pace::Bucket(bucket) => bucket.set_rate(now, to),
            Pace::Recorded(_) | Pace::Stepped(_) => None,
        }
    }
}

/// Returns how long what takes `span` at rate `from` takes at rate `to`, with the new remainder of
/// the rounding; `remainder` is the one before.
fn unsent(span: Span, from: Rate, remainder: u64, to: Rate) -> (Span, u64) {
    let work = u128::from(span.as_nanos()) * u128::from(from.as_bps()) + u128::from(remainder);
    let rate = u128::from(to.as_bps());
    let nanos = |work: u128| u64::try_from(work).unwrap_or(u64::MAX);
    (Span::from_nanos(nanos(work / rate)), nanos(work % rate))
}

/// A steady pace and the changes of its rate that are still to come.
#[derive(Debug)]
struct Stepped {
    pace: Pace,
    /// The next one last. Those within the transmission that goes on are made already.
    steps: Vec<RateStep>,
}

impl Stepped {
    fn send(&mut self, now: Time, bytes: u32) -> (Time, Time) {
        let (mut out, mut due) = self.pace.send_steadily(now, bytes);
        while let Some(step) = self.steps.last().filter(|step| step.at < due).copied() {
            self.steps.pop();
            if let Some(moved) = self.pace.set_rate(step.at, step.rate, Some(due)) {
                if out == due {
                    out = moved;
                }
                due = moved;
            }
        }
        (out, due)
    }

    /// Makes the changes up to `now`; `due` is when a transmission that lasts beyond it ends.
    fn reach(&mut self, now: Time, due: Option<Time>) {
        debug_assert!(
            due.is_none() || self.steps.last().is_none_or(|step| step.at > now),
            "a change within a transmission that has not counted with it"
        );
        while let Some(step) = self.steps.last().filter(|step| step.at <= now).copied() {
            self.steps.pop();
            self.pace.set_rate(step.at, step.rate, None);
        }
    }
}

/// A token bucket as Linux's `tbf`: a packet is out when there are tokens for all of it.
#[derive(Debug)]
struct Bucket {
    rate: Rate,
    burst: Bytes,
    /// In which it fills.
    depth_ns: i64,
    /// When it held no tokens: it has filled at the rate since then, or would have, at this rate,
    /// where that is before time zero.
    empty_ns: i64,
    /// Rest of the rounding to ns, so that the long-run rate is exact.
    remainder: u64,
}

impl Bucket {
    /// It fills from time zero on.
    fn new(rate: Rate, burst: Bytes) -> Bucket {
        Bucket {
            rate,
            burst,
            depth_ns: Bucket::depth_ns(rate, burst),
            empty_ns: 0,
            remainder: 0,
        }
    }

    fn depth_ns(rate: Rate, burst: Bytes) -> i64 {
        let depth_ns = u128::from(burst.0) * 8 * 1_000_000_000 / u128::from(rate.as_bps());
        i64::try_from(depth_ns).unwrap_or(i64::MAX)
    }

    /// Changes the rate from `now` on. Tokens are bytes, and stay as many. Returns when the packet
    /// that waits for tokens is out, if there is one.
    fn set_rate(&mut self, now: Time, rate: Rate) -> Option<Time> {
        let now_ns = now.as_nanos().cast_signed();
        let from = std::mem::replace(&mut self.rate, rate);
        let full_ns = std::mem::replace(&mut self.depth_ns, Bucket::depth_ns(rate, self.burst));
        let lacking_ns = self.empty_ns.saturating_sub(now_ns);
        let amount = Span::from_nanos(lacking_ns.unsigned_abs().min(match lacking_ns > 0 {
            true => u64::MAX,
            false => full_ns.unsigned_abs(),
        }));
        if lacking_ns > 0 {
            let (span, left) = unsent(amount, from, self.remainder, rate);
            self.remainder = left;
            let out = now + span;
            self.empty_ns = out.as_nanos().cast_signed();
            return Some(out);
        }
        let (span, _) = unsent(amount, from, 0, rate);
        self.remainder = 0;
        let saved_ns = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        self.empty_ns = now_ns.saturating_sub(saved_ns.min(self.depth_ns));
        None
    }

    /// Takes a packet's tokens; when the packet is out.
    fn send(&mut self, now: Time, bytes: u32) -> Time {
        let now_ns = now.as_nanos().cast_signed();
        // A full bucket takes no more.
        if now_ns.saturating_sub(self.empty_ns) > self.depth_ns {
            self.empty_ns = now_ns - self.depth_ns;
            self.remainder = 0;
        }
        let (span, left) = self.rate.transmission(bytes, self.remainder);
        self.empty_ns += span.as_nanos().cast_signed();
        self.remainder = left;
        Time::from_nanos(self.empty_ns.max(now_ns).cast_unsigned())
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

    /// Returns how many bytes of the packet that was taken last go at opportunities after `now`.
    fn left_bytes_after(&self, now: Time) -> u32 {
        let round_ns = Span::from_millis(u64::from(self.trace.round_ms())).as_nanos();
        let times = self.trace.times_ms.len() as u64;
        let passed = self.round.as_nanos() / round_ns * times + self.next as u64;
        let until_now = self.trace.bits_until(now) / (8 * u64::from(RateTrace::BYTES));
        let whole = passed.saturating_sub(until_now) * u64::from(RateTrace::BYTES);
        let part = match self.left_bytes {
            0 => 0,
            // That opportunity may have passed, too.
            _ if passed < until_now => 0,
            left => u64::from(RateTrace::BYTES - left),
        };
        u32::try_from(whole + part).unwrap_or(u32::MAX)
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
    use crate::queue_choice::QueueChoice;
    use forebay_units::Span;

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
        fn set_buffer(&mut self, _: forebay_units::Buffer) {}
        fn set_point(&mut self, _: forebay_units::SetPoint) -> bool {
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

    /// A change of the rate that was not announced, and the end of the packet being sent by it.
    fn change(bench: &mut Bench, now: Time, rate: Rate) -> Option<u64> {
        bench.run(now);
        let moved = bench.link.set_rate(now, rate);
        moved.map(|out| out.as_nanos() / 1000)
    }

    const SLOW: Rate = Rate::from_bps(1);
    const FAST: Rate = Rate::from_bps(8_000_000);

    #[test]
    fn what_is_left_of_a_packet_goes_at_the_new_rate() {
        let mut bench = Bench::new(&Capacity::Constant(FAST));
        bench.arrive(at_ms(10), 1000);
        bench.arrive(at_ms(10), 1000);
        // Half of the first is sent; a quarter goes at half the rate, and the rest at 1 bit/s, for a
        // second in which 1 bit is sent.
        let half = Time::from_nanos(10_500_000);
        let moved = change(&mut bench, half, Rate::from_bps(4_000_000));
        assert_eq!(moved, Some(11_500));
        assert_eq!(change(&mut bench, at_ms(11), SLOW), Some(2_000_011_000));
        assert_eq!(change(&mut bench, at_ms(1011), FAST), Some(1_011_250 - 1));
        bench.run(at_ms(2000));
        assert_eq!(bench.out[1], (1, 1_011_249, 1_012_249));
        // Nothing is being sent: nothing moves.
        assert_eq!(change(&mut bench, at_ms(3000), SLOW), None);
    }

    #[test]
    fn an_announced_change_counts_from_the_start_of_a_packet() {
        let steps = [
            (Time::from_nanos(10_500_000), Rate::from_bps(4_000_000)),
            (at_ms(11), SLOW),
            (at_ms(1011), FAST),
        ]
        .map(|(at, rate)| RateStep { at, rate });
        let capacities = [
            Capacity::Constant(FAST),
            Capacity::Bucket {
                rate: FAST,
                burst: Bytes(1),
            },
        ];
        for capacity in capacities {
            let mut bench = Bench::new(&capacity);
            bench.link.announce(steps.to_vec());
            bench.arrive(at_ms(10), 1000);
            bench.arrive(at_ms(10), 1000);
            for step in steps {
                assert_eq!(change(&mut bench, step.at, step.rate), None);
            }
            bench.run(at_ms(2000));
            let out: Vec<u64> = bench.out.iter().map(|(_, _, out)| *out).collect();
            let saved = u64::from(capacity != Capacity::Constant(FAST));
            assert_eq!(out, [1_011_249 - saved, 1_012_249 - saved], "{capacity:?}");
        }
    }

    #[test]
    fn a_shaper_goes_on_at_once_at_the_new_rate() {
        for announced in [true, false] {
            let mut bench = Bench::new(&Capacity::Shaped(SLOW));
            let step = RateStep {
                at: at_ms(1010),
                rate: FAST,
            };
            if announced {
                bench.link.announce(vec![step]);
            }
            bench.arrive(at_ms(10), 1000);
            bench.arrive(at_ms(10), 1000);
            // The first went whole; the second waits for what is left of its time.
            assert_eq!(change(&mut bench, step.at, step.rate), None);
            bench.run(at_ms(2000));
            let out: Vec<u64> = bench.out.iter().map(|(_, _, out)| *out).collect();
            assert_eq!(out, [10_000, 1_010_999], "announced: {announced}");
        }
    }

    #[test]
    fn tokens_are_bytes_at_every_rate() {
        let burst = Bytes(2000);
        for (before, after) in [(FAST, SLOW), (SLOW, FAST)] {
            let mut bench = Bench::new(&Capacity::Bucket { rate: FAST, burst });
            // Full at 10 ms, at any rate.
            assert_eq!(change(&mut bench, at_ms(10), before), None);
            assert_eq!(change(&mut bench, at_ms(11), after), None);
            for _ in 0..3 {
                bench.arrive(at_ms(20), 1000);
            }
            bench.run(at_ms(100));
            let out: Vec<u64> = bench.out.iter().map(|(_, _, out)| *out).collect();
            assert_eq!(out[..2], [20_000, 20_000], "{before:?}, {after:?}");
            if after == FAST {
                assert_eq!(out[2], 21_000);
            } else {
                // A packet that waits for tokens gets them at the new rate.
                assert_eq!(change(&mut bench, at_ms(120), FAST), Some(120_999));
            }
        }
    }

    #[test]
    fn a_trace_that_becomes_a_rate_keeps_no_packet() {
        // 1000 bytes go at 2 ms, and 1500 at 5 ms, of which the second packet has taken 500 at 2 ms.
        let mut bench = Bench::traced("2\n5\n9000\n");
        for bytes in [1000, 3000, 1000] {
            bench.arrive(at_ms(1), bytes);
        }
        bench.run(at_ms(6));
        assert_eq!(bench.out.last(), Some(&(1, 2_000, 9_000_000)));
        // 1000 bytes are left of it.
        assert_eq!(change(&mut bench, at_ms(6), FAST), Some(7_000));
        bench.run(at_ms(100));
        assert_eq!(bench.out.last(), Some(&(2, 7_000, 8_000)));

        // One that waits for an opportunity goes at once.
        let mut bench = Bench::traced("9000\n");
        bench.arrive(at_ms(1), 1000);
        assert_eq!(change(&mut bench, at_ms(6), FAST), None);
        bench.run(at_ms(100));
        assert_eq!(bench.out, [(0, 6_000, 7_000)]);
    }
}
