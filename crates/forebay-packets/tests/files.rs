//! Tests of reading captures and lists of all forms, valid and invalid.

use std::borrow::Cow;
use std::time::Duration;

use forebay_aqm::{Ecn, TrafficClass};
use forebay_packets::{Arrival, Arrivals, FrameCounts, Selection};
use forebay_units::Span;
use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::SectionHeaderBlock;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::{DataLink, Endianness, TsResolution};
use proptest::prelude::*;

const UDP: u8 = 17;
const TCP: u8 = 6;

/// Returns the first 60 bytes of an IPv4 packet of `bytes` bytes from 10.0.0.`from` to 10.0.1.`to`.
fn v4(from: u8, to: u8, protocol: u8, tos: u8, bytes: u16) -> Vec<u8> {
    let mut packet = vec![0; usize::from(bytes)];
    packet[0] = 0x45;
    packet[1] = tos;
    packet[2..4].copy_from_slice(&bytes.to_be_bytes());
    packet[8] = 64;
    packet[9] = protocol;
    packet[12..16].copy_from_slice(&[10, 0, 0, from]);
    packet[16..20].copy_from_slice(&[10, 0, 1, to]);
    packet[20..24].copy_from_slice(&[0x13, 0x88, 0, 80]);
    if protocol == TCP {
        packet[32] = 5 << 4;
    }
    packet.truncate(60);
    packet
}

fn v6(class: u8, bytes: u16) -> Vec<u8> {
    let mut packet = vec![0; usize::from(bytes)];
    packet[0] = 0x60 | class >> 4;
    packet[1] = class << 4;
    packet[4..6].copy_from_slice(&(bytes - 40).to_be_bytes());
    packet[6] = UDP;
    packet[8..24].fill(1);
    packet[24..40].fill(2);
    packet.truncate(60);
    packet
}

/// Returns frames of two flows, one of them over IPv6, and an ARP frame: time in µs, bytes, and
/// length.
fn frames() -> Vec<(u64, Vec<u8>, u32)> {
    let ethernet = |kind: [u8; 2], packet: Vec<u8>| [&[0; 12], &kind[..], &packet].concat();
    vec![
        (1_600_000_000_000_007, ethernet([8, 6], vec![0; 28]), 42),
        (
            1_600_000_000_000_010,
            ethernet([8, 0], v4(1, 2, TCP, 0b10, 1400)),
            1414,
        ),
        (
            1_600_000_000_000_010,
            ethernet([0x86, 0xdd], v6(46 << 2, 200)),
            214,
        ),
        (
            1_600_000_002_500_000,
            ethernet([8, 0], v4(1, 2, TCP, 0b01, 60)),
            74,
        ),
    ]
}

fn arrival(at_us: u64, flow: u32, bytes: u16, dscp: u8, ecn: Ecn, tcp: bool) -> Arrival {
    Arrival {
        at: Span::from_micros(at_us),
        flow,
        bytes,
        class: TrafficClass::new(dscp, ecn),
        tcp,
    }
}

/// Returns the packets of [`frames`].
fn expected() -> Vec<Arrival> {
    vec![
        arrival(3, 0, 1400, 0, Ecn::Ect0, true),
        arrival(3, 1, 200, 46, Ecn::NotEct, false),
        arrival(2_499_993, 0, 60, 0, Ecn::Ect1, true),
    ]
}

fn all() -> Selection {
    Selection {
        source: Vec::new(),
        destination: Vec::new(),
        mtu: 1500,
    }
}

fn parse(contents: &[u8], selection: &Selection) -> Result<Arrivals, String> {
    Arrivals::parse(contents, selection, "file", "my.pcap").map_err(|error| error.to_string())
}

fn fault(contents: &[u8]) -> String {
    parse(contents, &all()).expect_err("it is wrong")
}

fn pcap(endianness: Endianness, ts_resolution: TsResolution, link: DataLink) -> Vec<u8> {
    let header = PcapHeader {
        endianness,
        ts_resolution,
        datalink: link,
        // Less than the packets had: they were not captured whole.
        snaplen: 74,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for (at_us, frame, length) in frames() {
        let fraction = (at_us % 1_000_000) as u32;
        let raw = RawPcapPacket {
            ts_sec: (at_us / 1_000_000) as u32,
            ts_frac: match ts_resolution {
                TsResolution::MicroSecond => fraction,
                TsResolution::NanoSecond => 1000 * fraction,
            },
            incl_len: frame.len() as u32,
            orig_len: length,
            data: Cow::Owned(frame),
        };
        writer.write_raw_packet(&raw).unwrap();
    }
    writer.into_writer()
}

fn section(endianness: Endianness) -> SectionHeaderBlock<'static> {
    SectionHeaderBlock {
        endianness,
        ..SectionHeaderBlock::default()
    }
}

