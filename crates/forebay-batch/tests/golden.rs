//! Golden results: every law of the registry, and cases for every part of the simulator, must
//! give the numbers of `golden.tsv`: counts, orders and integer times exactly (the column
//! `digest`), floats to a relative tolerance, so that an algebraic simplification of a formula is
//! no new version of the results.
//!
//! `make golden` renews the table. It asks for a higher `RESULTS_VERSION` where a number has
//! moved; a new case or metric needs none. Where a scenario is edited, delete its rows first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use forebay_aqm::laws::LAWS;
use forebay_batch::{jobs, Batch, Job, Key, RESULTS_VERSION};
use forebay_scenario::{files, parse, Options};
use forebay_trace::{FloatSummary, LinkView, Metrics};
use forebay_units::Rng;

/// What names a row: file, law, point of the sweep, seed and link.
const KEYS: usize = 5;
const RENEW: &str = "FOREBAY_RENEW_GOLDEN";
/// Floats may differ by this share of the larger one.
const TOLERANCE: f64 = 1e-9;

/// Rows by their names, each with its values by theirs.
type Table = BTreeMap<String, BTreeMap<String, String>>;

/// What a run is called in the table.
struct Name {
    file: String,
    law: String,
    point: String,
    seed: u64,
}

#[test]
fn results_are_those_of_the_golden_table() {
    let new = results();
    assert_every_law_signals(&new);
    let path = folder().with_extension("tsv");
    let (version, old) = read(&std::fs::read_to_string(&path).unwrap_or_default());
    let moved = moved(&old, &new);
    if std::env::var_os(RENEW).is_some() {
        assert!(
            moved.is_empty() || version.is_none_or(|version| RESULTS_VERSION > version),
            "{moved}These numbers move: raise RESULTS_VERSION in forebay-sim, say why in \
             CHANGELOG.md, and renew again."
        );
        print!("{moved}");
        std::fs::write(&path, write(&new)).unwrap();
        return;
    }
    let strange = strange(&old, &new);
    assert!(
        moved.is_empty() && strange.is_empty(),
        "\n{moved}{strange}Where that is meant: make golden"
    );
    assert_eq!(version, Some(RESULTS_VERSION), "version of the table");
}

/// A law whose runs say nothing about it: no drop and no mark in any of them.
fn assert_every_law_signals(table: &Table) {
    for spec in LAWS {
        let of_law = |(name, _): &(&String, _)| name.split('\t').nth(1) == Some(spec.kind);
        let signals = ["drop_rate", "mark_rate"];
        let rates = table
            .iter()
            .filter(of_law)
            .flat_map(|(_, row)| signals.map(|key| row[key].parse::<f64>().unwrap()));
        assert!(rates.fold(0.0, f64::max) > 0.0, "{}", spec.kind);
    }
}

/// Where the scenarios are; the table has the same name.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Runs every scenario.
fn results() -> Table {
    let mut paths: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let (names, jobs): (Vec<Name>, Vec<Job>) = paths.iter().flat_map(|path| runs(path)).unzip();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let batch = Batch::start(jobs, threads).unwrap();
    while !batch.done() {
        sleep(Duration::from_millis(5));
    }
    let mut table = Table::new();
    for finished in batch.take() {
        let name = &names[finished.job];
        let outcome = finished.result.unwrap();
        for (link, metrics) in outcome.trace.views().zip(&outcome.metrics) {
            let Name {
                file,
                law,
                point,
                seed,
            } = name;
            let key = format!("{file}\t{law}\t{point}\t{seed}\t{}", link.name);
            let twice = table.insert(key.clone(), values(link, metrics));
            assert!(twice.is_none(), "{key} stands twice");
        }
    }
    table
}

/// Every law × point × seed of a file. One without a law is for every law of the registry.
fn runs(path: &Path) -> Vec<(Name, Job)> {
    let file = path.file_stem().unwrap().to_str().unwrap().to_owned();
    let text = std::fs::read(path).unwrap();
    let mut options = Options {
        seeds: Some(2),
        ..Options::default()
    };
    if !std::str::from_utf8(&text).unwrap().contains("[[law]]") {
        options.laws = LAWS.iter().map(|spec| spec.kind.to_owned()).collect();
    }
    for name in files(&text, &file, &options).unwrap() {
        options.files.push((name, opportunities()));
    }
    let experiment = parse(&text, &file, &options).unwrap_or_else(|error| panic!("{error}"));
    let named = |(key, job): (Key, Job)| {
        let name = Name {
            file: file.clone(),
            law: experiment.laws[key.law].clone(),
            point: experiment.points[key.point].label.clone(),
            seed: key.seed,
        };
        (name, job)
    };
    let all = jobs(&experiment, |_| true);
    all.into_iter().map(named).collect()
}

