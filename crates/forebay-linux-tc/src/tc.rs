//! The tc(8) line of the Linux qdisc that corresponds to a law in a queue discipline.
//!
//! The law names the qdisc and the arguments for its parameters, and the discipline adds arguments
//! of its own. A value that the qdisc stores with less precision is rounded and reported. A
//! parameter that the qdisc does not have is an error.

use forebay_units::cast::{whole_u32, whole_u64};
use forebay_units::{
    Buffer, Bytes, ParamError, ParamType, Params, QueueSite, SetPoint, Span, Value,
};

/// The place in which a qdisc works.
#[derive(Clone, Copy, Debug)]
pub struct TcSite {
    /// The queue that the qdisc corresponds to.
    pub queue: QueueSite,
    /// The bytes that tc counts in addition to the size of a packet in the queue: 14 bytes for IP
    /// packets on an Ethernet device.
    pub header: Bytes,
    /// The part of the device's header that is included in the size of a packet in the queue: 14
    /// bytes for Ethernet frames, zero for IP packets.
    pub in_packet: Bytes,
    /// True if the packet in transmission stays in the qdisc, as under tbf. Forebay's queues do not
    /// count it.
    pub held: bool,
}

impl TcSite {
    /// Returns the size of a usual packet as tc counts it, in bytes.
    pub fn packet_bytes(&self) -> u64 {
        self.queue.packet.0 + self.header.0
    }

    /// Returns the number of packets that are in the qdisc but not in the queue.
    pub fn held_packets(&self) -> u32 {
        u32::from(self.held)
    }

    /// Returns the time for which a packet in transmission is in the qdisc.
    pub fn held_time(&self) -> Span {
        match self.held {
            true => Span::from_secs_f64(1.0 / self.queue.rate.packets_per_sec(self.queue.packet)),
            false => Span::ZERO,
        }
    }
}

/// A law that exists as a Linux qdisc.
pub trait LinuxQdisc {
    /// Returns the qdisc of this law in a queue discipline of the kind `queue`, with arguments for
    /// the law's parameters; `None` if Linux has no such qdisc.
    ///
    /// # Errors
    /// If the qdisc does not have a parameter.
    fn tc(&self, queue: &str, site: &TcSite) -> Result<Option<Tc>, ParamError>;
}

/// A value that a qdisc stores with less precision than requested.
#[derive(Clone, Debug, PartialEq)]
pub struct Rounded {
    /// The key of the parameter.
    pub key: String,
    /// The value that was requested.
    pub requested: String,
    /// The value that the qdisc applies.
    pub applied: String,
}

/// A state variable of a law in the statistics of its qdisc (`struct tc_*_xstats` in
/// linux/pkt_sched.h).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateVariable {
    /// The name that the law's probe has for it.
    pub name: &'static str,
    /// Its position in the structure, in bytes.
    pub offset: usize,
    /// Its size in bytes, 4 or 8.
    pub size: usize,
    /// The value of one unit of it.
    pub unit: f64,
}

impl StateVariable {
    /// Returns the value in these statistics; NaN if they are too short.
    pub fn value(&self, statistics: &[u8]) -> f64 {
        let bytes = statistics.get(self.offset..self.offset + self.size);
        let number = match (self.size, bytes) {
            (8, Some(bytes)) => bytes
                .try_into()
                .map(|it| u64::from_ne_bytes(it) as f64)
                .ok(),
            (4, Some(bytes)) => bytes
                .try_into()
                .map(|it| f64::from(u32::from_ne_bytes(it)))
                .ok(),
            _ => None,
        };
        number.map_or(f64::NAN, |number| number * self.unit)
    }
}

/// A qdisc and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Tc {
    /// The name of the qdisc.
    pub qdisc: &'static str,
    /// The state variables of the law that the qdisc reports.
    pub state: &'static [StateVariable],
    words: Vec<String>,
    /// The values that were rounded.
    pub rounded: Vec<Rounded>,
    /// True if the qdisc shapes to a rate of its own, so it needs no shaper.
    pub shapes: bool,
}

/// Formats the line that follows `tc qdisc add dev DEVICE root`: `codel limit 1000 target 5ms`.
impl std::fmt::Display for Tc {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.qdisc)?;
        self.words.iter().try_for_each(|word| write!(f, " {word}"))
    }
}

impl Tc {
    /// The argument of a qdisc that can shape but has no rate.
    pub const UNLIMITED: &str = "unlimited";

