//! Kinds of traffic whose keys must fit each other: bursts, voice, adaptive video, programs.

use super::tcp::tcp;
use crate::error::Fault;
use crate::files::Files;
use crate::model::{Program, TrafficKind};
use crate::traffic_keys::{OnOff, ProgramKeys, Video, Voice};
use crate::tree::Section;

/// Largest packet, in bytes.
const LARGEST: u64 = 65_535;

/// Reads traffic of the kind `onoff`.
pub fn onoff(section: &Section) -> Result<TrafficKind, Fault> {
    let onoff: OnOff = section.read()?;
    if onoff.arrivals.0.is_some() && onoff.bursts.0.is_none() {
        let expected = "the number of bursts after which a flow that arrives ends";
        return Err(section.missing("bursts", expected));
    }
    if let (None, Some(entry)) = (onoff.arrivals.0, section.table.entry("swing")) {
        let fault = section.fault("swing", entry.node.to_value(), "the key arrivals as well");
        return Err(fault.because("is not valid without arrivals"));
    }
    Ok(TrafficKind::OnOff(onoff))
}

/// Reads traffic of the kind `voice`.
pub fn voice(section: &Section) -> Result<TrafficKind, Fault> {
    let voice: Voice = section.read()?;
    match (voice.talk.0, voice.pause.0) {
        (Some(_), None) => {
            return Err(section.missing("pause", "the mean pause, which talk requires"))
        }
        (None, Some(_)) => {
            return Err(section.missing("talk", "the mean talk spurt, which pause requires"))
        }
        _ => {}
    }
    for key in ["packet", "header"] {
        if let Some(entry) = section.table.entry(key) {
            let expected = format!("no {key}, since rate and interval determine the packet size");
            return Err(section.fault(key, entry.node.to_value(), expected));
        }
    }
    if voice.packet().0 > LARGEST {
        let expected = format!("a rate at which packets have at most {LARGEST} bytes");
        return Err(section.fault("rate", format!("\"{}\"", voice.rate), expected));
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

/// Reads traffic of the kind `video`.
pub fn video(section: &Section) -> Result<TrafficKind, Fault> {
    let video: Video = section.read()?;
    if let Some(pair) = video.ladder.windows(2).find(|pair| pair[0] >= pair[1]) {
        let rates = format!("\"{}\" before \"{}\"", pair[0], pair[1]);
        return Err(section.fault("ladder", rates, "rates in ascending order"));
    }
    let full_s = Video::UPPER * video.buffer.as_secs_f64();
    if video.reservoir.as_secs_f64() >= full_s {
        let expected = format!("less than \"{full_s}s\", 90 % of the buffer");
        return Err(section.fault("reservoir", format!("\"{}\"", video.reservoir), expected));
    }
    if video.segment > video.buffer {
        let expected = format!("at most \"{}\", the buffer", video.buffer);
        return Err(section.fault("segment", format!("\"{}\"", video.segment), expected));
    }
    Ok(TrafficKind::Video(video, tcp(section)?))
}
