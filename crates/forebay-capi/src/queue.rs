//! A queue with one law, in the caller's time.

use std::collections::VecDeque;

use forebay_aqm::{Dequeued, DropReason, HeldPacket, Sink};
use forebay_scenario::{check_buffer, law_named, set_value, BufferSize, LawChoice, QueueName};
use forebay_units::{
    one_of, Buffer, Bytes, ParamError, ParamType, QueueSite, Rate, SetPoint, Time, Value,
};

/// A packet of the caller, by its handle. The queue does not hold the packet's bytes.
pub type Held = HeldPacket<u64>;

/// The reason for which a packet came back without leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The queue dropped the packet.
    Dropped(DropReason),
    /// The caller drained the queue.
    Drained,
}

/// Counts since the queue was made, and its present backlog (`forebay_counts`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets that left.
    pub sent: u64,
    /// Bytes that left.
    pub sent_bytes: u64,
    /// Packets that the law marked.
    pub marked: u64,
    /// Packets that the law dropped ([`DropReason::Early`]).
    pub early: u64,
    /// Packets that the law dropped above a threshold ([`DropReason::Forced`]).
    pub forced: u64,
    /// Packets that found no room in the buffer ([`DropReason::Overflow`]).
    pub overflow: u64,
    /// Packets in the queue.
    pub queued: u64,
    /// Bytes in the queue.
    pub queued_bytes: u64,
}

/// The packets that came back and that the caller has not fetched yet, and the counts.
#[derive(Default)]
struct Back {
    lost: VecDeque<(Held, Time, Why)>,
    counts: Counts,
}

impl Sink<Held> for Back {
    fn dropped(&mut self, now: Time, packet: Held, reason: DropReason, _: u8) {
        *match reason {
            DropReason::Early => &mut self.counts.early,
            DropReason::Forced => &mut self.counts.forced,
            DropReason::Overflow => &mut self.counts.overflow,
        } += 1;
        self.lost.push_back((packet, now, Why::Dropped(reason)));
    }
    fn marked(&mut self, _: Time, _: &Held, _: u8) {
        self.counts.marked += 1;
    }
}

/// The settings of a queue, as texts. A setting that is `None` has its default.
#[derive(Clone, Debug, Default)]
pub struct Settings<'a> {
    /// The kind of the law, such as "pi".
    pub law: &'a str,
    /// The parameters of the law, each as KEY=VALUE with the syntax of `--set`.
    pub params: Vec<&'a str>,
    /// The discipline; the default is that of the law.
    pub queue: Option<&'a str>,
    /// The rate of the link, such as "10Mbit/s".
    pub rate: &'a str,
    /// The size of the buffer, such as "100p".
    pub buffer: &'a str,
    /// The usual packet size; the default is 1500 bytes.
    pub packet: Option<&'a str>,
    /// True if ECN-capable packets are marked with CE where others are dropped.
    pub ecn: bool,
    /// The seed of the law's random numbers.
    pub seed: u64,
}

/// The default packet size: the payload of an Ethernet frame.
const USUAL_PACKET: Bytes = Bytes(1500);

/// The largest packet that a queue accepts, in bytes: 16 MiB, more than any host sends at once.
pub const MOST_BYTES: u32 = 1 << 24;

/// The first time that is refused: 292 years after time 0. The times that a law computes from
/// earlier ones stay far below the end of their range.
pub const TIME_END: Time = Time::from_nanos(1 << 63);

/// The highest rate of a link, as for the keys `bandwidth` and `rate` of a scenario.
const MOST_RATE: Rate = Rate::from_bps(10_000_000_000_000);

/// A queue with one law.
pub struct Queue {
    discipline: forebay_aqm::Queue<Held>,
    choice: LawChoice,
    site: QueueSite,
    back: Back,
    /// The time of the first call with a time, at which the law's clock starts.
    origin: Option<Time>,
    /// The latest time, counted from `origin`.
    now: Time,
}

