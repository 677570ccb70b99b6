//! The process in a pod: HTTP on TCP 8080, an echo on UDP 8080, and in a dns pod a resolver.

mod http;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};

use super::dns::resolver;
use super::process;
use super::topology::POD_PORT;
use super::witness::Log;

/// How long a connection may be silent before the server gives it up.
const IDLE: Duration = Duration::from_mins(2);

/// The longest answer over UDP.
const MAX_ANSWER: usize = 60_000;

/// Serves under that name until the laboratory with that id is gone; on [`POD_PORT`], unless another port is named.
///
/// Prints `ready` once every socket listens.
pub fn serve(name: &str, port: Option<u16>, lab_id: &str) -> Result<()> {
    let port = port.unwrap_or(POD_PORT);
    let log = Arc::new(Log::open(name)?);
    let name: Arc<str> = Arc::from(name);

    let listener = listen(port)?;
    let echo = bind_udp(port)?;
    if name.starts_with("dns") {
        resolver::start(listen(53)?, bind_udp(53)?, &log);
    }
    {
        let (name, log) = (Arc::clone(&name), Arc::clone(&log));
        accept_all(listener, move |stream, peer| {
            http::converse(&name, &stream, peer, &log);
        });
    }
    thread::spawn(move || echo_datagrams(&name, &echo, &log));

    process::stay(lab_id);
    Ok(())
}

/// Listens on a port and never takes a connection: its queue, which has room for one, is full.
pub fn stall(port: u16, lab_id: &str) -> Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
    socket.listen(1)?;
    // The kernel takes one more than it is told. What fills it comes from within, so nobody sees it.
    let own = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let _filler = [TcpStream::connect(own)?, TcpStream::connect(own)?];
    process::stay(lab_id);
    Ok(())
}

/// Holds that many connections open and says nothing on them.
pub fn hold(addr: SocketAddr, count: usize, lab_id: &str) -> Result<()> {
    let _held = (0..count)
        .map(|_| TcpStream::connect(addr).with_context(|| format!("connecting to {addr}")))
        .collect::<Result<Vec<_>>>()?;
    process::stay(lab_id);
    Ok(())
}

/// Hands every connection to a thread of its own.
pub(super) fn accept_all(
    listener: TcpListener,
    converse: impl Fn(TcpStream, SocketAddr) + Send + Sync + 'static,
) {
    let converse = Arc::new(converse);
    thread::spawn(move || {
        loop {
            let Ok((stream, peer)) = listener.accept() else {
                // Out of descriptors, most likely; some will come back.
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            let _ = stream.set_read_timeout(Some(IDLE));
            let _ = stream.set_write_timeout(Some(IDLE));
            let _ = stream.set_nodelay(true);
            let converse = Arc::clone(&converse);
            let started = thread::Builder::new()
                .stack_size(256 * 1024)
                .spawn(move || converse(stream, canonical(peer)));
            if let Err(error) = started {
                eprintln!("no thread for {peer}: {error}");
            }
        }
    });
}

/// The address without its IPv6 wrapping, where the peer speaks IPv4.
pub(super) fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

fn echo_datagrams(name: &str, socket: &UdpSocket, log: &Log) {
    let mut buffer = vec![0; 65536];
    loop {
        // An error here is about an earlier answer (ICMP), not about the socket.
        let Ok((length, peer)) = socket.recv_from(&mut buffer) else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let mut answer = format!("pod={name} saw={}\n", canonical(peer));
        // `bytes N` asks for an answer that is at least that long.
        if let Some(wanted) = buffer[..length]
            .strip_prefix(b"bytes ")
            .and_then(|count| std::str::from_utf8(count).ok()?.trim().parse().ok())
        {
            let missing = usize::min(wanted, MAX_ANSWER).saturating_sub(answer.len());
            answer.extend(std::iter::repeat_n('x', missing));
        }
        let sent = socket.send_to(answer.as_bytes(), peer).unwrap_or(0);
        log.write("udp", canonical(peer), "echo", length as u64, sent as u64);
    }
}

/// Listens on both families, or on IPv4 alone where the kernel has no IPv6.
fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
        .with_context(|| format!("listening on TCP port {port}"))
}

fn bind_udp(port: u16) -> Result<UdpSocket> {
    UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)))
        .with_context(|| format!("binding UDP port {port}"))
}
