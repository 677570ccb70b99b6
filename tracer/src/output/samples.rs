//! Traces for the tests of the forms.

use std::path::Path;
use std::sync::Arc;

use crate::assemble::tests::{Names, nodes};
use crate::assemble::{Assembler, Limits, synthetic};
use crate::recording;
use crate::trace::{
    Endpoint, Finding, Fold, Header, Losses, SCHEMA, Severity, Step, StepKind, Tool, Trace, Verdict,
};

/// The kept recordings by name.
pub(crate) fn recordings() -> impl Iterator<Item = (String, Trace)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/recordings");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|f| f.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files.into_iter().map(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        let name = name.trim_end_matches(".jsonl.zst").to_owned();
        (name, recording::read(&path).unwrap().0)
    })
}

/// One of them.
pub(crate) fn recording(name: &str) -> Trace {
    recordings().find(|(n, _)| n == name).unwrap().1
}

fn header() -> Header {
    Header {
        schema: SCHEMA.into(),
        tool: Tool::default(),
        request: serde_json::json!({}),
        nodes: nodes(),
        ..Header::default()
    }
}

/// Connections made up, with observed rewrites.
pub(crate) fn synthetic(connections: u64) -> Trace {
    let mut steps = Vec::new();
    let mut asm = Assembler::new(Limits::default(), Arc::new(Names));
    synthetic::events(connections).for_each(|e| asm.push(e, &mut steps));
    let mut fold = Fold::new(&nodes());
    for step in steps {
        fold.push(step);
    }
    fold.finish(None);
    fold.trace(header(), Losses::default())
}

/// Nothing happened.
pub(crate) fn empty() -> Trace {
    Fold::new(&[]).trace(
        Header {
            nodes: Vec::new(),
            ..header()
        },
        Losses::default(),
    )
}

/// The first step of a connection.
pub(crate) fn syn() -> Step {
    let trace = recording("c11");
    let mut steps = trace.packets.into_iter().flat_map(|p| p.steps);
    steps.find(|s| s.kind == StepKind::Ingress).unwrap()
}

/// What an attacker would like to see on the screen.
pub(crate) const EVIL: &str = "\x1b]0;pwned\x07\x1b[2J</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`&#x3c;\
%%{init: {'theme':'x'}}%%\nend\nclick p0 href \"javascript:alert(3)\"\u{202e};#quot;--x\u{0}\u{2028}|*_{}";

/// A trace whose every text is hostile and whose every number is as large as
/// can be.
pub(crate) fn hostile() -> Trace {
    let mut trace = recording("c11");
    let evil: Arc<str> = EVIL.into();
    let end = |e: &mut Endpoint| e.name = Some(Arc::clone(&evil));
    trace.header.tool.version = EVIL.into();
    trace.header.tool.kernel = EVIL.into();
    trace.header.tool.hooks = vec![EVIL.into()];
    trace.header.tool.degraded = vec![EVIL.into()];
    trace.header.request = serde_json::json!({ EVIL: EVIL });
    for node in &mut trace.header.nodes {
        node.name = Arc::clone(&evil);
        for interface in &mut node.interfaces {
            interface.name = Arc::clone(&evil);
        }
    }
    for flow in &mut trace.flows {
        flow.proto = EVIL.into();
        flow.state = EVIL.into();
        end(&mut flow.client);
        end(&mut flow.server);
    }
    for (i, packet) in trace.packets.iter_mut().enumerate() {
        packet.summary = EVIL.into();
        packet.attempt = u32::MAX;
        for (j, step) in packet.steps.iter_mut().enumerate() {
            end(&mut step.src);
            end(&mut step.dst);
            step.node = Arc::clone(&evil);
            if !step.iface.is_empty() {
                step.iface = Arc::clone(&evil);
            }
            if let Some(rewrite) = &mut step.rewrite {
                end(&mut rewrite.from);
                end(&mut rewrite.to);
            }
            if let Some(drop) = &mut step.drop {
                drop.reason = Some(Arc::clone(&evil));
                drop.function = Arc::clone(&evil);
                drop.hook = Some(EVIL.into());
            }
            if step.inferred {
                step.from = Some(EVIL.into());
            }
            step.rule = Some(Box::new(crate::trace::Rule {
                text: Some(Arc::clone(&evil)),
                comment: Some(EVIL.repeat(300).into()),
                ..crate::trace::Rule::default()
            }));
            match (i + j) % 5 {
                0 => step.ts = u64::MAX,
                1 => step.ts = 0,
                2 => (step.len, step.payload) = (u32::MAX, u32::MAX),
                3 => (step.len, step.payload) = (0, u32::MAX),
                _ => step.proto = EVIL.into(),
            }
        }
    }
    if let Some(packet) = trace.packets.first_mut() {
        packet.id = u64::MAX;
    }
    let closing = &mut trace.closing;
    closing.verdict = Verdict {
        code: EVIL.into(),
        summary: EVIL.into(),
        node: Some(Arc::clone(&evil)),
        iface: Some(Arc::clone(&evil)),
        packet: Some(u64::MAX),
    };
    closing.losses = Losses {
        ring_buffer: u64::MAX,
        user_space: 0,
        other: 0,
    };
    closing.findings = vec![Finding {
        code: EVIL.into(),
        severity: Severity::Fault,
        summary: EVIL.into(),
        evidence: vec![EVIL.into()],
        next: vec![EVIL.into()],
    }];
    if let Some(state) = &mut closing.state {
        for namespace in &mut state.namespaces {
            namespace.name = Arc::clone(&evil);
            namespace.ipsets = Some(EVIL.into());
            namespace.sysctls.insert(EVIL.into(), EVIL.into());
            for dump in &mut namespace.iptables {
                dump.text = EVIL.into();
            }
        }
    }
    trace
}
