//! Functions of `include/forebay.h` for queues.

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

/// The answer to a call with a value that is not valid (`FOREBAY_REFUSED`).
pub const REFUSED: c_int = -2;
/// The answer to a call with a null pointer or a queue that has failed (`FOREBAY_FAILED`).
pub const FAILED: c_int = -1;
/// The answer where there is nothing to return (`FOREBAY_NONE`).
pub const NONE: c_int = 0;
/// The answer to a call that succeeded (`FOREBAY_OK`).
pub const OK: c_int = 1;
/// The answer where no packet may leave before a later time (`FOREBAY_WAIT`).
pub const WAIT: c_int = 2;
/// The number of the binary interface (`FOREBAY_ABI`).
pub const ABI: u32 = 1;

/// The settings of a queue (`forebay_settings`).
#[repr(C)]
pub struct CSettings {
    /// The kind of the law.
    pub law: *const c_char,
    /// The parameters of the law, each as KEY=VALUE; the list ends with a null pointer, or is null.
    pub params: *const *const c_char,
    /// The discipline; null selects the law's default discipline.
    pub queue: *const c_char,
    /// The rate of the link.
    pub rate: *const c_char,
    /// The size of the buffer.
    pub buffer: *const c_char,
    /// The usual packet size; null is 1500 bytes.
    pub packet: *const c_char,
    /// The seed of the law's random numbers.
    pub seed: u64,
    /// True if ECN-capable packets are marked rather than dropped: a `bool` of C. It is a number
    /// here, because uninitialised memory of C may have values other than 0 and 1.
    pub ecn: u8,
}

/// A packet (`forebay_packet`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CPacket {
    /// The caller's number of the packet.
    pub handle: u64,
    /// A number or hash of the packet's flow.
    pub flow: u64,
    /// A number of the sending host; 0 in both `from` and `to` makes hosts of the flow.
    pub from: u64,
    /// A number of the receiving host.
    pub to: u64,
    /// The length in bytes.
    pub bytes: u32,
    /// The ECN field, from 0 to 3 (RFC 3168).
    pub ecn: u8,
    /// The DSCP, from 0 to 63.
    pub dscp: u8,
    /// True if the packet is not TCP: a `bool` of C, as [`CSettings::ecn`] is.
    pub not_tcp: u8,
}

/// A packet that left the queue (`forebay_departure`).
#[repr(C)]
#[derive(Default)]
pub struct CDeparture {
    /// The caller's number of the packet.
    pub handle: u64,
    /// The time that the packet waited in the queue, in ns.
    pub sojourn_ns: u64,
    /// The length in bytes.
    pub bytes: u32,
    /// The ECN field, with a mark of the queue if there is one.
    pub ecn: u8,
    /// The number of the packet's class.
    pub class_number: u8,
    /// True if the queue marked the packet.
    pub marked: bool,
}

/// A packet that came back without leaving (`forebay_loss`).
#[repr(C)]
#[derive(Default)]
pub struct CLoss {
    /// The caller's number of the packet.
    pub handle: u64,
    /// The time at which the packet was dropped, in ns.
    pub time_ns: u64,
    /// The length in bytes.
    pub bytes: u32,
    /// The reason: 1 early, 2 forced, 3 overflow, 4 drained.
    pub why: u8,
}

/// A queue behind a pointer of C (`forebay_queue`).
pub struct CQueue {
    queue: Queue,
    /// The names of the classes, as texts of C.
    classes: Vec<CString>,
    /// The message of the panic with which the queue failed; empty for a queue that works.
    fault: CString,
    /// The error of the last call that was refused; empty before the first.
    refusal: CString,
}