/// Returns a pcapng file of [`frames`] whose clock has a resolution of `10^-resolution` s; the
/// default is microseconds.
fn pcapng(endianness: Endianness, resolution: Option<u8>) -> Vec<u8> {
    let writer = PcapNgWriter::with_section_header(Vec::new(), section(endianness));
    let mut writer = writer.unwrap();
    let options = resolution.map(InterfaceDescriptionOption::IfTsResol);
    let interface = InterfaceDescriptionBlock {
        linktype: DataLink::ETHERNET,
        snaplen: 0,
        options: options.into_iter().collect(),
    };
    writer.write_pcapng_block(interface).unwrap();
    let ticks_per_us = 10_u64.pow(u32::from(resolution.unwrap_or(6)) - 6);
    for (at_us, frame, length) in frames() {
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(ticks_per_us * at_us),
            original_len: length,
            data: Cow::Owned(frame),
            options: Vec::new(),
        };
        writer.write_pcapng_block(block).unwrap();
    }
    writer.into_inner()
}

#[test]
fn pcap_is_read_in_all_four_variants() {
    for endianness in [Endianness::Big, Endianness::Little] {
        for resolution in [TsResolution::MicroSecond, TsResolution::NanoSecond] {
            let contents = pcap(endianness, resolution, DataLink::ETHERNET);
            let read = parse(&contents, &all()).unwrap();
            assert_eq!(read.packets, expected());
            assert_eq!((read.flows, read.largest_bytes), (2, 1400));
            assert_eq!(read.hosts, [(0, 1), (2, 3)]);
        }
    }
}

#[test]
fn pcapng_is_read_with_any_clock() {
    for endianness in [Endianness::Big, Endianness::Little] {
        for resolution in [None, Some(6), Some(9)] {
            let read = parse(&pcapng(endianness, resolution), &all()).unwrap();
            assert_eq!(read.packets, expected());
        }
    }
}

#[test]
fn a_list_is_read() {
    let list = "# from a router\ntime_s, size_bytes, flow, dscp, ecn\n\
                1600000000.000000001, 1400, web, 0, 2\n\
                1600000000.5,200,call,46,0\n1600000000.5,60,web,0,3\n";
    let read = parse(list.as_bytes(), &all()).unwrap();
    assert_eq!(
        read.packets,
        [
            arrival(0, 0, 1400, 0, Ecn::Ect0, false),
            Arrival {
                at: Span::from_nanos(499_999_999),
                ..arrival(0, 1, 200, 46, Ecn::NotEct, false)
            },
            Arrival {
                at: Span::from_nanos(499_999_999),
                ..arrival(0, 0, 60, 0, Ecn::Ce, false)
            },
        ]
    );
    assert_eq!(
        (read.flows, read.length()),
        (2, Span::from_nanos(499_999_999))
    );
    assert!(read.hosts.is_empty());
    // The order of columns is free, and two of them are.
    let bare = parse(b"flow,time_s,size_bytes\na,0,9\n", &all()).unwrap();
    assert_eq!(bare.packets, [arrival(0, 0, 9, 0, Ecn::NotEct, false)]);
}

#[test]
fn a_selection_chooses_packets_by_address() {
    let contents = pcapng(Endianness::Little, None);
    let to = |prefix: &str| Selection {
        destination: vec![prefix.parse().unwrap()],
        ..all()
    };
    let some = parse(&contents, &to("10.0.1.0/24")).unwrap();
    // Time zero is that of the file.
    assert_eq!(some.packets, [expected()[0], expected()[2]]);
    assert_eq!(some.flows, 1);
    assert_eq!(
        parse(&contents, &to("10.0.0.0/24")).unwrap_err(),
        "file: \"my.pcap\" has no packet to 10.0.0.0/24; \
         expected addresses of its packets, such as 10.0.0.1 to 10.0.1.2"
    );
    assert_eq!(
        parse(b"time_s,size_bytes,flow\n0,9,a\n", &to("10.0.0.0/8")).unwrap_err(),
        "file: \"my.pcap\" has no addresses, so no packet can be chosen to 10.0.0.0/8; \
         expected a capture (pcap or pcapng)"
    );
}

