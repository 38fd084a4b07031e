//! Kinds of traffic that stand for an application: voice, frames, adaptive video, programs.

use super::keys::{FramesKeys, ProgramKeys, VideoKeys, VoiceKeys};
use super::tcp::tcp;
use crate::error::Fault;
use crate::files::Files;
use crate::model::{Frames, Program, Talk, TrafficKind, Video, Voice};
use crate::tree::Section;

/// Largest packet, in bytes.
const LARGEST: u64 = 65_535;

/// Reads traffic of the kind `voice`.
pub fn voice(section: &Section) -> Result<TrafficKind, Fault> {
    let keys: VoiceKeys = section.read()?;
    let talk = match (keys.talk.0, keys.pause.0) {
        (Some(talk), Some(pause)) => Some(Talk { talk, pause }),
        (None, None) => None,
        (Some(_), None) => {
            return Err(section.missing("pause", "the mean pause, which talk requires"))
        }
        (None, Some(_)) => {
            return Err(section.missing("talk", "the mean talk spurt, which pause requires"))
        }
    };
    for key in ["packet", "header"] {
        if let Some(entry) = section.table.entry(key) {
            let expected = format!("no {key}, since rate and interval determine the packet size");
            return Err(section.fault(key, entry.node.to_value(), expected));
        }
    }
    let voice = Voice {
        rate: keys.rate,
        interval: keys.interval,
        talk,
        ecn: keys.ecn,
    };
    if voice.packet().0 > LARGEST {
        let expected = format!("a rate at which packets have at most {LARGEST} bytes");
        return Err(section.fault("rate", format!("\"{}\"", keys.rate), expected));
    }
    Ok(TrafficKind::Voice(voice))
}

/// Reads traffic of the kind `program`.
pub fn program(section: &Section, files: &Files) -> Result<TrafficKind, Fault> {
    let keys: ProgramKeys = section.read()?;
    let names = keys.files.0.unwrap_or_default().into_iter();
    let read = names.map(|name| files.of_programs(section, name.0));
    Ok(TrafficKind::Program(Program {
        client: keys.client.0,
        server: keys.server.0.map(|command| command.0),
        ecn: keys.ecn,
        files: read.collect::<Result<_, _>>()?,
    }))
}

/// Reads traffic of the kind `frames`.
pub fn frames(section: &Section) -> Result<TrafficKind, Fault> {
    let keys: FramesKeys = section.read()?;
    Ok(TrafficKind::Frames(Frames {
        packets: keys.frame.0,
        interval: keys.interval,
        ecn: keys.ecn,
    }))
}

/// Reads traffic of the kind `video`.
pub fn video(section: &Section) -> Result<TrafficKind, Fault> {
    let keys: VideoKeys = section.read()?;
    if let Some(pair) = keys.ladder.windows(2).find(|pair| pair[0] >= pair[1]) {
        let rates = format!("\"{}\" before \"{}\"", pair[0], pair[1]);
        return Err(section.fault("ladder", rates, "rates in ascending order"));
    }
    let full_s = Video::UPPER * keys.buffer.as_secs_f64();
    if keys.reservoir.as_secs_f64() >= full_s {
        let expected = format!("less than \"{full_s}s\", 90 % of the buffer");
        return Err(section.fault("reservoir", format!("\"{}\"", keys.reservoir), expected));
    }
    if keys.segment > keys.buffer {
        let expected = format!("at most \"{}\", the buffer", keys.buffer);
        return Err(section.fault("segment", format!("\"{}\"", keys.segment), expected));
    }
    Ok(TrafficKind::Video(Video {
        tcp: tcp(section)?,
        segment: keys.segment,
        ladder: keys.ladder,
        buffer: keys.buffer,
        reservoir: keys.reservoir,
    }))
}
