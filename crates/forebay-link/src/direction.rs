//! One direction of the link: a discipline, its transmitter, and the propagation delay after it.
//!
//! Everything here happens at exact times of the run: [`Direction::advance`] handles all events
//! that are due, in order of time. If the driver wakes late, packets are released late, but the
//! queue and its law see the same times as without the delay.

use std::collections::VecDeque;

use forebay_aqm::{Capacity, DropReason, Queue, Sink, Transmission};
use forebay_scenario::LawChoice;
use forebay_trace::{Bottleneck, RunTrace, Settings as RecorderSettings, TrafficTrace};
use forebay_units::{Buffer, ParamError, Rate, Rng, SetPoint, Span, Time};

use crate::classes::Classes;
use crate::due::Due;
use crate::flows::Flows;
use crate::pool::{Pool, Segment};
use crate::queue_capture::QueueCapture;
use crate::recent::RecentDelays;
use crate::settings::{DelayRange, DirectionSettings, Path, Settings};
use crate::started_late::StartedLate;
use crate::traffic_map::TrafficMap;

/// The number of different propagation delays where delays are spread over flows. A flow's
/// addresses and ports choose its delay.
pub const LANES: usize = 32;

/// The packets under way with one propagation delay, in the order in which they are due.
struct Lane {
    delay: Span,
    due: VecDeque<Due>,
}

/// Packets and bytes of one direction since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounts {
    /// Packets that arrived at the queue.
    pub arrived_packets: u64,
    /// Packets that left the queue.
    pub sent_packets: u64,
    /// Bytes that left the queue.
    pub sent_bytes: u64,
    /// Packets that the law dropped at random or by its schedule ([`DropReason::Early`]).
    pub early_drops: u64,
    /// Packets that the law dropped because a threshold was exceeded ([`DropReason::Forced`]).
    pub forced_drops: u64,
    /// Packets that found no room in the buffer ([`DropReason::Overflow`]).
    pub overflow_drops: u64,
    /// Packets that the queue marked with CE.
    pub marks: u64,
    /// Packets lost after the queue because of the option `loss`.
    pub lost_packets: u64,
}

/// One direction of the link.
pub struct Direction {
    bottleneck: Bottleneck<Segment, Drops>,
    lanes: Vec<Lane>,
    /// The lane of the packet whose transmission began last; `None` if it is lost after the queue.
    sending_lane: Option<usize>,
    /// The probability that a packet is lost after the queue.
    loss: f64,
    rng: Rng,
    /// Bits sent since the last packet was put into a lane.
    link_bits: u64,
    /// True if the link was idle before the next packet.
    after_idle: bool,
    /// The flows of this direction.
    pub flows: Flows,
    /// The queuing delays since the last call of [`Direction::recent_delays_s`].
    recent_delays: RecentDelays,
    /// The law as it was chosen last.
    pub law: LawChoice,
    sample: Span,
    next_sample: Time,
    window: (Time, Time),
    traffic_map: TrafficMap,
    capture: Option<QueueCapture>,
}

impl Direction {
    /// Returns an idle direction at time zero.
    ///
    /// `law` describes the law that `discipline` runs, `record` the samples and the window of the
    /// trace, and `rng` draws the losses of `path`.
    pub fn new(
        discipline: Queue<Segment>,
        law: LawChoice,
        capacity: Capacity,
        path: Path,
        record: RecorderSettings,
        rng: Rng,
    ) -> Direction {
        let drops = Drops {
            counts: DirectionCounts::default(),
            classes: Classes::of(discipline.classes()),
            dropped: Vec::new(),
        };
        Direction {
            bottleneck: Bottleneck::new(discipline, record, capacity, drops),
            lanes: lanes(path.delays),
            sending_lane: None,
            loss: path.loss,
            rng,
            link_bits: 0,
            after_idle: true,
            flows: Flows::default(),
            recent_delays: RecentDelays::default(),
            law,
            sample: record.interval,
            next_sample: Time::ZERO + record.interval,
            window: record.window,
            traffic_map: TrafficMap::default(),
            capture: None,
        }
    }

