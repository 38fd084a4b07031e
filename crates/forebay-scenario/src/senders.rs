//! The senders of TCP that a scenario can name, declared once. Reader, schema, help and tables
//! derive from this list.

use forebay_theory::window_law::WindowLaw;
use forebay_units::{ParamType, Shape, Value};

/// A sender of TCP: a stack, which sends and repairs losses, over a congestion control.
#[derive(Debug, PartialEq, Eq)]
pub struct SenderSpec {
    /// The name of the sender, a value of `tcp`.
    pub name: &'static str,
    /// The sender in a few words.
    pub title: &'static str,
    /// The algorithm of loss recovery.
    pub recovery: &'static str,
    /// The growth of the window.
    pub growth: &'static str,
    /// It reads SACK blocks.
    pub sack: bool,
    /// True if the window grows with the packets acknowledged, and false if it grows with the ACKs.
    pub counts_packets: bool,
    /// True if the sender needs counts of marked packets, also with `ecn = true`.
    pub counts_marks: bool,
    /// True if the sender requests ECN, whatever `ecn` says (Linux's `TCP_CONG_NEEDS_ECN`).
    pub needs_ecn: bool,
    /// True if the receiver acknowledges at once when marks begin and when they end.
    pub echoes_changes: bool,
    /// True if the sender always paces its packets.
    pub paces: bool,
    /// The Linux kernel's name of the congestion control that is most similar to this sender.
    pub kernel: &'static str,
    /// The window's response to marks in linear theory; `None` if linear theory has no model of the
    /// sender.
    pub window_law: Option<WindowLaw>,
}

/// The defaults of the fields that a sender leaves out.
const PLAIN: SenderSpec = SenderSpec {
    name: "",
    title: "",
    recovery: "",
    growth: "",
    sack: false,
    counts_packets: false,
    counts_marks: false,
    needs_ecn: false,
    echoes_changes: false,
    paces: false,
    kernel: "",
    window_law: None,
};

macro_rules! senders {
    ($first:literal { $($fields:tt)* } $($name:literal { $($rest:tt)* })*) => {
        /// Every sender.
        pub const SENDERS: &[SenderSpec] = &[
            SenderSpec { name: $first, $($fields)* ..PLAIN },
            $(SenderSpec { name: $name, $($rest)* ..PLAIN },)*
        ];
        const NAMES: &[&str] = &[$first, $($name),*];
        const EXPECTED: &str = concat!("one of ", $first, $(", ", $name,)*);
    };
}

senders! {
    "reno" {
        title: "TCP Reno",
        recovery: "fast recovery until the first ACK of new data (RFC 2581)",
        growth: "one packet a window of ACKs",
        kernel: "reno",
        window_law: Some(WindowLaw::Reno),
    }
    "newreno" {
        title: "TCP NewReno",
        recovery: "until everything sent before the loss is acknowledged (RFC 6582)",
        growth: "as \"reno\"",
        kernel: "reno",
        window_law: Some(WindowLaw::Reno),
    }
    "sack" {
        title: "TCP with SACK",
        recovery: "SACK and the pipe estimate (RFC 3517)",
        growth: "as \"reno\"",
        sack: true,
        kernel: "reno",
        window_law: Some(WindowLaw::Reno),
    }
    "cubic" {
        title: "TCP CUBIC",
        recovery: "as \"sack\"",
        growth: "CUBIC (RFC 9438)",
        sack: true,
        kernel: "cubic",
        window_law: Some(WindowLaw::Cubic),
    }
    "linux-reno" {
        title: "Linux's TCP Reno",
        recovery: "as in Linux 6.18",
        growth: "one packet a window of acknowledged packets",
        sack: true,
        counts_packets: true,
        kernel: "reno",
        window_law: Some(WindowLaw::Reno),
    }
    "linux-cubic" {
        title: "Linux's TCP CUBIC",
        recovery: "as in Linux 6.18",
        growth: "CUBIC and HyStart as in Linux 6.18",
        sack: true,
        counts_packets: true,
        kernel: "cubic",
        window_law: Some(WindowLaw::Cubic),
    }
    "dctcp" {
        title: "DCTCP",
        recovery: "as \"linux-reno\"",
        growth: "as \"linux-reno\"; a mark takes half the share of marked packets (RFC 8257)",
        sack: true,
        counts_packets: true,
        counts_marks: true,
        needs_ecn: true,
        echoes_changes: true,
        kernel: "dctcp",
        window_law: Some(WindowLaw::Dctcp),
    }
    "bbr" {
        title: "BBR, version 1",
        recovery: "as \"linux-reno\"",
        growth: "as in Linux 7.2: paced at the greatest delivery rate, with two bandwidth-delay \
                 products in flight",
        sack: true,
        counts_packets: true,
        paces: true,
        kernel: "bbr",
        window_law: None,
    }
    "bbr3" {
        title: "BBR, version 3",
        recovery: "as \"linux-reno\"",
        growth: "as \"bbr\", with bounds on what is in flight that loss lowers \
                 (draft-ietf-ccwg-bbr)",
        sack: true,
        counts_packets: true,
        paces: true,
        kernel: "bbr",
        window_law: None,
    }
    "prague" {
        title: "Prague",
        recovery: "as \"linux-reno\"",
        growth: "as \"dctcp\", while it answers marks too, paced, and with the rate of a round \
                 trip of 25 ms where its own is shorter \
                 (draft-briscoe-iccrg-prague-congestion-control)",
        sack: true,
        counts_packets: true,
        counts_marks: true,
        paces: true,
        kernel: "prague",
        window_law: Some(WindowLaw::Prague),
    }
    "ledbat++" {
        title: "LEDBAT++, for transfers in the background",
        recovery: "as \"linux-reno\"",
        growth: "up to a queuing delay of 60 ms, with slowdowns that look for the least round \
                 trip (draft-irtf-iccrg-ledbat-plus-plus)",
        sack: true,
        counts_packets: true,
        kernel: "ledbat++",
        window_law: None,
    }
}

impl SenderSpec {
    /// Returns the sender of this name, if there is one.
    pub fn named(name: &str) -> Option<&'static SenderSpec> {
        SENDERS.iter().find(|sender| sender.name == name)
    }
}

/// The sender that a scenario names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender(pub &'static SenderSpec);

impl Default for Sender {
    fn default() -> Sender {
        Sender(&SENDERS[0])
    }
}

impl ParamType for Sender {
    const SHAPE: Shape = Shape::Word(NAMES);
    const EXPECTED: &'static str = EXPECTED;
    fn from_value(value: &Value) -> Result<Sender, String> {
        match value {
            Value::Text(text) => SenderSpec::named(text).map(Sender),
            _ => None,
        }
        .ok_or_else(|| Self::EXPECTED.into())
    }
    fn to_value(&self) -> Value {
        Value::Text(self.0.name.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for spec in SENDERS {
            let sender = Sender(spec);
            assert_eq!(Sender::from_value(&sender.to_value()), Ok(sender));
        }
        let found = Sender::from_value(&Value::Text("tahoe".into()));
        assert_eq!(found, Err(Sender::EXPECTED.into()));
    }
}
