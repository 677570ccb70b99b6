//! The HTTP client: one request, or a bounded load of many.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use socket2::{Domain, Protocol, Socket, Type};

use crate::lab::netns::within_or_here;

/// How much of a body is kept in [`Response::body`].
const KEPT: u64 = 64 * 1024;
/// The most requests one load may make.
const MAX_COUNT: u32 = 1_000_000;
/// The most connections one load may have open.
const MAX_PARALLEL: u32 = 1024;

/// What to ask, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The path to ask for; [`Options::up`] and [`Options::down`] set their own.
    pub path: String,
    /// POST this many bytes instead.
    pub upload: Option<u64>,
    /// Speak from this port.
    pub source_port: Option<u16>,
    /// Speak from this address.
    pub source: Option<Ipv4Addr>,
    /// How long to wait for the connection, and for every read and write.
    pub timeout: Duration,
    /// Keep the connection open, silent, for this long after the last answer.
    pub hold: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            path: "/".to_owned(),
            upload: None,
            source_port: None,
            source: None,
            timeout: Duration::from_secs(3),
            hold: Duration::ZERO,
        }
    }
}

impl Options {
    /// Upload that many bytes.
    pub fn up(bytes: u64) -> Self {
        Self {
            path: "/sink".to_owned(),
            upload: Some(bytes),
            ..Self::default()
        }
    }

    /// Download that many bytes.
    pub fn down(bytes: u64) -> Self {
        Self {
            path: format!("/bytes/{bytes}"),
            ..Self::default()
        }
    }

    /// The same with another time limit.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The same from a fixed source port.
    #[must_use]
    pub fn source_port(self, port: u16) -> Self {
        Self {
            source_port: Some(port),
            ..self
        }
    }

    /// The same from a fixed source address.
    #[must_use]
    pub fn source(self, addr: Ipv4Addr) -> Self {
        Self {
            source: Some(addr),
            ..self
        }
    }
}

/// How many requests to make, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Requests in all.
    pub count: u32,
    /// Connections at a time.
    pub parallel: u32,
    /// Whether each of the parallel clients keeps to one connection.
    pub keep_alive: bool,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The first 64 KiB of the body.
    pub body: String,
    /// The length of the whole body.
    pub body_len: u64,
    /// The client's own end of the connection.
    pub local_addr: SocketAddr,
    /// From the start of the connection, or of the request on a kept one, to the end of the body.
    pub elapsed: Duration,
}

impl Response {
    /// The `pod=` of a pod's answer.
    pub fn pod(&self) -> Option<&str> {
        self.field("pod=")
    }

    /// The `saw=` of a pod's answer: the client as the server saw it.
    pub fn saw(&self) -> Option<SocketAddr> {
        self.field("saw=")?.parse().ok()
    }

    fn field(&self, key: &str) -> Option<&str> {
        self.body
            .split_whitespace()
            .find_map(|word| word.strip_prefix(key))
    }
}

/// Makes one request on a connection of its own.
pub fn get(ns: Option<&str>, addr: SocketAddr, options: &Options) -> Result<Response> {
    within_or_here(ns, || Connection::open(addr, options)?.finish(options))
}

/// Makes many requests and returns every outcome.
pub fn load(
    ns: Option<&str>,
    addr: SocketAddr,
    options: &Options,
    load: Load,
) -> Result<Vec<Result<Response>>> {
    if load.count > MAX_COUNT || load.parallel == 0 || load.parallel > MAX_PARALLEL {
        bail!("at most {MAX_COUNT} requests and 1 to {MAX_PARALLEL} at a time");
    }
    let taken = AtomicU32::new(0);
    let next = || taken.fetch_add(1, Ordering::Relaxed) < load.count;
    within_or_here(ns, || {
        thread::scope(|scope| {
            // Threads inherit the namespace of the thread that starts them.
            let clients: Vec<_> = (0..load.parallel.min(load.count))
                .map(|_| scope.spawn(|| client(addr, options, load.keep_alive, &next)))
                .collect();
            let mut outcomes = Vec::new();
            for client in clients {
                outcomes.extend(
                    client
                        .join()
                        .map_err(|_| anyhow!("a client thread panicked"))?,
                );
            }
            Ok(outcomes)
        })
    })
}

