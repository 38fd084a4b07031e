//! Functions of `include/forebay.h` for networks, which begin with `forebay_network_`.

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

use crate::ffi::{ecn_of, for_c, nothing, panic_message, text, texts, write, FAILED, NONE, OK};

/// The event that no packet arrived before the time asked for (`FOREBAY_TIME`).
pub const TIME: c_int = 0;
/// The event that a packet was delivered (`FOREBAY_DELIVERED`).
pub const DELIVERED: c_int = 1;
/// The event that a packet was lost (`FOREBAY_LOST`).
pub const LOST: c_int = 2;
/// The event that the scenario has ended (`FOREBAY_END`).
pub const END: c_int = 3;
/// The reason of a random loss in [`CEvent::why`].
const RANDOM: u8 = 5;

/// The settings of a network (`forebay_network_settings`).
#[repr(C)]
pub struct CNetworkSettings {
    /// The text of the scenario in TOML.
    pub scenario: *const c_char,
    /// The law that replaces those of the scenario; null keeps the scenario's.
    pub law: *const c_char,
    /// Changes of the scenario, each as KEY=VALUE; the list ends with a null pointer, or is null.
    pub sets: *const *const c_char,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// A packet of the caller (`forebay_datagram`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CDatagram {
    /// The caller's number of the packet.
    pub handle: u64,
    /// The number of its flow.
    pub flow: u32,
    /// The length of its payload in bytes.
    pub bytes: u32,
    /// The end that sends it: 0 is the source, 1 the sink.
    pub end: u8,
    /// The ECN field, from 0 to 3 (RFC 3168).
    pub ecn: u8,
}

/// An event of the network (`forebay_event`).
#[repr(C)]
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CEvent {
    /// The time of the event, in ns.
    pub time_ns: u64,
    /// The caller's number of the packet.
    pub handle: u64,
    /// The number of its flow.
    pub flow: u32,
    /// The length of its payload in bytes.
    pub bytes: u32,
    /// The end that received the packet, or that sent it where it was lost: 0 is the source, 1 the
    /// sink.
    pub end: u8,
    /// The ECN field at the delivery.
    pub ecn: u8,
    /// The reason of a loss: 1 early, 2 forced, 3 overflow, 5 random.
    pub why: u8,
}

/// A network behind a pointer of C (`forebay_network`).
pub struct CNetwork {
    state: State,
    /// The message with which the network failed; empty for a network that works.
    fault: CString,
}

/// The state of a network.
enum State {
    Running(Box<Network<Handle>>),
    Finished(Box<Report>),
    /// The network failed while it was finished.
    Gone,
}

/// Calls a function with the network behind the pointer while it runs. A panic makes the network
/// fail.
///
/// # Safety
/// `network` is null, or comes from `forebay_network_new` and is not used by another thread during
/// the call.
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
        whole.fault = panic_message(&*panic);
        FAILED
    })
}

/// Calls a function that only reads the network behind the pointer; `None` where it does not run.
///
/// # Safety
/// That of [`with`].
unsafe fn read<T>(network: *const CNetwork, call: impl FnOnce(&Network<Handle>) -> T) -> Option<T> {
    // SAFETY: as the caller says.
    match &unsafe { network.as_ref() }?.state {
        State::Running(running) => Some(call(running)),
        State::Finished(_) | State::Gone => None,
    }
}

