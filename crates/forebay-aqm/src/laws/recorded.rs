//! Recorded judgements of Linux's qdiscs, against which tests hold the laws.
//!
//! `python bench/kernel_vectors.py` records them on the real kernel, in the guest of the kernel
//! engine, where times are exact. The files are in `tests/vectors`; the head of each names the
//! kernel and the qdisc, and the recorder's documentation describes the format. Times are those of
//! the kernel's CLOCK_MONOTONIC, so that a law that rounds times to ticks rounds the same ones.

use std::collections::VecDeque;
use std::str::FromStr;

use forebay_units::{Bytes, Rate, Rng, Site, Span, Time};

use crate::law::{Ecn, Law, PacketMeta, QueueView, Signal, TrafficClass, Verdict};

/// The fate of a packet in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Passed,
    Marked,
    Dropped,
}

/// A packet that arrived at the kernel's queue.
#[derive(Clone, Copy, Debug)]
pub struct JudgedPacket {
    pub arrived: Time,
    pub bytes: u32,
    pub ecn: Ecn,
    /// The time at which the queue gave it to the link; `None` if it was dropped.
    pub left: Option<Time>,
    pub fate: Fate,
}

impl JudgedPacket {
    /// Returns the properties of the packet that a law sees at this time.
    pub fn meta(&self, now: Time) -> PacketMeta {
        PacketMeta {
            bytes: self.bytes,
            ecn: self.ecn,
            signal: match self.ecn {
                Ecn::NotEct => Signal::Drop,
                _ => Signal::Mark,
            },
            sojourn: now.since(self.arrived),
            ..super::testing::packet(self.bytes)
        }
    }
}

/// A vector: packets in the order of their arrivals, and samples of the law's state.
pub struct Vector {
    head: Vec<(&'static str, &'static str)>,
    pub packets: Vec<JudgedPacket>,
    pub state: Vec<Vec<u64>>,
}

impl Vector {
    /// Reads the text of a vector.
    pub fn read(text: &'static str) -> Vector {
        let head: Vec<_> = (text.lines())
            .filter_map(|line| line.strip_prefix("# ")?.split_once(" = "))
            .collect();
        let mut vector = Vector {
            head,
            packets: Vec::new(),
            state: Vec::new(),
        };
        let (_, tables) = text.split_once("[packets]\n").expect("packets");
        let (packets, state) = tables.split_once("[state]\n").expect("state");
        let mut arrived = Time::from_nanos(vector.number("first_arrival_ns"));
        for line in packets.lines() {
            let cells: Vec<&str> = line.split(',').collect();
            arrived += Span::from_nanos(number(cells[0]));
            vector.packets.push(JudgedPacket {
                arrived,
                bytes: number(cells[1]),
                ecn: TrafficClass(number(cells[2])).ecn(),
                left: (!cells[3].is_empty()).then(|| arrived + Span::from_nanos(number(cells[3]))),
                fate: match cells[4] {
                    "p" => Fate::Passed,
                    "m" => Fate::Marked,
                    "d" => Fate::Dropped,
                    other => panic!("a packet has the fate {other}"),
                },
            });
        }
        let rows = state
            .lines()
            .map(|line| line.split(',').map(number).collect());
        vector.state = rows.collect();
        vector
    }

    /// Returns a number of the head.
    pub fn number(&self, key: &str) -> u64 {
        let entry = self.head.iter().find(|(name, _)| *name == key);
        number(entry.unwrap_or_else(|| panic!("no {key}")).1)
    }

    /// Returns the bottleneck at which the vector was recorded.
    pub fn site(&self) -> Site {
        Site {
            rate: Rate::from_bps(self.number("rate_bps")),
            buffer_pkts: 5000.0,
            packet: Bytes(1500),
        }
    }

    /// Returns the number of packets with this fate.
    pub fn count(&self, fate: Fate) -> usize {
        self.packets
            .iter()
            .filter(|packet| packet.fate == fate)
            .count()
    }

    /// Returns the arrivals, and the times at which a packet left, in the order of time. A packet
    /// that arrives at an idle link leaves at once, before the next packet of a burst arrives.
    pub fn events(&self) -> Vec<(Time, QueueEvent)> {
        let mut events = Vec::new();
        for (number, packet) in self.packets.iter().enumerate() {
            events.push((packet.arrived, Some(number), QueueEvent::Arrival(number)));
            if let Some(left) = packet.left {
                let place = (left == packet.arrived).then_some(number);
                events.push((left, place, QueueEvent::Departure(number)));
            }
        }
        // The sort is stable, and `None` comes before any number.
        events.sort_by_key(|(at, place, _)| (*at, *place));
        (events.into_iter())
            .map(|(at, _, event)| (at, event))
            .collect()
    }

