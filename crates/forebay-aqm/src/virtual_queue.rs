//! The virtual queue of AVQ: the same arrivals, served at a virtual capacity below the link's.

use forebay_theory::search::{number, packets, Conditions, Search};
use forebay_units::{Packets, ParamError, Site, Time};

use crate::law::QueueView;

/// A queue of bytes that holds no packet: it only says when it would overflow.
#[derive(Debug)]
pub struct VirtualQueue {
    backlog_bytes: f64,
    buffer_bytes: f64,
    /// C̃; a law moves it with [`adjust`](VirtualQueue::adjust).
    capacity_bytes_per_s: f64,
    last: Time,
}

/// Why real packets differ from simulated ones under a law with a virtual queue.
pub const BURSTS: (&str, &str) = (
    "Bursts",
    "the law signals packets that overflow a virtual queue, so bursts count where other laws see a \
     mean. A busy machine that holds packets back and releases them at once changes delay and loss. \
     The virtual capacity rises while nothing arrives, and a real link idles longer before its \
     first flow.",
);

/// Settings that are tried with packets: the whole capacity, and virtual buffers of 3 % and 10 %
/// of the real one, which hold the queue well below it.
pub fn listed(conditions: &Conditions) -> Search {
    let setting = |share: f64| {
        let size_pkts = (share * conditions.buffer_pkts).max(5.0);
        vec![
            ("gamma", number(1.0)),
            ("virtual_buffer", packets(size_pkts)),
        ]
    };
    Search::Listed([0.03, 0.1].map(setting).to_vec())
}

/// The link's capacity in bytes per second, as it is now.
pub fn link_bytes_per_s(q: &QueueView) -> f64 {
    q.rate.as_bps() as f64 / 8.0
}

/// The virtual buffer in packets: as given, or with zero the real queue's.
///
/// # Errors
/// Where nothing is given and the real queue is not bounded in packets.
pub fn virtual_buffer_pkts(given: Packets, site: &Site) -> Result<f64, ParamError> {
    let pkts = if given.0 > 0.0 {
        given.0
    } else {
        site.buffer_pkts
    };
    if pkts.is_finite() {
        return Ok(pkts);
    }
    Err(ParamError::new(
        "virtual_buffer",
        format!("\"{given}\""),
        "more than zero packets, since the queue is bounded in bytes",
    ))
}

impl VirtualQueue {
    /// Empty, with this buffer (zero: the real queue's) and `share` of the link's capacity.
    pub fn new(buffer: Packets, share: f64, site: &Site) -> VirtualQueue {
        let pkts = virtual_buffer_pkts(buffer, site).unwrap_or(f64::INFINITY);
        VirtualQueue {
            backlog_bytes: 0.0,
            buffer_bytes: pkts * site.packet.0 as f64,
            capacity_bytes_per_s: share * site.rate.as_bps() as f64 / 8.0,
            last: Time::ZERO,
        }
    }

    /// An arrival of the real queue; true where the virtual one has no room for it.
    ///
    /// VQ ← max(0, VQ − C̃·Δt), then VQ + b > B is an overflow, which is not kept
    /// (Kunniyur and Srikant 2001; e-avq eq. (2) leaves out the floor at zero).
    pub fn overflows(&mut self, now: Time, bytes: u32) -> bool {
        let served = self.capacity_bytes_per_s * now.since(self.last).as_secs_f64();
        self.last = now;
        self.backlog_bytes = (self.backlog_bytes - served).max(0.0);
        let with = self.backlog_bytes + f64::from(bytes);
        if with > self.buffer_bytes {
            return true;
        }
        self.backlog_bytes = with;
        false
    }

    /// Moves C̃ by `change`, within [0, C].
    pub fn adjust(&mut self, change: f64, link_bytes_per_s: f64) {
        let moved = self.capacity_bytes_per_s + change;
        self.capacity_bytes_per_s = moved.max(0.0).min(link_bytes_per_s);
    }

    /// C̃.
    pub fn capacity_bytes_per_s(&self) -> f64 {
        self.capacity_bytes_per_s
    }

    pub fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("virtual_queue_bytes", self.backlog_bytes);
        out("virtual_capacity_bps", 8.0 * self.capacity_bytes_per_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::site;
    use forebay_units::Span;

    #[test]
    fn it_drains_at_its_capacity_and_keeps_no_overflow() {
        // Half of 30 Mbit/s: 1 875 000 bytes/s, 1875 bytes each ms; room for 3000 bytes.
        let mut vq = VirtualQueue::new(Packets(3.0), 0.5, &site());
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        assert!(!vq.overflows(at(0), 1000));
        assert!(!vq.overflows(at(0), 2000)); // exactly full
        assert!(vq.overflows(at(0), 1)); // and not kept
        assert_eq!(vq.backlog_bytes, 3000.0);
        assert!(!vq.overflows(at(1), 1875)); // 1125 left, full again
        assert!(!vq.overflows(at(1000), 3000)); // never below empty
    }

    #[test]
    fn the_capacity_stays_within_the_link() {
        let mut vq = VirtualQueue::new(Packets(3.0), 0.8, &site());
        vq.adjust(1e9, 3.75e6);
        assert_eq!(vq.capacity_bytes_per_s(), 3.75e6);
        vq.adjust(-1e9, 3.75e6);
        assert_eq!(vq.capacity_bytes_per_s(), 0.0);
    }

    #[test]
    fn a_queue_bounded_in_bytes_needs_a_virtual_buffer() {
        let mut bytes_only = site();
        bytes_only.buffer_pkts = f64::INFINITY;
        assert!(virtual_buffer_pkts(Packets(0.0), &bytes_only).is_err());
        assert_eq!(virtual_buffer_pkts(Packets(50.0), &bytes_only), Ok(50.0));
        assert_eq!(virtual_buffer_pkts(Packets(0.0), &site()), Ok(800.0));
    }
}
