use super::*;

/// Whether the packet is in the set `x`.
fn is_in(set: &str, sides: &str, packet: &Packet) -> Result<bool, String> {
    let mut problems = Vec::new();
    let sets = ipset::parse(set, &mut problems);
    assert_eq!(problems, []);
    let sides: Option<Vec<Direction>> = sides.split(',').map(matches::direction).collect();
    ipset::contains(&sets, "x", &sides.unwrap(), packet)
}

#[test]
fn types() {
    let packet = tcp("10.244.80.65:40000", "10.98.235.247:80")
        .arriving("eth0")
        .marked(5);
    for (set, sides, expect) in [
        ("hash:net family inet\nadd x 10.244.0.0/16", "src", true),
        ("hash:net family inet\nadd x 10.244.0.0/16", "dst", false),
        ("hash:net family inet6\nadd x ::/0", "src", false),
        (
            "hash:ip family inet\nadd x 10.244.80.65 timeout 0",
            "src",
            true,
        ),
        (
            "hash:ip family inet netmask 24\nadd x 10.244.80.0",
            "src",
            true,
        ),
        (
            "hash:ip,port family inet\nadd x 10.98.235.247,tcp:80",
            "dst,dst",
            true,
        ),
        (
            "hash:ip,port family inet\nadd x 10.98.235.247,udp:80",
            "dst,dst",
            false,
        ),
        (
            "hash:ip,port family inet\nadd x 10.98.235.247,tcp:80",
            "dst",
            false,
        ),
        (
            "hash:ip,port,ip family inet\nadd x 10.98.235.247,tcp:80,10.244.80.65",
            "dst,dst,src",
            true,
        ),
        (
            "hash:ip,port,net family inet\nadd x 10.98.235.247,tcp:80,10.0.0.0/8",
            "dst,dst,src",
            true,
        ),
        (
            "hash:ip,port,net family inet\nadd x 10.98.235.247,tcp:80,10.0.0.0/16",
            "dst,dst,src",
            false,
        ),
        (
            "hash:net,net family inet\nadd x 10.244.0.0/16,10.96.0.0/12",
            "src,dst",
            true,
        ),
        (
            "hash:net,port family inet\nadd x 10.96.0.0/12,tcp:80",
            "dst,dst",
            true,
        ),
        (
            "hash:net,iface family inet\nadd x 10.244.0.0/16,eth0",
            "src,src",
            true,
        ),
        (
            "hash:ip,mark family inet\nadd x 10.244.80.65,0x00000005",
            "src,src",
            true,
        ),
        ("bitmap:port range 0-65535\nadd x 80", "dst", true),
        ("bitmap:port range 0-65535\nadd x 80", "src", false),
    ] {
        let set = format!("create x {set}\n");
        assert_eq!(is_in(&set, sides, &packet), Ok(expect), "{set} {sides}");
    }
}

#[test]
fn icmp_in_sets() {
    let mut packet = Packet::new("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap(), 1);
    packet.icmp = Some((8, 0));
    let set = "create x hash:ip,port family inet\nadd x 10.0.0.2,icmp:echo-request\n";
    assert_eq!(is_in(set, "dst,dst", &packet), Ok(true));
    packet.icmp = Some((0, 0));
    assert_eq!(is_in(set, "dst,dst", &packet), Ok(false));
    packet.icmp = None;
    assert!(is_in(set, "dst,dst", &packet).is_err());
}

#[test]
fn the_most_specific_element_decides() {
    let set = "create x hash:net family inet\n\
        add x 10.0.0.0/8\nadd x 10.244.0.0/16 nomatch\nadd x 10.244.80.65\n";
    let from = |src: &str| is_in(set, "src", &tcp(src, "10.0.0.1:1"));
    assert_eq!(from("10.1.0.1:1"), Ok(true));
    assert_eq!(from("10.244.0.1:1"), Ok(false));
    assert_eq!(from("10.244.80.65:1"), Ok(true));
}

#[test]
fn a_list_asks_its_members() {
    let set = "create a hash:net family inet\nadd a 10.0.0.0/8\n\
        create b hash:net family inet6\ncreate x list:set size 8\nadd x b\nadd x a\n";
    let from = |src: &str| is_in(set, "src", &tcp(src, "10.0.0.1:1"));
    assert_eq!(from("10.1.0.1:1"), Ok(true));
    assert_eq!(from("192.0.2.1:1"), Ok(false));
}

#[test]
fn what_is_not_understood_cannot_be_asked() {
    for text in [
        "create x hash:mac hashsize 1\nadd x 02:00:00:00:00:01\n",
        "create x hash:net family inet\nadd x nonsense\nadd x 10.0.0.0/8\n",
    ] {
        let mut problems = Vec::new();
        let sets = ipset::parse(text, &mut problems);
        assert_eq!(problems.len(), 1, "{text}");
        let packet = tcp("10.0.0.1:1", "10.0.0.2:1");
        assert!(ipset::contains(&sets, "x", &[Direction::Src], &packet).is_err());
    }
    let mut problems = Vec::new();
    ipset::parse("add gone 10.0.0.1\nflush x\n", &mut problems);
    assert_eq!(problems.len(), 2);
}
