//! Safe functions around system calls for which the crate nix has none.

use std::ffi::CString;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::libc;

/// Returns the result of a system call, or the error in errno where it is -1.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Returns the size of a type as system calls take it.
fn length<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("a small structure")
}

/// Opens a non-blocking socket.
pub fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe {
        libc::socket(
            domain,
            kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
            protocol,
        )
    };
    // SAFETY: the descriptor is new and belongs to nobody else.
    checked(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option of a socket (setsockopt(2)).
pub fn set_option<T>(fd: &impl AsFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the pointer is that of a live value of the length given.
    let result =
        unsafe { libc::setsockopt(fd.as_fd().as_raw_fd(), level, name, value, length::<T>()) };
    checked(result).map(drop)
}

/// Sets the congestion control of a TCP socket (TCP_CONGESTION, tcp(7)).
pub fn set_congestion_control(fd: &impl AsFd, name: &str) -> io::Result<()> {
    let bytes = name.as_bytes();
    let length = libc::socklen_t::try_from(bytes.len()).expect("a short name");
    // SAFETY: the pointer is that of a live slice of the length given.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            bytes.as_ptr().cast(),
            length,
        )
    };
    checked(result).map(drop)
}

/// Returns an address as a `struct sockaddr_in`.
fn to_sockaddr(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).expect("a small number"),
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(*address.ip()).to_be(),
        },
        sin_zero: [0; 8],
    }
}

/// Returns the address of a `struct sockaddr_in`.
fn from_sockaddr(address: &libc::sockaddr_in) -> SocketAddrV4 {
    let ip = u32::from_be(address.sin_addr.s_addr);
    SocketAddrV4::new(ip.into(), u16::from_be(address.sin_port))
}

/// Binds a socket to an address.
pub fn bind(fd: &impl AsFd, address: SocketAddrV4) -> io::Result<()> {
    let address = to_sockaddr(address);
    let pointer = std::ptr::from_ref(&address).cast();
    // SAFETY: the pointer is that of a live address of the length given.
    checked(unsafe {
        libc::bind(
            fd.as_fd().as_raw_fd(),
            pointer,
            length::<libc::sockaddr_in>(),
        )
    })
    .map(drop)
}

/// Starts to connect a socket, without waiting for the result.
pub fn connect(fd: &impl AsFd, address: SocketAddrV4) -> io::Result<()> {
    let address = to_sockaddr(address);
    let pointer = std::ptr::from_ref(&address).cast();
    // SAFETY: as in `bind`.
    let result = unsafe {
        libc::connect(
            fd.as_fd().as_raw_fd(),
            pointer,
            length::<libc::sockaddr_in>(),
        )
    };
    match checked(result) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
        result => result.map(drop),
    }
}

/// Lets a socket accept connections.
pub fn listen(fd: &impl AsFd) -> io::Result<()> {
    // SAFETY: no memory is passed.
    checked(unsafe { libc::listen(fd.as_fd().as_raw_fd(), 4096) }).map(drop)
}

/// Accepts the next connection. Returns its socket and the address of the other side.
pub fn accept(fd: &impl AsFd) -> io::Result<(OwnedFd, SocketAddrV4)> {
    // SAFETY: an address of zeros is a valid value.
    let mut from: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    let mut bytes = length::<libc::sockaddr_in>();
    // SAFETY: the kernel writes at most `bytes` into `from`, which lives through the call.
    let fd = unsafe {
        libc::accept4(
            fd.as_fd().as_raw_fd(),
            std::ptr::from_mut(&mut from).cast(),
            &raw mut bytes,
            libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
        )
    };
    // SAFETY: the descriptor is new and belongs to nobody else.
    checked(fd).map(|fd| (unsafe { OwnedFd::from_raw_fd(fd) }, from_sockaddr(&from)))
}

