//! Viewers of adaptive video. A viewer fetches segment after segment over TCP, at a bit rate that
//! BBA-0 chooses by the level of the playout buffer (Huang, Johari, McKeown, Trunnell and Watson, A
//! Buffer-Based Approach to Rate Adaptation, SIGCOMM 2014, section 4).

use forebay_scenario as scenario;
use forebay_trace::Viewer;
use forebay_units::cast::{whole_u32, whole_u64};
use forebay_units::{Bytes, Span, Time};

use super::{Act, Action, Application};

/// Viewers of a video with segments at several bit rates.
pub struct Video {
    segment_s: f64,
    ladder_bps: Vec<f64>,
    buffer_s: f64,
    reservoir_s: f64,
    payload_bytes: f64,
    viewers: Vec<Watching>,
}

/// The state of one viewer.
#[derive(Clone, Default)]
struct Watching {
    /// Playing time in the buffer at `since`, in s.
    level_s: f64,
    since: Time,
    /// True once the first segment has arrived.
    playing: bool,
    /// Index of the bit rate of the segment under way.
    rate: usize,
    /// Arrival times of segments, with their bit rates in bit/s.
    segments: Vec<(Time, f64)>,
    /// Start and end of each stall.
    stalls: Vec<(Time, Time)>,
}

impl Watching {
    /// Returns the time at which the buffer runs empty without another segment.
    fn runs_out(&self) -> Time {
        self.since + Span::from_nanos(whole_u64(1e9 * self.level_s))
    }

    /// Returns the playing time in the buffer at `now`, in s.
    fn level_s(&self, now: Time) -> f64 {
        let played_s = (now - self.since).as_secs_f64();
        (self.level_s - played_s).max(0.0)
    }
}

impl Video {
    /// Creates the viewers; `payload` is the payload of a packet.
    pub fn new(video: &scenario::Video, payload: Bytes, viewers: u32) -> Video {
        Video {
            segment_s: video.segment.as_secs_f64(),
            ladder_bps: video
                .ladder
                .iter()
                .map(|rate| rate.as_bps() as f64)
                .collect(),
            buffer_s: video.buffer.as_secs_f64(),
            reservoir_s: video.reservoir.as_secs_f64(),
            payload_bytes: payload.0 as f64,
            viewers: vec![Watching::default(); viewers as usize],
        }
    }

    /// Returns the paper's f(B), in bit/s, which rises linearly with the level of the buffer from
    /// the lowest to the highest rate.
    fn map_bps(&self, level_s: f64) -> f64 {
        let (lowest, highest) = (
            self.ladder_bps[0],
            self.ladder_bps[self.ladder_bps.len() - 1],
        );
        let cushion_s = scenario::Video::UPPER * self.buffer_s - self.reservoir_s;
        let share = ((level_s - self.reservoir_s) / cushion_s).clamp(0.0, 1.0);
        lowest + share * (highest - lowest)
    }

    /// Returns the next rate by Algorithm 1 of the paper: the rate changes only when f(B) reaches
    /// the next higher or the next lower rate.
    fn choose(&self, rate: usize, level_s: f64) -> usize {
        let (ladder, map_bps) = (&self.ladder_bps, self.map_bps(level_s));
        let last = ladder.len() - 1;
        if level_s <= self.reservoir_s {
            0
        } else if level_s >= scenario::Video::UPPER * self.buffer_s {
            last
        } else if rate < last && map_bps >= ladder[rate + 1] {
            // The highest rate below f(B).
            ladder.iter().rposition(|bps| *bps < map_bps).unwrap_or(0)
        } else if rate > 0 && map_bps <= ladder[rate - 1] {
            // The lowest rate above f(B).
            ladder.iter().position(|bps| *bps > map_bps).unwrap_or(last)
        } else {
            rate
        }
    }

    /// Returns the act that fetches a segment of this rate at `at`; `None` after the stop.
    fn fetch(&self, rate: usize, at: Time, stop: Option<Time>) -> Option<Act> {
        let bytes = self.ladder_bps[rate] * self.segment_s / 8.0;
        let packets = whole_u32((bytes / self.payload_bytes).ceil().max(1.0));
        stop.is_none_or(|stop| at < stop).then_some(Act {
            at,
            action: Action::Transfer(packets),
        })
    }
}

impl Application for Video {
    fn first(&mut self, viewer: u32, start: Time, stop: Option<Time>) -> Option<Act> {
        self.viewers[viewer as usize] = Watching::default();
        self.fetch(0, start, stop)
    }

    fn next(&mut self, _viewer: u32, _done: Act, _stop: Option<Time>) -> Option<Act> {
        None
    }

