//! Batches of system calls. A patch of the guest's kernel (`several_calls.c`) carries out several
//! calls at once, with the same effect as one by one, so that the host switches tasks only once. A
//! kernel without the patch gets the calls one by one, and the run has the same packets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::libc;
use nix::sys::epoll::EpollFlags;

use forebay_units::Time;

use super::clock::GuestClock;

/// The number of the system call, as in `several_calls.c`.
const FOREBAY_CALLS: libc::c_long = 0x4642;
/// Flag: the call is repeated while its result is positive.
const REPEAT: u64 = 1;
/// Flag: the later calls are not made if the result is 0.
const LAST_IF_EMPTY: u64 = 2;
/// Flag: the later calls are not made if the call fails.
const LAST_IF_FAILED: u64 = 4;

/// The largest number of events of a wait.
const MOST_EVENTS: usize = 64;
/// The data that senders send.
pub static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// A call in the layout of `several_calls.c`.
#[repr(C)]
struct Call {
    number: u64,
    arguments: [u64; 6],
    flags: u64,
    total: u64,
    last: i64,
}

/// The purpose of a call. It owns the memory that the call reads or writes.
pub enum Purpose {
    /// Discard the data that has arrived for a connection.
    Discard(u32),
    /// Fill a connection's send buffer with zeros.
    Fill,
    /// Write a packet that is in a slot.
    HandOn(u32, Vec<u8>),
    /// Read a packet into a slot.
    Fetch(u32, Vec<u8>),
    /// Set the timer.
    Timer,
    /// Wait for events.
    Wait,
    /// Read the clock.
    Now,
}

/// The result of a call.
pub struct CallResult {
    /// The sum of the results of all repetitions.
    pub total: u64,
    /// The result of the last repetition. An error is a negative errno, as in the kernel.
    pub last: i64,
}

impl CallResult {
    /// Returns whether the last repetition failed with EAGAIN, because nothing more could be read
    /// or written.
    pub fn would_block(&self) -> bool {
        self.last == -i64::from(libc::EAGAIN)
    }

    /// Returns the result of the last repetition.
    ///
    /// # Errors
    /// The error of the last repetition.
    pub fn checked(&self) -> io::Result<u64> {
        u64::try_from(self.last).map_err(|_| {
            io::Error::from_raw_os_error(i32::try_from(-self.last).unwrap_or(libc::EIO))
        })
    }
}

/// The memory that the kernel reads and writes in calls that occur once in a batch.
struct Memory {
    alarm: libc::itimerspec,
    now: libc::timespec,
    events: [libc::epoll_event; MOST_EVENTS],
}

/// A batch of calls that have not been made yet. The files that they name must stay open until
/// then.
pub struct Syscalls {
    /// True if the kernel has the patch.
    together: bool,
    calls: Vec<Call>,
    purposes: Vec<Purpose>,
    memory: Box<Memory>,
}

/// Returns a number as the contents of a register. Negative numbers are sign-extended, as in C.
fn word(number: impl Into<i64>) -> u64 {
    number.into().cast_unsigned()
}

/// Returns an address or a length as the contents of a register.
fn size(bytes: usize) -> u64 {
    bytes as u64
}

/// Returns a file descriptor as the contents of a register.
fn descriptor(fd: BorrowedFd) -> u64 {
    word(fd.as_raw_fd())
}

impl Syscalls {
    /// Returns an empty batch. `together` says whether the kernel has the patch.
    pub fn new(together: bool) -> Syscalls {
        let zero = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        Syscalls {
            together,
            calls: Vec::new(),
            purposes: Vec::new(),
            memory: Box::new(Memory {
                alarm: libc::itimerspec {
                    it_interval: zero,
                    it_value: zero,
                },
                now: zero,
                events: [libc::epoll_event { events: 0, u64: 0 }; MOST_EVENTS],
            }),
        }
    }

    /// Returns whether the batch has no calls.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Adds a call to the batch.
    fn ask(&mut self, number: libc::c_long, arguments: [u64; 6], flags: u64, purpose: Purpose) {
        self.calls.push(Call {
            number: word(number),
            arguments,
            flags,
            total: 0,
            last: 0,
        });
        self.purposes.push(purpose);
    }

    /// Discards all data that has arrived for a TCP connection. If the sender has closed its side,
    /// the later calls of the batch are not made.
    pub fn discard(&mut self, fd: BorrowedFd, connection: u32) {
        const MOST_BYTES: u64 = 1 << 24;
        let flags = word(libc::MSG_TRUNC);
        self.ask(
            libc::SYS_recvfrom,
            [descriptor(fd), 0, MOST_BYTES, flags, 0, 0],
            REPEAT | LAST_IF_EMPTY,
            Purpose::Discard(connection),
        );
    }

    /// Writes zeros to a connection until its send buffer is full.
    pub fn fill(&mut self, fd: BorrowedFd) {
        let zeros = size(ZEROS.as_ptr() as usize);
        let flags = word(libc::MSG_NOSIGNAL);
        self.ask(
            libc::SYS_sendto,
            [descriptor(fd), zeros, size(ZEROS.len()), flags, 0, 0],
            REPEAT,
            Purpose::Fill,
        );
    }

    /// Writes a packet, which is in a slot.
    pub fn hand_on(&mut self, fd: BorrowedFd, slot: u32, packet: Vec<u8>) {
        let bytes = size(packet.as_ptr() as usize);
        let arguments = [descriptor(fd), bytes, size(packet.len()), 0, 0, 0];
        self.ask(libc::SYS_write, arguments, 0, Purpose::HandOn(slot, packet));
    }

