//! What a link is asked to be.

use forebay_core::discipline::{Buffer, Fifo};
use forebay_core::param::{ParamType, Value};
use forebay_core::{Bytes, Discipline, LawSpec, Packets, ParamError, Rng, Site, Span, Time};

use crate::capacity::Capacity;
use crate::direction::{Direction, Path};
use crate::lateness::Bounds;
use crate::namespace::DeviceKind;
use crate::pool::Segment;

/// A law and its parameters.
#[derive(Clone)]
pub struct LawChoice {
    pub spec: &'static LawSpec,
    pub given: Vec<(String, Value)>,
}

/// One direction.
#[derive(Clone)]
pub struct Way {
    pub capacity: Capacity,
    pub path: Path,
    pub buffer: Buffer,
    /// Whether a signal may be a CE mark.
    pub ecn: bool,
    pub law: LawChoice,
}

#[derive(Clone)]
pub struct Settings {
    /// Client to server.
    pub up: Way,
    /// Server to client.
    pub down: Way,
    pub device: DeviceKind,
    pub mtu: u32,
    /// Let the kernel hand over up to 64 KiB of a flow at a time.
    pub super_packets: bool,
    pub seed: u64,
    /// Time between two samples of the queue.
    pub sample: Span,
    /// Metrics are taken over (start, end], or until the end of the run.
    pub measure: (Time, Option<Time>),
    pub bounds: Bounds,
}

/// Rate above which packets are fetched and released as super-packets, unless told otherwise:
/// one packet of 1500 bytes takes 12 us there, and two system calls of it about 4.
pub const SUPER_PACKETS_ABOVE_BPS: u64 = 1_000_000_000;

/// Most of the emulator's memory for packets; only what is used is taken from the system.
const MOST_BYTES: u64 = 2 << 30;
const LEAST_SLOTS: u64 = 4096;

impl LawChoice {
    /// The parameters that were given, and that there are others: "target=20p, rest default".
    pub fn in_words(&self) -> String {
        let given = self.given.iter().map(|(name, value)| match value {
            Value::Text(text) => format!("{name}={text}"),
            other => format!("{name}={other}"),
        });
        let rest = self.given.len() < self.spec.params.len();
        let all: Vec<String> = given
            .chain(rest.then(|| "rest default".to_owned()))
            .collect();
        all.join(", ")
    }

    /// The set-point in packets, if the law has one.
    pub fn target_pkts(&self) -> Option<f64> {
        let resolved = self.spec.resolve(&self.given).ok()?;
        let (_, value) = resolved.into_iter().find(|(name, _)| *name == "target")?;
        Packets::from_value(&value).ok().map(|target| target.0)
    }

    /// The set-point of `other`, if all else is as it is here.
    pub fn with_another_target(&self, other: &LawChoice) -> Option<f64> {
        fn rest(law: &LawChoice) -> impl Iterator<Item = &(String, Value)> {
            law.given.iter().filter(|(name, _)| name != "target")
        }
        let same = self.spec.kind == other.spec.kind && rest(self).eq(rest(other));
        other.target_pkts().filter(|_| same)
    }

    /// An error with the law that it is about, chosen by `option`.
    fn blamed(&self, mut error: ParamError, option: &str) -> ParamError {
        let ours = |name: &str| self.spec.params.iter().any(|it| it.name == name);
        if ours(&error.key) && !self.given.iter().any(|(name, _)| *name == error.key) {
            error.found += ", its default";
        }
        error.key = format!("{option} {}: {}", self.spec.kind, error.key);
        error
    }
}

impl Way {
    pub fn site(&self, mtu: u32) -> Site {
        Site {
            rate: self.capacity.mean_rate(),
            buffer_pkts: match self.buffer {
                Buffer::Packets(packets) => f64::from(packets),
                Buffer::Bytes(_) => f64::INFINITY,
            },
            packet: Bytes(u64::from(mtu)),
        }
    }

    /// A fresh queue under the law.
    ///
    /// # Errors
    /// A parameter that is unknown, out of range, or does not fit the others or the queue.
    pub fn discipline(
        &self,
        mtu: u32,
        rng: Rng,
    ) -> Result<Box<dyn Discipline<Segment>>, ParamError> {
        let law = self.law.spec.build(&self.law.given, &self.site(mtu))?;
        let rate = self.capacity.mean_rate();
        Ok(Box::new(Fifo::new(law, self.buffer, rate, self.ecn, rng)))
    }

    /// Packets of the least usual size that can be under way at once.
    fn slots(&self) -> u64 {
        const LEAST_PACKET_BITS: f64 = 8.0 * 64.0;
        let delay_s = self.path.delays.most.as_secs_f64();
        let on_the_way = self.capacity.mean_rate().as_bps() as f64 * delay_s / LEAST_PACKET_BITS;
        let queued = match self.buffer {
            Buffer::Packets(packets) => u64::from(packets),
            Buffer::Bytes(bytes) => bytes / 64,
        };
        // A recorded link may carry several times its mean for a while.
        queued.saturating_add(4 * on_the_way as u64)
    }
}

impl Settings {
    /// Slots of memory that suffice for both directions.
    pub fn slots(&self) -> u32 {
        let slots = self.up.slots().saturating_add(self.down.slots());
        slots.clamp(LEAST_SLOTS, MOST_BYTES / self.slot_bytes() as u64) as u32
    }

    /// The largest packet that a device hands over.
    pub fn slot_bytes(&self) -> usize {
        if self.super_packets {
            crate::device::SUPER_PACKET_BYTES
        } else {
            self.mtu as usize
        }
    }

    /// Both directions, up first.
    ///
    /// # Errors
    /// As [`Way::discipline`].
    pub fn directions(&self) -> Result<[Direction; 2], ParamError> {
        let direction = |way: &Way, name: &str, option: &str| {
            let stream = |what: &str| Rng::new(self.seed, &format!("{name} {what}"));
            let record = forebay_trace::Settings {
                interval: self.sample,
                window: (self.measure.0, self.measure.1.unwrap_or(Time::MAX)),
            };
            let discipline = way.discipline(self.mtu, stream("law"));
            Ok::<_, ParamError>(Direction::new(
                discipline.map_err(|error| way.law.blamed(error, option))?,
                way.law.clone(),
                way.capacity.clone(),
                way.path,
                record,
                stream("loss"),
            ))
        };
        // Where both have the law that is wrong, `--aqm` has chosen it.
        let down = direction(&self.down, "down", "aqm")?;
        Ok([direction(&self.up, "up", "aqm-up")?, down])
    }
}
