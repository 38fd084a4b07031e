//! The keys of TCP, read.

use crate::error::Fault;
use crate::model::EcnChoice;
use crate::traffic_keys::Tcp;
use crate::tree::Section;

/// Reads the keys of TCP.
pub fn tcp(section: &Section) -> Result<Tcp, Fault> {
    let mut tcp: Tcp = section.read()?;
    if tcp.initial_window.0 > tcp.window.0 {
        return Err(section.fault(
            "initial_window",
            format!("\"{}p\"", tcp.initial_window.0),
            format!("at most \"{}p\", the window", tcp.window.0),
        ));
    }
    if tcp.sender().needs_ecn && tcp.ecn == EcnChoice::Off {
        tcp.ecn = EcnChoice::Classic;
    }
    Ok(tcp)
}
