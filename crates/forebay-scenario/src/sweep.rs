//! `[sweep]`: the points of an experiment, from lists, ranges and samples of ranges.

use std::collections::HashSet;

use forebay_units::{ParamError, Value};

use crate::document::Document;
use crate::error::{Fault, Origin};
use crate::path::{TableId, Target};
use crate::range::{Range, OF_SAMPLES, SHAPE};
use crate::tree::{Data, Entry, Node};

/// Key of `[sweep]` that says how ranges without steps are sampled.
pub const POINTS: &str = "points";

/// Largest number of points that are resolved at once. `forebay study`, which may have more, takes
/// them in parts of at most this size.
const MOST_POINTS: usize = 10_000;
/// Most points of a sample.
const MOST_SAMPLES: usize = 1 << 20;
/// Most tables of all points of an experiment together.
const MOST_TABLES: usize = 1_000_000;
/// Most lines of `[sweep]`.
const MOST_LINES: usize = 100;
/// Keys of one line: a study sets every number of many laws.
const MOST_KEYS: usize = 1000;

/// The points of a scenario, made when they are asked for: there may be a million.
#[derive(Clone, Debug)]
pub struct Sweep {
    origin: Origin,
    lines: Vec<Line>,
    sample: Option<Sample>,
    /// Tables of one point.
    tables: usize,
}

/// A key that is swept: the key as it was written, what it names, and its place in the file.
#[derive(Clone, Debug)]
struct Key {
    name: String,
    target: Target,
    origin: Origin,
}

/// Keys that are swept together, and the values they take.
#[derive(Clone, Debug)]
struct Line {
    keys: Vec<Key>,
    /// One value per key.
    rows: Vec<Vec<Node>>,
}

/// Ranges that are sampled together.
#[derive(Clone, Debug)]
pub struct Sample {
    /// "sobol", a scrambled sequence, or "latin", a hypercube.
    pub method: &'static str,
    /// The number of points.
    pub points: usize,
    /// The seed of the sampling.
    pub seed: u64,
    axes: Vec<(Key, Range)>,
}

impl Sample {
    /// Returns the name and range of each key; a point of the sample has a share of the way, from 0
    /// to 1, for each.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = (&str, &Range)> {
        self.axes
            .iter()
            .map(|(key, range)| (key.name.as_str(), range))
    }
}

/// One point: what is set there.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    settings: Vec<(Key, Node)>,
}

impl Settings {
    /// "traffic.0.flows = 100"; empty where nothing is swept.
    pub fn label(&self) -> String {
        let line = |(key, node): &(Key, Node)| format!("{} = {}", key.name, text(node));
        let all: Vec<String> = self.settings.iter().map(line).collect();
        all.join(", ")
    }

    /// Returns the keys that the point sets, with their values.
    pub fn values(&self) -> Vec<(String, Value)> {
        let value = |(key, node): &(Key, Node)| (key.name.clone(), node.to_value());
        self.settings.iter().map(value).collect()
    }

    /// Adds the point to a fault, unless a swept value itself is wrong.
    pub fn blame(&self, mut fault: Fault) -> Fault {
        let swept = |(_, node): &(Key, Node)| node.origin == fault.origin;
        if !self.settings.is_empty() && !self.settings.iter().any(swept) {
            fault.error.expected += &format!(" (at {})", self.label());
        }
        fault
    }

    /// Sets these keys in the document.
    pub fn apply(&self, document: &mut Document) {
        for (key, node) in &self.settings {
            document.put(&key.target, node.clone());
        }
    }
}

