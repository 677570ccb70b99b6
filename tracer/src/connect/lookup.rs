//! Looks a name up as the resolver of glibc does: candidates in turn, for each
//! the name servers in turn, until an answer has addresses.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Prober, dial, message, nanoseconds, now, resolv};
use crate::trace::probe::{Kind, Lookup, Outcome, Query, Reply, Resolver};

/// `RES_DFLRETRY` in glibc's `resolv.h`: rounds through the name servers.
const ROUNDS: usize = 2;
const PORT: u16 = 53;

/// An id that nobody can guess (RFC 5452 section 9.2).
pub(super) fn id() -> u16 {
    RandomState::new().build_hasher().finish() as u16
}

/// Looks the name up from the thread's namespace.
pub(super) fn lookup(prober: &Prober, name: &str, resolver: &Resolver) -> Lookup {
    let mut found = Lookup {
        name: name.to_owned(),
        expected: prober.plan.expected.clone(),
        ..Lookup::default()
    };
    let families = [
        (Kind::A, IpAddr::from(Ipv4Addr::UNSPECIFIED)),
        (Kind::Aaaa, IpAddr::from(Ipv6Addr::UNSPECIFIED)),
    ];
    let kinds = || families.iter().filter(|(_, like)| prober.client.has(*like));
    for candidate in resolv::candidates(name, resolver) {
        let mut answered = false;
        for (kind, _) in kinds() {
            answered |= ask_all(prober, &candidate, *kind, resolver, &mut found);
        }
        // Without any answer glibc does not try the rest of the list.
        if !found.addrs.is_empty() || !answered || prober.limits().stopped() {
            break;
        }
    }
    found
}

/// Asks the name servers in turn; true when one answered.
fn ask_all(
    prober: &Prober,
    name: &str,
    kind: Kind,
    resolver: &Resolver,
    found: &mut Lookup,
) -> bool {
    let mut answered = false;
    for _ in 0..ROUNDS {
        for server in &resolver.nameservers {
            if prober.limits().stopped() {
                return answered;
            }
            let query = ask(prober, SocketAddr::new(*server, PORT), name, kind);
            let (reply, addrs) = (query.reply, query.addrs.clone());
            found.queries.push(query);
            answered |= reply.is_answer();
            if reply.is_answer() && reply != Reply::Error {
                let new = addrs.into_iter().filter(|a| !found.addrs.contains(a));
                let new: Vec<IpAddr> = new.collect();
                found.addrs.extend(new);
                return true;
            }
        }
        if answered {
            break;
        }
    }
    answered
}

fn ask(prober: &Prober, server: SocketAddr, name: &str, kind: Kind) -> Query {
    let mut query = Query {
        ts: now(),
        name: name.to_owned(),
        kind,
        server: prober.endpoint(server),
        client: None,
        reply: Reply::NotSent,
        detail: String::new(),
        addrs: Vec::new(),
        took: 0,
    };
    let id = id();
    let question = match message::question(id, name, kind) {
        Ok(question) => question,
        Err(why) => {
            query.detail = why;
            return query;
        }
    };
    prober.say(server, &format!("UDP, DNS query {kind} {name}"));
    let take = |m: &[u8]| message::answer(m, id, name, kind);
    let (done, answer) = dial::udp(server, &question, &prober.limits(), take);
    query.client = done.client.map(|c| prober.end(Some(c)));
    query.took = nanoseconds(done.took);
    if let Some(answer) = answer {
        query.reply = answer.reply;
        query.detail = answer.detail;
        query.addrs = answer.addrs;
    } else {
        query.reply = match done.result {
            Outcome::Refused => Reply::Rejected,
            Outcome::NoAnswer | Outcome::TimedOut | Outcome::NotTried => Reply::NoAnswer,
            _ => Reply::NotSent,
        };
        query.detail = done.detail;
    }
    query
}

/// What came of it, in a few words.
pub(super) fn summary(found: &Lookup) -> String {
    let answers = || found.queries.iter().filter(|q| q.reply.is_answer());
    if let Some(error) = answers().find(|q| q.reply == Reply::Error) {
        return format!("name: {}", error.detail);
    }
    // That the name exists says more than that others do not.
    let told = answers().find(|q| q.reply == Reply::NoAddress);
    match told.or_else(|| answers().next()).or(found.queries.last()) {
        Some(query) if query.reply.is_answer() => format!("name: {}", query.detail),
        Some(query) => format!("name: {} from {}", query.detail, query.server.addr),
        None => "name: no name server to ask".to_owned(),
    }
}
