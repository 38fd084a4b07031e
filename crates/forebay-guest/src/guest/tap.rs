//! Tap on the devices of a namespace: the first bytes of every packet that arrives, with the
//! kernel's time stamp, in a ring that is read without system calls (PACKET_RX_RING, packet(7)).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_units::Time;
use nix::libc;

use super::clock::GuestClock;
use super::sys;

/// The size of a frame of the ring, which holds one packet.
const FRAME_BYTES: usize = 256;
/// The number of frames.
const FRAMES: usize = 32_768;
/// The size of the memory blocks of which the kernel makes the ring.
const BLOCK_BYTES: usize = 1 << 16;
/// The number of bytes of a packet that are kept: the headers of IP and TCP with all options.
const KEPT_BYTES: u32 = crate::record::START_BYTES_U32;

/// A tap.
pub struct Tap {
    /// The packet socket. The ring exists as long as it is open.
    _socket: OwnedFd,
    ring: NonNull<u8>,
    next: usize,
}

impl Tap {
    /// Opens a tap for packets that arrive at any device of this thread's namespace and go to
    /// 10.128.0.0/9, the addresses of sinks.
    ///
    /// # Errors
    /// Those of packet(7) and mmap(2).
    pub fn new() -> io::Result<Tap> {
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0)?;
        // The BPF program loads the destination, masks its first nine bits, and compares them. The
        // filter of a SOCK_DGRAM socket starts at the IP header.
        let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let mut filter = [
            step(0x20, 0, 0, 16),
            step(0x54, 0, 0, 0xff80_0000),
            step(0x15, 0, 1, 0x0a80_0000),
            step(0x06, 0, 0, KEPT_BYTES),
            step(0x06, 0, 0, 0),
        ];
        let program = libc::sock_fprog {
            len: 5,
            filter: filter.as_mut_ptr(),
        };
        sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
        /// TPACKET_V2 (linux/if_packet.h).
        const VERSION: i32 = 1;
        sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &VERSION)?;
        let request = [
            crate::count(BLOCK_BYTES),
            crate::count(FRAMES * FRAME_BYTES / BLOCK_BYTES),
            crate::count(FRAME_BYTES),
            crate::count(FRAMES),
        ];
        sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        // SAFETY: the kernel chooses the address of the new mapping, which is unmapped when the tap
        // is
        // dropped.
        let ring = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                FRAMES * FRAME_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if ring == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // User-mode Linux cannot copy such a mapping for a child process, which does not need it.
        // SAFETY: the mapping is the one just made.
        if unsafe { libc::madvise(ring, FRAMES * FRAME_BYTES, libc::MADV_DONTFORK) } == -1 {
            return Err(io::Error::last_os_error());
        }
        let ring = NonNull::new(ring.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: an address of zeros is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET).expect("a small number");
        // A socket for a single protocol sees arriving packets only.
        address.sll_protocol = u16::try_from(libc::ETH_P_IP)
            .expect("a small number")
            .to_be();
        let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).expect("small");
        // SAFETY: the address lives through the call, and has the length given.
        let result = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                std::ptr::from_ref(&address).cast(),
                length,
            )
        };
        if result == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(Tap {
            _socket: socket,
            ring,
            next: 0,
        })
    }

    /// Calls `take` for every packet in the ring, with its time stamp and its first bytes from the
    /// IP header on.
    pub fn drain(&mut self, clock: &GuestClock, mut take: impl FnMut(Time, &[u8])) {
        // `struct tpacket2_hdr` (linux/if_packet.h): status, len, snaplen, mac, net, sec, nsec.
        const SNAPLEN_AT: usize = 8;
        const NET_AT: usize = 14;
        const SEC_AT: usize = 16;
        const NSEC_AT: usize = 20;
        const USER: u32 = 1;
        loop {
            // SAFETY: `next` is less than the number of frames, and the ring lives as long as the
            // tap.
            let frame = unsafe { self.ring.add(self.next * FRAME_BYTES) };
            // SAFETY: a frame starts with its status, an aligned word that the kernel writes
            // atomically.
            let status = unsafe { AtomicU32::from_ptr(frame.as_ptr().cast()) };
            if status.load(Ordering::Acquire) & USER == 0 {
                return;
            }
            // SAFETY: with this status the frame belongs to this process until the status is
            // written.
            let bytes = unsafe { std::slice::from_raw_parts(frame.as_ptr(), FRAME_BYTES) };
            let word =
                |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
            let net = usize::from(u16::from_ne_bytes([bytes[NET_AT], bytes[NET_AT + 1]]));
            let kept_bytes = usize::try_from(word(SNAPLEN_AT)).unwrap_or(0);
            let at = clock.stamped(u64::from(word(SEC_AT)), u64::from(word(NSEC_AT)));
            if let Some(ip) = bytes.get(net..(net + kept_bytes).min(FRAME_BYTES)) {
                if ip.len() >= 20 {
                    take(at, ip);
                }
            }
            status.store(0, Ordering::Release);
            self.next = (self.next + 1) % FRAMES;
        }
    }
}

impl std::ops::Drop for Tap {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to the tap, and nothing refers to it any more.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), FRAMES * FRAME_BYTES) };
    }
}
