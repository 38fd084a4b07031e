//! No sequence of calls of the C API panics, hangs, or loses a packet, whatever numbers it is given.
#![no_main]

use std::ffi::{c_char, CStr, CString};
use std::ptr::{null, null_mut};

use forebay::ffi::*;
use forebay::network::*;
use forebay::queue::Counts;
use forebay_aqm::disciplines::DISCIPLINES;
use forebay_aqm::laws::LAWS;
use libfuzzer_sys::fuzz_target;

const MOST_CALLS: usize = 300;

/// CLOCK_REALTIME in 2026.
const TODAY_NS: u64 = 1_780_000_000_000_000_000;
const YEAR_NS: u64 = 365 * 86_400 * 1_000_000_000;

const RATES: &[&str] = &["20Mbit/s", "1bit/s", "10Tbit/s", "1kbit/s", "100Gbit/s", "0bit/s", "1e30Tbit/s"];
const BUFFERS: &[&str] = &["100p", "1p", "1600B", "64kB", "10ms", "1000p", "4000000000p", "NaNp"];
const PARAMS: &[&str] = &[
    "target=5ms", "target=20p", "target=1000s", "interval=1us", "interval=60s", "alpha=0", "beta=0", "decay=1000000",
    "bounded=true", "w_q=1e-9", "at_samples=true", "load_time=3600s", "bandwidth=1bit/s", "bandwidth=10Tbit/s",
    "max_burst=60s", "estimator=departure-rate", "arithmetic=exact", "target=-1ms", "p=NaN",
];
const KEYS: &[(&str, &str)] = &[
    ("rate", "1bit/s"), ("rate", "10Tbit/s"), ("rate", "0bit/s"), ("buffer", "3p"), ("buffer", "1MB"),
    ("target", "1ms"), ("target", "900s"), ("target", "30p"), ("nothing", "7"),
];
const SCENARIO: &CStr = c"duration = '500ms'\n[bottleneck]\nrate = '2Mbit/s'\nbuffer = '20p'\n\
    [[traffic]]\nkind = 'external'\nflows = 2\nrtt = '10ms'\nloss = '1%'\n[[law]]\nkind = 'pie'\n";

/// Bytes as choices; zeros where they end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    fn of<'b, T>(&mut self, all: &'b [T]) -> &'b T {
        &all[usize::from(self.byte()) % all.len()]
    }

    /// A time: near the last one, or at an edge.
    fn time(&mut self, last: u64) -> u64 {
        match self.byte() % 16 {
            0 => 0,
            1 => TODAY_NS,
            2 => last.saturating_add(YEAR_NS),
            3 => (1 << 63) - 1,
            4 => 1 << 63,
            5 => u64::MAX,
            6 => self.number(),
            7 => last.saturating_sub(self.number() >> 32),
            8 => last.saturating_add(self.number() >> 24),
            _ => last.saturating_add(100_000 * u64::from(self.byte())),
        }
    }

    fn size(&mut self) -> u32 {
        match self.byte() % 8 {
            0 => 0,
            1 => u32::MAX,
            2 => 1 << 24,
            3 => (self.number() >> 32) as u32,
            _ => 16 * u32::from(self.byte()) + 1,
        }
    }
}

/// A queue, what has been drained of it, and the last time that it was called at.
struct Made {
    queue: *mut CQueue,
    drained: u64,
    last: u64,
}

fn make(input: &mut Input) -> Option<Made> {
    let text = |text: &str| CString::new(text).expect("no zero inside");
    let law = text(input.of(LAWS).kind);
    let kind = text(input.of(DISCIPLINES).kind);
    let (rate, buffer) = (text(input.of::<&str>(RATES)), text(input.of::<&str>(BUFFERS)));
    let params: Vec<CString> = (0..input.byte() % 3).map(|_| text(input.of::<&str>(PARAMS))).collect();
    let mut list: Vec<*const c_char> = params.iter().map(|it| it.as_ptr()).collect();
    list.push(null());
    let settings = CSettings {
        law: law.as_ptr(),
        params: list.as_ptr(),
        queue: if input.byte() % 2 == 0 { null() } else { kind.as_ptr() },
        rate: rate.as_ptr(),
        buffer: buffer.as_ptr(),
        packet: null(),
        seed: input.number(),
        ecn: input.byte(),
    };
    let mut error = [0; 200];
    let queue = unsafe { forebay_new(&settings, error.as_mut_ptr(), error.len()) };
    if queue.is_null() {
        let line = unsafe { CStr::from_ptr(error.as_ptr()) };
        assert!(!line.is_empty() && !line.to_bytes().contains(&b'\n'));
        return None;
    }
    Some(Made { queue, drained: 0, last: 0 })
}

/// Every packet that came is somewhere, once.
unsafe fn check(made: &mut Made) {
    let mut counts = Counts::default();
    assert_eq!(forebay_count(made.queue, &mut counts), OK, "{:?}", CStr::from_ptr(forebay_fault(made.queue)));
    let lost = counts.early + counts.forced + counts.overflow + made.drained;
    assert_eq!(counts.arrived, counts.sent + counts.queued + lost);
    assert!(counts.queued > 0 || counts.queued_bytes == 0);
}

