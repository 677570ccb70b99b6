//! The little of HTTP/1.1 that a pod needs: `GET /`, `GET /bytes/N`, `POST /sink`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::lab::witness::Log;

/// The longest body that is sent or swallowed.
const MAX_BODY: u64 = 4 << 30;
/// The longest request line or header.
const MAX_LINE: u64 = 8 * 1024;
const CHUNK: usize = 64 * 1024;

struct Request {
    line: String,
    method: String,
    path: String,
    content_length: u64,
    close: bool,
    head_bytes: u64,
}

enum Body {
    Text(String),
    Bytes(u64),
}

/// Answers requests on one connection until the client is done or silent for too long.
pub(super) fn converse(name: &str, stream: &TcpStream, peer: SocketAddr, log: &Log) {
    let (mut received, mut sent) = (0, 0);
    let mut reader = BufReader::new(stream);
    while let Ok(Some(request)) = read_request(&mut reader) {
        let outcome = answer(name, peer, &request, &mut reader, stream);
        let (read, written) = match &outcome {
            Ok(written) => (request.head_bytes + request.content_length, *written),
            Err(_) => (request.head_bytes, 0),
        };
        received += read;
        sent += written;
        log.write("tcp", peer, &request.line, read, written);
        if outcome.is_err() || request.close {
            break;
        }
    }
    log.write("tcp", peer, "closed", received, sent);
}

fn answer(
    name: &str,
    peer: SocketAddr,
    request: &Request,
    reader: &mut impl BufRead,
    mut stream: &TcpStream,
) -> io::Result<u64> {
    let swallowed = io::copy(
        &mut reader.by_ref().take(request.content_length),
        &mut io::sink(),
    )?;
    if swallowed < request.content_length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let wanted: Option<u64> = request
        .path
        .strip_prefix("/bytes/")
        .and_then(|count| count.parse().ok())
        .filter(|&count| count <= MAX_BODY);
    let (status, body) = match (request.method.as_str(), request.path.as_str(), wanted) {
        ("GET", "/", _) => ("200 OK", Body::Text(format!("pod={name} saw={peer}\n"))),
        ("GET", _, Some(count)) => ("200 OK", Body::Bytes(count)),
        ("POST", "/sink", _) => ("200 OK", Body::Text(format!("got={swallowed}\n"))),
        _ => ("404 Not Found", Body::Text("no such page\n".to_owned())),
    };
    let length = match &body {
        Body::Text(text) => text.len() as u64,
        Body::Bytes(count) => *count,
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nServer: {name}\r\nContent-Length: {length}\r\nConnection: {}\r\n\r\n",
        if request.close { "close" } else { "keep-alive" }
    );
    match body {
        // One write, one segment: a short exchange looks the same every time.
        Body::Text(text) => stream.write_all(format!("{head}{text}").as_bytes())?,
        Body::Bytes(count) => {
            stream.write_all(head.as_bytes())?;
            send_filler(stream, count)?;
        }
    }
    Ok(head.len() as u64 + length)
}

/// Reads one request's head; `None` when the client has closed before sending one.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut head_bytes = 0;
    let line = read_line(reader, &mut head_bytes)?;
    let mut words = line.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Ok(None);
    };
    let mut request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        content_length: 0,
        close: words.next() == Some("HTTP/1.0"),
        line: line.trim_end().to_owned(),
        head_bytes: 0,
    };
    loop {
        let header = read_line(reader, &mut head_bytes)?;
        let Some((key, value)) = header.split_once(':') else {
            request.head_bytes = head_bytes;
            return Ok(Some(request));
        };
        let value = value.trim();
        if key.eq_ignore_ascii_case("content-length") {
            request.content_length = value.parse().unwrap_or(0).min(MAX_BODY);
        } else if key.eq_ignore_ascii_case("connection") {
            request.close = value.eq_ignore_ascii_case("close");
        }
    }
}

fn read_line(reader: &mut impl BufRead, total: &mut u64) -> io::Result<String> {
    let mut line = String::new();
    *total += reader.by_ref().take(MAX_LINE).read_line(&mut line)? as u64;
    Ok(line)
}

/// Sends `count` bytes in writes large enough to fill segments.
fn send_filler(mut stream: &TcpStream, count: u64) -> io::Result<()> {
    let filler = vec![b'x'; CHUNK];
    let mut left = count;
    while left > 0 {
        let part = left.min(CHUNK as u64);
        stream.write_all(&filler[..part as usize])?;
        left -= part;
    }
    Ok(())
}
