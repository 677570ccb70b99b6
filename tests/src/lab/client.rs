//! Clients for tests: HTTP, UDP echo and DNS, from inside any namespace and bounded in time.
//!
//! Each takes the name of the namespace to speak from, or `None` for the caller's own.

pub mod http;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use super::dns::{Answer, Question};
use super::netns::within_or_here;
use super::topology::DNS_SERVICE;

pub use http::{Kept, Load, Options, Response, get, load};

/// How a DNS question travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// In a datagram.
    Udp,
    /// Over a connection.
    Tcp,
}

/// The search list of a pod in the namespace `default`.
pub const SEARCH: [&str; 3] = [
    "default.svc.cluster.local",
    "svc.cluster.local",
    "cluster.local",
];

/// Looks a name up as a pod would: five dots or a final dot make it absolute, else the search list is tried.
///
/// Returns the answer to the first name that exists, or to the last one tried, with that name.
pub fn resolve(
    ns: Option<&str>,
    name: &str,
    kind: u16,
    search: &[&str],
    transport: Transport,
    timeout: Duration,
) -> Result<(String, Answer)> {
    let mut candidates: Vec<String> = Vec::new();
    if let Some(absolute) = name.strip_suffix('.') {
        candidates.push(absolute.to_owned());
    } else {
        let suffixed = search.iter().map(|suffix| format!("{name}.{suffix}"));
        if name.matches('.').count() >= 5 {
            candidates.push(name.to_owned());
            candidates.extend(suffixed);
        } else {
            candidates.extend(suffixed);
            candidates.push(name.to_owned());
        }
    }
    within_or_here(ns, || {
        let mut last = None;
        for candidate in candidates {
            let answer = ask(&candidate, kind, transport, timeout)?;
            let exists = answer.rcode == super::dns::Rcode::NoError;
            last = Some((candidate, answer));
            if exists {
                break;
            }
        }
        last.context("no name to look up")
    })
}

/// Sends one datagram to a pod's UDP echo and returns what it said.
pub fn echo(ns: Option<&str>, addr: SocketAddr, timeout: Duration) -> Result<String> {
    echo_of(ns, addr, "hello\n", timeout)
}

/// The same with an answer of so many bytes.
pub fn echo_bytes(
    ns: Option<&str>,
    addr: SocketAddr,
    bytes: usize,
    timeout: Duration,
) -> Result<String> {
    echo_of(ns, addr, &format!("bytes {bytes}\n"), timeout)
}

fn echo_of(ns: Option<&str>, addr: SocketAddr, say: &str, timeout: Duration) -> Result<String> {
    within_or_here(ns, || {
        let socket = udp_to(addr, None, timeout)?;
        socket
            .send(say.as_bytes())
            .with_context(|| format!("sending to {addr}"))?;
        let mut buffer = vec![0; 65536];
        let length = socket
            .recv(&mut buffer)
            .with_context(|| format!("no answer from {addr} over UDP"))?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    })
}

/// Asks the cluster's resolver one question from a fixed port, as a client does that keeps its socket.
pub fn resolve_from(
    ns: Option<&str>,
    port: u16,
    name: &str,
    timeout: Duration,
) -> Result<Vec<Ipv4Addr>> {
    within_or_here(ns, || {
        let socket = udp_to(SocketAddr::V4(DNS_SERVICE), Some(port), timeout)?;
        let question = Question {
            id: port,
            name: name.to_owned(),
            kind: super::dns::TYPE_A,
        };
        socket.send(&question.encode()).context("asking")?;
        let mut buffer = [0; 4096];
        let length = socket
            .recv(&mut buffer)
            .context("no answer from the resolver")?;
        Ok(Answer::decode(&buffer[..length], &question)?.addrs)
    })
}

/// Asks the cluster's resolver for A and AAAA at the same instant from one socket, as glibc does; so many times over.
///
/// Returns how many answers came back, of two a round.
pub fn resolve_pairs(ns: Option<&str>, name: &str, rounds: u32, timeout: Duration) -> Result<u32> {
    within_or_here(ns, || {
        let mut answers = 0;
        for round in 0..rounds {
            let socket = udp_to(SocketAddr::V4(DNS_SERVICE), None, timeout)?;
            let questions = [super::dns::TYPE_A, super::dns::TYPE_AAAA].map(|kind| Question {
                id: (round as u16) << 8 | kind,
                name: name.to_owned(),
                kind,
            });
            let together = Barrier::new(questions.len());
            thread::scope(|scope| {
                for question in &questions {
                    let (socket, together) = (&socket, &together);
                    scope.spawn(move || {
                        let message = question.encode();
                        together.wait();
                        // One that is not sent is not answered either.
                        let _ = socket.send(&message);
                    });
                }
            });
            let mut buffer = [0; 4096];
            answers += questions
                .iter()
                .take_while(|_| socket.recv(&mut buffer).is_ok())
                .count() as u32;
        }
        Ok(answers)
    })
}

fn ask(name: &str, kind: u16, transport: Transport, timeout: Duration) -> Result<Answer> {
    let clock = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let question = Question {
        id: clock.subsec_nanos() as u16,
        name: name.to_ascii_lowercase(),
        kind,
    };
    let server = SocketAddr::V4(DNS_SERVICE);
    let reply = match transport {
        Transport::Udp => {
            let socket = udp_to(server, None, timeout)?;
            socket
                .send(&question.encode())
                .with_context(|| format!("sending to {server}"))?;
            let mut buffer = [0; 4096];
            let length = socket
                .recv(&mut buffer)
                .with_context(|| format!("no answer from {server} over UDP"))?;
            buffer[..length].to_vec()
        }
        Transport::Tcp => {
            let mut stream = TcpStream::connect_timeout(&server, timeout)
                .with_context(|| format!("connecting to {server}"))?;
            stream.set_read_timeout(Some(timeout))?;
            let message = question.encode();
            let mut framed = (message.len() as u16).to_be_bytes().to_vec();
            framed.extend(message);
            stream.write_all(&framed)?;
            let mut length = [0; 2];
            stream
                .read_exact(&mut length)
                .with_context(|| format!("no answer from {server} over TCP"))?;
            let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut reply)?;
            reply
        }
    };
    Answer::decode(&reply, &question)
}

fn udp_to(addr: SocketAddr, port: Option<u16>, timeout: Duration) -> Result<UdpSocket> {
    if !matches!(addr.ip(), IpAddr::V4(_)) {
        bail!("only IPv4 is spoken over UDP here");
    }
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port.unwrap_or(0)))
        .context("opening a UDP socket")?;
    socket.set_read_timeout(Some(timeout))?;
    socket
        .connect(addr)
        .with_context(|| format!("no route to {addr}"))?;
    Ok(socket)
}
