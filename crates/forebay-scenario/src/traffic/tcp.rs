//! The keys of TCP, read.

use super::keys::TcpKeys;
use crate::error::Fault;
use crate::model::{EcnChoice, Tcp};
use crate::tree::Section;

/// Reads the keys of TCP.
pub fn tcp(section: &Section) -> Result<Tcp, Fault> {
    let keys: TcpKeys = section.read()?;
    if keys.initial_window.0 > keys.window.0 {
        return Err(section.fault(
            "initial_window",
            format!("\"{}p\"", keys.initial_window.0),
            format!("at most \"{}p\", the window", keys.window.0),
        ));
    }
    let sender = keys.tcp.0;
    Ok(Tcp {
        sender,
        ecn: match keys.ecn {
            EcnChoice::Off if sender.needs_ecn => EcnChoice::Classic,
            ecn => ecn,
        },
        pacing: keys.pacing,
        gso: keys.gso,
        window_pkts: keys.window.0,
        initial_window_pkts: keys.initial_window.0,
        min_rto: keys.min_rto,
        delayed_ack: keys.delayed_ack,
        ack_delay: keys.ack_delay,
        quick_acks: u8::try_from(keys.quick_acks).expect("its range ends at 255"),
        limited_transmit: keys.limited_transmit,
    })
}
