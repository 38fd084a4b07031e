//! quinn-proto as an endpoint of the network: a client that sends so many bytes on one stream, and
//! a server that reads them.

mod plaintext;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use forebay_net::{Ecn, Endpoint, Time};
use plaintext::Plaintext;
use quinn_proto as quinn;
use quinn_proto::{ClientConfig, EndpointConfig, ServerConfig, TransportConfig};

/// The first traffic is the caller's; CUBIC runs in parallel with it.
pub const SCENARIO: &str = r#"
    duration = "20s"
    measure  = ["2s", "20s"]

    [bottleneck]
    rate   = "20Mbit/s"
    delay  = "1ms"
    buffer = "400p"

    [[traffic]]
    kind  = "external"
    flows = 1
    label = "quic"
    rtt   = "40ms"

    [[traffic]]
    kind   = "ftp"
    label  = "cubic"
    flows  = 20
    packet = "1500B"
    header = "52B"
    rtt    = "40ms"
    tcp    = "linux-cubic"
    start  = { uniform = ["0s", "1s"] }

    [[law]]
    kind = "fq-codel"
"#;

/// One end, with its only connection.
pub struct Quic {
    endpoint: quinn::Endpoint,
    connection: Option<(quinn::ConnectionHandle, quinn::Connection)>,
    peer: SocketAddr,
    /// Virtual time counts from here; what the processor's clock says does not matter.
    epoch: Instant,
    /// Of a client, to be sent.
    offered_bytes: u64,
    written_bytes: u64,
    stream: Option<quinn::StreamId>,
    pub read_bytes: u64,
    /// When the last byte of the stream was read, or acknowledged.
    pub done_at: Option<Time>,
    /// Packets that came with CE.
    pub marked: u64,
    buffer: Vec<u8>,
}

const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 4433);
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 4433);

/// Connection identifiers that count.
struct Counted(u64);

impl quinn::ConnectionIdGenerator for Counted {
    fn generate_cid(&mut self) -> quinn::ConnectionId {
        self.0 += 1;
        quinn::ConnectionId::new(&self.0.to_be_bytes())
    }
    fn cid_len(&self) -> usize {
        8
    }
    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

impl Quic {
    /// A client and its server, for a transfer of so many bytes; `seed` is that of their random
    /// draws.
    pub fn pair(bytes: u64, seed: u8) -> (Quic, Quic) {
        let epoch = Instant::now();
        let end = |server: Option<Arc<ServerConfig>>, peer, seed| {
            let mut config = EndpointConfig::new(Arc::new(Plaintext));
            config.rng_seed(Some([seed; 32]));
            config.cid_generator(move || Box::new(Counted(u64::from(seed) << 32)));
            Quic {
                endpoint: quinn::Endpoint::new(Arc::new(config), server, true, None),
                connection: None,
                peer,
                epoch,
                offered_bytes: 0,
                written_bytes: 0,
                stream: None,
                read_bytes: 0,
                done_at: None,
                marked: 0,
                buffer: Vec::new(),
            }
        };
        let server = ServerConfig::new(Arc::new(Plaintext), Arc::new(Plaintext));
        let server = end(Some(Arc::new(server)), CLIENT, 2 * seed);
        let mut client = end(None, SERVER, 2 * seed + 1);
        client.offered_bytes = bytes;
        let mut config = ClientConfig::new(Arc::new(Plaintext));
        let mut transport = TransportConfig::default();
        transport.initial_mtu(1200);
        config.transport_config(Arc::new(transport));
        config.initial_dst_cid_provider(Arc::new(move || {
            quinn::ConnectionId::new(&[0xff, seed, 0, 0, 0, 0, 0, 1])
        }));
        let connection = client.endpoint.connect(epoch, config, SERVER, "server");
        client.connection = Some(connection.expect("a first connection"));
        (client, server)
    }

    pub fn stats(&self) -> quinn::ConnectionStats {
        let (_, connection) = self.connection.as_ref().expect("it has connected");
        connection.stats()
    }

    fn instant(&self, now: Time) -> Instant {
        self.epoch + Duration::from_nanos(now.as_nanos())
    }

