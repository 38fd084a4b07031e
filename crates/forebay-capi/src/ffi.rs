//! The functions of `include/forebay.h`.

#![allow(
    unsafe_code,
    reason = "pointers from C: each is checked for null, and the header says what else holds"
)]

use std::any::Any;
use std::ffi::{c_char, c_double, c_int, CStr, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};

use forebay_aqm::disciplines::DISCIPLINES;
use forebay_aqm::laws::LAWS;
use forebay_aqm::{Dequeued, DropReason, Ecn};
use forebay_units::{ParamError, Time};

use crate::queue::{Counts, Held, Queue, Settings, Why};

pub const REFUSED: c_int = -2;
pub const FAILED: c_int = -1;
pub const NONE: c_int = 0;
pub const OK: c_int = 1;
pub const WAIT: c_int = 2;
pub const ABI: u32 = 1;

#[repr(C)]
pub struct CSettings {
    pub law: *const c_char,
    pub params: *const *const c_char,
    pub queue: *const c_char,
    pub rate: *const c_char,
    pub buffer: *const c_char,
    pub packet: *const c_char,
    pub seed: u64,
    /// A `bool` of C, which memory that was never set may have at another number than 0 and 1.
    pub ecn: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CPacket {
    pub handle: u64,
    pub flow: u64,
    pub from: u64,
    pub to: u64,
    pub bytes: u32,
    pub ecn: u8,
    pub dscp: u8,
    /// A `bool` of C, like [`CSettings::ecn`].
    pub not_tcp: u8,
}

#[repr(C)]
#[derive(Default)]
pub struct CDeparture {
    pub handle: u64,
    pub sojourn_ns: u64,
    pub bytes: u32,
    pub ecn: u8,
    pub class_number: u8,
    pub marked: bool,
}

#[repr(C)]
#[derive(Default)]
pub struct CLoss {
    pub handle: u64,
    pub time_ns: u64,
    pub bytes: u32,
    pub why: u8,
}

/// What C sees as `forebay_queue`.
pub struct CQueue {
    queue: Queue,
    /// Names of the classes, for C.
    classes: Vec<CString>,
    /// Empty while all is well.
    fault: CString,
    /// Why the last call that was refused was; empty before the first.
    refusal: CString,
}

/// Text for C: it has no byte of zero inside.
pub(crate) fn for_c(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// Writes an error that ends with a zero, cut at a character where it is too long.
///
/// # Safety
/// `error` is null or leads to `size` bytes.
pub(crate) unsafe fn write(error: *mut c_char, size: usize, text: &str) {
    if error.is_null() || size == 0 {
        return;
    }
    let line = text.replace(['\0', '\n'], " ");
    let mut end = line.len().min(size - 1);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    // SAFETY: `error` leads to `size` bytes, and `end` is less.
    unsafe {
        std::ptr::copy_nonoverlapping(line.as_ptr().cast(), error, end);
        *error.add(end) = 0;
    }
}

/// A text of C; `None` for null, and for what is not UTF-8.
///
/// # Safety
/// `text` is null or leads to a text that ends with a zero and outlives the call.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// Calls with the queue behind the pointer, unless it has failed; a panic makes it fail.
///
/// # Safety
/// `queue` is null, or comes from `forebay_new` and is used by no one else meanwhile.
unsafe fn with(
    queue: *mut CQueue,
    call: impl FnOnce(&mut Queue) -> Result<c_int, ParamError>,
) -> c_int {
    // SAFETY: as the caller says.
    let Some(whole) = (unsafe { queue.as_mut() }) else {
        return FAILED;
    };
    if !whole.fault.is_empty() {
        return FAILED;
    }
    let queue = &mut whole.queue;
    match catch_unwind(AssertUnwindSafe(|| call(queue))) {
        Ok(Ok(answer)) => answer,
        Ok(Err(why)) => {
            whole.refusal = for_c(&why.to_string());
            REFUSED
        }
        Err(panic) => {
            whole.fault = said(&*panic);
            FAILED
        }
    }
}

/// What a panic has said.
pub(crate) fn said(panic: &(dyn Any + Send)) -> CString {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
    for_c(said.unwrap_or("a fault without a message"))
}

/// As [`with`], for what only reads.
///
/// # Safety
/// As [`with`].
unsafe fn read<T>(queue: *const CQueue, call: impl FnOnce(&CQueue) -> Option<T>) -> Option<T> {
    // SAFETY: as the caller says.
    let whole = unsafe { queue.as_ref() }?;
    if !whole.fault.is_empty() {
        return None;
    }
    catch_unwind(AssertUnwindSafe(|| call(whole)))
        .ok()
        .flatten()
}

#[no_mangle]
pub extern "C" fn forebay_abi() -> u32 {
    ABI
}

#[no_mangle]
pub extern "C" fn forebay_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Names with a zero at the end of each, which live as long as the library.
fn name(number: usize, names: impl Iterator<Item = &'static str>) -> *const c_char {
    use std::collections::BTreeMap;
    use std::sync::{Mutex, PoisonError};
    static KEPT: Mutex<BTreeMap<&str, CString>> = Mutex::new(BTreeMap::new());
    let mut names = names;
    let Some(found) = names.nth(number) else {
        return std::ptr::null();
    };
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    // The text itself does not move when the map does.
    kept.entry(found).or_insert_with(|| for_c(found)).as_ptr()
}

#[no_mangle]
pub extern "C" fn forebay_law_name(number: usize) -> *const c_char {
    name(number, LAWS.iter().map(|law| law.kind))
}

#[no_mangle]
pub extern "C" fn forebay_queue_name(number: usize) -> *const c_char {
    name(number, DISCIPLINES.iter().map(|queue| queue.kind))
}

/// # Safety
/// `settings` is null or leads to settings with texts that outlive the call; `error` is null or leads
/// to `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn forebay_new(
    settings: *const CSettings,
    error: *mut c_char,
    size: usize,
) -> *mut CQueue {
    // SAFETY: as the caller says.
    let made = unsafe { settings.as_ref() }.map(|given| {
        // SAFETY: as the caller says; the list of parameters ends with a null.
        let settings = unsafe { read_settings(given) };
        let settings = settings?;
        let made = catch_unwind(AssertUnwindSafe(|| Queue::new(&settings)));
        match made {
            Ok(made) => made.map_err(|error| error.to_string()),
            Err(_) => Err("forebay: a fault of the library".to_owned()),
        }
    });
    match made.unwrap_or_else(|| Err("settings: found NULL, allowed: settings".to_owned())) {
        Ok(queue) => {
            let classes = (0..).map_while(|number| queue.class(number)).map(for_c);
            Box::into_raw(Box::new(CQueue {
                classes: classes.collect(),
                queue,
                fault: CString::default(),
                refusal: CString::default(),
            }))
        }
        Err(line) => {
            // SAFETY: as the caller says.
            unsafe { write(error, size, &line) };
            std::ptr::null_mut()
        }
    }
}

/// The texts of a list that ends with a null.
///
/// # Safety
/// `list` is null or leads to such a list.
pub(crate) unsafe fn texts<'a>(
    key: &str,
    list: *const *const c_char,
) -> Result<Vec<&'a str>, String> {
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: as the caller says, a null ends the list.
    while let Some(pointer) = unsafe { next.as_ref() }.filter(|it| !it.is_null()) {
        // SAFETY: as the caller says.
        let text = unsafe { text(*pointer) };
        found.push(text.ok_or_else(|| nothing(key))?);
        // SAFETY: this was not the end of the list.
        next = unsafe { next.add(1) };
    }
    Ok(found)
}

