//! Devices at the ends of the link, through which packets enter and leave: a TUN device, or a
//! packet socket on a veth pair.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{open, OFlag};
use nix::libc;
use nix::sys::stat::Mode;
use nix::sys::uio::writev;
use nix::unistd::read;

use crate::due::Due;
use crate::offload;
use crate::pool::{Pool, PREFIX_BYTES};
use forebay_packets::ip;

/// Name of the link's device in both namespaces.
pub const NAME: &str = "forebay0";
/// Ethernet address of the inner devices of both veth pairs. With ARP off, a device expects its own
/// address as the destination of the frames that it receives.
pub const ETHERNET: [u8; 6] = [0x02, 0x66, 0x62, 0x00, 0x00, 0x01];

/// The emulator's side of the device of an end.
pub enum Device {
    /// A TUN device.
    Tun {
        /// The open /dev/net/tun.
        file: OwnedFd,
        /// True if the device hands over super-packets (GSO), each behind a `struct virtio_net_hdr`
        /// that describes it.
        super_packets: bool,
    },
    /// A packet socket on the outer device of a veth pair.
    Packets {
        /// The packet socket (packet(7)).
        socket: OwnedFd,
        /// The number of the outer device.
        index: u32,
    },
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "an ioctl's number has 32 bits"
)]
mod request {
    use nix::libc::{c_int, ifreq};
    use nix::{ioctl_write_int_bad, ioctl_write_ptr_bad, request_code_write};

    ioctl_write_ptr_bad!(
        set_interface,
        request_code_write!(b'T', 202, size_of::<c_int>()),
        ifreq
    );
    ioctl_write_int_bad!(
        set_offload,
        request_code_write!(b'T', 208, size_of::<c_int>())
    );
    ioctl_write_ptr_bad!(ethtool, nix::libc::SIOCETHTOOL as usize, ifreq);
}

/// Constants in the 16 bits of `sockaddr_ll`, which libc has as int: protocols of Ethernet frames,
/// and the family of packet sockets.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "all are below 2^16"
)]
mod short {
    use nix::libc;

    /// Frames of every protocol.
    pub const ALL: u16 = libc::ETH_P_ALL as u16;
    /// Frames with an IPv4 packet.
    pub const IPV4: u16 = libc::ETH_P_IP as u16;
    /// Frames with an IPv6 packet.
    pub const IPV6: u16 = libc::ETH_P_IPV6 as u16;
    /// The address family of packet sockets.
    pub const PACKET: u16 = libc::AF_PACKET as u16;
}

/// Returns the size of a type as system calls take it.
#[allow(clippy::cast_possible_truncation, reason = "a few bytes")]
const fn size<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

/// Returns a `struct ifreq` with this device name.
fn named(name: &str) -> libc::ifreq {
    // SAFETY: an ifreq of zeros is a valid one, without a name.
    let mut interface: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in interface.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    interface
}

/// Returns whether this user may open TUN devices.
pub fn tun_is_available() -> bool {
    let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
    open("/dev/net/tun", flags, Mode::empty()).is_ok()
}

impl Device {
    /// Makes a TUN device in the network namespace of this thread.
    ///
    /// # Errors
    /// Those of open(2) of /dev/net/tun, and of the ioctls TUNSETIFF and TUNSETOFFLOAD.
    pub fn tun(super_packets: bool) -> nix::Result<Device> {
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = open("/dev/net/tun", flags, Mode::empty())?;
        let mut interface = named(NAME);
        let vnet = if super_packets { libc::IFF_VNET_HDR } else { 0 };
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | vnet;
        interface.ifr_ifru.ifru_flags = i16::try_from(flags).expect("these flags have 16 bits");
        // SAFETY: the request takes a pointer to an ifreq.
        unsafe { request::set_interface(file.as_raw_fd(), &interface)? };
        if super_packets {
            let offload = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
            // SAFETY: the request takes an integer.
            unsafe { request::set_offload(file.as_raw_fd(), offload.cast_signed())? };
        }
        Ok(Device::Tun {
            file,
            super_packets,
        })
    }