    /// Lets endpoint and connection talk to each other, and the application read and write.
    fn advance(&mut self, now: Time) {
        let Some((handle, connection)) = &mut self.connection else {
            return;
        };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(answer);
            }
        }
        while let Some(event) = connection.poll() {
            match event {
                quinn::Event::Connected if self.offered_bytes > 0 => {
                    self.stream = connection.streams().open(quinn::Dir::Uni);
                }
                quinn::Event::Stream(quinn::StreamEvent::Opened { dir }) => {
                    self.stream = connection.streams().accept(dir);
                }
                quinn::Event::Stream(quinn::StreamEvent::Finished { .. }) => {
                    self.done_at = Some(now);
                }
                quinn::Event::ConnectionLost { reason } => panic!("{reason} at {now}"),
                _ => {}
            }
        }
        let Some(stream) = self.stream else { return };
        if self.offered_bytes > 0 {
            let bytes = [0x5a; 1 << 14];
            while self.written_bytes < self.offered_bytes {
                let left = usize::try_from(self.offered_bytes - self.written_bytes).unwrap();
                let next = &bytes[..left.min(bytes.len())];
                match connection.send_stream(stream).write(next) {
                    Ok(written) => self.written_bytes += written as u64,
                    Err(quinn::WriteError::Blocked) => return,
                    Err(error) => panic!("{error}"),
                }
                if self.written_bytes == self.offered_bytes {
                    connection.send_stream(stream).finish().expect("once");
                }
            }
        } else if self.done_at.is_none() {
            let mut stream = connection.recv_stream(stream);
            let mut chunks = stream.read(true).expect("a stream to read");
            loop {
                match chunks.next(usize::MAX) {
                    Ok(Some(chunk)) => {
                        assert!(chunk.bytes.iter().all(|byte| *byte == 0x5a));
                        self.read_bytes += chunk.bytes.len() as u64;
                    }
                    Ok(None) => {
                        self.done_at = Some(now);
                        break;
                    }
                    Err(quinn::ReadError::Blocked) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let _ = chunks.finalize();
        }
    }
}

impl Endpoint for Quic {
    fn receive(&mut self, now: Time, payload: Vec<u8>, ecn: Ecn) {
        self.marked += u64::from(ecn == Ecn::Ce);
        let ecn = quinn::EcnCodepoint::from_bits(ecn as u8);
        let (at, data) = (self.instant(now), BytesMut::from(payload.as_slice()));
        self.buffer.clear();
        let event = (self.endpoint).handle(at, self.peer, None, ecn, data, &mut self.buffer);
        match event {
            Some(quinn::DatagramEvent::NewConnection(incoming)) => {
                let accepted = self.endpoint.accept(incoming, at, &mut self.buffer, None);
                self.connection = Some(accepted.expect("a first connection"));
            }
            Some(quinn::DatagramEvent::ConnectionEvent(_, event)) => {
                let (_, connection) = self.connection.as_mut().expect("it has accepted");
                connection.handle_event(event);
            }
            Some(quinn::DatagramEvent::Response(_)) | None => {}
        }
        self.advance(now);
    }

    fn transmit(&mut self, now: Time) -> Option<(Vec<u8>, Ecn)> {
        let at = self.instant(now);
        let (_, connection) = self.connection.as_mut()?;
        let mut payload = Vec::with_capacity(1500);
        let sent = connection.poll_transmit(at, 1, &mut payload)?;
        payload.truncate(sent.size);
        let ecn = match sent.ecn {
            None => Ecn::NotEct,
            Some(quinn::EcnCodepoint::Ect0) => Ecn::Ect0,
            Some(quinn::EcnCodepoint::Ect1) => Ecn::Ect1,
            Some(quinn::EcnCodepoint::Ce) => Ecn::Ce,
        };
        Some((payload, ecn))
    }

    fn timeout(&mut self) -> Option<Time> {
        let (_, connection) = self.connection.as_mut()?;
        let due = connection.poll_timeout()?;
        let ns = due.duration_since(self.epoch).as_nanos();
        Some(Time::from_nanos(
            u64::try_from(ns).expect("within 584 years"),
        ))
    }

    fn handle_timeout(&mut self, now: Time) {
        let at = self.instant(now);
        if let Some((_, connection)) = &mut self.connection {
            connection.handle_timeout(at);
        }
        self.advance(now);
    }

    fn is_done(&self) -> bool {
        self.done_at.is_some()
    }
}
