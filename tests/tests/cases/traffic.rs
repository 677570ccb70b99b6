//! What clients do in the broken cluster, and what becomes of it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use tracer_tests::lab::client::{self, Kept, Options};
use tracer_tests::lab::fault::{KEPT_PORT, stray::Stray};
use tracer_tests::lab::topology;

use crate::run::LIMIT;
use crate::trace::kprobes;
use crate::world::{PORT, service, v4};

const NAME: &str = "remote.default.svc.cluster.local";
/// Questions asked in pairs.
const ROUNDS: u32 = 25;

/// What a client lived through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answered,
    TimedOut,
    Refused,
    Reset,
    Unreachable,
    /// Anything else.
    Strange,
}

impl Outcome {
    fn of<T>(result: &Result<T>) -> Self {
        let Err(error) = result else {
            return Self::Answered;
        };
        let kind = error
            .chain()
            .find_map(|cause| cause.downcast_ref::<io::Error>())
            .map(io::Error::kind);
        match kind {
            Some(io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => Self::TimedOut,
            Some(io::ErrorKind::ConnectionRefused) => Self::Refused,
            Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => Self::Reset,
            Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
                Self::Unreachable
            }
            _ => {
                eprintln!("{error:#}");
                Self::Strange
            }
        }
    }
}

/// How long a client waits for what will not come: for a second try at least, in an emulated machine too.
fn brief() -> Duration {
    Duration::from_secs(if kprobes() { 5 } else { 3 })
}

/// The followed call, from the port that every test's client speaks from.
fn call(ns: &str, to: SocketAddr) -> Outcome {
    call_with(ns, to, Options::default().timeout(brief()))
}

fn call_with(ns: &str, to: SocketAddr, options: Options) -> Outcome {
    Outcome::of(&client::get(Some(ns), to, &options.source_port(PORT)))
}

/// A call that has to succeed, however long it takes.
fn patient(ns: &str, to: SocketAddr) -> Outcome {
    Outcome::of(&client::get(
        Some(ns),
        to,
        &Options::default().timeout(LIMIT),
    ))
}

const REMOTE: [u8; 4] = [10, 244, 158, 65];

fn pod(addr: [u8; 4]) -> SocketAddr {
    let [a, b, c, d] = addr;
    v4(a, b, c, d, 8080)
}

pub(crate) fn call_service() -> Outcome {
    call("client", service())
}

pub(crate) fn call_service_from_extra() -> Outcome {
    call("extra", service())
}

/// For what the kernel gives up by itself: resolving a neighbour takes it three seconds.
pub(crate) fn call_service_until_refused() -> Outcome {
    let options = Options::default().timeout(Duration::from_secs(20));
    call_with("client", service(), options)
}

pub(crate) fn call_service_from_foreign_address() -> Outcome {
    let options = Options::default()
        .timeout(brief())
        .source(Ipv4Addr::new(10, 99, 0, 5));
    call_with("client", service(), options)
}

pub(crate) fn upload_to_service() -> Outcome {
    call_with("client", service(), Options::up(50_000).timeout(brief()))
}

/// As much as a slow link takes some seconds for.
pub(crate) fn download_from_service() -> Outcome {
    call_with("client", service(), Options::down(40_000).timeout(LIMIT))
}

pub(crate) fn call_node_port() -> Outcome {
    call("outside", v4(172, 31, 0, 2, 30080))
}

pub(crate) fn call_node_port_on_loopback() -> Outcome {
    call("worker", v4(127, 0, 0, 1, 30080))
}

pub(crate) fn call_remote_from_node() -> Outcome {
    call("worker", pod(REMOTE))
}

pub(crate) fn call_borrowed_address() -> Outcome {
    call("client", pod([10, 244, 80, 100]))
}

pub(crate) fn call_api_server() -> Outcome {
    call("client", v4(10, 96, 0, 1, 443))
}

pub(crate) fn call_outside() -> Outcome {
    call("client", v4(172, 31, 0, 5, 8080))
}

/// Two calls, one after the other; what became of the second.
fn both(first: fn() -> Outcome, second: fn() -> Outcome) -> Outcome {
    let (first, second) = (first(), second());
    assert_ne!(first, Outcome::Answered, "the first call fails, too");
    second
}

pub(crate) fn call_outside_then_service() -> Outcome {
    both(call_outside, call_service)
}

pub(crate) fn ask_then_call_service() -> Outcome {
    both(ask_from_kept_port, call_service)
}

pub(crate) fn call_api_server_then_service() -> Outcome {
    both(call_api_server, call_service)
}

