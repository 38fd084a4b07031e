//! The JSON Schema and the table of keys say what the parser does.

use forebay_scenario::{keys, parse, schema, Options};
use serde_json::Value as Json;

fn validator() -> jsonschema::Validator {
    let schema: Json = serde_json::from_str(&schema()).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

/// A scenario as an editor sees it.
fn json(text: &str) -> Json {
    fn convert(value: &toml::de::DeValue) -> Json {
        use toml::de::DeValue::*;
        match value {
            String(text) => text.as_ref().into(),
            Integer(digits) => digits.as_str().parse::<i64>().unwrap().into(),
            Float(digits) => digits.as_str().parse::<f64>().unwrap().into(),
            Boolean(flag) => (*flag).into(),
            Datetime(date) => date.to_string().into(),
            Array(items) => items.iter().map(|item| convert(item.get_ref())).collect(),
            Table(table) => table_to_json(table),
        }
    }
    fn table_to_json(table: &toml::de::DeTable) -> Json {
        let entry = |(key, value): (&toml::Spanned<std::borrow::Cow<str>>, &toml::Spanned<_>)| {
            (key.get_ref().to_string(), convert(value.get_ref()))
        };
        Json::Object(table.iter().map(entry).collect())
    }
    table_to_json(toml::de::DeTable::parse(text).unwrap().get_ref())
}

#[test]
fn good_scenarios_are_valid() {
    let validator = validator();
    for text in [
        include_str!("good/constant.toml"),
        include_str!("good/loads.toml"),
        include_str!("good/network.toml"),
    ] {
        let errors: Vec<_> = validator
            .iter_errors(&json(text))
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
}

#[test]
fn shapes_that_the_parser_refuses_are_invalid() {
    let validator = validator();
    let good = include_str!("good/constant.toml");
    for (from, to) in [
        ("duration = \"100s\"", "duration = 100"),
        ("duration = \"100s\"", "duration = \"100 miles\""),
        ("duration = \"100s\"", "durations = \"100s\""),
        ("seeds    = 5", "seeds = \"5\""),
        ("buffer = \"1125p\"", "buffer = 1125"),
        ("access =", "pairs = 0\naccess ="),
        ("flows  = 100", "on = \"1s\""),
        ("tcp    = \"reno\"", "tcp = \"tahoe\""),
        ("uniform", "normal"),
        ("max_p = 0.01", "max_p = 2.0"),
        ("kind = \"red\"", "kind = \"rde\""),
        ("[100, 2000]", "[]"),
        ("\"bottleneck.rate\" =", "\"bottleneck.ecn\" ="),
        ("time = \"60s\"", ""),
    ] {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        let refused = parse(text.as_bytes(), "x.toml", &Options::default()).is_err();
        assert!(refused, "the parser takes {to}");
        assert!(!validator.is_valid(&json(&text)), "the schema takes {to}");
    }
}

#[test]
fn defaults_and_docs_are_told() {
    let schema: Json = serde_json::from_str(&schema()).unwrap();
    let sample = &schema["properties"]["sample"];
    assert_eq!(sample["default"], "10ms");
    let description = sample["description"].as_str().unwrap();
    assert!(
        description.starts_with("Time between two samples"),
        "{description}"
    );
    assert!(
        description.contains("Range: 0.000001s to 10000s."),
        "{description}"
    );
}

#[test]
fn the_table_of_keys_is_whole() {
    let keys = keys();
    let key = |section: &str, name: &str| {
        let found = |key: &&forebay_scenario::KeyDoc| key.section == section && key.name == name;
        keys.iter()
            .find(found)
            .unwrap_or_else(|| panic!("{section} {name}"))
    };
    let rate = key("bottleneck", "rate");
    assert!(rate.required && rate.default.is_none() && rate.unit == "bit/s");
    assert_eq!(rate.range, Some((1.0, 1e12)));
    let min_rto = key("traffic (mice)", "min_rto");
    assert_eq!(min_rto.default.as_deref(), Some("\"200ms\""));
    assert_eq!(key("bottleneck", "ecn").range, None);
    assert_eq!(key("", "title").default, None);
    for key in &keys {
        assert!(
            key.doc.ends_with('.') && !key.expected.is_empty(),
            "{key:?}"
        );
    }
}
