//! Goodput of each flow. For TCP it is the number of bytes that the receiver acknowledged, taken
//! from the packets of the opposite direction. For other protocols it is the payload that left the
//! queue.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use forebay_trace::FlowTotals;

use forebay_packets::ip::{Flow, Headers, TCP};

/// The largest number of flows that are counted. The link forwards further flows without counting
/// them.
const MAX_FLOWS: usize = 1 << 16;
/// The bytes that a flow must deliver within the window to count as a data flow. Flows with fewer
/// bytes are signalling, such as the control connection of a measurement or a DNS query, and do not
/// count for fairness.
pub const MIN_FLOW_BYTES: u64 = 15_000;

/// A hasher that returns the one number that it is given. [`Flow`] writes a hash of its own.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a flow hashes as one number")
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// The bytes that one flow sent and delivered.
#[derive(Clone, Copy, Debug)]
pub struct FlowBytes {
    /// The flow.
    pub flow: Flow,
    /// Payload bytes that left the queue in the whole run.
    pub sent_bytes: u64,
    /// Payload bytes that were delivered within the window: acknowledged for TCP, sent for other
    /// protocols.
    pub delivered_bytes: u64,
    /// The highest acknowledgement number of the present TCP connection.
    acknowledged: Option<u32>,
    /// The value of `sent_bytes` at the last call of [`Flows::recent`].
    shown_bytes: u64,
}

/// The flows of one direction.
pub struct Flows {
    /// The position of each flow in `counts`.
    index: HashMap<Flow, usize, BuildHasherDefault<IdentityHasher>>,
    /// The bytes of each flow, in the order in which the flows appeared.
    pub counts: Vec<FlowBytes>,
}

impl Default for Flows {
    /// Returns no flows, with memory for [`MAX_FLOWS`], so that none is allocated during a run.
    fn default() -> Flows {
        Flows {
            index: HashMap::with_capacity_and_hasher(MAX_FLOWS, BuildHasherDefault::default()),
            counts: Vec::with_capacity(MAX_FLOWS),
        }
    }
}

impl Flows {
    /// Returns the entry of a flow, which is new if necessary; `None` where there are too many
    /// flows.
    fn entry(&mut self, flow: Flow) -> Option<&mut FlowBytes> {
        if self.counts.len() == MAX_FLOWS && !self.index.contains_key(&flow) {
            return None;
        }
        let index = *self.index.entry(flow).or_insert_with(|| {
            self.counts.push(FlowBytes {
                flow,
                sent_bytes: 0,
                delivered_bytes: 0,
                acknowledged: None,
                shown_bytes: 0,
            });
            self.counts.len() - 1
        });
        Some(&mut self.counts[index])
    }

    /// Counts a packet with `payload_bytes` that left the queue.
    pub fn sent(&mut self, headers: &Headers, payload_bytes: u32, in_window: bool) {
        let Some(count) = self.entry(headers.flow) else {
            return;
        };
        count.sent_bytes += u64::from(payload_bytes);
        if in_window && headers.flow.protocol != TCP {
            count.delivered_bytes += u64::from(payload_bytes);
        }
    }

    /// Counts the bytes that a packet of the opposite direction acknowledges.
    pub fn answered(&mut self, headers: &Headers, in_window: bool) {
        let Some(tcp) = headers.tcp else {
            return;
        };
        let Some(&index) = self.index.get(&headers.flow.reversed()) else {
            return;
        };
        let count = &mut self.counts[index];
        if tcp.syn {
            // A former connection may have had the same ports, with other sequence numbers.
            count.acknowledged = None;
        }
        let Some(ack) = tcp.ack else {
            return;
        };
        let former = count.acknowledged;
        let newly_acked = ack.wrapping_sub(former.unwrap_or(ack));
        // Sequence numbers are compared modulo 2^32 (RFC 9293, section 3.4): a difference of 2^31
        // or more means an older acknowledgement.
        if newly_acked >= 1 << 31 {
            return;
        }
        count.acknowledged = Some(ack);
        if in_window {
            count.delivered_bytes += u64::from(newly_acked);
        }
    }

    /// Returns the flows that sent most bytes since the last call, at most `most`, with their
    /// shares of all bytes.
    pub fn recent(&mut self, most: usize) -> Vec<(Flow, f64)> {
        let mut flows: Vec<(Flow, f64)> = Vec::new();
        for count in &mut self.counts {
            let bytes = count.sent_bytes - count.shown_bytes;
            count.shown_bytes = count.sent_bytes;
            if bytes > 0 {
                flows.push((count.flow, bytes as f64));
            }
        }
        let total: f64 = flows.iter().map(|(_, bytes)| bytes).sum();
        flows.sort_by(|a, b| b.1.total_cmp(&a.1));
        flows.truncate(most);
        for (_, share) in &mut flows {
            *share /= total;
        }
        flows
    }

