//! A queue of ours as the guest's bottleneck: packets come by one device and leave by another, at
//! the exact times of the transmitter.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use forebay_aqm::{DropReason, HeldPacket, Queue, Sink, Transmitter};
use forebay_packets::ip::{self, Headers};
use forebay_scenario::{LawChoice, Scenario};
use forebay_units::{Buffer, ParamError, Rate, Time};

use super::rows::Rows;
use super::syscalls::{Given, Syscalls};
use super::GroupTraffic;
use crate::limits::ETHERNET_BYTES;
use crate::record::{Fate, PacketRow, SampleRow};

/// Where the bytes of a packet lie, and what the record says of it.
#[derive(Clone, Copy)]
struct Stored {
    slot: u32,
    arrived: Time,
    traffic: u8,
    header_bytes: u8,
    number: u32,
}

type Waiting = HeldPacket<Stored>;

/// Packets that are asked for at one time: mostly one comes.
const FETCHED_PKTS: usize = 4;

/// Takes what the queue gives up.
#[derive(Default)]
struct HeldDrops(Vec<(Time, Waiting, DropReason, u8)>);

impl Sink<Waiting> for HeldDrops {
    fn dropped(&mut self, now: Time, packet: Waiting, why: DropReason, class: u8) {
        self.0.push((now, packet, why, class));
    }
    fn marked(&mut self, _now: Time, _packet: &Waiting, _class: u8) {}
}

pub struct Ours {
    near: File,
    far: File,
    queue: Queue<Waiting>,
    transmitter: Transmitter,
    lost: HeldDrops,
    slots: Vec<Vec<u8>>,
    free: Vec<u32>,
    /// The packet that is being sent, and when it is out.
    sending: std::collections::VecDeque<(Time, Waiting)>,
    /// By the second byte of an address: the number of the traffic.
    groups: Vec<GroupTraffic>,
    names: Vec<String>,
    /// Longest packet of the devices: a slot is cleared for each that comes.
    most_bytes: usize,
}

impl Ours {
    /// # Errors
    /// A law that does not fit the queue.
    pub fn new(
        scenario: &Scenario,
        law: &LawChoice,
        seed: u64,
        devices: [OwnedFd; 2],
        groups: Vec<GroupTraffic>,
    ) -> Result<Ours, ParamError> {
        let bottleneck = scenario.tested_link();
        let site = scenario.queue_site(bottleneck);
        // The stream of the simulator's bottleneck: a law draws what it draws there.
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

    pub fn device(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }

    /// Names of the law's inner values.
    pub fn probes(&self) -> Vec<String> {
        self.names.clone()
    }

    /// When something is to be done next.
    pub fn due(&self) -> Time {
        let law = self.queue.poll_timeout().unwrap_or(Time::MAX);
        let out = self.sending.front().map_or(Time::MAX, |(out, _)| *out);
        self.transmitter.due().min(law).min(out)
    }

    /// Changes the rate; what is left of the packet being sent goes at the new one.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        let moved = self.transmitter.set_rate(now, rate);
        if let (Some(moved), Some((out, _))) = (moved, self.sending.back_mut()) {
            *out = moved;
        }
        self.queue.set_rate(rate);
    }

    pub fn set_buffer(&mut self, buffer: Buffer) {
        self.queue.set_buffer(buffer);
    }

    /// Asks for packets that have come.
    pub fn ask(&mut self, syscalls: &mut Syscalls) {
        for _ in 0..FETCHED_PKTS {
            let slot = self.take_slot();
            let mut memory = std::mem::take(&mut self.slots[slot as usize]);
            memory.resize(self.most_bytes, 0);
            syscalls.fetch(self.near.as_fd(), slot, memory);
        }
    }

    /// A slot that nobody has filled.
    pub fn unused(&mut self, slot: u32, memory: Vec<u8>) {
        self.slots[slot as usize] = memory;
        self.free.push(slot);
    }

    /// Takes a packet that has come; whether there may be another.
    ///
    /// # Errors
    /// As read(2) and write(2) say.
    pub fn fetched(
        &mut self,
        now: Time,
        (slot, mut memory): (u32, Vec<u8>),
        given: &Given,
        rows: &mut Rows,
    ) -> io::Result<bool> {
        if given.would_block() {
            self.unused(slot, memory);
            return Ok(false);
        }
        memory.truncate(usize::try_from(given.checked()?).unwrap_or(0));
        self.slots[slot as usize] = memory;
        let Some(packet) = self.read(now, slot) else {
            self.free.push(slot);
            return Ok(true);
        };
        self.queue.enqueue(now, packet, &mut self.lost);
        if self.transmitter.arrived(now) {
            self.send_next(now, rows)?;
        }
        // Saved tokens let it go before the next one of this moment comes, as in a simulation.
        while self.transmitter.due() <= now {
            self.send_next(now, rows)?;
        }
        self.tell_lost(rows)?;
        Ok(true)
    }

    /// Brings queue and law up to `now`, and asks for packets to be handed on.
    ///
    /// # Errors
    /// As write(2) says.
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
            // The last bit is out.
            let slot = packet.handle.slot;
            let bytes = std::mem::take(&mut self.slots[slot as usize]);
            syscalls.hand_on(self.far.as_fd(), slot, bytes);
        }
        while self.transmitter.due() <= now {
            self.send_next(self.transmitter.due(), rows)?;
        }
        self.tell_lost(rows)
    }

    /// The queue, for a sample.
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

    fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Vec::new());
            crate::count(self.slots.len() - 1)
        })
    }

    /// `None` for what is no packet of a flow here, such as a router's message.
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

    /// A packet has been handed on; one for which there was no room is lost behind the queue.
    ///
    /// # Errors
    /// As write(2) says.
    pub fn handed_on(&mut self, slot: u32, memory: Vec<u8>, given: &Given) -> io::Result<()> {
        self.unused(slot, memory);
        match given.would_block() {
            true => Ok(()),
            false => given.checked().map(drop),
        }
    }

    fn tell_lost(&mut self, rows: &mut Rows) -> io::Result<()> {
        for (at, packet, why, class) in self.lost.0.drain(..) {
            self.free.push(packet.handle.slot);
            let row = PacketRow {
                arrived: packet.handle.arrived,
                left: at,
                bytes: packet.bytes,
                traffic: packet.handle.traffic,
                class,
                fate: Fate::Lost(why),
                header_bytes: packet.handle.header_bytes,
                flow: packet.handle.number,
            };
            rows.write(&row, &self.slots[packet.handle.slot as usize])?;
        }
        Ok(())
    }
}

fn queue_names(queue: &Queue<Waiting>, names: &mut Vec<String>) {
    queue.probe(&mut |name, _| names.push(name.to_owned()));
}
