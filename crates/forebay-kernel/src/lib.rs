//! Laws of the kernel, compiled for the host, to test them against the laws in Rust.
//!
//! The headers in `python/forebay/linux/bpf/laws` are the fixed-point laws that the kernel runs as
//! BPF programs. `build.rs` compiles them with the C compiler of this machine. Only tests use this
//! crate.
//!
//! # Central types
//!
//! [`HostLaw`] is a law with its configuration and its state. Its methods call the functions of the
//! header with a [`Queue`] and a [`ArrivingPacket`], which have the layout of the C structures.
//! [`kinds`] lists the laws. The configuration comes from a [`Twin`], the fixed-point form of a law
//! in Rust.
//!
//! # Example
//!
//! ```
//! use forebay_kernel::{kinds, ArrivingPacket, HostLaw, Queue};
//! use forebay_units::{Bytes, Rate, Site};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! assert!(kinds().contains(&"pi"));
//! let site = Site { rate: Rate::from_bps(15_000_000), buffer_pkts: 500.0, packet: Bytes(1000) };
//! let spec = forebay_aqm::laws::find("pi").ok_or("PI is a law")?;
//! let twin = spec.read(&[])?.twin(&site)?.ok_or("PI has a fixed-point form")?;
//! let mut law = HostLaw::new("pi", &twin)?;
//! let packet = ArrivingPacket { bytes: 1000, segments: 1, random: 0, marks: 0 };
//! let verdict = law.arrival(&Queue::default(), &packet);
//! assert!((0..=2).contains(&verdict));
//! # Ok(())
//! # }
//! ```
//!
//! # Where to start reading
//!
//! `tests/twins.rs` runs every law in lockstep with its law in Rust. `src/host.c` and `src/host.h`
//! wrap a header in functions that Rust can call.

#![warn(missing_docs)]
#![cfg(target_os = "linux")]

use std::ffi::{c_char, c_int, CStr};
use std::ptr;

use forebay_linux_tc::fixed_point::{Field, Twin};

/// The state of the queue that a law sees (`struct fb_queue`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Queue {
    /// The time since the law was started.
    pub now_ns: u64,
    /// Bytes in the queue.
    pub bytes: u64,
    /// Packets in the queue.
    pub packets: u64,
    /// The time since which the queue has been idle; 0 where it is busy.
    pub idle_ns: u64,
    /// The rate of the link, in units of 2^-56 bytes per nanosecond.
    pub rate: u64,
    /// Bytes that left the queue since the last tick.
    pub departed_bytes: u64,
    /// The time in which the link was busy since the last tick.
    pub busy_ns: u64,
}

/// A packet that arrives (`struct fb_packet`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ArrivingPacket {
    /// The length of the packet.
    pub bytes: u64,
    /// The number of segments in it (GSO).
    pub segments: u64,
    /// A random number of 32 bits.
    pub random: u64,
    /// 1 where the law would mark the packet, and 0 where it would drop it.
    pub marks: u64,
}

/// A law as a table of functions (`struct host_law` in `host.h`).
#[repr(C)]
struct Ops {
    kind: *const c_char,
    config: *const *const c_char,
    state: *const *const c_char,
    tick: Option<unsafe extern "C" fn(*const i64, *mut i64, *const Queue)>,
    arrival:
        unsafe extern "C" fn(*const i64, *mut i64, *const Queue, *const ArrivingPacket) -> c_int,
    overflow: Option<unsafe extern "C" fn(*const i64, *mut i64, u64)>,
    idle: Option<unsafe extern "C" fn(*const i64, *mut i64, u64)>,
}

#[allow(
    unsafe_code,
    reason = "pointers do not say that they lead to constants"
)]
// SAFETY: the pointers lead to constants and functions of C, which have no state of their own.
unsafe impl Sync for Ops {}

extern "C" {
    static forebay_laws: [*const Ops; 0];
}

/// Returns the entries of a list that ends with a null pointer.
///
/// # Safety
/// `list` points to such a list, which lives as long as the program.
#[allow(unsafe_code, reason = "reads a table of C")]
unsafe fn entries<T>(list: *const *const T) -> Vec<*const T> {
    // SAFETY: the iteration ends at the null pointer, and all entries before it exist.
    let at = |i| unsafe { *list.add(i) };
    (0..).map(at).take_while(|entry| !entry.is_null()).collect()
}