    /// Creates a qdisc without arguments.
    pub fn new(qdisc: &'static str) -> Tc {
        Tc {
            qdisc,
            state: &[],
            words: Vec::new(),
            rounded: Vec::new(),
            shapes: false,
        }
    }

    /// Returns the qdisc with these state variables, which it reports.
    #[must_use]
    pub fn reporting(self, state: &'static [StateVariable]) -> Tc {
        Tc { state, ..self }
    }

    /// Adds a keyword.
    pub fn word(&mut self, word: &str) {
        self.words.push(word.to_owned());
    }

    /// Adds a keyword with a value.
    pub fn pair(&mut self, word: &str, value: impl ToString) {
        self.words.push(format!("{word} {}", value.to_string()));
    }

    /// Records that the qdisc applies another value of the parameter `key` than requested.
    pub fn round(&mut self, key: &str, requested: impl ToString, applied: impl ToString) {
        self.rounded.push(Rounded {
            key: key.to_owned(),
            requested: requested.to_string(),
            applied: applied.to_string(),
        });
    }

    /// Adds a time, rounded to microseconds, the resolution of tc.
    pub fn time(&mut self, word: &str, key: &str, time: Span) {
        let micros = (time.as_nanos() + 500) / 1000;
        let applied = Span::from_micros(micros);
        if applied != time {
            self.round(key, time, applied);
        }
        self.pair(word, spelled(applied));
    }

    /// Adds a set-point as a delay; a queue length is converted at the link's rate.
    pub fn delay(&mut self, word: &str, key: &str, set_point: SetPoint, site: &TcSite) {
        let delay = match set_point {
            SetPoint::Delay(delay) => delay,
            SetPoint::Packets(pkts) => {
                let per_s = site.queue.rate.packets_per_sec(site.queue.packet);
                Span::from_secs_f64(pkts / per_s)
            }
        };
        self.time(word, key, delay);
    }

    /// Adds the buffer as a number of packets (`limit`).
    pub fn limit(&mut self, site: &TcSite) {
        let packets = match site.queue.buffer {
            Buffer::Packets(packets) => packets,
            Buffer::Bytes(bytes) => {
                let packets = whole_u32(bytes as f64 / site.queue.packet.0 as f64).max(1);
                self.round("buffer", Bytes(bytes), format!("{packets}p"));
                packets
            }
        };
        self.pair("limit", packets.saturating_add(site.held_packets()));
    }

    /// Adds the buffer in bytes (`limit`), including the packet in transmission.
    pub fn limit_bytes(&mut self, site: &TcSite) {
        let unit = site.packet_bytes();
        let bytes = match site.queue.buffer {
            Buffer::Bytes(bytes) => {
                // The qdisc counts the header of each packet, and the queue does not.
                let counted = u128::from(bytes) * u128::from(unit);
                let counted = counted / u128::from(site.queue.packet.0.max(1));
                u64::try_from(counted).unwrap_or(u64::MAX)
            }
            Buffer::Packets(packets) => {
                let bytes = u64::from(packets) * unit;
                self.round("buffer", format!("{packets}p"), Bytes(bytes));
                bytes
            }
        };
        let held = u64::from(site.held_packets()) * unit;
        self.pair("limit", bytes.saturating_add(held));
    }

    /// Raises `memory_limit` if the default would be reached before the buffer is full.
    pub fn memory_limit(&mut self, site: &TcSite) {
        if let Buffer::Packets(packets) = site.queue.buffer {
            let needed = u64::from(packets.saturating_add(1)) * memory_bytes(site);
            if needed > DEFAULT_MEMORY {
                self.pair("memory_limit", needed);
            }
        }
    }

    /// Adds the buffer as a memory limit (`memlimit`), for a qdisc that has no other limit.
    pub fn memory(&mut self, site: &TcSite) {
        let packets = match site.queue.buffer {
            Buffer::Packets(packets) => f64::from(packets),
            Buffer::Bytes(bytes) => bytes as f64 / site.queue.packet.0 as f64,
        };
        let bytes = whole_u64(packets * memory_bytes(site) as f64);
        self.pair("memlimit", bytes);
    }

