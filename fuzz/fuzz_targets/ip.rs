//! No packet makes the parser panic, and a CE mark changes only what it may.
#![no_main]

use forebay_aqm::Ecn;
use forebay_packets::ip::{set_ce, Headers};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|packet: &[u8]| {
    let mut marked = packet.to_vec();
    set_ce(&mut marked);
    match Headers::read(packet) {
        Some(headers) if headers.class.ecn() != Ecn::NotEct => {
            let after = Headers::read(&marked).expect("it was sound before");
            let mut class = headers.class;
            class.set_ecn(Ecn::Ce);
            assert_eq!(after, Headers { class, ..headers });
            // The ECN field, and the checksum of IPv4.
            let changed = |at: &usize| marked[*at] != packet[*at];
            assert!((0..packet.len()).filter(changed).all(|at| at == 1 || at == 10 || at == 11));
        }
        _ => assert_eq!(marked, packet),
    }
    if let Some(headers) = Headers::read(packet) {
        assert!(headers.bytes as usize <= packet.len());
        assert!(headers.payload_bytes() <= headers.bytes);
        assert_eq!(headers.flow.mixed(), headers.flow.reversed().mixed());
    }
});