fn client(
    addr: SocketAddr,
    options: &Options,
    keep_alive: bool,
    next: &impl Fn() -> bool,
) -> Vec<Result<Response>> {
    let mut outcomes = Vec::new();
    if !keep_alive {
        while next() {
            outcomes.push(Connection::open(addr, options).and_then(|it| it.finish(options)));
        }
        return outcomes;
    }
    let mut open: Option<Connection> = None;
    while next() {
        let outcome = match open.take() {
            Some(connection) => Ok(connection),
            None => Connection::open(addr, options),
        }
        .and_then(|mut connection| {
            let response = connection.ask(options, false)?;
            open = Some(connection);
            Ok(response)
        });
        outcomes.push(outcome);
    }
    if open.is_some() {
        thread::sleep(options.hold);
    }
    outcomes
}

/// A connection that stays open between requests.
#[derive(Debug)]
pub struct Kept(Connection);

impl Kept {
    /// Opens it, and asks nothing yet.
    pub fn open(ns: Option<&str>, addr: SocketAddr, options: &Options) -> Result<Self> {
        within_or_here(ns, || Connection::open(addr, options).map(Self))
    }

    /// One more request; the server keeps the connection open after it.
    pub fn get(&mut self, options: &Options) -> Result<Response> {
        self.0.ask(options, false)
    }
}

#[derive(Debug)]
struct Connection {
    reader: BufReader<TcpStream>,
    peer: SocketAddr,
    local_addr: SocketAddr,
    since: Instant,
}

impl Connection {
    fn open(addr: SocketAddr, options: &Options) -> Result<Self> {
        let since = Instant::now();
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))
            .context("opening a socket")?;
        if options.source_port.is_some() || options.source.is_some() {
            let port = options.source_port.unwrap_or(0);
            socket.set_reuse_address(true)?;
            let own = match addr {
                SocketAddr::V4(_) => {
                    SocketAddr::from((options.source.unwrap_or(Ipv4Addr::UNSPECIFIED), port))
                }
                SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
            };
            socket
                .bind(&own.into())
                .with_context(|| format!("taking source port {port}"))?;
        }
        socket
            .connect_timeout(&addr.into(), options.timeout)
            .with_context(|| format!("connecting to {addr}"))?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(options.timeout))?;
        stream.set_write_timeout(Some(options.timeout))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            local_addr: stream.local_addr()?,
            reader: BufReader::new(stream),
            peer: addr,
            since,
        })
    }

    /// The only request on this connection.
    fn finish(mut self, options: &Options) -> Result<Response> {
        let close = options.hold.is_zero();
        let response = self.ask(options, close)?;
        thread::sleep(options.hold);
        Ok(response)
    }

    fn ask(&mut self, options: &Options, close: bool) -> Result<Response> {
        let answer = self
            .exchange(options, close)
            .with_context(|| format!("no whole answer from {}", self.peer));
        self.since = Instant::now();
        answer
    }

    fn exchange(&mut self, options: &Options, close: bool) -> Result<Response> {
        let Options { path, upload, .. } = options;
        let connection = if close { "close" } else { "keep-alive" };
        let length = upload
            .map(|bytes| format!("Content-Length: {bytes}\r\n"))
            .unwrap_or_default();
        let head = format!(
            "{} {path} HTTP/1.1\r\nHost: {}\r\n{length}Connection: {connection}\r\n\r\n",
            if upload.is_some() { "POST" } else { "GET" },
            self.peer,
        );
        let mut stream = self.reader.get_ref();
        stream.write_all(head.as_bytes())?;
        let filler = [b'x'; 16 * 1024];
        let mut left = upload.unwrap_or(0);
        while left > 0 {
            let part = left.min(filler.len() as u64);
            stream.write_all(&filler[..part as usize])?;
            left -= part;
        }
        self.read_answer()
    }

    fn read_answer(&mut self) -> Result<Response> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        let status = line
            .split_whitespace()
            .nth(1)
            .and_then(|word| word.parse().ok())
            .context("not an HTTP answer")?;
        let mut body_len = 0;
        loop {
            line.clear();
            self.reader.read_line(&mut line)?;
            let Some((key, value)) = line.split_once(':') else {
                break;
            };
            if key.eq_ignore_ascii_case("content-length") {
                body_len = value.trim().parse().context("a bad Content-Length")?;
            }
        }
        let mut kept = Vec::new();
        self.reader
            .by_ref()
            .take(body_len.min(KEPT))
            .read_to_end(&mut kept)?;
        let rest = body_len.saturating_sub(KEPT);
        let swallowed = io::copy(&mut self.reader.by_ref().take(rest), &mut io::sink())?;
        if kept.len() as u64 + swallowed < body_len {
            bail!("the body was cut short");
        }
        Ok(Response {
            status,
            body: String::from_utf8_lossy(&kept).into_owned(),
            body_len,
            local_addr: self.local_addr,
            elapsed: self.since.elapsed(),
        })
    }
}
