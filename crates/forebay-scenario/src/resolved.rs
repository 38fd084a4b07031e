//! What a run depends on, as one text: two scenarios that differ in their spelling alone have the
//! same, two that can give other numbers do not. A store of runs finds what was run by it.
//!
//! It is the `Debug` of the types, which `derive` keeps whole: a field that somebody adds is in it
//! from its first day. Prose is taken out, defaults are filled in, and the contents of files stand
//! as a digest.

use std::fmt::{self, Debug, Write};

use forebay_core::Value;

use crate::law_choice::LawChoice;
use crate::model::{ProgramFile, Recorded, Scenario};
use crate::senders::SenderSpec;

impl Scenario {
    /// All that a run depends on beside its law and its seed.
    pub fn resolved(&self) -> String {
        let mut bare = self.clone();
        bare.title.clear();
        bare.source.clear();
        let mut apart = String::new();
        let mut backs = String::new();
        let links = std::iter::once(&mut bare.bottleneck).chain(&mut bare.links);
        for (number, link) in links.enumerate() {
            if let Some(law) = link.law.take() {
                apart += &format!("\nlaw of link {number}: {}", law.resolved());
            }
            if let Some(rate) = link.rate_back.take() {
                backs += &format!("\nrate back of link {number}: {rate}");
            }
            if let Some(trace) = link.trace.take() {
                apart += &format!("\ntrace of link {number}: {}", digest(&trace));
            }
        }
        // A link without it is as it was before there was the key: runs on real kernels, which
        // cost hours, are found again.
        let bare = format!("{bare:?}").replace("rate_back: None, ", "");
        format!("{bare}{apart}{backs}")
    }
}

impl LawChoice {
    /// The law and its queue with every parameter, whether it was given or not; without the label.
    pub fn resolved(&self) -> String {
        // Both were built once when the scenario was read, so they resolve.
        let law = self.spec.resolve(&self.given).unwrap_or_default();
        let queue = &self.queue;
        let of_queue = queue.spec.resolve(&queue.given).unwrap_or_default();
        let mut text = String::new();
        for (kind, values) in [(self.spec.kind, law), (queue.spec.kind, of_queue)] {
            let pairs: Vec<(&str, Value)> = values;
            let _ = write!(text, "{kind} {pairs:?};");
        }
        text
    }
}

/// The name says all: what else the table has of a sender is derived from it, or prose.
impl Debug for SenderSpec {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl ProgramFile {
    pub fn new(name: String, contents: &[u8]) -> ProgramFile {
        let mut hash = Hash::default();
        hash.add(contents);
        let digest = format!("{:032x}", hash.0);
        ProgramFile { name, digest }
    }
}

impl Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Recorded")
            .field("file", &self.file)
            .field("packets", &format_args!("{}", digest(&self.packets)))
            .field("scale", &self.scale)
            .field("period", &self.period)
            .finish()
    }
}

/// FNV-1a in 128 bits (RFC 9923).
struct Hash(u128);

impl Default for Hash {
    fn default() -> Hash {
        Hash(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Hash {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul((1 << 88) + 0x13b);
        }
    }
}

impl Write for Hash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

/// Of what would be written.
fn digest(value: &impl Debug) -> String {
    let mut hash = Hash::default();
    // Writing into a hash cannot fail.
    let _ = write!(hash, "{value:?}");
    format!("{:032x}", hash.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use crate::{parse, Options};

    const FILE: &str = r#"
        title = "one"
        duration = "20s"
        [bottleneck]
        rate = "10Mbit/s"
        delay = "20ms"
        buffer = "100p"
        [[traffic]]
        kind = "ftp"
        flows = 5
        rtt = "100ms"
        [[law]]
        kind = "pi"
        target = "20p"
    "#;

    fn resolved(text: &str) -> (String, String) {
        let read = parse(text.as_bytes(), "test", &Options::default()).unwrap();
        let point = &read.points[0];
        (point.scenario.resolved(), point.laws[0].resolved())
    }

    #[test]
    fn spelling_is_not_in_it() {
        let spelled = FILE
            .replace("\"one\"", "\"two\" # a comment\nseeds = 7")
            .replace("\"20ms\"", "\"0.02s\"")
            .replace("\"10Mbit/s\"", "\"10000kbit/s\"")
            .replace("kind = \"pi\"", "label = \"mine\"\nkind = \"pi\"")
            // The default, written out.
            .replace("kind = \"ftp\"", "tcp = \"reno\"\nkind = \"ftp\"");
        assert_eq!(resolved(FILE), resolved(&spelled));
    }

    #[test]
    fn each_value_is_in_it() {
        for (was, is) in [
            ("\"20s\"", "\"21s\""),
            ("\"20ms\"", "\"20001us\""),
            ("\"100p\"", "\"101p\""),
            ("\"100p\"", "\"100p\"\nrate_back = \"1Gbit/s\""),
            ("flows = 5", "flows = 6"),
            ("flows = 5", "flows = 5\ntcp = \"cubic\""),
            ("\"20p\"", "\"21p\""),
            ("\"20p\"", "\"20p\"\nqueue = \"fq\""),
        ] {
            assert_ne!(resolved(FILE), resolved(&FILE.replace(was, is)), "{is}");
        }
    }

    #[test]
    fn a_digest_is_that_of_the_rfc() {
        // RFC 9923, appendix C: "foobar".
        struct Foobar;
        impl std::fmt::Debug for Foobar {
            fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("foobar")
            }
        }
        assert_eq!(super::digest(&Foobar), "343e1662793c64bf6f0d3597ba446f18");
    }
}
