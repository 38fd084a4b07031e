//! Reading of files of packets in any format.

use forebay_units::ParamError;

use crate::arrivals::{Arrivals, Selection, Wrong};
use crate::{capture, list};

/// The allowed contents of a capture, for error messages.
const NO_PACKETS: &str = "IPv4 or IPv6 in Ethernet (with VLAN tags, MPLS, PPPoE or LLC/SNAP), \
                          Linux cooked, loopback, PPP or raw IP";

impl Arrivals {
    /// Reads the chosen packets of a capture (pcap, pcapng) or of a list (CSV). The contents
    /// determine the format. `key` and `file` name the file in error messages.
    ///
    /// # Errors
    /// The file has another format, is broken, cut off, or not in order of time, has too many
    /// packets or flows, or has no packet that is chosen.
    pub fn parse(
        contents: &[u8],
        selection: &Selection,
        key: &str,
        file: &str,
    ) -> Result<Arrivals, ParamError> {
        let fault = |found: String, allowed: &str| Err(ParamError::new(key, found, allowed));
        let needs_addresses = !selection.source.is_empty() || !selection.destination.is_empty();
        let result = match capture::Format::of(contents) {
            Some(format) => capture::read(contents, format, selection),
            None if needs_addresses && list::is_list(contents) => {
                let found = format!("{:?} with packets {}", file, selection.in_words());
                return fault(found, "a capture: a list of packets has no addresses");
            }
            None => list::read(contents, selection),
        };
        match result {
            Ok(builder) if builder.packets.is_empty() => {
                let choice = selection.in_words();
                match builder.passed_over {
                    Some((from, to)) => fault(
                        format!("no packet {choice} in {file:?}"),
                        &format!("addresses of its packets, such as {from} to {to}"),
                    ),
                    None => fault(format!("{file:?} without IP packets"), NO_PACKETS),
                }
            }
            Ok(builder) => Ok(builder.finish()),
            Err(Wrong { found, allowed }) => fault(format!("{found} in {file:?}"), allowed),
        }
    }
}
