//! Every key of a scenario, for a generated table.

use forebay_units::{ParamSpec, Params, Value};

use crate::changes::{changeable, AtKeys};
use crate::kernel::KernelKeys;
use crate::laws::LawKeys;
use crate::links;
use crate::top::Top;
use crate::traffic::KINDS;

/// One key of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyDoc {
    /// "" at the top, or "bottleneck", "link", "traffic (ftp)", "law", "sweep", "at",
    /// "kernel".
    pub section: String,
    /// The name of the key.
    pub name: String,
    /// Base unit of the range; "" where there is none.
    pub unit: String,
    /// The default as a scenario writes it; `None` if the key is required or absent by default.
    pub default: Option<String>,
    /// True if a value is required.
    pub required: bool,
    /// Smallest and largest value in base units, where there is a range.
    pub range: Option<(f64, f64)>,
    /// The permitted values in words.
    pub expected: String,
    /// One or two sentences.
    pub doc: String,
}

impl KeyDoc {
    pub(crate) fn of(section: &str, spec: &ParamSpec) -> KeyDoc {
        let default = (spec.default)();
        let absent = spec.required || default == Value::Text(String::new());
        KeyDoc {
            section: section.to_owned(),
            name: spec.name.to_owned(),
            unit: spec.unit.to_owned(),
            default: (!absent).then(|| default.to_string()),
            required: spec.required,
            // Flags and texts declare an idle range; they have no base value.
            range: has_range(spec).then_some((spec.min, spec.max)),
            expected: spec.expected.to_owned(),
            doc: spec.doc.trim().to_owned(),
        }
    }

    fn written(section: &str, name: &str, expected: &str, doc: &str) -> KeyDoc {
        KeyDoc {
            section: section.to_owned(),
            name: name.to_owned(),
            unit: String::new(),
            default: None,
            required: true,
            range: None,
            expected: expected.to_owned(),
            doc: doc.to_owned(),
        }
    }
}

/// Returns true if a key has a range: flags, texts and what may have any size have none.
pub(crate) fn has_range(spec: &ParamSpec) -> bool {
    use forebay_units::Shape;
    let bounded = spec.min.is_finite() || spec.max.is_finite();
    bounded
        && spec.min < spec.max
        && !matches!(spec.shape, Shape::Flag | Shape::Text | Shape::Notation(_))
}

/// Returns every key, in the order of a scenario. The parameters of laws are in the registry.
pub fn keys() -> Vec<KeyDoc> {
    let mut all = Vec::new();
    let mut add = |section: &str, specs: &[ParamSpec]| {
        all.extend(specs.iter().map(|spec| KeyDoc::of(section, spec)));
    };
    add("", Top::SPECS);
    for part in links::BOTTLENECK {
        add("bottleneck", part);
    }
    for part in links::OTHER {
        add("link", part);
    }
    for kind in KINDS {
        let section = format!("traffic ({})", kind.kind);
        for part in kind.parts {
            add(&section, part);
        }
    }
    add("law", LawKeys::SPECS);
    add("at", AtKeys::SPECS);
    add("kernel", KernelKeys::SPECS);
    let kinds: Vec<&str> = KINDS.iter().map(|spec| spec.kind).collect();
    all.push(KeyDoc::written(
        "traffic",
        "kind",
        &kinds.join(", "),
        "Kind of the flows.",
    ));
    all.push(KeyDoc::written(
        "law",
        "kind",
        "a law of the registry, or FILE.py:CLASS for one in Python, in this file's folder or below it",
        "The law under test.",
    ));
    all.push(KeyDoc::written(
        "at",
        "set",
        &changeable(),
        "Keys to change, with their new values.",
    ));
    all
}
