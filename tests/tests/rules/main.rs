//! The evaluation of rules against the kernel: packets of many kinds are sent through the laboratory's nodes, and the
//! rules that were said to decide about them, and no others, have to have counted them.
//!
//! Nothing answers: what pods and nodes would say of their own is held back before any rule sees it. Needs root.

mod chains;
mod counters;
mod generate;
mod outcome;
mod predict;
mod setup;
mod talk;
mod wire;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use tracer::rules::Packet;
use tracer_tests::lab::session::Session;
use tracer_tests::lab::topology::NODES;
use tracer_tests::lab::{Iptables, Launcher, Options, Policy};

use counters::{Counts, decides, grown};
use generate::{Random, Shot, shot};
use outcome::Outcome;
use predict::World;
use setup::{load, mac, prepare, world};
use wire::{Sender, send};

/// How many packets are made up.
const SHOTS: usize = 320;
/// How many of them are counted together.
const TOGETHER: usize = 8;
/// How many of them are answered, and talk on.
const TALKS: usize = 16;
/// How often counters are read again before they are wrong: packets may still be on their way.
const PATIENCE: u32 = 100;

#[test]
fn core_rules_decide_as_the_kernel_counts_nft() {
    compare(Iptables::Nft, 0x6e66_7461);
}

#[test]
fn rules_decide_as_the_kernel_counts_legacy() {
    compare(Iptables::Legacy, 0x6c65_6761);
}

fn compare(iptables: Iptables, seed: u64) {
    let mut options = Options::new(Launcher::binary(env!("CARGO_BIN_EXE_lab")));
    options.iptables = iptables;
    options.policy = Policy::On;
    let _lab = Session::start(&options).expect("the laboratory goes up");
    prepare(iptables);
    let mut random = Random::new(seed);
    let mut range = Range {
        iptables,
        world: world(),
        port: 10_000,
        before: Counts::new(),
        moved: BTreeSet::new(),
    };
    range.before = range.counters();
    range.fire(&mut random, SHOTS);
    load("worker", iptables, &chains::chains(&mut random));
    range.world = world();
    range.before = range.counters();
    range.fire(&mut random, SHOTS / 2);
    range.has_seen_much();
}

/// A target for packets, and the counters behind it.
struct Range {
    iptables: Iptables,
    world: World,
    /// The next connection's source port.
    port: u16,
    before: Counts,
    /// All rules that ever counted.
    moved: BTreeSet<counters::Key>,
}

impl Range {
    /// Makes up packets, sends them, compares; some of those that reach a pod are answered.
    fn fire(&mut self, random: &mut Random, shots: usize) {
        let macs = NODES.map(|node| mac(&self.world, node.name));
        let mut chosen = Vec::new();
        while chosen.len() < shots {
            let shot = shot(random, macs);
            let ways = self.predict(&shot);
            if ways.iter().any(|way| way.lost) {
                continue;
            }
            if let Some(what) = ways.iter().find_map(|way| way.unknown.as_ref()) {
                panic!("unknown of {shot:?}: {what}\n{}", text(&ways));
            }
            chosen.push((shot, ways));
        }
        // What may go several ways is sent alone; the rest in groups, each so often that the counters tell who it was.
        let (certain, open): (Vec<_>, Vec<_>) =
            chosen.into_iter().partition(|(_, ways)| same(ways));
        for group in certain.chunks(TOGETHER) {
            self.group(group);
        }
        for (shot, ways) in &open {
            self.alone(shot, ways);
        }
        let talks = certain
            .iter()
            .filter(|(shot, ways)| talk::starts(shot, &ways[0]));
        let talks: Vec<&Shot> = talks.map(|(shot, _)| shot).take(TALKS).collect();
        for shot in &talks {
            self.talk(shot);
        }
        println!(
            "{} packets one way, {} several ways, {} answered, {} rules counted so far",
            certain.len(),
            open.len(),
            talks.len(),
            self.moved.len()
        );
        assert!(talks.len() > 3, "too few packets come to a pod");
    }

    fn counters(&self) -> Counts {
        let node =
            |node: &predict::Node| counters::read(&node.ns.name, self.iptables).expect("counters");
        let mut all = Counts::new();
        for of_node in &self.world.nodes {
            all.append(&mut node(of_node));
        }
        all
    }

    fn predict(&self, shot: &Shot) -> Vec<Outcome> {
        let packet = shot.again(self.port);
        match shot.sender {
            Sender::Link(..) => self.world.arriving(shot.node, packet),
            Sender::Node(_) => self.world.leaving(shot.node, packet),
        }
    }

    fn send(&mut self, shot: &Shot, times: u16) {
        let packets: Vec<Packet> = (0..times).map(|n| shot.again(self.port + n)).collect();
        self.port += times;
        send(shot.sender, &packets).expect("the packets are sent");
    }

