//! Reading of files of packets in any format.

use forebay_units::ParamError;

use crate::arrivals::{Arrivals, Selection, Wrong};
use crate::{capture, list};

/// The packets that a capture may hold, for error messages.
const IP_PACKETS: &str =
    "packets of IPv4 or IPv6 in Ethernet (with VLAN tags, MPLS, PPPoE or LLC/SNAP), \
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
        let fault = |reason: String, expected: &str| {
            Err(ParamError::new(key, format!("{file:?}"), expected).because(reason))
        };
        let needs_addresses = !selection.source.is_empty() || !selection.destination.is_empty();
        let result = match capture::Format::of(contents) {
            Some(format) => capture::read(contents, format, selection),
            None if needs_addresses && list::is_list(contents) => {
                let reason = format!(
                    "has no addresses, so no packet can be chosen {}",
                    selection.in_words()
                );
                return fault(reason, "a capture (pcap or pcapng)");
            }
            None => list::read(contents, selection),
        };
        match result {
            Ok(builder) if builder.packets.is_empty() => {
                let choice = selection.in_words();
                match builder.passed_over {
                    Some((from, to)) => fault(
                        format!("has no packet {choice}"),
                        &format!("addresses of its packets, such as {from} to {to}"),
                    ),
                    None => fault("has no IP packets".to_owned(), IP_PACKETS),
                }
            }
            Ok(builder) => Ok(builder.finish()),
            Err(Wrong { reason, expected }) => fault(reason, expected),
        }
    }
}
