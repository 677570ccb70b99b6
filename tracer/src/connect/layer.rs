//! Which layer the results point at.
//!
//! A name, the Service's address and a backend's address each leave one step
//! out that the one before has: the look-up, then the translation. The first
//! way that works says that the fault is in the step that it leaves out.

use crate::trace::probe::{Attempt, Layer, LayerCode, Lookup, Outcome, Way};

#[derive(Default)]
struct Tally {
    good: usize,
    bad: usize,
    refused: usize,
    unknown: usize,
}

impl Tally {
    fn of<'a>(attempts: impl Iterator<Item = &'a Attempt>) -> Self {
        let mut tally = Self::default();
        for a in attempts {
            tally.good += usize::from(a.result.is_good());
            tally.bad += usize::from(a.result.is_bad());
            tally.refused += usize::from(a.result == Outcome::Refused);
            tally.unknown += usize::from(!a.result.is_good() && !a.result.is_bad());
        }
        tally
    }

    fn seen(&self) -> usize {
        self.good + self.bad + self.unknown
    }
}

/// What the results have in common.
pub(super) fn layer(lookup: Option<&Lookup>, attempts: &[Attempt]) -> Layer {
    let of = |ways: &'static [Way]| attempts.iter().filter(move |a| ways.contains(&a.way));
    let service = Tally::of(of(&[Way::ClusterIp, Way::Address]));
    let to_service = of(&[Way::ClusterIp]).next().is_some();
    // What is not ready is not expected to answer.
    let backends = Tally::of(of(&[Way::Backend, Way::Pod]).filter(|a| !a.unready));
    let name = Tally::of(of(&[Way::Name]));
    let wrong = lookup.is_some_and(Lookup::is_wrong);
    let unresolved = of(&[Way::Name]).any(|a| a.result == Outcome::Unresolved) || wrong;
    let (code, summary) = if backends.bad > 0 && backends.good > 0 {
        (
            LayerCode::Backend,
            some(&of(&[Way::Backend]).collect::<Vec<_>>()),
        )
    } else if backends.bad > 0 {
        (LayerCode::Network, none(&backends, unresolved))
    } else if service.bad > 0 && backends.good > 0 && to_service {
        (LayerCode::Service, translation(unresolved))
    } else if service.bad > 0 && to_service && backends.seen() == 0 {
        let text = "the Service's address cannot be reached, and no ready backend is known to compare with: see the Service's endpoints first";
        (LayerCode::Endpoints, text.to_owned())
    } else if service.bad > 0 {
        let text = if service.refused == service.bad {
            "the address refuses: nothing listens there, or a rule rejects"
        } else {
            "the address cannot be reached: routes, policies and firewalls on the way, or the host itself"
        };
        (LayerCode::Network, text.to_owned())
    } else if unresolved {
        (LayerCode::Dns, dns(wrong, service.good + backends.good > 0))
    } else if name.bad > 0 {
        let text = "the name is resolved, but what it leads to cannot be reached";
        (LayerCode::Network, text.to_owned())
    } else if name.good + service.good + backends.good > 0
        && name.unknown + service.unknown + backends.unknown == 0
    {
        let text = "every way works: what still fails is above the connection, in the program or its protocol";
        (LayerCode::None, text.to_owned())
    } else {
        let text = "not everything was answered, and nothing was refused: silence proves nothing";
        (LayerCode::Unclear, text.to_owned())
    };
    Layer { code, summary }
}

fn some(backends: &[&Attempt]) -> String {
    let failed = backends.iter().filter(|a| a.result.is_bad() && !a.unready);
    let failed = failed.filter_map(|a| a.server.as_ref());
    let failed: Vec<String> = failed
        .map(|s| {
            s.name
                .as_deref()
                .map_or_else(|| s.addr.to_string(), str::to_owned)
        })
        .collect();
    format!(
        "some backends can be reached and {} cannot: that pod or its node, not the Service",
        failed.join(", ")
    )
}