    /// Waits until the counters have grown by one of these, then returns which; else what they have grown by.
    fn settle(&mut self, expected: &[Counts]) -> Result<usize, Counts> {
        let mut tries = 0;
        loop {
            let after = self.counters();
            let grown = grown(&self.before, &after);
            let found = expected.iter().position(|counts| agrees(counts, &grown));
            tries += 1;
            if found.is_some() || tries == PATIENCE {
                self.before = after;
                self.moved.extend(grown.keys().cloned());
                return found.ok_or(grown);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Several packets that each go but one way.
    fn group(&mut self, group: &[(Shot, Vec<Outcome>)]) {
        let mut expected = Counts::new();
        for (times, (shot, ways)) in (1..).zip(group) {
            self.send(shot, times);
            for (key, count) in &ways[0].counts {
                *expected.entry(key.clone()).or_default() += count * u64::from(times);
            }
        }
        let Err(grown) = self.settle(std::slice::from_ref(&expected)) else {
            return;
        };
        // Which of them it is.
        for (shot, ways) in group {
            self.alone(shot, ways);
        }
        panic!(
            "each alone counts as it should, but not together:\n{}\n{group:#?}",
            difference(&expected, &grown)
        );
    }

    /// One packet that may go several ways.
    fn alone(&mut self, shot: &Shot, ways: &[Outcome]) {
        self.send(shot, 1);
        self.counts_one(shot, ways);
    }

    fn counts_one(&mut self, what: &impl std::fmt::Debug, ways: &[Outcome]) {
        let mut expected: Vec<Counts> = ways.iter().map(|way| way.counts.clone()).collect();
        expected.dedup();
        if let Some(what) = ways.iter().find_map(|way| way.unknown.as_ref()) {
            panic!("unknown: {what}\n{}", text(ways));
        }
        if let Err(grown) = self.settle(&expected) {
            panic!(
                "{what:?}\nwas to go\n{}but of the first way:\n{}",
                text(ways),
                difference(&expected[0], &grown)
            );
        }
    }

    /// A test that sends nothing through the rules would agree with everything.
    fn has_seen_much(&self) {
        let decided = self.moved.iter().filter(|(_, _, rule)| decides(rule));
        let rules: Vec<&str> = decided.map(|(_, _, rule)| &**rule).collect();
        assert!(rules.len() > 120, "only {} rules decided", rules.len());
        for target in [
            "ACCEPT",
            "DROP",
            "REJECT",
            "DNAT",
            "MASQUERADE",
            "KUBE-SEP",
            "KUBE-EXT",
            "cali-pi-",
        ] {
            let wanted = [format!("-j {target}"), format!("-g {target}")];
            assert!(
                rules
                    .iter()
                    .any(|r| wanted.iter().any(|w| r.contains(w.as_str()))),
                "no rule with target {target} counted"
            );
        }
    }
}

/// The counters of rules that decide are all there and no others; marks and the like are at least there.
fn agrees(expected: &Counts, grown: &Counts) -> bool {
    let decided = |counts: &Counts| -> Counts {
        let all = counts.iter().filter(|(key, _)| decides(&key.2));
        all.map(|(key, count)| (key.clone(), *count)).collect()
    };
    let noted = expected.iter().filter(|(key, _)| !decides(&key.2));
    decided(expected) == decided(grown)
        && noted
            .into_iter()
            .all(|(key, count)| grown.get(key).is_some_and(|g| g >= count))
}

/// The rules whose counters are not what they were said to become, then all that counted in their chains.
fn difference(expected: &Counts, grown: &Counts) -> String {
    let keys: BTreeSet<&counters::Key> = expected.keys().chain(grown.keys()).collect();
    let mut told = String::new();
    let mut chains = BTreeSet::new();
    for key in keys {
        let (said, counted) = (expected.get(key), grown.get(key));
        if said != counted && (decides(&key.2) || said > counted) {
            // Writing to a String cannot fail.
            let _ = writeln!(told, "{key:?}: {said:?} said, {counted:?} counted");
            chains.insert((&key.0, &key.1, key.2.split(' ').nth(1)));
        }
    }
    for (key, count) in grown {
        if chains.contains(&(&key.0, &key.1, key.2.split(' ').nth(1))) {
            let _ = writeln!(told, "  {key:?}: {count}");
        }
    }
    told
}

fn same(ways: &[Outcome]) -> bool {
    ways.windows(2).all(|pair| pair[0].counts == pair[1].counts)
}

fn text(ways: &[Outcome]) -> String {
    ways.iter().fold(String::new(), |mut text, way| {
        let _ = write!(text, "{way}");
        text
    })
}
