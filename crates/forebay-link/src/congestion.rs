//! The congestion control of the senders at both ends. No packet carries its name; the kernel tells
//! it for every TCP socket (sock_diag(7), as `ss -ti` shows).

use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use netlink_packet_core::{
    DecodeError, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable, NlasIterator,
    NLM_F_DUMP,
};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use nix::libc;
use nix::sched::{setns, CloneFlags};

use crate::flows::LEAST_BYTES;
use crate::namespace::{End, NamespaceNetwork};
use crate::netlink::Netlink;

/// Time between two looks: a socket that is open for less may be missed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// TCP flows that carried data, by congestion control: those sent by the client, and by the
/// server.
pub type Seen = [BTreeMap<String, u64>; 2];

/// Looks at the sockets while a link runs, in a thread of its own: the link has no time for it.
pub struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Seen>,
}

impl Watch {
    pub fn start(network: &NamespaceNetwork) -> Watch {
        let ends = End::BOTH.map(|end| network.host(end).namespace.try_clone());
        let (stop, stopped) = channel();
        let thread = thread::spawn(move || {
            // Where the kernel does not tell, nothing is seen.
            let mut ends = ends.map(|end| end.and_then(sockets_of).ok());
            let mut flows: [HashMap<u64, String>; 2] = Default::default();
            loop {
                for (end, flows) in ends.iter_mut().zip(&mut flows) {
                    if let Some(end) = end {
                        let _ = note_senders(end, flows);
                    }
                }
                if stopped.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
                    return flows.map(count);
                }
            }
        });
        Watch { stop, thread }
    }

    pub fn finish(self) -> Seen {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

fn count(flows: HashMap<u64, String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for name in flows.into_values() {
        *counts.entry(name).or_default() += 1;
    }
    counts
}

/// A connection to the sock_diag of a namespace. This thread enters the namespace and stays there.
fn sockets_of(namespace: OwnedFd) -> io::Result<Netlink> {
    setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)?;
    Netlink::of_protocol(NETLINK_SOCK_DIAG)
}

/// Notes the congestion control of every sender of data, by its socket.
fn note_senders(end: &mut Netlink, flows: &mut HashMap<u64, String>) -> io::Result<()> {
    for family in FAMILIES {
        for answer in end.ask(Message::request(family), NLM_F_DUMP)? {
            if let Some(sender) = answer.sender() {
                flows.insert(sender.cookie, sender.congestion_control);
            }
        }
    }
    Ok(())
}

/// A request for sockets, or an answer with one, as linux/inet_diag.h lays them out.
struct Message(Vec<u8>);

const SOCK_DIAG_BY_FAMILY: u16 = 20;
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "2 and 10"
)]
const FAMILIES: [u8; 2] = [libc::AF_INET as u8, libc::AF_INET6 as u8];
/// struct inet_diag_req_v2, and struct inet_diag_msg without its attributes.
const REQUEST_BYTES: usize = 56;
const ANSWER_BYTES: usize = 72;
/// Attributes of an answer.
const INFO: u16 = 2;
const CONG: u16 = 4;
/// tcpi_bytes_acked in struct tcp_info.
const BYTES_ACKED: usize = 120;
/// ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING: those that may have sent data.
const STATES: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;

#[derive(Debug, PartialEq)]
struct Sending {
    cookie: u64,
    congestion_control: String,
}

impl Message {
    /// For all TCP sockets of a family of addresses.
    fn request(family: u8) -> Message {
        let mut bytes = vec![0; REQUEST_BYTES];
        bytes[0] = family;
        bytes[1] = forebay_packets::ip::TCP;
        bytes[2] = 1 << (INFO - 1) | 1 << (CONG - 1);
        bytes[4..8].copy_from_slice(&STATES.to_ne_bytes());
        Message(bytes)
    }

    /// The socket, if it has sent data over the link.
    fn sender(&self) -> Option<Sending> {
        let (source, destination) = (self.0.get(8..24)?, self.0.get(24..40)?);
        if source == destination {
            // Within the end itself.
            return None;
        }
        let cookie = u64::from_ne_bytes(self.0.get(44..52)?.try_into().ok()?);
        let (mut acknowledged_bytes, mut name) = (0, None);
        for attribute in NlasIterator::new(self.0.get(ANSWER_BYTES..)?).flatten() {
            let value = attribute.value();
            match attribute.kind() {
                INFO => {
                    let bytes = value.get(BYTES_ACKED..BYTES_ACKED + 8)?;
                    acknowledged_bytes = u64::from_ne_bytes(bytes.try_into().ok()?);
                }
                CONG => name = Some(CStr::from_bytes_until_nul(value).ok()?.to_owned()),
                _ => {}
            }
        }
        (acknowledged_bytes >= LEAST_BYTES).then_some(Sending {
            cookie,
            congestion_control: name?.into_string().ok()?,
        })
    }
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        SOCK_DIAG_BY_FAMILY
    }
    fn buffer_len(&self) -> usize {
        self.0.len()
    }
    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.0);
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;
    fn deserialize(_: &NetlinkHeader, payload: &[u8]) -> Result<Message, DecodeError> {
        Ok(Message(payload.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{bind, connect, setsockopt, socket, sockopt, AddressFamily, SockFlag};
    use nix::sys::socket::{SockType, SockaddrIn};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    /// Sends so much from one address of this machine to another, and looks.
    fn seen_after(bytes: usize, from: (u8, u8, u8, u8)) -> Option<String> {
        let listener = TcpListener::bind("127.0.0.2:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let fd = socket(
            AddressFamily::Inet,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .unwrap();
        setsockopt(&fd, sockopt::TcpCongestion, &"reno".into()).unwrap();
        bind(
            fd.as_raw_fd(),
            &SockaddrIn::new(from.0, from.1, from.2, from.3, 0),
        )
        .unwrap();
        connect(fd.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 2, port)).unwrap();
        let mut sender = TcpStream::from(fd);
        let mut receiver = listener.accept().unwrap().0;
        sender.write_all(&vec![0; bytes]).unwrap();
        receiver.read_exact(&mut vec![0; bytes]).unwrap();
        let mut cookie = 0_u64;
        let mut length = 8;
        // SAFETY: both live through the call, and the length is that of the value.
        let got = unsafe {
            let value = std::ptr::from_mut(&mut cookie).cast();
            let fd = sender.as_raw_fd();
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE, value, &mut length)
        };
        assert_eq!(got, 0);
        let mut flows = HashMap::new();
        let mut kernel = Netlink::of_protocol(NETLINK_SOCK_DIAG).unwrap();
        note_senders(&mut kernel, &mut flows).unwrap();
        flows.remove(&cookie)
    }

    #[test]
    fn the_kernel_tells_what_a_sender_uses() {
        assert_eq!(seen_after(100_000, (127, 0, 0, 1)).as_deref(), Some("reno"));
        // Signalling is no flow, and what an end sends to itself does not cross the link.
        assert_eq!(seen_after(1_000, (127, 0, 0, 1)), None);
        assert_eq!(seen_after(100_000, (127, 0, 0, 2)), None);
    }
}