fn none(backends: &Tally, unresolved: bool) -> String {
    let mut text = if backends.refused == backends.bad {
        "the backends' own addresses refuse: nothing listens at that port in the pod, or a rule rejects".to_owned()
    } else {
        "not even the backends' own addresses can be reached: the network between the pods, a policy, or the pods themselves".to_owned()
    };
    if unresolved {
        text.push_str("; the look-up of the name may have failed for the same reason");
    }
    text
}

fn translation(unresolved: bool) -> String {
    let mut text =
        "the backends can be reached, their Service's address cannot: its translation (kube-proxy's rules on the client's node)".to_owned();
    if unresolved {
        text.push_str("; the name failed with it, as the resolver is behind a Service, too");
    }
    text
}

fn dns(wrong: bool, rest: bool) -> String {
    let what = if wrong {
        "the name is resolved to an address that is not the Service's"
    } else {
        "the name is not resolved"
    };
    if rest {
        format!("{what}, and all the rest works: DNS")
    } else {
        format!("{what}: DNS")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Endpoint;

    fn attempt(way: Way, result: Outcome) -> Attempt {
        Attempt {
            ts: 1,
            way,
            name: None,
            client: None,
            server: Some(Endpoint {
                addr: "10.0.0.1".parse().unwrap(),
                port: Some(80),
                name: None,
            }),
            unready: false,
            result,
            detail: String::new(),
            took: 0,
            flow: None,
            stopped: None,
        }
    }

    fn code(name: Outcome, service: Outcome, backends: &[Outcome]) -> LayerCode {
        let mut all = vec![attempt(Way::Name, name), attempt(Way::ClusterIp, service)];
        all.extend(backends.iter().map(|b| attempt(Way::Backend, *b)));
        layer(None, &all).code
    }

    #[test]
    fn the_table() {
        use Outcome::{Connected as Ok, NoAnswer, NotTried, Refused, TimedOut, Unresolved};
        for (name, service, backends, wanted) in [
            (Ok, Ok, &[Ok, Ok][..], LayerCode::None),
            (Unresolved, Ok, &[Ok], LayerCode::Dns),
            (Unresolved, TimedOut, &[Ok], LayerCode::Service),
            (TimedOut, TimedOut, &[Ok], LayerCode::Service),
            (
                TimedOut,
                TimedOut,
                &[TimedOut, TimedOut],
                LayerCode::Network,
            ),
            (Refused, Refused, &[Refused], LayerCode::Network),
            (Ok, Ok, &[Ok, TimedOut], LayerCode::Backend),
            (TimedOut, Refused, &[], LayerCode::Endpoints),
            (NoAnswer, NoAnswer, &[NoAnswer], LayerCode::Unclear),
            (Ok, Ok, &[NotTried], LayerCode::Unclear),
        ] {
            assert_eq!(
                code(name, service, backends),
                wanted,
                "{name:?} {service:?} {backends:?}"
            );
        }
    }

    #[test]
    fn what_is_not_ready_is_not_blamed() {
        let mut all = vec![
            attempt(Way::ClusterIp, Outcome::Connected),
            attempt(Way::Backend, Outcome::Connected),
            attempt(Way::Backend, Outcome::TimedOut),
        ];
        assert_eq!(layer(None, &all).code, LayerCode::Backend);
        all[2].unready = true;
        assert_eq!(layer(None, &all).code, LayerCode::None);
    }

    #[test]
    fn another_address_is_dns() {
        let lookup = Lookup {
            addrs: vec!["10.9.9.9".parse().unwrap()],
            expected: vec!["10.96.0.1".parse().unwrap()],
            ..Lookup::default()
        };
        let all = [
            attempt(Way::Name, Outcome::TimedOut),
            attempt(Way::ClusterIp, Outcome::Connected),
        ];
        assert_eq!(layer(Some(&lookup), &all).code, LayerCode::Dns);
        assert_eq!(layer(None, &all).code, LayerCode::Network);
    }
}