    /// Records the packets of each traffic separately from now on.
    pub fn set_traffic_map(&mut self, traffic_map: TrafficMap) {
        if traffic_map.count > 1 {
            let recorder = &mut self.bottleneck.record.recorder;
            recorder.tell_traffic_apart(traffic_map.count);
        }
        self.traffic_map = traffic_map;
    }

    /// Writes the packets of the queue into a capture file from now on.
    pub fn set_capture(&mut self, capture: QueueCapture) {
        self.capture = Some(capture);
    }

    /// Takes the capture file out of the direction, if it has one.
    pub fn take_capture(&mut self) -> Option<QueueCapture> {
        self.capture.take()
    }

    /// Returns the totals since the start of the run.
    pub fn counts(&self) -> &DirectionCounts {
        &self.bottleneck.record.sink.counts
    }

    /// Returns the statistics of the discipline's classes.
    pub fn classes(&self) -> &Classes {
        &self.bottleneck.record.sink.classes
    }

    /// Returns the statistics of the discipline's classes, to change them.
    pub fn classes_mut(&mut self) -> &mut Classes {
        &mut self.bottleneck.record.sink.classes
    }

    fn counts_mut(&mut self) -> &mut DirectionCounts {
        &mut self.bottleneck.record.sink.counts
    }

    /// Returns whether `now` is within the measurement window, whose start is exclusive and whose
    /// end is inclusive.
    pub fn in_window(&self, now: Time) -> bool {
        let (start, end) = self.window;
        start < now && now <= end
    }

    /// Returns the packets in the queue.
    pub fn len_packets(&self) -> u32 {
        self.bottleneck.discipline.len_packets()
    }

    /// Returns the bytes in the queue.
    pub fn len_bytes(&self) -> u64 {
        self.bottleneck.discipline.len_bytes()
    }

    /// Returns the mean rate of the link.
    pub fn rate(&self) -> Rate {
        self.bottleneck.capacity().mean_rate()
    }

