//! One queue under one law, in the caller's time.

use std::collections::VecDeque;

use forebay_aqm::{Dequeued, DropReason, HeldPacket, Sink};
use forebay_scenario::{check_buffer, law_named, set_value, BufferSize, LawChoice, QueueName};
use forebay_units::{Buffer, Bytes, ParamError, ParamType, QueueSite, Rate, SetPoint, Time, Value};

/// A packet of the caller's, by its handle. The queue holds this, and not its bytes.
pub type Held = HeldPacket<u64>;

/// Why a packet came back without having left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Dropped(DropReason),
    /// The caller has drained the queue.
    Drained,
}

/// What is counted from the start, and what waits.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub arrived: u64,
    pub sent: u64,
    pub sent_bytes: u64,
    pub marked: u64,
    pub early: u64,
    pub forced: u64,
    pub overflow: u64,
    pub queued: u64,
    pub queued_bytes: u64,
}

/// Packets that came back, until the caller fetches them.
#[derive(Default)]
struct Back {
    lost: VecDeque<(Held, Time, Why)>,
    counts: Counts,
}

impl Sink<Held> for Back {
    fn dropped(&mut self, now: Time, packet: Held, why: DropReason, _: u8) {
        *match why {
            DropReason::Early => &mut self.counts.early,
            DropReason::Forced => &mut self.counts.forced,
            DropReason::Overflow => &mut self.counts.overflow,
        } += 1;
        self.lost.push_back((packet, now, Why::Dropped(why)));
    }
    fn marked(&mut self, _: Time, _: &Held, _: u8) {
        self.counts.marked += 1;
    }
}

/// What a queue is made of, as texts; a text that is `None` has its default.
#[derive(Clone, Debug, Default)]
pub struct Settings<'a> {
    pub law: &'a str,
    /// KEY=VALUE, as after `--set`.
    pub params: Vec<&'a str>,
    pub queue: Option<&'a str>,
    pub rate: &'a str,
    pub buffer: &'a str,
    pub packet: Option<&'a str>,
    /// Whether a signal may be a CE mark.
    pub ecn: bool,
    pub seed: u64,
}

/// Where no other size is given: an Ethernet frame's payload.
const USUAL_PACKET: Bytes = Bytes(1500);

/// The largest packet that a queue takes: 16 MiB, larger than what any host hands to a link at once.
pub const MOST_BYTES: u32 = 1 << 24;

/// The first time that is refused: 292 years after time 0. Times that a law derives from an earlier one,
/// by delays and intervals, stay far from the end of their range.
pub const TIME_END: Time = Time::from_nanos(1 << 63);

/// The fastest link: that of the keys `bandwidth` and `rate` in a scenario.
const MOST_RATE: Rate = Rate::from_bps(10_000_000_000_000);

pub struct Queue {
    discipline: forebay_aqm::Queue<Held>,
    choice: LawChoice,
    site: QueueSite,
    back: Back,
    /// The time of the first call that had one: the law's clock starts there.
    origin: Option<Time>,
    /// The latest time, counted from there.
    now: Time,
}

