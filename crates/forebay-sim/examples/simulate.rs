//! `simulate FILE.toml [LAW] [SEED]` runs a scenario's first point on one thread, and prints its
//! metrics, the digest of its trace, and the number of packets per second of real time.
//!
//! The example is meant for callgrind, which should see the engine and little else:
//!
//! ```text
//! cargo build --release -p forebay-sim --example simulate
//! valgrind --tool=callgrind target/release/examples/simulate bench/case_a.toml
//! ```

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use forebay_scenario::{files, parse, Options};
use forebay_sim::{run, Watch};
use forebay_trace::Metrics;

fn main() -> ExitCode {
    match simulate() {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("{line}");
            ExitCode::from(2)
        }
    }
}

fn simulate() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("simulate FILE.toml [LAW] [SEED]")?;
    let mut options = Options {
        laws: arguments.next().into_iter().collect(),
        ..Options::default()
    };
    let seed = arguments.next().unwrap_or("1".into());
    let seed = seed
        .parse()
        .map_err(|_| format!("SEED: {seed} is not valid; expected a whole number"))?;
    let text = std::fs::read(&file).map_err(|error| format!("{file}: {error}"))?;
    for name in files(&text, &file, &options).map_err(|error| error.to_string())? {
        // `parse` reports a file that is missing.
        if let Ok(contents) = std::fs::read(Path::new(&file).with_file_name(&name)) {
            options.files.push((name, contents));
        }
    }
    let experiment = parse(&text, &file, &options).map_err(|error| error.to_string())?;

    let point = &experiment.points[0];
    let law = point.laws.first().ok_or("no law")?;
    let scenario = &point.scenario;
    let start = Instant::now();
    let trace = run(scenario, &law.aqm(), seed, &Watch::default());
    let trace = trace.map_err(|error| error.to_string())?;
    let trace = trace.ok_or("cancelled")?;
    let elapsed_s = start.elapsed().as_secs_f64();

    let tested = trace.link(scenario.tested);
    println!("{}, seed {seed}", law.label);
    let target_pkts = scenario.target_pkts().or(law.target_pkts(&scenario.site()));
    for (name, value) in Metrics::of(tested, target_pkts).fields() {
        println!("{name:18} {value:.6}");
    }
    let packets = tested.forwarded_packets as f64;
    println!("{:18} {:016x}", "digest", tested.digest());
    println!("{:18} {:.0}", "packets_per_s", packets / elapsed_s);
    Ok(())
}
