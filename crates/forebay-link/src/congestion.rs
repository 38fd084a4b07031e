//! Names of the congestion controls that the TCP senders at both ends use. No packet carries the
//! name, but the kernel reports it for every TCP socket (sock_diag(7)), as `ss -ti` shows it.

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

use crate::flows::MIN_FLOW_BYTES;
use crate::namespace::{End, NamespaceNetwork};
use crate::netlink::Netlink;

/// Interval between two queries of the kernel: a socket that is open for a shorter time may be
/// missed.
const QUERY_INTERVAL: Duration = Duration::from_millis(250);

/// The number of TCP flows that carried data, by congestion control: first the flows that the
/// client sent, then those that the server sent.
pub type FlowsByCongestionControl = [BTreeMap<String, u64>; 2];

/// A thread that queries the kernel's sockets while a link runs. The link's own thread has no time
/// for it.
pub struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<FlowsByCongestionControl>,
}

impl Watch {
    /// Starts the thread.
    pub fn start(network: &NamespaceNetwork) -> Watch {
        let ends = End::BOTH.map(|end| network.host(end).namespace.try_clone());
        let (stop, stopped) = channel();
        let thread = thread::spawn(move || {
            // Where the kernel does not support sock_diag, the counts stay empty.
            let mut ends = ends.map(|end| end.and_then(sockets_of).ok());
            let mut flows: [HashMap<u64, String>; 2] = Default::default();
            loop {
                for (end, flows) in ends.iter_mut().zip(&mut flows) {
                    if let Some(end) = end {
                        let _ = note_senders(end, flows);
                    }
                }
                if stopped.recv_timeout(QUERY_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    return flows.map(count);
                }
            }
        });
        Watch { stop, thread }
    }

    /// Stops the thread and returns its counts.
    pub fn finish(self) -> FlowsByCongestionControl {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

/// Returns the number of flows of each congestion control.
fn count(flows: HashMap<u64, String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for name in flows.into_values() {
        *counts.entry(name).or_default() += 1;
    }
    counts
}

/// Opens a sock_diag socket in a namespace. The calling thread enters the namespace and stays
/// there.
fn sockets_of(namespace: OwnedFd) -> io::Result<Netlink> {
    setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)?;
    Netlink::of_protocol(NETLINK_SOCK_DIAG)
}

/// Adds the congestion control of every socket that has sent data to `flows`, by the socket's
/// cookie.
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

/// A request for sockets, or an answer that describes a socket, in the layout of linux/inet_diag.h.
struct Message(Vec<u8>);

/// The message type of request and answer (linux/sock_diag.h).
const SOCK_DIAG_BY_FAMILY: u16 = 20;
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "2 and 10"
)]
/// The address families that are queried.
const FAMILIES: [u8; 2] = [libc::AF_INET as u8, libc::AF_INET6 as u8];
/// The sizes of `struct inet_diag_req_v2`, and of `struct inet_diag_msg` without its attributes.
const REQUEST_BYTES: usize = 56;
const ANSWER_BYTES: usize = 72;
/// Attributes of an answer: INET_DIAG_INFO and INET_DIAG_CONG.
const INFO: u16 = 2;
const CONG: u16 = 4;
/// The offset of `tcpi_bytes_acked` in `struct tcp_info` (linux/tcp.h).
const BYTES_ACKED: usize = 120;
/// A mask of the states in which a socket may have sent data: ESTABLISHED, FIN_WAIT1, FIN_WAIT2,
/// CLOSE_WAIT, LAST_ACK and CLOSING.
const STATES: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;

/// A socket that has sent data.
#[derive(Debug, PartialEq)]
struct DataSender {
    cookie: u64,
    congestion_control: String,
}

impl Message {
    /// Returns a request for all TCP sockets of an address family.
    fn request(family: u8) -> Message {
        let mut bytes = vec![0; REQUEST_BYTES];
        bytes[0] = family;
        bytes[1] = forebay_packets::ip::TCP;
        bytes[2] = 1 << (INFO - 1) | 1 << (CONG - 1);
        bytes[4..8].copy_from_slice(&STATES.to_ne_bytes());
        Message(bytes)
    }

    /// Returns the socket of an answer if it has sent at least [`MIN_FLOW_BYTES`] over the link,
    /// and `None` otherwise.
    fn sender(&self) -> Option<DataSender> {
        let (source, destination) = (self.0.get(8..24)?, self.0.get(24..40)?);
        if source == destination {
            // Both ends of the connection are on the same host.
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
        (acknowledged_bytes >= MIN_FLOW_BYTES).then_some(DataSender {
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

    /// Sends `bytes` from the address `from` to 127.0.0.2, both of this machine, and returns the
    /// congestion control that the kernel reports for the sender.
    fn reported_after(bytes: usize, from: (u8, u8, u8, u8)) -> Option<String> {
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
        // SAFETY: `cookie` and `length` live through the call, and the length is that of the
        // cookie.
        let actual = unsafe {
            let value = std::ptr::from_mut(&mut cookie).cast();
            let fd = sender.as_raw_fd();
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE, value, &mut length)
        };
        assert_eq!(actual, 0);
        let mut flows = HashMap::new();
        let mut kernel = Netlink::of_protocol(NETLINK_SOCK_DIAG).unwrap();
        note_senders(&mut kernel, &mut flows).unwrap();
        flows.remove(&cookie)
    }

    #[test]
    fn the_kernel_reports_the_congestion_control_of_a_sender() {
        assert_eq!(
            reported_after(100_000, (127, 0, 0, 1)).as_deref(),
            Some("reno")
        );
        // A few bytes are signalling rather than a flow, and data within a host does not cross the
        // link.
        assert_eq!(reported_after(1_000, (127, 0, 0, 1)), None);
        assert_eq!(reported_after(100_000, (127, 0, 0, 2)), None);
    }
}