pub(crate) fn nothing(key: &str) -> String {
    format!("{key}: found nothing, allowed: a text in UTF-8")
}

/// # Safety
/// Each pointer is null or leads to a text; `params` is null or leads to such, ended by a null.
unsafe fn read_settings(given: &CSettings) -> Result<Settings<'_>, String> {
    let needed = |key: &str, pointer: *const c_char| {
        // SAFETY: as the caller says.
        unsafe { text(pointer) }.ok_or_else(|| nothing(key))
    };
    let optional = |key: &str, pointer: *const c_char| match pointer.is_null() {
        true => Ok(None),
        false => needed(key, pointer).map(Some),
    };
    // SAFETY: as the caller says, a null ends the list.
    let params = unsafe { texts("params", given.params) }?;
    Ok(Settings {
        law: needed("law", given.law)?,
        params,
        queue: optional("queue", given.queue)?,
        rate: needed("rate", given.rate)?,
        buffer: needed("buffer", given.buffer)?,
        packet: optional("packet", given.packet)?,
        ecn: given.ecn != 0,
        seed: given.seed,
    })
}

/// # Safety
/// `queue` is null, or comes from `forebay_new` and is not used again.
#[no_mangle]
pub unsafe extern "C" fn forebay_free(queue: *mut CQueue) {
    if !queue.is_null() {
        // SAFETY: as the caller says.
        let queue = unsafe { Box::from_raw(queue) };
        // A queue that fails even in this is left.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(queue)));
    }
}