    /// Calls `out` with the name and the value of each state variable of the law.
    pub fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        self.bottleneck.discipline.probe(out);
    }

    /// Returns the 50th, 95th and 99th percentile of the queuing delay since the last call, in s;
    /// zeros where no packet left.
    pub fn recent_delays_s(&mut self) -> [f64; 3] {
        self.recent_delays.take_s().unwrap_or_default()
    }

    /// Returns whether flows have different propagation delays.
    pub fn spreads_delays(&self) -> bool {
        self.lanes.len() > 1
    }

    /// Handles all events that are due by `now`, in order of time: departures, timers of the law,
    /// and samples.
    pub fn advance(&mut self, now: Time, pool: &mut Pool) {
        loop {
            let sent = self.bottleneck.due();
            let tick = self.bottleneck.discipline.poll_timeout();
            let tick = tick.unwrap_or(Time::MAX);
            let next = sent.min(tick).min(self.next_sample);
            if next > now {
                return;
            }
            // Events at the same time have the same order as in the simulator. Nothing else happens
            // to the queue before the next departure or sample, so a link that is late handles
            // all timers up to there at once, and the law can skip those that change nothing.
            if next == tick {
                let until = sent.min(self.next_sample).min(now);
                self.bottleneck.discipline.handle_timeout(until);
            } else if next == sent {
                self.send_next(next, pool);
            } else {
                self.bottleneck.sample(next, |_| {});
                self.next_sample = next + self.sample;
            }
        }
    }

    /// Handles the arrival of a segment. The caller has advanced the direction to `now`.
    pub fn arrive(&mut self, now: Time, mut segment: Segment, pool: &mut Pool) {
        self.counts_mut().arrived_packets += 1;
        if self.traffic_map.count > 1 {
            let headers = &pool.slot(segment.handle.slot).headers;
            segment.traffic = headers.and_then(|headers| self.traffic_map.traffic(&headers.flow));
        }
        let was_free = self.bottleneck.transmitter.is_free();
        let sends = self.bottleneck.arrive(now, segment);
        self.free_slots(pool);
        if sends {
            self.send_next(now, pool);
        } else if was_free {
            self.after_idle = true;
        }
    }

    /// Starts the transmission of the next packet, if the queue has one, and puts it into its lane.
    fn send_next(&mut self, now: Time, pool: &mut Pool) {
        let sent = self.bottleneck.send_next(now);
        self.free_slots(pool);
        match sent {
            Some(sent) => self.follow(now, sent, pool),
            None => self.after_idle = true,
        }
    }

    /// Returns the slots of dropped packets to the pool.
    fn free_slots(&mut self, pool: &mut Pool) {
        for (at, segment, reason) in self.bottleneck.record.sink.dropped.drain(..) {
            if let Some(capture) = &mut self.capture {
                capture.dropped(at, pool, &segment, reason);
            }
            pool.left(segment.handle.slot, 1);
        }
    }

    /// Counts the packet whose transmission begins at `now`, and puts it into its lane.
    fn follow(&mut self, now: Time, transmission: Transmission<Segment>, pool: &mut Pool) {
        let Transmission { departure, end } = transmission;
        let segment = departure.packet;
        let (sojourn, class) = (departure.sojourn, departure.class);
        if let Some(capture) = &mut self.capture {
            capture.left(now, pool, &segment);
        }
        self.recent_delays.record(sojourn);
        let Drops {
            counts, classes, ..
        } = &mut self.bottleneck.record.sink;
        classes.sent(class, segment.bytes, sojourn);
        counts.sent_packets += 1;
        counts.sent_bytes += u64::from(segment.bytes);
        self.link_bits += 8 * u64::from(segment.bytes);
        let in_window = self.in_window(now);
        let slot = pool.slot(segment.handle.slot);
        if let Some(headers) = &slot.headers {
            let payload = match &slot.cut {
                None => headers.payload_bytes(),
                Some(cut) => segment.bytes - cut.header_bytes,
            };
            self.flows.sent(headers, payload, in_window);
        }
        if self.loss > 0.0 && self.rng.chance(self.loss) {
            self.counts_mut().lost_packets += 1;
            pool.left(segment.handle.slot, 1);
            self.sending_lane = None;
            return;
        }
        #[allow(clippy::cast_possible_truncation, reason = "below the number of lanes")]
        let lane = match slot.headers {
            Some(headers) => (headers.flow.mixed() % self.lanes.len() as u64) as usize,
            None => 0,
        };
        let due = Due {
            at: end,
            slot: segment.handle.slot,
            first: segment.handle.index,
            segments: 1,
            marked: segment.marked,
            link_bits: std::mem::take(&mut self.link_bits),
            after_idle: std::mem::take(&mut self.after_idle),
        };
        self.lanes[lane].push(due);
        self.sending_lane = Some(lane);
    }

    /// Returns the earliest time at which a packet can be due for release; `None` where the
    /// direction is empty. A packet that is still in the queue is due no earlier than the end of
    /// the present transmission plus the smallest propagation delay.
    pub fn next_release(&self) -> Option<Time> {
        let lanes = self.lanes.iter();
        let heads = lanes.filter_map(|lane| lane.due.front().map(|due| due.at));
        let busy = Some(self.bottleneck.due()).filter(|due| *due < Time::MAX);
        let queued = busy.map(|due| due + self.lanes[0].delay);
        heads.chain(queued).min()
    }

    /// Takes the next release that is due by `now`.
    pub fn release(&mut self, now: Time) -> Option<Due> {
        let lanes = self.lanes.iter_mut();
        let heads = lanes.filter(|lane| lane.due.front().is_some_and(|due| due.at <= now));
        heads
            .min_by_key(|lane| lane.due.front().map(|due| due.at))?
            .due
            .pop_front()
    }

    /// Changes the rate of the link. The rest of the packet in transmission is sent at the new
    /// rate. The caller has advanced the direction to `now`.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        let (Some(end), Some(lane)) = (self.bottleneck.set_rate(now, rate), self.sending_lane)
        else {
            return;
        };
        let Lane { delay, due } = &mut self.lanes[lane];
        if let Some(last) = due.back_mut() {
            last.at = end + *delay;
        }
    }

    /// Changes the size of the buffer.
    pub fn set_buffer(&mut self, buffer: Buffer) {
        self.bottleneck.discipline.set_buffer(buffer);
    }

    /// Changes the set-point of the law, which keeps its state. Returns whether the law can do
    /// this.
    pub fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.bottleneck.discipline.set_point(set_point)
    }

    /// Replaces the discipline. The new one gets the packets of the former one, and its clock
    /// starts at zero now.
    pub fn set_discipline(&mut self, now: Time, discipline: Queue<Segment>, pool: &mut Pool) {
        let late = Queue::Other(Box::new(StartedLate {
            discipline,
            start: now.since(Time::ZERO),
        }));
        self.classes_mut().set_present(late.classes());
        self.bottleneck.set_discipline(now, late);
        self.free_slots(pool);
    }

    /// Returns the trace of this direction as of a link with this name. Its window ends at `end` at
    /// the latest.
    pub fn finish(self, name: &str, end: Time) -> RunTrace {
        let traffic_map = self.traffic_map;
        let totals = self.flows.totals(|flow| match traffic_map.count {
            0 | 1 => Some(0),
            _ => traffic_map.traffic(flow),
        });
        let mut link = self.bottleneck.record.recorder.finish(name);
        link.settings.window.1 = link.settings.window.1.min(end);
        let traffic = TrafficTrace {
            rtt_s: traffic_map.rtt.as_secs_f64(),
            ..TrafficTrace::over(vec![0])
        };
        RunTrace {
            flows: totals,
            ..RunTrace::new(vec![link], vec![traffic; traffic_map.count.max(1) as usize])
        }
    }
}

