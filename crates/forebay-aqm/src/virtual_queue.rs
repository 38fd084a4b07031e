//! The virtual queue of AVQ: it receives the same arrivals as the real queue, and serves them at a
//! virtual capacity below the link's.

use forebay_theory::search::{number, packets, Conditions, Search};
use forebay_units::{Packets, ParamError, Site, Time};

use crate::law::QueueView;

/// A count of bytes that reports when a queue with this capacity would overflow. It holds no
/// packets.
#[derive(Debug)]
pub struct VirtualQueue {
    backlog_bytes: f64,
    buffer_bytes: f64,
    /// The virtual capacity C̃, which a law changes with [`adjust`](VirtualQueue::adjust).
    capacity_bytes_per_s: f64,
    last: Time,
}

/// The reason for which results with real packets can differ from simulated ones under a law with a
/// virtual queue.
pub const BURSTS: (&str, &str) = (
    "Bursts",
    "the law signals packets that overflow a virtual queue, so it responds to bursts where other \
     laws respond to a mean. A busy machine that delays packets and releases them together changes \
     delay and loss. The virtual capacity also rises while no packet arrives, and a real link is idle \
     for longer before its first flow.",
);

/// Returns settings to simulate: the full capacity, with virtual buffers of 3 % and 10 % of the
/// real one, which keep the queue well below it.
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

/// Returns the link's current capacity in bytes per second.
pub fn link_bytes_per_s(q: &QueueView) -> f64 {
    q.rate.as_bps() as f64 / 8.0
}

/// Returns the virtual buffer in packets: `buffer`, or the real queue's if that is zero.
///
/// # Errors
/// If `buffer` is zero and the real queue is not bounded in packets.
pub fn virtual_buffer_pkts(buffer: Packets, site: &Site) -> Result<f64, ParamError> {
    let pkts = if buffer.0 > 0.0 {
        buffer.0
    } else {
        site.buffer_pkts
    };
    if pkts.is_finite() {
        return Ok(pkts);
    }
    Err(ParamError::new(
        "virtual_buffer",
        format!("\"{buffer}\""),
        "more than zero packets, since the queue's own buffer is in bytes",
    ))
}

impl VirtualQueue {
    /// Creates an empty virtual queue with this buffer (zero: the real queue's) and the fraction
    /// `share` of the link's capacity.
    pub fn new(buffer: Packets, share: f64, site: &Site) -> VirtualQueue {
        let pkts = virtual_buffer_pkts(buffer, site).unwrap_or(f64::INFINITY);
        VirtualQueue {
            backlog_bytes: 0.0,
            buffer_bytes: pkts * site.packet.0 as f64,
            capacity_bytes_per_s: share * site.rate.as_bps() as f64 / 8.0,
            last: Time::ZERO,
        }
    }

    /// Adds an arrival of the real queue. Returns true if the virtual queue overflows.
    ///
    /// VQ ← max(0, VQ − C̃·Δt); if then VQ + b > B, the packet overflows and is not added (Kunniyur
    /// and Srikant 2001; e-avq eq. (2) leaves out the lower limit of zero).
    pub fn overflows(&mut self, now: Time, bytes: u32) -> bool {
        let served = self.capacity_bytes_per_s * now.since(self.last).as_secs_f64();
        self.last = now;
        self.backlog_bytes = (self.backlog_bytes - served).max(0.0);
        let backlog_bytes = self.backlog_bytes + f64::from(bytes);
        if backlog_bytes > self.buffer_bytes {
            return true;
        }
        self.backlog_bytes = backlog_bytes;
        false
    }

    /// Changes C̃ by `change`, within [0, C].
    pub fn adjust(&mut self, change: f64, link_bytes_per_s: f64) {
        let capacity = self.capacity_bytes_per_s + change;
        self.capacity_bytes_per_s = capacity.max(0.0).min(link_bytes_per_s);
    }

    /// Returns C̃.
    pub fn capacity_bytes_per_s(&self) -> f64 {
        self.capacity_bytes_per_s
    }

    /// Reports the virtual backlog and capacity.
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
    fn the_queue_drains_at_its_capacity_and_discards_overflows() {
        // Half of 30 Mbit/s is 1875 bytes per ms; the buffer holds 3000 bytes.
        let mut vq = VirtualQueue::new(Packets(3.0), 0.5, &site());
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        assert!(!vq.overflows(at(0), 1000));
        assert!(!vq.overflows(at(0), 2000)); // exactly full
        assert!(vq.overflows(at(0), 1)); // and not added
        assert_eq!(vq.backlog_bytes, 3000.0);
        assert!(!vq.overflows(at(1), 1875)); // 1125 bytes remain, full again
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