    /// Returns the data flows: those that delivered at least [`MIN_FLOW_BYTES`].
    fn data_flows(&self) -> impl Iterator<Item = &FlowBytes> {
        let counts = self.counts.iter();
        counts.filter(|count| count.delivered_bytes >= MIN_FLOW_BYTES)
    }

    /// Returns the number of TCP flows that carried data.
    pub fn with_tcp_data(&self) -> u64 {
        let tcp = self.data_flows().filter(|count| count.flow.protocol == TCP);
        tcp.count() as u64
    }

    /// Returns the totals of the data flows for which `traffic` returns the number of their
    /// traffic.
    pub fn totals(&self, traffic: impl Fn(&Flow) -> Option<u8>) -> Vec<FlowTotals> {
        self.data_flows()
            .filter_map(|count| {
                Some(FlowTotals {
                    traffic: traffic(&count.flow)?.into(),
                    delivered_bytes: count.delivered_bytes,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_aqm::TrafficClass;
    use forebay_packets::ip::{Tcp, UDP};

    fn data(protocol: u8) -> Headers {
        Headers {
            class: TrafficClass::default(),
            flow: Flow {
                protocol,
                source: 1,
                destination: 2,
                source_port: 3,
                destination_port: 4,
            },
            transport: 20,
            bytes: 1500,
            tcp: None,
        }
    }

    fn answer(ack: u32) -> Headers {
        let forward = data(TCP);
        Headers {
            flow: forward.flow.reversed(),
            tcp: Some(Tcp {
                seq: 0,
                ack: Some(ack),
                syn: false,
                header_bytes: 20,
                payload_bytes: 0,
            }),
            ..forward
        }
    }

    #[test]
    fn goodput_of_tcp_is_the_number_of_acknowledged_bytes() {
        let mut flows = Flows::default();
        // Acknowledgements of an unknown flow are ignored.
        flows.answered(&answer(5), true);
        flows.sent(&data(TCP), 0, true);
        let start = u32::MAX - 10_000;
        for (ack, in_window) in [
            (start, true),
            (start.wrapping_add(20_000), true), // the acknowledgement number wraps around
            (start.wrapping_add(10_000), true), // an older acknowledgement, reordered
            (start.wrapping_add(20_000), true), // a duplicate
            (start.wrapping_add(50_000), false),
            (start.wrapping_add(51_000), true),
        ] {
            flows.answered(&answer(ack), in_window);
        }
        let totals = flows.totals(|_| Some(0));
        assert_eq!(totals.len(), 1);
        assert_eq!(totals[0].delivered_bytes, 21_000);
        assert_eq!(flows.with_tcp_data(), 1);
    }

    #[test]
    fn a_connection_that_reuses_ports_counts_from_its_own_start() {
        let mut flows = Flows::default();
        flows.sent(&data(TCP), 0, true);
        let mut syn_ack = |ack: u32, then: u32| {
            let mut answer_syn = answer(ack);
            answer_syn.tcp.as_mut().unwrap().syn = true;
            flows.answered(&answer_syn, true);
            flows.answered(&answer(then), true);
        };
        syn_ack(1_000, 21_000);
        syn_ack(138_000_000, 138_030_000);
        syn_ack(5_000, 6_000);
        assert_eq!(flows.totals(|_| Some(0))[0].delivered_bytes, 51_000);
    }

    /// The sender accepted the connection, so the receiver's SYN acknowledges nothing.
    #[test]
    fn a_download_that_reuses_ports_counts_from_its_own_start() {
        let mut flows = Flows::default();
        for (first, last) in [(1_000, 21_000), (138_000_000, 138_030_000)] {
            let mut syn = answer(0);
            let tcp = syn.tcp.as_mut().unwrap();
            (tcp.syn, tcp.ack) = (true, None);
            flows.answered(&syn, true);
            flows.sent(&data(TCP), 0, true);
            flows.answered(&answer(first), true);
            flows.answered(&answer(last), true);
        }
        assert_eq!(flows.totals(|_| Some(0))[0].delivered_bytes, 50_000);
    }

    #[test]
    fn goodput_of_udp_is_the_number_of_bytes_sent_in_the_window() {
        let mut flows = Flows::default();
        flows.sent(&data(UDP), 20_000, true);
        flows.sent(&data(UDP), 20_000, false);
        assert_eq!(flows.totals(|_| Some(0))[0].delivered_bytes, 20_000);
        assert_eq!(flows.counts[0].sent_bytes, 40_000);
        assert_eq!(flows.with_tcp_data(), 0);
    }

    #[test]
    fn a_flow_with_few_bytes_is_not_a_data_flow() {
        let mut flows = Flows::default();
        flows.sent(&data(UDP), 1000, true);
        assert!(flows.totals(|_| Some(0)).is_empty());
    }
}
