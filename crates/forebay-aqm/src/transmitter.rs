//! The sending end of a link, which takes packets from a queue: at a constant rate, through a token
//! bucket, or by a recorded trace. It computes when it takes the next packet and when each packet
//! has been sent; packets stay with the caller.

use std::sync::Arc;

use forebay_units::{Bytes, Rate, Span, Time};

use crate::discipline::{Departure, Dequeued, Discipline, Packet, Sink};
use crate::queue::Queue;
use crate::rate_trace::RateTrace;

/// The capacity of a link over time.
#[derive(Clone, Debug, PartialEq)]
pub enum Capacity {
    /// A constant rate.
    Constant(Rate),
    /// A token bucket, as Linux's `tbf`: unused capacity is saved up to `burst` and can be sent at
    /// once.
    Bucket {
        /// The rate at which tokens arrive.
        rate: Rate,
        /// The size of the bucket.
        burst: Bytes,
    },
    /// A constant rate at which whole packets are released, as by Linux's CAKE: each packet is sent
    /// at once, and the next one follows after its transmission time.
    Shaped(Rate),
    /// The opportunities to send of a trace.
    Recorded(Arc<RateTrace>),
}

impl Capacity {
    /// Returns a constant rate if `burst` is zero, and a token bucket otherwise.
    pub fn of(rate: Rate, burst: Bytes) -> Capacity {
        match burst {
            Bytes(0) => Capacity::Constant(rate),
            burst => Capacity::Bucket { rate, burst },
        }
    }

    /// Returns the capacity of the link behind this queue. A discipline that shapes takes the place
    /// of a token bucket, as in Linux.
    pub fn behind<P: Packet>(self, queue: &dyn Discipline<P>) -> Capacity {
        match self {
            Capacity::Bucket { rate, .. } if queue.shapes() => Capacity::Shaped(rate),
            capacity => capacity,
        }
    }

    /// Returns the mean rate. A law is built for this rate unless a scenario states another.
    pub fn mean_rate(&self) -> Rate {
        match self {
            Capacity::Constant(rate) | Capacity::Shaped(rate) | Capacity::Bucket { rate, .. } => {
                *rate
            }
            Capacity::Recorded(trace) => trace.mean_rate(),
        }
    }

    /// Returns the constant part of the rate: zero for a recorded trace.
    pub fn steady_rate(&self) -> Rate {
        match self {
            Capacity::Constant(rate) | Capacity::Shaped(rate) | Capacity::Bucket { rate, .. } => {
                *rate
            }
            Capacity::Recorded(_) => Rate::from_bps(0),
        }
    }

    /// Returns the bits that a recorded trace can carry from time zero until `end`, inclusive; zero
    /// for a constant rate.
    pub fn recorded_bits(&self, end: Time) -> u64 {
        match self {
            Capacity::Constant(_) | Capacity::Shaped(_) | Capacity::Bucket { .. } => 0,
            Capacity::Recorded(trace) => trace.bits_until(end),
        }
    }

    /// Changes the rate. A recorded link becomes one with a constant rate.
    pub fn set_rate(&mut self, to: Rate) {
        match self {
            Capacity::Bucket { rate, .. } | Capacity::Shaped(rate) => *rate = to,
            Capacity::Constant(_) | Capacity::Recorded(_) => *self = Capacity::Constant(to),
        }
    }
}

/// The transmission of a packet that the link has taken from the queue.
#[derive(Debug)]
pub struct Transmission<P> {
    /// The packet as it left the queue.
    pub departure: Departure<P>,
    /// The time at which the last bit of the packet has left.
    pub end: Time,
}

/// A change of the link's rate at a time that is known in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateStep {
    /// The time of the change.
    pub at: Time,
    /// The rate from then on.
    pub rate: Rate,
}

/// The sending end of a link. Its times are exact: they do not depend on how late it is called.
#[derive(Debug)]
pub struct Transmitter {
    pace: Pace,
    due: Time,
    free: bool,
}

/// The state of the capacity.
#[derive(Debug)]
enum Pace {
    Constant {
        serialiser: Serialiser,
        /// True if a packet is sent at the start of its transmission time, and not at the end.
        at_once: bool,
    },
    Bucket(Bucket),
    Recorded(Box<Opportunities>),
    /// A rate whose changes are known in advance. It is a variant of its own so that links with a
    /// constant rate need not look for changes.
    Stepped(Box<Stepped>),
}

