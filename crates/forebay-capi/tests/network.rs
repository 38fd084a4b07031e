//! The network of `forebay.h` gives what that of `forebay-net` gives, event by event.

#![allow(unsafe_code, reason = "as a program in C would call it")]

use std::ffi::{c_char, CStr, CString};
use std::ptr::{null, null_mut};

use forebay::ffi::{FAILED, NONE, OK};
use forebay::network::*;
use forebay_net::{Ecn, End, Event, Handle, Network, Options, Span, Time};

const SCENARIO: &CStr = c"
    duration = '5s'
    [bottleneck]
    rate   = '10Mbit/s'
    buffer = '60p'
    [[traffic]]
    kind  = 'ftp'
    flows = 5
    rtt   = '40ms'
    [[traffic]]
    kind  = 'external'
    flows = 2
    rtt   = '30ms'
    loss  = '1%'
    [[law]]
    kind = 'droptail'
";

/// A network from these texts, or the error.
fn made(
    scenario: *const c_char,
    law: Option<&str>,
    sets: &[&str],
) -> Result<*mut CNetwork, String> {
    let texts = |text: &&str| CString::new(*text).unwrap();
    let law = law.as_ref().map(texts);
    let sets: Vec<CString> = sets.iter().map(texts).collect();
    let mut list: Vec<*const c_char> = sets.iter().map(|it| it.as_ptr()).collect();
    list.push(null());
    let settings = CNetworkSettings {
        scenario,
        law: law.as_ref().map_or(null(), |it| it.as_ptr()),
        sets: list.as_ptr(),
        seed: 3,
    };
    let mut error = [1; 300];
    // SAFETY: all of it outlives the call.
    let network = unsafe { forebay_network_new(&settings, error.as_mut_ptr(), error.len()) };
    if network.is_null() {
        // SAFETY: the call has written a text.
        let line = unsafe { CStr::from_ptr(error.as_ptr()) };
        return Err(line.to_str().unwrap().to_owned());
    }
    Ok(network)
}

/// Sends a packet each millisecond, and answers each that arrives; every event in words.
fn through_c(law: &str) -> Vec<String> {
    let network = made(SCENARIO.as_ptr(), Some(law), &["bottleneck.rate = 8Mbit/s"]).unwrap();
    let mut events = Vec::new();
    let (mut next, mut handle) = (0, 0);
    let mut event = CEvent::default();
    // SAFETY: the network is used here alone, and freed once.
    unsafe {
        loop {
            let found = forebay_network_poll(network, next, &mut event);
            let send = |now, packet: CDatagram| {
                assert_eq!(
                    forebay_network_send(network, now, &packet, null_mut(), 0),
                    OK
                );
            };
            match found {
                TIME => {
                    let (flow, ecn) = (handle as u32 % 2, 2);
                    send(
                        next,
                        CDatagram {
                            handle,
                            flow,
                            bytes: 1200,
                            end: 0,
                            ecn,
                        },
                    );
                    (next, handle) = (next + 1_000_000, handle + 1);
                }
                END => break,
                _ => events.push(format!("{found} {event:?}")),
            }
            if found == DELIVERED && event.end == 1 {
                let packet = CDatagram {
                    handle: event.handle,
                    flow: event.flow,
                    bytes: 40,
                    end: 1,
                    ecn: 0,
                };
                send(event.time_ns, packet);
            }
        }
        assert_eq!(forebay_network_finish(network), OK);
        assert_eq!(forebay_network_finish(network), OK);
        assert_eq!(forebay_network_poll(network, next, &mut event), FAILED);
        for (traffic, name) in [(None, c"utilisation"), (Some(c"external"), c"goodput_bps")] {
            let traffic = traffic.map_or(null(), CStr::as_ptr);
            let mut value = 0.0;
            assert_eq!(
                forebay_network_metric(network, traffic, name.as_ptr(), &mut value),
                OK
            );
            events.push(format!("{name:?} {value}"));
        }
        let none = forebay_network_metric(network, null(), c"nothing".as_ptr(), &mut 0.0);
        assert_eq!(none, NONE);
        assert!(CStr::from_ptr(forebay_network_fault(network)).is_empty());
        forebay_network_free(network);
    }
    events
}