/// A trace of 4 s: 6 Mbit/s on average, in bursts and gaps.
fn opportunities() -> Vec<u8> {
    let mut rng = Rng::new(1, "opportunities");
    let mut text = String::new();
    let mut now_ms = 0.0;
    while now_ms < 4000.0 {
        now_ms += rng.exponential(20.0);
        for _ in 0..1 + rng.next_u64() % 20 {
            writeln!(text, "{now_ms:.0}").unwrap();
        }
    }
    text.into()
}

fn values(link: LinkView, metrics: &Metrics) -> BTreeMap<String, String> {
    let numbers = metrics.fields();
    let numbers = numbers.map(|(name, value)| (name.to_owned(), format!("{value:?}")));
    let digest = ("digest".to_owned(), format!("x{:016x}", link.digest()));
    let summaries = link.float_summaries().into_iter().map(|summary| {
        let FloatSummary {
            name,
            mean,
            root_mean_square,
            nans,
        } = summary;
        format!("{name}|{mean:?}|{root_mean_square:?}|{nans}")
    });
    let floats = ("floats".to_owned(), summaries.collect::<Vec<_>>().join("|"));
    numbers.into_iter().chain([digest, floats]).collect()
}

/// True if two cells are equal, or hold the same words and numbers within the tolerance.
fn agree(old: &str, new: &str) -> bool {
    let close = |old: &str, new: &str| match (old.parse::<f64>(), new.parse::<f64>()) {
        (Ok(old), Ok(new)) => (old - new).abs() <= TOLERANCE * f64::max(old.abs(), new.abs()),
        _ => false,
    };
    let (old, new): (Vec<_>, Vec<_>) = (old.split('|').collect(), new.split('|').collect());
    let mut words = old.iter().zip(&new);
    old.len() == new.len() && words.all(|(old, new)| old == new || close(old, new))
}

#[test]
fn cells_agree_within_the_tolerance_and_digests_exactly() {
    assert!(agree("p|0.1|2.0|3", "p|0.10000000000000002|2.0|3"));
    assert!(agree("NaN", "NaN") && agree("0.0", "-0.0"));
    assert!(!agree("p|0.1", "q|0.1") && !agree("1.0", "1.00000001") && !agree("1|2", "1"));
    assert!(!agree("x0000000000000001", "x0000000000000002"));
}

fn columns(table: &Table) -> BTreeSet<&String> {
    table.values().flat_map(BTreeMap::keys).collect()
}

fn write(table: &Table) -> String {
    let columns = columns(table);
    let mut text = format!("# results version {RESULTS_VERSION}; `make golden` writes this file\n");
    let head = columns.iter().map(|name| name.as_str());
    let names = ["file", "law", "point", "seed", "link"];
    text += &names.into_iter().chain(head).collect::<Vec<_>>().join("\t");
    text += "\n";
    for (name, row) in table {
        text += name;
        for column in &columns {
            let value = row.get(*column);
            write!(text, "\t{}", value.map_or("", String::as_str)).unwrap();
        }
        text += "\n";
    }
    text
}

/// The results version and the rows; none where there is no table.
fn read(text: &str) -> (Option<u32>, Table) {
    let mut lines = text.lines();
    let version = lines.next().and_then(|line| {
        let (number, _) = line.strip_prefix("# results version ")?.split_once(';')?;
        number.parse().ok()
    });
    let head: Vec<&str> = lines.next().unwrap_or("").split('\t').skip(KEYS).collect();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let values = head.iter().zip(&cells[KEYS..]);
        let values = values.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        (cells[..KEYS].join("\t"), values.collect())
    };
    (version, lines.map(row).collect())
}

/// A line for each number that is in both tables and differs, up to some number of lines.
fn moved(old: &Table, new: &Table) -> String {
    const SHOWN: usize = 60;
    let (mut lines, mut count) = (String::new(), 0);
    for (name, before) in old {
        for (column, was) in before {
            let is = new.get(name).and_then(|row| row.get(column));
            if let Some(is) = is.filter(|is| !agree(was, is)) {
                count += 1;
                if count <= SHOWN {
                    let case = name.replace('\t', ", ");
                    writeln!(lines, "{case}: {column} was {was}, is {is}").unwrap();
                }
            }
        }
    }
    if count > SHOWN {
        writeln!(lines, "and {} more", count - SHOWN).unwrap();
    }
    lines
}

/// A line for each row or column that one of the tables lacks.
fn strange(old: &Table, new: &Table) -> String {
    let mut lines = String::new();
    for (these, those, which) in [(old, new, "results"), (new, old, "table")] {
        let rows = these.keys().filter(|name| !those.contains_key(*name));
        let there = columns(those);
        let columns = columns(these).into_iter();
        for name in rows.chain(columns.filter(|name| !there.contains(name))) {
            let name = name.replace('\t', ", ");
            writeln!(lines, "{name}: not in the {which}").unwrap();
        }
    }
    lines
}
