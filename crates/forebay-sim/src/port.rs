//! A port: a bottleneck, and the link behind it.

use forebay_core::{Capacity, Drop, Queue, Rate, Sink, Time};
use forebay_trace::{Bottleneck, Settings};

use crate::packet::{Packet, NO_BLOCKS};
use crate::steps::{Delay, LinkSteps};

pub struct Port {
    pub bottleneck: Bottleneck<Packet, Lost>,
    /// Propagation delay at the time that the engine has reached.
    pub delay_ns: u64,
    /// The same at the time at which a packet's last bit leaves.
    delay: Delay,
    /// When the last packet reaches the far end: a shorter delay does not let one overtake.
    last_arrival: u64,
}

/// A packet on its way over the link.
pub struct Sent {
    pub packet: Packet,
    /// When its last bit reaches the far end.
    pub arrives_at: u64,
}

impl Port {
    /// `steps` are all changes of the link, which are known beforehand.
    pub fn new(
        discipline: Queue<Packet>,
        record: Settings,
        capacity: Capacity,
        delay_ns: u64,
        steps: &LinkSteps,
    ) -> Port {
        let mut bottleneck = Bottleneck::new(discipline, record, capacity, Lost::default());
        bottleneck.transmitter.announce(steps.rates.clone());
        Port {
            bottleneck,
            delay_ns,
            delay: Delay::new(delay_ns, &steps.delays),
            last_arrival: 0,
        }
    }

    /// When the link must be looked at next.
    #[inline]
    pub fn due(&self) -> u64 {
        self.bottleneck.due().as_nanos()
    }

    /// A packet arrives: whether to [send](Port::send_next) at once, since the link is free.
    #[inline(always)]
    pub fn arrive(&mut self, now: u64, packet: Packet) -> bool {
        self.bottleneck.arrive(Time::from_nanos(now), packet)
    }

    /// Takes the next packet from the queue onto the link, at [`due`](Port::due) or
    /// at an arrival.
    #[inline(always)]
    pub fn send_next(&mut self, now: u64) -> Option<Sent> {
        let sent = self.bottleneck.send_next(Time::from_nanos(now))?;
        let arrives_at = self.delay.after(sent.out.as_nanos());
        self.last_arrival = self.last_arrival.max(arrives_at);
        Some(Sent {
            packet: sent.departure.packet,
            arrives_at: self.last_arrival,
        })
    }

    /// Makes an announced change of the rate. A recorded link only reports it to its law.
    pub fn set_rate(&mut self, now: u64, rate: Rate) {
        match self.bottleneck.capacity() {
            Capacity::Recorded(_) => self.bottleneck.discipline.set_rate(rate),
            _ => {
                let moved = self.bottleneck.set_rate(Time::from_nanos(now), rate);
                debug_assert!(moved.is_none(), "a change that was not announced");
            }
        }
    }

    /// `in_flight_pkts` is of a mean flow, where it is recorded.
    pub fn sample(&mut self, now: u64, in_flight_pkts: Option<f64>) {
        self.bottleneck.sample(Time::from_nanos(now), |out| {
            if let Some(pkts) = in_flight_pkts {
                out("in_flight_pkts", pkts);
            }
        });
    }
}

/// What of dropped packets is fetched by others.
#[derive(Default)]
pub struct Lost {
    /// SACK blocks of ACKs that were dropped since the last sample, to be taken back.
    pub blocks: Vec<u32>,
    /// Packets of the caller, who is to be told.
    pub external: Vec<(Time, Packet, Drop)>,
}

impl Sink<Packet> for Lost {
    fn dropped(&mut self, now: Time, packet: Packet, why: Drop, _class: u8) {
        let blocks = packet.blocks_and_host.blocks();
        if blocks != NO_BLOCKS {
            self.blocks.push(blocks);
        } else if packet.flags.external() {
            self.external.push((now, packet, why));
        }
    }
    fn marked(&mut self, _now: Time, _packet: &Packet, _class: u8) {}
}
