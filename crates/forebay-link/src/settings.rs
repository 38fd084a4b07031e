//! Settings of a link, read and checked.

use forebay_aqm::{Capacity, Queue};
use forebay_scenario::link_options::{DirectionChoice, LinkOptions, WholeLinkOptions};
use forebay_scenario::{check_buffer, LawChoice, Maybe, MeasureWindow, Share};
use forebay_units::cast::whole_u64;
use forebay_units::{
    Buffer, Bytes, ParamError, ParamType, Params, QueueSite, Rate, Site, Span, Time,
};

pub use forebay_scenario::{DelayRange, DeviceKind};

use crate::apart::Apart;
use crate::pool::{Segment, SUPER_PACKET_BYTES};

/// One direction.
#[derive(Clone)]
pub struct DirectionSettings {
    pub capacity: Capacity,
    pub path: Path,
    pub buffer: Buffer,
    /// Whether a signal may be a CE mark.
    pub ecn: bool,
    pub law: LawChoice,
}

/// The path after the queue.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub delays: DelayRange,
    /// Probability that a packet is lost there, independent of the queue.
    pub loss: f64,
}

/// Bounds beyond which a run is void.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Lateness of the fetching and of the release of all packets but one in a thousand.
    pub lateness_p999: Span,
    /// Deviation of the achieved rate from the asked one, as a share of it.
    pub rate: f64,
}

impl Bounds {
    fn of(options: &WholeLinkOptions) -> Bounds {
        let Share(rate) = options.void_rate;
        Bounds {
            lateness_p999: options.void_lateness,
            rate,
        }
    }
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds::of(&WholeLinkOptions::defaults())
    }
}

#[derive(Clone)]
pub struct Settings {
    /// Client to server.
    pub up: DirectionSettings,
    /// Server to client.
    pub down: DirectionSettings,
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
    /// How traffic that goes up is told apart.
    pub apart: Apart,
}

/// Rate above which packets are fetched and released as super-packets by default:
/// one packet of 1500 bytes takes 12 us there, and two system calls of it about 4.
const SUPER_PACKETS_ABOVE: Rate = Rate::from_bps(1_000_000_000);

/// Limit of the emulator's memory for packets; the system provides pages when they are first used.
const MOST_BYTES: u64 = 2 << 30;
const LEAST_SLOTS: u64 = 4096;
/// Largest buffer, which that memory holds.
const MOST_BUFFER_PKTS: u32 = 1_000_000;
const MOST_BUFFER_BYTES: u64 = 1 << 30;

impl DirectionSettings {
    fn of(
        choice: &DirectionChoice,
        ecn: bool,
        packet: Bytes,
    ) -> Result<DirectionSettings, ParamError> {
        let options = &choice.options;
        let buffer = options.buffer.at(choice.mean_rate());
        let held = match buffer {
            Buffer::Packets(packets) => packets <= MOST_BUFFER_PKTS,
            Buffer::Bytes(bytes) => bytes <= MOST_BUFFER_BYTES,
        };
        if !held {
            let allowed = format!("at most \"{MOST_BUFFER_PKTS}p\" or \"1GiB\", for its memory");
            return Err(ParamError::new(
                "buffer",
                options.buffer.to_value(),
                allowed,
            ));
        }
        let Share(loss) = options.loss;
        check_buffer(buffer, packet)?;
        Ok(DirectionSettings {
            capacity: match &choice.trace {
                Some(trace) => Capacity::Recorded(trace.clone()),
                None => Capacity::of(choice.mean_rate(), options.burst),
            },
            path: Path {
                delays: options.delay,
                loss,
            },
            buffer,
            ecn,
            law: choice.law.clone(),
        })
    }

    /// Where the queue is; the MTU is the usual packet.
    pub fn queue_site(&self, mtu: u32) -> QueueSite {
        QueueSite {
            rate: self.capacity.mean_rate(),
            buffer: self.buffer,
            packet: Bytes(u64::from(mtu)),
            ecn: self.ecn,
        }
    }

    /// What the law is told of it.
    pub fn site(&self, mtu: u32) -> Site {
        self.queue_site(mtu).law_site()
    }

    /// A fresh queue under the law.
    ///
    /// # Errors
    /// A parameter that is unknown, out of range, or does not fit the others or the queue.
    pub fn discipline(
        &self,
        mtu: u32,
        seed: u64,
        stream: &str,
    ) -> Result<Queue<Segment>, ParamError> {
        self.law.aqm().build(&self.queue_site(mtu), seed, stream)
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
        queued.saturating_add(whole_u64(4.0 * on_the_way))
    }
}

impl Settings {
    /// The settings that `options` ask for.
    ///
    /// # Errors
    /// Options that do not fit each other or the emulator's memory.
    pub fn of(options: &LinkOptions) -> Result<Settings, ParamError> {
        let whole = &options.whole;
        let packet = Bytes(u64::from(whole.mtu));
        let down = DirectionSettings::of(&options.down, whole.ecn, packet)?;
        let up = DirectionSettings::of(&options.up, whole.ecn, packet).map_err(|mut error| {
            error.key += "-up";
            error
        })?;
        let packets = whole.device == DeviceKind::Packets;
        let Maybe(super_packets) = whole.super_packets;
        if packets && super_packets == Some(true) {
            let allowed = "tun, which super-packets need";
            return Err(ParamError::new("device", "packets", allowed));
        }
        let fast = [&up, &down].map(|it| it.capacity.mean_rate() > SUPER_PACKETS_ABOVE);
        let by_rate = || fast.contains(&true) && !packets && crate::device::tun_there();
        let MeasureWindow(start, end) = whole.measure;
        Ok(Settings {
            up,
            down,
            device: whole.device,
            mtu: whole.mtu,
            super_packets: super_packets.unwrap_or_else(by_rate),
            seed: whole.seed.0,
            sample: whole.sample,
            measure: (start, end),
            bounds: Bounds::of(whole),
            apart: Apart::default(),
        })
    }

    /// The part of a run of `duration` over which metrics are taken: start and end, in s.
    pub fn measured(&self, duration: Span) -> (f64, f64) {
        let run_end = Time::ZERO + duration;
        let (start, end) = self.measure;
        let end = end.unwrap_or(run_end).min(run_end);
        (start.as_secs_f64(), end.as_secs_f64())
    }

    /// Slots of memory that suffice for both directions.
    pub fn slots(&self) -> u32 {
        let slots = self.up.slots().saturating_add(self.down.slots());
        let slots = slots.clamp(LEAST_SLOTS, MOST_BYTES / self.slot_bytes() as u64);
        u32::try_from(slots).unwrap_or(u32::MAX)
    }

    /// The largest packet that a device hands over.
    pub fn slot_bytes(&self) -> usize {
        if self.super_packets {
            SUPER_PACKET_BYTES
        } else {
            self.mtu as usize
        }
    }
}
