//! A small reader of BTF, the kernel's own type information: where members lie,
//! which parameters functions take, what enumerators are called.
//!
//! vmlinux is searched first, then the modules, each read when first needed. A
//! module's BTF may repeat types of vmlinux, so any complete definition serves.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tracer_common::config::Offsets;

mod image;
#[cfg(test)]
mod tests;

use image::{
    ARRAY, ENUM, ENUM64, FUNC, FUNC_PROTO, Image, PTR, STRUCT, TYPEDEF, Type, UNION, View,
};

/// Where the kernel exports BTF, one file for vmlinux and one per module.
const SYSFS: &str = "/sys/kernel/btf";

/// Modules whose types and functions are asked for; read before the others.
const LIKELY_MODULES: &[&str] = &[
    "nf_conntrack",
    "nf_nat",
    "nf_tables",
    "x_tables",
    "ip_tables",
    "ip6_tables",
    "nf_reject_ipv4",
    "nf_reject_ipv6",
    "vxlan",
    "ipip",
];

/// Members that bear another name in some kernels: (asked for, also known as).
const ALIASES: &[(&str, &str)] = &[
    // Its name before 5.2.
    ("rtable.rt_gw4", "rtable.rt_gateway"),
    // A union of both since 6.18; either alone will do.
    ("dst_entry.dev", "dst_entry.dev_rcu"),
    // `nf_nat_range2` was called so until 4.18, min_addr onwards alike.
    ("nf_nat_range2.flags", "nf_nat_range.flags"),
    ("nf_nat_range2.min_addr", "nf_nat_range.min_addr"),
    ("nf_nat_range2.min_proto.all", "nf_nat_range.min_proto.all"),
];

/// Members looked at for one path before the BTF counts as malformed.
const MAX_STEPS: u32 = 1 << 16;

/// Why BTF could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The file is missing or unreadable.
    #[error("no BTF at {}: {source}; the kernel needs CONFIG_DEBUG_INFO_BTF, or give a file with --btf", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The contents do not hold together.
    #[error("cannot use the BTF of {name}: {what}; give another file with --btf")]
    Malformed {
        /// vmlinux, a module's name, or a path.
        name: String,
        /// What is wrong.
        what: &'static str,
    },
}

/// A parameter of a kernel function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// Name, empty where BTF has none.
    pub name: String,
    /// Type as C writes it without qualifiers, such as `struct sk_buff *`.
    pub type_name: String,
}

/// Where a member lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Bytes from the start of the outermost struct; of a bit-field, the byte
    /// that holds its first bit.
    pub offset: u32,
    /// Bytes, absent for bit-fields and types without a size.
    pub size: Option<u32>,
}

#[derive(Debug)]
struct Module {
    name: String,
    path: PathBuf,
    image: OnceLock<Option<Image>>,
}

/// BTF of a kernel and its modules.
#[derive(Debug)]
pub struct Btf {
    base: Image,
    modules: Vec<Module>,
}

fn read(path: &Path) -> Result<Vec<u8>, BtfError> {
    std::fs::read(path).map_err(|source| BtfError::Read {
        path: path.to_owned(),
        source,
    })
}

impl Btf {
    /// BTF of the running kernel; modules are read when they are needed.
    pub fn load_system() -> Result<Self, BtfError> {
        let mut btf = Self::load(&Path::new(SYSFS).join("vmlinux"))?;
        let names = std::fs::read_dir(SYSFS).into_iter().flatten().flatten();
        for entry in names {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "vmlinux" {
                btf.modules.push(Module {
                    name,
                    path: entry.path(),
                    image: OnceLock::new(),
                });
            }
        }
        btf.modules.sort_by_key(|m| {
            let rank = LIKELY_MODULES.iter().position(|n| *n == m.name);
            (rank.unwrap_or(usize::MAX), m.name.clone())
        });
        Ok(btf)
    }

    /// BTF of one file, without modules.
    pub fn load(path: &Path) -> Result<Self, BtfError> {
        Self::from_bytes(&path.display().to_string(), read(path)?)
    }

    /// BTF of vmlinux from memory; `name` is for messages.
    pub fn from_bytes(name: &str, data: Vec<u8>) -> Result<Self, BtfError> {
        Ok(Self {
            base: Image::parse(name, data, None)?,
            modules: Vec::new(),
        })
    }

    /// Adds the split BTF of a module.
    pub fn add_module(&mut self, name: &str, data: Vec<u8>) -> Result<(), BtfError> {
        let image = Image::parse(name, data, Some(&self.base))?;
        self.modules.push(Module {
            name: name.to_owned(),
            path: PathBuf::new(),
            image: OnceLock::from(Some(image)),
        });
        Ok(())
    }

