//! JSON Schema of a scenario, for editors; derived from the declarations of its keys and from
//! the registry of laws.

use forebay_aqm::disciplines::{keys, DISCIPLINES};
use forebay_aqm::laws::LAWS;
use forebay_units::cast::{whole_i64, whole_u64};
use forebay_units::{unit_names, ParamSpec, Params, Shape, Value};
use serde_json::{json, Map, Value as Json};

use crate::changes::{AtKeys, LINK};
use crate::kernel::KernelKeys;
use crate::keys::KeyDoc;
use crate::laws::LawKeys;
use crate::links::{self, LinkKeys};
use crate::top::Top;
use crate::traffic::KINDS;
use crate::traffic_keys::FlowKeys;

/// Returns the JSON Schema (draft 2020-12) of a scenario, as text. It leaves ranges of quantities
/// and relations between keys to [`parse`](crate::parse).
pub fn schema() -> String {
    let mut properties = declared(&[Top::SPECS]);
    properties.insert("bottleneck".into(), bottleneck());
    properties.insert("link".into(), link());
    properties.insert("traffic".into(), traffic());
    properties.insert("law".into(), law());
    properties.insert("sweep".into(), sweep());
    properties.insert("at".into(), at());
    properties.insert("kernel".into(), kernel());
    let mut required = required(&[Top::SPECS]);
    required.extend(["bottleneck", "traffic"]);
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Forebay scenario",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    format!("{schema:#}\n")
}

fn bottleneck() -> Json {
    json!({
        "description": "The queue under test and its link.",
        "type": "object",
        "properties": declared(links::BOTTLENECK),
        "required": required(links::BOTTLENECK),
        "additionalProperties": false,
    })
}

fn kernel() -> Json {
    json!({
        "description": "Settings of the hosts with `--engine kernel`.",
        "type": "object",
        "properties": declared(&[KernelKeys::SPECS]),
        "additionalProperties": false,
    })
}

fn link() -> Json {
    let other = json!({
        "type": "object",
        "properties": declared(links::OTHER),
        "required": required(links::OTHER),
        "additionalProperties": false,
    });
    json!({
        "description": "Further links that have a queue.",
        "type": "array",
        "minItems": 1,
        "items": other,
    })
}

fn traffic() -> Json {
    let kinds = KINDS
        .iter()
        .map(|spec| of_kind(spec.kind, spec.title, spec.parts));
    tables("Sets of like flows.", kinds.collect())
}

/// FILE.py:CLASS.
const PROTOTYPE: &str = r"\.py:[^:]+$";

fn law() -> Json {
    let kinds = LAWS.iter().map(|spec| {
        let keys = keys(spec).into_iter().cloned().collect::<Vec<_>>();
        of_kind(spec.kind, spec.title, &[LawKeys::SPECS, &keys])
    });
    tables("The laws under test.", kinds.chain([prototype()]).collect())
}

/// Returns the schema of a law in a Python file, whose class declares its other keys.
fn prototype() -> Json {
    let title = "A prototype in Python";
    let mut properties = Map::new();
    let kind = json!({ "type": "string", "pattern": PROTOTYPE, "description": title });
    properties.insert("kind".into(), kind);
    properties.extend(declared(&[LawKeys::SPECS]));
    json!({
        "title": title,
        "type": "object",
        "properties": properties,
        "required": ["kind"],
    })
}

/// Returns the schema of a table, whose `kind` determines its other keys.
fn of_kind(kind: &str, title: &str, parts: &[&[ParamSpec]]) -> Json {
    let mut properties = Map::new();
    properties.insert(
        "kind".into(),
        json!({ "const": kind, "description": title }),
    );
    properties.extend(declared(parts));
    let mut needed = vec!["kind"];
    needed.extend(required(parts));
    json!({
        "title": title,
        "type": "object",
        "properties": properties,
        "required": needed,
        "additionalProperties": false,
    })
}

fn tables(description: &str, kinds: Vec<Json>) -> Json {
    json!({
        "description": description,
        "type": "array",
        "minItems": 1,
        "items": { "oneOf": kinds },
    })
}

fn sweep() -> Json {
    json!({
        "description": "Keys, as dotted paths, and the values that they take in turn. Keys \
                        joined by a comma take lists of values together.",
        "type": "object",
        "additionalProperties": {
            "anyOf": [
                { "type": "array", "minItems": 1 },
                // A range, which is a list before this crate reads it.
                { "type": "string" },
                { "type": "object" },
            ],
        },
    })
}

fn at() -> Json {
    let mut nested = declared(&[LinkKeys::SPECS]);
    nested.retain(|name, _| LINK.contains(&name.as_str()));
    for key in nested.values_mut().filter_map(Json::as_object_mut) {
        key.remove("default");
    }
    let mut set: Map<String, Json> = nested
        .iter()
        .map(|(name, schema)| (format!("bottleneck.{name}"), schema.clone()))
        .collect();
    // Without quotes, TOML nests dotted keys.
    set.insert(
        "bottleneck".into(),
        json!({ "type": "object", "properties": nested, "additionalProperties": false }),
    );
    set.insert("traffic".into(), json!({ "type": "object" }));
    set.insert("link".into(), json!({ "type": "object" }));
    let most = FlowKeys::SPECS
        .iter()
        .find(|spec| spec.name == "flows")
        .map_or(0.0, |spec| spec.max);
    let mut properties = declared(&[AtKeys::SPECS]);
    properties.insert(
        "set".into(),
        json!({
            "description": "Keys to change, with their new values.",
            "type": "object",
            "minProperties": 1,
            "properties": set,
            "patternProperties": {
                "^traffic\\..+\\.flows$": { "type": "integer", "minimum": 0, "maximum": whole_u64(most) },
                "^link\\..+\\.(rate|delay|buffer)$": { "type": "string" },
            },
            "additionalProperties": false,
        }),
    );
    json!({
        "description": "Changes while the simulation runs.",
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "properties": properties,
            "required": ["time", "set"],
            "additionalProperties": false,
        },
    })
}

