//! The kernel's laws on the host: the headers of `python/forebay/linux/bpf`, which the kernel runs
//! in fixed point, as the C compiler of this machine makes them. Tests hold them beside the laws in
//! Rust; nothing else uses this crate.

#![cfg(target_os = "linux")]

use std::ffi::{c_char, c_int, CStr};
use std::ptr;

use forebay_linux_tc::fixed_point::{Field, Twin};

/// What a law sees of its queue: `struct fb_queue`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Queue {
    /// Since the law was started.
    pub now_ns: u64,
    pub bytes: u64,
    pub packets: u64,
    pub idle_ns: u64,
    /// In 2^-56 bytes per nanosecond.
    pub rate: u64,
    /// Since the last tick.
    pub departed_bytes: u64,
    pub busy_ns: u64,
}

/// An arrival: `struct fb_packet`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Packet {
    pub bytes: u64,
    pub segments: u64,
    /// 32 bits.
    pub random: u64,
    /// Whether a signal would be a mark: 0 or 1.
    pub marks: u64,
}

/// `struct host_law` of `host.h`.
#[repr(C)]
struct Ops {
    kind: *const c_char,
    config: *const *const c_char,
    state: *const *const c_char,
    tick: Option<unsafe extern "C" fn(*const i64, *mut i64, *const Queue)>,
    arrival: unsafe extern "C" fn(*const i64, *mut i64, *const Queue, *const Packet) -> c_int,
    overflow: Option<unsafe extern "C" fn(*const i64, *mut i64, u64)>,
    idle: Option<unsafe extern "C" fn(*const i64, *mut i64, u64)>,
}

#[allow(
    unsafe_code,
    reason = "pointers do not say that they lead to constants"
)]
// SAFETY: what it points to are constants and functions of C, which keep no state of their own.
unsafe impl Sync for Ops {}

extern "C" {
    static forebay_laws: [*const Ops; 0];
}

/// The entries of a list that ends with null.
///
/// # Safety
/// `list` is one, and lives as long as the program.
#[allow(unsafe_code, reason = "reads a table of C")]
unsafe fn entries<T>(list: *const *const T) -> Vec<*const T> {
    // SAFETY: there is an entry up to the null, at which this ends.
    let at = |i| unsafe { *list.add(i) };
    (0..).map(at).take_while(|entry| !entry.is_null()).collect()
}

#[allow(unsafe_code, reason = "reads a table of C")]
fn text(of: *const c_char) -> &'static str {
    // SAFETY: the texts of host.c are literals.
    unsafe { CStr::from_ptr(of) }.to_str().unwrap_or_default()
}

#[allow(unsafe_code, reason = "reads a table of C")]
fn laws() -> Vec<&'static Ops> {
    // SAFETY: build.rs writes the table, of constants, with a null at its end.
    unsafe {
        let table = entries(ptr::addr_of!(forebay_laws).cast::<*const Ops>());
        table.into_iter().map(|law| &*law).collect()
    }
}

/// Kinds of laws that have a header.
pub fn kinds() -> Vec<&'static str> {
    laws().into_iter().map(|law| text(law.kind)).collect()
}

/// A law of the kernel with its numbers.
pub struct HostLaw {
    ops: &'static Ops,
    config: Vec<i64>,
    state: Vec<i64>,
    state_names: Vec<&'static str>,
}

impl HostLaw {
    /// The law of this kind, as `twin` has it started.
    ///
    /// # Errors
    /// No such header, or fields that are not the header's.
    pub fn new(kind: &str, twin: &Twin) -> Result<HostLaw, String> {
        let ops = laws().into_iter().find(|law| text(law.kind) == kind);
        let ops = ops.ok_or_else(|| format!("no header {kind}.h"))?;
        #[allow(unsafe_code, reason = "reads a table of C")]
        // SAFETY: both lists are made by host.c, with a null at their ends.
        let (config, state) = unsafe { (entries(ops.config), entries(ops.state)) };
        let names: Vec<_> = config.into_iter().map(text).collect();
        let given: Vec<_> = twin.config.iter().map(|(name, _)| *name).collect();
        if given != names {
            return Err(format!("{kind}: found {given:?}, the header has {names:?}"));
        }
        let state_names: Vec<_> = state.into_iter().map(text).collect();
        let mut started = vec![0; state_names.len()];
        for (name, value) in &twin.state {
            let at = state_names.iter().position(|known| known == name);
            started[at.ok_or_else(|| format!("{kind}: no state {name}"))?] = *value;
        }
        Ok(HostLaw {
            ops,
            config: twin.config.iter().map(|(_, value)| *value).collect(),
            state: started,
            state_names,
        })
    }

    #[allow(unsafe_code, reason = "calls the law in C")]
    pub fn tick(&mut self, queue: &Queue) {
        if let Some(tick) = self.ops.tick {
            // SAFETY: both lists have the header's fields, all of them 64-bit integers.
            unsafe { tick(self.config.as_ptr(), self.state.as_mut_ptr(), queue) }
        }
    }

    /// 0, 1 or 2: pass, mark or drop.
    #[allow(unsafe_code, reason = "calls the law in C")]
    pub fn arrival(&mut self, queue: &Queue, packet: &Packet) -> i32 {
        // SAFETY: as in `tick`.
        unsafe { (self.ops.arrival)(self.config.as_ptr(), self.state.as_mut_ptr(), queue, packet) }
    }

    #[allow(unsafe_code, reason = "calls the law in C")]
    pub fn overflow(&mut self, now_ns: u64) {
        if let Some(overflow) = self.ops.overflow {
            // SAFETY: as in `tick`.
            unsafe { overflow(self.config.as_ptr(), self.state.as_mut_ptr(), now_ns) }
        }
    }

    #[allow(unsafe_code, reason = "calls the law in C")]
    pub fn idle(&mut self, now_ns: u64) {
        if let Some(idle) = self.ops.idle {
            // SAFETY: as in `tick`.
            unsafe { idle(self.config.as_ptr(), self.state.as_mut_ptr(), now_ns) }
        }
    }

    /// A number of its state; `None` where it has none of this name.
    pub fn state(&self, name: &str) -> Option<i64> {
        let at = self.state_names.iter().position(|known| *known == name)?;
        Some(self.state[at])
    }

    /// All of its state.
    pub fn states(&self) -> Vec<Field> {
        self.state_names
            .iter()
            .copied()
            .zip(self.state.iter().copied())
            .collect()
    }
}