/// The same in Rust.
fn through_rust(law: &str) -> Vec<String> {
    let options = Options {
        laws: vec![law.to_owned()],
        sets: vec![("bottleneck.rate".to_owned(), "8Mbit/s".to_owned())],
        ..Options::default()
    };
    let scenario = SCENARIO.to_str().unwrap();
    let mut network = Network::<Handle>::with_options(scenario, &options, 3).unwrap();
    let mut events = Vec::new();
    let (mut next, mut number) = (Time::ZERO, 0);
    loop {
        let event = network.poll(next);
        let c = |at: Time, of: Handle, flow, end: End| CEvent {
            time_ns: at.as_nanos(),
            handle: of.number,
            flow,
            bytes: of.length as u32,
            end: u8::from(end == End::Sink),
            ..CEvent::default()
        };
        match event {
            Event::Time(_) => {
                let payload = Handle {
                    number,
                    length: 1200,
                };
                let flow = number as u32 % 2;
                network
                    .send(flow, End::Source, next, payload, Ecn::Ect0)
                    .unwrap();
                (next, number) = (next + Span::from_millis(1), number + 1);
            }
            Event::End(_) => break,
            Event::Delivered(it) => {
                let seen = CEvent {
                    ecn: it.ecn as u8,
                    ..c(it.at, it.payload, it.flow, it.to)
                };
                events.push(format!("{DELIVERED} {seen:?}"));
                if it.to == End::Sink {
                    let payload = Handle {
                        length: 40,
                        ..it.payload
                    };
                    network
                        .send(it.flow, End::Sink, it.at, payload, Ecn::NotEct)
                        .unwrap();
                }
            }
            Event::Lost(it) => {
                use forebay_net::{DropReason, Loss};
                let why = match it.why {
                    Loss::Queue(DropReason::Early) => 1,
                    Loss::Queue(DropReason::Forced) => 2,
                    Loss::Queue(DropReason::Overflow) => 3,
                    Loss::Random => 5,
                };
                let seen = CEvent {
                    why,
                    ..c(it.at, it.payload, it.flow, it.from)
                };
                events.push(format!("{LOST} {seen:?}"));
            }
        }
    }
    let report = network.finish();
    events.push(format!(
        "{:?} {}",
        c"utilisation",
        report.metric("utilisation").unwrap()
    ));
    let goodput = report.traffic_metric("external", "goodput_bps").unwrap();
    events.push(format!("{:?} {goodput}", c"goodput_bps"));
    events
}

#[test]
fn c_sees_the_events_that_rust_sees() {
    for law in ["droptail", "pie", "fq-codel", "dualpi2"] {
        let events = through_c(law);
        assert!(events.len() > 5000, "{law}");
        assert!(events
            .iter()
            .any(|it| it.starts_with("2 ") && it.contains("why: 5")));
        assert_eq!(events, through_rust(law), "{law}");
    }
}

#[test]
fn what_is_wrong_is_a_line() {
    let scenario = SCENARIO.as_ptr();
    for (made, want) in [
        (
            made(null(), None, &[]),
            "scenario: found nothing, allowed: a text in UTF-8",
        ),
        (
            made(c"duration = 1".as_ptr(), None, &[]),
            "scenario: bottleneck: found nothing, allowed: ",
        ),
        (
            made(scenario, Some("pia"), &[]),
            "--law: found \"pia\", allowed: ",
        ),
        (
            made(scenario, None, &["flows"]),
            "sets: found \"flows\", allowed: KEY=VALUE",
        ),
    ] {
        let line = made.unwrap_err();
        assert!(line.starts_with(want) && !line.contains('\n'), "{line}");
    }
    let network = made(scenario, None, &[]).unwrap();
    let mut error = [0; 100];
    let packet = CDatagram {
        handle: 1,
        flow: 0,
        bytes: 1473,
        end: 0,
        ecn: 0,
    };
    // SAFETY: null is allowed everywhere, and the rest outlives the calls.
    unsafe {
        assert_eq!(forebay_network_flows(network), 2);
        assert_eq!(forebay_network_most_bytes(network, 1), 1472);
        assert_eq!(forebay_network_most_bytes(network, 2), 0);
        assert_eq!(forebay_network_end(network), 5_000_000_000);
        assert_eq!(
            forebay_network_send(network, 0, &packet, error.as_mut_ptr(), 100),
            NONE
        );
        let line = CStr::from_ptr(error.as_ptr()).to_str().unwrap();
        assert!(
            line.starts_with("packet: found 1501 B, allowed: 1 B to 1500 B"),
            "{line}"
        );
        assert_eq!(
            forebay_network_send(network, 0, null(), null_mut(), 0),
            FAILED
        );
        assert_eq!(forebay_network_poll(network, 0, null_mut()), FAILED);
        assert_eq!(
            forebay_network_poll(null_mut(), 0, &mut CEvent::default()),
            FAILED
        );
        assert_eq!(forebay_network_finish(null_mut()), FAILED);
        let early = forebay_network_metric(network, null(), c"jain".as_ptr(), &mut 0.0);
        assert_eq!(early, FAILED);
        assert_eq!(forebay_network_flows(null()), 0);
        assert!(!CStr::from_ptr(forebay_network_fault(null())).is_empty());
        forebay_network_free(null_mut());
        forebay_network_free(network);
    }
}

#[test]
fn every_scenario_of_rfc_7928_makes_a_network() {
    let mut name = null();
    let mut number = 0;
    // SAFETY: texts live as long as the library.
    unsafe {
        loop {
            let text = forebay_network_rfc7928(number, &mut name);
            if text.is_null() {
                break;
            }
            assert!(CStr::from_ptr(name).to_str().unwrap().contains('-'));
            forebay_network_free(made(text, None, &[]).unwrap());
            number += 1;
        }
    }
    assert_eq!(number, forebay_net::rfc7928::SCENARIOS.len());
}
