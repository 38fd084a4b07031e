//! Texts of scenarios, for the tests of several crates.
#![allow(dead_code, reason = "not every test has all")]

/// A scenario with one bottleneck, measured from the first of these seconds to the second, which is
/// its end; `more` are further keys of the bottleneck, then tables.
pub fn one_bottleneck(measure_s: [u32; 2], rate: &str, buffer: &str, more: &str) -> String {
    let [from_s, to_s] = measure_s;
    format!(
        "duration = \"{to_s}s\"\nmeasure = [\"{from_s}s\", \"{to_s}s\"]\n[bottleneck]\n\
         rate = \"{rate}\"\nbuffer = \"{buffer}\"\n{more}"
    )
}

/// A table of TCP flows with endless data; `rtt` is a time as TOML, or a list of them, and `keys` are
/// further keys of the table.
pub fn ftp(flows: u32, rtt: &str, keys: &str) -> String {
    format!("[[traffic]]\nkind = \"ftp\"\nflows = {flows}\nrtt = {rtt}\n{keys}\n")
}
