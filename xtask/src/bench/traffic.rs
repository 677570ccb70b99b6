//! The traffic: an echo and a source of bytes in the pod `remote`, a client in the pod `local`.
//!
//! The laboratory's own HTTP server writes a log and would cost more than the network does.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    sync::atomic::{AtomicI32, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use tracer_tests::lab::{netns, program, topology};

/// The pod that asks.
pub(super) const CLIENT: &str = "local";
/// The pod that answers.
const SERVER: &str = "remote";
/// The port of the echo, at the pod and at the Service.
pub(super) const PORT: u16 = 8099;
/// Bytes of a request, and of its answer.
pub(super) const MESSAGE: usize = 64;
/// How long a read or write may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Where client and server run, so that no round depends on where the scheduler puts them.
const CPU: usize = 0;

/// What a connection is for: its first byte.
const ECHO: u8 = b'e';
const BYTES: u8 = b'b';

/// The clock of the server's CPU time.
static SERVER_CLOCK: AtomicI32 = AtomicI32::new(libc::CLOCK_THREAD_CPUTIME_ID);

/// How much was done in a second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    /// Of time.
    pub(super) real: f64,
    /// Of client's and server's CPU time together. The kernel's work on a packet is done in the sender's time. Other
    /// programs do not count in it; what the hypervisor takes, and shares of caches, do.
    pub(super) cpu: f64,
}

/// The clocks at the start of a measurement.
struct Clocks {
    real: Instant,
    cpu: Duration,
}

impl Clocks {
    fn start() -> Self {
        Self {
            real: Instant::now(),
            cpu: cpu_time(),
        }
    }

    fn rate(&self, amount: f64) -> Rate {
        let cpu = cpu_time().saturating_sub(self.cpu);
        Rate {
            real: amount / self.real.elapsed().as_secs_f64(),
            cpu: amount / cpu.as_secs_f64(),
        }
    }
}

/// CPU time of the calling thread and the server's.
fn cpu_time() -> Duration {
    let read = |clock| {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: it writes the structure that it is given; for a clock that is not there, nothing.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    read(libc::CLOCK_THREAD_CPUTIME_ID) + read(SERVER_CLOCK.load(Ordering::Relaxed))
}

/// How the client reaches the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// At the pod's own address.
    Direct,
    /// At the Service's: every packet is translated.
    Service,
}

impl Way {
    pub(super) const ALL: [Self; 2] = [Self::Direct, Self::Service];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "pod to pod",
            Self::Service => "through the Service",
        }
    }

    fn address(self) -> SocketAddr {
        let address = match self {
            Self::Direct => server_address(),
            Self::Service => *topology::REMOTE_SERVICE.ip(),
        };
        SocketAddr::V4(SocketAddrV4::new(address, PORT))
    }
}

/// The address of a pod of the laboratory.
fn address_of(pod: &str) -> Ipv4Addr {
    topology::pod(pod).map_or(Ipv4Addr::UNSPECIFIED, |pod| pod.addr)
}

fn server_address() -> Ipv4Addr {
    address_of(SERVER)
}

/// The address of the pod that asks.
pub(super) fn client_address() -> Ipv4Addr {
    address_of(CLIENT)
}

/// Starts the server, and gives the Service its port. The laboratory must be taken down afterwards: the rule goes with it.
pub(super) fn start() -> Result<()> {
    let to = SocketAddrV4::new(server_address(), PORT);
    let listener = netns::within(SERVER, || {
        TcpListener::bind(to).with_context(|| format!("cannot listen on {to}"))
    })?;
    thread::spawn(move || {
        settle();
        let mut clock = libc::CLOCK_THREAD_CPUTIME_ID;
        // SAFETY: it writes the number of this thread's clock, by which other threads can read it.
        unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        SERVER_CLOCK.store(clock, Ordering::Relaxed);
        for stream in listener.incoming().flatten() {
            // The client has gone: the next one comes.
            let _ = serve(stream);
        }
    });
    let (service, port) = (topology::REMOTE_SERVICE.ip().to_string(), PORT.to_string());
    netns::within("worker", || {
        program::run(
            "iptables-nft",
            &[
                "-t",
                "nat",
                "-I",
                "PREROUTING",
                "-d",
                &service,
                "-p",
                "tcp",
                "--dport",
                &port,
                "-j",
                "DNAT",
                "--to-destination",
                &to.to_string(),
            ],
            "",
        )
    })?;
    Ok(())
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    prepare(&stream)?;
    let mut what = [0];
    stream.read_exact(&mut what)?;
    if what[0] == ECHO {
        let mut message = [0; MESSAGE];
        loop {
            stream.read_exact(&mut message)?;
            stream.write_all(&message)?;
        }
    }
    let filler = vec![b'x'; 256 * 1024];
    loop {
        stream.write_all(&filler)?;
    }
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

/// Opens a connection and hands it to `work`, in the client's namespace.
fn connected<T: Send>(
    way: Way,
    what: u8,
    work: impl FnOnce(TcpStream) -> std::io::Result<T> + Send,
) -> Result<T> {
    netns::within(CLIENT, || {
        settle();
        let address = way.address();
        TcpStream::connect_timeout(&address, PATIENCE)
            .and_then(|mut stream| {
                prepare(&stream)?;
                stream.write_all(&[what])?;
                work(stream)
            })
            .with_context(|| format!("the connection from {CLIENT} to {address} failed"))
    })
}

/// Asks and waits for the answer.
fn exchange(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut message = [b'x'; MESSAGE];
    stream.write_all(&message)?;
    stream.read_exact(&mut message)
}

/// Requests answered, one after the other on one connection.
pub(super) fn requests(way: Way, time: Duration) -> Result<Rate> {
    connected(way, ECHO, |mut stream| {
        for _ in 0..50 {
            exchange(&mut stream)?;
        }
        let since = Clocks::start();
        let mut count = 0_u32;
        while since.real.elapsed() < time {
            exchange(&mut stream)?;
            count += 1;
        }
        Ok(since.rate(f64::from(count)))
    })
}

/// So many requests on one connection.
pub(super) fn requests_counted(way: Way, count: u32) -> Result<()> {
    connected(way, ECHO, |mut stream| {
        (0..count).try_for_each(|_| exchange(&mut stream))
    })
}

/// Megabytes received.
pub(super) fn bulk(way: Way, time: Duration) -> Result<Rate> {
    connected(way, BYTES, |mut stream| {
        let mut buffer = vec![0; 256 * 1024];
        let warm = Instant::now();
        while warm.elapsed() < time / 10 {
            if stream.read(&mut buffer)? == 0 {
                break;
            }
        }
        let since = Clocks::start();
        let mut bytes = 0_usize;
        while since.real.elapsed() < time {
            let length = stream.read(&mut buffer)?;
            if length == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            bytes += length;
        }
        Ok(since.rate(bytes as f64 / 1e6))
    })
}

/// Keeps the calling thread on its CPU and before others: a round must not depend on what else the machine does.
fn settle() {
    pin(CPU);
    // SAFETY: it takes no pointers; 0 is the calling thread. Failing costs steadiness only.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}

/// Keeps the calling thread, and processes that it starts, on one CPU, where there is more than one.
pub(super) fn pin(cpu: usize) {
    if thread::available_parallelism().map_or(1, usize::from) < 2 && cpu > 0 {
        return;
    }
    // SAFETY: an all-zero set is an empty one; the calls read and write that set alone. Failing costs steadiness only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}