#[test]
fn errors_of_captures_are_one_line() {
    let whole = pcapng(Endianness::Little, None);
    let mut late = frames();
    late.swap(0, 3);
    let cut = &whole[..whole.len() - 30];
    assert_eq!(
        fault(cut),
        "file: \"my.pcap\" ends early in frame 4; \
         expected a complete capture (editcap repairs one that ends early)"
    );
    let plain = pcap(
        Endianness::Little,
        TsResolution::MicroSecond,
        DataLink::ETHERNET,
    );
    assert!(fault(&plain[..plain.len() - 1])
        .contains("\"my.pcap\" ends early in frame 4; expected a complete "));
    // A header alone, and one with half of it.
    assert!(fault(&plain[..24]).contains("\"my.pcap\" has no IP packets; expected packets of "));
    assert!(fault(&plain[..20]).contains("\"my.pcap\" ends early in frame 1; expected a complete "));
    let mut broken = whole.clone();
    let length = whole.len();
    broken[length - 4..].fill(9);
    assert!(fault(&broken).contains("is damaged (the two lengths of a block differ) in frame 4; "));
    let radio = pcap(
        Endianness::Big,
        TsResolution::MicroSecond,
        DataLink::IEEE802_11,
    );
    assert_eq!(
        fault(&radio),
        "file: \"my.pcap\" has the link type 105; \
         expected one of Ethernet, raw IP, Linux cooked (as of tcpdump -i any), loopback, PPP, \
         PPPoE, Cisco HDLC"
    );
    assert!(fault(b"\x1f\x8b\x08compressed").contains("a capture (pcap or pcapng), or a list"));
    assert!(fault(b"").contains("a capture (pcap or pcapng), or a list"));
}

/// Returns a pcap file of `frames` at intervals of 10 ms. Each is recorded as `lost` bytes longer.
fn capture(link_type: u32, frames: &[Vec<u8>], lost: u32) -> Vec<u8> {
    let mut contents = [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65_535, link_type]
        .map(u32::to_le_bytes)
        .concat();
    for (i, frame) in (0..).zip(frames) {
        let captured = u32::try_from(frame.len()).unwrap();
        for word in [1000, 10_000 * i, captured, captured + lost] {
            contents.extend(word.to_le_bytes());
        }
        contents.extend(frame);
    }
    contents
}

fn ethernet(types: &[u8], packet: &[u8]) -> Vec<u8> {
    [&[0; 12], types, packet].concat()
}

#[test]
fn packets_are_found_in_frames_with_tags_and_labels() {
    let packet = v4(1, 2, UDP, 0, 60);
    for types in [
        &[8, 0][..],
        &[0x88, 0x47, 0, 6, 0x41, 64],
        &[0x88, 0x47, 0, 6, 0x40, 64, 0, 7, 0x41, 64],
        &[0x91, 0, 0, 10, 0x81, 0, 0, 20, 8, 0],
        &[
            0x88, 0xa8, 0, 10, 0x81, 0, 0, 20, 0x88, 0x64, 0x11, 0, 0, 1, 0, 62, 0, 0x21,
        ],
        &[0, 68, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0],
    ] {
        let read = parse(&capture(1, &[ethernet(types, &packet)], 0), &all()).unwrap();
        assert_eq!(
            read.packets,
            [arrival(0, 0, 60, 0, Ecn::NotEct, false)],
            "{types:x?}"
        );
        let counts = FrameCounts {
            frames: 1,
            ..FrameCounts::default()
        };
        assert_eq!(read.counts, counts);
    }
}