/// Returns a text of `host.c`.
#[allow(unsafe_code, reason = "reads a table of C")]
fn text(pointer: *const c_char) -> &'static str {
    // SAFETY: the texts of host.c are literals.
    unsafe { CStr::from_ptr(pointer) }
        .to_str()
        .unwrap_or_default()
}

/// Returns the table of all laws.
#[allow(unsafe_code, reason = "reads a table of C")]
fn laws() -> Vec<&'static Ops> {
    // SAFETY: build.rs writes the table of constants, with a null pointer at its end.
    unsafe {
        let table = entries(ptr::addr_of!(forebay_laws).cast::<*const Ops>());
        table.into_iter().map(|law| &*law).collect()
    }
}

/// Returns the kinds of all laws that have a header.
pub fn kinds() -> Vec<&'static str> {
    laws().into_iter().map(|law| text(law.kind)).collect()
}

/// A law of the kernel with its configuration and its state.
pub struct HostLaw {
    ops: &'static Ops,
    config: Vec<i64>,
    state: Vec<i64>,
    state_names: Vec<&'static str>,
}

impl HostLaw {
    /// Returns the law of this kind with the configuration and the initial state of `twin`.
    ///
    /// # Errors
    /// There is no header of this kind, or its fields differ from those of `twin`.
    pub fn new(kind: &str, twin: &Twin) -> Result<HostLaw, String> {
        let ops = laws().into_iter().find(|law| text(law.kind) == kind);
        let ops = ops.ok_or_else(|| format!("no header {kind}.h"))?;
        #[allow(unsafe_code, reason = "reads a table of C")]
        // SAFETY: both lists come from host.c, with a null pointer at their ends.
        let (config, state) = unsafe { (entries(ops.config), entries(ops.state)) };
        let names: Vec<_> = config.into_iter().map(text).collect();
        let fields: Vec<_> = twin.config.iter().map(|(name, _)| *name).collect();
        if fields != names {
            return Err(format!(
                "{kind}: found {fields:?}, the header has {names:?}"
            ));
        }
        let state_names: Vec<_> = state.into_iter().map(text).collect();
        let mut initial_state = vec![0; state_names.len()];
        for (name, value) in &twin.state {
            let at = state_names.iter().position(|field| field == name);
            initial_state[at.ok_or_else(|| format!("{kind}: no state {name}"))?] = *value;
        }
        Ok(HostLaw {
            ops,
            config: twin.config.iter().map(|(_, value)| *value).collect(),
            state: initial_state,
            state_names,
        })
    }

    /// Runs the law's timer, if it has one.
    #[allow(unsafe_code, reason = "calls the law in C")]
    pub fn tick(&mut self, queue: &Queue) {
        if let Some(tick) = self.ops.tick {
            // SAFETY: both lists have the header's fields, all of them 64-bit integers.
            unsafe { tick(self.config.as_ptr(), self.state.as_mut_ptr(), queue) }
        }
    }

    /// Decides on an arriving packet. Returns 0 to pass, 1 to mark, and 2 to drop.
    #[allow(unsafe_code, reason = "calls the law in C")]
    pub fn arrival(&mut self, queue: &Queue, packet: &ArrivingPacket) -> i32 {
        // SAFETY: as in `tick`.
        unsafe { (self.ops.arrival)(self.config.as_ptr(), self.state.as_mut_ptr(), queue, packet) }
    }

    /// Tells the law that a packet found the buffer full.
    #[allow(unsafe_code, reason = "calls the law in C")]
    pub fn overflow(&mut self, now_ns: u64) {
        if let Some(overflow) = self.ops.overflow {
            // SAFETY: as in `tick`.
            unsafe { overflow(self.config.as_ptr(), self.state.as_mut_ptr(), now_ns) }
        }
    }

    /// Tells the law that the queue has become idle.
    #[allow(unsafe_code, reason = "calls the law in C")]
    pub fn idle(&mut self, now_ns: u64) {
        if let Some(idle) = self.ops.idle {
            // SAFETY: as in `tick`.
            unsafe { idle(self.config.as_ptr(), self.state.as_mut_ptr(), now_ns) }
        }
    }

    /// Returns a field of the law's state; `None` where there is none of this name.
    pub fn state(&self, name: &str) -> Option<i64> {
        let at = self.state_names.iter().position(|field| *field == name)?;
        Some(self.state[at])
    }

    /// Returns all fields of the law's state.
    pub fn states(&self) -> Vec<Field> {
        self.state_names
            .iter()
            .copied()
            .zip(self.state.iter().copied())
            .collect()
    }
}
