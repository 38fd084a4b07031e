//! Check that the link and the simulator accept the same laws at the same buffers.

use forebay_aqm::laws::LAWS;
use forebay_link::Settings;
use forebay_scenario::{parse, LinkOptions, Options};
use forebay_units::Value;

/// Returns the error of the simulator for a law with this parameter; `None` where the law is
/// accepted.
fn simulator(law: &str, buffer: &str, set: Option<(&str, &str)>) -> Option<String> {
    let mut text = format!(
        r#"
        duration = "10s"
        [bottleneck]
        rate = "20Mbit/s"
        buffer = "{buffer}"
        [[traffic]]
        kind = "ftp"
        flows = 1
        rtt = "50ms"
        packet = "1500B"
        [[law]]
        kind = "{law}"
        "#
    );
    if let Some((key, value)) = set {
        text += &format!("{key} = \"{value}\"\n");
    }
    let read = parse(text.as_bytes(), "x.toml", &Options::default());
    read.err().map(|error| error.to_string())
}

/// Returns the error of the link for the same law, with packets of at most 1500 bytes.
fn link(law: &str, buffer: &str, set: Option<(&str, &str)>) -> Option<String> {
    let text = |text: &str| Value::Text(text.into());
    let set = set.map(|(key, value)| (key.to_owned(), text(value)));
    let options = [
        ("rate".to_owned(), text("20Mbit/s")),
        ("buffer".to_owned(), text(buffer)),
        ("aqm".to_owned(), text(law)),
        ("set".to_owned(), Value::Table(set.into_iter().collect())),
    ];
    let discipline = LinkOptions::read(&options, &[])
        .and_then(|options| Settings::of(&options))
        .and_then(|settings| settings.up.discipline(settings.mtu, 1, "law"));
    discipline.err().map(|error| error.to_string())
}

#[test]
fn the_simulator_and_the_link_accept_the_same_laws_at_the_same_buffers() {
    let (mut accepted, mut refused) = (0, 0);
    for law in LAWS {
        let has_target = law.params.iter().any(|param| param.name == "target");
        for buffer in ["1p", "40p", "800p", "1kB", "60kB", "1200kB"] {
            for set in [None, Some(("target", "50p"))] {
                if set.is_some() && !has_target {
                    continue;
                }
                let (simulator_error, link_error) = (
                    simulator(law.kind, buffer, set),
                    link(law.kind, buffer, set),
                );
                assert_eq!(
                    simulator_error.is_some(),
                    		    link_error.is_some(),
                    		    "{} at {buffer} with {set:?}: {simulator_error:?} in the simulator, {link_error:?} in the link",
                    law.kind
                );
                match simulator_error {
                    None => accepted += 1,
                    Some(_) => refused += 1,
                }
            }
        }
    }
    // The test would say nothing if all laws were accepted, or all refused.
    assert!(accepted > LAWS.len() && refused > LAWS.len());
}