    fn transferred(&mut self, viewer: u32, now: Time, stop: Option<Time>) -> Option<Act> {
        let bps = self.ladder_bps[self.viewers[viewer as usize].rate];
        let at = &mut self.viewers[viewer as usize];
        let empty = at.runs_out();
        if at.playing && empty < now {
            at.stalls.push((empty, now));
        }
        at.level_s = at.level_s(now) + self.segment_s;
        (at.since, at.playing) = (now, true);
        at.segments.push((now, bps));
        // The viewer waits until the buffer has room for a segment.
        let excess_s = (at.level_s + self.segment_s - self.buffer_s).max(0.0);
        let (rate, level_s) = (at.rate, at.level_s - excess_s);
        let rate = self.choose(rate, level_s);
        self.viewers[viewer as usize].rate = rate;
        let wait = Span::from_nanos(whole_u64(1e9 * excess_s));
        self.fetch(rate, now + wait, stop)
    }

    fn viewers(&self, (start, end): (Time, Time)) -> Vec<Viewer> {
        let one = |at: &Watching| {
            let within = |time: Time| start < time && time <= end;
            let segments = at.segments.iter().filter(|(came, _)| within(*came));
            let bps: Vec<f64> = segments.map(|(_, bps)| *bps).collect();
            let last = (at.playing && at.runs_out() < end).then(|| (at.runs_out(), end));
            let stalls = at.stalls.iter().copied().chain(last);
            let stalls = stalls.map(|(from, to)| (from.max(start), to.min(end)));
            let stalls: Vec<(Time, Time)> = stalls.filter(|(from, to)| from < to).collect();
            Viewer {
                traffic: 0,
                segments: crate::number::count(bps.len()),
                rates_bps: bps.iter().sum(),
                stalls: crate::number::count(stalls.len()),
                stalled: stalls.iter().map(|(from, to)| *to - *from).sum(),
            }
        };
        self.viewers.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Span = Span::from_secs(1);

    fn at(span: Span) -> Time {
        Time::ZERO + span
    }

    /// Returns a video with rates of 1, 2 and 4 Mbit/s; f(B) is 1 Mbit/s up to 5 s and 4 Mbit/s
    /// from 20 s on.
    fn video() -> Video {
        Video {
            segment_s: 2.0,
            ladder_bps: vec![1e6, 2e6, 4e6],
            buffer_s: 20.0 / 0.9,
            reservoir_s: 5.0,
            payload_bytes: 1000.0,
            viewers: vec![Watching::default()],
        }
    }

    fn packets(act: Option<Act>) -> (Time, u32) {
        match act {
            Some(Act {
                at,
                action: Action::Transfer(packets),
            }) => (at, packets),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rates_follow_the_paper_s_map_with_its_hysteresis() {
        let video = video();
        let near = |got: f64, want: f64| assert!((got - want).abs() < 1.0, "{got} {want}");
        near(video.map_bps(3.0), 1e6);
        near(video.map_bps(12.5), 2.5e6);
        near(video.map_bps(25.0), 4e6);
        // The rate rises once f(B) reaches the next higher rate, and falls only once f(B) reaches
        // the next lower one.
        assert_eq!(
            [9.9, 10.1, 19.9, 20.1].map(|it| video.choose(0, it)),
            [0, 1, 1, 2]
        );
        assert_eq!(
            [19.9, 10.1, 9.9, 5.1].map(|it| video.choose(2, it)),
            [2, 2, 1, 1]
        );
        assert_eq!([9.9, 5.1, 5.0].map(|it| video.choose(1, it)), [1, 1, 0]);
    }

    #[test]
    fn a_slow_path_stalls_and_a_fast_one_fills_the_buffer() {
        let mut slow = video();
        // A segment has 2 s at 1 Mbit/s.
        assert_eq!(packets(slow.first(0, at(S), None)), (at(S), 250));
        for i in 1..=4 {
            // Each segment of 2 s takes 3 s.
            assert_eq!(
                packets(slow.transferred(0, at(S + 3 * i * S), None)),
                (at(S + 3 * i * S), 250)
            );
        }
        let seen = slow.viewers((Time::ZERO, at(14 * S)))[0];
        assert_eq!((seen.segments, seen.stalls), (4, 3));
        assert_eq!(seen.stalled, Span::from_secs(3));
        // The buffer runs empty at 15 s, so that the stall up to 16 s counts, too.
        assert_eq!(
            slow.viewers((Time::ZERO, at(16 * S)))[0].stalled,
            Span::from_secs(4)
        );
        assert_eq!(
            slow.viewers((at(7 * S), at(10 * S)))[0].stalled,
            Span::from_secs(1)
        );

        let mut fast = video();
        let (mut now, mut most) = (packets(fast.first(0, Time::ZERO, None)).0, 0);
        for _ in 0..100 {
            let next = packets(fast.transferred(0, now + S / 10, None));
            now = next.0;
            most = most.max(next.1);
            assert!(fast.viewers[0].level_s <= fast.buffer_s + 1e-9);
        }
        let seen = fast.viewers((at(now.since_start() / 2), now))[0];
        // The viewer fetches the highest rate as fast as it plays.
        assert_eq!((most, seen.stalls), (1000, 0));
        assert!((seen.rates_bps / f64::from(seen.segments) - 4e6).abs() < 1.0);
        let played_s = now.as_secs_f64() / 2.0;
        assert!((f64::from(seen.segments) * 2.0 - played_s).abs() < 4.0);
    }
}