/// # Safety
/// `queue` as in [`forebay_free`], and used by no one else meanwhile; `packet` is null or leads to one.
#[no_mangle]
pub unsafe extern "C" fn forebay_enqueue(
    queue: *mut CQueue,
    now_ns: u64,
    packet: *const CPacket,
) -> c_int {
    // SAFETY: as the caller says.
    let Some(packet) = (unsafe { packet.as_ref() }) else {
        return FAILED;
    };
    let hosts = match (packet.from, packet.to) {
        // Each flow has two of its own.
        (0, 0) => (packet.flow, packet.flow),
        hosts => hosts,
    };
    let enqueue = |queue: &mut Queue| {
        if packet.dscp > 63 {
            return Err(ParamError::new("dscp", packet.dscp, "0 to 63"));
        }
        let held = Held {
            handle: packet.handle,
            flow: packet.flow,
            hosts,
            bytes: packet.bytes,
            ecn: ecn_of(packet.ecn)?,
            dscp: packet.dscp,
            traffic: None,
            tcp: packet.not_tcp == 0,
            marked: false,
        };
        queue.enqueue(Time::from_nanos(now_ns), held)?;
        Ok(OK)
    };
    // SAFETY: as the caller says.
    unsafe { with(queue, enqueue) }
}

/// Returns the ECN field with this number.
pub(crate) fn ecn_of(number: u8) -> Result<Ecn, ParamError> {
    match number {
        0b00 => Ok(Ecn::NotEct),
        0b01 => Ok(Ecn::Ect1),
        0b10 => Ok(Ecn::Ect0),
        0b11 => Ok(Ecn::Ce),
        _ => Err(ParamError::new("ecn", number, "0 to 3")),
    }
}

/// # Safety
/// `queue` as in [`forebay_enqueue`]; each other pointer is null or leads to its type.
#[no_mangle]
pub unsafe extern "C" fn forebay_dequeue(
    queue: *mut CQueue,
    now_ns: u64,
    departure: *mut CDeparture,
    wait_until_ns: *mut u64,
) -> c_int {
    // SAFETY: as the caller says.
    let Some(out) = (unsafe { departure.as_mut() }) else {
        return FAILED;
    };
    let leave = |queue: &mut Queue| match queue.dequeue(Time::from_nanos(now_ns))? {
        Dequeued::Packet(left) => {
            *out = CDeparture {
                handle: left.packet.handle,
                sojourn_ns: left.sojourn.as_nanos(),
                bytes: left.packet.bytes,
                ecn: left.packet.ecn as u8,
                class_number: left.class,
                marked: left.packet.marked,
            };
            Ok(OK)
        }
        Dequeued::Idle => Ok(NONE),
        Dequeued::Wait(until) => {
            // SAFETY: as the caller says.
            if let Some(wait) = unsafe { wait_until_ns.as_mut() } {
                *wait = until.as_nanos();
            }
            Ok(WAIT)
        }
    };
    // SAFETY: as the caller says.
    unsafe { with(queue, leave) }
}

/// # Safety
/// As [`forebay_dequeue`].
#[no_mangle]
pub unsafe extern "C" fn forebay_next_lost(queue: *mut CQueue, loss: *mut CLoss) -> c_int {
    // SAFETY: as the caller says.
    let Some(out) = (unsafe { loss.as_mut() }) else {
        return FAILED;
    };
    let next = |queue: &mut Queue| match queue.lost() {
        Some((packet, at, why)) => {
            *out = CLoss {
                handle: packet.handle,
                time_ns: at.as_nanos(),
                bytes: packet.bytes,
                why: match why {
                    Why::Dropped(DropReason::Early) => 1,
                    Why::Dropped(DropReason::Forced) => 2,
                    Why::Dropped(DropReason::Overflow) => 3,
                    Why::Drained => 4,
                },
            };
            Ok(OK)
        }
        None => Ok(NONE),
    };
    // SAFETY: as the caller says.
    unsafe { with(queue, next) }
}

