//! Checks that hold for every registry.

use forebay_units::ParamSpec;

/// Asserts that each parameter is described by a sentence, and that its default is in its range.
pub fn assert_described(kind: &str, params: &[ParamSpec]) {
    for param in params {
        let name = format!("{kind}.{}", param.name);
        assert!(
            param.doc.trim().ends_with('.'),
            "{name}: its comment must be a sentence"
        );
        if let Some(default) = (param.default_base)() {
            assert!(
                (param.min..=param.max).contains(&default),
                "{name}: the default is out of range"
            );
        }
    }
}
