//! Settings of a link, made from the options of the command line and checked.

use forebay_aqm::{Capacity, Queue};
use forebay_scenario::link_options::{DirectionChoice, LinkOptions, WholeLinkOptions};
use forebay_scenario::{check_buffer, LawChoice, Maybe, MeasureWindow, Share};
use forebay_units::cast::whole_u64;
use forebay_units::{
    Buffer, Bytes, ParamError, ParamType, Params, QueueSite, Rate, Site, Span, Time,
};

pub use forebay_scenario::{DelayRange, DeviceKind};

use crate::pool::{Segment, SUPER_PACKET_BYTES};
use crate::traffic_map::TrafficMap;

/// The settings of one direction.
#[derive(Clone)]
pub struct DirectionSettings {
    /// The capacity of the link: a constant rate, or a recorded trace.
    pub capacity: Capacity,
    /// The path after the queue.
    pub path: Path,
    /// The size of the buffer.
    pub buffer: Buffer,
    /// True if ECN-capable packets are marked with CE where others are dropped.
    pub ecn: bool,
    /// The law with its parameters, and its discipline.
    pub law: LawChoice,
}

/// The path after the queue.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The propagation delays, which are spread over flows.
    pub delays: DelayRange,
    /// The probability that a packet is lost after the queue.
    pub loss: f64,
}

/// Bounds beyond which a run is void.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The bound of the 99.9th percentile of the lateness, both of fetching and of releases.
    pub lateness_p999: Span,
    /// The bound of the relative deviation of the achieved rate from the planned one.
    pub rate: f64,
}

impl Bounds {
    /// Returns the bounds that the options set.
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

/// The settings of a link.
#[derive(Clone)]
pub struct Settings {
    /// The direction from client to server.
    pub up: DirectionSettings,
    /// The direction from server to client.
    pub down: DirectionSettings,
    /// The kind of the devices at the ends.
    pub device: DeviceKind,
    /// The MTU of the devices, in bytes.
    pub mtu: u32,
    /// True if the kernel hands over up to 64 KiB of a flow at a time (GSO).
    pub super_packets: bool,
    /// The seed of the random numbers of laws and losses.
    pub seed: u64,
    /// The interval between two samples of the queue.
    pub sample: Span,
    /// The measurement window (start, end]; without an end it lasts until the end of the run.
    pub measure: (Time, Option<Time>),
    /// The bounds beyond which the run is void.
    pub bounds: Bounds,
    /// The assignment of upstream flows to the traffics of a scenario.
    pub traffic_map: TrafficMap,
}

/// The rate above which packets are fetched and released as super-packets by default. At this rate,
/// a packet of 1500 bytes takes 12 µs to send, and its two system calls take about 4 µs.
const SUPER_PACKETS_ABOVE: Rate = Rate::from_bps(1_000_000_000);

/// The limit of the emulator's memory for packets, in bytes. The system provides the pages when
/// they are first used.
const MAX_BYTES: u64 = 2 << 30;
/// The smallest number of slots.
const MIN_SLOTS: u64 = 4096;
/// The largest buffer that this memory can hold, in packets and in bytes.
const MAX_BUFFER_PKTS: u32 = 1_000_000;
const MAX_BUFFER_BYTES: u64 = 1 << 30;

impl DirectionSettings {
    /// Returns the settings of a direction, for packets of at most `packet`.
    fn of(
        choice: &DirectionChoice,
        ecn: bool,
        packet: Bytes,
    ) -> Result<DirectionSettings, ParamError> {
        let options = &choice.options;
        let buffer = options.buffer.at(choice.mean_rate());
        let held = match buffer {
            Buffer::Packets(packets) => packets <= MAX_BUFFER_PKTS,
            Buffer::Bytes(bytes) => bytes <= MAX_BUFFER_BYTES,
        };
        if !held {
            let expected = format!("at most \"{MAX_BUFFER_PKTS}p\" or \"1GiB\"");
            return Err(ParamError::new(
                "buffer",
                options.buffer.to_value(),
                expected,
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

    /// Returns the description of the queue's place, with packets of the MTU.
    pub fn queue_site(&self, mtu: u32) -> QueueSite {
        QueueSite {
            rate: self.capacity.mean_rate(),
            buffer: self.buffer,
            packet: Bytes(u64::from(mtu)),
            ecn: self.ecn,
        }
    }

    /// Returns the part of the queue's description that laws see.
    pub fn site(&self, mtu: u32) -> Site {
        self.queue_site(mtu).law_site()
    }

    /// Builds an empty queue with the law. `stream` names the law's stream of random numbers.
    ///
    /// # Errors
    /// A parameter is unknown, out of range, or does not fit the others or the queue.
    pub fn discipline(
        &self,
        mtu: u32,
        seed: u64,
        stream: &str,
    ) -> Result<Queue<Segment>, ParamError> {
        self.law.aqm().build(&self.queue_site(mtu), seed, stream)
    }

    /// Returns the number of slots that the direction needs: the packets of 64 bytes that can be in
    /// the queue and on the path at once.
    fn slots(&self) -> u64 {
        const MIN_PACKET_BITS: f64 = 8.0 * 64.0;
        let delay_s = self.path.delays.most.as_secs_f64();
        let on_path = self.capacity.mean_rate().as_bps() as f64 * delay_s / MIN_PACKET_BITS;
        let queued = match self.buffer {
            Buffer::Packets(packets) => u64::from(packets),
            Buffer::Bytes(bytes) => bytes / 64,
        };
        // A recorded link may have several times its mean rate for a while.
        queued.saturating_add(whole_u64(4.0 * on_path))
    }
}

impl Settings {
    /// Returns the settings of the options.
    ///
    /// # Errors
    /// Options do not fit each other, or a buffer does not fit the emulator's memory.
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
            let error = ParamError::new("device", "packets", "tun, which super-packets require");
            return Err(error.because("cannot carry super-packets"));
        }
        let fast = [&up, &down].map(|way| way.capacity.mean_rate() > SUPER_PACKETS_ABOVE);
        let by_rate = || fast.contains(&true) && !packets && crate::device::tun_is_available();
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
            traffic_map: TrafficMap::default(),
        })
    }

    /// Returns the measurement window of a run of this duration: start and end, in s.
    pub fn measured(&self, duration: Span) -> (f64, f64) {
        let run_end = Time::ZERO + duration;
        let (start, end) = self.measure;
        let end = end.unwrap_or(run_end).min(run_end);
        (start.as_secs_f64(), end.as_secs_f64())
    }

    /// Returns the number of slots for both directions, within the limit of the emulator's memory.
    pub fn slots(&self) -> u32 {
        let slots = self.up.slots().saturating_add(self.down.slots());
        let slots = slots.clamp(MIN_SLOTS, MAX_BYTES / self.slot_bytes() as u64);
        u32::try_from(slots).unwrap_or(u32::MAX)
    }

    /// Returns the size of the largest packet that a device hands over, in bytes.
    pub fn slot_bytes(&self) -> usize {
        if self.super_packets {
            SUPER_PACKET_BYTES
        } else {
            self.mtu as usize
        }
    }
}
