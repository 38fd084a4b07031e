//! A law in its queue as a qdisc of Linux, in the words of tc(8).
//!
//! A law names its qdisc and the words for its parameters, and the queue discipline adds its own
//! words. A value that the qdisc counts more coarsely is rounded and reported; a parameter that the
//! qdisc does not have is an error.

use forebay_units::cast::{whole_u32, whole_u64};
use forebay_units::{
    Buffer, Bytes, ParamError, ParamType, Params, QueueSite, SetPoint, Span, Value,
};

/// Where a qdisc is put.
#[derive(Clone, Copy, Debug)]
pub struct TcSite {
    pub queue: QueueSite,
    /// What tc counts of a packet besides its size in the queue: 14 bytes on an Ethernet device,
    /// for IP packets.
    pub header: Bytes,
    /// The part of the device's header that the queue's packets have themselves: 14 bytes where
    /// they are Ethernet frames, none where they are IP packets.
    pub in_packet: Bytes,
    /// Whether a shaper leaves the packet that it sends in the qdisc, as tbf does; our queues do
    /// not hold it.
    pub held: bool,
}

impl TcSite {
    /// A usual packet, as tc counts it.
    pub fn packet_bytes(&self) -> u64 {
        self.queue.packet.0 + self.header.0
    }

    /// Packets in the qdisc that are not in the queue.
    pub fn held_packets(&self) -> u32 {
        u32::from(self.held)
    }

    /// How long the packet that is being sent is in the qdisc.
    pub fn held_time(&self) -> Span {
        match self.held {
            true => Span::from_secs_f64(1.0 / self.queue.rate.packets_per_sec(self.queue.packet)),
            false => Span::ZERO,
        }
    }
}

/// A law that Linux has as a qdisc.
pub trait LinuxQdisc {
    /// Returns the qdisc that the law is in a queue discipline of the kind `queue`, with the words
    /// for the law's parameters; `None` if Linux has no such pair.
    ///
    /// # Errors
    /// A parameter that the qdisc does not have.
    fn tc(&self, queue: &str, site: &TcSite) -> Result<Option<Tc>, ParamError>;
}

/// What a qdisc has otherwise than it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Rounded {
    pub key: String,
    pub wanted: String,
    pub taken: String,
}

/// A qdisc and its words.
#[derive(Clone, Debug, PartialEq)]
pub struct Tc {
    pub qdisc: &'static str,
    words: Vec<String>,
    pub rounded: Vec<Rounded>,
    /// It has a rate of its own, and needs no shaper.
    pub shapes: bool,
}

/// `codel limit 1000 target 5ms`, as after `tc qdisc add dev DEVICE root`.
impl std::fmt::Display for Tc {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.qdisc)?;
        self.words.iter().try_for_each(|word| write!(f, " {word}"))
    }
}

impl Tc {
    /// The word of a qdisc that shapes by itself and has been given no rate.
    pub const UNLIMITED: &str = "unlimited";

    pub fn new(qdisc: &'static str) -> Tc {
        Tc {
            qdisc,
            words: Vec::new(),
            rounded: Vec::new(),
            shapes: false,
        }
    }

    /// A word without a value.
    pub fn word(&mut self, word: &str) {
        self.words.push(word.to_owned());
    }

    pub fn pair(&mut self, word: &str, value: impl ToString) {
        self.words.push(format!("{word} {}", value.to_string()));
    }

    /// The qdisc has `taken` for `wanted`.
    pub fn round(&mut self, key: &str, wanted: impl ToString, taken: impl ToString) {
        self.rounded.push(Rounded {
            key: key.to_owned(),
            wanted: wanted.to_string(),
            taken: taken.to_string(),
        });
    }

    /// A time in whole microseconds, of which tc knows no parts.
    pub fn time(&mut self, word: &str, key: &str, time: Span) {
        let micros = (time.as_nanos() + 500) / 1000;
        let taken = Span::from_micros(micros);
        if taken != time {
            self.round(key, time, taken);
        }
        self.pair(word, spelled(taken));
    }

    /// A set-point, as the delay that it is at the link's rate.
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

    /// The buffer as a number of packets.
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