impl Sweep {
    /// Returns the sweep of a document; keys of `fixed` are not swept. `laws` are the numbers of
    /// those that run.
    ///
    /// # Errors
    /// A key that leads nowhere or cannot be swept, or is of a law that does not run, values that
    /// are neither a list nor a range or occur twice, a sample without a range.
    pub fn read(document: &Document, fixed: &[Target], laws: &[usize]) -> Result<Sweep, Fault> {
        let count = document.sweep.entries.len();
        if count > MOST_LINES {
            let reason = format!("{count} lines are too many");
            let expected = format!("at most {MOST_LINES} lines");
            return Err(Fault::stated(
                document.sweep.origin,
                "sweep",
                reason,
                expected,
            ));
        }
        let mut seen: Vec<Target> = Vec::new();
        let (mut lines, mut axes, mut drawn) = (Vec::new(), Vec::new(), None);
        for entry in &document.sweep.entries {
            if entry.name == POINTS {
                continue;
            }
            let keys = keys(document, entry)?;
            if let Some(key) = keys.iter().find(|key| seen.contains(&key.target)) {
                let key = format!("sweep.{}", key.name);
                return Err(Fault::stated(entry.origin, key, SWEPT_TWICE, EACH_KEY_ONCE));
            }
            seen.extend(keys.iter().map(|key| key.target.clone()));
            let is_free = |key: &Key| !fixed.contains(&key.target);
            match values(entry, keys)? {
                Values::Listed(mut line) => {
                    line.release(fixed);
                    refuse_idle(&line.keys, entry, laws)?;
                    if !line.keys.is_empty() {
                        lines.push(line);
                    }
                }
                Values::Ranged(key, range) => {
                    drawn = drawn.or(Some(entry));
                    if is_free(&key) {
                        refuse_idle(std::slice::from_ref(&key), entry, laws)?;
                        axes.push((key, range));
                    }
                }
            }
        }
        let sample = sample(document.sweep.entry(POINTS), drawn, axes)?;
        Ok(Sweep {
            origin: document.sweep.origin,
            lines,
            sample,
            tables: document.links.len() - 1
                + document.traffic.len()
                + document.laws.len()
                + document.at.len(),
        })
    }

    /// Returns the sampling of ranges without steps, if there are any.
    pub fn sample(&self) -> Option<&Sample> {
        self.sample.as_ref()
    }

    /// Returns the number of points.
    pub fn point_count(&self) -> usize {
        let sampled = self.sample.as_ref().map_or(1, |sample| sample.points);
        let lines = self.lines.iter();
        lines.fold(sampled, |count, line| count.saturating_mul(line.rows.len()))
    }

    fn swept(&self) -> impl Iterator<Item = &Key> {
        let listed = self.lines.iter().flat_map(|line| &line.keys);
        let sampled = self.sample.iter().flat_map(|sample| &sample.axes);
        listed.chain(sampled.map(|(key, _)| key))
    }