    /// Returns a number as an integer multiple of `1/steps`.
    ///
    /// # Errors
    /// If it is above `max`, or would be rounded to zero.
    pub fn steps(&mut self, key: &str, x: f64, steps: f64, max: f64) -> Result<u64, ParamError> {
        let count = (x * steps).round();
        if x > max || x > 0.0 && count < 1.0 {
            let expected = format!(
                "a value from {} to {max} in Linux's {}",
                1.0 / steps,
                self.qdisc
            );
            return Err(ParamError::new(key, x, expected));
        }
        if (count / steps - x).abs() > 1e-9 * x {
            self.round(key, x, count / steps);
        }
        Ok(whole_u64(count))
    }

    /// Adds `ecn` or `noecn`.
    pub fn ecn(&mut self, site: &TcSite) {
        self.word(if site.queue.ecn { "ecn" } else { "noecn" });
    }

    /// Checks the queue of a qdisc in which marking cannot be disabled.
    ///
    /// # Errors
    /// If the queue does not mark.
    pub fn always_marks(&self, site: &TcSite) -> Result<(), ParamError> {
        if site.queue.ecn {
            return Ok(());
        }
        let expected = format!(
            "true, since Linux's {} always marks ECN-capable packets",
            self.qdisc
        );
        Err(ParamError::new("ecn", false, expected))
    }

    /// Checks parameters that are constants of the qdisc: each of `keys` must have this value.
    ///
    /// # Errors
    /// If a parameter has another value. The error is about the first one and lists the others.
    pub fn constant(&self, params: &impl Params, keys: &[(&str, Value)]) -> Result<(), ParamError> {
        let conflict = |(key, constant): &(&str, Value)| {
            let value = params.get(key).filter(|value| value != constant)?;
            Some(((*key).to_owned(), value, constant.clone()))
        };
        let mut conflicts = keys.iter().filter_map(conflict);
        let Some((key, value, constant)) = conflicts.next() else {
            return Ok(());
        };
        let mut expected = format!("{constant}, which is constant in Linux's {}", self.qdisc);
        let further: Vec<String> = conflicts
            .map(|(key, _, constant)| format!("{key} = {constant}"))
            .collect();
        if !further.is_empty() {
            expected += &format!(", with {}", further.join(", "));
        }
        Err(ParamError::new(key, value, expected))
    }

    /// Checks parameters that are constants of the qdisc and equal to the defaults of `R`.
    ///
    /// # Errors
    /// If one of `keys` does not have its default: see [`constant`](Tc::constant).
    pub fn defaults<R: Params>(&self, params: &R, keys: &[&str]) -> Result<(), ParamError> {
        let defaults = R::defaults();
        let value = |key: &&'static str| Some((*key, defaults.get(key)?));
        let names = R::SPECS.iter().map(|spec| spec.name);
        let names: Vec<_> = names.filter(|name| keys.contains(name)).collect();
        let constants: Vec<_> = names.iter().filter_map(value).collect();
        self.constant(params, &constants)
    }

    /// Checks a backlog that is a constant of the qdisc, `packets` packets of the device's size.
    ///
    /// # Errors
    /// If `backlog` is neither zero, which stands for the default, nor this many usual packets.
    pub fn backlog(
        &self,
        key: &str,
        backlog: Bytes,
        packets: u64,
        site: &TcSite,
    ) -> Result<(), ParamError> {
        let unit = site.queue.packet.0;
        let usual = Bytes(packets * unit);
        let without_held = Bytes(packets.saturating_sub(u64::from(site.held_packets())) * unit);
        if [Bytes(0), usual, without_held].contains(&backlog) {
            return Ok(());
        }
        let expected = format!("\"{usual}\", which is constant in Linux's {}", self.qdisc);
        Err(ParamError::new(key, backlog.to_value(), expected))
    }
}

/// The default `memory_limit` of fq_codel and fq_pie, in bytes.
const DEFAULT_MEMORY: u64 = 32 << 20;

/// Returns the memory that the kernel accounts for a usual packet (`truesize`): a power of two that
/// holds the packet and headers, and 256 bytes for the descriptor. For 1500 bytes it is 2304.
fn memory_bytes(site: &TcSite) -> u64 {
    (site.packet_bytes() + 256).next_power_of_two() + 256
}

/// Formats a time for tc, in the largest unit in which it is an integer.
fn spelled(time: Span) -> String {
    let micros = time.as_nanos() / 1000;
    match micros {
        0 => "0".to_owned(),
        _ if micros.is_multiple_of(1_000_000) => format!("{}s", micros / 1_000_000),
        _ if micros.is_multiple_of(1000) => format!("{}ms", micros / 1000),
        _ => format!("{micros}us"),
    }
}