    /// The buffer in bytes, with those of the packet that is being sent.
    pub fn limit_bytes(&mut self, site: &TcSite) {
        let unit = site.packet_bytes();
        let bytes = match site.queue.buffer {
            Buffer::Bytes(bytes) => {
                // The qdisc counts the header of each packet, the queue does not.
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

    /// Raises a bound on memory that would come before the buffer is full.
    pub fn room_for(&mut self, site: &TcSite) {
        if let Buffer::Packets(packets) = site.queue.buffer {
            let needed = u64::from(packets.saturating_add(1)) * memory_bytes(site);
            if needed > DEFAULT_MEMORY {
                self.pair("memory_limit", needed);
            }
        }
    }

    /// The buffer as a bound on memory, for a qdisc that has no other.
    pub fn memory(&mut self, site: &TcSite) {
        let packets = match site.queue.buffer {
            Buffer::Packets(packets) => f64::from(packets),
            Buffer::Bytes(bytes) => bytes as f64 / site.queue.packet.0 as f64,
        };
        let bytes = whole_u64(packets * memory_bytes(site) as f64);
        self.pair("memlimit", bytes);
    }

    /// A number in steps of `1/steps`, at least one of them where it is not zero.
    ///
    /// # Errors
    /// Where it is more than `most`, or so small that it would be zero.
    pub fn steps(&mut self, key: &str, x: f64, steps: f64, most: f64) -> Result<u64, ParamError> {
        let count = (x * steps).round();
        if x > most || x > 0.0 && count < 1.0 {
            let allowed = format!("{} to {most} in Linux's {}", 1.0 / steps, self.qdisc);
            return Err(ParamError::new(key, x, allowed));
        }
        if (count / steps - x).abs() > 1e-9 * x {
            self.round(key, x, count / steps);
        }
        Ok(whole_u64(count))
    }

    /// Says whether it marks.
    pub fn ecn(&mut self, site: &TcSite) {
        self.word(if site.queue.ecn { "ecn" } else { "noecn" });
    }

    /// For a qdisc that marks, whatever it is told.
    ///
    /// # Errors
    /// Where it should not.
    pub fn always_marks(&self, site: &TcSite) -> Result<(), ParamError> {
        if site.queue.ecn {
            return Ok(());
        }
        let allowed = format!("true: Linux's {} marks whatever can be marked", self.qdisc);
        Err(ParamError::new("ecn", false, allowed))
    }

    /// What the qdisc has as a constant: the parameters `keys` must be these values.
    ///
    /// # Errors
    /// The first that is another.
    pub fn constant(&self, params: &impl Params, keys: &[(&str, Value)]) -> Result<(), ParamError> {
        let other = |(key, value): &(&str, Value)| {
            let given = params.get(key).filter(|given| given != value)?;
            Some(((*key).to_owned(), given, value.clone()))
        };
        let mut others = keys.iter().filter_map(other);
        let Some((key, given, value)) = others.next() else {
            return Ok(());
        };
        let mut allowed = format!("{value}, which Linux's {} always has", self.qdisc);
        let others: Vec<String> = others
            .map(|(key, _, value)| format!("{key} = {value}"))
            .collect();
        if !others.is_empty() {
            allowed += &format!(", with {}", others.join(", "));
        }
        Err(ParamError::new(key, given, allowed))
    }

    /// As [`constant`](Tc::constant), where the constants are the defaults.
    ///
    /// # Errors
    /// As there.
    pub fn defaults<R: Params>(&self, params: &R, keys: &[&str]) -> Result<(), ParamError> {
        let defaults = R::defaults();
        let value = |key: &&'static str| Some((*key, defaults.get(key)?));
        let named = R::SPECS.iter().map(|spec| spec.name);
        let named: Vec<_> = named.filter(|name| keys.contains(name)).collect();
        let constants: Vec<_> = named.iter().filter_map(value).collect();
        self.constant(params, &constants)
    }

    /// A backlog that a qdisc measures in packets of the device's size.
    ///
    /// # Errors
    /// Where `backlog` is neither zero, for the default, nor that many of the usual packets.
    pub fn backlog(
        &self,
        key: &str,
        backlog: Bytes,
        packets: u64,
        site: &TcSite,
    ) -> Result<(), ParamError> {
        let unit = site.queue.packet.0;
        let usual = Bytes(packets * unit);
        let unheld = Bytes(packets.saturating_sub(u64::from(site.held_packets())) * unit);
        if [Bytes(0), usual, unheld].contains(&backlog) {
            return Ok(());
        }
        let allowed = format!("\"{usual}\", which Linux's {} always has", self.qdisc);
        Err(ParamError::new(key, backlog.to_value(), allowed))
    }
}

/// What fq_codel and fq_pie use at most where nothing else is said.
const DEFAULT_MEMORY: u64 = 32 << 20;

/// What the kernel counts of memory for a usual packet: a power of two with the packet and room for
/// headers, and 256 bytes of its own. 2304 for 1500.
fn memory_bytes(site: &TcSite) -> u64 {
    (site.packet_bytes() + 256).next_power_of_two() + 256
}

/// A time in tc's words, in the largest unit in which it is whole.
fn spelled(time: Span) -> String {
    let micros = time.as_nanos() / 1000;
    match micros {
        0 => "0".to_owned(),
        _ if micros.is_multiple_of(1_000_000) => format!("{}s", micros / 1_000_000),
        _ if micros.is_multiple_of(1000) => format!("{}ms", micros / 1000),
        _ => format!("{micros}us"),
    }
}
