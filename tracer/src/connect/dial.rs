//! Connections and datagrams, from the namespace that the thread is in.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::trace::probe::Outcome;

/// How long a wait may go on before it looks whether the run has ended.
const SLICE: Duration = Duration::from_millis(50);

/// How long the server may take to close its side.
const GOODBYE: Duration = Duration::from_millis(200);

/// What bounds a wait.
#[derive(Clone, Copy)]
pub(super) struct Limits<'a> {
    /// For one connection or query.
    pub(super) timeout: Duration,
    /// The run has ended.
    pub(super) stop: &'a AtomicBool,
}

impl Limits<'_> {
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Dialled {
    pub(super) client: Option<SocketAddr>,
    pub(super) result: Outcome,
    pub(super) detail: String,
    pub(super) took: Duration,
}

fn any(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// The address that the socket speaks from, once that is decided.
fn local(socket: &Socket) -> Option<SocketAddr> {
    let addr = socket.local_addr().ok()?.as_socket()?;
    let known = !addr.ip().is_unspecified();
    known.then(|| SocketAddr::new(addr.ip().to_canonical(), addr.port()))
}

/// Waits until the descriptor is ready; false when the time is up or the run
/// has ended.
fn ready(fd: BorrowedFd<'_>, events: i16, until: Instant, limits: &Limits<'_>) -> io::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || limits.stopped() {
            return Ok(false);
        }
        let mut poll = libc::pollfd {
            fd: fd.as_raw_fd(),
            events,
            revents: 0,
        };
        // Rounded up, so that the last wait is not a busy one.
        let slice = left.min(SLICE).as_millis() as i32 + 1;
        // SAFETY: one valid pollfd, whose descriptor is open.
        match unsafe { libc::poll(&raw mut poll, 1, slice) } {
            0 => {}
            n if n > 0 => return Ok(true),
            _ => {
                let e = io::Error::last_os_error();
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(e);
                }
            }
        }
    }
}

/// What an error of a socket says about the way: ICMP errors come as these
/// (`icmp_err_convert` in the kernel's `net/ipv4/icmp.c`).
fn judge(e: &io::Error) -> (Outcome, String) {
    match e.raw_os_error() {
        Some(libc::ECONNREFUSED | libc::ECONNRESET) => (Outcome::Refused, "refused".into()),
        Some(libc::EHOSTUNREACH) => (Outcome::Unreachable, "host unreachable".into()),
        Some(libc::ENETUNREACH) => (Outcome::Unreachable, "network unreachable".into()),
        Some(libc::ETIMEDOUT) => (Outcome::TimedOut, "timed out".into()),
        _ => (Outcome::Failed, e.to_string()),
    }
}

fn nothing_in(time: Duration) -> String {
    format!("timed out after {:.1} s", time.as_secs_f64())
}

/// Connects over TCP and closes; nothing is sent.
pub(super) fn tcp(to: SocketAddr, limits: &Limits<'_>) -> Dialled {
    let since = Instant::now();
    let mut client = None;
    let outcome = connect(to, limits, &mut client);
    let took = since.elapsed();
    if let Ok(Some(socket)) = &outcome {
        close(socket, limits);
    }
    let (result, detail) = match outcome {
        Ok(Some(_)) => {
            let ms = took.as_secs_f64() * 1e3;
            (Outcome::Connected, format!("connected in {ms:.1} ms"))
        }
        Ok(None) if limits.stopped() => (Outcome::NotTried, "interrupted".into()),
        Ok(None) => (Outcome::TimedOut, nothing_in(limits.timeout)),
        Err(e) => judge(&e),
    };
    Dialled {
        client,
        result,
        detail,
        took,
    }
}

fn connect(
    to: SocketAddr,
    limits: &Limits<'_>,
    client: &mut Option<SocketAddr>,
) -> io::Result<Option<Socket>> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    let begun = socket.connect(&to.into());
    *client = local(&socket);
    match begun {
        Ok(()) => return Ok(Some(socket)),
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(e) => return Err(e),
    }
    let until = Instant::now() + limits.timeout;
    if !ready(socket.as_fd(), libc::POLLOUT, until, limits)? {
        return Ok(None);
    }
    match socket.take_error()? {
        Some(e) => Err(e),
        None => Ok(Some(socket)),
    }
}

