//! The cluster's resolver, in the dns pod.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::{Question, Rcode, TYPE_A};
use crate::lab::server::{accept_all, canonical};
use crate::lab::topology::{DNS_SERVICE, REMOTE_SERVICE};
use crate::lab::witness::Log;

/// Answers on both sockets from now on.
pub fn start(listener: TcpListener, socket: UdpSocket, log: &Arc<Log>) {
    let tcp_log = Arc::clone(log);
    accept_all(listener, move |stream, peer| {
        // The client may leave whenever it likes.
        let _ = converse(&stream, peer, &tcp_log);
    });
    let udp_log = Arc::clone(log);
    thread::spawn(move || answer_datagrams(&socket, &udp_log));
}

fn answer_datagrams(socket: &UdpSocket, log: &Log) {
    let mut buffer = vec![0; 4096];
    loop {
        let Ok((length, peer)) = socket.recv_from(&mut buffer) else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        if let Some((text, answer)) = respond(&buffer[..length]) {
            let sent = socket.send_to(&answer, peer).unwrap_or(0);
            log.write("udp", canonical(peer), &text, length as u64, sent as u64);
        }
    }
}

/// Over TCP every message follows its length.
fn converse(mut stream: &TcpStream, peer: SocketAddr, log: &Log) -> io::Result<()> {
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut message)?;
        let Some((text, answer)) = respond(&message) else {
            return Ok(());
        };
        let mut framed = (answer.len() as u16).to_be_bytes().to_vec();
        framed.extend(answer);
        stream.write_all(&framed)?;
        log.write(
            "tcp",
            peer,
            &text,
            message.len() as u64 + 2,
            framed.len() as u64,
        );
    }
}

/// The question for the log, and the answer; `None` for what is not even a message.
fn respond(message: &[u8]) -> Option<(String, Vec<u8>)> {
    let Ok(question) = Question::decode(message) else {
        let id = u16::from_be_bytes([*message.first()?, *message.get(1)?]);
        let unknown = Question {
            id,
            name: String::new(),
            kind: TYPE_A,
        };
        return Some(("malformed".to_owned(), unknown.answer(Rcode::FormErr, &[])));
    };
    let text = format!("{} type {}", question.name, question.kind);
    let answer = match lookup(&question.name) {
        Some(addr) if question.kind == TYPE_A => question.answer(Rcode::NoError, &[addr]),
        Some(_) => question.answer(Rcode::NoError, &[]),
        None => question.answer(Rcode::NxDomain, &[]),
    };
    Some((text, answer))
}

fn lookup(name: &str) -> Option<Ipv4Addr> {
    match name.strip_suffix(".svc.cluster.local")? {
        "remote.default" => Some(*REMOTE_SERVICE.ip()),
        "kube-dns.kube-system" => Some(*DNS_SERVICE.ip()),
        _ => None,
    }
}
