//! Captures: pcap in either order of bytes with microseconds or nanoseconds, and pcapng.

use pcap_file::pcap::PcapParser;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::PcapNgParser;
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

use crate::arrivals::{Builder, Built, Found, Selection, Wrong};
use crate::ip::{Flow, Headers};
use crate::link_layer::{LinkLayer, READ};

const NANOS: i128 = 1_000_000_000;

/// Blocks of pcapng that hold a packet and its time: today's, and the one before it.
const ENHANCED: u32 = 6;
const OBSOLETE: u32 = 2;

/// The formats of captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Pcap,
    PcapNg,
}

impl Format {
    /// By the first four bytes.
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

pub fn read(contents: &[u8], format: Format, selection: &Selection) -> Result<Built, Wrong> {
    let mut taken = Taken {
        selection,
        builder: Builder::new(selection),
        zero_ns: None,
        frames: 0,
    };
    match format {
        Format::Pcap => pcap(contents, &mut taken)?,
        Format::PcapNg => pcapng(contents, &mut taken)?,
    }
    Ok(taken.builder.build())
}

/// The packets so far.
struct Taken<'a> {
    selection: &'a Selection,
    builder: Builder<Flow>,
    /// Time of the first frame.
    zero_ns: Option<i128>,
    frames: u64,
}

impl Taken<'_> {
    /// A frame of `length` bytes, of which `start` was captured.
    fn frame(
        &mut self,
        link: LinkLayer,
        at_ns: i128,
        start: &[u8],
        length: u32,
    ) -> Result<(), Wrong> {
        self.frames += 1;
        let zero_ns = *self.zero_ns.get_or_insert(at_ns);
        let Some(ip_at) = link.ip_at(start) else {
            return Ok(());
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let packet = start.get(ip_at..).unwrap_or(&[]);
        let length = length.saturating_sub(ip_at).max(packet.len());
        let Some(headers) = Headers::read_start(packet, length) else {
            return Ok(());
        };
        let flow = headers.flow;
        if !self.selection.takes(flow.source, flow.destination) {
            self.builder.pass_over(flow.source, flow.destination);
            return Ok(());
        }
        let found = Found {
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
            .and_then(|number| self.builder.push(number, &found))
            .map_err(|wrong| Wrong {
                found: format!("{} (frame {})", wrong.found, self.frames),
                ..wrong
            })
    }

    fn broken(&self, error: &PcapError) -> Wrong {
        let next = self.frames + 1;
        Wrong {
            found: match error {
                PcapError::IncompleteBuffer => format!("frame {next} cut off"),
                PcapError::InvalidField(what) => format!("frame {next} broken: {what}"),
                other => format!("frame {next} broken: {other}"),
            },
            allowed: "a whole capture (editcap repairs one that ends early)",
        }
    }
}

fn link_layer(link: DataLink) -> Result<LinkLayer, Wrong> {
    LinkLayer::of(link).ok_or_else(|| Wrong {
        found: format!("link type {}", u32::from(link)),
        allowed: READ,
    })
}

fn pcap(contents: &[u8], taken: &mut Taken) -> Result<(), Wrong> {
    let (mut rest, parser) = PcapParser::new(contents).map_err(|error| taken.broken(&error))?;
    let header = parser.header();
    let link = link_layer(header.datalink)?;
    let fraction_ns = match header.ts_resolution {
        TsResolution::MicroSecond => 1000,
        TsResolution::NanoSecond => 1,
    };
    while !rest.is_empty() {
        // Its checked form refuses packets that were not captured whole.
        let (after, packet) = parser
            .next_raw_packet(rest)
            .map_err(|error| taken.broken(&error))?;
        let at_ns = NANOS * i128::from(packet.ts_sec) + fraction_ns * i128::from(packet.ts_frac);
        taken.frame(link, at_ns, &packet.data, packet.orig_len)?;
        rest = after;
    }
    Ok(())
}

/// How an interface's frames and times are read.
struct Interface {
    link: LinkLayer,
    /// Ticks of its clock in a second.
    ticks_per_s: i128,
    offset_ns: i128,
}

impl Interface {
    fn of(block: &InterfaceDescriptionBlock) -> Result<Interface, Wrong> {
        let (mut ticks_per_s, mut offset_ns) = (1_000_000, 0);
        for option in &block.options {
            match option {
                // A power of ten, or of two with the first bit set.
                InterfaceDescriptionOption::IfTsResol(resolution) => {
                    let power = u32::from(resolution & 0x7f);
                    let base: i128 = if resolution & 0x80 == 0 { 10 } else { 2 };
                    let ticks = base.checked_pow(power).filter(|ticks| *ticks <= 1 << 62);
                    ticks_per_s = ticks.ok_or_else(|| Wrong {
                        found: format!("a clock with resolution {resolution}"),
                        allowed: "a resolution in the range of pcapng",
                    })?;
                }
                InterfaceDescriptionOption::IfTsOffset(seconds) => {
                    offset_ns = NANOS * i128::from(seconds.cast_signed());
                }
                _ => {}
            }
        }
        Ok(Interface {
            link: link_layer(block.linktype)?,
            ticks_per_s,
            offset_ns,
        })
    }
}

fn pcapng(contents: &[u8], taken: &mut Taken) -> Result<(), Wrong> {
    let (mut rest, mut parser) =
        PcapNgParser::new(contents).map_err(|error| taken.broken(&error))?;
    let mut interfaces: Vec<Interface> = Vec::new();
    while !rest.is_empty() {
        let (after, block) = parser
            .next_raw_block(rest)
            .map_err(|error| taken.broken(&error))?;
        rest = after;
        // A new section begins without interfaces.
        interfaces.truncate(parser.interfaces().len());
        for block in &parser.interfaces()[interfaces.len()..] {
            interfaces.push(Interface::of(block)?);
        }
        if !matches!(block.type_, ENHANCED | OBSOLETE) {
            continue;
        }
        // Options behind the packet are passed over: some tools do not end them.
        let packet = PacketBlock::of(block.type_, &block.body, parser.section().endianness)
            .ok_or_else(|| taken.broken(&PcapError::InvalidField("a block of a packet")))?;
        let Some(interface) = interfaces.get(packet.interface) else {
            let none = PcapError::InvalidInterfaceId(0);
            return Err(taken.broken(&none));
        };
        let at_ns = NANOS * i128::from(packet.ticks) / interface.ticks_per_s + interface.offset_ns;
        taken.frame(interface.link, at_ns, packet.start, packet.length)?;
    }
    Ok(())
}

/// The fields of a block that holds a packet.
struct PacketBlock<'a> {
    interface: usize,
    ticks: u64,
    length: u32,
    start: &'a [u8],
}

impl<'a> PacketBlock<'a> {
    fn of(kind: u32, body: &'a [u8], order: Endianness) -> Option<PacketBlock<'a>> {
        let word = |at: usize| {
            let bytes = body.get(at..at + 4)?.try_into().ok()?;
            Some(match order {
                Endianness::Big => u32::from_be_bytes(bytes),
                Endianness::Little => u32::from_le_bytes(bytes),
            })
        };
        let first = word(0)?;
        let interface = match (kind, order) {
            (ENHANCED, _) => first,
            // The obsolete block counts drops in the other half.
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