/// Returns both directions of a link, up first.
///
/// # Errors
/// Those of [`DirectionSettings::discipline`], under the name of the option that chose the law.
pub fn both(settings: &Settings) -> Result<[Direction; 2], ParamError> {
    let direction = |way: &DirectionSettings, name: &str, option: &str| {
        let stream = |purpose: &str| Rng::new(settings.seed, &format!("{name} {purpose}"));
        let record = RecorderSettings {
            interval: settings.sample,
            window: (settings.measure.0, settings.measure.1.unwrap_or(Time::MAX)),
        };
        let discipline = way.discipline(settings.mtu, settings.seed, &format!("{name} law"));
        Ok::<_, ParamError>(Direction::new(
            discipline.map_err(|error| under_option(option, &way.law, error))?,
            way.law.clone(),
            way.capacity.clone(),
            way.path,
            record,
            stream("loss"),
        ))
    };
    // The downstream law is built first: an error that concerns both directions comes from `--aqm`.
    let down = direction(&settings.down, "down", "aqm")?;
    let mut up = direction(&settings.up, "up", "aqm-up")?;
    up.set_traffic_map(settings.traffic_map.clone());
    Ok([up, down])
}

/// Returns `error` of `law` under the name of the option that chose the law.
fn under_option(option: &str, law: &LawChoice, mut error: ParamError) -> ParamError {
    let declared = law.spec.params.iter().any(|param| param.name == error.key);
    if declared && !law.given().iter().any(|(name, _)| *name == error.key) {
        error.value += " (the default)";
    }
    error.key = format!("{option} {}: {}", law.spec.kind, error.key);
    error
}

impl Lane {
    /// Adds a release whose transmission ends at `due.at`; the propagation delay is added to it.
    fn push(&mut self, mut due: Due) {
        due.at += self.delay;
        // Consecutive segments of a super-packet are released together when the last of them is
        // sent, unless the queue dropped or marked only some of them.
        if let Some(last) = self.due.back_mut() {
            let follows = last.slot == due.slot && last.first + last.segments == due.first;
            if follows && last.marked == due.marked {
                last.at = due.at;
                last.segments += 1;
                last.link_bits += due.link_bits;
                return;
            }
        }
        self.due.push_back(due);
    }
}

