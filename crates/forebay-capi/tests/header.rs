//! Check that the header and the library have the same functions, structures and numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_char, CStr, CString};
use std::ptr::{null, null_mut};

use forebay::ffi::{self, *};
use forebay::network;

const HEADER: &str = include_str!("../include/forebay.h");
const CODE: &str = concat!(
    include_str!("../src/ffi.rs"),
    include_str!("../src/network.rs"),
    include_str!("../src/queue.rs")
);

/// Returns the number of parameters of each function whose name follows `before` in the text.
fn functions(text: &str, before: &str) -> BTreeMap<String, usize> {
    let starts = text.match_indices(before);
    let counts = starts.filter_map(|(at, _)| {
        let rest = &text[at + before.len() - "forebay_".len()..];
        let (name, rest) = rest.split_once('(')?;
        let (params, _) = rest.split_once(')')?;
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let params = params.split(',').map(str::trim);
        let count = params
            .filter(|param| !param.is_empty() && *param != "void")
            .count();
        plain.then(|| (name.to_owned(), count))
    });
    counts.collect()
}

/// Returns the header without its comments.
fn declarations() -> String {
    let parts = HEADER.split("/*").map(|part| match part.split_once("*/") {
        Some((_, code)) => code,
        None => part,
    });
    parts.collect()
}

#[test]
fn the_header_declares_every_function_with_its_parameters() {
    let declared = functions(&declarations(), "forebay_");
    let exported = functions(CODE, "extern \"C\" fn forebay_");
    assert!(exported.len() > 15);
    assert_eq!(declared, exported);
}

#[test]
fn the_header_names_each_field_of_each_struct_in_order() {
    let fields_c = |name: &str| -> Vec<String> {
        let code = declarations();
        let start = code.find(&format!("typedef struct {name} {{")).unwrap();
        let body = code[start..].split_once('{').unwrap().1;
        let lines = body.split_once('}').unwrap().0.split(';');
        let last = |line: &str| Some(line.split(['*', ' ']).next_back()?.trim().to_owned());
        let fields = lines.filter_map(|line| last(line.trim()));
        fields.filter(|field| !field.is_empty()).collect()
    };
    let fields_rust = |name: &str| -> Vec<String> {
        let start = CODE.find(&format!("pub struct {name} {{")).unwrap();
        let body = CODE[start..].split_once('{').unwrap().1;
        let lines = body.split_once('}').unwrap().0.lines();
        let field = |line: &str| {
            line.trim()
                .strip_prefix("pub ")?
                .split(':')
                .next()
                .map(Into::into)
        };
        lines.filter_map(field).collect()
    };
    for (c, rust) in [
        ("forebay_settings", "CSettings"),
        ("forebay_packet", "CPacket"),
        ("forebay_departure", "CDeparture"),
        ("forebay_loss", "CLoss"),
        ("forebay_counts", "Counts"),
        ("forebay_network_settings", "CNetworkSettings"),
        ("forebay_datagram", "CDatagram"),
        ("forebay_event", "CEvent"),
    ] {
        assert!(fields_c(c).len() >= 4, "{c}");
        assert_eq!(fields_c(c), fields_rust(rust), "{c}");
    }
}

#[test]
fn the_header_and_the_library_have_the_same_numbers() {
    let number = |name: &str| -> i64 {
        let code = declarations();
        let at = code.find(name).unwrap_or_else(|| panic!("no {name}"));
        let digits = code[at + name.len()..].trim_start_matches([' ', '=']);
        let end = digits.find(|c: char| c != '-' && !c.is_ascii_digit());
        digits[..end.unwrap()].parse().unwrap()
    };
    for (name, expected) in [
        ("FOREBAY_REFUSED", ffi::REFUSED),
        ("FOREBAY_FAILED", ffi::FAILED),
        ("FOREBAY_NONE", ffi::NONE),
        ("FOREBAY_OK", ffi::OK),
        ("FOREBAY_WAIT", ffi::WAIT),
        ("FOREBAY_TIME", network::TIME),
        ("FOREBAY_DELIVERED", network::DELIVERED),
        ("FOREBAY_LOST", network::LOST),
        ("FOREBAY_END", network::END),
    ] {
        assert_eq!(number(name), i64::from(expected), "{name}");
    }
    assert_eq!(number("define FOREBAY_ABI"), i64::from(forebay_abi()));
    let build = include_str!("../build.rs");
    assert!(build.contains(&format!("libforebay.so.{}\"", forebay_abi())));
}