    /// Reads a packet into a slot. If there is none, the later calls of the batch are not made.
    pub fn fetch(&mut self, fd: BorrowedFd, slot: u32, mut memory: Vec<u8>) {
        let bytes = size(memory.as_mut_ptr() as usize);
        let arguments = [descriptor(fd), bytes, size(memory.len()), 0, 0, 0];
        let purpose = Purpose::Fetch(slot, memory);
        self.ask(libc::SYS_read, arguments, LAST_IF_FAILED, purpose);
    }

    /// Sets the clock's timer for `at`, waits for an event of `epoll`, and reads the clock.
    pub fn wait(&mut self, epoll: &impl AsFd, clock: &mut GuestClock, at: Time) {
        if let Some((flags, alarm)) = clock.alarm(at) {
            self.memory.alarm = alarm;
            let alarm = size(std::ptr::from_ref(&self.memory.alarm) as usize);
            let timer = descriptor(clock.timer());
            let arguments = [timer, word(flags), alarm, 0, 0, 0];
            self.ask(libc::SYS_timerfd_settime, arguments, 0, Purpose::Timer);
        }
        let events = size(self.memory.events.as_mut_ptr() as usize);
        let forever = word(-1);
        let arguments = [
            descriptor(epoll.as_fd()),
            events,
            size(MOST_EVENTS),
            forever,
            0,
            0,
        ];
        self.ask(libc::SYS_epoll_wait, arguments, 0, Purpose::Wait);
        let now = size(std::ptr::from_mut(&mut self.memory.now) as usize);
        let arguments = [word(libc::CLOCK_MONOTONIC), now, 0, 0, 0, 0];
        self.ask(libc::SYS_clock_gettime, arguments, 0, Purpose::Now);
    }

    /// Returns the time that the clock showed after the wait, and the first `events` events: tags
    /// and flags.
    pub fn woken(&self, events: usize) -> (libc::timespec, Vec<(u64, EpollFlags)>) {
        let events = self.memory.events[..events].iter();
        let events = events.map(|event| {
            let flags = event.events.cast_signed();
            (event.u64, EpollFlags::from_bits_truncate(flags))
        });
        (self.memory.now, events.collect())
    }

    /// Makes the calls of the batch up to the first one whose result the later ones depend on, and
    /// returns the purposes and results of the calls made. The other calls stay in the batch.
    ///
    /// # Errors
    /// The kernel does not have the patch although `together` is set.
    pub fn make(&mut self) -> io::Result<impl Iterator<Item = (Purpose, CallResult)> + '_> {
        let calls_made = match self.together {
            true => {
                let calls = self.calls.as_mut_ptr();
                // SAFETY: the calls live through this one, and so does the memory that they name:
                // it
                // belongs to the purposes and to this batch.
                let calls_made = unsafe { libc::syscall(FOREBAY_CALLS, calls, self.calls.len()) };
                usize::try_from(calls_made).map_err(|_| io::Error::last_os_error())?
            }
            false => self.one_by_one(),
        };
        let calls = self.calls.drain(..calls_made);
        let results = calls.map(|call| CallResult {
            total: call.total,
            last: call.last,
        });
        Ok(self.purposes.drain(..calls_made).zip(results))
    }

    /// Removes all calls from the batch, and returns the slots of those that would have read a
    /// packet.
    pub fn take_back(&mut self) -> impl Iterator<Item = (u32, Vec<u8>)> + '_ {
        self.calls.clear();
        self.purposes.drain(..).filter_map(|purpose| match purpose {
            Purpose::Fetch(slot, memory) => Some((slot, memory)),
            _ => None,
        })
    }

    /// Makes the calls one by one, as the patch does. Returns the number of calls made.
    fn one_by_one(&mut self) -> usize {
        for (number, call) in self.calls.iter_mut().enumerate() {
            loop {
                call.last = make_once(call);
                call.total += u64::try_from(call.last).unwrap_or(0);
                if call.last <= 0 || call.flags & REPEAT == 0 {
                    break;
                }
            }
            let ends = call.last == 0 && call.flags & LAST_IF_EMPTY != 0
                || call.last < 0 && call.flags & LAST_IF_FAILED != 0;
            if ends {
                return number + 1;
            }
        }
        self.calls.len()
    }
}

/// Makes a call once. Returns its result, or the negative errno.
fn make_once(call: &Call) -> i64 {
    let number = libc::c_long::try_from(call.number).unwrap_or(-1);
    let [a, b, c, d, e, f] = call.arguments;
    // SAFETY: as in `make`.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    match result {
        -1 => -i64::from(
            io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        ),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_number_keeps_its_sign() {
        // A descriptor of -1 must not become 0, which is standard input.
        assert_eq!(word(-1), u64::MAX);
        assert_eq!(word(i64::MIN), 1 << 63);
        assert_eq!(word(libc::AT_FDCWD), (-100i64).cast_unsigned());
        assert_eq!((word(0), word(7), size(usize::MAX)), (0, 7, u64::MAX));
    }

    #[test]
    fn a_call_with_a_bad_descriptor_returns_the_negative_errno() {
        let call = Call {
            number: word(libc::SYS_read),
            arguments: [word(-1), 0, 0, 0, 0, 0],
            flags: 0,
            total: 0,
            last: 0,
        };
        assert_eq!(make_once(&call), -i64::from(libc::EBADF));
    }
}
