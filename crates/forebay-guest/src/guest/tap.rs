//! A tap on a device: the start of every packet that comes in, with the kernel's stamp, in a ring
//! that is read without a system call for each (packet(7), PACKET_RX_RING).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_units::Time;
use nix::libc;

use super::clock::GuestClock;
use super::sys;

const FRAME_BYTES: usize = 256;
const FRAMES: usize = 32_768;
const BLOCK_BYTES: usize = 1 << 16;
/// Bytes of a packet that are kept: IP and TCP with all options.
const KEPT_BYTES: u32 = crate::record::START_BYTES_U32;

pub struct Tap {
    /// The ring is as long as it.
    _socket: OwnedFd,
    ring: NonNull<u8>,
    next: usize,
}

impl Tap {
    /// On packets that come into any device of this thread's namespace and go to 10.128.0.0/9,
    /// where sinks are.
    ///
    /// # Errors
    /// As packet(7) says.
    pub fn new() -> io::Result<Tap> {
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0)?;
        // BPF: load the destination, keep nine bits of it, compare. The filter of a SOCK_DGRAM
        // socket sees the IP header first.
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
        /// linux/if_packet.h: TPACKET_V2.
        const VERSION: i32 = 1;
        sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &VERSION)?;
        let request = [
            crate::count(BLOCK_BYTES),
            crate::count(FRAMES * FRAME_BYTES / BLOCK_BYTES),
            crate::count(FRAME_BYTES),
            crate::count(FRAMES),
        ];
        sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        // SAFETY: a new mapping at no address of ours; it is unmapped when this is dropped.
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
        // User-mode Linux cannot copy such a mapping for a child, which has no use for it.
        // SAFETY: the mapping is the one just made.
        if unsafe { libc::madvise(ring, FRAMES * FRAME_BYTES, libc::MADV_DONTFORK) } == -1 {
            return Err(io::Error::last_os_error());
        }
        let ring = NonNull::new(ring.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: an address of zeros is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET).expect("a small number");
        // Of one protocol a socket sees what comes in, and not what goes out.
        address.sll_protocol = u16::try_from(libc::ETH_P_IP)
            .expect("a small number")
            .to_be();
        let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).expect("small");
        // SAFETY: the address lives through the call, and has the length given.
        let bound = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                std::ptr::from_ref(&address).cast(),
                length,
            )
        };
        if bound == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(Tap {
            _socket: socket,
            ring,
            next: 0,
        })
    }

    /// Hands over every packet that is there: its stamp, and its start from the IP header on.
    pub fn drain(&mut self, clock: &GuestClock, mut take: impl FnMut(Time, &[u8])) {
        /// linux/if_packet.h, struct tpacket2_hdr: status, len, snaplen, mac, net, sec, nsec.
        const SNAPLEN_AT: usize = 8;
        const NET_AT: usize = 14;
        const SEC_AT: usize = 16;
        const NSEC_AT: usize = 20;
        const USER: u32 = 1;
        loop {
            // SAFETY: the ring has this many frames, and lives as long as this.
            let frame = unsafe { self.ring.add(self.next * FRAME_BYTES) };
            // SAFETY: a frame begins with its status, an aligned word that the kernel writes
            // atomically.
            let status = unsafe { AtomicU32::from_ptr(frame.as_ptr().cast()) };
            if status.load(Ordering::Acquire) & USER == 0 {
                return;
            }
            // SAFETY: with this status the frame is ours until the status is written.
            let bytes = unsafe { std::slice::from_raw_parts(frame.as_ptr(), FRAME_BYTES) };
            let word =
                |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
            let net = usize::from(u16::from_ne_bytes([bytes[NET_AT], bytes[NET_AT + 1]]));
            let kept = usize::try_from(word(SNAPLEN_AT)).unwrap_or(0);
            let at = clock.stamped(u64::from(word(SEC_AT)), u64::from(word(NSEC_AT)));
            if let Some(ip) = bytes.get(net..(net + kept).min(FRAME_BYTES)) {
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
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), FRAMES * FRAME_BYTES) };
    }
}