/// Returns one lane, or [`LANES`] lanes with delays at equal distances from the smallest to the
/// largest.
fn lanes(delays: DelayRange) -> Vec<Lane> {
    let count = if delays.least == delays.most {
        1
    } else {
        LANES as u64
    };
    let lane = |i: u64| {
        let width = delays.most.as_nanos() - delays.least.as_nanos();
        let steps = (count - 1).max(1);
        #[allow(clippy::cast_possible_truncation, reason = "at most width")]
        let offset = (u128::from(width) * u128::from(i) / u128::from(steps)) as u64;
        Lane {
            delay: delays.least + Span::from_nanos(offset),
            due: VecDeque::with_capacity(1024),
        }
    };
    (0..count).map(lane).collect()
}

/// A sink that counts the packets that the discipline drops or marks, and collects the dropped
/// ones.
struct Drops {
    counts: DirectionCounts,
    classes: Classes,
    /// Dropped packets whose slots are not yet free.
    dropped: Vec<(Time, Segment, DropReason)>,
}

impl Sink<Segment> for Drops {
    fn dropped(&mut self, now: Time, segment: Segment, reason: DropReason, class: u8) {
        self.classes.dropped(class);
        match reason {
            DropReason::Early => self.counts.early_drops += 1,
            DropReason::Forced => self.counts.forced_drops += 1,
            DropReason::Overflow => self.counts.overflow_drops += 1,
        }
        self.dropped.push((now, segment, reason));
    }

    fn marked(&mut self, _now: Time, _segment: &Segment, class: u8) {
        self.classes.marked(class);
        self.counts.marks += 1;
    }
}

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "a test's numbers are small"
)]
mod tests {
    use super::*;
    use forebay_aqm::laws::find;
    use forebay_trace::Metrics;
    use forebay_units::{Bytes, QueueSite, Rng, Value};
    use proptest::prelude::*;

    const RATE: Rate = Rate::from_bps(12_000_000);

