//! QUIC without secrets: keys that change nothing, and a handshake of transport parameters alone,
//! in as many flights as that of TLS 1.3 (RFC 9001 section 4). Packets have the size that AES-GCM
//! gives them, and each run has the same bytes.

use std::any::Any;
use std::sync::Arc;

use bytes::BytesMut;
use quinn_proto::crypto::{
    self, AeadKey, CryptoError, ExportKeyingMaterialError, HandshakeTokenKey, HeaderKey, HmacKey,
    KeyPair, Keys, PacketKey, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError};

/// The keys, and both configurations.
pub struct Plaintext;

/// Of AES-GCM (RFC 9001 section 5.3).
const TAG_BYTES: usize = 16;

impl PacketKey for Plaintext {
    fn encrypt(&self, _packet: u64, _buf: &mut [u8], _header_len: usize) {}

    fn decrypt(
        &self,
        _packet: u64,
        _header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        let length = payload.len().checked_sub(TAG_BYTES).ok_or(CryptoError)?;
        payload.truncate(length);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        TAG_BYTES
    }

    fn confidentiality_limit(&self) -> u64 {
        u64::MAX
    }

    fn integrity_limit(&self) -> u64 {
        u64::MAX
    }
}

impl HeaderKey for Plaintext {
    fn decrypt(&self, _pn_offset: usize, _packet: &mut [u8]) {}

    fn encrypt(&self, _pn_offset: usize, _packet: &mut [u8]) {}

    /// Of AES (RFC 9001 section 5.4.3): packets are padded to hold it.
    fn sample_size(&self) -> usize {
        16
    }
}

impl HmacKey for Plaintext {
    /// A reset token ends like no packet, whose tag is of zeros.
    fn sign(&self, _data: &[u8], signature_out: &mut [u8]) {
        signature_out.fill(0xff);
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, _data: &[u8], _signature: &[u8]) -> Result<(), CryptoError> {
        Ok(())
    }
}

impl HandshakeTokenKey for Plaintext {
    fn aead_from_hkdf(&self, _random_bytes: &[u8]) -> Box<dyn AeadKey> {
        Box::new(Plaintext)
    }
}

impl AeadKey for Plaintext {
    fn seal(&self, _data: &mut Vec<u8>, _additional_data: &[u8]) -> Result<(), CryptoError> {
        Ok(())
    }

    fn open<'a>(
        &self,
        data: &'a mut [u8],
        _additional_data: &[u8],
    ) -> Result<&'a mut [u8], CryptoError> {
        Ok(data)
    }
}

impl crypto::ClientConfig for Plaintext {
    fn start_session(
        self: Arc<Self>,
        _version: u32,
        _server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn crypto::Session>, ConnectError> {
        Ok(Box::new(Session::new(Side::Client, *params)))
    }
}

impl crypto::ServerConfig for Plaintext {
    fn initial_keys(
        &self,
        _version: u32,
        _dst_cid: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        Ok(keys())
    }

    fn retry_tag(&self, _version: u32, _orig_dst_cid: &ConnectionId, _packet: &[u8]) -> [u8; 16] {
        [0; 16]
    }

    fn start_session(
        self: Arc<Self>,
        _version: u32,
        params: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        Box::new(Session::new(Side::Server, *params))
    }
}

fn keys() -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(Plaintext),
            remote: Box::new(Plaintext),
        },
        packet: packet_keys(),
    }
}

fn packet_keys() -> KeyPair<Box<dyn PacketKey>> {
    KeyPair {
        local: Box::new(Plaintext),
        remote: Box::new(Plaintext),
    }
}

/// A flight that this side writes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Of the client, with its parameters.
    ClientHello,
    /// Of the server.
    ServerHello,
    /// Of the server, with its parameters.
    ServerFinished,
    ClientFinished,
    /// None, but the client has keys for the rest of the handshake.
    ClientKeys,
    Nothing,
}

/// A flight's first byte, before the length of the rest in two; a CRYPTO frame may end within one.
const HELLO: u8 = 1;
const FINISHED: u8 = 20;

/// Of each peer.
const FLIGHTS: u32 = 2;

struct Session {
    side: Side,
    own: TransportParameters,
    peer: Option<TransportParameters>,
    read: Vec<u8>,
    next: Next,
    /// Flights of the peer that have come.
    flights: u32,
}

impl Session {
    fn new(side: Side, own: TransportParameters) -> Session {
        Session {
            side,
            own,
            peer: None,
            read: Vec::new(),
            next: match side {
                Side::Client => Next::ClientHello,
                Side::Server => Next::Nothing,
            },
            flights: 0,
        }
    }

    fn write(&self, kind: u8, with_params: bool, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        if with_params {
            self.own.write(&mut body);
        }
        let length = u16::try_from(body.len()).expect("parameters are short");
        out.push(kind);
        out.extend(length.to_be_bytes());
        out.extend(body);
    }
}

impl crypto::Session for Session {
    fn initial_keys(&self, _dst_cid: &ConnectionId, _side: Side) -> Keys {
        keys()
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.flights < FLIGHTS
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.read.extend(buf);
        while let [kind, high, low, rest @ ..] = self.read.as_slice() {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let Some(mut body) = rest.get(..length) else {
                break;
            };
            self.flights += 1;
            if length > 0 {
                let peer = TransportParameters::read(self.side, &mut body);
                self.peer = Some(peer.expect("what the peer has written"));
            }
            match (self.side, *kind) {
                (Side::Server, HELLO) => self.next = Next::ServerHello,
                (Side::Client, HELLO) => self.next = Next::ClientKeys,
                (Side::Client, FINISHED) => self.next = Next::ClientFinished,
                _ => {}
            }
            self.read.drain(..3 + length);
        }
        Ok(false)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        Ok(self.peer)
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        match self.next {
            Next::ClientHello => {
                self.write(HELLO, true, out);
                self.next = Next::Nothing;
                None
            }
            Next::ClientKeys => {
                self.next = Next::Nothing;
                Some(keys())
            }
            Next::ServerHello => {
                self.write(HELLO, false, out);
                self.next = Next::ServerFinished;
                Some(keys())
            }
            Next::ServerFinished => {
                self.write(FINISHED, true, out);
                self.next = Next::Nothing;
                Some(keys())
            }
            Next::ClientFinished => {
                self.write(FINISHED, false, out);
                self.next = Next::Nothing;
                Some(keys())
            }
            Next::Nothing => None,
        }
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        Some(packet_keys())
    }

    fn is_valid_retry(
        &self,
        _orig_dst_cid: &ConnectionId,
        _header: &[u8],
        _payload: &[u8],
    ) -> bool {
        true
    }

    fn export_keying_material(
        &self,
        _output: &mut [u8],
        _label: &[u8],
        _context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}