    /// vmlinux, then each module that can be read.
    fn views(&self) -> impl Iterator<Item = View<'_>> {
        let base = View {
            base: &self.base,
            split: None,
        };
        let split = self.modules.iter().filter_map(|m| {
            let load = || Image::parse(&m.name, read(&m.path).ok()?, Some(&self.base)).ok();
            Some(View {
                base: &self.base,
                split: Some(m.image.get_or_init(load).as_ref()?),
            })
        });
        std::iter::once(base).chain(split)
    }

    /// Byte offset of `struct.member[.member]`, through nested and anonymous
    /// structs and unions. `None` where BTF lacks it, or where the path would
    /// follow a pointer.
    pub fn member_offset(&self, path: &str) -> Option<u32> {
        self.member(path).map(|m| m.offset)
    }

    /// Size in bytes of the member at that path.
    pub fn member_size(&self, path: &str) -> Option<u32> {
        self.member(path)?.size
    }

    /// Offset and size of the member at that path.
    pub fn member(&self, path: &str) -> Option<Member> {
        let (root, rest) = path.split_once('.')?;
        for view in self.views() {
            let mut complete = false;
            for ty in view.named(root, &[STRUCT, UNION, TYPEDEF]) {
                let ty = match ty.kind {
                    TYPEDEF => match view.resolve(ty.value) {
                        Some(t) if matches!(t.kind, STRUCT | UNION) => t,
                        _ => continue,
                    },
                    _ => ty,
                };
                complete = true;
                let mut steps = MAX_STEPS;
                if let Some(found) = descend(view, ty, rest, &mut steps) {
                    return Some(found);
                }
            }
            if complete {
                // Defined here, without the member: the kernel does not have it.
                return None;
            }
        }
        None
    }

    /// Every offset the kernel programs read, `NONE` where BTF lacks one.
    pub fn offsets(&self) -> Offsets {
        let mut offsets = Offsets::UNKNOWN;
        for (path, slot) in offsets.entries() {
            let alias = || {
                let (_, other) = ALIASES.iter().find(|(asked, _)| *asked == path)?;
                self.member_offset(other)
            };
            if let Some(offset) = self.member_offset(path).or_else(alias) {
                *slot = offset;
            }
        }
        offsets
    }

    /// Enumerators of the enum of that name. Of 64-bit ones the low half.
    pub fn enum_values(&self, name: &str) -> Option<Vec<(String, u32)>> {
        for view in self.views() {
            let Some(ty) = view.named(name, &[ENUM, ENUM64]).next() else {
                continue;
            };
            let values = if ty.kind == ENUM {
                ty.rows::<2>().map(|[n, v]| (view.text(n), v)).collect()
            } else {
                ty.rows::<3>().map(|[n, v, _]| (view.text(n), v)).collect()
            };
            return Some(values);
        }
        None
    }

    /// Drop reasons by number, without their prefix. Empty on kernels without.
    pub fn drop_reasons(&self) -> HashMap<u32, Arc<str>> {
        let values = self.enum_values("skb_drop_reason").unwrap_or_default();
        let named = values.into_iter().filter_map(|(name, value)| {
            let short = name.strip_prefix("SKB_DROP_REASON_")?;
            (short != "MAX" && short != "SUBSYS_MASK").then(|| (value, Arc::from(short)))
        });
        named.collect()
    }

    /// Parameters of a kernel function.
    pub fn func_params(&self, name: &str) -> Option<Vec<ParamInfo>> {
        for view in self.views() {
            let func = view.named(name, &[FUNC]).next();
            let Some(proto) = func.and_then(|f| view.ty(f.value)) else {
                continue;
            };
            if proto.kind != FUNC_PROTO {
                continue;
            }
            let params = proto.rows::<2>().map(|[name, ty]| ParamInfo {
                name: view.text(name),
                type_name: view.type_name(ty),
            });
            return Some(params.collect());
        }
        None
    }

    /// Number of parameters of a tracepoint, from its `btf_trace_NAME` typedef
    /// (the leading `void *` of the probe's own data does not count).
    pub fn typedef_proto_params(&self, name: &str) -> Option<usize> {
        for view in self.views() {
            for ty in view.named(name, &[TYPEDEF]) {
                let Some(ptr) = view.resolve(ty.value).filter(|t| t.kind == PTR) else {
                    continue;
                };
                if let Some(proto) = view.resolve(ptr.value).filter(|t| t.kind == FUNC_PROTO) {
                    return proto.rows::<2>().count().checked_sub(1);
                }
            }
        }
        None
    }
}

/// Finds `path` in the struct or union `ty`, in anonymous members as well.
fn descend<'a>(view: View<'a>, ty: Type<'a>, path: &str, steps: &mut u32) -> Option<Member> {
    let (name, rest) = match path.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (path, None),
    };
    // (struct, byte offset) still to be searched; anonymous members join it.
    let mut todo = vec![(ty, 0u32)];
    while let Some((ty, start)) = todo.pop() {
        for [name_off, type_id, raw] in ty.rows::<3>() {
            *steps = steps.checked_sub(1)?;
            let (bits, bit_size) = if ty.kflag {
                (raw & 0x00ff_ffff, raw >> 24)
            } else {
                (raw, 0)
            };
            let offset = start.checked_add(bits / 8)?;
            let member = view.string(name_off)?;
            if member.is_empty() {
                if let Some(inner) = view.resolve(type_id)
                    && matches!(inner.kind, STRUCT | UNION)
                {
                    todo.push((inner, offset));
                }
                continue;
            }
            if member != name.as_bytes() {
                continue;
            }
            let Some(rest) = rest else {
                let whole = bit_size == 0 && bits % 8 == 0;
                return Some(Member {
                    offset,
                    size: whole.then(|| view.size(type_id)).flatten(),
                });
            };
            let mut inner = view.resolve(type_id)?;
            if inner.kind == ARRAY {
                inner = view.resolve(inner.array()?.0)?;
            }
            if !matches!(inner.kind, STRUCT | UNION) {
                return None;
            }
            let found = descend(view, inner, rest, steps)?;
            return Some(Member {
                offset: offset.checked_add(found.offset)?,
                ..found
            });
        }
    }
    None
}