    /// Returns the keys that a point sets, in the order of its row.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.swept().map(|key| key.name.as_str())
    }

    /// Returns the names and values of keys that have lists, or ranges with steps, line for line.
    pub fn lists(&self) -> impl Iterator<Item = (Vec<&str>, Vec<Vec<Value>>)> {
        self.lines.iter().map(|line| {
            let keys = line.keys.iter().map(|key| key.name.as_str()).collect();
            let rows = line.rows.iter();
            let values = |row: &Vec<Node>| row.iter().map(Node::to_value).collect();
            (keys, rows.map(values).collect())
        })
    }

    /// Texts that any table's `key` takes at some point.
    pub fn texts<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let columns = self.lines.iter().flat_map(|line| {
            let column = move |(place, key): (usize, &'a Key)| (line, place, key);
            line.keys.iter().enumerate().map(column)
        });
        columns
            .filter(move |(_, _, swept)| swept.target.key == key)
            .flat_map(|(line, place, _)| line.rows.iter().map(move |row| &row[place]))
            .filter_map(Node::text)
    }

    /// Values of a point by its number, the last key varying fastest. `shares` are the sample's, as
    /// [`points`](Sweep::points) has them.
    pub fn row(&self, index: usize, shares: &[f64]) -> Vec<Value> {
        let nodes = self.nodes(index, shares);
        nodes.iter().map(Node::to_value).collect()
    }

    fn nodes(&self, mut index: usize, shares: &[f64]) -> Vec<Node> {
        let mut nodes = Vec::new();
        if let Some(sample) = &self.sample {
            let first = (index % sample.points) * sample.axes.len();
            index /= sample.points;
            let drawn = sample.axes.iter().zip(&shares[first..]);
            let node = |((key, range), share): (&(Key, Range), &f64)| {
                Node::of(key.origin, range.at(*share, OF_SAMPLES))
            };
            let drawn: Vec<Node> = drawn.map(node).collect();
            nodes.extend(drawn.into_iter().rev());
        }
        for line in self.lines.iter().rev() {
            let row = &line.rows[index % line.rows.len()];
            index /= line.rows.len();
            nodes.extend(row.iter().rev().cloned());
        }
        nodes.reverse();
        nodes
    }

    /// Returns a point with these values of [`keys`](Sweep::keys).
    ///
    /// # Errors
    /// Another number of values.
    pub fn point(&self, values: Vec<Value>) -> Result<Settings, Fault> {
        let (count, keys) = (values.len(), self.swept().count());
        if count != keys {
            let reason = format!("the number of values is {count}");
            let expected = format!("{keys}, one value for each swept key");
            return Err(Fault::stated(self.origin, "sweep", reason, expected));
        }
        let node = |(key, value): (&Key, Value)| (key.clone(), Node::of(key.origin, value));
        let settings = self.swept().zip(values).map(node).collect();
        Ok(Settings { settings })
    }

    /// Returns every point. `shares` has, for each point of the sample, a share from 0 to 1 for
    /// each of its ranges, one after another.
    ///
    /// # Errors
    /// Too many points.
    pub fn points(&self, shares: &[f64]) -> Result<Vec<Settings>, Fault> {
        let most = MOST_POINTS.min(MOST_TABLES / self.tables.max(1));
        if self.point_count() > most {
            let expected =
                format!("at most {most} points of all keys together; a study may have more");
            return Err(Fault::stated(
                self.origin,
                "sweep",
                "too many points",
                expected,
            ));
        }
        let point = |index| {
            let settings = self.swept().cloned().zip(self.nodes(index, shares));
            let settings = settings.collect();
            Settings { settings }
        };
        let all = (0..self.point_count()).map(point);
        if self.sample.is_none() {
            return Ok(all.collect());
        }
        // Whole numbers may be drawn twice.
        let mut seen = HashSet::new();
        Ok(all.filter(|point| seen.insert(point.label())).collect())
    }

    /// Returns the point `values` of [`keys`](Sweep::keys), and every other that differs from it in
    /// keys of traffic named `key` alone, where these have lists of their own.
    ///
    /// # Errors
    /// Another number of values.
    pub fn alike_but_for(&self, key: &str, values: Vec<Value>) -> Result<Vec<Settings>, Fault> {
        let mut points = vec![self.point(values)?];
        let mut place = 0;
        for line in &self.lines {
            let of_traffic = |one: &Key| {
                matches!(one.target.table, TableId::Traffic(_)) && one.target.key == key
            };
            if line.keys.len() == 1 && of_traffic(&line.keys[0]) {
                let with = |point: &Settings, row: &Vec<Node>| {
                    let mut point = point.clone();
                    point.settings[place].1 = row[0].clone();
                    point
                };
                let others = points.iter();
                points = others
                    .flat_map(|point| line.rows.iter().map(move |row| with(point, row)))
                    .collect();
            }
            place += line.keys.len();
        }
        Ok(points)
    }
}