impl Queue {
    /// Returns an empty queue. Its clock starts at the first call that has a time.
    ///
    /// # Errors
    /// If a setting is wrong. The error is about the first one.
    pub fn new(settings: &Settings) -> Result<Queue, ParamError> {
        let wrong =
            |key: &str, text: &str, expected| ParamError::new(key, format!("{text:?}"), expected);
        let spec =
            law_named(settings.law).map_err(|expected| wrong("law", settings.law, expected))?;
        let params = settings.params.iter().map(|text| {
            let pair = text
                .split_once('=')
                .filter(|(key, _)| !key.trim().is_empty());
            let (key, value) =
                pair.ok_or_else(|| wrong("params", text, "KEY=VALUE, such as target=15ms".into()))?;
            let (key, value) = (key.trim(), value.trim());
            Ok((key.to_owned(), set_value(key, value)?))
        });
        let params = params.collect::<Result<Vec<_>, ParamError>>()?;
        let name = settings.queue.map(|text| {
            let value = set_value("queue", text)?;
            QueueName::from_value(&value).map_err(|expected| wrong("queue", text, expected))
        });
        let queue = name.transpose()?.map(|QueueName(queue)| queue);
        let choice = LawChoice::of(spec, params)?.held_by(queue)?;
        let rate = link_rate(settings.rate)?;
        let packet = settings.packet.map_or(Ok(USUAL_PACKET), |text| {
            let size = Bytes::parse(text).map_err(|expected| wrong("packet", text, expected))?;
            match size {
                Bytes(1..=1_000_000) => Ok(size),
                _ => Err(wrong("packet", text, "a size from 1B to 1MB".into())),
            }
        })?;
        let buffer = buffer(settings.buffer, rate, packet)?;
        let site = QueueSite {
            rate,
            buffer,
            packet,
            ecn: settings.ecn,
        };
        Ok(Queue {
            discipline: choice.aqm().build(&site, settings.seed, "law")?,
            choice,
            site,
            back: Back::default(),
            origin: None,
            now: Time::ZERO,
        })
    }

    /// Returns a time of the caller on the discipline's clock, which counts from the caller's first
    /// time. A time before the latest one counts as the latest.
    ///
    /// # Errors
    /// The time is [`TIME_END`] or later.
    fn at(&mut self, now: Time) -> Result<Time, ParamError> {
        if now >= TIME_END {
            let expected = "a time below 2^63 ns, which is 292 years";
            return Err(ParamError::new("now_ns", now.as_nanos(), expected));
        }
        let origin = *self.origin.get_or_insert(now);
        self.now = self.now.max(Time::ZERO + now.since(origin));
        Ok(self.now)
    }

    /// Returns a time of the discipline's clock as a time of the caller.
    fn outside(&self, time: Time) -> Time {
        time + self.origin.unwrap_or(Time::ZERO).since(Time::ZERO)
    }

    /// Offers an arriving packet to the queue. The packet or others may come back with
    /// [`Queue::lost`].
    ///
    /// # Errors
    /// The packet has no byte or more than [`MOST_BYTES`], or the time is [`TIME_END`] or later.
    /// The queue is unchanged then.
    pub fn enqueue(&mut self, now: Time, packet: Held) -> Result<(), ParamError> {
        if !(1..=MOST_BYTES).contains(&packet.bytes) {
            let expected = format!("a size from 1 to {MOST_BYTES} bytes");
            return Err(ParamError::new("bytes", packet.bytes, expected));
        }
        let now = self.at(now)?;
        self.back.counts.arrived += 1;
        self.discipline.enqueue(now, packet, &mut self.back);
        Ok(())
    }

    /// Takes the next packet for the link, with its waiting time and its class.
    ///
    /// # Errors
    /// The time is [`TIME_END`] or later.
    pub fn dequeue(&mut self, now: Time) -> Result<Dequeued<Held>, ParamError> {
        let now = self.at(now)?;
        let answer = self.discipline.dequeue(now, &mut self.back);
        if let Dequeued::Packet(departure) = &answer {
            self.back.counts.sent += 1;
            self.back.counts.sent_bytes += u64::from(departure.packet.bytes);
        }
        Ok(match answer {
            Dequeued::Wait(until) => Dequeued::Wait(self.outside(until)),
            answer => answer,
        })
    }

    /// Takes the oldest packet that came back, with the time and the reason.
    pub fn lost(&mut self) -> Option<(Held, Time, Why)> {
        let (packet, at, reason) = self.back.lost.pop_front()?;
        Some((packet, self.outside(at), reason))
    }

    /// Empties the queue. All its packets come back with [`Queue::lost`].
    ///
    /// # Errors
    /// The time is [`TIME_END`] or later.
    pub fn drain(&mut self, now: Time) -> Result<(), ParamError> {
        let now = self.at(now)?;
        let lost = &mut self.back.lost;
        self.discipline
            .drain(&mut |packet| lost.push_back((packet, now, Why::Drained)));
        Ok(())
    }

