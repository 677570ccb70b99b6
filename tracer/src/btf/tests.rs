use super::*;
use tracer_common::config::NONE;

/// Makes BTF by hand: types are pushed in order, ids count from `first_id`.
struct Blob {
    types: Vec<u8>,
    strings: Vec<u8>,
    str_base: u32,
    next: u32,
}

impl Blob {
    fn new() -> Self {
        Self {
            types: Vec::new(),
            strings: vec![0],
            str_base: 0,
            next: 1,
        }
    }

    fn split(base: &Blob) -> Self {
        Self {
            types: Vec::new(),
            strings: Vec::new(),
            str_base: base.strings.len() as u32,
            next: base.next,
        }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.str_base + self.strings.len() as u32;
        self.strings.extend_from_slice(name.as_bytes());
        self.strings.push(0);
        at
    }

    fn ty(&mut self, name: &str, kind: u8, kflag: bool, vlen: u32, value: u32, ex: &[u32]) -> u32 {
        let name = self.name(name);
        let info = (u32::from(kflag) << 31) | (u32::from(kind) << 24) | vlen;
        for word in [name, info, value].iter().chain(ex) {
            self.types.extend_from_slice(&word.to_ne_bytes());
        }
        self.next += 1;
        self.next - 1
    }

    fn int(&mut self, name: &str, size: u32) -> u32 {
        self.ty(name, image::INT, false, 0, size, &[size * 8])
    }

    /// Members are (name, type, bit offset).
    fn composite(&mut self, name: &str, kind: u8, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        let mut ex = Vec::new();
        for (member, ty, bits) in members {
            ex.extend([self.name(member), *ty, *bits]);
        }
        self.ty(name, kind, false, members.len() as u32, size, &ex)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&0xeb9fu16.to_ne_bytes());
        out.extend_from_slice(&[1, 0]);
        let (t, s) = (self.types.len() as u32, self.strings.len() as u32);
        for word in [24u32, 0, t, t, s] {
            out.extend_from_slice(&word.to_ne_bytes());
        }
        out.extend_from_slice(&self.types);
        out.extend_from_slice(&self.strings);
        out
    }
}

/// `struct outer { u32 a; union { struct inner *p; struct { u8 x; inner_t i; }; }; }`
fn sample() -> Blob {
    let mut b = Blob::new();
    let int = b.int("unsigned int", 4);
    let byte = b.int("unsigned char", 1);
    let inner = b.composite("inner", STRUCT, 8, &[("id", int, 0), ("n", byte, 32)]);
    let alias = b.ty("inner_t", TYPEDEF, false, 0, inner, &[]);
    let constant = b.ty("", image::CONST, false, 0, alias, &[]);
    let ptr = b.ty("", PTR, false, 0, inner, &[]);
    let anon = b.composite("", STRUCT, 12, &[("x", byte, 0), ("i", constant, 32)]);
    let either = b.composite("", UNION, 12, &[("p", ptr, 0), ("", anon, 0)]);
    b.composite("outer", STRUCT, 24, &[("a", int, 0), ("", either, 64)]);
    let bits = b.name("flag");
    b.ty("packed", STRUCT, true, 1, 4, &[bits, int, (1 << 24) | 9]);
    let values = [b.name("SKB_DROP_REASON_NO_SOCKET"), 3, b.name("X"), 9];
    b.ty("skb_drop_reason", ENUM, false, 2, 4, &values);
    let big = [b.name("BIG"), 7, 1];
    b.ty("wide", ENUM64, false, 1, 8, &big);
    let params = [b.name("skb"), ptr, b.name("n"), int, b.name("any"), 0];
    let proto = b.ty("", FUNC_PROTO, false, 3, 0, &params);
    b.ty("do_it", FUNC, false, 0, proto, &[]);
    let proto_ptr = b.ty("", PTR, false, 0, proto, &[]);
    b.ty("btf_trace_it", TYPEDEF, false, 0, proto_ptr, &[]);
    b
}

fn check(path: &str, expect: Option<(u32, Option<u32>)>) {
    let btf = Btf::from_bytes("test", sample().bytes()).unwrap();
    let found = btf.member(path).map(|m| (m.offset, m.size));
    assert_eq!(found, expect, "{path}");
}

#[test]
fn members_are_found_through_anonymous_parts_and_typedefs() {
    check("outer.a", Some((0, Some(4))));
    check("outer.x", Some((8, Some(1))));
    check("outer.i", Some((12, Some(8))));
    check("outer.i.id", Some((12, Some(4))));
    check("outer.i.n", Some((16, Some(1))));
    check("outer.p", Some((8, Some(size_of::<usize>() as u32))));
    check("inner_t.n", Some((4, Some(1))));
    check("packed.flag", Some((1, None)));
}