#[test]
fn frames_without_an_ip_packet_are_counted() {
    let frames = [
        ethernet(&[8, 6], &[0; 28]),
        ethernet(&[8, 0], &v4(1, 2, UDP, 0, 60)),
        ethernet(&[0x88, 0xcc], &[0; 40]),
        // Less than its own header, and of no version.
        ethernet(&[8, 0], &[&[0x45, 0, 0, 10][..], &[0; 30]].concat()),
        ethernet(&[8, 0], &[0x15; 40]),
    ];
    let read = parse(&capture(1, &frames, 0), &all()).unwrap();
    assert_eq!(read.packets.len(), 1);
    let counts = FrameCounts {
        frames: 5,
        not_ip: 4,
        ..FrameCounts::default()
    };
    assert_eq!(read.counts, counts);
    // So little was captured that no length is known.
    let short = [frames[1].clone(), frames[1][..30].to_vec()];
    let read = parse(&capture(1, &short, 30), &all()).unwrap();
    assert_eq!((read.packets.len(), read.counts.too_short), (1, 1));
}

#[test]
fn the_length_of_the_ip_header_counts_where_a_record_is_shorter() {
    // Cut to 60 bytes, and recorded as if the frames had been no longer.
    let frames = [
        ethernet(&[8, 0], &v4(1, 2, UDP, 0, 1400)),
        ethernet(&[0x86, 0xdd], &v6(0, 900)),
        ethernet(&[8, 0], &v4(1, 2, UDP, 0, 50)),
    ];
    let read = parse(&capture(1, &frames, 0), &all()).unwrap();
    let sizes: Vec<u16> = read.packets.iter().map(|packet| packet.bytes).collect();
    assert_eq!(sizes, [1400, 900, 50]);
    assert_eq!(read.counts.longer_than_recorded, 2);
}

#[test]
fn link_types_of_systems_and_check_sequences_are_read() {
    let packet = v4(1, 2, UDP, 0, 60);
    for link_type in [12, 14, 101, 228] {
        let read = parse(
            &capture(link_type, std::slice::from_ref(&packet), 0),
            &all(),
        )
        .unwrap();
        assert_eq!(read.packets, [arrival(0, 0, 60, 0, Ecn::NotEct, false)]);
    }
    let checked = ethernet(&[8, 0], &[&packet[..], &[1, 2, 3, 4]].concat());
    let with_fcs = 1 | 1 << 26 | 2 << 28;
    let read = parse(
        &capture(with_fcs, std::slice::from_ref(&checked), 0),
        &all(),
    )
    .unwrap();
    assert_eq!(read.packets[0].bytes, 60);
    // A packet too large for its length field has that of its frame, without the check sequence.
    let mut large = checked;
    large[16..18].fill(0);
    let read = parse(&capture(with_fcs, &[large], 0), &all()).unwrap();
    assert_eq!(read.packets[0].bytes, 60);
}

#[test]
fn texts_of_a_pcapng_may_be_in_any_encoding() {
    let mut contents = pcapng(Endianness::Little, Some(9));
    // Behind the section: type and length, link type and snapshot length, options of Latin-1.
    let at = usize::try_from(u32::from_le_bytes(contents[4..8].try_into().unwrap())).unwrap();
    let name = [
        2, 0, 4, 0, b'W', 0xfc, b'r', b'f', 3, 0, 3, 0, 0xe4, 0xff, 0x80, 0,
    ];
    contents.splice(at + 16..at + 16, name);
    let length = u32::from_le_bytes(contents[at + 4..at + 8].try_into().unwrap()) + 16;
    contents[at + 4..at + 8].copy_from_slice(&length.to_le_bytes());
    let end = at + usize::try_from(length).unwrap();
    contents[end - 4..end].copy_from_slice(&length.to_le_bytes());
    assert_eq!(parse(&contents, &all()).unwrap().packets, expected());
    // A simple packet block has no time.
    let simple = [3_u32, 16, 0, 16].map(u32::to_le_bytes).concat();
    contents.extend(simple);
    let read = parse(&contents, &all()).unwrap();
    assert_eq!((read.counts.frames, read.counts.without_time), (5, 1));
}

#[test]
fn a_list_may_have_exponents_and_a_mark_of_its_encoding() {
    let list = "\u{feff}time_s,size_bytes,flow\r\n0.0,1000,a\r\n1e-05,1000,a\r\n2e-05,1000,a\r\n";
    let times: Vec<u64> = parse(list.as_bytes(), &all())
        .unwrap()
        .packets
        .iter()
        .map(|packet| packet.at.as_micros())
        .collect();
    assert_eq!(times, [0, 10, 20]);
}