fn declared(parts: &[&[ParamSpec]]) -> Map<String, Json> {
    let specs = parts.iter().flat_map(|part| part.iter());
    specs
        .map(|spec| (spec.name.to_owned(), property(spec)))
        .collect()
}

fn required<'a>(parts: &[&'a [ParamSpec]]) -> Vec<&'a str> {
    let specs = parts.iter().flat_map(|part| part.iter());
    specs
        .filter(|spec| spec.required)
        .map(|spec| spec.name)
        .collect()
}

fn property(spec: &ParamSpec) -> Json {
    let doc = KeyDoc::of("", spec);
    let mut property = shape(spec);
    let mut description = doc.doc;
    if let Some((min, max)) = doc.range {
        description += &format!(" Range: {min}{unit} to {max}{unit}.", unit = spec.unit);
    }
    property.insert("description".into(), json!(description));
    if doc.default.is_some() {
        property.insert("default".into(), to_json(&(spec.default)()));
    }
    Json::Object(property)
}

/// Returns the part of the JSON Schema that describes a value.
fn shape(spec: &ParamSpec) -> Map<String, Json> {
    let shape = match spec.shape {
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Integer => json!({
            "type": "integer", "minimum": whole_i64(spec.min), "maximum": whole_i64(spec.max),
        }),
        Shape::Number => json!({
            "type": "number", "minimum": spec.min, "maximum": spec.max,
        }),
        Shape::Quantity => quantity(spec.unit),
        Shape::Table => json!({ "type": "object" }),
        Shape::Text | Shape::Notation(_) => json!({ "type": "string" }),
        Shape::List => {
            let item = match spec.unit {
                "" => json!({}),
                unit => quantity(unit),
            };
            json!({ "anyOf": [item, { "type": "array", "minItems": 1, "items": item }] })
        }
        Shape::Word(words) => json!({ "enum": words }),
        Shape::FlagOrWord(words) => {
            json!({ "anyOf": [{ "type": "boolean" }, { "enum": words }] })
        }
        Shape::Quantities(units) => {
            json!({ "anyOf": units.iter().map(|unit| quantity(unit)).collect::<Vec<_>>() })
        }
        Shape::TimeRange => time_range(),
        Shape::TimeOrUniform => json!({
            "anyOf": [
                quantity("s"),
                {
                    "type": "object",
                    "properties": { "uniform": time_range() },
                    "required": ["uniform"],
                    "additionalProperties": false,
                },
            ],
        }),
        Shape::Queue => queue(),
        Shape::Law => json!({
            "anyOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": { "kind": { "type": "string" } },
                    "required": ["kind"],
                },
            ],
        }),
    };
    match shape {
        Json::Object(shape) => shape,
        _ => Map::new(),
    }
}

/// Returns the name of a discipline, or a table of its parameters.
fn queue() -> Json {
    let kinds: Vec<&str> = DISCIPLINES.iter().map(|spec| spec.kind).collect();
    let tables = DISCIPLINES
        .iter()
        .map(|spec| of_kind(spec.kind, spec.title, &[spec.params]));
    let all = std::iter::once(json!({ "enum": kinds })).chain(tables);
    json!({ "anyOf": all.collect::<Vec<_>>() })
}

fn time_range() -> Json {
    json!({ "type": "array", "items": quantity("s"), "minItems": 2, "maxItems": 2 })
}

fn quantity(unit: &str) -> Json {
    let units = unit_names(unit).join("|");
    let number = r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?";
    json!({ "type": "string", "pattern": format!(r"^\s*{number}\s*({units})\s*$") })
}

fn to_json(value: &Value) -> Json {
    match value {
        Value::Flag(flag) => json!(flag),
        Value::Integer(integer) => json!(integer),
        Value::Number(number) => json!(number),
        Value::Text(text) => json!(text),
        Value::List(items) => items.iter().map(to_json).collect(),
        Value::Table(fields) => {
            let field = |(name, value): &(String, Value)| (name.clone(), to_json(value));
            Json::Object(fields.iter().map(field).collect())
        }
    }
}
