//! Tests of recordings: the log agrees with the events that the caller got, and the capture with
//! the log.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::PathBuf;

use forebay_net::{Ecn, End, Event, Loss, Network, Options, Span, Time};
use forebay_packets::ip::Headers;
use pcap_file::pcapng::{Block, PcapNgReader};

const SCENARIO: &str = r#"
    duration = "6s"
    measure  = ["1s", "6s"]
    [bottleneck]
    name   = "narrow"
    from   = "a"
    to     = "b"
    rate   = "4Mbit/s"
    buffer = "30p"
    [[link]]
    name   = "up"
    from   = "b"
    to     = "a"
    rate   = "1Mbit/s"
    buffer = "30p"
    [[traffic]]
    kind  = "external"
    flows = 2
    rtt   = "30ms"
    path  = ["a", "b"]
    [[traffic]]
    kind  = "ftp"
    flows = 4
    rtt   = "30ms"
    path  = ["a", "b"]
    [[law]]
    kind = "droptail"
"#;

/// A folder that is removed when the value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("forebay-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The fate of each packet in the caller's events: whether it was marked, or the reason of its
/// loss.
type Fates = HashMap<u64, Result<bool, &'static str>>;

/// Sends a packet each millisecond, alternating between two flows, of which one is ECN-capable.
fn run(network: &mut Network) -> Fates {
    let mut told = Fates::new();
    let (mut next, mut sent) = (Time::ZERO, 0_u64);
    loop {
        let number = |payload: &[u8]| u64::from_be_bytes(payload[..8].try_into().unwrap());
        match network.poll(next) {
            Event::Time(now) => {
                let flow = (sent % 2) as u32;
                let ecn = [Ecn::Ect0, Ecn::NotEct][flow as usize];
                let mut payload = sent.to_be_bytes().to_vec();
                payload.resize(600, 0xab);
                network.send(flow, End::Source, now, payload, ecn).unwrap();
                sent += 1;
                next = now + Span::from_millis(1);
            }
            Event::Delivered(it) => {
                told.insert(number(&it.payload), Ok(it.ecn == Ecn::Ce));
            }
            Event::Lost(it) => {
                let why = match it.why {
                    Loss::Queue(forebay_net::DropReason::Early) => "early",
                    Loss::Queue(forebay_net::DropReason::Forced) => "forced",
                    Loss::Queue(forebay_net::DropReason::Overflow) => "overflow",
                    Loss::Random => "random",
                };
                told.insert(number(&it.payload), Err(why));
            }
            Event::End(_) => return told,
        }
    }
}

fn network(law: &str) -> Network {
    let options = Options {
        laws: vec![law.to_owned()],
        ..Options::default()
    };
    Network::with_options(SCENARIO, &options, 1).unwrap()
}

/// The value of a key of a line of the log, without quotation marks.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("\"{key}\":"))?;
    let end = rest.find(",\"").unwrap_or(rest.len() - 1);
    Some(rest[..end].trim_matches('"'))
}

#[test]
fn the_log_and_the_capture_agree_with_the_events() {
    for law in ["droptail", "codel", "pie", "fq-codel", "dualpi2"] {
        let folder = Folder::new(&format!("recording-{law}"));
        let (capture, events) = (folder.0.join("a.pcapng"), folder.0.join("a.jsonl"));
        let mut recorded = network(law);
        recorded.record(Some(&capture), Some(&events)).unwrap();
        let told = run(&mut recorded);
        recorded.finish().recording.unwrap();
        // The recording does not change the run.
        assert!(told == run(&mut network(law)), "{law}");

        let text = fs::read_to_string(&events).unwrap();
        let mut fates: HashMap<u64, (bool, Option<&str>)> = HashMap::new();
        let (mut last, mut left) = (0, 0);
        for line in text.lines() {
            assert!(
                line.starts_with("{\"time_ns\":") && line.ends_with('}'),
                "{line}"
            );
            let at: u64 = value(line, "time_ns").unwrap().parse().unwrap();
            assert!(at >= last, "{line}");
            last = at;
            assert_eq!(value(line, "link"), Some("narrow"));
            assert_eq!(value(line, "bytes"), Some("628"));
            let packet: u64 = value(line, "packet").unwrap().parse().unwrap();
            assert_eq!(value(line, "flow"), Some(["0", "1"][packet as usize % 2]));
            let fate = fates.entry(packet).or_default();
            match value(line, "event").unwrap() {
                "enqueue" => assert_eq!(value(line, "from"), Some("source")),
                "mark" => {
                    assert_eq!(value(line, "ecn"), Some("ce"));
                    fate.0 = true;
                }
                "dequeue" => {
                    assert!(value(line, "sojourn_ns").unwrap().parse::<u64>().unwrap() < at);
                    assert_eq!(value(line, "ecn") == Some("ce"), fate.0, "{line}");
                    left += 1;
                }
                "drop" => fate.1 = value(line, "reason"),
                other => panic!("{other}"),
            }
        }
        let mut drops = 0;
        for (packet, (marked, reason)) in &fates {
            drops += usize::from(reason.is_some());
            match told.get(packet) {
                Some(Ok(ce)) => assert!(reason.is_none() && ce == marked, "{law} {packet}"),
                Some(Err(why)) => assert_eq!(*reason, Some(*why), "{law} {packet}"),
                None => {} // under way at the end
            }
        }
        assert!(told.len() > 5000 && drops > 0, "{law}: {drops}");
        let marks = fates.values().filter(|(marked, _)| *marked).count();
        match law {
            "droptail" => assert_eq!(marks, 0),
            // Above a tenth PIE drops what it could mark.
            "pie" => {}
            _ => assert!(marks > 0, "{law}"),
        }

        let mut reader = PcapNgReader::new(File::open(&capture).unwrap()).unwrap();
        let (mut packets, mut ce) = (0, 0);
        while let Some(block) = reader.next_block() {
            let Block::EnhancedPacket(packet) = block.unwrap() else {
                continue;
            };
            packets += 1;
            assert_eq!((packet.data.len(), packet.original_len), (628, 628));
            let headers = Headers::read(&packet.data).unwrap();
            assert!(headers.tcp.is_none());
            ce += usize::from(headers.class.ecn() == Ecn::Ce);
        }
        assert_eq!(packets, left + drops, "{law}");
        assert!(
            ce <= marks && (ce > 0) == (marks > 0),
            "{law}: {ce} of {marks}"
        );
    }
}

#[test]
fn a_file_that_cannot_be_created_or_written_is_an_error() {
    let mut network = self::network("pie");
    let nowhere = PathBuf::from("/nonexistent/a.jsonl");
    assert!(network.record(None, Some(&nowhere)).is_err());
    assert!(run(&mut network).len() > 1000);
    let full = PathBuf::from("/dev/full");
    if full.exists() {
        let mut network = self::network("pie");
        network.record(None, Some(&full)).unwrap();
        run(&mut network);
        assert!(network.finish().recording.is_err());
    }
}