/// Makes a network; returns null and writes the error where a setting is wrong.
///
/// # Safety
/// `settings` is null or points to settings whose texts outlive the call; `error` is null or points
/// to `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn forebay_network_new(
    settings: *const CNetworkSettings,
    error: *mut c_char,
    size: usize,
) -> *mut CNetwork {
    // SAFETY: as the caller says.
    let result = match unsafe { settings.as_ref() } {
        // SAFETY: as the caller says.
        Some(settings) => unsafe { network(settings) },
        None => Err("settings: NULL is not valid; expected settings".to_owned()),
    };
    match result {
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

/// Makes a network from the settings of C.
///
/// # Safety
/// Each pointer is null or points to a text; `sets` is null or points to a list of such pointers
/// that ends with a null pointer.
unsafe fn network(settings: &CNetworkSettings) -> Result<Network<Handle>, String> {
    // SAFETY: as the caller says, here and below.
    let scenario = unsafe { text(settings.scenario) }.ok_or_else(|| nothing("scenario"))?;
    let mut options = Options::default();
    if !settings.law.is_null() {
        // SAFETY: as the caller says.
        let law = unsafe { text(settings.law) }.ok_or_else(|| nothing("law"))?;
        options.laws.push(law.to_owned());
    }
    // SAFETY: as the caller says.
    for set in unsafe { texts("sets", settings.sets) }? {
        let (key, value) = set
            .split_once('=')
            .ok_or_else(|| format!("sets: {set:?} is not valid; expected KEY=VALUE"))?;
        let pair = (key.trim().to_owned(), value.trim().to_owned());
        options.sets.push(pair);
    }
    let make = || Network::with_options(scenario, &options, settings.seed);
    match catch_unwind(AssertUnwindSafe(make)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("forebay: a fault of the library".to_owned()),
    }
}

/// Frees a network. Null is ignored.
///
/// # Safety
/// `network` is null, or comes from `forebay_network_new` and is not used again.
#[no_mangle]
pub unsafe extern "C" fn forebay_network_free(network: *mut CNetwork) {
    if !network.is_null() {
        // SAFETY: as the caller says.
        let network = unsafe { Box::from_raw(network) };
        // A panic here leaks the network.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(network)));
    }
}

/// Returns the number of the caller's flows.
///
/// # Safety
/// `network` is null, or comes from `forebay_network_new` and is not used by another thread during
/// the call.
#[no_mangle]
pub unsafe extern "C" fn forebay_network_flows(network: *const CNetwork) -> u32 {
    // SAFETY: as the caller says.
    unsafe { read(network, Network::flows) }.unwrap_or(0)
}

/// Returns the largest payload of a flow, in bytes; 0 where there is no such flow.
///
/// # Safety
/// As [`forebay_network_flows`].
#[no_mangle]
pub unsafe extern "C" fn forebay_network_most_bytes(network: *const CNetwork, flow: u32) -> u32 {
    // SAFETY: as the caller says.
    let bytes = unsafe { read(network, |network| network.most_bytes(flow)) };
    u32::try_from(bytes.unwrap_or(0)).unwrap_or(u32::MAX)
}

/// Returns the end of the scenario, in ns.
///
/// # Safety
/// As [`forebay_network_flows`].
#[no_mangle]
pub unsafe extern "C" fn forebay_network_end(network: *const CNetwork) -> u64 {
    // SAFETY: as the caller says.
    unsafe { read(network, |network| network.end().as_nanos()) }.unwrap_or(0)
}

/// Sends a packet. Where that is not possible, the error is written and the answer is [`NONE`].
///
/// # Safety
/// As [`forebay_network_flows`]; `packet` is null or points to a packet, and `error` is null or
/// points to `size` bytes.
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
        let result = ecn_of(packet.ecn).and_then(|ecn| {
            let from = end_of(packet.end)?;
            network.send(packet.flow, from, now, payload, ecn)
        });
        match result {
            Ok(()) => OK,
            Err(refusal) => {
                // SAFETY: as the caller says.
                unsafe { write(error, size, &refusal.to_string()) };
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
        _ => Err(ParamError::new(
            "end",
            number,
            "0 (the source) or 1 (the sink)",
        )),
    }
}

/// Lets time pass until the next event, and at most until `until_ns`. Returns the kind of the
/// event.
///
/// # Safety
/// As [`forebay_network_flows`]; `event` is null or points to an event.
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
    let bytes = |payload: Handle| u32::try_from(payload.length).unwrap_or(u32::MAX);
    let poll = |network: &mut Network<Handle>| match network.poll(Time::from_nanos(until_ns)) {
        Event::Delivered(packet) => {
            *out = CEvent {
                time_ns: packet.at.as_nanos(),
                handle: packet.payload.number,
                flow: packet.flow,
                bytes: bytes(packet.payload),
                end: u8::from(packet.to == End::Sink),
                ecn: packet.ecn as u8,
                why: 0,
            };
            DELIVERED
        }
        Event::Lost(packet) => {
            *out = CEvent {
                time_ns: packet.at.as_nanos(),
                handle: packet.payload.number,
                flow: packet.flow,
                bytes: bytes(packet.payload),
                end: u8::from(packet.from == End::Sink),
                ecn: 0,
                why: match packet.why {
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

/// Runs the scenario to its end and takes its metrics.
///
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
                    whole.fault = panic_message(&*panic);
                    return FAILED;
                }
            }
            OK
        }
        // A second call changes nothing.
        State::Finished(report) => {
            whole.state = State::Finished(report);
            OK
        }
        State::Gone => FAILED,
    }
}

/// Records the caller's packets from now on: into a capture file, and into a file of events. Where
/// a file cannot be created, the error is written and the answer is [`NONE`].
///
/// # Safety
/// As [`forebay_network_flows`]; `capture` and `events` are null or point to texts, and `error` is
/// null or points to `size` bytes.
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
            let result = network.record(capture, events);
            result.map_err(|error| format!("capture and events: {error}"))
        });
        match recording {
            Ok(()) => OK,
            Err(refusal) => {
                // SAFETY: as the caller says.
                unsafe { write(error, size, &refusal) };
                NONE
            }
        }
    };
    // SAFETY: as the caller says.
    unsafe { with(network, record) }
}

