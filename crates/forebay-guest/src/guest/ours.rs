//! Bottleneck with a queue of this workspace: packets arrive at one TUN device and leave by
//! another, at the exact times of the transmitter.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use forebay_aqm::{DropReason, HeldPacket, Queue, Sink, Transmitter};
use forebay_packets::ip::{self, Headers};
use forebay_scenario::{LawChoice, Scenario};
use forebay_units::{Buffer, ParamError, Rate, Time};

use super::rows::Rows;
use super::syscalls::{CallResult, Syscalls};
use super::GroupTraffic;
use crate::limits::ETHERNET_BYTES;
use crate::record::{Fate, PacketRow, SampleRow};

/// The place of a packet's bytes, and its data for the record.
#[derive(Clone, Copy)]
struct Stored {
    slot: u32,
    arrived: Time,
    traffic: u8,
    header_bytes: u8,
    number: u32,
}

/// A packet in the queue.
type Waiting = HeldPacket<Stored>;

/// The number of packets that are requested at a time. Mostly one has arrived.
const FETCHED_PKTS: usize = 4;

/// A sink that collects the packets that the queue drops, with their times, reasons and classes.
#[derive(Default)]
struct HeldDrops(Vec<(Time, Waiting, DropReason, u8)>);

impl Sink<Waiting> for HeldDrops {
    fn dropped(&mut self, now: Time, packet: Waiting, reason: DropReason, class: u8) {
        self.0.push((now, packet, reason, class));
    }
    fn marked(&mut self, _now: Time, _packet: &Waiting, _class: u8) {}
}

/// A queue of this workspace between two TUN devices.
pub struct Ours {
    near: File,
    far: File,
    queue: Queue<Waiting>,
    transmitter: Transmitter,
    lost: HeldDrops,
    slots: Vec<Vec<u8>>,
    free: Vec<u32>,
    /// Packets in transmission, with the ends of their transmissions.
    sending: std::collections::VecDeque<(Time, Waiting)>,
    /// The traffic of each group, by the second byte of a packet's source address.
    groups: Vec<GroupTraffic>,
    /// The names of the law's state variables.
    names: Vec<String>,
    /// The largest packet of the devices, in bytes.
    most_bytes: usize,
}

impl Ours {
    /// Builds the queue of the scenario's bottleneck with a law. `devices` are those before and
    /// after the queue.
    ///
    /// # Errors
    /// The law does not fit the queue.
    pub fn new(
        scenario: &Scenario,
        law: &LawChoice,
        seed: u64,
        devices: [OwnedFd; 2],
        groups: Vec<GroupTraffic>,
    ) -> Result<Ours, ParamError> {
        let bottleneck = scenario.tested_link();
        let site = scenario.queue_site(bottleneck);
        // The stream is that of the simulator's bottleneck, so that the law draws the same random
        // numbers.
        let queue = law.aqm().build(&site, seed, forebay_sim::LAW_STREAM)?;
        let mut names = Vec::new();
        let [near, far] = devices;
        queue_names(&queue, &mut names);
        Ok(Ours {
            near: near.into(),
            far: far.into(),
            transmitter: Transmitter::new(&bottleneck.capacity().behind(&*queue)),
            queue,
            lost: HeldDrops::default(),
            slots: Vec::new(),
            free: Vec::new(),
            sending: std::collections::VecDeque::new(),
            groups,
            names,
            most_bytes: usize::try_from(super::our_mtu(scenario)).unwrap_or(usize::MAX),
        })
    }

    /// Returns the device before the queue.
    pub fn device(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }

    /// Returns the names of the law's state variables.
    pub fn probes(&self) -> Vec<String> {
        self.names.clone()
    }

    /// Returns the time of the next event: a timer of the law, a departure, or the end of a
    /// transmission.
    pub fn due(&self) -> Time {
        let law = self.queue.poll_timeout().unwrap_or(Time::MAX);
        let out = self.sending.front().map_or(Time::MAX, |(out, _)| *out);
        self.transmitter.due().min(law).min(out)
    }

