use super::*;
use crate::output::samples;
use crate::trace::StepKind;

#[test]
fn frames_are_as_long_as_the_packets_were() {
    let mut checked = 0;
    for (name, trace) in samples::recordings() {
        for step in trace.packets.iter().flat_map(|p| &p.steps) {
            let seen = matches!(step.kind, StepKind::Ingress | StepKind::Egress);
            if seen && step.merged.is_none() {
                let frame = frame(step, link(step), false);
                assert_eq!(frame.len, step.len, "{name}: {step:?}");
                assert!(
                    frame.bytes.len() as u32 + payload(step) == step.len,
                    "{name}"
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 1000, "{checked}");
}

#[test]
fn checksums_are_right_where_all_bytes_are_there() {
    // Over a header with its own checksum in it the sum is zero (RFC 1071).
    let mut step = samples::syn();
    step.len = 74;
    let whole = frame(&step, Link::Ethernet, true);
    assert_eq!(whole.len, 74);
    let (ip, tcp) = (&whole.bytes[14..34], &whole.bytes[34..]);
    assert_eq!(checksum(&[ip]), 0);
    let pseudo = pseudo_header(step.src.addr, step.dst.addr, 6, tcp.len() as u32);
    assert_eq!(checksum(&[&pseudo, tcp]), 0);
}