    fn ms(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn queue(choice: &LawChoice, seed: u64) -> Queue<Segment> {
        let site = QueueSite {
            rate: RATE,
            buffer: Buffer::Packets(100),
            packet: Bytes(1500),
            ecn: true,
        };
        choice.aqm().build(&site, seed, "law").unwrap()
    }

    fn with_law(kind: &str, params: &[(String, Value)], path: Path) -> Direction {
        let choice = LawChoice::of(find(kind).unwrap(), params.to_vec()).unwrap();
        let fifo = queue(&choice, 1);
        let record = RecorderSettings {
            interval: Span::from_millis(10),
            window: (Time::ZERO, Time::MAX),
        };
        Direction::new(
            fifo,
            choice,
            Capacity::Constant(RATE),
            path,
            record,
            Rng::new(1, "loss"),
        )
    }

    fn droptail(least: u64, most: u64, loss: f64) -> Direction {
        let path = Path {
            delays: DelayRange {
                least: Span::from_millis(least),
                most: Span::from_millis(most),
            },
            loss,
        };
        with_law("droptail", &[], path)
    }

    /// Lets an IPv4 UDP packet of this size and source port arrive at `now`.
    fn arrive(
        direction: &mut Direction,
        pool: &mut Pool,
        now: Time,
        bytes: u32,
        port: u16,
        ecn: u8,
    ) {
        direction.advance(now, pool);
        let slot = pool.take().expect("room");
        let packet = &mut pool.memory(slot)[crate::pool::PREFIX_BYTES..];
        packet[..28].fill(0);
        packet[0] = 0x45;
        packet[1] = ecn;
        packet[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
        packet[9] = 17;
        packet[20..22].copy_from_slice(&port.to_be_bytes());
        pool.fill(slot, bytes, None);
        direction.arrive(now, pool.segment(slot, 0), pool);
    }

    /// Advances the direction to `until` and returns all releases that are due by then.
    fn release_all(direction: &mut Direction, pool: &mut Pool, until: Time) -> Vec<Due> {
        direction.advance(until, pool);
        let mut out = Vec::new();
        while let Some(due) = direction.release(until) {
            pool.left(due.slot, due.segments);
            out.push(due);
        }
        out
    }

    #[test]
    fn packets_leave_at_the_rate_and_arrive_after_the_delay() {
        let (mut link, mut pool) = (droptail(30, 30, 0.0), Pool::new(200, 1500));
        for _ in 0..10 {
            arrive(&mut link, &mut pool, ms(5), 1500, 1, 0);
        }
        assert_eq!(link.len_packets(), 9);
        assert_eq!(link.next_release(), Some(ms(36)));
        // The driver is late, but each packet has its own exact time.
        let out = release_all(&mut link, &mut pool, ms(1000));
        let times: Vec<Time> = out.iter().map(|due| due.at).collect();
        let expected: Vec<Time> = (36..46).map(ms).collect();
        assert_eq!(times, expected);
        let after_idle: Vec<bool> = out.iter().map(|due| due.after_idle).collect();
        assert_eq!(
            after_idle.iter().filter(|after_idle| **after_idle).count(),
            1
        );
        assert!(after_idle[0]);
        assert_eq!(pool.free_slots(), 200);
    }

    #[test]
    fn delays_are_spread_evenly_over_flows() {
        let (mut link, mut pool) = (droptail(20, 200, 0.0), Pool::new(200, 1500));
        for port in 0..90 {
            arrive(&mut link, &mut pool, ms(0), 150, port, 0);
        }
        let out = release_all(&mut link, &mut pool, ms(1000));
        let times: Vec<u64> = out
            .iter()
            .map(|due| due.at.as_nanos() / 1_000_000)
            .collect();
        assert!(times.is_sorted());
        assert!((20..40).contains(&times[0]), "{times:?}");
        assert!((180..210).contains(times.last().unwrap()), "{times:?}");
    }

    #[test]
    fn marks_travel_with_the_packet_and_not_ect_packets_are_dropped() {
        let params = [
            ("min_th".to_owned(), Value::Text("0p".into())),
            ("max_th".to_owned(), Value::Text("100p".into())),
            ("w_q".to_owned(), Value::Number(1.0)),
            ("max_p".to_owned(), Value::Number(1.0)),
        ];
        let path = Path {
            delays: DelayRange {
                least: Span::ZERO,
                most: Span::ZERO,
            },
            loss: 0.0,
        };
        let (mut link, mut pool) = (with_law("red", &params, path), Pool::new(200, 1500));
        for i in 0..40 {
            let ecn = if i % 2 == 0 { 0b10 } else { 0 };
            arrive(&mut link, &mut pool, ms(1), 1500, 1, ecn);
        }
        let out = release_all(&mut link, &mut pool, ms(1000));
        assert!(link.counts().marks > 0 && link.counts().early_drops > 0);
        let marked = out.iter().filter(|due| due.marked).count() as u64;
        assert_eq!(marked, link.counts().marks);
    }

    #[test]
    fn the_loss_ratio_is_as_set_and_the_bits_of_lost_packets_are_accounted() {
        let (mut link, mut pool) = (droptail(0, 0, 0.1), Pool::new(200, 1500));
        let mut bits = 0;
        for i in 0..5000 {
            let now = ms(i);
            arrive(&mut link, &mut pool, now, 1500, 1, 0);
            bits += release_all(&mut link, &mut pool, now)
                .iter()
                .map(|due| due.link_bits)
                .sum::<u64>();
        }
        let lost = link.counts().lost_packets as f64 / 5000.0;
        assert!((lost - 0.1).abs() < 0.02, "{lost}");
        // Only the bits after the last release are not accounted.
        assert!(bits > 4900 * 12_000, "{bits}");
    }

    #[test]
    fn a_new_law_takes_over_the_packets_and_starts_at_time_zero() {
        let (mut link, mut pool) = (droptail(0, 0, 0.0), Pool::new(200, 1500));
        let minute = Time::ZERO + Span::from_secs(60);
        for _ in 0..50 {
            arrive(&mut link, &mut pool, minute, 1500, 1, 0);
        }
        let gains = [("a", 3e-4), ("b", 2e-4)].map(|(name, it)| (name.into(), Value::Number(it)));
        let target = [("target".into(), Value::Text("20p".into()))];
        let pi = LawChoice::of(find("pi").unwrap(), [&gains[..], &target].concat()).unwrap();
        link.set_discipline(minute, queue(&pi, 2), &mut pool);
        link.set_rate(minute, Rate::from_bps(24_000_000));
        assert_eq!(link.len_packets(), 49);
        // The new law starts here and does not catch up on a minute of samples.
        let mut p = f64::NAN;
        link.advance(minute + Span::from_millis(7), &mut pool);
        link.probe(&mut |name, value| {
            if name == "p" {
                p = value;
            }
        });
        assert!((p - 3e-4 * (49.0 - 12.0 - 20.0)).abs() < 1e-3, "{p}");
        let out = release_all(&mut link, &mut pool, minute + Span::from_secs(1));
        assert_eq!(out.len(), 50);
        // The rate doubles at the start of the first packet, so each takes half a millisecond.
        assert_eq!(out[49].at, minute + Span::from_millis(25));
    }

    /// A link that was nearly stopped continues at once when its rate rises again, as Linux's tbf
    /// does.
    #[test]
    fn the_rest_of_a_packet_is_sent_at_the_new_rate() {
        let rate = Rate::from_bps(1000);
        for (least, most) in [(5, 5), (20, 200)] {
            let (mut link, mut pool) = (droptail(least, most, 0.0), Pool::new(200, 1500));
            link.set_rate(ms(0), rate);
            for port in 0..4 {
                arrive(&mut link, &mut pool, ms(0), 1500, port, 0);
            }
            link.advance(ms(1300), &mut pool);
            link.set_rate(ms(1300), RATE);
            let out = release_all(&mut link, &mut pool, ms(2000));
            assert_eq!(out.len(), 4);
            // 1300 of 12 000 bits have been sent; the rest takes 10.7 / 12 ms.
            let first = 1_300_891_666 + 1_000_000 * least;
            assert!(out[0].at.as_nanos() >= first, "{:?}", out[0]);
            if least == most {
                let times: Vec<u64> = out.iter().map(|due| due.at.as_nanos() - first).collect();
                assert_eq!(times, [0, 1_000_000, 2_000_000, 3_000_000]);
            }
            assert_eq!(pool.free_slots(), 200);
        }
    }

    /// A link that is always busy has a utilisation of one, whatever its rates were.
    #[test]
    fn utilisation_refers_to_the_rate_at_each_time() {
        let (mut link, mut pool) = (droptail(0, 0, 0.0), Pool::new(200, 1500));
        for _ in 0..90 {
            arrive(&mut link, &mut pool, ms(0), 1500, 1, 0);
        }
        link.advance(ms(15), &mut pool);
        link.set_rate(ms(15), Rate::from_bps(24_000_000));
        link.advance(ms(40), &mut pool);
        link.set_rate(ms(40), Rate::from_bps(6_000_000));
        // 15, 50 and 5 packets of 90 are sent, and one more transmission begins at the end.
        link.advance(ms(50), &mut pool);
        let metrics = Metrics::of(link.finish("up", ms(50)).link(0), None);
        assert!((metrics.utilisation - 1.0).abs() < 0.03, "{metrics:?}");
        assert_eq!(metrics.forwarded_packets, 71.0);
    }

    #[test]
    fn a_change_of_the_set_point_keeps_the_state_of_the_law() {
        let params = [
            ("a".to_owned(), Value::Number(3e-4)),
            ("b".to_owned(), Value::Number(2e-4)),
        ];
        let target =
            |at: &str| [&params[..], &[("target".into(), Value::Text(at.into()))]].concat();
        let choice = |kind: &str, params: &[(String, Value)]| {
            LawChoice::of(find(kind).unwrap(), params.to_vec()).unwrap()
        };
        let (before, after) = (choice("pi", &target("5p")), choice("pi", &target("20p")));
        assert_eq!(
            before.with_another_target(&after),
            Some(SetPoint::Packets(20.0))
        );
        assert_eq!(before.with_another_target(&choice("pi", &[])), None);
        assert_eq!(
            before.with_another_target(&choice(
                "pid",
                &[("target".into(), Value::Text("20p".into()))]
            )),
            None
        );

        let path = Path {
            delays: DelayRange {
                least: Span::ZERO,
                most: Span::ZERO,
            },
            loss: 0.0,
        };
        let (mut link, mut pool) = (with_law("pi", &target("5p"), path), Pool::new(200, 1500));
        // As many packets arrive as leave, with 40 in the queue.
        let mut p = [0.0, 0.0];
        for i in 0..400 {
            for _ in 0..if i == 0 { 41 } else { 1 } {
                arrive(&mut link, &mut pool, ms(i), 1500, 1, 0b10);
            }
            release_all(&mut link, &mut pool, ms(i));
            if i == 200 {
                link.probe(&mut |name, value| p[0] = if name == "p" { value } else { p[0] });
                assert!(link.set_point(SetPoint::Packets(40.0)));
            }
        }
        link.probe(&mut |name, value| p[1] = if name == "p" { value } else { p[1] });
        // At the set-point p does not move, except for the step of the set-point itself: −b·35 in
        // all.
        assert!(p[0] > 0.05, "{p:?}");
        assert!((p[1] - (p[0] - 2e-4 * 35.0)).abs() < 2e-3, "{p:?}");
        assert!(!with_law("red", &[], path).set_point(SetPoint::Packets(40.0)));
    }

    proptest! {
        /// The queue's behaviour does not depend on how late the driver is.
        #[test]
        fn lateness_of_the_driver_changes_nothing(gaps_us in proptest::collection::vec(0u64..3000, 1..200), skip in 1usize..20) {
            let trace = |every: usize| {
                let params = [("target".to_owned(), Value::Text("5p".into()))];
                let path = Path { delays: DelayRange { least: Span::from_millis(3), most: Span::from_millis(9) }, loss: 0.01 };
                let (mut link, mut pool) = (with_law("pi", &params, path), Pool::new(2000, 1500));
                let mut now = Time::ZERO;
                let mut out = Vec::new();
                for (i, gap) in gaps_us.iter().enumerate() {
                    now += Span::from_micros(*gap);
                    arrive(&mut link, &mut pool, now, 1500, i as u16 % 7, 0b10);
                    if i % every == 0 {
                        out.extend(release_all(&mut link, &mut pool, now).iter().map(|due| (due.at, due.marked)));
                    }
                }
                let end = now + Span::from_secs(1);
                out.extend(release_all(&mut link, &mut pool, end).iter().map(|due| (due.at, due.marked)));
                assert_eq!(pool.free_slots(), 2000);
                let counts = *link.counts();
                assert_eq!(
                    counts.arrived_packets,
                    out.len() as u64 + counts.lost_packets + counts.early_drops + counts.forced_drops + counts.overflow_drops
                );
                let metrics = Metrics::of(link.finish("up", end).link(0), Some(5.0));
                out.sort_unstable();
                (out, counts, format!("{metrics:?}"))
            };
            prop_assert_eq!(trace(1), trace(skip));
        }

        /// The bits released, divided by the time they took, are the rate, to the nanosecond.
        #[test]
        fn releases_have_exactly_the_rate_of_the_link(sizes in proptest::collection::vec(40u32..1500, 2..99)) {
            let (mut link, mut pool) = (droptail(0, 0, 0.0), Pool::new(200, 1500));
            for &size in &sizes {
                arrive(&mut link, &mut pool, Time::ZERO, size, 1, 0);
            }
            let out = release_all(&mut link, &mut pool, ms(1000));
            let bits: u64 = sizes.iter().map(|&size| 8 * u64::from(size)).sum();
            let took = out.last().unwrap().at.as_nanos();
            prop_assert_eq!(took, bits * 1_000_000_000 / RATE.as_bps());
        }
    }
}