/// Writes a metric of the bottleneck, or of the traffic with a label, after
/// [`forebay_network_finish`].
///
/// # Safety
/// As [`forebay_network_flows`]; `traffic` and `name` are null or point to texts, and `value` is
/// null or points to a number.
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
    let metric = match traffic.is_null() {
        true => report.metric(name),
        // SAFETY: as the caller says.
        false => unsafe { text(traffic) }.and_then(|label| report.traffic_metric(label, name)),
    };
    match metric {
        None => NONE,
        Some(metric) => {
            *out = metric;
            OK
        }
    }
}

/// Returns the message with which the network failed; empty for a network that works.
///
/// # Safety
/// As [`forebay_network_flows`].
#[no_mangle]
pub unsafe extern "C" fn forebay_network_fault(network: *const CNetwork) -> *const c_char {
    // SAFETY: as the caller says.
    match unsafe { network.as_ref() } {
        Some(whole) => whole.fault.as_ptr(),
        None => c"network: NULL is not valid; expected a network".as_ptr(),
    }
}

/// Returns the text of the scenario of RFC 7928 with this number, from 0, and its name; null after
/// the last.
///
/// # Safety
/// `name` is null or points to a pointer.
#[no_mangle]
pub unsafe extern "C" fn forebay_network_rfc7928(
    number: usize,
    name: *mut *const c_char,
) -> *const c_char {
    use std::sync::OnceLock;
    static SCENARIOS: OnceLock<Vec<(CString, CString)>> = OnceLock::new();
    let scenarios = SCENARIOS.get_or_init(|| {
        let scenarios = rfc7928::SCENARIOS.iter();
        scenarios
            .map(|(name, text)| (for_c(name), for_c(text)))
            .collect()
    });
    let Some((scenario_name, text)) = scenarios.get(number) else {
        return std::ptr::null();
    };
    // SAFETY: as the caller says.
    if let Some(out) = unsafe { name.as_mut() } {
        *out = scenario_name.as_ptr();
    }
    text.as_ptr()
}
