//! The functions of `include/forebay.h` that begin with `forebay_network_`.

#![allow(
    unsafe_code,
    reason = "pointers from C: each is checked for null, and the header says what else holds"
)]

use std::ffi::{c_char, c_double, c_int, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;

use forebay_aqm::DropReason;
use forebay_net::{rfc7928, End, Event, Handle, Loss, Network, Options, Report};
use forebay_units::{ParamError, Time};

use crate::ffi::{ecn_of, for_c, nothing, said, text, texts, write, FAILED, NONE, OK};

pub const TIME: c_int = 0;
pub const DELIVERED: c_int = 1;
pub const LOST: c_int = 2;
pub const END: c_int = 3;
const RANDOM: u8 = 5;

#[repr(C)]
pub struct CNetworkSettings {
    pub scenario: *const c_char,
    pub law: *const c_char,
    pub sets: *const *const c_char,
    pub seed: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CDatagram {
    pub handle: u64,
    pub flow: u32,
    pub bytes: u32,
    pub end: u8,
    pub ecn: u8,
}

#[repr(C)]
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CEvent {
    pub time_ns: u64,
    pub handle: u64,
    pub flow: u32,
    pub bytes: u32,
    pub end: u8,
    pub ecn: u8,
    pub why: u8,
}

/// What C sees as `forebay_network`.
pub struct CNetwork {
    state: State,
    /// Empty while all is well.
    fault: CString,
}

enum State {
    Running(Box<Network<Handle>>),
    Finished(Box<Report>),
    /// It has failed on the way from one to the other.
    Gone,
}

/// Calls with the network behind the pointer while it runs; a panic makes it fail.
///
/// # Safety
/// `network` is null, or comes from `forebay_network_new` and is used by no one else meanwhile.
unsafe fn with(network: *mut CNetwork, call: impl FnOnce(&mut Network<Handle>) -> c_int) -> c_int {
    // SAFETY: as the caller says.
    let Some(whole) = (unsafe { network.as_mut() }) else {
        return FAILED;
    };
    let State::Running(running) = &mut whole.state else {
        return FAILED;
    };
    if !whole.fault.is_empty() {
        return FAILED;
    }
    catch_unwind(AssertUnwindSafe(|| call(running))).unwrap_or_else(|panic| {
        whole.fault = said(&*panic);
        FAILED
    })
}

/// What only reads a network that runs.
///
/// # Safety
/// As [`with`].
unsafe fn read<T>(network: *const CNetwork, call: impl FnOnce(&Network<Handle>) -> T) -> Option<T> {
    // SAFETY: as the caller says.
    match &unsafe { network.as_ref() }?.state {
        State::Running(running) => Some(call(running)),
        State::Finished(_) | State::Gone => None,
    }
}

/// # Safety
/// `settings` is null or leads to settings with texts that outlive the call; `error` is null or leads
/// to `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn forebay_network_new(
    settings: *const CNetworkSettings,
    error: *mut c_char,
    size: usize,
) -> *mut CNetwork {
    // SAFETY: as the caller says.
    let made = match unsafe { settings.as_ref() } {
        // SAFETY: as the caller says.
        Some(given) => unsafe { made(given) },
        None => Err("settings: found NULL, allowed: settings".to_owned()),
    };
    match made {
        Ok(network) => Box::into_raw(Box::new(CNetwork {
            state: State::Running(Box::new(network)),
            fault: CString::default(),
        })),
        Err(line) => {
            // SAFETY: as the caller says.
            unsafe { write(error, size, &line) };
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// Each pointer is null or leads to a text; `sets` is null or leads to such, ended by a null.
unsafe fn made(given: &CNetworkSettings) -> Result<Network<Handle>, String> {
    // SAFETY: as the caller says, here and below.
    let scenario = unsafe { text(given.scenario) }.ok_or_else(|| nothing("scenario"))?;
    let mut options = Options::default();
    if !given.law.is_null() {
        // SAFETY: as the caller says.
        let law = unsafe { text(given.law) }.ok_or_else(|| nothing("law"))?;
        options.laws.push(law.to_owned());
    }
    // SAFETY: as the caller says.
    for set in unsafe { texts("sets", given.sets) }? {
        let (key, value) = set
            .split_once('=')
            .ok_or_else(|| format!("sets: found {set:?}, allowed: KEY=VALUE"))?;
        let pair = (key.trim().to_owned(), value.trim().to_owned());
        options.sets.push(pair);
    }
    let made = || Network::with_options(scenario, &options, given.seed);
    match catch_unwind(AssertUnwindSafe(made)) {
        Ok(made) => made.map_err(|error| error.to_string()),
        Err(_) => Err("forebay: a fault of the library".to_owned()),
    }
}

/// # Safety
/// `network` is null, or comes from `forebay_network_new` and is not used again.
#[no_mangle]
pub unsafe extern "C" fn forebay_network_free(network: *mut CNetwork) {
    if !network.is_null() {
        // SAFETY: as the caller says.
        let network = unsafe { Box::from_raw(network) };
        // One that fails even in this is left.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(network)));
    }
}

/// # Safety
/// `network` as in [`forebay_network_free`], and used by no one else meanwhile.
#[no_mangle]
pub unsafe extern "C" fn forebay_network_flows(network: *const CNetwork) -> u32 {
    // SAFETY: as the caller says.
    unsafe { read(network, Network::flows) }.unwrap_or(0)
}

/// # Safety
/// As [`forebay_network_flows`].
#[no_mangle]
pub unsafe extern "C" fn forebay_network_most_bytes(network: *const CNetwork, flow: u32) -> u32 {
    // SAFETY: as the caller says.
    let most = unsafe { read(network, |it| it.most_bytes(flow)) };
    u32::try_from(most.unwrap_or(0)).unwrap_or(u32::MAX)
}

/// # Safety
/// As [`forebay_network_flows`].
#[no_mangle]
pub unsafe extern "C" fn forebay_network_end(network: *const CNetwork) -> u64 {
    // SAFETY: as the caller says.
    unsafe { read(network, |it| it.end().as_nanos()) }.unwrap_or(0)
}

/// # Safety
/// As [`forebay_network_flows`]; `packet` is null or leads to one, and `error` to `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn forebay_network_send(
    network: *mut CNetwork,
    now_ns: u64,
    packet: *const CDatagram,
    error: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: as the caller says.
    let Some(packet) = (unsafe { packet.as_ref() }) else {
        return FAILED;
    };
    let payload = Handle {
        number: packet.handle,
        length: usize::try_from(packet.bytes).unwrap_or(usize::MAX),
    };
    let send = |network: &mut Network<Handle>| {
        let now = Time::from_nanos(now_ns);
        let sent = ecn_of(packet.ecn).and_then(|ecn| {
            let from = end_of(packet.end)?;
            network.send(packet.flow, from, now, payload, ecn)
        });
        match sent {
            Ok(()) => OK,
            Err(why) => {
                // SAFETY: as the caller says.
                unsafe { write(error, size, &why.to_string()) };
                NONE
            }
        }
    };
    // SAFETY: as the caller says.
    unsafe { with(network, send) }
}

/// Returns the end of a flow with this number.
fn end_of(number: u8) -> Result<End, ParamError> {
    match number {
        0 => Ok(End::Source),
        1 => Ok(End::Sink),
        _ => Err(ParamError::new("end", number, "0 or 1")),
    }
}

/// # Safety
/// As [`forebay_network_flows`]; `event` is null or leads to one.
#[no_mangle]
pub unsafe extern "C" fn forebay_network_poll(
    network: *mut CNetwork,
    until_ns: u64,
    event: *mut CEvent,
) -> c_int {
    // SAFETY: as the caller says.
    let Some(out) = (unsafe { event.as_mut() }) else {
        return FAILED;
    };
    let bytes = |of: Handle| u32::try_from(of.length).unwrap_or(u32::MAX);
    let poll = |network: &mut Network<Handle>| match network.poll(Time::from_nanos(until_ns)) {
        Event::Delivered(it) => {
            *out = CEvent {
                time_ns: it.at.as_nanos(),
                handle: it.payload.number,
                flow: it.flow,
                bytes: bytes(it.payload),
                end: u8::from(it.to == End::Sink),
                ecn: it.ecn as u8,
                why: 0,
            };
            DELIVERED
        }
        Event::Lost(it) => {
            *out = CEvent {
                time_ns: it.at.as_nanos(),
                handle: it.payload.number,
                flow: it.flow,
                bytes: bytes(it.payload),
                end: u8::from(it.from == End::Sink),
                ecn: 0,
                why: match it.why {
                    Loss::Queue(DropReason::Early) => 1,
                    Loss::Queue(DropReason::Forced) => 2,
                    Loss::Queue(DropReason::Overflow) => 3,
                    Loss::Random => RANDOM,
                },
            };
            LOST
        }
        Event::Time(at) | Event::End(at) => {
            *out = CEvent {
                time_ns: at.as_nanos(),
                ..CEvent::default()
            };
            if at == network.end() {
                END
            } else {
                TIME
            }
        }
    };
    // SAFETY: as the caller says.
    unsafe { with(network, poll) }
}

/// # Safety
/// As [`forebay_network_flows`].
#[no_mangle]
pub unsafe extern "C" fn forebay_network_finish(network: *mut CNetwork) -> c_int {
    // SAFETY: as the caller says.
    let Some(whole) = (unsafe { network.as_mut() }) else {
        return FAILED;
    };
    if !whole.fault.is_empty() {
        return FAILED;
    }
    match std::mem::replace(&mut whole.state, State::Gone) {
        State::Running(running) => {
            match catch_unwind(AssertUnwindSafe(|| running.finish())) {
                Ok(report) => {
                    if let Err(error) = &report.recording {
                        whole.fault = for_c(&format!("the recording is not whole: {error}"));
                        return FAILED;
                    }
                    whole.state = State::Finished(Box::new(report));
                }
                Err(panic) => {
                    whole.fault = said(&*panic);
                    return FAILED;
                }
            }
            OK
        }
        // Once is enough.
        State::Finished(report) => {
            whole.state = State::Finished(report);
            OK
        }
        State::Gone => FAILED,
    }
}

/// # Safety
/// As [`forebay_network_flows`]; `capture` and `events` are null or texts, and `error` is null or leads to
/// `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn forebay_network_record(
    network: *mut CNetwork,
    capture: *const c_char,
    events: *const c_char,
    error: *mut c_char,
    size: usize,
) -> c_int {
    let path = |key: &str, pointer: *const c_char| match pointer.is_null() {
        true => Ok(None),
        // SAFETY: as the caller says.
        false => unsafe { text(pointer) }
            .map(|path| Some(Path::new(path)))
            .ok_or_else(|| nothing(key)),
    };
    let record = |network: &mut Network<Handle>| {
        let recording = path("capture", capture).and_then(|capture| {
            let events = path("events", events)?;
            let made = network.record(capture, events);
            made.map_err(|error| format!("capture and events: {error}"))
        });
        match recording {
            Ok(()) => OK,
            Err(why) => {
                // SAFETY: as the caller says.
                unsafe { write(error, size, &why) };
                NONE
            }
        }
    };
    // SAFETY: as the caller says.
    unsafe { with(network, record) }
}

/// # Safety
/// As [`forebay_network_flows`]; texts are null or texts, and `value` is null or leads to a number.
#[no_mangle]
pub unsafe extern "C" fn forebay_network_metric(
    network: *const CNetwork,
    traffic: *const c_char,
    name: *const c_char,
    value: *mut c_double,
) -> c_int {
    // SAFETY: as the caller says.
    let (Some(whole), Some(name), Some(out)) =
        (unsafe { (network.as_ref(), text(name), value.as_mut()) })
    else {
        return FAILED;
    };
    let State::Finished(report) = &whole.state else {
        return FAILED;
    };
    let found = match traffic.is_null() {
        true => report.metric(name),
        // SAFETY: as the caller says.
        false => unsafe { text(traffic) }.and_then(|label| report.traffic_metric(label, name)),
    };
    match found {
        None => NONE,
        Some(found) => {
            *out = found;
            OK
        }
    }
}

/// # Safety
/// As [`forebay_network_flows`].
#[no_mangle]
pub unsafe extern "C" fn forebay_network_fault(network: *const CNetwork) -> *const c_char {
    // SAFETY: as the caller says.
    match unsafe { network.as_ref() } {
        Some(whole) => whole.fault.as_ptr(),
        None => c"network: found NULL, allowed: a network".as_ptr(),
    }
}

/// # Safety
/// `name` is null or leads to a pointer.
#[no_mangle]
pub unsafe extern "C" fn forebay_network_rfc7928(
    number: usize,
    name: *mut *const c_char,
) -> *const c_char {
    use std::sync::OnceLock;
    static ALL: OnceLock<Vec<(CString, CString)>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let all = rfc7928::SCENARIOS.iter();
        all.map(|(name, text)| (crate::ffi::for_c(name), crate::ffi::for_c(text)))
            .collect()
    });
    let Some((found, text)) = all.get(number) else {
        return std::ptr::null();
    };
    // SAFETY: as the caller says.
    if let Some(out) = unsafe { name.as_mut() } {
        *out = found.as_ptr();
    }
    text.as_ptr()
}
