//! System calls that are made together: a patch of the guest's kernel handles them as if they came one
//! by one, and its host switches tasks once (`several_calls.c`). A kernel without the patch gets them one
//! by one, with the same packets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::libc;
use nix::sys::epoll::EpollFlags;

use forebay_units::Time;

use super::clock::GuestClock;

/// As `several_calls.c` has them.
const FOREBAY_CALLS: libc::c_long = 0x4642;
const REPEAT: u64 = 1;
const LAST_IF_EMPTY: u64 = 2;
const LAST_IF_FAILED: u64 = 4;

const MOST_EVENTS: usize = 64;
/// What senders send.
pub static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

#[repr(C)]
struct Call {
    number: u64,
    arguments: [u64; 6],
    flags: u64,
    total: u64,
    last: i64,
}

/// What a call was for. It owns the memory that the call reads or writes.
pub enum Purpose {
    /// Throw away what has come for a connection.
    Discard(u32),
    /// Fill a connection's buffer with zeros.
    Fill,
    /// Hand on a packet that lies in a slot.
    HandOn(u32, Vec<u8>),
    /// Fetch a packet into a slot.
    Fetch(u32, Vec<u8>),
    Timer,
    Wait,
    Now,
}

/// What a call gave.
pub struct Given {
    /// The sum of all repetitions.
    pub total: u64,
    /// An error is negative, as in Linux's kernel.
    pub last: i64,
}

impl Given {
    /// Whether there is no more for now.
    pub fn would_block(&self) -> bool {
        self.last == -i64::from(libc::EAGAIN)
    }

    /// # Errors
    /// That of the last repetition.
    pub fn checked(&self) -> io::Result<u64> {
        u64::try_from(self.last).map_err(|_| {
            io::Error::from_raw_os_error(i32::try_from(-self.last).unwrap_or(libc::EIO))
        })
    }
}

/// Where the kernel writes, and what it reads, for calls that there is one of.
struct Memory {
    alarm: libc::itimerspec,
    now: libc::timespec,
    events: [libc::epoll_event; MOST_EVENTS],
}

/// Calls that wait to be made. A file that a call names must stay open until then.
pub struct Syscalls {
    /// The kernel has the patch.
    together: bool,
    calls: Vec<Call>,
    purposes: Vec<Purpose>,
    memory: Box<Memory>,
}

/// Returns a number as a register has it: a negative one keeps its sign, as in C.
fn word(number: impl Into<i64>) -> u64 {
    number.into().cast_unsigned()
}

/// Returns an address or a length as a register has it.
fn size(bytes: usize) -> u64 {
    bytes as u64
}

fn descriptor(fd: BorrowedFd) -> u64 {
    word(fd.as_raw_fd())
}

impl Syscalls {
    pub fn new(together: bool) -> Syscalls {
        let none = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        Syscalls {
            together,
            calls: Vec::new(),
            purposes: Vec::new(),
            memory: Box::new(Memory {
                alarm: libc::itimerspec {
                    it_interval: none,
                    it_value: none,
                },
                now: none,
                events: [libc::epoll_event { events: 0, u64: 0 }; MOST_EVENTS],
            }),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

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

    /// Throws away what has come for a connection of TCP, until there is no more. What follows waits
    /// where the sender has said all.
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

    /// Hands zeros to a connection until it takes no more.
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

    /// Writes a packet, which lies in a slot.
    pub fn hand_on(&mut self, fd: BorrowedFd, slot: u32, packet: Vec<u8>) {
        let bytes = size(packet.as_ptr() as usize);
        let arguments = [descriptor(fd), bytes, size(packet.len()), 0, 0, 0];
        self.ask(libc::SYS_write, arguments, 0, Purpose::HandOn(slot, packet));
    }

    /// Reads a packet into a slot. Where there is none the calls behind it wait.
    pub fn fetch(&mut self, fd: BorrowedFd, slot: u32, mut memory: Vec<u8>) {
        let bytes = size(memory.as_mut_ptr() as usize);
        let arguments = [descriptor(fd), bytes, size(memory.len()), 0, 0, 0];
        let purpose = Purpose::Fetch(slot, memory);
        self.ask(libc::SYS_read, arguments, LAST_IF_FAILED, purpose);
    }

    /// Sets the clock's timer for `at` if it is not, waits for what epoll watches, and looks at the
    /// clock.
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

    /// What the clock said, and the first so many events of the wait, by their tags.
    pub fn woken(&self, events: usize) -> (libc::timespec, Vec<(u64, EpollFlags)>) {
        let events = self.memory.events[..events].iter();
        let events = events.map(|event| {
            let flags = event.events.cast_signed();
            (event.u64, EpollFlags::from_bits_truncate(flags))
        });
        (self.memory.now, events.collect())
    }

    /// Makes the calls, as far as it can without hearing what they gave, and says so. None is left where
    /// all were made.
    ///
    /// # Errors
    /// A kernel that does not have the patch that it was said to have.
    pub fn make(&mut self) -> io::Result<impl Iterator<Item = (Purpose, Given)> + '_> {
        let made = match self.together {
            true => {
                let calls = self.calls.as_mut_ptr();
                // SAFETY: the calls live through this one, and so does the memory that they name: that
                // of purposes, which own it, and this one's own.
                let made = unsafe { libc::syscall(FOREBAY_CALLS, calls, self.calls.len()) };
                usize::try_from(made).map_err(|_| io::Error::last_os_error())?
            }
            false => self.one_by_one(),
        };
        let calls = self.calls.drain(..made);
        let given = calls.map(|call| Given {
            total: call.total,
            last: call.last,
        });
        Ok(self.purposes.drain(..made).zip(given))
    }

    /// Takes back all calls, and gives the slots of those that would have fetched a packet.
    pub fn take_back(&mut self) -> impl Iterator<Item = (u32, Vec<u8>)> + '_ {
        self.calls.clear();
        self.purposes.drain(..).filter_map(|purpose| match purpose {
            Purpose::Fetch(slot, memory) => Some((slot, memory)),
            _ => None,
        })
    }

    /// As the patch does.
    fn one_by_one(&mut self) -> usize {
        for (number, call) in self.calls.iter_mut().enumerate() {
            loop {
                call.last = one(call);
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

fn one(call: &Call) -> i64 {
    let number = libc::c_long::try_from(call.number).unwrap_or(-1);
    let [a, b, c, d, e, f] = call.arguments;
    // SAFETY: as in `make`.
    let given = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    match given {
        -1 => -i64::from(
            io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        ),
        given => given,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_number_keeps_its_sign() {
        // A file descriptor of -1 that became 0 would be standard input.
        assert_eq!(word(-1), u64::MAX);
        assert_eq!(word(i64::MIN), 1 << 63);
        assert_eq!(word(libc::AT_FDCWD), (-100i64).cast_unsigned());
        assert_eq!((word(0), word(7), size(usize::MAX)), (0, 7, u64::MAX));
    }

    #[test]
    fn a_call_with_a_bad_descriptor_fails_by_its_number() {
        let call = Call {
            number: word(libc::SYS_read),
            arguments: [word(-1), 0, 0, 0, 0, 0],
            flags: 0,
            total: 0,
            last: 0,
        };
        assert_eq!(one(&call), -i64::from(libc::EBADF));
    }
}
