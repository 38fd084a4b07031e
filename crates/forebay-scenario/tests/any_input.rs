//! No input makes the parser panic, and every error is one line.

use forebay_scenario::{parse, Options};
use proptest::prelude::*;

const SCENARIOS: [&str; 3] = [
    include_str!("good/constant.toml"),
    include_str!("good/loads.toml"),
    include_str!("good/network.toml"),
];

/// Pieces that a scenario is made of, and some that break it.
const PIECES: &[&str] = &[
    "=",
    "\n",
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    ",",
    ".",
    "\"",
    "'",
    "#",
    " ",
    "-",
    "0",
    "1e400",
    "nan",
    "inf",
    "-0.0",
    "9223372036854775807",
    "-9223372036854775808",
    "0x7f",
    "true",
    "1979-05-27",
    "\"1e18s\"",
    "\"1ns\"",
    "\"0s\"",
    "\"1e9p\"",
    "\"1Tbit/s\"",
    "\"1bit/s\"",
    "\"9e18B\"",
    "duration",
    "measure",
    "sample",
    "seeds",
    "target",
    "[bottleneck]",
    "rate",
    "delay",
    "buffer",
    "ecn",
    "[[traffic]]",
    "kind",
    "\"ftp\"",
    "\"mice\"",
    "\"cbr\"",
    "\"web\"",
    "\"pages\"",
    "\"onoff\"",
    "[[link]]",
    "from",
    "to",
    "path",
    "\"R5\"",
    "link.0.rate",
    "\"1..9Mbit/s log 3\"",
    "\"1..9 log\"",
    "points",
    "\"sobol 4\"",
    "flows",
    "packet",
    "rtt",
    "access",
    "pairs",
    "group",
    "start",
    "stop",
    "uniform",
    "window",
    "on",
    "off",
    "[[law]]",
    "label",
    "\"red\"",
    "\"pi\"",
    "interval",
    "[sweep]",
    "[[at]]",
    "time",
    "set",
    "traffic.0.flows",
    "law.0.max_p",
    "bottleneck.rate",
    "é",
    "\u{0}",
    "\r",
    "\u{2028}",
];

fn check(text: &[u8], options: &Options) -> Result<(), TestCaseError> {
    match parse(text, "any.toml", options) {
        Ok(experiment) => {
            prop_assert!(!experiment.points.is_empty() && !experiment.seeds.is_empty());
            for point in &experiment.points {
                prop_assert_eq!(point.laws.len(), experiment.laws.len());
                for law in &point.laws {
                    prop_assert!(law.check(&point.scenario.site()).is_ok());
                }
            }
        }
        Err(error) => {
            let line = error.to_string();
            prop_assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
            prop_assert!(
                line.contains(": ") && line.contains("; expected "),
                "{line}"
            );
        }
    }
    Ok(())
}

/// Cuts, repeats and replaces a part of a scenario, at any byte.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let edit = (any::<usize>(), 0..40usize, prop::sample::select(PIECES));
    let edits = prop::collection::vec(edit, 1..6);
    (prop::sample::select(&SCENARIOS), edits).prop_map(|(scenario, edits)| {
        let mut text = scenario.as_bytes().to_vec();
        for (place, length, piece) in edits {
            let start = place % (text.len() + 1);
            let end = (start + length).min(text.len());
            text.splice(start..end, piece.bytes());
        }
        text
    })
}

/// Replaces a value: the text stays TOML more often.
fn revalued() -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((any::<usize>(), prop::sample::select(PIECES)), 1..4);
    (prop::sample::select(&SCENARIOS), edits).prop_map(|(scenario, edits)| {
        let mut lines: Vec<String> = scenario.lines().map(str::to_owned).collect();
        for (place, piece) in edits {
            let place = place % lines.len();
            if let Some((key, _)) = lines[place].split_once('=') {
                lines[place] = format!("{key}= {piece}");
            }
        }
        lines.join("\n").into_bytes()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes(text in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&text, &Options::default())?;
    }

    #[test]
    fn any_pieces(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        check(pieces.concat().as_bytes(), &Options::default())?;
    }

    #[test]
    fn mutated_scenarios(text in mutated()) {
        check(&text, &Options::default())?;
    }

    #[test]
    fn scenarios_with_other_values(text in revalued()) {
        check(&text, &Options::default())?;
    }

    #[test]
    fn any_options(
        key in "(traffic|law|bottleneck|at|sweep)?[.](0|1|9|red|pi|mice)?[.]?(flows|rtt|kind|label|max_p|rate|.{0,3})",
        value in prop_oneof![prop::sample::select(PIECES).prop_map(str::to_owned), ".{0,12}"],
        law in prop_oneof!["red|pi|Hollot|red 2", ".{0,6}"],
        seeds in any::<Option<u32>>(),
    ) {
        let options = Options {
            sets: vec![(key, value)],
            laws: vec![law],
            seeds: seeds.map(|seeds| seeds % 10),
            ..Options::default()
        };
        check(SCENARIOS[1].as_bytes(), &options)?;
    }
}
