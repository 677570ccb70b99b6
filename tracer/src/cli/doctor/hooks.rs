//! The function hooks of the catalog: which are there, and what nobody sees
//! where one is not.

use serde::Serialize;

use super::report::State;
use crate::kallsyms::Kallsyms;
use crate::probe::catalog::{HOOKS, Hook as Entry, Kind, is_optional};

/// A target of the catalog, once per group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Hook {
    /// Kernel function or tracepoint.
    pub(super) target: &'static str,
    /// Only with `--deep`.
    pub(super) deep: bool,
    /// `Ok`; `Note` where its absence is common and no news; `Missing`.
    pub(super) state: State,
    /// Why it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// What is not observed without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost: Option<&'static str>,
}

/// Whether the symbols hold any function of the catalog.
pub(super) fn any_target(symbols: &Kallsyms) -> bool {
    HOOKS.iter().any(|h| symbols.get(h.target).is_some())
}

/// Judges every target. `reasons`: named drop reasons, none where BTF could not
/// be read.
pub(super) fn judge(
    kprobes: bool,
    symbols: Option<&Kallsyms>,
    reasons: Option<usize>,
) -> Vec<Hook> {
    let mut judged: Vec<Hook> = Vec::new();
    for entry in HOOKS {
        let known = |h: &Hook| h.target == entry.target && h.deep == entry.deep;
        if judged.iter().any(known) {
            continue;
        }
        let (state, why) = match stand(entry, kprobes, symbols, reasons) {
            Ok(()) => (State::Ok, None),
            Err((state, why)) => (state, Some(why)),
        };
        judged.push(Hook {
            target: entry.target,
            deep: entry.deep,
            state,
            cost: why.is_some().then_some(entry.loses),
            why,
        });
    }
    judged
}

fn stand(
    entry: &Entry,
    kprobes: bool,
    symbols: Option<&Kallsyms>,
    reasons: Option<usize>,
) -> Result<(), (State, String)> {
    let missing = |why: &str| Err((State::Missing, why.to_owned()));
    if entry.kind == Kind::RawTracepoint {
        // Every supported kernel has it; without BTF nothing is loaded at all.
        return match reasons {
            Some(_) => Ok(()),
            None => Err((
                State::Unknown,
                "its form cannot be told without BTF".to_owned(),
            )),
        };
    }
    if !kprobes {
        return missing("no kprobes");
    }
    let Some(symbols) = symbols else {
        return Err((State::Unknown, "/proc/kallsyms cannot be read".to_owned()));
    };
    match symbols.get(entry.target) {
        Some(symbol) if symbol.is_plain() => Ok(()),
        Some(symbol) => Err((
            State::Missing,
            format!(
                "this kernel has it only as {}, whose arguments the compiler may have changed",
                symbol.suffixed.join(", ")
            ),
        )),
        None if is_optional(entry) => {
            Err((State::Note, "not here, as on many healthy nodes".to_owned()))
        }
        None => missing("not in this kernel, or in a module that is not loaded"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols(names: &[&str]) -> Kallsyms {
        let line = |n: &&str| format!("ffffffff81000000 T {n}\n");
        let wanted: Vec<&str> = HOOKS.iter().map(|h| h.target).collect();
        Kallsyms::from_text(names.iter().map(line).collect(), &wanted)
    }

    fn of<'a>(hooks: &'a [Hook], target: &str, deep: bool) -> &'a Hook {
        hooks
            .iter()
            .find(|h| h.target == target && h.deep == deep)
            .unwrap()
    }

    #[test]
    fn a_target_is_listed_once_per_group() {
        let hooks = judge(true, Some(&symbols(&[])), Some(1));
        let mut keys: Vec<_> = hooks.iter().map(|h| (h.target, h.deep)).collect();
        keys.sort_unstable();
        let n = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), n);
        // Its return is wanted only with --deep.
        assert!(
            keys.contains(&("nf_nat_manip_pkt", false))
                && keys.contains(&("nf_nat_manip_pkt", true))
        );
    }

    #[test]
    fn absent_variant_and_optional_are_told_apart() {
        let there = symbols(&["__nf_conntrack_confirm", "ip_error.isra.0"]);
        let hooks = judge(true, Some(&there), Some(80));
        assert_eq!(of(&hooks, "kfree_skb", false).state, State::Ok);
        assert_eq!(of(&hooks, "__nf_conntrack_confirm", false).state, State::Ok);
        assert_eq!(of(&hooks, "nf_ct_delete", false).state, State::Missing);
        assert_eq!(of(&hooks, "nf_send_reset6", false).state, State::Note);
        let variant = of(&hooks, "ip_error", true);
        assert!(variant.why.as_ref().unwrap().contains("ip_error.isra.0"));
        assert_eq!(variant.cost, Some("the route taken is not seen"));
    }

    #[test]
    fn without_kprobes_the_tracepoint_stays() {
        let hooks = judge(false, None, Some(0));
        let there: Vec<_> = hooks
            .iter()
            .filter(|h| h.state == State::Ok)
            .map(|h| h.target)
            .collect();
        assert_eq!(there, ["kfree_skb"]);
        assert!(
            hooks
                .iter()
                .filter(|h| h.target != "kfree_skb")
                .all(|h| h.cost.is_some())
        );
    }
}