/// # Safety
/// As [`forebay_enqueue`].
#[no_mangle]
pub unsafe extern "C" fn forebay_drain(queue: *mut CQueue, now_ns: u64) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        with(queue, |queue| {
            queue.drain(Time::from_nanos(now_ns))?;
            Ok(OK)
        })
    }
}

/// # Safety
/// As [`forebay_enqueue`].
#[no_mangle]
pub unsafe extern "C" fn forebay_next_timeout(queue: *const CQueue) -> u64 {
    // SAFETY: as the caller says.
    let next = unsafe { read(queue, |it| it.queue.next_timeout()) };
    next.map_or(u64::MAX, Time::as_nanos)
}

/// # Safety
/// As [`forebay_enqueue`].
#[no_mangle]
pub unsafe extern "C" fn forebay_handle_timeout(queue: *mut CQueue, now_ns: u64) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        with(queue, |queue| {
            queue.handle_timeout(Time::from_nanos(now_ns))?;
            Ok(OK)
        })
    }
}

/// # Safety
/// As [`forebay_dequeue`].
#[no_mangle]
pub unsafe extern "C" fn forebay_count(queue: *const CQueue, counts: *mut Counts) -> c_int {
    // SAFETY: as the caller says.
    let (Some(out), Some(now)) =
        (unsafe { (counts.as_mut(), read(queue, |it| Some(it.queue.counts()))) })
    else {
        return FAILED;
    };
    *out = now;
    OK
}

/// # Safety
/// As [`forebay_dequeue`]; `name` is null or leads to a text.
#[no_mangle]
pub unsafe extern "C" fn forebay_probe(
    queue: *const CQueue,
    name: *const c_char,
    value: *mut c_double,
) -> c_int {
    // SAFETY: as the caller says.
    let (Some(name), Some(out)) = (unsafe { (text(name), value.as_mut()) }) else {
        return FAILED;
    };
    // SAFETY: as the caller says.
    match unsafe { read(queue, |it| Some(it.queue.probe(name))) } {
        None => FAILED,
        Some(None) => NONE,
        Some(Some(found)) => {
            *out = found;
            OK
        }
    }
}

/// # Safety
/// As [`forebay_enqueue`].
#[no_mangle]
pub unsafe extern "C" fn forebay_class_name(queue: *const CQueue, number: usize) -> *const c_char {
    // SAFETY: as the caller says.
    let found = unsafe { read(queue, |it| it.classes.get(number).map(|it| it.as_ptr())) };
    found.unwrap_or(std::ptr::null())
}

/// # Safety
/// As [`forebay_enqueue`]; `key` and `value` are null or lead to texts, `error` to `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn forebay_set(
    queue: *mut CQueue,
    key: *const c_char,
    value: *const c_char,
    error: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: as the caller says.
    let (Some(key), Some(value)) = (unsafe { (text(key), text(value)) }) else {
        // SAFETY: as the caller says.
        unsafe { write(error, size, "key and value: expected texts in UTF-8") };
        return FAILED;
    };
    let set = |queue: &mut Queue| match queue.set(key, value) {
        Ok(()) => Ok(OK),
        Err(why) => {
            // SAFETY: as the caller says.
            unsafe { write(error, size, &why.to_string()) };
            Ok(NONE)
        }
    };
    // SAFETY: as the caller says.
    unsafe { with(queue, set) }
}

/// # Safety
/// As [`forebay_enqueue`].
#[no_mangle]
pub unsafe extern "C" fn forebay_fault(queue: *const CQueue) -> *const c_char {
    // SAFETY: as the caller says.
    match unsafe { queue.as_ref() } {
        Some(whole) => whole.fault.as_ptr(),
        None => c"the queue is NULL".as_ptr(),
    }
}

/// # Safety
/// As [`forebay_enqueue`].
#[no_mangle]
pub unsafe extern "C" fn forebay_refusal(queue: *const CQueue) -> *const c_char {
    // SAFETY: as the caller says.
    match unsafe { queue.as_ref() } {
        Some(whole) => whole.refusal.as_ptr(),
        None => c"the queue is NULL".as_ptr(),
    }
}
