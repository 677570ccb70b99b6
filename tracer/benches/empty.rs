//! Attaches `tracer_empty`, a tc program that does nothing, wherever `tracer follow --src ADDR` would attach its own,
//! until SIGINT or SIGTERM: what `cargo xtask bench` compares the tool's programs with. `empty ADDR`

use std::error::Error;
use std::sync::Arc;

use aya::programs::tc::{NlOptions, SchedClassifierLink, TcAttachOptions, TcAttachType};
use aya::programs::{Link as _, SchedClassifier};
use aya::{EbpfLoader, include_bytes_aligned};
use tracer::netns::{self, NetNs};
use tracer::probe::leftover;
use tracer::{discover, target};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tracer-ebpf"));

/// The program's name in the object.
const EMPTY: &str = "tracer_empty";

/// One interface.
struct Place {
    ns: Arc<NetNs>,
    ifindex: u32,
    links: Vec<SchedClassifierLink>,
    /// Whether the clsact qdisc is ours.
    qdisc: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Some(addr) = std::env::args()
        .nth(1)
        .filter(|word| !word.starts_with('-'))
    else {
        println!("empty: nothing to do without an address; `cargo xtask bench` runs this");
        return Ok(());
    };
    // Blocked from here on, so that a signal during set-up waits for the clean-up.
    let signals = block()?;
    let asked = target::Asked {
        pod: None,
        src: Some(&addr),
        dst: None,
        proto: None,
    };
    let request = target::resolve(asked, None)?;
    let discovery = discover::discover(&[], None)?;
    let watched = discover::watch_list(&discovery, &request, None);
    let mut ebpf = EbpfLoader::new().btf(None).load(OBJECT)?;
    let program: &mut SchedClassifier = ebpf
        .program_mut(EMPTY)
        .ok_or("tracer_empty is missing in the object")?
        .try_into()?;
    program.load()?;
    let mut places = Vec::new();
    let mut result = Ok(());
    for watch in &watched {
        let node = &discovery.nodes[watch.node];
        let mut place = Place {
            ns: Arc::clone(&node.ns),
            ifindex: watch.ifindex,
            links: Vec::new(),
            qdisc: false,
        };
        result = attach(program, &watch.name, &mut place);
        places.push(place);
        if result.is_err() {
            break;
        }
    }
    if result.is_ok() {
        eprintln!("ready: {EMPTY} on {} interfaces", places.len());
        wait(&signals);
    }
    for place in places {
        let _inside = netns::enter(&place.ns)?;
        for link in place.links {
            // The interface may be gone, and the filter with it.
            let _ = link.detach();
        }
        if place.qdisc {
            leftover::remove_clsact_if_empty(place.ifindex);
        }
    }
    result
}

/// Attaches to both directions: by TCX, or as a clsact filter on older kernels.
fn attach(
    program: &mut SchedClassifier,
    name: &str,
    place: &mut Place,
) -> Result<(), Box<dyn Error>> {
    let _inside = netns::enter(&place.ns)?;
    for at in [TcAttachType::Ingress, TcAttachType::Egress] {
        let tcx = TcAttachOptions::TcxOrder(aya::programs::LinkOrder::first());
        let link = if let Ok(link) = program.attach_with_options(name, at, tcx) {
            link
        } else {
            place.qdisc |= leftover::add_clsact(name)?;
            let options = TcAttachOptions::Netlink(NlOptions::default());
            program.attach_with_options(name, at, options)?
        };
        // Kept here, for the program tells its links apart by interface index, which another namespace has too.
        place.links.push(program.take_link(link)?);
    }
    Ok(())
}

/// Keeps SIGINT and SIGTERM for [`wait`].
fn block() -> std::io::Result<libc::sigset_t> {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set that the other calls then read.
    let (set, status) = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        let mut set = set.assume_init();
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        (
            set,
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()),
        )
    };
    if status == 0 {
        Ok(set)
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Waits for one of the signals.
fn wait(signals: &libc::sigset_t) {
    let mut number = 0;
    // SAFETY: both pointers are to live variables.
    unsafe { libc::sigwait(signals, &raw mut number) };
}
