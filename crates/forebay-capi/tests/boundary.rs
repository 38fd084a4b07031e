//! Calls with numbers at the limits of the interface: each is refused or carried out, with bounded
//! work.

#![allow(unsafe_code, reason = "as a program in C would call it")]

use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};

use forebay::ffi::*;
use forebay::network::{self, forebay_network_new, forebay_network_send};
use forebay::queue::{MOST_BYTES, TIME_END};
use forebay_aqm::disciplines::DISCIPLINES;
use forebay_aqm::laws::LAWS;

/// A time of CLOCK_REALTIME in 2026.
const TODAY_NS: u64 = 1_780_000_000_000_000_000;
const YEAR_NS: u64 = 365 * 86_400 * 1_000_000_000;

/// Makes a queue of this kind, or returns the error.
fn new_queue(
    law: &str,
    queue: Option<&str>,
    rate: &CStr,
    buffer: &CStr,
) -> Result<*mut CQueue, String> {
    let law = CString::new(law).unwrap();
    let queue = queue.map(|queue| CString::new(queue).unwrap());
    let settings = CSettings {
        law: law.as_ptr(),
        params: null(),
        queue: queue.as_ref().map_or(null(), |queue| queue.as_ptr()),
        rate: rate.as_ptr(),
        buffer: buffer.as_ptr(),
        packet: null(),
        seed: 1,
        ecn: 1,
    };
    let mut error = [0; 300];
    // SAFETY: the settings and the error outlive the call.
    let queue = unsafe { forebay_new(&settings, error.as_mut_ptr(), error.len()) };
    if queue.is_null() {
        // SAFETY: the call has written a text.
        let line = unsafe { CStr::from_ptr(error.as_ptr()) };
        return Err(line.to_str().unwrap().to_owned());
    }
    Ok(queue)
}

fn packet(handle: u64, bytes: u32) -> CPacket {
    CPacket {
        handle,
        flow: handle % 7,
        from: 0,
        to: 0,
        bytes,
        ecn: (handle % 4) as u8,
        dscp: (handle % 64) as u8,
        not_tcp: 0,
    }
}

/// Returns every discipline with every law that fits it.
fn queues() -> impl Iterator<Item = (String, *mut CQueue)> {
    DISCIPLINES.iter().flat_map(|queue| {
        LAWS.iter().filter_map(|law| {
            let pointer = new_queue(law.kind, Some(queue.kind), c"20Mbit/s", c"800p").ok()?;
            Some((format!("{} in {}", law.kind, queue.kind), pointer))
        })
    })
}

