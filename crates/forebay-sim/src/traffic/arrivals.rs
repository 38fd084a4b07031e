//! Recorded packets: each arrives at the first queue at its recorded time, whatever the state of
//! the network.

use std::sync::Arc;

use forebay_packets as packets;
use forebay_scenario::{Recorded, Traffic};
use forebay_units::cast::whole_u64;
use forebay_units::{Rng, Span, Time};

use super::{draw, Act, Application, Coming};

/// Number of packets that are scheduled at once, which saves searches for the next event.
const TOGETHER: usize = 64;

/// Replay of a file of recorded packets.
pub struct RecordedArrivals {
    packets: Arc<packets::Arrivals>,
    scale: f64,
    period: Option<Span>,
    stop: Time,
    /// Start of the present repetition of the file.
    round: Time,
    /// Index of the next packet of this repetition.
    next: usize,
}

impl RecordedArrivals {
    /// Creates the replay; start and stop are drawn from `rng` if the scenario gives ranges.
    pub fn new(recorded: &Recorded, traffic: &Traffic, mut rng: Rng) -> RecordedArrivals {
        let start = draw(traffic.start, &mut rng);
        let stop = traffic.stop.map(|stop| draw(stop, &mut rng));
        RecordedArrivals {
            packets: Arc::clone(&recorded.packets),
            scale: recorded.scale,
            period: recorded.period,
            stop: stop.unwrap_or(Time::NEVER),
            round: start,
            next: 0,
        }
    }

    /// Returns the time of the next packet, which is the first of the next repetition after the
    /// last one; `None` if no packet follows before the stop.
    fn due(&mut self) -> Option<Time> {
        if self.next == self.packets.packets.len() {
            self.round += self.period?;
            self.next = 0;
        }
        let offset = self.packets.packets[self.next].at;
        // Times with a scale of 1 stay exact.
        let offset = match self.scale {
            1.0 => offset,
            scale => Span::from_nanos(whole_u64(offset.as_nanos_f64() * scale)),
        };
        let at = self.round + offset;
        (at < self.stop).then_some(at)
    }
}

impl Application for RecordedArrivals {
    fn first(&mut self, _flow: u32, _start: Time, _stop: Option<Time>) -> Option<Act> {
        None
    }

    fn next(&mut self, _flow: u32, _done: Act, _stop: Option<Time>) -> Option<Act> {
        None
    }

    fn first_coming(&mut self) -> Option<Time> {
        self.due()
    }

    fn coming(&mut self, give: &mut dyn FnMut(Coming)) -> Option<Time> {
        for _ in 0..TOGETHER {
            let at = self.due()?;
            let packet = self.packets.packets[self.next];
            self.next += 1;
            give(Coming {
                at,
                flow: packet.flow,
                bytes: packet.bytes,
                class: packet.class,
                tcp: packet.tcp,
                hosts: self.packets.hosts.get(packet.flow as usize).copied(),
            });
        }
        self.due()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_packets::Selection;
    use forebay_scenario::{Instant, TrafficKind};
    use forebay_units::{Bytes, Rate, Span, Time};

    const LIST: &[u8] = b"time_s,size_bytes,flow\n5,100,a\n5.001,200,b\n5.004,300,a\n";

    fn times(scale: f64, period: Option<Span>, stop: Option<Time>) -> Vec<(Time, u32, u16)> {
        let all = Selection {
            source: Vec::new(),
            destination: Vec::new(),
            mtu: 1500,
        };
        let packets = packets::Arrivals::parse(LIST, &all, "file", "list").unwrap();
        let recorded = Recorded {
            file: "list".into(),
            packets: Arc::new(packets),
            mtu: Bytes(1500),
            scale,
            period,
        };
        let traffic = Traffic {
            label: "arrivals".into(),
            flows: 2,
            packet: Bytes(300),
            header: Bytes(0),
            path: vec![0],
            rtts: vec![Span::ZERO],
            access: Rate::from_bps(1),
            dscp: 0,
            pairs: Some(1),
            group: None,
            host: None,
            start: Instant::At(at(S)),
            stop: stop.map(Instant::At),
            kind: TrafficKind::Arrivals(recorded.clone()),
        };
        let mut arrivals = RecordedArrivals::new(&recorded, &traffic, Rng::new(1, "arrivals"));
        let mut found = Vec::new();
        let mut due = arrivals.first_coming();
        while due.is_some() && found.len() < 64 {
            let first = found.len();
            let next = arrivals.coming(&mut |it| found.push((it.at, it.flow, it.bytes)));
            assert_eq!(due, found.get(first).map(|(at, ..)| *at));
            due = next;
        }
        found
    }

    const S: Span = Span::from_secs(1);
    const MS: Span = Span::from_millis(1);

    fn at(span: Span) -> Time {
        Time::ZERO + span
    }

    #[test]
    fn packets_come_at_their_times_once() {
        let want = [
            (at(S), 0, 100),
            (at(S + MS), 1, 200),
            (at(S + 4 * MS), 0, 300),
        ];
        assert_eq!(times(1.0, None, None), want);
        let slower = times(2.5, None, None);
        assert_eq!(slower[2], (at(S + 10 * MS), 0, 300));
    }

    #[test]
    fn a_period_starts_the_file_anew_until_the_stop() {
        let found = times(1.0, Some(Span::from_millis(10)), Some(at(S + 14 * MS)));
        let ms: Vec<u64> = found.iter().map(|(at, ..)| at.as_millis() - 1000).collect();
        assert_eq!(ms, [0, 1, 4, 10, 11]);
        let endless = times(1.0, Some(Span::from_millis(4)), None);
        let ms: Vec<u64> = endless
            .iter()
            .map(|(at, ..)| at.as_millis() - 1000)
            .collect();
        assert_eq!(ms[..7], [0, 1, 4, 4, 5, 8, 8]);
        assert_eq!(endless.len(), 64);
    }
}
