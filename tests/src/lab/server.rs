//! The process in a pod: HTTP on TCP 8080, an echo on UDP 8080, and in the dns pod a resolver.

mod http;

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::dns::resolver;
use super::state::State;
use super::topology::POD_PORT;
use super::witness::Log;

/// How long a connection may be silent before the server gives it up.
const IDLE: Duration = Duration::from_mins(2);

/// Serves under that name until the laboratory with that id is gone.
///
/// Prints `ready` once every socket listens.
pub fn serve(name: &str, lab_id: &str) -> Result<()> {
    let log = Arc::new(Log::open(name)?);
    let name: Arc<str> = Arc::from(name);

    let listener = listen(POD_PORT)?;
    let echo = bind_udp(POD_PORT)?;
    if &*name == "dns" {
        resolver::start(listen(53)?, bind_udp(53)?, &log);
    }
    {
        let (name, log) = (Arc::clone(&name), Arc::clone(&log));
        accept_all(listener, move |stream, peer| {
            http::converse(&name, &stream, peer, &log);
        });
    }
    thread::spawn(move || echo_datagrams(&name, &echo, &log));

    println!("ready");
    std::io::stdout().flush()?;
    while State::load()
        .ok()
        .flatten()
        .is_some_and(|state| state.id == lab_id)
    {
        thread::sleep(Duration::from_secs(1));
    }
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
        let answer = format!("pod={name} saw={}\n", canonical(peer));
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