#[test]
fn the_documented_loop_works_with_clocks_that_count_from_1970_and_sleep_for_a_year() {
    let mut count = 0;
    for (name, queue) in queues() {
        count += 1;
        let (mut departure, mut wait) = (CDeparture::default(), 0);
        // SAFETY: the queue is used here alone, and freed once.
        unsafe {
            assert!(
                [0, u64::MAX].contains(&forebay_next_timeout(queue)),
                "{name}"
            );
            for start in [TODAY_NS, TODAY_NS + YEAR_NS, TODAY_NS + 3 * YEAR_NS] {
                for step in 0..20 {
                    let now = start + step * 1_000_000;
                    let due = forebay_next_timeout(queue);
                    if due <= now {
                        assert_eq!(forebay_handle_timeout(queue, now), OK, "{name}");
                        assert!(forebay_next_timeout(queue) > now, "{name}");
                    }
                    let comes = packet(step, 1000);
                    assert_eq!(forebay_enqueue(queue, now, &comes), OK, "{name}");
                    let answer = forebay_dequeue(queue, now, &mut departure, &mut wait);
                    assert!(answer == OK || answer == NONE, "{name}: {answer}");
                    if answer == OK {
                        assert!(departure.sojourn_ns < 4 * YEAR_NS, "{name}");
                    }
                }
            }
            let mut loss = CLoss::default();
            while forebay_next_lost(queue, &mut loss) == OK {
                assert!(
                    (TODAY_NS..TODAY_NS + 4 * YEAR_NS).contains(&loss.time_ns),
                    "{name}"
                );
            }
            forebay_free(queue);
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn values_out_of_range_are_refused_and_change_nothing() {
    let queue = new_queue("cake", None, c"20Mbit/s", c"800p").unwrap();
    let valid = packet(0, 1000);
    let cases = [
        (0, CPacket { bytes: 0, ..valid }, "bytes: "),
        (
            0,
            CPacket {
                bytes: MOST_BYTES + 1,
                ..valid
            },
            "bytes: ",
        ),
        (
            0,
            CPacket {
                bytes: u32::MAX,
                ..valid
            },
            "bytes: ",
        ),
        (0, CPacket { ecn: 4, ..valid }, "ecn: "),
        (0, CPacket { ecn: 255, ..valid }, "ecn: "),
        (0, CPacket { dscp: 64, ..valid }, "dscp: "),
        (TIME_END.as_nanos(), valid, "now_ns: "),
        (u64::MAX, valid, "now_ns: "),
    ];
    // SAFETY: the queue is used here alone, and freed once.
    unsafe {
        assert!(CStr::from_ptr(forebay_refusal(queue)).is_empty());
        for (now, packet, start) in cases {
            assert_eq!(forebay_enqueue(queue, now, &packet), REFUSED, "{start}");
            let line = CStr::from_ptr(forebay_refusal(queue)).to_str().unwrap();
            assert!(line.starts_with(start), "{line}");
        }
        let late = u64::MAX - 1;
        let mut departure = CDeparture::default();
        assert_eq!(
            forebay_dequeue(queue, late, &mut departure, null_mut()),
            REFUSED
        );
        assert_eq!(forebay_handle_timeout(queue, late), REFUSED);
        assert_eq!(forebay_drain(queue, late), REFUSED);
        let mut counts = forebay::queue::Counts::default();
        assert_eq!(forebay_count(queue, &mut counts), OK);
        assert_eq!(counts, forebay::queue::Counts::default());
        assert!(CStr::from_ptr(forebay_fault(queue)).is_empty());
        // The largest packet at the latest time is accepted and sent.
        let last = TIME_END.as_nanos() - 1;
        let large = CPacket {
            bytes: MOST_BYTES,
            ..valid
        };
        assert_eq!(forebay_enqueue(queue, last, &large), OK);
        assert_eq!(forebay_dequeue(queue, last, &mut departure, null_mut()), OK);
        assert_eq!(departure.bytes, MOST_BYTES);
        forebay_free(queue);
    }
    for rate in [c"0bit/s", c"11Tbit/s", c"9e6Tbit/s"] {
        let line = new_queue("cake", None, rate, c"800p").unwrap_err();
        assert!(line.starts_with("rate: "), "{line}");
    }
}

#[test]
fn large_packets_on_slow_and_fast_links_are_served() {
    for rate in [c"1bit/s", c"10Tbit/s"] {
        for queue in DISCIPLINES {
            let Ok(queue) = new_queue(LAWS[0].kind, Some(queue.kind), rate, c"100p") else {
                continue;
            };
            let (mut departure, mut served) = (CDeparture::default(), 0);
            // SAFETY: the queue is used here alone, and freed once.
            unsafe {
                for handle in 0..20 {
                    assert_eq!(forebay_enqueue(queue, 5, &packet(handle, MOST_BYTES)), OK);
                }
                while forebay_dequeue(queue, 6, &mut departure, null_mut()) == OK {
                    served += 1;
                }
                forebay_free(queue);
            }
            assert_eq!(served, 20);
        }
    }
}

#[test]
fn a_network_refuses_ends_ecn_fields_flows_and_times_that_do_not_exist() {
    let settings = network::CNetworkSettings {
        scenario:
            c"duration = '5s'\n[bottleneck]\nrate = '10Mbit/s'\nbuffer = '60p'\n[[traffic]]\n\
                    kind = 'external'\nflows = 1\nrtt = '30ms'\n[[law]]\nkind = 'pie'\n"
                .as_ptr(),
        law: null(),
        sets: null(),
        seed: 1,
    };
    let valid = network::CDatagram {
        handle: 1,
        flow: 0,
        bytes: 1000,
        end: 0,
        ecn: 2,
    };
    let cases = [
        (0, network::CDatagram { end: 2, ..valid }, "end: "),
        (0, network::CDatagram { end: 255, ..valid }, "end: "),
        (0, network::CDatagram { ecn: 4, ..valid }, "ecn: "),
        (0, network::CDatagram { flow: 1, ..valid }, "flow: "),
        (0, network::CDatagram { bytes: 0, ..valid }, ""),
        (
            0,
            network::CDatagram {
                bytes: u32::MAX,
                ..valid
            },
            "packet: ",
        ),
        (5_000_000_001, valid, "now: "),
        (u64::MAX, valid, "now: "),
    ];
    // SAFETY: all of it outlives the calls, and the network is freed once.
    unsafe {
        let network = forebay_network_new(&settings, null_mut(), 0);
        for (now, packet, start) in cases {
            let mut error = [0; 200];
            let answer =
                forebay_network_send(network, now, &packet, error.as_mut_ptr(), error.len());
            let line = CStr::from_ptr(error.as_ptr()).to_str().unwrap();
            match start {
                // A packet with an empty payload still has its headers.
                "" => assert_eq!((answer, line), (OK, "")),
                _ => assert_eq!(answer, NONE, "{start}"),
            }
            assert!(line.starts_with(start), "{line}");
        }
        network::forebay_network_free(network);
    }
}
