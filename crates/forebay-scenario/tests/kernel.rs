//! `[kernel]`: its keys, and what is wrong with them, in one line.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use forebay_scenario::{parse, KernelSettings, Offloads, Options, Shaper};

const FILE: &str = "duration = \"20s\"\n[bottleneck]\nrate = \"10Mbit/s\"\nbuffer = \"9p\"\n\
                    [[traffic]]\nkind = \"ftp\"\nflows = 1\nrtt = \"9ms\"\n[[law]]\nkind = \"droptail\"\n";

fn read(more: &str) -> Result<KernelSettings, String> {
    let text = format!("{FILE}{more}");
    let read = parse(text.as_bytes(), "test", &Options::default());
    let read = read.map_err(|error| error.to_string())?;
    Ok(read.points[0].scenario.kernel.clone())
}

#[test]
fn names_of_settings_are_the_same_with_and_without_quotes() {
    let wanted = [("net.ipv4.tcp_sack".to_owned(), "0".to_owned())];
    let quoted = read("[kernel]\nsysctls = { \"net.ipv4.tcp_sack\" = 0 }\n").unwrap();
    let nested = read("[kernel.sysctls]\nnet.ipv4.tcp_sack = \"0\"\n").unwrap();
    assert_eq!(quoted.sysctls, wanted);
    assert_eq!(nested, quoted);
    assert!(!read("").unwrap().given);
}

#[test]
fn a_wrong_key_of_the_kernel_is_one_line() {
    for (more, line) in [
        (
            "speed = 1",
            "kernel.speed: unknown key; expected one of tcp, offloads, shaper, sysctls, pcap",
        ),
        (
            "tcp = \"a b\"",
            "kernel.tcp: \"a b\" is not valid; expected a name of 1 to 15 lower-case letters, \
             digits, \"_\" and \"-\"",
        ),
        (
            "sysctls = { \"kernel.panic\" = 1 }",
            "kernel.sysctls: { kernel.panic = 1 } is not valid; expected a sysctl below net, such as \
             \"net.ipv4.tcp_rmem\", in place of \"kernel.panic\"",
        ),
        (
            "sysctls = { \"net.../x\" = 1 }",
            "kernel.sysctls: { net.../x = 1 } is not valid; expected a sysctl below net, such as \
             \"net.ipv4.tcp_rmem\", in place of \"net.../x\"",
        ),
        (
            "shaper = \"hfsc\"",
            "kernel.shaper: \"hfsc\" is not valid; expected \"tbf\" or \"htb\"",
        ),
        (
            "offloads = \"some\"",
            "kernel.offloads: \"some\" is not valid; expected true, false or \"all\"",
        ),
        (
            "sysctls = { \"net.core.x\" = true }",
            "kernel.sysctls: { net.core.x = true } is not valid; expected a text or a whole number as \
             the value of \"net.core.x\"",
        ),
    ] {
        let said = read(&format!("[kernel]\n{more}\n")).unwrap_err();
        assert!(said.ends_with(&format!(": {line}")), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_path_leads_to_its_keys() {
    let options = Options {
        sets: vec![("kernel.tcp".to_owned(), "bbr3".to_owned())],
        ..Options::default()
    };
    let text = format!("{FILE}[sweep]\n\"kernel.offloads\" = [false, true, \"all\"]\n");
    let read = parse(text.as_bytes(), "test", &options).unwrap();
    let kernels = read.points.iter().map(|point| &point.scenario.kernel);
    let found: Vec<_> = kernels.map(|it| (it.tcp.as_deref(), it.offloads)).collect();
    let wanted = [Offloads::Off, Offloads::Hosts, Offloads::All];
    assert_eq!(found, wanted.map(|offloads| (Some("bbr3"), offloads)));
}

#[test]
fn a_link_is_held_to_its_rate_by_tbf_or_htb() {
    let shaper = |more: &str| read(more).unwrap().shaper;
    assert_eq!(shaper(""), Shaper::Tbf);
    assert_eq!(shaper("[kernel]\nshaper = \"htb\"\n"), Shaper::Htb);
}