    /// Returns the time at which [`Queue::handle_timeout`] is due; `None` for a law without a
    /// timer. Before the first call with a time has started the law's clock, it is time 0.
    pub fn next_timeout(&self) -> Option<Time> {
        let due = self.discipline.poll_timeout()?;
        match self.origin {
            Some(_) => Some(self.outside(due)),
            None => Some(Time::ZERO),
        }
    }

    /// Runs the law's timer up to now. The work is bounded, however late the call is.
    ///
    /// # Errors
    /// The time is [`TIME_END`] or later.
    pub fn handle_timeout(&mut self, now: Time) -> Result<(), ParamError> {
        let now = self.at(now)?;
        self.discipline.handle_timeout(now);
        Ok(())
    }

    /// Returns the counts and the backlog.
    pub fn counts(&self) -> Counts {
        let (packets, bytes) = self.len();
        Counts {
            queued: packets.into(),
            queued_bytes: bytes,
            ..self.back.counts
        }
    }

    /// Returns the packets and the bytes in the queue.
    pub fn len(&self) -> (u32, u64) {
        (self.discipline.len_packets(), self.discipline.len_bytes())
    }

    /// Returns whether the queue has no packets.
    pub fn is_empty(&self) -> bool {
        self.len().0 == 0
    }

    /// Returns the value of a state variable of the law; `None` where there is none of this name.
    pub fn probe(&self, name: &str) -> Option<f64> {
        let mut probe = None;
        self.discipline.probe(&mut |key, value| {
            if key == name {
                probe = Some(value);
            }
        });
        probe
    }

    /// Returns the name of the class with this number, from 0.
    pub fn class(&self, number: usize) -> Option<&'static str> {
        self.discipline.classes().get(number).copied()
    }

    /// Changes the link's `rate`, the `buffer`, or the law's set-point under its own name. Packets
    /// stay in the queue.
    ///
    /// # Errors
    /// The key cannot be changed, or the value does not fit.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), ParamError> {
        let set_point = self.choice.spec.set_point().map(|spec| spec.name);
        match key {
            "rate" => {
                self.site.rate = link_rate(text)?;
                self.discipline.set_rate(self.site.rate);
            }
            "buffer" => {
                self.site.buffer = buffer(text, self.site.rate, self.site.packet)?;
                self.discipline.set_buffer(self.site.buffer);
            }
            _ if Some(key) == set_point => self.set_point(key, set_value(key, text)?)?,
            _ => {
                let keys = ["rate", "buffer"].into_iter().chain(set_point);
                let expected = one_of(&keys.collect::<Vec<_>>(), "");
                let reason = "the key cannot change while packets wait";
                return Err(ParamError::stated(key, reason, expected));
            }
        }
        Ok(())
    }

    /// Changes the law's set-point, whose parameter is `key`.
    fn set_point(&mut self, key: &str, value: Value) -> Result<(), ParamError> {
        let choice = self.choice.with(key, value.clone())?;
        // The check builds the law once, so that the set-point fits the other parameters and the
        // buffer.
        choice.check(&self.site.law_site())?;
        let changed =
            SetPoint::from_value(&value).is_ok_and(|point| self.discipline.set_point(point));
        if !changed {
            let error = ParamError::new(key, value, "the former value");
            return Err(error.because("cannot be set, since this law keeps its set-point"));
        }
        self.choice = choice;
        Ok(())
    }
}

/// Returns the rate of a text, if a link may have it.
fn link_rate(text: &str) -> Result<Rate, ParamError> {
    let wrong = |expected| ParamError::new("rate", format!("{text:?}"), expected);
    let rate = Rate::parse(text).map_err(wrong)?;
    match (Rate::from_bps(1)..=MOST_RATE).contains(&rate) {
        true => Ok(rate),
        false => Err(wrong("a rate from 1bit/s to 10Tbit/s".to_owned())),
    }
}

/// Returns the buffer of a text at a link of this rate, if the largest packet fits.
fn buffer(text: &str, rate: Rate, packet: Bytes) -> Result<Buffer, ParamError> {
    let value = Value::Text(text.to_owned());
    let buffer = BufferSize::from_value(&value)
        .map_err(|expected| ParamError::new("buffer", format!("{text:?}"), expected))?
        .at(rate);
    check_buffer(buffer, packet)?;
    Ok(buffer)
}
