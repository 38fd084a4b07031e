//! An example of the Rust API: a link with PI, 15 Mbit/s and 30 ms in each direction, around a
//! command.
//!
//! `cargo run --release --example link -- ping -c 3 198.18.0.2`

use std::env;

use forebay_aqm::{laws, Capacity};
use forebay_link::{
    run, Bounds, Command, Commands, DelayRange, DeviceKind, DirectionSettings, Ended, Path,
    Settings, TrafficMap, Watchers,
};
use forebay_scenario::LawChoice;
use forebay_units::{Buffer, Rate, Span, Time, Value};

fn main() {
    let direction = DirectionSettings {
        capacity: Capacity::Constant(Rate::from_bps(15_000_000)),
        path: Path {
            delays: DelayRange::of(Span::from_millis(30)),
            loss: 0.0,
        },
        buffer: Buffer::Packets(150),
        ecn: true,
        law: LawChoice::of(
            laws::find("pi").expect("PI is a law"),
            vec![("target".into(), Value::Text("50p".into()))],
        )
        .expect("50 packets are a set-point"),
    };
    let settings = Settings {
        up: direction.clone(),
        down: direction,
        device: DeviceKind::Any,
        mtu: 1500,
        super_packets: false,
        seed: 1,
        sample: Span::from_millis(10),
        measure: (Time::ZERO, None),
        bounds: Bounds::default(),
        traffic_map: TrafficMap::default(),
    };
    let arguments = env::args_os().skip(1).collect();
    let commands = Commands {
        client: Some(Command {
            arguments,
            ..Command::default()
        }),
        ..Commands::default()
    };
    let outcome = run(&settings, &commands, Watchers::default(), |_| {});
    match outcome {
        Ok(outcome) => {
            for (name, way) in ["up", "down"].iter().zip(&outcome.ways) {
                println!("{name}: {:?} {:?}", way.counts, way.metrics);
                println!("{name}: {} of {} bit/s", way.achieved_bps, way.asked_bps);
            }
            let late = [0.5, 0.99, 0.999, 1.0].map(|q| outcome.lateness.quantile_s(q));
            println!("late {late:?} s, void {:?}", outcome.void);
            println!("user CPU {} s of {}", outcome.user_cpu_s, outcome.duration);
            if let Some(Ended::Status(status)) = outcome.command {
                std::process::exit(status);
            }
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}