#[test]
fn a_capture_out_of_order_is_refused() {
    // The times of the last frame: before the first.
    let mut contents = pcap(
        Endianness::Big,
        TsResolution::MicroSecond,
        DataLink::ETHERNET,
    );
    let at = contents.len() - (16 + 14 + 60);
    contents[at..at + 4].copy_from_slice(&1_600_000_000_u32.to_be_bytes());
    contents[at + 4..at + 8].copy_from_slice(&8_u32.to_be_bytes());
    assert_eq!(
        fault(&contents),
        "file: \"my.pcap\" has a packet that is 0.000002 s earlier than the packet before it in \
         frame 4; expected packets in order of time (reordercap sorts a capture)"
    );
}

#[test]
fn errors_of_lists_are_one_line() {
    const HEADER: &str = "has a first line that is not the header of a list";
    const COLUMNS: &str =
        "the columns time_s, size_bytes and flow and optionally ecn and dscp, each once";
    const FORMATS: &str =
        "a capture (pcap or pcapng), or a list with the first line \"time_s,size_bytes,flow\"";
    const TIME: &str = "a decimal number of seconds as time_s, such as 12.000345 or 1e-05";
    const SIZE: &str = "a whole number from 1 to 65535 as size_bytes";
    for (list, reason, expected) in [
        ("time_s,size_bytes\n1,2\n", HEADER, COLUMNS),
        ("time_s,size_bytes,flow,color\n", HEADER, COLUMNS),
        ("time_s,size_bytes,flow,flow\n", HEADER, COLUMNS),
        ("a,b,c\n", HEADER, FORMATS),
        (
            "time_s,size_bytes,flow\n",
            "has no IP packets",
            "packets of IPv4 or IPv6 in Ethernet (with VLAN tags, MPLS, PPPoE or LLC/SNAP), Linux \
             cooked, loopback, PPP or raw IP",
        ),
        (
            "time_s,size_bytes,flow\n1,2\n",
            "has another number of columns in line 2",
            "as many values in each line as in the first",
        ),
        (
            "time_s,size_bytes,flow\n1,2,a\n1e,2,a\n",
            "has \"1e\" in line 3",
            TIME,
        ),
        (
            "time_s,size_bytes,flow\n-1,2,a\n",
            "has \"-1\" in line 2",
            TIME,
        ),
        (
            "time_s,size_bytes,flow\n1,0,a\n",
            "has \"0\" in line 2",
            SIZE,
        ),
        (
            "time_s,size_bytes,flow\n1,70000,a\n",
            "has \"70000\" in line 2",
            SIZE,
        ),
        (
            "time_s,size_bytes,flow\n1,2,\n",
            "has \"\" in line 2",
            "a name or number of 1 to 200 characters as flow",
        ),
        (
            "time_s,size_bytes,flow,ecn\n1,2,a,4\n",
            "has \"4\" in line 2",
            "0 (not ECN-capable), 1 (ECT(1)), 2 (ECT(0)) or 3 (CE) as ecn",
        ),
        (
            "time_s,size_bytes,flow,dscp\n1,2,a,64\n",
            "has \"64\" in line 2",
            "a whole number from 0 to 63 as dscp",
        ),
        (
            "time_s,size_bytes,flow\n2,2,a\n1.5,2,a\n",
            "has a packet that is 0.5 s earlier than the packet before it in line 3",
            "packets in order of time (reordercap sorts a capture)",
        ),
    ] {
        let line = fault(list.as_bytes());
        let message = format!("file: \"my.pcap\" {reason}; expected {expected}");
        assert_eq!(line, message, "{list}");
    }
}

proptest! {
    /// A valid file that was changed or cut is read, or refused with an error of one line.
    #[test]
    fn any_bytes_are_read_without_a_panic(
        which in 0..3,
        at in 0usize..500,
        byte: u8,
        keep in 0usize..600,
        tail in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut contents = match which {
            0 => pcap(Endianness::Big, TsResolution::MicroSecond, DataLink::ETHERNET),
            1 => pcapng(Endianness::Little, Some(9)),
            _ => b"time_s,size_bytes,flow\n1,2,a\n1.5,3,b\n".to_vec(),
        };
        contents.truncate(keep);
        let last = contents.len().saturating_sub(1);
        if let Some(place) = contents.get_mut(at.min(last)) {
            *place = byte;
        }
        contents.extend(tail);
        if let Err(line) = parse(&contents, &all()) {
            prop_assert!(!line.contains('\n'), "{}", line);
        }
    }
}