/// Writes bytes to a socket. Returns the number of bytes written.
pub fn send(fd: BorrowedFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the slice lives through the call.
    let result = unsafe {
        libc::send(
            fd.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Sends a packet with its IP header to `to`, over a raw socket.
pub fn send_raw(fd: BorrowedFd, packet: &[u8], to: Ipv4Addr) -> io::Result<()> {
    let address = to_sockaddr(SocketAddrV4::new(to, 0));
    // SAFETY: packet and address live through the call, and have the lengths given.
    let result = unsafe {
        libc::sendto(
            fd.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            0,
            std::ptr::from_ref(&address).cast(),
            length::<libc::sockaddr_in>(),
        )
    };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Receives the next datagram: its first bytes go into `start`. Returns the address of its sender.
pub fn receive_from(fd: BorrowedFd, start: &mut [u8]) -> io::Result<SocketAddrV4> {
    // SAFETY: an address of zeros is a valid value.
    let mut from: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    let mut bytes = length::<libc::sockaddr_in>();
    // SAFETY: the kernel writes at most the lengths given, into memory that lives through the call.
    let bytes_read = unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            start.as_mut_ptr().cast(),
            start.len(),
            0,
            std::ptr::from_mut(&mut from).cast(),
            &raw mut bytes,
        )
    };
    usize::try_from(bytes_read).map_err(|_| io::Error::last_os_error())?;
    Ok(from_sockaddr(&from))
}

/// Closes the sending side of a connection.
pub fn shut_down(fd: BorrowedFd) {
    // SAFETY: no memory is passed.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) };
}

/// Counters of a TCP connection (`struct tcp_info` in include/uapi/linux/tcp.h).
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpInfo {
    /// Packets in flight (`tcpi_unacked`).
    pub unacked_pkts: u32,
    /// Data segments sent, including retransmissions (`tcpi_data_segs_out`).
    pub sent_pkts: u32,
    /// Retransmitted segments (`tcpi_total_retrans`).
    pub resent_pkts: u32,
}

/// Returns the kernel's counters of a connection.
pub fn tcp_info(fd: BorrowedFd) -> TcpInfo {
    const UNACKED_AT: usize = 24;
    const TOTAL_RETRANS_AT: usize = 100;
    const DATA_SEGS_OUT_AT: usize = 156;
    let mut bytes = [0u8; 256];
    let mut length = libc::socklen_t::try_from(bytes.len()).expect("a small array");
    // SAFETY: the kernel writes at most `length` bytes, into an array that lives through the call.
    unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    TcpInfo {
        unacked_pkts: at(UNACKED_AT),
        sent_pkts: at(DATA_SEGS_OUT_AT),
        resent_pkts: at(TOTAL_RETRANS_AT),
    }
}

/// Makes a TUN device in the network namespace of this thread.
pub fn tun(name: &str) -> io::Result<OwnedFd> {
    /// `_IOW('T', 202, int)` (linux/if_tun.h).
    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    let path = CString::new("/dev/net/tun").expect("no zero in it");
    // SAFETY: the path lives through the call.
    let fd = checked(unsafe {
        libc::open(
            path.as_ptr(),
            libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC,
        )
    })?;
    // SAFETY: the descriptor is new and belongs to nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut request = Request::of(name);
    let flags = libc::IFF_TUN | libc::IFF_NO_PI;
    request.data[..2].copy_from_slice(&i16::try_from(flags).unwrap_or(0).to_ne_bytes());
    // SAFETY: the request lives through the call, and is as long as struct ifreq.
    checked(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), TUNSETIFF, &raw mut request) })?;
    Ok(fd)
}

/// The capabilities that programs of a run keep (linux/capability.h): those that servers, `ip`,
/// `tc`, `ping` and `tcpdump` need, and none with which a program could mount. Those left out are,
/// above all, CAP_SYS_ADMIN, which mounts; CAP_SYS_PTRACE, which takes over a process that has it;
/// CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_BPF and CAP_PERFMON, which reach the kernel's memory; and
/// CAP_DAC_READ_SEARCH and CAP_SYS_CHROOT, which reach files outside the root.
const KEPT_CAPABILITIES: [u32; 15] = [
    0,  // CAP_CHOWN
    1,  // CAP_DAC_OVERRIDE
    3,  // CAP_FOWNER
    4,  // CAP_FSETID
    5,  // CAP_KILL
    6,  // CAP_SETGID
    7,  // CAP_SETUID
    8,  // CAP_SETPCAP
    10, // CAP_NET_BIND_SERVICE
    11, // CAP_NET_BROADCAST
    12, // CAP_NET_ADMIN
    13, // CAP_NET_RAW
    14, // CAP_IPC_LOCK
    23, // CAP_SYS_NICE
    24, // CAP_SYS_RESOURCE
];

/// Drops all other capabilities of this process, and of all programs that it will execute.
pub fn drop_capabilities() -> io::Result<()> {
    /// `_LINUX_CAPABILITY_VERSION_3` (linux/capability.h): sets of 64 bits in two halves.
    const VERSION: u32 = 0x2008_0522;
    // The kernel returns EINVAL for the first number that it does not know.
    for capability in (0..64).filter(|number| !KEPT_CAPABILITIES.contains(number)) {
        // SAFETY: no memory is passed.
        match checked(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) }) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            dropped => dropped.map(drop)?,
        }
    }
    let kept_set = KEPT_CAPABILITIES
        .iter()
        .fold(0, |set, number| set | 1u32 << number);
    let header = [VERSION, 0];
    // The order is effective, permitted, inheritable: first the lower halves, then the upper ones.
    let sets = [kept_set, kept_set, 0, 0, 0, 0];
    // SAFETY: header and sets live through the call, and have the sizes of version 3.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `struct ifreq`: the name of a device, and 24 bytes of data.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    data: [u8; 24],
}

impl Request {
    /// Returns a request for a device, with zeros as data.
    fn of(device: &str) -> Request {
        let mut name = [0; libc::IFNAMSIZ];
        name[..device.len()].copy_from_slice(device.as_bytes());
        Request {
            name,
            data: [0; 24],
        }
    }
}

/// Turns GSO and GRO of a device in this thread's namespace on or off: the device divides segments
/// into packets, and joins packets that arrive at the same time. TSO is always turned off, so that
/// the device passes no undivided segment on.
pub fn set_offloads(device: &str, on: bool) -> io::Result<()> {
    // Numbers of linux/sockios.h and linux/ethtool.h.
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    const STSO: u32 = 0x1f;
    const SGSO: u32 = 0x24;
    const SGRO: u32 = 0x2c;
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    for (command, on) in [(STSO, false), (SGSO, on), (SGRO, on)] {
        // `struct ethtool_value`: the command, and 1 for on.
        let mut value = [command, u32::from(on)];
        let mut request = Request::of(device);
        let pointer = value.as_mut_ptr() as usize;
        request.data[..8].copy_from_slice(&pointer.to_ne_bytes());
        // SAFETY: request and value live through the call, and have the sizes that it expects.
        checked(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) })?;
    }
    Ok(())
}
