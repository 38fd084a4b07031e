//! Replay of recorded packets: packets with the recorded sizes and flows are sent at the recorded
//! times from the host of the senders. They have no receiver after the queue.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

use forebay_sim::traffic::Coming;
use nix::libc;

use super::network::Group;
use super::sys;
use crate::limits::ETHERNET_BYTES;

/// The smallest packet: the IP header, and the ports, by which queues identify flows.
const LEAST_BYTES: usize = 24;
/// The largest packet.
const LARGEST_BYTES: usize = 65_535;
/// The destination port of all packets.
const SINK_PORT: u16 = 5000;

/// The sender of a traffic's recorded packets.
pub struct Recorded {
    socket: OwnedFd,
    group: Group,
    /// The next packets, in the order of their times.
    pub coming: VecDeque<Coming>,
    /// The identification of the last packet in its IP header, by which the taps recognise packets.
    number: u16,
    packet: Vec<u8>,
}

impl Recorded {
    /// Opens a raw socket. The thread must be in the namespace of the senders.
    ///
    /// # Errors
    /// Those of socket(2) and setsockopt(2).
    pub fn new(group: &Group) -> io::Result<Recorded> {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW)?;
        let room = 1i32 << 24;
        sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &room)?;
        Ok(Recorded {
            socket,
            group: group.clone(),
            coming: VecDeque::new(),
            number: 0,
            packet: vec![0; LARGEST_BYTES],
        })
    }

    /// Sends a packet. A packet for which the kernel has no room is lost before the queue.
    ///
    /// # Errors
    /// Those of sendto(2).
    pub fn send(&mut self, coming: Coming) -> io::Result<()> {
        let wire_bytes = usize::from(coming.bytes);
        let header = usize::try_from(ETHERNET_BYTES).expect("a small number");
        let bytes = wire_bytes.saturating_sub(header).max(LEAST_BYTES);
        self.number = self.number.checked_add(1).unwrap_or(1);
        let (from, to) = self.addresses(coming);
        let port = u16::try_from(coming.flow).expect("the scenario was checked");
        let packet = &mut self.packet[..bytes];
        packet[0] = 0x45;
        packet[1] = coming.class.0;
        packet[4..6].copy_from_slice(&self.number.to_be_bytes());
        packet[6] = 0x40; // do not fragment
        packet[8] = 64;
        packet[9] = if coming.tcp { 6 } else { 17 };
        packet[12..16].copy_from_slice(&from.octets());
        packet[16..20].copy_from_slice(&to.octets());
        packet[20..22].copy_from_slice(&port.to_be_bytes());
        packet[22..24].copy_from_slice(&SINK_PORT.to_be_bytes());
        match sys::send_raw(self.socket.as_fd(), packet, to) {
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
            result => result,
        }
    }

    /// Returns the addresses of a packet: those of its hosts in the file, or those of its flow.
    fn addresses(&self, coming: Coming) -> (Ipv4Addr, Ipv4Addr) {
        let Some((from, to)) = coming.hosts else {
            return self.group.addresses(coming.flow);
        };
        let from = self.group.addresses_of_hosts(from).0;
        (from, self.group.addresses_of_hosts(to).1)
    }
}
