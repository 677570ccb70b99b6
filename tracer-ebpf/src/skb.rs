//! The only reader of kernel structures. Offsets come from the running kernel's
//! BTF through [`CONFIG`]; a missing one reads as `None`.

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use tracer_common::{
    config::{NONE, flag},
    tuple::{Tuple, mapped, proto},
};

use crate::CONFIG;

/// Reads one offset. Volatile, because user space replaces the value.
macro_rules! off {
    ($field:ident) => {{
        // SAFETY: CONFIG is a static; a volatile read keeps the compiler from
        // assuming its initial value.
        let off = unsafe { core::ptr::read_volatile(&raw const crate::CONFIG.off.$field) };
        if off == tracer_common::config::NONE {
            None
        } else {
            Some(u64::from(off))
        }
    }};
}
pub(crate) use off;

/// Whether user space set a switch of [`flag`].
#[inline(always)]
pub(crate) fn has_flag(bit: u32) -> bool {
    // SAFETY: as in `off!`.
    unsafe { core::ptr::read_volatile(&raw const CONFIG.flags) & bit != 0 }
}

/// Reads a plain value from kernel memory.
#[inline(always)]
pub(crate) fn read<T: Copy>(addr: u64) -> Option<T> {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    // SAFETY: the helper checks the source address, the destination is ours
    // and has the size given.
    unsafe {
        if bpf_probe_read_kernel(
            value.as_mut_ptr().cast(),
            size_of::<T>() as u32,
            addr as *const core::ffi::c_void,
        ) == 0
        {
            Some(value.assume_init())
        } else {
            None
        }
    }
}

/// Reads kernel memory into place.
#[inline(always)]
pub(crate) fn read_into<T: Copy>(addr: u64, into: &mut T) -> Option<()> {
    // SAFETY: the helper checks the source address; the destination is a valid
    // T, and T is plain bytes.
    let failed = unsafe {
        bpf_probe_read_kernel(
            core::ptr::from_mut(into).cast(),
            size_of::<T>() as u32,
            addr as *const core::ffi::c_void,
        )
    };
    (failed == 0).then_some(())
}

/// Reads the field at `base + offset`.
#[inline(always)]
pub(crate) fn field<T: Copy>(base: u64, offset: Option<u64>) -> Option<T> {
    read(base.wrapping_add(offset?))
}

/// Where a packet is: namespace inode and interface index, 0 where unknown.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) netns: u32,
    pub(crate) ifindex: u32,
}

/// Inode of a `struct net`.
#[inline(always)]
pub(crate) fn net_inum(net: u64) -> u32 {
    if net == 0 {
        return 0;
    }
    field(net, off!(net_inum)).unwrap_or(0)
}

/// Namespace and index of a `struct net_device`.
#[inline(never)]
pub(crate) fn dev_place(dev: u64) -> Place {
    if dev == 0 {
        return Place {
            netns: 0,
            ifindex: 0,
        };
    }
    Place {
        netns: net_inum(field(dev, off!(dev_net)).unwrap_or(0)),
        ifindex: field(dev, off!(dev_ifindex)).unwrap_or(0),
    }
}

/// Where an skb is: its device, else its socket's namespace (before output has
/// given it a device).
#[inline(never)]
pub(crate) fn place(skb: u64) -> Place {
    let dev: u64 = field(skb, off!(skb_dev)).unwrap_or(0);
    if dev != 0 {
        return dev_place(dev);
    }
    let sk: u64 = field(skb, off!(skb_sk)).unwrap_or(0);
    let net = if sk == 0 {
        0
    } else {
        field(sk, off!(sk_net)).unwrap_or(0)
    };
    Place {
        netns: net_inum(net),
        ifindex: 0,
    }
}

/// `skb->len` and `skb->mark`.
#[inline(always)]
pub(crate) fn len_mark(skb: u64) -> (u32, u32) {
    (
        field(skb, off!(skb_len)).unwrap_or(0),
        field(skb, off!(skb_mark)).unwrap_or(0),
    )
}

/// The conntrack entry that an skb carries and its `enum ip_conntrack_info`.
/// The low three bits of `_nfct` are the latter (`NFCT_INFOMASK`,
/// `include/linux/skbuff.h`).
#[inline(always)]
pub(crate) fn conntrack(skb: u64) -> Option<(u64, u8)> {
    let nfct: u64 = field(skb, off!(skb_nfct))?;
    let ct = nfct & !7;
    if ct == 0 {
        None
    } else {
        Some((ct, (nfct & 7) as u8))
    }
}

/// One direction of a conntrack entry, 0 original, 1 reply, into `tuple`.
///
/// Into memory of the caller's choice, because a handful of tuples would fill
/// the 512 bytes of a program's stack.
#[inline(never)]
pub(crate) fn ct_tuple(ct: u64, dir: u64, tuple: &mut Tuple) -> Option<()> {
    // struct nf_conntrack_tuple_hash is an hlist_nulls_node and the tuple;
    // the array's stride follows from the tuple's own layout: 16 + 40.
    let hash = ct + off!(ct_tuplehash)? + dir * tuple_hash_size();
    let base = hash + off!(th_tuple)?;
    let l3num: u16 = field(base, off!(tuple_l3num))?;
    // AF_INET
    if l3num == 2 {
        tuple.src = mapped(field(base, off!(tuple_src))?);
        tuple.dst = mapped(field(base, off!(tuple_dst))?);
    } else {
        read_into(base + off!(tuple_src)?, &mut tuple.src)?;
        read_into(base + off!(tuple_dst)?, &mut tuple.dst)?;
    }
    tuple.sport = u16::from_be(field(base, off!(tuple_sport))?);
    tuple.dport = u16::from_be(field(base, off!(tuple_dport))?);
    let proto_: u8 = field(base, off!(tuple_proto))?;
    tuple.proto = u32::from(proto_);
    if proto_ == proto::ICMP || proto_ == proto::ICMPV6 {
        // The destination half holds type and code; the id is in the source.
        tuple.dport = tuple.sport;
    }
    Some(())
}

/// Bytes from one `nf_conntrack_tuple_hash` to the next: the list node (16)
/// and the tuple, whose last member is the direction behind the protocol.
#[inline(always)]
fn tuple_hash_size() -> u64 {
    let (Some(th), Some(proto)) = (off!(th_tuple), off!(tuple_proto)) else {
        return 0;
    };
    (th + proto + 2 + 7) & !7
}

/// Byte or word, by kernel: `nf_hook_state.hook` and `.pf`.
#[inline(always)]
pub(crate) fn hook_state_small(state: u64, offset: Option<u64>) -> u8 {
    if has_flag(flag::HOOK_STATE_U8) {
        field::<u8>(state, offset).unwrap_or(0)
    } else {
        field::<u32>(state, offset).unwrap_or(0) as u8
    }
}

/// Start of the network header in kernel memory and the bytes that may be read
/// from there, or `None` where the skb has none.
#[inline(always)]
pub(crate) fn network_header(skb: u64) -> Option<(u64, u32)> {
    let head: u64 = field(skb, off!(skb_head))?;
    let nh: u16 = field(skb, off!(skb_network_header))?;
    let end: u32 = field(skb, off!(skb_end))?;
    if head == 0 || nh == u16::MAX || u32::from(nh) >= end {
        return None;
    }
    Some((head + u64::from(nh), end - u32::from(nh)))
}

/// `skb->protocol` as a host-order ethertype.
#[inline(always)]
pub(crate) fn protocol(skb: u64) -> u16 {
    u16::from_be(field(skb, off!(skb_protocol)).unwrap_or(0))
}

const _: () = assert!(NONE == u32::MAX);
