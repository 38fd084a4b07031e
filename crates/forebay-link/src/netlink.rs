//! Devices, addresses, routes and qdiscs of one network namespace, over netlink (rtnetlink(7)).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage, Stats64,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// A netlink socket, which belongs to the network namespace in which it was opened.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// The root qdisc of a device with its statistics.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// The kind of the qdisc, such as "fq_codel" or "noqueue".
    pub kind: String,
    /// Packets in the queue (`qlen`).
    pub packets: u32,
    /// Bytes in the queue (`backlog`).
    pub bytes: u32,
    /// Packets dropped since the qdisc was made.
    pub drops: u32,
    /// Bytes sent since the qdisc was made.
    pub sent_bytes: u64,
}

impl Netlink {
    /// Opens a socket for devices, addresses, routes and qdiscs.
    ///
    /// # Errors
    /// Those of socket(2), bind(2) and connect(2).
    pub fn open() -> io::Result<Netlink> {
        Netlink::of_protocol(NETLINK_ROUTE)
    }

    /// Opens a socket of another netlink protocol, such as NETLINK_SOCK_DIAG.
    ///
    /// # Errors
    /// Those of socket(2), bind(2) and connect(2).
    pub fn of_protocol(protocol: isize) -> io::Result<Netlink> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink {
            socket,
            sequence: 0,
        })
    }

    /// Sends a request and returns all its answers.
    ///
    /// # Errors
    /// The kernel refuses the request, or an answer is malformed.
    pub fn ask<T: NetlinkSerializable + NetlinkDeserializable>(
        &mut self,
        message: T,
        flags: u16,
    ) -> io::Result<Vec<T>> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = datagram.as_slice();
            while !rest.is_empty() {
                let answer = NetlinkMessage::<T>::deserialize(rest).map_err(io::Error::other)?;
                let length = (answer.header.length as usize).next_multiple_of(4);
                if answer.header.sequence_number == self.sequence {
                    match answer.payload {
                        NetlinkPayload::Error(error) if error.code.is_some() => {
                            return Err(error.to_io())
                        }
                        NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(answers),
                        NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                        _ => {}
                    }
                }
                rest = rest.get(length..).unwrap_or(&[]);
            }
        }
    }

    /// Sends a request and waits for its acknowledgement.
    fn acknowledged(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.ask(message, flags | NLM_F_ACK).map(|_| ())
    }

    /// Returns the number of a device.
    ///
    /// # Errors
    /// No device has this name.
    pub fn index(&mut self, name: &str) -> io::Result<u32> {
        Ok(self.link(name)?.header.index)
    }

    /// Returns the statistics of a device: packets, bytes, errors and drops.
    ///
    /// # Errors
    /// No device has this name, or the kernel has no statistics of it.
    pub fn counts(&mut self, name: &str) -> io::Result<Stats64> {
        let attributes = self.link(name)?.attributes;
        let stats = attributes
            .into_iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Stats64(stats) => Some(stats),
                _ => None,
            });
        stats.ok_or_else(|| io::Error::other("the kernel keeps no counts of the device"))
    }

    /// Returns the kernel's description of a device.
    fn link(&mut self, name: &str) -> io::Result<LinkMessage> {
        let mut message = LinkMessage::default();
        message
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        let answers = self.ask(RouteNetlinkMessage::GetLink(message), NLM_F_ACK)?;
        let link = answers.into_iter().find_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        });
        link.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Sets `attributes` and brings the device up, without ARP where `arp` is false.
    pub fn up(&mut self, index: u32, arp: bool, attributes: Vec<LinkAttribute>) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        if !arp {
            message.header.flags |= LinkFlags::Noarp;
            message.header.change_mask |= LinkFlags::Noarp;
        }
        message.attributes = attributes;
        self.acknowledged(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Makes a veth pair: `here` in this namespace, and `name` with the Ethernet address `address`
    /// in the namespace `there`. With `both`, `here` has the same address, so that neither device
    /// needs ARP to find the other.
    pub fn add_veth(
        &mut self,
        here: &str,
        name: &str,
        there: BorrowedFd,
        address: [u8; 6],
        both: bool,
    ) -> io::Result<()> {
        let mut peer = LinkMessage::default();
        peer.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::NetNsFd(there.as_raw_fd()),
            LinkAttribute::Address(address.to_vec()),
        ];
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(here.to_owned()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ];
        if both {
            message
                .attributes
                .push(LinkAttribute::Address(address.to_vec()));
        }
        self.acknowledged(
            RouteNetlinkMessage::NewLink(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Adds an address to a device. IPv6 addresses skip duplicate address detection (RFC 4862,
    /// section 5.4).
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix;
        message.header.index = index;
        message.attributes = vec![
            AddressAttribute::Address(address),
            AddressAttribute::Local(address),
        ];
        if address.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        self.acknowledged(
            RouteNetlinkMessage::NewAddress(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Adds a default route through a device.
    pub fn add_default_route(&mut self, index: u32, family: AddressFamily) -> io::Result<()> {
        self.add_route(index, family, None)
    }

    /// Adds a route to the host `address` through a device.
    pub fn add_route_to(&mut self, index: u32, address: Ipv4Addr) -> io::Result<()> {
        self.add_route(index, AddressFamily::Inet, Some(address))
    }

    /// Adds a route to a host, or a default route where `to` is `None`.
    fn add_route(
        &mut self,
        index: u32,
        family: AddressFamily,
        to: Option<Ipv4Addr>,
    ) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![RouteAttribute::Oif(index)];
        if let Some(address) = to {
            message.header.destination_prefix_length = 32;
            let address = RouteAddress::Inet(address);
            message
                .attributes
                .push(RouteAttribute::Destination(address));
        }
        self.acknowledged(
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Returns the root qdisc of a device; `None` where it has none.
    pub fn root_queue(&mut self, index: u32) -> io::Result<Option<Queue>> {
        let message = TcMessage::with_index(index.cast_signed());
        let answers = self.ask(RouteNetlinkMessage::GetQueueDiscipline(message), NLM_F_DUMP)?;
        let root = answers.into_iter().find_map(|message| match message {
            RouteNetlinkMessage::NewQueueDiscipline(queue)
                if queue.header.index == index.cast_signed()
                    && queue.header.parent == TcHandle::ROOT =>
            {
                Some(queue.attributes)
            }
            _ => None,
        });
        Ok(root.map(|attributes| {
            let mut queue = Queue::default();
            for attribute in attributes {
                match attribute {
                    TcAttribute::Kind(kind) => queue.kind = kind,
                    TcAttribute::Stats2(stats) => {
                        for statistic in stats {
                            match statistic {
                                TcStats2::Queue(counts) => {
                                    queue.packets = counts.qlen;
                                    queue.bytes = counts.backlog;
                                    queue.drops = counts.drops;
                                }
                                TcStats2::Basic(counts) => queue.sent_bytes = counts.bytes,
                                _ => {}
                            }
                        }
                    }
                    _ => {}
                }
            }
            queue
        }))
    }
}

/// Returns the family of an address.
fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

/// Returns the attributes of one end's device: its MTU, and the length of its queue in packets.
pub fn end_attributes(mtu: u32, queue_pkts: u32) -> Vec<LinkAttribute> {
    vec![
        LinkAttribute::Mtu(mtu),
        LinkAttribute::TxQueueLen(queue_pkts),
    ]
}

/// Sets up the loopback device and the device of one end of the link, with its addresses and
/// default routes. Returns whether the end has IPv6; where the kernel lacks IPv6, the end has IPv4
/// only.
///
/// # Errors
/// The kernel refuses a request that does not concern IPv6.
pub fn set_up_end(
    netlink: &mut Netlink,
    device: &str,
    arp: bool,
    attributes: Vec<LinkAttribute>,
    (v4, prefix): (Ipv4Addr, u8),
    v6: Option<Ipv6Addr>,
) -> io::Result<bool> {
    netlink.up(1, true, Vec::new())?;
    let index = netlink.index(device)?;
    quiet(netlink, index);
    netlink.up(index, arp, attributes)?;
    netlink.add_address(index, v4.into(), prefix)?;
    netlink.add_default_route(index, AddressFamily::Inet)?;
    let Some(v6) = v6 else { return Ok(false) };
    let ipv6 = netlink
        .add_address(index, v6.into(), 64)
        .and_then(|()| netlink.add_default_route(index, AddressFamily::Inet6));
    Ok(ipv6.is_ok())
}

/// Stops a device from making an IPv6 link-local address, so that it sends no router solicitations
/// into the queue under test. A kernel without IPv6 refuses the request, which is ignored.
pub fn quiet(netlink: &mut Netlink, index: u32) {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = vec![LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(
        vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)],
    )])];
    let _ = netlink.acknowledged(RouteNetlinkMessage::SetLink(message), 0);
}