impl Transmitter {
    /// Creates the end of an idle link.
    ///
    /// At each of its times, a trace has an opportunity to send 1500 bytes. The link takes a packet
    /// from the queue at an opportunity, so that the wait for the opportunity is part of the
    /// sojourn time. The packet has been sent with its last byte, which may be several
    /// opportunities later. The rest of an opportunity is available to the next packet; it is lost
    /// if the queue is empty.
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
    /// link ignores them.
    ///
    /// The end of each transmission is then known at its start, even across changes. The caller
    /// must still call [`set_rate`](Transmitter::set_rate) at the time of each change.
    pub fn announce(&mut self, mut steps: Vec<RateStep>) {
        if steps.is_empty() || matches!(self.pace, Pace::Recorded(_)) {
            return;
        }
        steps.reverse();
        let idle = Pace::constant(Rate::from_bps(1), false);
        let pace = std::mem::replace(&mut self.pace, idle);
        self.pace = Pace::Stepped(Box::new(Stepped { pace, steps }));
    }

    /// Returns the time at which the queue must be [asked](Transmitter::ask) next; `Time::MAX`
    /// while the queue is empty.
    #[inline]
    pub fn due(&self) -> Time {
        self.due
    }

    /// Returns true if nothing is being sent, so that an arrival may change
    /// [`due`](Transmitter::due).
    #[inline]
    pub fn is_free(&self) -> bool {
        self.free
    }

    /// Takes note of an arrival at the queue. Returns true if the caller must
    /// [ask](Transmitter::ask) for a packet at once. An arrival at the time of an opportunity is
    /// too late for it.
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

    /// Takes the next packet from the queue. Called at [`due`](Transmitter::due), or at an arrival
    /// while the link is free. Returns `None` if no packet may leave now.
    #[inline(always)]
    pub fn ask<P: Packet + Send>(
        &mut self,
        now: Time,
        queue: &mut Queue<P>,
        sink: &mut dyn Sink<P>,
    ) -> Option<Transmission<P>> {
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
        let (end, due) = self.pace.send(now, bytes);
        self.due = due;
        Some(Transmission { departure, end })
    }

    /// Sends nothing before `until`, unless a packet arrives that may leave.
    #[inline(never)]
    fn pause(&mut self, now: Time, until: Time) {
        debug_assert!(until > now, "the queue waits for a time in the past");
        self.free = true;
        self.due = match &mut self.pace {
            Pace::Constant { .. } | Pace::Bucket(_) | Pace::Stepped(_) => {
                self.pace.rest();
                until.max(Time::from_nanos(now.as_nanos() + 1))
            }
            Pace::Recorded(opportunities) => {
                // An opportunity at `now` is lost.
                opportunities.skip_until(now);
                opportunities.first_from(until)
            }
        };
    }