#[test]
fn a_path_ends_at_pointers_and_at_what_is_missing() {
    for path in [
        "outer.p.id",
        "outer.a.b",
        "outer.none",
        "none.a",
        "outer",
        "outer.",
        "",
    ] {
        check(path, None);
    }
}

#[test]
fn enums_functions_and_tracepoints() {
    let btf = Btf::from_bytes("test", sample().bytes()).unwrap();
    assert_eq!(btf.drop_reasons().get(&3).map(|s| &**s), Some("NO_SOCKET"));
    assert_eq!(btf.drop_reasons().len(), 1);
    let wide = btf.enum_values("wide").unwrap();
    assert_eq!(wide, [("BIG".to_owned(), 7)]);
    let params = btf.func_params("do_it").unwrap();
    let params: Vec<_> = params.iter().map(|p| (&*p.name, &*p.type_name)).collect();
    let expect = [
        ("skb", "struct inner *"),
        ("n", "unsigned int"),
        ("any", "void"),
    ];
    assert_eq!(params, expect);
    assert_eq!(btf.typedef_proto_params("btf_trace_it"), Some(2));
    assert_eq!(btf.typedef_proto_params("inner_t"), None);
    assert_eq!(btf.func_params("nothing"), None);
}

#[test]
fn a_module_continues_ids_and_strings_of_vmlinux() {
    let base = sample();
    let mut split = Blob::split(&base);
    let inner = 3;
    split.composite(
        "modstruct",
        STRUCT,
        16,
        &[("lead", 1, 0), ("in", inner, 64)],
    );
    let mut btf = Btf::from_bytes("test", base.bytes()).unwrap();
    btf.add_module("mod", split.bytes()).unwrap();
    assert_eq!(btf.member_offset("modstruct.in.n"), Some(12));
    assert_eq!(btf.member_offset("outer.i.n"), Some(16));
}

#[test]
fn every_truncation_and_many_corruptions_are_survived() {
    let whole = sample().bytes();
    for len in 0..whole.len() {
        if let Ok(btf) = Btf::from_bytes("cut", whole[..len].to_vec()) {
            let _ = btf.offsets();
        }
        assert!(len >= whole.len() || Btf::from_bytes("cut", whole[..len].to_vec()).is_err());
    }
    for at in 0..whole.len() {
        for value in [0, 1, 4, 0x7f, 0xff] {
            let mut bad = whole.clone();
            bad[at] = value;
            if let Ok(btf) = Btf::from_bytes("bad", bad) {
                let _ = (btf.member("outer.i.n"), btf.func_params("do_it"));
                let _ = (btf.drop_reasons(), btf.typedef_proto_params("btf_trace_it"));
            }
        }
    }
}

#[test]
fn a_struct_that_holds_itself_ends() {
    let mut b = Blob::new();
    b.composite("loop", STRUCT, 4, &[("", 1, 0), ("", 1, 0), ("", 1, 0)]);
    b.ty("t", TYPEDEF, false, 0, 2, &[]);
    let btf = Btf::from_bytes("test", b.bytes()).unwrap();
    assert_eq!(btf.member("loop.x"), None);
    assert_eq!(btf.member("t.x"), None);
}

#[test]
fn offsets_without_any_known_struct_are_none() {
    let btf = Btf::from_bytes("test", sample().bytes()).unwrap();
    let mut offsets = btf.offsets();
    assert!(offsets.entries().iter().all(|(_, v)| **v == NONE));
}

/// Facts that hold on every kernel, checked against the running one.
#[test]
fn the_running_kernel_agrees() {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        eprintln!("skipped: this kernel exports no BTF");
        return;
    }
    let btf = Btf::load_system().unwrap();
    let off = btf.offsets();
    assert_ne!(off.skb_len, NONE);
    assert!(off.skb_len < off.skb_head);
    assert_eq!(off.skb_data, off.skb_head + 8);
    assert_eq!(btf.member_size("sk_buff.len"), Some(4));
    assert_eq!(btf.member_size("sk_buff.network_header"), Some(2));
    assert_eq!(btf.member_offset("iphdr.saddr"), Some(12));
    assert_eq!(btf.member_offset("iphdr.daddr"), Some(16));
    assert_eq!(btf.member_offset("list_head.prev"), Some(8));
    assert_eq!(btf.member_offset("sk_buff.sk.sk_mark"), None);
    if off.ct_tuplehash != NONE {
        assert_eq!(off.tuple_sport, 16);
        assert_eq!(off.tuple_l3num, 18);
        assert_eq!(off.tuple_dport, 36);
        assert_eq!(off.tuple_proto, 38);
    }
    let params = btf.func_params("ip_rcv").unwrap();
    assert_eq!(params[0].type_name, "struct sk_buff *");
    assert!(btf.typedef_proto_params("btf_trace_kfree_skb").unwrap() >= 2);
}