    /// Returns times that are a period apart.
    pub fn times(first_ns: u64, period_ns: u64) -> impl Iterator<Item = Time> {
        (0..).map(move |k| Time::from_nanos(first_ns + k * period_ns))
    }
}

/// An event at the kernel's queue, with the number of its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueEvent {
    Arrival(usize),
    Departure(usize),
}

/// Reads a number.
fn number<T: FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

/// The packets in a queue whose departures and drops are those of the kernel.
pub struct Backlog<'a> {
    vector: &'a Vector,
    numbers: VecDeque<usize>,
    bytes: u64,
    rate: Rate,
}

impl<'a> Backlog<'a> {
    /// Creates an empty queue for the packets of this vector.
    pub fn new(vector: &'a Vector) -> Backlog<'a> {
        Backlog {
            vector,
            numbers: VecDeque::new(),
            bytes: 0,
            rate: vector.site().rate,
        }
    }

    /// Adds the packet with this number.
    pub fn push(&mut self, number: usize) {
        self.numbers.push_back(number);
        self.bytes += u64::from(self.vector.packets[number].bytes);
    }

    /// Removes the packet at the head and returns its number.
    pub fn pop(&mut self) -> Option<usize> {
        let number = self.numbers.pop_front()?;
        self.bytes -= u64::from(self.vector.packets[number].bytes);
        Some(number)
    }

    /// Returns the queue as a law sees it.
    pub fn view(&self) -> QueueView {
        let head = self.numbers.front();
        QueueView {
            bytes: self.bytes,
            head_since: head.map(|number| self.vector.packets[*number].arrived),
            ..QueueView::busy(self.numbers.len() as u32, 1500, 5000, self.rate)
        }
    }
}

/// Lets a law that decides at departures handle the packets of a vector, at the times at which the
/// kernel handled them, and asserts that every packet has the fate that it had there. Calls
/// `before` before each event.
pub fn judge_departures(
    vector: &Vector,
    law: &mut dyn Law,
    mut before: impl FnMut(Time, &dyn Law),
) {
    let mut backlog = Backlog::new(vector);
    let mut rng = Rng::new(0, "");
    for (now, event) in vector.events() {
        before(now, law);
        let number = match event {
            QueueEvent::Arrival(number) => {
                backlog.push(number);
                continue;
            }
            QueueEvent::Departure(number) => number,
        };
        // Packets that are dropped at a departure were in front of the one that leaves.
        loop {
            let head = backlog.pop().expect("the packet that leaves");
            let packet = &vector.packets[head];
            let meta = packet.meta(now);
            let fate = match (
                law.on_dequeue(now, &backlog.view(), &meta, &mut rng),
                meta.signal,
            ) {
                (Verdict::Pass, _) => Fate::Passed,
                (Verdict::Signal, Signal::Mark) => Fate::Marked,
                _ => Fate::Dropped,
            };
            let at = now.as_nanos();
            assert_eq!(fate, packet.fate, "packet {head} at {at} ns");
            if fate != Fate::Dropped {
                assert_eq!(head, number, "the packet that leaves at {at} ns");
                break;
            }
        }
    }
}

/// The number of parts of a vector in which signals are counted.
pub const PARTS: usize = 5;
/// The number of times that a law draws for each vector.
const DRAWS: u32 = 200;

/// The signals of a law and of the kernel in a part of a vector.
#[derive(Clone, Copy, Debug, Default)]
pub struct SignalCount {
    pub law: u32,
    pub kernel: u32,
}

/// The signals in each part of a vector.
pub type SignalCounts = [SignalCount; PARTS];

/// Asserts that the kernel signalled as often as a law does, and returns the number of the kernel's
/// signals. `replay` draws the law's signals with a seed.
///
/// The kernel's random numbers are not those of the law. Its count in each part of the vector is
/// within four standard deviations of the law's mean, and one signal more, because small counts are
/// not normally distributed. One part of 15,000 exceeds that by chance.
pub fn compare_counts(replay: impl Fn(u64) -> SignalCounts) -> u32 {
    let draws: Vec<SignalCounts> = (0..u64::from(DRAWS)).map(replay).collect();
    let number = f64::from(DRAWS);
    for part in 0..PARTS {
        let law = || draws.iter().map(|counts| f64::from(counts[part].law));
        let mean = law().sum::<f64>() / number;
        let variance = law().map(|count| (count - mean).powi(2)).sum::<f64>() / (number - 1.0);
        // The mean has an error, too.
        let deviation = (variance * (1.0 + 1.0 / number)).sqrt();
        let kernel = draws[0][part].kernel;
        assert!(
            (f64::from(kernel) - mean).abs() <= 4.0 * deviation + 1.0,
            "part {part}: {kernel} signals of Linux, {mean:.1} ± {deviation:.1} of the law"
        );
    }
    draws[0].iter().map(|count| count.kernel).sum()
}
