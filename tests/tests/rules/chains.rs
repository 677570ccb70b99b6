//! Rules by chance: matches and targets in combinations that nobody would write.

use std::fmt::Write;

use crate::generate::Random;

/// Chains, of which each leads to later ones only.
const CHAINS: usize = 4;
const RULES: usize = 12;

const NETS: [&str; 8] = [
    "10.244.0.0/16",
    "10.244.80.65/32",
    "10.244.158.64/26",
    "172.31.0.0/24",
    "172.31.0.2/32",
    "10.96.0.0/12",
    "0.0.0.0/1",
    "10.244.80.65/255.0.0.255",
];
const MATCHES: [&str; 22] = [
    "-i cali+",
    "! -i eth0",
    "-o cali+",
    "! -o vxlan.calico",
    "-m mark --mark 0x100/0x100",
    "-m mark ! --mark 0x200/0x600",
    "-m connmark --mark 0x100/0x300",
    "-m connmark ! --mark 0x0/0xf00",
    "-m conntrack --ctstate NEW,RELATED",
    "-m conntrack ! --ctstate INVALID,ESTABLISHED",
    "-m conntrack --ctstate DNAT",
    "-m conntrack --ctstate INVALID,UNTRACKED",
    "-m conntrack --ctorigdst 10.96.0.0/12",
    "-m conntrack ! --ctorigsrc 10.244.80.0/24",
    "-m conntrack --ctdir REPLY",
    "-m addrtype --dst-type LOCAL",
    "-m addrtype ! --src-type LOCAL",
    "-m addrtype --dst-type BROADCAST,MULTICAST,UNICAST",
    "-m length --length 0:39",
    "-m set --match-set cali40network-ip-pools src",
    "-m set ! --match-set cali40network-ip-pools dst",
    "-m set --match-set cali40this-host dst",
];
const PROTOCOLS: [&str; 14] = [
    "-p tcp",
    "! -p tcp",
    "-p udp -m udp --dport 53",
    "-p udp -m udp ! --dport 1:1024",
    "-p tcp -m tcp --dport 80:8080",
    "-p tcp -m tcp ! --sport 1:9999",
    "-p tcp -m tcp --tcp-flags SYN,ACK SYN",
    "-p tcp -m tcp ! --tcp-flags SYN,RST,ACK,FIN SYN",
    "-p tcp -m multiport --dports 80,443,8000:9000",
    "-p udp -m multiport ! --dports 53,4789",
    "-p tcp -m multiport --ports 53,8080",
    "-p icmp -m icmp --icmp-type 8",
    "-p icmp -m icmp ! --icmp-type 0/0",
    "-p icmp",
];
const TARGETS: [&str; 16] = [
    "",
    "-j RETURN",
    "-j RETURN",
    "-j MARK --set-xmark 0x100/0x100",
    "-j MARK --set-xmark 0x200/0x600",
    "-j MARK --set-xmark 0x0/0x300",
    "-j MARK --set-xmark 0x300/0x0",
    "-j CONNMARK --set-xmark 0x100/0x300",
    "-j CONNMARK --save-mark --nfmask 0xf00 --ctmask 0xf00",
    "-j CONNMARK --restore-mark --nfmask 0xf00 --ctmask 0xf00",
    "-j ACCEPT",
    "jump",
    "jump",
    "jump",
    "goto",
    "goto",
];

/// Chains of the table mangle, and the rules that lead to them, as `iptables-restore --noflush` takes them.
pub(crate) fn chains(random: &mut Random) -> String {
    let mut text = String::from("*mangle\n");
    let mut rules = String::new();
    for chain in 0..CHAINS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, ":LAB-{chain} - [0:0]");
        for _ in 0..RULES {
            let _ = writeln!(rules, "-A LAB-{chain} {}", rule(random, chain));
        }
    }
    for hook in ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"] {
        let _ = writeln!(rules, "-I {hook} 1 -j LAB-{}", random.below(2));
    }
    text + &rules + "COMMIT\n"
}

fn rule(random: &mut Random, chain: usize) -> String {
    let mut words = Vec::new();
    for side in ["-s", "-d"] {
        if random.chance(25) {
            let not = if random.chance(40) { "! " } else { "" };
            words.push(format!("{not}{side} {}", random.of(&NETS)));
        }
    }
    if random.chance(45) {
        words.push(random.of(&PROTOCOLS).to_owned());
    }
    let first = random.below(MATCHES.len());
    for step in 0..random.below(3) {
        // Not the same one twice, which iptables does not take of every match.
        words.push(MATCHES[(first + step * 7) % MATCHES.len()].to_owned());
    }
    let later = CHAINS - chain - 1;
    let target = random.of(&TARGETS);
    let target = match target {
        "jump" | "goto" if later == 0 => "-j RETURN".to_owned(),
        "jump" | "goto" => {
            let option = if target == "jump" { "-j" } else { "-g" };
            format!("{option} LAB-{}", chain + 1 + random.below(later))
        }
        // Few, or little would be left to be seen.
        "-j ACCEPT" if random.chance(25) => "-j DROP".to_owned(),
        target => target.to_owned(),
    };
    words.push(target);
    words.join(" ")
}
