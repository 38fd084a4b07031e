//! Comparison of the network of `forebay.h` with that of `forebay-net`, event by event.

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

/// Makes a network from these texts, or returns the error.
fn new_network(
    scenario: *const c_char,
    law: Option<&str>,
    sets: &[&str],
) -> Result<*mut CNetwork, String> {
    let texts = |text: &&str| CString::new(*text).unwrap();
    let law = law.as_ref().map(texts);
    let sets: Vec<CString> = sets.iter().map(texts).collect();
    let mut list: Vec<*const c_char> = sets.iter().map(|text| text.as_ptr()).collect();
    list.push(null());
    let settings = CNetworkSettings {
        scenario,
        law: law.as_ref().map_or(null(), |text| text.as_ptr()),
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

/// Sends a packet each millisecond over the C interface, answers each that arrives, and returns
/// every event as text.
fn through_c(law: &str) -> Vec<String> {
    let network =
        new_network(SCENARIO.as_ptr(), Some(law), &["bottleneck.rate = 8Mbit/s"]).unwrap();
    let mut events = Vec::new();
    let (mut next, mut handle) = (0, 0);
    let mut event = CEvent::default();
    // SAFETY: the network is used here alone, and freed once.
    unsafe {
        loop {
            let kind = forebay_network_poll(network, next, &mut event);
            let send = |now, packet: CDatagram| {
                assert_eq!(
                    forebay_network_send(network, now, &packet, null_mut(), 0),
                    OK
                );
            };
            match kind {
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
                _ => events.push(format!("{kind} {event:?}")),
            }
            if kind == DELIVERED && event.end == 1 {
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

/// Does the same as [`through_c`] over the Rust interface.
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
        let c = |at: Time, payload: Handle, flow, end: End| CEvent {
            time_ns: at.as_nanos(),
            handle: payload.number,
            flow,
            bytes: payload.length as u32,
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
            Event::Delivered(packet) => {
                let event = CEvent {
                    ecn: packet.ecn as u8,
                    ..c(packet.at, packet.payload, packet.flow, packet.to)
                };
                events.push(format!("{DELIVERED} {event:?}"));
                if packet.to == End::Sink {
                    let payload = Handle {
                        length: 40,
                        ..packet.payload
                    };
                    network
                        .send(packet.flow, End::Sink, packet.at, payload, Ecn::NotEct)
                        .unwrap();
                }
            }
            Event::Lost(packet) => {
                use forebay_net::{DropReason, Loss};
                let why = match packet.why {
                    Loss::Queue(DropReason::Early) => 1,
                    Loss::Queue(DropReason::Forced) => 2,
                    Loss::Queue(DropReason::Overflow) => 3,
                    Loss::Random => 5,
                };
                let event = CEvent {
                    why,
                    ..c(packet.at, packet.payload, packet.flow, packet.from)
                };
                events.push(format!("{LOST} {event:?}"));
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
fn c_and_rust_get_the_same_events() {
    for law in ["droptail", "pie", "fq-codel", "dualpi2"] {
        let events = through_c(law);
        assert!(events.len() > 5000, "{law}");
        assert!(events
            .iter()
            .any(|event| event.starts_with("2 ") && event.contains("why: 5")));
        assert_eq!(events, through_rust(law), "{law}");
    }
}

#[test]
fn errors_are_one_line() {
    let scenario = SCENARIO.as_ptr();
    for (result, expected) in [
        (
            new_network(null(), None, &[]),
            "scenario: missing; expected a text in UTF-8",
        ),
        (
            new_network(c"duration = 1".as_ptr(), None, &[]),
            "scenario: bottleneck: missing; expected the table [bottleneck]",
        ),
        (
            new_network(scenario, Some("pia"), &[]),
            "--law: \"pia\" is not valid; expected one of droptail, ",
        ),
        (
            new_network(scenario, None, &["flows"]),
            "sets: \"flows\" is not valid; expected KEY=VALUE",
        ),
    ] {
        let line = result.unwrap_err();
        assert!(line.starts_with(expected) && !line.contains('\n'), "{line}");
    }
    let network = new_network(scenario, None, &[]).unwrap();
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
        let message = "packet: 1501 B is not valid; expected a size from 1 B to 1500 B, ";
        assert!(line.starts_with(message), "{line}");
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
            forebay_network_free(new_network(text, None, &[]).unwrap());
            number += 1;
        }
    }
    assert_eq!(number, forebay_net::rfc7928::SCENARIOS.len());
}
