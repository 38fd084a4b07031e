//! Reading of captures: pcap in either byte order with microseconds or nanoseconds, and pcapng.

use pcap_file::pcap::PcapParser;
use pcap_file::{Endianness, PcapError, TsResolution};

use crate::arrivals::{Builder, Built, FilePacket, Selection, Wrong};
use crate::ip::{Flow, Headers};
use crate::link_layer::{LinkLayer, READ};

/// Nanoseconds in a second.
const NANOS: i128 = 1_000_000_000;

/// The block types of pcapng: the start of a section, an interface, and the three with a packet.
/// The obsolete packet block preceded the enhanced one, and the simple one has no time.
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const INTERFACE: u32 = 1;
const OBSOLETE: u32 = 2;
const SIMPLE: u32 = 3;
const ENHANCED: u32 = 6;
/// The options of an interface: the resolution of its clock, the length of the frame check
/// sequence, and the offset of its clock in s.
const TS_RESOLUTION: u16 = 9;
const FCS_LENGTH: u16 = 13;
const TS_OFFSET: u16 = 14;

/// The formats of captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Pcap,
    PcapNg,
}

impl Format {
    /// Returns the format by the first four bytes of a file; `None` for a file that is not a
    /// capture.
    pub fn of(contents: &[u8]) -> Option<Format> {
        match contents.first_chunk()? {
            [0xa1, 0xb2, 0xc3, 0xd4]
            | [0xa1, 0xb2, 0x3c, 0x4d]
            | [0xd4, 0xc3, 0xb2, 0xa1]
            | [0x4d, 0x3c, 0xb2, 0xa1] => Some(Format::Pcap),
            [0x0a, 0x0d, 0x0d, 0x0a] => Some(Format::PcapNg),
            _ => None,
        }
    }
}

/// Reads the chosen packets of a capture.
///
/// # Errors
/// The capture is broken, cut off, or not in order of time, or has an unknown link type.
pub fn read(contents: &[u8], format: Format, selection: &Selection) -> Result<Built, Wrong> {
    let mut reader = Reader {
        selection,
        builder: Builder::new(selection),
        zero_ns: None,
    };
    match format {
        Format::Pcap => pcap(contents, &mut reader)?,
        Format::PcapNg => pcapng(contents, &mut reader)?,
    }
    Ok(reader.builder.build())
}

/// The parts of a frame around the IP packet, in a capture or of an interface.
#[derive(Clone, Copy)]
struct Link {
    layer: LinkLayer,
    /// The size of the frame check sequence at the end of each frame.
    fcs_bytes: usize,
}

impl Link {
    /// Returns the link of a link type whose high bits may give the length of the frame check
    /// sequence in words of 16 bits (draft-ietf-opsawg-pcap).
    fn of(link_type: u32) -> Result<Link, Wrong> {
        const HAS_FCS: u32 = 1 << 26;
        let layer = LinkLayer::of(link_type).ok_or_else(|| Wrong {
            reason: format!("has the link type {}", link_type & 0xffff),
            expected: READ,
        })?;
        let words = usize::try_from(link_type >> 28).unwrap_or(0);
        let fcs_bytes = if link_type & HAS_FCS == 0 {
            0
        } else {
            2 * words
        };
        Ok(Link { layer, fcs_bytes })
    }
}

/// The state of reading: the packets so far.
struct Reader<'a> {
    selection: &'a Selection,
    builder: Builder<Flow>,
    /// The time of the first frame, in ns.
    zero_ns: Option<i128>,
}