    /// Changes the rate. The rest of the packet in transmission is sent at the new rate.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        let new_end = self.transmitter.set_rate(now, rate);
        if let (Some(new_end), Some((end, _))) = (new_end, self.sending.back_mut()) {
            *end = new_end;
        }
        self.queue.set_rate(rate);
    }

    /// Changes the size of the buffer.
    pub fn set_buffer(&mut self, buffer: Buffer) {
        self.queue.set_buffer(buffer);
    }

    /// Requests packets that have arrived at the device.
    pub fn ask(&mut self, syscalls: &mut Syscalls) {
        for _ in 0..FETCHED_PKTS {
            let slot = self.take_slot();
            let mut memory = std::mem::take(&mut self.slots[slot as usize]);
            memory.resize(self.most_bytes, 0);
            syscalls.fetch(self.near.as_fd(), slot, memory);
        }
    }

    /// Returns the memory of a slot and marks the slot free.
    pub fn unused(&mut self, slot: u32, memory: Vec<u8>) {
        self.slots[slot as usize] = memory;
        self.free.push(slot);
    }

    /// Handles the result of a request for a packet, which goes into the queue. Returns whether
    /// there may be another packet.
    ///
    /// # Errors
    /// Those of read(2) and write(2).
    pub fn fetched(
        &mut self,
        now: Time,
        (slot, mut memory): (u32, Vec<u8>),
        result: &CallResult,
        rows: &mut Rows,
    ) -> io::Result<bool> {
        if result.would_block() {
            self.unused(slot, memory);
            return Ok(false);
        }
        memory.truncate(usize::try_from(result.checked()?).unwrap_or(0));
        self.slots[slot as usize] = memory;
        let Some(packet) = self.read(now, slot) else {
            self.free.push(slot);
            return Ok(true);
        };
        self.queue.enqueue(now, packet, &mut self.lost);
        if self.transmitter.arrived(now) {
            self.send_next(now, rows)?;
        }
        // With saved tokens the packet leaves before the next one of the same time arrives, as in a
        // simulation.
        while self.transmitter.due() <= now {
            self.send_next(now, rows)?;
        }
        self.write_lost(rows)?;
        Ok(true)
    }

    /// Advances queue and law to `now`, and requests writes of the packets whose transmission has
    /// ended.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn advance(
        &mut self,
        now: Time,
        rows: &mut Rows,
        syscalls: &mut Syscalls,
    ) -> io::Result<()> {
        while self.queue.poll_timeout().is_some_and(|at| at <= now) {
            self.queue.handle_timeout(now);
        }
        while self.sending.front().is_some_and(|(out, _)| *out <= now) {
            let (_, packet) = self.sending.pop_front().expect("there is one");
            // The last bit has been sent.
            let slot = packet.handle.slot;
            let bytes = std::mem::take(&mut self.slots[slot as usize]);
            syscalls.hand_on(self.far.as_fd(), slot, bytes);
        }
        while self.transmitter.due() <= now {
            self.send_next(self.transmitter.due(), rows)?;
        }
        self.write_lost(rows)
    }

    /// Returns the row of a sample.
    pub fn sample(&self) -> SampleRow {
        let mut probes = vec![f64::NAN; self.names.len()];
        self.queue.probe(&mut |name, value| {
            if let Some(at) = self.names.iter().position(|known| known == name) {
                probes[at] = value;
            }
        });
        SampleRow {
            queue_pkts: self.queue.len_packets(),
            queue_bytes: self.queue.len_bytes(),
            probes,
        }
    }

    /// Returns a free slot, which is new if necessary.
    fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Vec::new());
            crate::count(self.slots.len() - 1)
        })
    }

    /// Returns the packet in a slot for the queue; `None` for packets of no flow, such as ICMP
    /// messages of a router.
    fn read(&self, now: Time, slot: u32) -> Option<Waiting> {
        let bytes = &self.slots[slot as usize];
        let headers = Headers::read(bytes)?;
        let group = self.groups.get(usize::from(bytes[13]))?;
        Some(HeldPacket {
            handle: Stored {
                slot,
                arrived: now,
                traffic: group.traffic,
                header_bytes: super::header_bytes(bytes),
                number: group.flow_number(bytes),
            },
            bytes: crate::count(bytes.len()) + ETHERNET_BYTES,
            flow: headers.flow.mixed(),
            hosts: headers.flow.hosts(),
            ecn: headers.class.ecn(),
            dscp: headers.class.dscp(),
            traffic: Some(group.traffic),
            tcp: headers.is_tcp(),
            marked: false,
        })
    }

    /// Starts the transmission of the next packet, if there is one, and writes its row.
    fn send_next(&mut self, now: Time, rows: &mut Rows) -> io::Result<()> {
        let sent = self.transmitter.ask(now, &mut self.queue, &mut self.lost);
        let Some(sent) = sent else { return Ok(()) };
        let packet = sent.departure.packet;
        let bytes = &mut self.slots[packet.handle.slot as usize];
        if packet.marked {
            ip::set_ce(bytes);
        }
        let row = PacketRow {
            arrived: packet.handle.arrived,
            left: now,
            bytes: packet.bytes,
            traffic: packet.handle.traffic,
            class: sent.departure.class,
            fate: if packet.marked {
                Fate::Marked
            } else {
                Fate::Left
            },
            header_bytes: packet.handle.header_bytes,
            flow: packet.handle.number,
        };
        rows.write(&row, bytes)?;
        self.sending.push_back((sent.end, packet));
        Ok(())
    }

    /// Handles the result of a write after the queue. A packet for which the device had no room is
    /// lost there.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn handed_on(&mut self, slot: u32, memory: Vec<u8>, result: &CallResult) -> io::Result<()> {
        self.unused(slot, memory);
        match result.would_block() {
            true => Ok(()),
            false => result.checked().map(drop),
        }
    }

    /// Writes the rows of dropped packets and frees their slots.
    fn write_lost(&mut self, rows: &mut Rows) -> io::Result<()> {
        for (at, packet, reason, class) in self.lost.0.drain(..) {
            self.free.push(packet.handle.slot);
            let row = PacketRow {
                arrived: packet.handle.arrived,
                left: at,
                bytes: packet.bytes,
                traffic: packet.handle.traffic,
                class,
                fate: Fate::Lost(reason),
                header_bytes: packet.handle.header_bytes,
                flow: packet.handle.number,
            };
            rows.write(&row, &self.slots[packet.handle.slot as usize])?;
        }
        Ok(())
    }
}

/// Adds the names of the law's state variables to `names`.
fn queue_names(queue: &Queue<Waiting>, names: &mut Vec<String>) {
    queue.probe(&mut |name, _| names.push(name.to_owned()));
}