    /// Changes the rate from `now` on. The rest of the packet in transmission is sent at the new
    /// rate. A recorded link has a constant rate from now on.
    ///
    /// Returns the new end of that transmission, if the change moves it. An
    /// [announced](Transmitter::announce) change moves no end, because the end took the change into
    /// account.
    pub fn set_rate(&mut self, now: Time, rate: Rate) -> Option<Time> {
        let busy = !self.free && self.due > now;
        match &mut self.pace {
            Pace::Stepped(stepped) => {
                stepped.reach(now, busy.then_some(self.due));
                None
            }
            Pace::Recorded(opportunities) => {
                let unsent_bytes = match self.free {
                    true => 0,
                    false => opportunities.unsent_bytes(now),
                };
                self.pace = Pace::constant(rate, false);
                if unsent_bytes == 0 {
                    // A packet that waits for an opportunity is taken at once.
                    self.due = self.due.min(now);
                    return None;
                }
                let (end, due) = self.pace.send(now, unsent_bytes);
                self.due = due;
                Some(end)
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
    /// Returns the state of an idle link with a constant rate.
    fn constant(rate: Rate, at_once: bool) -> Pace {
        Pace::Constant {
            serialiser: Serialiser::new(rate, 0),
            at_once,
        }
    }

    /// Sends a packet from `now` on. Returns the end of the transmission, and the time at which the
    /// queue must be asked next.
    #[inline(always)]
    fn send(&mut self, now: Time, bytes: u32) -> (Time, Time) {
        match self {
            Pace::Stepped(stepped) => stepped.send(now, bytes),
            pace => pace.send_steadily(now, bytes),
        }
    }

    /// Sends a packet at the current rate, without announced changes.
    #[inline(always)]
    fn send_steadily(&mut self, now: Time, bytes: u32) -> (Time, Time) {
        match self {
            Pace::Constant {
                serialiser,
                at_once,
            } => {
                let due = now + serialiser.send(bytes);
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
            Pace::Stepped(_) => unreachable!("announced changes are not nested"),
        }
    }

    /// Resets the rounding remainder at the end of a busy period.
    fn rest(&mut self) {
        match self {
            Pace::Constant { serialiser, .. } => serialiser.remainder = 0,
            Pace::Stepped(stepped) => stepped.pace.rest(),
            Pace::Bucket(_) | Pace::Recorded(_) => {}
        }
    }

    /// Changes a constant rate from `now` on. `due` is the end of the current transmission at the
    /// old rate; the result is its end at the new rate.
    #[cold]
    fn set_rate(&mut self, now: Time, to: Rate, due: Option<Time>) -> Option<Time> {
        match self {
            Pace::Constant { serialiser, .. } => {
                let Some(due) = due else {
                    *serialiser = Serialiser::new(to, 0);
                    return None;
                };
                let Serialiser {
                    rate, remainder, ..
                } = *serialiser;
                let (span, rest) = rescaled(due.since(now), rate, remainder, to);
                *serialiser = Serialiser::new(to, rest);
                Some(now + span)
            }
            Pace::Bucket(bucket) => bucket.set_rate(now, to),
            Pace::Recorded(_) | Pace::Stepped(_) => None,
        }
    }
}

/// The times that packets take to enter a link with a constant rate. Most packets of a link have one
/// size, so that the division is only done for a packet of another size than the last one.
#[derive(Debug)]
struct Serialiser {
    rate: Rate,
    /// The remainder of rounding to nanoseconds, which keeps the long-run rate exact.
    remainder: u64,
    /// The size of the last packet.
    bytes: u32,
    /// The time that it takes, rounded down, and the remainder of rounding it.
    span: Span,
    span_remainder: u64,
}

impl Serialiser {
    fn new(rate: Rate, remainder: u64) -> Serialiser {
        Serialiser {
            rate,
            remainder,
            bytes: 0,
            span: Span::ZERO,
            span_remainder: 0,
        }
    }

    /// Returns the time that a packet takes, like [`Rate::transmission`] with the remainder so far.
    #[inline(always)]
    fn send(&mut self, bytes: u32) -> Span {
        if bytes != self.bytes {
            self.divide(bytes);
        }
        // Both remainders are less than the rate, so that their sum is worth 1 ns at most.
        let remainder = self.remainder + self.span_remainder;
        let rounded_up = remainder >= self.rate.as_bps();
        self.remainder = remainder - u64::from(rounded_up) * self.rate.as_bps();
        self.span + Span::from_nanos(u64::from(rounded_up))
    }

    #[inline(never)]
    fn divide(&mut self, bytes: u32) {
        self.bytes = bytes;
        (self.span, self.span_remainder) = self.rate.transmission(bytes, 0);
    }
}

/// Returns the time in which the data that takes `span` at rate `from` is sent at rate `to`, and
/// the new rounding remainder; `remainder` is the old one.
fn rescaled(span: Span, from: Rate, remainder: u64, to: Rate) -> (Span, u64) {
    let work = u128::from(span.as_nanos()) * u128::from(from.as_bps()) + u128::from(remainder);
    let rate = u128::from(to.as_bps());
    let nanos = |work: u128| u64::try_from(work).unwrap_or(u64::MAX);
    (Span::from_nanos(nanos(work / rate)), nanos(work % rate))
}

/// A pace with announced changes of its rate.
#[derive(Debug)]
struct Stepped {
    pace: Pace,
    /// The future changes, the next one last. Changes during the current transmission have already
    /// been applied.
    steps: Vec<RateStep>,
}

impl Stepped {
    fn send(&mut self, now: Time, bytes: u32) -> (Time, Time) {
        let (mut end, mut due) = self.pace.send_steadily(now, bytes);
        while let Some(step) = self.steps.last().filter(|step| step.at < due).copied() {
            self.steps.pop();
            if let Some(moved) = self.pace.set_rate(step.at, step.rate, Some(due)) {
                if end == due {
                    end = moved;
                }
                due = moved;
            }
        }
        (end, due)
    }

    /// Applies the changes up to `now`. `due` is the end of a transmission that is still in
    /// progress.
    fn reach(&mut self, now: Time, due: Option<Time>) {
        debug_assert!(
            due.is_none() || self.steps.last().is_none_or(|step| step.at > now),
            "a change during a transmission must have been applied at its start"
        );
        while let Some(step) = self.steps.last().filter(|step| step.at <= now).copied() {
            self.steps.pop();
            self.pace.set_rate(step.at, step.rate, None);
        }
    }
}

/// A token bucket, as Linux's `tbf`: a packet is sent when there are tokens for all of it.
#[derive(Debug)]
struct Bucket {
    rate: Rate,
    burst: Bytes,
    /// The time in which an empty bucket fills.
    depth_ns: i64,
    /// The time at which the bucket was empty, if it has filled at the current rate since. It may
    /// be before time zero. A time in the future means that a packet waits for tokens.
    empty_ns: i64,
    /// The remainder of rounding to nanoseconds, which keeps the long-run rate exact.
    remainder: u64,
}

impl Bucket {
    /// Creates a bucket that is empty at time zero.
    fn new(rate: Rate, burst: Bytes) -> Bucket {
        Bucket {
            rate,
            burst,
            depth_ns: Bucket::depth_ns(rate, burst),
            empty_ns: 0,
            remainder: 0,
        }
    }

    /// Returns the time in which an empty bucket fills.
    fn depth_ns(rate: Rate, burst: Bytes) -> i64 {
        let depth_ns = u128::from(burst.0) * 8 * 1_000_000_000 / u128::from(rate.as_bps());
        i64::try_from(depth_ns).unwrap_or(i64::MAX)
    }

    /// Changes the rate from `now` on. The number of tokens, in bytes, does not change. Returns the
    /// new end of the transmission of a packet that waits for tokens.
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
            let (span, rest) = rescaled(amount, from, self.remainder, rate);
            self.remainder = rest;
            let end = now + span;
            self.empty_ns = end.as_nanos().cast_signed();
            return Some(end);
        }
        let (span, _) = rescaled(amount, from, 0, rate);
        self.remainder = 0;
        let saved_ns = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        self.empty_ns = now_ns.saturating_sub(saved_ns.min(self.depth_ns));
        None
    }

    /// Takes the tokens for a packet, and returns the end of its transmission.
    fn send(&mut self, now: Time, bytes: u32) -> Time {
        let now_ns = now.as_nanos().cast_signed();
        // A full bucket gains no more tokens.
        if now_ns.saturating_sub(self.empty_ns) > self.depth_ns {
            self.empty_ns = now_ns - self.depth_ns;
            self.remainder = 0;
        }
        let (span, rest) = self.rate.transmission(bytes, self.remainder);
        self.empty_ns += span.as_nanos().cast_signed();
        self.remainder = rest;
        Time::from_nanos(self.empty_ns.max(now_ns).cast_unsigned())
    }
}

/// The position in a trace: the next opportunity, or the current one if bytes of it remain.
#[derive(Debug)]
struct Opportunities {
    trace: Arc<RateTrace>,
    next: usize,
    /// The start of the current repetition of the trace.
    round: Time,
    /// The bytes that the current opportunity can still send; zero before the opportunity.
    available_bytes: u32,
}

impl Opportunities {
    fn new(trace: Arc<RateTrace>) -> Opportunities {
        Opportunities {
            trace,
            next: 0,
            round: Time::ZERO,
            available_bytes: 0,
        }
    }

    /// Returns the time of the opportunity at this position.
    fn at(&self) -> Time {
        self.round + self.trace.time(self.next)
    }

    /// Moves on to the next opportunity.
    fn advance(&mut self) {
        self.available_bytes = 0;
        if self.next + 1 == self.trace.times_ms.len() {
            self.round = self.at();
            self.next = 0;
        } else {
            self.next += 1;
        }
    }

    /// Returns the bytes of the last packet taken that are sent at opportunities after `now`.
    fn unsent_bytes(&self, now: Time) -> u32 {
        let round_ns = Span::from_millis(u64::from(self.trace.round_ms())).as_nanos();
        let times = self.trace.times_ms.len() as u64;
        let passed = self.round.as_nanos() / round_ns * times + self.next as u64;
        let until_now = self.trace.bits_until(now) / (8 * u64::from(RateTrace::BYTES));
        let whole = passed.saturating_sub(until_now) * u64::from(RateTrace::BYTES);
        let part = match self.available_bytes {
            0 => 0,
            // The current opportunity has passed as well.
            _ if passed < until_now => 0,
            available => u64::from(RateTrace::BYTES - available),
        };
        u32::try_from(whole + part).unwrap_or(u32::MAX)
    }

    /// Moves to the first opportunity after `now`.
    fn skip_until(&mut self, now: Time) {
        while self.at() <= now {
            self.advance();
        }
    }

    /// Returns the first opportunity at or after `time`, without moving.
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

    /// Sends a packet from the opportunity at `now` on. Returns the end of the transmission, and
    /// the time at which the queue must be asked next.
    fn send(&mut self, now: Time, bytes: u32) -> (Time, Time) {
        while self.at() < now {
            self.advance();
        }
        let mut unsent = bytes;
        loop {
            if self.available_bytes == 0 {
                self.available_bytes = RateTrace::BYTES;
            }
            let part = unsent.min(self.available_bytes);
            self.available_bytes -= part;
            unsent -= part;
            let end = self.at();
            if self.available_bytes == 0 {
                self.advance();
            }
            if unsent == 0 {
                return (end, self.at());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discipline::testing::{buffer_of, sized, Drops, Packet};
    use crate::discipline::Discipline;
    use crate::queue_choice::QueueChoice;
    use forebay_units::Span;

    fn at_ms(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    /// A queue in front of a transmitter, with a record of the transmissions: the number of the
    /// packet, and the times in us at which it was taken and sent.
    struct Bench {
        queue: Queue<Packet>,
        link: Transmitter,
        drops: Drops,
        sent: Vec<(u32, u64, u64)>,
        next: u32,
    }

    impl Bench {
        fn new(capacity: &Capacity) -> Bench {
            let (site, laws) = buffer_of(1000);
            Bench {
                queue: QueueChoice::default().build(&site, laws).unwrap(),
                link: Transmitter::new(capacity),
                drops: Drops::default(),
                sent: Vec::new(),
                next: 0,
            }
        }

        fn traced(text: &str) -> Bench {
            let trace = RateTrace::parse(text.as_bytes(), "trace", "test").unwrap();
            Bench::new(&Capacity::Recorded(Arc::new(trace)))
        }

        fn record(&mut self, now: Time, transmission: Option<Transmission<Packet>>) {
            if let Some(sent) = transmission {
                assert_eq!(
                    sent.departure.sojourn,
                    now.since(sent.departure.packet.arrived)
                );
                let us = |time: Time| time.as_nanos() / 1000;
                self.sent
                    .push((sent.departure.packet.id, us(now), us(sent.end)));
            }
        }

        /// Runs everything that is due by `end`.
        fn run(&mut self, end: Time) {
            while self.link.due() <= end {
                let now = self.link.due();
                let sent = self.link.ask(now, &mut self.queue, &mut self.drops);
                self.record(now, sent);
            }
        }

        fn arrive(&mut self, now: Time, bytes: u32) {
            self.run(now);
            let packet = sized(self.next, bytes, now);
            self.next += 1;
            self.queue.enqueue(now, packet, &mut self.drops);
            if self.link.arrived(now) {
                let sent = self.link.ask(now, &mut self.queue, &mut self.drops);
                self.record(now, sent);
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
        assert_eq!(bench.sent[0], (0, 1000, 1088));
        assert_eq!(bench.sent[8].2, 1800);
        assert!(bench.link.is_free() && bench.link.due() == Time::MAX);
    }

    #[test]
    fn a_shaper_sends_each_packet_at_once() {
        let mut bench = Bench::new(&Capacity::Shaped(Rate::from_bps(8_000_000)));
        for _ in 0..3 {
            bench.arrive(at_ms(10), 1000);
        }
        // Idle time saves nothing.
        bench.arrive(at_ms(30), 1000);
        bench.arrive(at_ms(30), 1000);
        bench.run(at_ms(100));
        let out: Vec<u64> = bench.sent.iter().map(|(_, _, out)| out / 1000).collect();
        assert_eq!(out, [10, 11, 12, 30, 31]);
    }

    #[test]
    fn a_token_bucket_sends_saved_bytes_at_once() {
        // 1000 bytes take 1 ms, and the bucket holds two packets.
        let rate = Rate::from_bps(8_000_000);
        let burst = Bytes(2000);
        let mut bench = Bench::new(&Capacity::Bucket { rate, burst });
        for _ in 0..4 {
            bench.arrive(at_ms(10), 1000);
        }
        // Tokens of half a millisecond; then, after 30 ms, those of two packets and no more.
        bench.arrive(Time::from_nanos(12_500_000), 1000);
        for _ in 0..3 {
            bench.arrive(at_ms(42), 1000);
        }
        bench.run(at_ms(100));
        let out: Vec<u64> = bench.sent.iter().map(|(_, _, out)| *out).collect();
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
        let out: Vec<u64> = bench.sent.iter().map(|(_, _, out)| out / 1000).collect();
        assert_eq!(out, [2, 2, 5, 10, 12, 12, 15, 20]);
    }

    #[test]
    fn a_packet_is_taken_at_an_opportunity_and_sent_with_its_last_byte() {
        let mut bench = Bench::traced("2\n5\n10\n");
        for bytes in [1000, 500, 1600, 100] {
            bench.arrive(at_ms(1), bytes);
        }
        bench.run(at_ms(100));
        // The third packet uses an opportunity and 100 bytes of the next, which the fourth shares.
        let expected = [(0, 2, 2), (1, 2, 2), (2, 5, 10), (3, 10, 10)];
        assert_eq!(
            bench.sent,
            expected.map(|(id, now, out)| (id, 1000 * now, 1000 * out))
        );
    }

    #[test]
    fn unused_bytes_of_an_opportunity_are_lost() {
        let mut bench = Bench::traced("2\n5\n5\n10\n");
        bench.arrive(at_ms(1), 700);
        // 800 bytes of the opportunity at 2 ms are not used; at 3 ms they are lost.
        bench.arrive(at_ms(3), 700);
        // An arrival at 5 ms is too late for both opportunities at 5 ms.
        bench.arrive(at_ms(5), 700);
        bench.arrive(at_ms(1001), 1500);
        bench.run(at_ms(2000));
        let expected = [(0, 2), (1, 5), (2, 10), (3, 1002)];
        assert_eq!(
            bench.sent,
            expected.map(|(id, at)| (id, 1000 * at, 1000 * at))
        );
    }

    /// A discipline that releases packets at even milliseconds only.
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
                sojourn: now.since(packet.arrived),
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
        assert_eq!(bench.sent, [(0, 2000, 3000), (1, 4000, 5000)]);

        let mut bench = Bench::traced("3\n4\n5\n6\n7\n");
        bench.queue = Queue::Other(Box::new(Gate(Vec::new())));
        bench.arrive(at_ms(1), 1000);
        bench.arrive(at_ms(1), 1000);
        bench.run(at_ms(100));
        // Both packets are taken at 4 ms: 500 bytes remain for the second, which ends at 5 ms.
        assert_eq!(bench.sent, [(0, 4000, 4000), (1, 4000, 5000)]);
    }

    /// Changes the rate. Returns the new end of the current transmission in us, if it moves.
    fn change(bench: &mut Bench, now: Time, rate: Rate) -> Option<u64> {
        bench.run(now);
        let moved = bench.link.set_rate(now, rate);
        moved.map(|end| end.as_nanos() / 1000)
    }

    const SLOW: Rate = Rate::from_bps(1);
    const FAST: Rate = Rate::from_bps(8_000_000);

    #[test]
    fn the_rest_of_a_packet_is_sent_at_the_new_rate() {
        let mut bench = Bench::new(&Capacity::Constant(FAST));
        bench.arrive(at_ms(10), 1000);
        bench.arrive(at_ms(10), 1000);
        // Half of the first packet is sent at the first rate, a quarter at half the rate, and 1 bit
        // at 1 bit/s in the second before the last change.
        let half = Time::from_nanos(10_500_000);
        let moved = change(&mut bench, half, Rate::from_bps(4_000_000));
        assert_eq!(moved, Some(11_500));
        assert_eq!(change(&mut bench, at_ms(11), SLOW), Some(2_000_011_000));
        assert_eq!(change(&mut bench, at_ms(1011), FAST), Some(1_011_250 - 1));
        bench.run(at_ms(2000));
        assert_eq!(bench.sent[1], (1, 1_011_249, 1_012_249));
        // Without a transmission nothing moves.
        assert_eq!(change(&mut bench, at_ms(3000), SLOW), None);
    }

    #[test]
    fn the_end_of_a_transmission_takes_announced_changes_into_account() {
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
            let out: Vec<u64> = bench.sent.iter().map(|(_, _, out)| *out).collect();
            let saved = u64::from(capacity != Capacity::Constant(FAST));
            assert_eq!(out, [1_011_249 - saved, 1_012_249 - saved], "{capacity:?}");
        }
    }

    #[test]
    fn a_shaper_applies_a_new_rate_at_once() {
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
            // The first packet was sent at once; the second waits for the rest of its time.
            assert_eq!(change(&mut bench, step.at, step.rate), None);
            bench.run(at_ms(2000));
            let out: Vec<u64> = bench.sent.iter().map(|(_, _, out)| *out).collect();
            assert_eq!(out, [10_000, 1_010_999], "announced: {announced}");
        }
    }

    #[test]
    fn a_new_rate_does_not_change_the_number_of_tokens() {
        let burst = Bytes(2000);
        for (before, after) in [(FAST, SLOW), (SLOW, FAST)] {
            let mut bench = Bench::new(&Capacity::Bucket { rate: FAST, burst });
            // The bucket is full at 10 ms, whatever the rate.
            assert_eq!(change(&mut bench, at_ms(10), before), None);
            assert_eq!(change(&mut bench, at_ms(11), after), None);
            for _ in 0..3 {
                bench.arrive(at_ms(20), 1000);
            }
            bench.run(at_ms(100));
            let out: Vec<u64> = bench.sent.iter().map(|(_, _, out)| *out).collect();
            assert_eq!(out[..2], [20_000, 20_000], "{before:?}, {after:?}");
            if after == FAST {
                assert_eq!(out[2], 21_000);
            } else {
                // A packet that waits for tokens receives them at the new rate.
                assert_eq!(change(&mut bench, at_ms(120), FAST), Some(120_999));
            }
        }
    }

    #[test]
    fn a_constant_rate_after_a_trace_finishes_the_current_packet() {
        // The first packet takes 1000 bytes at 2 ms; the second 500 bytes at 2 ms and 1500 at 5 ms.
        let mut bench = Bench::traced("2\n5\n9000\n");
        for bytes in [1000, 3000, 1000] {
            bench.arrive(at_ms(1), bytes);
        }
        bench.run(at_ms(6));
        assert_eq!(bench.sent.last(), Some(&(1, 2_000, 9_000_000)));
        // 1000 bytes of it remain.
        assert_eq!(change(&mut bench, at_ms(6), FAST), Some(7_000));
        bench.run(at_ms(100));
        assert_eq!(bench.sent.last(), Some(&(2, 7_000, 8_000)));

        // In the third repetition of a trace, the opportunities are at 20, 23 and 27 ms.
        let mut bench = Bench::traced("2\n5\n9\n");
        bench.arrive(at_ms(19), 3000);
        bench.run(at_ms(21));
        assert_eq!(bench.sent, [(0, 20_000, 23_000)]);
        assert_eq!(change(&mut bench, at_ms(21), FAST), Some(22_500));

        // A packet that waits for an opportunity is taken at once.
        let mut bench = Bench::traced("9000\n");
        bench.arrive(at_ms(1), 1000);
        assert_eq!(change(&mut bench, at_ms(6), FAST), None);
        bench.run(at_ms(100));
        assert_eq!(bench.sent, [(0, 6_000, 7_000)]);
    }
}
