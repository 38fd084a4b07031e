//! The scenarios of RFC 7928, for a transport under test: their bulk flows are the caller's.

macro_rules! scenario {
    ($name:literal) => {
        ($name, include_str!(concat!("../rfc7928/", $name, ".toml")))
    };
}

/// Name and text of each. The names begin with the section; external traffic has the label
/// "external". Each has DropTail as its law, which [`Options::laws`](crate::Options::laws) replaces.
pub const SCENARIOS: &[(&str, &str)] = &[
    scenario!("4-5-ecn"),
    scenario!("4-5-l4s"),
    scenario!("5-1-friendly"),
    scenario!("5-1-windows"),
    scenario!("5-2-aggressive"),
    scenario!("5-3-unresponsive"),
    scenario!("5-4-background"),
    scenario!("6-rtt-fairness-5ms"),
    scenario!("6-rtt-fairness-20ms"),
    scenario!("6-rtt-fairness-100ms"),
    scenario!("6-rtt-fairness-250ms"),
    scenario!("6-rtt-fairness-560ms"),
    scenario!("7-1-web"),
    scenario!("7-2-frames"),
    scenario!("7-3-bursts"),
    scenario!("8-1-mild"),
    scenario!("8-2-medium"),
    scenario!("8-3-heavy"),
    scenario!("8-5-capacity"),
    scenario!("9-1-mix"),
    scenario!("9-2-two-ways"),
];