/// Refuses a key all of whose laws do not run, because its points would be the same.
fn refuse_idle(keys: &[Key], entry: &Entry, laws: &[usize]) -> Result<(), Fault> {
    let is_idle = |key: &Key| match key.target.table {
        TableId::Law(law) => !laws.contains(&law),
        _ => false,
    };
    match keys.first() {
        Some(Key { name, .. }) if keys.iter().all(is_idle) => Err(Fault::stated(
            entry.origin,
            format!("sweep.{}", entry.name),
            "the law of this key does not run",
            format!("a law that runs, or --set {name}=VALUE, which replaces the sweep"),
        )),
        _ => Ok(()),
    }
}

impl Line {
    /// Removes the keys that the command line has fixed, and values that then occur twice.
    fn release(&mut self, fixed: &[Target]) {
        for column in (0..self.keys.len()).rev() {
            if fixed.contains(&self.keys[column].target) {
                self.keys.remove(column);
                for row in &mut self.rows {
                    row.remove(column);
                }
            }
        }
        let mut seen = HashSet::new();
        self.rows.retain(|row| seen.insert(written(row)));
    }
}

/// Returns a row as its point's label has it.
fn written(row: &[Node]) -> String {
    let texts: Vec<String> = row.iter().map(text).collect();
    texts.join(", ")
}

fn text(node: &Node) -> String {
    match node.to_value() {
        Value::Text(text) => text,
        value => value.to_string(),
    }
}

/// The values that a line of the sweep gives its keys.
enum Values {
    Listed(Line),
    /// A range to be sampled.
    Ranged(Key, Range),
}

fn fault(
    entry: &Entry,
    origin: Origin,
    value: impl ToString,
    expected: impl Into<String>,
) -> Fault {
    Fault::new(origin, format!("sweep.{}", entry.name), value, expected)
}

/// Returns the fault of a line as a whole.
fn stated(
    entry: &Entry,
    origin: Origin,
    reason: impl Into<String>,
    expected: impl Into<String>,
) -> Fault {
    Fault::stated(origin, format!("sweep.{}", entry.name), reason, expected)
}

const SWEPT_TWICE: &str = "the key is swept twice";
const EACH_KEY_ONCE: &str = "each key in one line only";

/// Returns the keys of `"a" = …` or `"a, b" = …`.
fn keys(document: &Document, entry: &Entry) -> Result<Vec<Key>, Fault> {
    let names: Vec<&str> = entry.name.split(',').map(str::trim).collect();
    if names.len() > MOST_KEYS {
        let reason = format!("{} keys in one line are too many", names.len());
        let expected = format!("at most {MOST_KEYS} keys");
        return Err(stated(entry, entry.origin, reason, expected));
    }
    let mut keys: Vec<Key> = Vec::with_capacity(names.len());
    for name in names {
        let target = sweepable(document, name).map_err(|error| Fault {
            origin: entry.origin,
            error: ParamError {
                key: format!("sweep.{name}"),
                ..error
            },
        })?;
        if keys.iter().any(|key| key.target == target) {
            return Err(stated(entry, entry.origin, SWEPT_TWICE, EACH_KEY_ONCE));
        }
        keys.push(Key {
            name: name.to_owned(),
            target,
            origin: entry.node.origin,
        });
    }
    Ok(keys)
}

