//! Transfers over QUIC: quinn with tokio, over the sockets of whatever kernel it runs on. It knows
//! nothing of Forebay; `quic.toml` runs it as `kind = "program"`.
//!
//! ```text
//! quic-transfer server ADDRESS:PORT
//! quic-transfer client ADDRESS:PORT BYTES
//! ```
//!
//! A client asks for so many bytes on one stream, and prints how long they took; the server prints
//! what its congestion control saw of each connection.

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use quinn::{Connection, Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime};

#[path = "../../../crates/forebay-net/tests/quic/plaintext.rs"]
mod plaintext;

use plaintext::Plaintext;

type Failure = Box<dyn Error>;

const USAGE: &str =
    "usage: quic-transfer server ADDRESS:PORT | quic-transfer client ADDRESS:PORT BYTES";

/// What a client asks for: how many bytes, in network order.
type Request = [u8; 8];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("epoll and timers");
    let ended = match words[..] {
        ["server", at] => runtime.block_on(serve(at)),
        ["client", from, bytes] => runtime.block_on(fetch(from, bytes)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn endpoint(at: SocketAddr, server: Option<ServerConfig>) -> Result<Endpoint, Failure> {
    let socket = std::net::UdpSocket::bind(at)?;
    let config = EndpointConfig::new(Arc::new(Plaintext));
    let runtime = Arc::new(TokioRuntime);
    Ok(Endpoint::new(config, server, socket, runtime)?)
}

async fn serve(at: &str) -> Result<(), Failure> {
    let config = ServerConfig::new(Arc::new(Plaintext), Arc::new(Plaintext));
    let endpoint = endpoint(at.parse()?, Some(config))?;
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async {
            if let Err(error) = answer(incoming).await {
                eprintln!("{error}");
            }
        });
    }
    Ok(())
}

/// Sends what a client asks for, and waits until it has it.
async fn answer(incoming: Incoming) -> Result<(), Failure> {
    let connection = incoming.await?;
    let (mut stream, mut asked) = connection.accept_bi().await?;
    let mut request = Request::default();
    asked.read_exact(&mut request).await?;
    let mut left = u64::from_be_bytes(request);
    let zeros = [0; 1 << 14];
    while left > 0 {
        let next = usize::try_from(left).map_or(zeros.len(), |left| left.min(zeros.len()));
        stream.write_all(&zeros[..next]).await?;
        left -= next as u64;
    }
    stream.finish()?;
    stream.stopped().await?;
    report(&connection);
    Ok(())
}

fn report(connection: &Connection) {
    let path = connection.stats().path;
    println!(
        "sent {} packets, lost {}, cut its window {} times, round trip {:.1} ms at the end",
        path.sent_packets,
        path.lost_packets,
        path.congestion_events,
        1e3 * path.rtt.as_secs_f64()
    );
}

async fn fetch(from: &str, bytes: &str) -> Result<(), Failure> {
    let asked: u64 = bytes.parse()?;
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let endpoint = endpoint(any, None)?;
    let config = quinn::ClientConfig::new(Arc::new(Plaintext));
    let began = Instant::now();
    let connection = endpoint
        .connect_with(config, from.parse()?, "server")?
        .await?;
    let (mut request, mut stream) = connection.open_bi().await?;
    request.write_all(&asked.to_be_bytes()).await?;
    request.finish()?;
    let mut read = 0;
    while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
        read += chunk.bytes.len() as u64;
    }
    let took_s = began.elapsed().as_secs_f64();
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    if read != asked {
        return Err(format!("{read} bytes came, of {asked}").into());
    }
    println!("{read} bytes in {took_s:.3} s");
    Ok(())
}