/// Ends the connection and gives the server a moment to do the same, so that
/// the trace has its end, too.
fn close(socket: &Socket, limits: &Limits<'_>) {
    let mut rest = [std::mem::MaybeUninit::uninit(); 512];
    let until = Instant::now() + GOODBYE;
    if socket.shutdown(Shutdown::Write).is_err() {
        return;
    }
    // Some servers greet first.
    while matches!(ready(socket.as_fd(), libc::POLLIN, until, limits), Ok(true)) {
        if !matches!(socket.recv(&mut rest), Ok(1..)) {
            return;
        }
    }
}

/// Sends one datagram and waits for one that `take` accepts.
pub(super) fn udp<T>(
    to: SocketAddr,
    datagram: &[u8],
    limits: &Limits<'_>,
    mut take: impl FnMut(&[u8]) -> Option<T>,
) -> (Dialled, Option<T>) {
    let since = Instant::now();
    let mut client = None;
    let outcome = exchange(to, datagram, limits, &mut client, &mut take);
    let took = since.elapsed();
    let mut taken = None;
    let (result, detail) = match outcome {
        Ok(Some(answer)) => {
            taken = Some(answer);
            let ms = took.as_secs_f64() * 1e3;
            (Outcome::Answered, format!("answered in {ms:.1} ms"))
        }
        Ok(None) if limits.stopped() => (Outcome::NotTried, "interrupted".into()),
        Ok(None) => {
            let time = limits.timeout.as_secs_f64();
            (Outcome::NoAnswer, format!("no answer in {time:.1} s"))
        }
        Err(e) => judge(&e),
    };
    let dialled = Dialled {
        client,
        result,
        detail,
        took,
    };
    (dialled, taken)
}

fn exchange<T>(
    to: SocketAddr,
    datagram: &[u8],
    limits: &Limits<'_>,
    client: &mut Option<SocketAddr>,
    take: &mut impl FnMut(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.bind(&any(to).into())?;
    // Connected: only the server's datagrams and ICMP errors get through.
    socket.connect(&to.into())?;
    *client = local(&socket);
    let socket = std::net::UdpSocket::from(socket);
    socket.send(datagram)?;
    let until = Instant::now() + limits.timeout;
    let mut buffer = vec![0; super::message::LARGEST];
    while ready(socket.as_fd(), libc::POLLIN, until, limits)? {
        match socket.recv(&mut buffer) {
            Ok(length) => {
                if let Some(answer) = take(buffer.get(..length).unwrap_or_default()) {
                    return Ok(Some(answer));
                }
            }
            // A datagram with a bad checksum wakes, too.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    fn limits(stop: &AtomicBool) -> Limits<'_> {
        Limits {
            timeout: Duration::from_millis(300),
            stop,
        }
    }

    #[test]
    fn connected_and_refused() {
        let stop = AtomicBool::new(false);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let done = tcp(addr, &limits(&stop));
        assert_eq!(done.result, Outcome::Connected, "{done:?}");
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(done.client, Some(peer));
        drop(listener);
        assert_eq!(tcp(addr, &limits(&stop)).result, Outcome::Refused);
    }

    #[test]
    fn silence_ends_in_time_or_when_stopped() {
        let stop = AtomicBool::new(false);
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = silent.local_addr().unwrap();
        let (done, none) = udp(addr, b"", &limits(&stop), |_| Some(()));
        assert_eq!((done.result, none), (Outcome::NoAnswer, None));
        assert!(done.took >= Duration::from_millis(300), "{done:?}");
        stop.store(true, Ordering::Relaxed);
        let (done, _) = udp(addr, b"", &limits(&stop), |_| Some(()));
        assert_eq!(done.result, Outcome::NotTried);
        assert!(done.took < Duration::from_millis(250), "{done:?}");
    }

    #[test]
    fn a_datagram_that_is_not_taken_is_waited_past() {
        let stop = AtomicBool::new(false);
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = server.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 16];
            let (_, peer) = server.recv_from(&mut buffer).unwrap();
            server.send_to(b"noise", peer).unwrap();
            server.send_to(b"answer", peer).unwrap();
        });
        let (done, taken) = udp(addr, b"?", &limits(&stop), |d| {
            (d == b"answer").then_some(d.len())
        });
        assert_eq!((done.result, taken), (Outcome::Answered, Some(6)));
        thread.join().unwrap();
        let (done, _) = udp(addr, b"?", &limits(&stop), |_| Some(()));
        assert_eq!(done.result, Outcome::Refused);
    }
}