impl Reader<'_> {
    /// Adds a frame of `length` bytes, of which `start` was captured.
    fn frame(&mut self, link: Link, at_ns: i128, start: &[u8], length: u32) -> Result<(), Wrong> {
        let counts = &mut self.builder.counts;
        counts.frames += 1;
        let zero_ns = *self.zero_ns.get_or_insert(at_ns);
        let recorded = usize::try_from(length)
            .unwrap_or(usize::MAX)
            .max(start.len());
        let recorded = recorded.saturating_sub(link.fcs_bytes);
        let start = &start[..start.len().min(recorded)];
        let Some(ip_at) = link.layer.ip_at(start) else {
            counts.not_ip += 1;
            return Ok(());
        };
        let packet = start.get(ip_at..).unwrap_or(&[]);
        let recorded = recorded.saturating_sub(ip_at).max(packet.len());
        // Some tools cut frames and record the cut length as the original one.
        let claimed = Headers::claimed_length(packet).unwrap_or(0);
        let Some(headers) = Headers::read_start(packet, recorded.max(claimed)) else {
            if packet.len() < recorded {
                counts.too_short += 1;
            } else {
                counts.not_ip += 1;
            }
            return Ok(());
        };
        let flow = headers.flow;
        if !self.selection.takes(flow.source, flow.destination) {
            self.builder.pass_over(flow.source, flow.destination);
            return Ok(());
        }
        counts.longer_than_recorded += u64::from(claimed > recorded);
        let frame = counts.frames;
        let packet = FilePacket {
            at_ns: at_ns - zero_ns,
            bytes: headers.bytes,
            header_bytes: headers.header_bytes(),
            class: headers.class,
            tcp: headers.is_tcp(),
        };
        let number = self
            .builder
            .flow(flow, Some((flow.source, flow.destination)));
        number
            .and_then(|number| self.builder.push(number, &packet))
            .map_err(|wrong| Wrong {
                reason: format!("{} in frame {frame}", wrong.reason),
                ..wrong
            })
    }

    /// Returns the error of the frame after the last one.
    fn wrong(&self, fault: &str) -> Wrong {
        Wrong {
            reason: format!("{fault} in frame {}", self.builder.counts.frames + 1),
            expected: "a complete capture (editcap repairs one that ends early)",
        }
    }

    /// Returns the error of the frame after the last one, from an error of the parser.
    fn broken(&self, error: &PcapError) -> Wrong {
        match error {
            PcapError::IncompleteBuffer => self.wrong("ends early"),
            PcapError::InvalidField(fault) => self.wrong(&format!("is damaged ({fault})")),
            error => self.wrong(&format!("is damaged ({error})")),
        }
    }
}

/// Reads a pcap file.
fn pcap(contents: &[u8], reader: &mut Reader) -> Result<(), Wrong> {
    let (mut rest, parser) = PcapParser::new(contents).map_err(|error| reader.broken(&error))?;
    let header = parser.header();
    let link = Link::of(header.datalink.into())?;
    let fraction_ns = match header.ts_resolution {
        TsResolution::MicroSecond => 1000,
        TsResolution::NanoSecond => 1,
    };
    while !rest.is_empty() {
        // The parser's checked form refuses packets that were captured in part.
        let (after, packet) = parser
            .next_raw_packet(rest)
            .map_err(|error| reader.broken(&error))?;
        let at_ns = NANOS * i128::from(packet.ts_sec) + fraction_ns * i128::from(packet.ts_frac);
        reader.frame(link, at_ns, &packet.data, packet.orig_len)?;
        rest = after;
    }
    Ok(())
}

/// An interface of a pcapng file.
struct Interface {
    link: Link,
    /// The ticks of its clock in a second.
    ticks_per_s: i128,
    offset_ns: i128,
}

impl Interface {
    /// Reads the description of an interface; `None` where it is cut off. Options with text are
    /// ignored, because their encoding is unknown.
    fn of(body: &[u8], order: Endianness) -> Option<Result<Interface, Wrong>> {
        let link = match Link::of(u16_at(body, 0, order)?.into()) {
            Ok(link) => link,
            Err(wrong) => return Some(Err(wrong)),
        };
        let mut interface = Interface {
            link,
            ticks_per_s: 1_000_000,
            offset_ns: 0,
        };
        let mut rest = body.get(8..)?;
        // Some tools omit the option that ends the options.
        while let (Some(code), Some(length)) = (u16_at(rest, 0, order), u16_at(rest, 2, order)) {
            let length = usize::from(length);
            let Some(value) = rest.get(4..4 + length) else {
                break;
            };
            if let Err(wrong) = interface.option(code, value, order) {
                return Some(Err(wrong));
            }
            rest = rest.get(4 + length.next_multiple_of(4)..).unwrap_or(&[]);
        }
        Some(Ok(interface))
    }