/// Makes a queue from these texts, or returns the error.
#[allow(unsafe_code, reason = "as a program in C would call it")]
fn new_queue(law: &str, params: &[&str], buffer: &str) -> Result<*mut CQueue, String> {
    let text = |text: &str| CString::new(text).unwrap();
    let (law, rate, buffer) = (text(law), text("10Mbit/s"), text(buffer));
    let params: Vec<CString> = params.iter().map(|param| text(param)).collect();
    let mut list: Vec<*const c_char> = params.iter().map(|param| param.as_ptr()).collect();
    list.push(null());
    let settings = CSettings {
        law: law.as_ptr(),
        params: list.as_ptr(),
        queue: null(),
        rate: rate.as_ptr(),
        buffer: buffer.as_ptr(),
        packet: null(),
        seed: 1,
        ecn: 1,
    };
    let mut error = [1; 200];
    // SAFETY: all of it outlives the call.
    let queue = unsafe { forebay_new(&settings, error.as_mut_ptr(), error.len()) };
    if queue.is_null() {
        // SAFETY: the call has written a text.
        let line = unsafe { CStr::from_ptr(error.as_ptr()) };
        return Err(line.to_str().unwrap().to_owned());
    }
    Ok(queue)
}

#[test]
fn a_wrong_setting_is_an_error_of_one_line() {
    for (law, params, buffer, expected) in [
        (
            "pia",
            vec![],
            "100p",
            "law: \"pia\" is not valid; expected one of droptail, red, pi, ",
        ),
        (
            "pi",
            vec!["targt=20p"],
            "100p",
            "targt: unknown key; expected one of target, a, b, interval, queue_in_bytes (did you \
             mean \"target\"?)",
        ),
        (
            "pi",
            vec!["target=500p"],
            "100p",
            "target: \"500p\" is not valid; expected at most the buffer, \"100p\"",
        ),
        (
            "pi",
            vec!["target"],
            "100p",
            "params: \"target\" is not valid; expected KEY=VALUE, such as target=15ms",
        ),
        (
            "pi",
            vec![],
            "much",
            "buffer: \"much\" is not valid; expected a whole number of packets, ",
        ),
        (
            "pi",
            vec![],
            "1B",
            "buffer: \"1B\" is not valid; expected at least \"1500B\", the size of the largest ",
        ),
    ] {
        let line = new_queue(law, &params, buffer).unwrap_err();
        assert!(line.starts_with(expected), "{line}");
        assert!(!line.contains('\n'));
    }
}

#[test]
#[allow(unsafe_code, reason = "as a program in C would call it")]
fn null_pointers_and_keys_that_cannot_change_are_answered() {
    let queue = new_queue("pi", &["target=20p"], "100p").unwrap();
    let set = |key: &str, value: &str| {
        let (key, value) = (CString::new(key).unwrap(), CString::new(value).unwrap());
        let mut error = [0; 20];
        // SAFETY: the texts outlive the call.
        let answer =
            unsafe { forebay_set(queue, key.as_ptr(), value.as_ptr(), error.as_mut_ptr(), 20) };
        // SAFETY: as above.
        let line = unsafe { CStr::from_ptr(error.as_ptr()) };
        (answer, line.to_str().unwrap().to_owned())
    };
    for (key, value) in [
        ("target", "30p"),
        ("target", "10ms"),
        ("rate", "5Mbit/s"),
        ("buffer", "64kB"),
    ] {
        assert_eq!(set(key, value), (OK, String::new()), "{key}");
    }
    // The error is cut to nineteen characters and a zero.
    assert_eq!(set("a", "1e-4"), (NONE, "a: the key cannot c".to_owned()));
    assert_eq!(set("target", "900p").0, NONE);
    assert_eq!(set("rate", "0bit/s").0, NONE);
    // SAFETY: null is allowed everywhere.
    unsafe {
        assert_eq!(forebay_enqueue(queue, 0, null()), FAILED);
        assert_eq!(
            forebay_dequeue(null_mut(), 0, null_mut(), null_mut()),
            FAILED
        );
        assert_eq!(forebay_next_timeout(null()), u64::MAX);
        assert_eq!(forebay_probe(queue, c"nothing".as_ptr(), &mut 0.0), NONE);
        let mut p = -1.0;
        assert_eq!(forebay_probe(queue, c"p".as_ptr(), &mut p), OK);
        assert_eq!(p, 0.0);
        assert!(forebay_new(null(), null_mut(), 0).is_null());
        assert!(CStr::from_ptr(forebay_fault(queue)).is_empty());
        forebay_free(null_mut());
        forebay_free(queue);
    }
}

#[test]
#[allow(unsafe_code, reason = "as a program in C would call it")]
fn the_names_are_those_of_the_registries() {
    let all = |name: extern "C" fn(usize) -> *const c_char| -> BTreeSet<String> {
        let names = (0..)
            .map(|number| name(number))
            .take_while(|name| !name.is_null());
        // SAFETY: a name that is not null is a text.
        let text = |name| unsafe { CStr::from_ptr(name) }.to_str().unwrap().to_owned();
        names.map(text).collect()
    };
    let laws = forebay_aqm::laws::LAWS
        .iter()
        .map(|law| law.kind.to_owned());
    assert_eq!(all(forebay_law_name), laws.collect());
    assert!(all(forebay_queue_name).contains("fifo"));
}