/// Reads `[1, 2]`, `"1..4 log 3"`, `[[1, 2], [3, 4]]` for several keys, or a range to be sampled.
fn values(entry: &Entry, mut keys: Vec<Key>) -> Result<Values, Fault> {
    let origin = entry.node.origin;
    let shape = match keys.len() {
        1 => SHAPE.to_owned(),
        n => format!("a list of lists of {n} values, one for each key"),
    };
    let items = match (&entry.node.data, keys.as_slice()) {
        (Data::List(items), _) => items,
        (Data::Plain(Value::Text(text)), [_]) => {
            let refused = |(reason, expected)| {
                let fault = fault(entry, origin, format!("{text:?}"), expected);
                Fault {
                    error: fault.error.because(reason),
                    ..fault
                }
            };
            let range = Range::read(text).map_err(refused)?;
            if range.is_sampled() {
                return Ok(Values::Ranged(keys.remove(0), range));
            }
            let values = range.values().into_iter();
            let rows = values.map(|value| vec![Node::of(origin, value)]).collect();
            return Ok(Values::Listed(Line { keys, rows }));
        }
        _ => return Err(fault(entry, origin, entry.node.to_value(), shape)),
    };
    if items.is_empty() {
        return Err(fault(entry, origin, "[]", "at least one value in the list"));
    }
    let mut rows = Vec::with_capacity(items.len());
    let mut seen = HashSet::new();
    for item in items {
        let row = match &item.data {
            _ if keys.len() == 1 => vec![item.clone()],
            Data::List(row) if row.len() == keys.len() => row.clone(),
            _ => return Err(fault(entry, item.origin, item.to_value(), shape)),
        };
        if !seen.insert(written(&row)) {
            let fault = fault(entry, item.origin, item.to_value(), "each value once");
            return Err(fault.because("occurs twice"));
        }
        rows.push(row);
    }
    Ok(Values::Listed(Line { keys, rows }))
}

/// `points = "sobol 256 seed 1"`. `drawn` is a line of the sweep with a range to be sampled, and
/// `axes` those ranges that the command line leaves.
fn sample(
    asked: Option<&Entry>,
    drawn: Option<&Entry>,
    axes: Vec<(Key, Range)>,
) -> Result<Option<Sample>, Fault> {
    let (entry, missing) = match (asked, drawn) {
        (None, None) => return Ok(None),
        (None, Some(_)) if axes.is_empty() => return Ok(None),
        (None, Some(line)) => {
            let expected = format!(
                "a number of steps after the range, such as \"… log 7\", or the key {POINTS} = \"sobol 256\""
            );
            return Err(fault(line, line.origin, line.node.to_value(), expected));
        }
        (Some(entry), drawn) => (entry, drawn.is_none()),
    };
    let refused = |expected: &str| fault(entry, entry.origin, entry.node.to_value(), expected);
    let words: Vec<&str> = entry.node.text().unwrap_or("").split_whitespace().collect();
    let (method, points, seed) = match words.as_slice() {
        ["sobol", points] => ("sobol", *points, "1"),
        ["latin", points] => ("latin", *points, "1"),
        ["sobol", points, "seed", seed] => ("sobol", *points, *seed),
        ["latin", points, "seed", seed] => ("latin", *points, *seed),
        _ => ("", "", ""),
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(points) || !is_number(seed) {
        return Err(refused(
            "a method with a number of points, such as \"sobol 256\" or \"latin 100 seed 2\"",
        ));
    }
    let bounds = format!("1 to {MOST_SAMPLES} points, and a power of 2 with sobol");
    let points: usize = points.parse().map_err(|_| refused(&bounds))?;
    if !(1..=MOST_SAMPLES).contains(&points) || (method == "sobol" && !points.is_power_of_two()) {
        return Err(refused(&bounds));
    }
    let seed = seed.parse().map_err(|_| refused("a seed below 2^64"))?;
    if missing {
        let fault = refused("a range without steps as well, such as \"1..100Mbit/s log\"");
        return Err(fault.because("requires a range to sample"));
    }
    Ok((!axes.is_empty()).then_some(Sample {
        method,
        points,
        seed,
        axes,
    }))
}

fn sweepable(document: &Document, name: &str) -> Result<Target, ParamError> {
    let target = document.target(name)?;
    let fixed = match target.table {
        TableId::Top => matches!(target.key.as_str(), "title" | "source" | "seeds"),
        TableId::Link(_) => target.key == "name",
        TableId::Traffic(_) | TableId::Law(_) => matches!(target.key.as_str(), "kind" | "label"),
        TableId::Kernel => false,
    };
    if fixed {
        let expected = "a key whose value may differ between points";
        return Err(ParamError::stated(
            name,
            "a sweep cannot vary this key",
            expected,
        ));
    }
    Ok(target)
}