pub(crate) fn call_service_then_closed_port() -> Outcome {
    both(call_service, || call("client", v4(10, 244, 80, 66, 9999)))
}

pub(crate) fn ask_from_kept_port() -> Outcome {
    // Twice, as resolvers do.
    let first = client::resolve_from(Some("client"), KEPT_PORT, NAME, brief());
    if first.is_ok() {
        return Outcome::Answered;
    }
    Outcome::of(&client::resolve_from(
        Some("client"),
        KEPT_PORT,
        NAME,
        brief(),
    ))
}

pub(crate) fn ask() -> Outcome {
    ask_for(brief())
}

fn ask_for(timeout: Duration) -> Outcome {
    Outcome::of(&client::resolve_from(
        Some("client"),
        KEPT_PORT + 1,
        NAME,
        timeout,
    ))
}

pub(crate) fn ask_in_pairs() -> Outcome {
    match client::resolve_pairs(Some("client"), NAME, ROUNDS, Duration::from_secs(20)) {
        Ok(answers) if answers == 2 * ROUNDS => Outcome::Answered,
        Ok(answers) => {
            eprintln!("{answers} answers to {} questions", 2 * ROUNDS);
            Outcome::TimedOut
        }
        Err(error) => Outcome::of::<()>(&Err(error)),
    }
}

pub(crate) fn ask_for_large_answer() -> Outcome {
    let to = v4(172, 31, 0, 5, 8080);
    Outcome::of(&client::echo_bytes(Some("client"), to, 3000, brief()))
}

/// An open connection into which a segment from far outside its window comes.
pub(crate) fn call_with_stray_segment() -> Outcome {
    let options = Options::default().timeout(LIMIT).source_port(PORT);
    let stray = Stray::wait_in("remote", LIMIT).expect("a sender in the server's pod");
    let result = Kept::open(Some("client"), service(), &options).and_then(|mut kept| {
        stray.sent()?;
        // Until the client has answered, and the server heard it.
        std::thread::sleep(brief());
        kept.get(&options)
    });
    Outcome::of(&result)
}

pub(crate) fn service_works() -> Outcome {
    patient("client", service())
}

pub(crate) fn service_works_on_node() -> Outcome {
    patient("worker", service())
}

pub(crate) fn service_works_for_neighbour() -> Outcome {
    patient("local", service())
}

pub(crate) fn other_node_port_works() -> Outcome {
    patient("outside", v4(172, 31, 0, 3, 30080))
}

pub(crate) fn node_port_works_on_own_address() -> Outcome {
    patient("worker", v4(172, 31, 0, 2, 30080))
}

pub(crate) fn neighbour_works() -> Outcome {
    patient("client", pod([10, 244, 80, 66]))
}

pub(crate) fn remote_works() -> Outcome {
    patient("client", pod(REMOTE))
}

pub(crate) fn remote_works_from_node() -> Outcome {
    patient("worker", pod(REMOTE))
}

pub(crate) fn other_pod_works() -> Outcome {
    patient("client", pod([10, 244, 158, 66]))
}

pub(crate) fn borrowed_address_works_on_its_node() -> Outcome {
    patient("remote", pod([10, 244, 80, 100]))
}

pub(crate) fn new_question_works() -> Outcome {
    ask_for(LIMIT)
}

pub(crate) fn small_answer_works() -> Outcome {
    let to = v4(172, 31, 0, 5, 8080);
    Outcome::of(&client::echo(Some("client"), to, LIMIT))
}

pub(crate) fn outside_works() -> Outcome {
    patient("client", v4(172, 31, 0, 5, 8080))
}

pub(crate) fn service_works_for_itself() -> Outcome {
    patient("remote", service())
}

pub(crate) fn name_then_service_works() -> Outcome {
    match new_question_works() {
        Outcome::Answered => service_works(),
        failed => failed,
    }
}

pub(crate) fn remote_works_over_ipv6() -> Outcome {
    let remote = topology::pod("remote").expect("a pod").addr6;
    patient("client", SocketAddr::new(remote.into(), 8080))
}

/// Both ways, in more packets than a window holds.
pub(crate) fn large_transfer_works() -> Outcome {
    let up = Options::up(400_000).timeout(LIMIT);
    match Outcome::of(&client::get(Some("client"), service(), &up)) {
        Outcome::Answered => {
            let down = Options::down(400_000).timeout(LIMIT);
            Outcome::of(&client::get(Some("client"), service(), &down))
        }
        failed => failed,
    }
}

pub(crate) fn large_answer_works() -> Outcome {
    let to = v4(172, 31, 0, 5, 8080);
    Outcome::of(&client::echo_bytes(Some("client"), to, 3000, LIMIT))
}
