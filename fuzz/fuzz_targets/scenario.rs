//! No scenario makes the parser panic, and every error is one line.
#![no_main]

use forebay_scenario::{parse, Options};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    if let Err(error) = parse(text, "fuzz.toml", &Options::default()) {
        let line = error.to_string();
        assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
    }
});
