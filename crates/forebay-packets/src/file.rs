//! A file of packets, whichever its format.

use forebay_units::ParamError;

use crate::arrivals::{Arrivals, Selection, Wrong};
use crate::{capture, list};

const NO_PACKETS: &str = "IPv4 or IPv6 in Ethernet (with VLAN tags, MPLS, PPPoE or LLC/SNAP), \
                          Linux cooked, loopback, PPP or raw IP";

impl Arrivals {
    /// Reads a capture (pcap, pcapng) or a list (CSV) of packets; the contents tell which it is.
    /// `key` and `file` only name it in errors.
    ///
    /// # Errors
    /// A file of neither format, broken, cut off, not in order of time, without packets, or with
    /// too many packets or flows; a selection that leaves none.
    pub fn parse(
        contents: &[u8],
        selection: &Selection,
        key: &str,
        file: &str,
    ) -> Result<Arrivals, ParamError> {
        let fault = |found: String, allowed: &str| Err(ParamError::new(key, found, allowed));
        let no_addresses = !selection.source.is_empty() || !selection.destination.is_empty();
        let read = match capture::Format::of(contents) {
            Some(format) => capture::read(contents, format, selection),
            None if no_addresses && list::is_one(contents) => {
                let found = format!("{:?} with packets {}", file, selection.in_words());
                return fault(found, "a capture: a list of packets has no addresses");
            }
            None => list::read(contents, selection),
        };
        match read {
            Ok(builder) if builder.packets.is_empty() => {
                let of = selection.in_words();
                match builder.passed_over {
                    Some((from, to)) => fault(
                        format!("no packet {of} in {file:?}"),
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