unsafe fn call(made: &mut Made, input: &mut Input) {
    let now = input.time(made.last);
    let queue = made.queue;
    let (mut departure, mut wait, mut loss) = (CDeparture::default(), 0, CLoss::default());
    let answer = match input.byte() % 12 {
        0..=4 => {
            let packet = CPacket {
                handle: input.number(),
                flow: u64::from(input.byte() % 5),
                from: u64::from(input.byte() % 3),
                to: 0,
                bytes: input.size(),
                ecn: input.byte() % 5,
                dscp: input.byte() % 66,
                not_tcp: input.byte(),
            };
            forebay_enqueue(queue, now, &packet)
        }
        5..=6 => {
            let answer = forebay_dequeue(queue, now, &mut departure, &mut wait);
            assert!(answer != WAIT || wait > made.last.min(now));
            answer
        }
        7 => {
            let answer = forebay_handle_timeout(queue, now);
            assert!(answer != OK || forebay_next_timeout(queue) > now.min(made.last));
            answer
        }
        8 => {
            while forebay_next_lost(queue, &mut loss) == OK {
                assert!((1..=4).contains(&loss.why));
            }
            OK
        }
        9 => {
            let mut before = Counts::default();
            forebay_count(queue, &mut before);
            let answer = forebay_drain(queue, now);
            made.drained += if answer == OK { before.queued } else { 0 };
            answer
        }
        10 => {
            let (key, value) = input.of(KEYS);
            let (key, value) = (CString::new(*key).unwrap(), CString::new(*value).unwrap());
            let mut error = [0; 40];
            forebay_set(queue, key.as_ptr(), value.as_ptr(), error.as_mut_ptr(), error.len())
        }
        _ => {
            let mut p = 0.0;
            let answer = forebay_probe(queue, c"p".as_ptr(), &mut p);
            assert!(answer != OK || (0.0..=1.0).contains(&p), "p = {p}");
            assert_eq!(forebay_enqueue(queue, now, null()), FAILED);
            assert_eq!(forebay_dequeue(queue, now, null_mut(), null_mut()), FAILED);
            answer
        }
    };
    assert_ne!(answer, FAILED, "{:?}", CStr::from_ptr(forebay_fault(queue)));
    if answer != REFUSED {
        made.last = made.last.max(now.min((1 << 63) - 1));
    }
    check(made);
}

unsafe fn call_network(network: *mut CNetwork, last: &mut u64, input: &mut Input) {
    let now = input.time(*last);
    let packet = CDatagram {
        handle: input.number(),
        flow: u32::from(input.byte() % 3),
        bytes: input.size(),
        end: input.byte() % 3,
        ecn: input.byte() % 5,
    };
    let mut event = CEvent::default();
    match input.byte() % 4 {
        0..=1 => {
            let mut error = [0; 40];
            let answer = forebay_network_send(network, now, &packet, error.as_mut_ptr(), error.len());
            assert!(answer == OK || answer == NONE && error[0] != 0);
        }
        2 => {
            let answer = forebay_network_poll(network, now, &mut event);
            assert!((TIME..=END).contains(&answer));
            assert!(event.time_ns <= forebay_network_end(network));
            *last = event.time_ns;
        }
        _ => assert!(forebay_network_flows(network) == 2),
    }
    assert!(CStr::from_ptr(forebay_network_fault(network)).is_empty());
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mut queues: Vec<Made> = Vec::new();
    let settings = CNetworkSettings { scenario: SCENARIO.as_ptr(), law: null(), sets: null(), seed: 1 };
    let (mut network, mut last): (*mut CNetwork, u64) = (null_mut(), 0);
    for _ in 0..MOST_CALLS {
        if input.0.is_empty() {
            break;
        }
        let choice = input.byte();
        // SAFETY: every pointer is one that the library has given and that has not been freed.
        unsafe {
            match choice % 32 {
                0 if queues.len() < 3 => queues.extend(make(&mut input)),
                1 => {
                    if let Some(made) = queues.pop() {
                        forebay_free(made.queue);
                    }
                }
                2 if network.is_null() => network = forebay_network_new(&settings, null_mut(), 0),
                3..=6 if !network.is_null() => call_network(network, &mut last, &mut input),
                7 if !network.is_null() => {
                    assert_eq!(forebay_network_finish(network), OK);
                    forebay_network_free(network);
                    (network, last) = (null_mut(), 0);
                }
                _ => {
                    let number = usize::from(choice) % queues.len().max(1);
                    match queues.get_mut(number) {
                        Some(made) => call(made, &mut input),
                        None => queues.extend(make(&mut input)),
                    }
                }
            }
        }
    }
    for made in queues {
        unsafe { forebay_free(made.queue) };
    }
    unsafe { forebay_network_free(network) };
});