    /// Reads an option.
    fn option(&mut self, code: u16, value: &[u8], order: Endianness) -> Result<(), Wrong> {
        match (code, value) {
            // A power of ten, or of two with the first bit set.
            (TS_RESOLUTION, [resolution, ..]) => {
                let power = u32::from(resolution & 0x7f);
                let base: i128 = if resolution & 0x80 == 0 { 10 } else { 2 };
                let ticks = base.checked_pow(power).filter(|ticks| *ticks <= 1 << 62);
                self.ticks_per_s = ticks.ok_or_else(|| Wrong {
                    reason: format!("has a clock with the resolution {resolution}"),
                    expected: "a resolution in the range of pcapng",
                })?;
            }
            // The length is in bits; some tools write it in bytes.
            (FCS_LENGTH, [length, ..]) => {
                let length = usize::from(*length);
                self.link.fcs_bytes = if length < 16 { length } else { length / 8 };
            }
            (TS_OFFSET, [..]) => {
                if let Some(seconds) = u64_at(value, 0, order) {
                    self.offset_ns = NANOS * i128::from(seconds.cast_signed());
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// A block of pcapng. Blocks are read here because the crate pcap-file refuses texts that are not
/// UTF-8, which interfaces of Windows have.
struct Block<'a> {
    kind: u32,
    body: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Block<'a> {
    /// Reads the first block of `contents`. A section block sets the byte order.
    fn of(contents: &'a [u8], order: &mut Endianness) -> Result<Block<'a>, PcapError> {
        if contents.len() < 12 {
            return Err(PcapError::IncompleteBuffer);
        }
        if contents.starts_with(&SECTION) {
            *order = match contents[8..12] {
                [0x1a, 0x2b, 0x3c, 0x4d] => Endianness::Big,
                [0x4d, 0x3c, 0x2b, 0x1a] => Endianness::Little,
                _ => return Err(PcapError::InvalidField("a section without a byte order")),
            };
        }
        let word = |at| u32_at(contents, at, *order).ok_or(PcapError::IncompleteBuffer);
        let (kind, length) = (word(0)?, word(4)?);
        let bytes = usize::try_from(length).map_err(|_| PcapError::IncompleteBuffer)?;
        if bytes < 12 || bytes % 4 != 0 {
            return Err(PcapError::InvalidField("a block with an impossible length"));
        }
        if contents.len() < bytes {
            return Err(PcapError::IncompleteBuffer);
        }
        if word(bytes - 4)? != length {
            return Err(PcapError::InvalidField("the two lengths of a block differ"));
        }
        Ok(Block {
            kind,
            body: &contents[8..bytes - 4],
            rest: &contents[bytes..],
        })
    }
}

/// Reads a pcapng file.
fn pcapng(contents: &[u8], reader: &mut Reader) -> Result<(), Wrong> {
    let mut rest = contents;
    let mut order = Endianness::Little;
    let mut interfaces: Vec<Interface> = Vec::new();
    while !rest.is_empty() {
        // A new section begins without interfaces.
        if rest.starts_with(&SECTION) {
            interfaces.clear();
        }
        let block = Block::of(rest, &mut order).map_err(|error| reader.broken(&error))?;
        rest = block.rest;
        match block.kind {
            INTERFACE => match Interface::of(block.body, order) {
                Some(interface) => interfaces.push(interface?),
                None => return Err(reader.wrong("has an incomplete interface")),
            },
            SIMPLE => {
                reader.builder.counts.frames += 1;
                reader.builder.counts.without_time += 1;
            }
            ENHANCED | OBSOLETE => {
                // Options after the packet are ignored: some tools do not end them.
                let packet = PacketBlock::of(block.kind, block.body, order)
                    .ok_or_else(|| reader.wrong("has an incomplete packet"))?;
                let interface = interfaces
                    .get(packet.interface)
                    .ok_or_else(|| reader.wrong("has an unknown interface"))?;
                let ticks = i128::from(packet.ticks);
                let at_ns = NANOS * ticks / interface.ticks_per_s + interface.offset_ns;
                reader.frame(interface.link, at_ns, packet.start, packet.length)?;
            }
            // The other blocks have no packets.
            _ => {}
        }
    }
    Ok(())
}

/// The fields of a packet block.
struct PacketBlock<'a> {
    interface: usize,
    ticks: u64,
    length: u32,
    start: &'a [u8],
}

impl<'a> PacketBlock<'a> {
    /// Reads an enhanced or an obsolete packet block; `None` where it is cut off.
    fn of(kind: u32, body: &'a [u8], order: Endianness) -> Option<PacketBlock<'a>> {
        let word = |at: usize| u32_at(body, at, order);
        let first = word(0)?;
        let interface = match (kind, order) {
            (ENHANCED, _) => first,
            // The other half of the word in the obsolete block counts drops.
            (_, Endianness::Big) => first >> 16,
            (_, Endianness::Little) => first & 0xffff,
        };
        let captured = usize::try_from(word(12)?).ok()?;
        Some(PacketBlock {
            interface: usize::try_from(interface).ok()?,
            ticks: u64::from(word(4)?) << 32 | u64::from(word(8)?),
            length: word(16)?,
            start: body.get(20..)?.get(..captured)?,
        })
    }
}

/// Returns the bytes at `at` in little-endian order.
fn bytes_at<const N: usize>(bytes: &[u8], at: usize, order: Endianness) -> Option<[u8; N]> {
    let mut value: [u8; N] = bytes.get(at..at + N)?.try_into().ok()?;
    if let Endianness::Big = order {
        value.reverse();
    }
    Some(value)
}

fn u16_at(bytes: &[u8], at: usize, order: Endianness) -> Option<u16> {
    bytes_at(bytes, at, order).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize, order: Endianness) -> Option<u32> {
    bytes_at(bytes, at, order).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize, order: Endianness) -> Option<u64> {
    bytes_at(bytes, at, order).map(u64::from_le_bytes)
}
