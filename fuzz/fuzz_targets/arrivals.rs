//! No file of packets makes the parser panic; packets are in order, and every error is one line.
#![no_main]

use forebay_packets::{Arrivals, Selection};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|contents: &[u8]| {
    let selection = Selection {
        source: Vec::new(),
        destination: Vec::new(),
        mtu: 1500,
    };
    match Arrivals::parse(contents, &selection, "file", "fuzz") {
        Ok(found) => {
            assert!(found.packets.windows(2).all(|pair| pair[0].at <= pair[1].at));
            assert!(found.packets.iter().all(|it| it.flow < found.flows && it.bytes <= 1500));
            assert!(found.hosts.is_empty() || found.hosts.len() == found.flows as usize);
        }
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
        }
    }
});
