use super::*;
use crate::state::State;

fn namespace(name: &str, netns: u32) -> Namespace {
    let target = Target {
        name: Arc::from(name),
        kind: NamespaceKind::Node,
        node: None,
        ns: Arc::new(NetNs::current().unwrap()),
        interfaces: Vec::new(),
    };
    Namespace {
        netns,
        ..target.blank()
    }
}

fn with_counter(mut n: Namespace, value: u64) -> Namespace {
    n.counters.insert("IpInAddrErrors".to_owned(), value);
    n
}

fn missed(mut n: Namespace) -> Namespace {
    n.unread
        .push(unread("everything", "it took longer than 8 s".to_owned()));
    n
}

#[test]
fn readings_are_merged_by_namespace() {
    let last = vec![
        with_counter(namespace("a", 1), 9),
        missed(namespace("b", 2)),
        missed(namespace("new", 4)),
    ];
    let first = vec![
        with_counter(namespace("a", 1), 7),
        with_counter(namespace("b", 2), 3),
        namespace("gone", 3),
        missed(namespace("new", 4)),
    ];
    let before = vec![with_counter(namespace("a", 1), 5)];
    let all = merge(last, first, &before);
    let names: Vec<&str> = all.iter().map(|n| &*n.name).collect();
    assert_eq!(names, ["a", "b", "new", "gone"]);
    assert_eq!(all[0].grew("IpInAddrErrors"), 4);
    // The earlier reading stands in, and says so.
    assert_eq!(all[1].counters["IpInAddrErrors"], 3);
    assert_eq!(&*all[1].unread[0].what, "again");
    assert_eq!(&*all[2].unread[0].what, "everything");
}

#[test]
fn a_state_that_is_too_long_loses_its_longest_parts() {
    let mut n = namespace("a", 1);
    n.ipsets = Some("x".repeat(1000));
    let mut state = State {
        namespaces: vec![n],
        cluster: Some(serde_json::json!("y".repeat(3000))),
    };
    bound(&mut state, 100_000);
    assert!(state.cluster.is_some());
    bound(&mut state, 3000);
    assert!(state.cluster.is_none() && state.namespaces[0].ipsets.is_some());
    bound(&mut state, 900);
    assert!(state.namespaces[0].ipsets.is_none());
    assert!(!state.namespaces[0].unread.is_empty());
}

#[test]
fn what_is_not_read_in_time_is_told() {
    let target = Target {
        name: Arc::from("here"),
        kind: NamespaceKind::Node,
        node: None,
        ns: Arc::new(NetNs::current().unwrap()),
        interfaces: Vec::new(),
    };
    let mut reading = start(vec![target], false, |reader, _, _| {
        while !reader.stopped.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    reading.reader.deadline = Instant::now();
    let all = reading.finish();
    assert_eq!(
        (&*all[0].name, &*all[0].unread[0].what),
        ("here", "everything")
    );
}