/// Returns a text for C, with spaces in place of zero bytes.
pub(crate) fn for_c(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// Writes an error text with a terminating zero. A text that is too long is cut between two
/// characters.
///
/// # Safety
/// `error` is null or points to `size` bytes.
pub(crate) unsafe fn write(error: *mut c_char, size: usize, text: &str) {
    if error.is_null() || size == 0 {
        return;
    }
    let line = text.replace(['\0', '\n'], " ");
    let mut end = line.len().min(size - 1);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    // SAFETY: `error` points to `size` bytes, and `end` is less.
    unsafe {
        std::ptr::copy_nonoverlapping(line.as_ptr().cast(), error, end);
        *error.add(end) = 0;
    }
}

/// Returns a text of C; `None` for a null pointer, and for a text that is not UTF-8.
///
/// # Safety
/// `text` is null or points to a zero-terminated text that outlives the call.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// Calls a function with the queue behind the pointer, unless the queue has failed. A panic makes
/// the queue fail.
///
/// # Safety
/// `queue` is null, or comes from `forebay_new` and is not used by another thread during the call.
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
        Ok(Err(error)) => {
            whole.refusal = for_c(&error.to_string());
            REFUSED
        }
        Err(panic) => {
            whole.fault = panic_message(&*panic);
            FAILED
        }
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> CString {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
    for_c(message.unwrap_or("a fault without a message"))
}

/// Calls a function that only reads the queue behind the pointer; `None` where the queue has
/// failed.
///
/// # Safety
/// That of [`with`].
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

/// Returns the number of the binary interface.
#[no_mangle]
pub extern "C" fn forebay_abi() -> u32 {
    ABI
}

/// Returns the version of the library.
#[no_mangle]
pub extern "C" fn forebay_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns the name with this number as a text of C that lives as long as the library; null where
/// there is none.
fn name(number: usize, names: impl Iterator<Item = &'static str>) -> *const c_char {
    use std::collections::BTreeMap;
    use std::sync::{Mutex, PoisonError};
    static TEXTS: Mutex<BTreeMap<&str, CString>> = Mutex::new(BTreeMap::new());
    let mut names = names;
    let Some(name) = names.nth(number) else {
        return std::ptr::null();
    };
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    // The characters of a CString do not move when the map grows.
    texts.entry(name).or_insert_with(|| for_c(name)).as_ptr()
}

/// Returns the kind of the law with this number, from 0; null after the last.
#[no_mangle]
pub extern "C" fn forebay_law_name(number: usize) -> *const c_char {
    name(number, LAWS.iter().map(|law| law.kind))
}

/// Returns the kind of the discipline with this number, from 0; null after the last.
#[no_mangle]
pub extern "C" fn forebay_queue_name(number: usize) -> *const c_char {
    name(number, DISCIPLINES.iter().map(|queue| queue.kind))
}

/// Makes a queue; returns null and writes the error where a setting is wrong.
///
/// # Safety
/// `settings` is null or points to settings whose texts outlive the call; `error` is null or points
/// to `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn forebay_new(
    settings: *const CSettings,
    error: *mut c_char,
    size: usize,
) -> *mut CQueue {
    // SAFETY: as the caller says.
    let result = unsafe { settings.as_ref() }.map(|settings| {
        // SAFETY: as the caller says; the list of parameters ends with a null.
        let settings = unsafe { read_settings(settings) };
        let settings = settings?;
        match catch_unwind(AssertUnwindSafe(|| Queue::new(&settings))) {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err("forebay: a fault of the library".to_owned()),
        }
    });
    match result.unwrap_or_else(|| Err("settings: NULL is not valid; expected settings".to_owned()))
    {
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

/// Returns the texts of a list that ends with a null pointer.
///
/// # Safety
/// `list` is null or points to such a list.
pub(crate) unsafe fn texts<'a>(
    key: &str,
    list: *const *const c_char,
) -> Result<Vec<&'a str>, String> {
    let mut texts = Vec::new();
    let mut next = list;
    // SAFETY: as the caller says, a null ends the list.
    while let Some(pointer) = unsafe { next.as_ref() }.filter(|pointer| !pointer.is_null()) {
        // SAFETY: as the caller says.
        let text = unsafe { text(*pointer) };
        texts.push(text.ok_or_else(|| nothing(key))?);
        // SAFETY: the end of the list has not been reached.
        next = unsafe { next.add(1) };
    }
    Ok(texts)
}

/// Returns the error of a text that is null or not UTF-8.
pub(crate) fn nothing(key: &str) -> String {
    format!("{key}: missing; expected a text in UTF-8")
}

/// Returns the settings of a queue from those of C.
///
/// # Safety
/// Each pointer is null or points to a text; `params` is null or points to a list of such pointers
/// that ends with a null pointer.
unsafe fn read_settings(settings: &CSettings) -> Result<Settings<'_>, String> {
    let required = |key: &str, pointer: *const c_char| {
        // SAFETY: as the caller says.
        unsafe { text(pointer) }.ok_or_else(|| nothing(key))
    };
    let optional = |key: &str, pointer: *const c_char| match pointer.is_null() {
        true => Ok(None),
        false => required(key, pointer).map(Some),
    };
    // SAFETY: as the caller says, a null ends the list.
    let params = unsafe { texts("params", settings.params) }?;
    Ok(Settings {
        law: required("law", settings.law)?,
        params,
        queue: optional("queue", settings.queue)?,
        rate: required("rate", settings.rate)?,
        buffer: required("buffer", settings.buffer)?,
        packet: optional("packet", settings.packet)?,
        ecn: settings.ecn != 0,
        seed: settings.seed,
    })
}

/// Frees a queue. Null is ignored.
///
/// # Safety
/// `queue` is null, or comes from `forebay_new` and is not used again.
#[no_mangle]
pub unsafe extern "C" fn forebay_free(queue: *mut CQueue) {
    if !queue.is_null() {
        // SAFETY: as the caller says.
        let queue = unsafe { Box::from_raw(queue) };
        // A panic here leaks the queue.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(queue)));
    }
}

