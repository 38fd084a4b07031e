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
        (Some(_), None) => return Err(section.fault("pause", "nothing", "a time, beside talk")),
        (None, Some(_)) => return Err(section.fault("talk", "nothing", "a time, beside pause")),
    };
    for key in ["packet", "header"] {
        if let Some(entry) = section.table.entry(key) {
            let allowed = "no such key here: rate and interval give the size of a packet";
            return Err(section.fault(key, entry.node.to_value(), allowed));
        }
    }
    let voice = Voice {
        rate: keys.rate,
        interval: keys.interval,
        talk,
        ecn: keys.ecn,
    };
    if voice.packet().0 > LARGEST {
        let allowed = format!("a rate whose packets have at most {LARGEST} bytes");
        return Err(section.fault("rate", format!("\"{}\"", keys.rate), allowed));
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
        let found = format!("\"{}\" before \"{}\"", pair[0], pair[1]);
        return Err(section.fault("ladder", found, "rates from the lowest to the highest"));
    }
    let full_s = Video::UPPER * keys.buffer.as_secs_f64();
    if keys.reservoir.as_secs_f64() >= full_s {
        let allowed = format!("less than 90 % of the buffer, \"{full_s}s\"");
        return Err(section.fault("reservoir", format!("\"{}\"", keys.reservoir), allowed));
    }
    if keys.segment > keys.buffer {
        let allowed = format!("at most the buffer, \"{}\"", keys.buffer);
        return Err(section.fault("segment", format!("\"{}\"", keys.segment), allowed));
    }
    Ok(TrafficKind::Video(Video {
        tcp: tcp(section)?,
        segment: keys.segment,
        ladder: keys.ladder,
        buffer: keys.buffer,
        reservoir: keys.reservoir,
    }))
}