impl Queue {
    /// An empty queue, idle since the first call that has a time.
    ///
    /// # Errors
    /// The setting that is wrong, with what is allowed.
    pub fn new(settings: &Settings) -> Result<Queue, ParamError> {
        let wrong =
            |key: &str, text: &str, allowed| ParamError::new(key, format!("{text:?}"), allowed);
        let spec =
            law_named(settings.law).map_err(|allowed| wrong("law", settings.law, allowed))?;
        let given = settings.params.iter().map(|text| {
            let pair = text
                .split_once('=')
                .filter(|(key, _)| !key.trim().is_empty());
            let (key, value) = pair.ok_or_else(|| wrong("params", text, "KEY=VALUE".into()))?;
            let (key, value) = (key.trim(), value.trim());
            Ok((key.to_owned(), set_value(key, value)?))
        });
        let given = given.collect::<Result<Vec<_>, ParamError>>()?;
        let named = settings.queue.map(|text| {
            let value = set_value("queue", text)?;
            QueueName::from_value(&value).map_err(|allowed| wrong("queue", text, allowed))
        });
        let queue = named.transpose()?.map(|QueueName(queue)| queue);
        let choice = LawChoice::of(spec, given)?.held_by(queue)?;
        let rate = link_rate(settings.rate)?;
        let packet = settings.packet.map_or(Ok(USUAL_PACKET), |text| {
            let read = Bytes::parse(text).map_err(|allowed| wrong("packet", text, allowed))?;
            match read {
                Bytes(1..=1_000_000) => Ok(read),
                _ => Err(wrong("packet", text, "1B to 1MB".into())),
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

    /// Returns a time of the caller as the discipline counts it, from the first one. Time never goes
    /// back: an earlier one counts as the last.
    ///
    /// # Errors
    /// A time from [`TIME_END`] on.
    fn at(&mut self, now: Time) -> Result<Time, ParamError> {
        if now >= TIME_END {
            let allowed = "a time before 2^63 ns, 292 years";
            return Err(ParamError::new("now_ns", now.as_nanos(), allowed));
        }
        let origin = *self.origin.get_or_insert(now);
        self.now = self.now.max(Time::ZERO + now.since(origin));
        Ok(self.now)
    }

    /// Returns a time of the discipline as the caller counts it.
    fn outside(&self, time: Time) -> Time {
        time + self.origin.unwrap_or(Time::ZERO).since(Time::ZERO)
    }

    /// A packet comes; it, or others, may come back by [`Queue::lost`].
    ///
    /// # Errors
    /// A packet without a byte, or of more than [`MOST_BYTES`]; a time from [`TIME_END`] on. Nothing has
    /// changed then.
    pub fn enqueue(&mut self, now: Time, packet: Held) -> Result<(), ParamError> {
        if !(1..=MOST_BYTES).contains(&packet.bytes) {
            let allowed = format!("1 to {MOST_BYTES}");
            return Err(ParamError::new("bytes", packet.bytes, allowed));
        }
        let now = self.at(now)?;
        self.back.counts.arrived += 1;
        self.discipline.enqueue(now, packet, &mut self.back);
        Ok(())
    }

    /// Returns what leaves for the link: the packet, how long it waited in ns, and its class.
    ///
    /// # Errors
    /// A time from [`TIME_END`] on.
    pub fn dequeue(&mut self, now: Time) -> Result<Dequeued<Held>, ParamError> {
        let now = self.at(now)?;
        let answer = self.discipline.dequeue(now, &mut self.back);
        if let Dequeued::Packet(departure) = &answer {
            self.back.counts.sent += 1;
            self.back.counts.sent_bytes += u64::from(departure.packet.bytes);
        }
        Ok(match answer {
            Dequeued::Wait(until) => Dequeued::Wait(self.outside(until)),
            other => other,
        })
    }

    /// The oldest packet that came back and has not been fetched.
    pub fn lost(&mut self) -> Option<(Held, Time, Why)> {
        let (packet, at, why) = self.back.lost.pop_front()?;
        Some((packet, self.outside(at), why))
    }

    /// All that waits comes back.
    ///
    /// # Errors
    /// A time from [`TIME_END`] on.
    pub fn drain(&mut self, now: Time) -> Result<(), ParamError> {
        let now = self.at(now)?;
        let lost = &mut self.back.lost;
        self.discipline
            .drain(&mut |packet| lost.push_back((packet, now, Why::Drained)));
        Ok(())
    }

    /// Returns the time at which [`Queue::handle_timeout`] is due: time 0 for a law with a
    /// clock, before the first call with a time has started it.
    pub fn next_timeout(&self) -> Option<Time> {
        let due = self.discipline.poll_timeout()?;
        match self.origin {
            Some(_) => Some(self.outside(due)),
            None => Some(Time::ZERO),
        }
    }

    /// Runs the law's clock up to now. The work is bounded however late it is.
    ///
    /// # Errors
    /// A time from [`TIME_END`] on.
    pub fn handle_timeout(&mut self, now: Time) -> Result<(), ParamError> {
        let now = self.at(now)?;
        self.discipline.handle_timeout(now);
        Ok(())
    }

    pub fn counts(&self) -> Counts {
        let (packets, bytes) = self.len();
        Counts {
            queued: packets.into(),
            queued_bytes: bytes,
            ..self.back.counts
        }
    }

    /// Packets and bytes that wait.
    pub fn len(&self) -> (u32, u64) {
        (self.discipline.len_packets(), self.discipline.len_bytes())
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len().0 == 0
    }

    /// A named inner value of the law.
    pub fn probe(&self, name: &str) -> Option<f64> {
        let mut found = None;
        self.discipline.probe(&mut |key, value| {
            if key == name {
                found = Some(value);
            }
        });
        found
    }

    /// Name of a class of its packets, from 0.
    pub fn class(&self, number: usize) -> Option<&'static str> {
        self.discipline.classes().get(number).copied()
    }

    /// Changes something while packets wait: the link's `rate`, the `buffer`, or the law's set-point
    /// under its own name.
    ///
    /// # Errors
    /// A key that cannot change, or a value that does not fit.
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
                let known = ["rate", "buffer"].into_iter().chain(set_point);
                let allowed = known.collect::<Vec<_>>().join(", ");
                let found = "a key that cannot change while packets wait";
                return Err(ParamError::new(key, found, allowed));
            }
        }
        Ok(())
    }

    fn set_point(&mut self, key: &str, value: Value) -> Result<(), ParamError> {
        let choice = self.choice.with(key, value.clone())?;
        // Built once, to see that it fits the other parameters and the buffer.
        choice.check(&self.site.law_site())?;
        let moved = SetPoint::from_value(&value).is_ok_and(|to| self.discipline.set_point(to));
        if !moved {
            let allowed = "what it was: this law does not move it while packets wait";
            return Err(ParamError::new(key, value, allowed));
        }
        self.choice = choice;
        Ok(())
    }
}

fn link_rate(text: &str) -> Result<Rate, ParamError> {
    let wrong = |allowed| ParamError::new("rate", format!("{text:?}"), allowed);
    let rate = Rate::parse(text).map_err(wrong)?;
    match (Rate::from_bps(1)..=MOST_RATE).contains(&rate) {
        true => Ok(rate),
        false => Err(wrong("1bit/s to 10Tbit/s".to_owned())),
    }
}

fn buffer(text: &str, rate: Rate, packet: Bytes) -> Result<Buffer, ParamError> {
    let value = Value::Text(text.to_owned());
    let buffer = BufferSize::from_value(&value)
        .map_err(|allowed| ParamError::new("buffer", format!("{text:?}"), allowed))?
        .at(rate);
    check_buffer(buffer, packet)?;
    Ok(buffer)
}