/// Offers an arriving packet to the queue. It or other packets may come back with
/// [`forebay_next_lost`].
///
/// # Safety
/// `queue` is null, or comes from `forebay_new` and is not used by another thread during the call;
/// `packet` is null or points to a packet.
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
        // Without hosts, each flow counts as a pair of hosts of its own.
        (0, 0) => (packet.flow, packet.flow),
        hosts => hosts,
    };
    let enqueue = |queue: &mut Queue| {
        if packet.dscp > 63 {
            return Err(ParamError::new("dscp", packet.dscp, "a value from 0 to 63"));
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
        _ => Err(ParamError::new("ecn", number, "a value from 0 to 3")),
    }
}

/// Takes the next packet for the link out of the queue. Where none may leave yet, `wait_until_ns`
/// gets the time at which to ask again.
///
/// # Safety
/// `queue` as in [`forebay_enqueue`]; each other pointer is null or points to a value of its type.
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
        Dequeued::Packet(departure) => {
            *out = CDeparture {
                handle: departure.packet.handle,
                sojourn_ns: departure.sojourn.as_nanos(),
                bytes: departure.packet.bytes,
                ecn: departure.packet.ecn as u8,
                class_number: departure.class,
                marked: departure.packet.marked,
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

/// Returns the next packet that came back without leaving.
///
/// # Safety
/// As [`forebay_dequeue`].
#[no_mangle]
pub unsafe extern "C" fn forebay_next_lost(queue: *mut CQueue, loss: *mut CLoss) -> c_int {
    // SAFETY: as the caller says.
    let Some(out) = (unsafe { loss.as_mut() }) else {
        return FAILED;
    };
    let next = |queue: &mut Queue| match queue.lost() {
        Some((packet, at, reason)) => {
            *out = CLoss {
                handle: packet.handle,
                time_ns: at.as_nanos(),
                bytes: packet.bytes,
                why: match reason {
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

/// Empties the queue. All packets come back with [`forebay_next_lost`].
///
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

/// Returns the time at which [`forebay_handle_timeout`] is due, in ns; the largest number where the
/// law has no timer.
///
/// # Safety
/// As [`forebay_enqueue`].
#[no_mangle]
pub unsafe extern "C" fn forebay_next_timeout(queue: *const CQueue) -> u64 {
    // SAFETY: as the caller says.
    let next = unsafe { read(queue, |whole| whole.queue.next_timeout()) };
    next.map_or(u64::MAX, Time::as_nanos)
}

/// Runs the law's timer up to now.
///
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

/// Writes the counts of the queue.
///
/// # Safety
/// As [`forebay_dequeue`].
#[no_mangle]
pub unsafe extern "C" fn forebay_count(queue: *const CQueue, counts: *mut Counts) -> c_int {
    // SAFETY: as the caller says.
    let (Some(out), Some(now)) = (unsafe {
        (
            counts.as_mut(),
            read(queue, |whole| Some(whole.queue.counts())),
        )
    }) else {
        return FAILED;
    };
    *out = now;
    OK
}

/// Writes the value of a state variable of the law.
///
/// # Safety
/// As [`forebay_dequeue`]; `name` is null or points to a text.
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
    match unsafe { read(queue, |whole| Some(whole.queue.probe(name))) } {
        None => FAILED,
        Some(None) => NONE,
        Some(Some(probe)) => {
            *out = probe;
            OK
        }
    }
}

/// Returns the name of the class with this number, from 0; null after the last.
///
/// # Safety
/// As [`forebay_enqueue`].
#[no_mangle]
pub unsafe extern "C" fn forebay_class_name(queue: *const CQueue, number: usize) -> *const c_char {
    // SAFETY: as the caller says.
    let name = unsafe {
        read(queue, |whole| {
            whole.classes.get(number).map(|name| name.as_ptr())
        })
    };
    name.unwrap_or(std::ptr::null())
}

/// Changes the rate, the buffer, or the law's set-point. Where that is not possible, the error is
/// written and the answer is [`NONE`].
///
/// # Safety
/// As [`forebay_enqueue`]; `key` and `value` are null or point to texts, and `error` is null or
/// points to `size` bytes.
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
        Err(refusal) => {
            // SAFETY: as the caller says.
            unsafe { write(error, size, &refusal.to_string()) };
            Ok(NONE)
        }
    };
    // SAFETY: as the caller says.
    unsafe { with(queue, set) }
}

/// Returns the message of the panic with which the queue failed; empty for a queue that works.
///
/// # Safety
/// As [`forebay_enqueue`].
#[no_mangle]
pub unsafe extern "C" fn forebay_fault(queue: *const CQueue) -> *const c_char {
    // SAFETY: as the caller says.
    match unsafe { queue.as_ref() } {
        Some(whole) => whole.fault.as_ptr(),
        None => c"queue: NULL is not valid; expected a queue".as_ptr(),
    }
}

/// Returns the error of the last call that was refused; empty before the first.
///
/// # Safety
/// As [`forebay_enqueue`].
#[no_mangle]
pub unsafe extern "C" fn forebay_refusal(queue: *const CQueue) -> *const c_char {
    // SAFETY: as the caller says.
    match unsafe { queue.as_ref() } {
        Some(whole) => whole.refusal.as_ptr(),
        None => c"queue: NULL is not valid; expected a queue".as_ptr(),
    }
}