    /// Opens a packet socket on the outer device of a veth pair, which has the number `index`.
    ///
    /// # Errors
    /// Those of socket(2), setsockopt(2) and bind(2).
    pub fn packets(index: u32) -> nix::Result<Device> {
        let all = short::ALL.to_be();
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers; the descriptor is new and owned here.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, kind, i32::from(all));
            OwnedFd::from_raw_fd(Errno::result(fd)?)
        };
        let set = |option: libc::c_int, level: libc::c_int, value: libc::c_int| {
            // SAFETY: the option's value is an int that lives through the call.
            let result = unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    level,
                    option,
                    (&raw const value).cast(),
                    size::<libc::c_int>(),
                )
            };
            Errno::result(result)
        };
        set(libc::PACKET_IGNORE_OUTGOING, libc::SOL_PACKET, 1)?;
        // Packets bypass the device's qdisc, which would be a second queue.
        set(libc::PACKET_QDISC_BYPASS, libc::SOL_PACKET, 1)?;
        // The socket's buffers are as large as this user is allowed to make them.
        let large = 32 << 20;
        for (forced, plain) in [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        ] {
            let _ = set(forced, libc::SOL_SOCKET, large)
                .or_else(|_| set(plain, libc::SOL_SOCKET, large));
        }
        let address = ethernet(index, all);
        // SAFETY: the address is a sockaddr_ll, and the size is that of a sockaddr_ll.
        Errno::result(unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size::<libc::sockaddr_ll>(),
            )
        })?;
        Ok(Device::Packets { socket, index })
    }

    /// Returns whether the device hands over super-packets.
    pub fn super_packets(&self) -> bool {
        matches!(
            self,
            Device::Tun {
                super_packets: true,
                ..
            }
        )
    }

    /// Returns the file descriptor that is readable when a packet has come.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Device::Tun { file, .. } => file.as_fd(),
            Device::Packets { socket, .. } => socket.as_fd(),
        }
    }

    /// Returns the packets that the kernel has dropped since the last call because the socket's
    /// buffer was full. Drops that the device itself counts are not among them.
    pub fn missed_packets(&self) -> u64 {
        let Device::Packets { socket, .. } = self else {
            return 0;
        };
        let mut statistics = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut bytes = size::<libc::tpacket_stats>();
        // SAFETY: the option's value is a tpacket_stats, and `bytes` is its size (packet(7)).
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut bytes,
            )
        };
        if result == 0 {
            u64::from(statistics.tp_drops)
        } else {
            0
        }
    }

    /// Reads the next packet into a slot. Returns whether there was one.
    ///
    /// # Errors
    /// Those of read(2).
    pub fn receive(&self, pool: &mut Pool, slot: u32) -> nix::Result<bool> {
        let memory = pool.memory(slot);
        let start = if self.super_packets() {
            0
        } else {
            PREFIX_BYTES
        };
        let bytes = match read(self.fd(), &mut memory[start..]) {
            Ok(bytes) => bytes,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(false),
            // Someone set the device down and up again, which does not harm this end.
            Err(Errno::ENETDOWN) => return Ok(false),
            Err(errno) => return Err(errno),
        };
        let packet_bytes = (start + bytes).saturating_sub(PREFIX_BYTES);
        let cut = (start == 0)
            .then(|| offload::cut(memory, packet_bytes))
            .flatten();
        pool.fill(slot, ip::bytes_u32(packet_bytes), cut);
        Ok(true)
    }

    /// Writes a packet that is due, or the part of a super-packet that is due.
    ///
    /// # Errors
    /// Those of write(2) and sendto(2).
    pub fn send(&self, pool: &mut Pool, due: &Due) -> nix::Result<()> {
        let slot = *pool.slot(due.slot);
        let whole = due.segments == slot.segments();
        if whole && due.marked {
            ip::set_ce(pool.packet_mut(due.slot));
        }
        let sent = match (self, &slot.cut) {
            (Device::Tun { super_packets, .. }, Some(cut)) if !whole => {
                debug_assert!(super_packets);
                let part = offload::part(pool.with_prefix(due.slot), &slot, cut, due);
                let payload = slot.payload(cut, due.first, due.first + due.segments);
                let payload = &pool.packet(due.slot)[payload];
                writev(
                    self.fd(),
                    &[IoSlice::new(part.bytes()), IoSlice::new(payload)],
                )
            }
            (Device::Tun { super_packets, .. }, _) => {
                let bytes = if *super_packets {
                    pool.with_prefix(due.slot)
                } else {
                    pool.packet(due.slot)
                };
                nix::unistd::write(self.fd(), bytes)
            }
            (Device::Packets { socket, index }, _) => {
                let packet = pool.packet(due.slot);
                let protocol = match packet.first().map(|byte| byte >> 4) {
                    Some(6) => short::IPV6,
                    _ => short::IPV4,
                };
                let address = ethernet(*index, protocol.to_be());
                // SAFETY: packet and address live through the call, and the sizes are theirs.
                Errno::result(unsafe {
                    libc::sendto(
                        socket.as_raw_fd(),
                        packet.as_ptr().cast(),
                        packet.len(),
                        0,
                        (&raw const address).cast(),
                        size::<libc::sockaddr_ll>(),
                    )
                })
                .map(isize::cast_unsigned)
            }
        };
        match sent {
            // The kernel refuses a malformed packet, and one that is not IP. A router would have
            // forwarded such a packet to a host that discards it.
            Ok(_) | Err(Errno::EINVAL) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// Returns the link-layer address of the inner device, as seen from the outer device `index`.
fn ethernet(index: u32, protocol: u16) -> libc::sockaddr_ll {
    let mut address = [0; 8];
    address[..6].copy_from_slice(&ETHERNET);
    libc::sockaddr_ll {
        sll_family: short::PACKET,
        sll_protocol: protocol,
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: address,
    }
}

/// Turns off the offloads of an Ethernet device that make packets larger than the MTU (TSO, GSO,
/// GRO) or leave their checksums to the hardware.
///
/// # Errors
/// Those of the ioctl SIOCETHTOOL.
pub fn plain_packets(device: &str) -> nix::Result<()> {
    // Commands of linux/ethtool.h.
    const SET_TX_CHECKSUM: u32 = 0x17;
    const SET_TSO: u32 = 0x1f;
    const SET_GSO: u32 = 0x24;
    const SET_GRO: u32 = 0x2c;
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Inet,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    for command in [SET_TSO, SET_GSO, SET_GRO, SET_TX_CHECKSUM] {
        let mut value = Value { command, data: 0 };
        let mut interface = named(device);
        interface.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the request takes an ifreq that points to an ethtool_value.
        unsafe { request::ethtool(socket.as_raw_fd(), &interface)? };
    }
    Ok(())
}
