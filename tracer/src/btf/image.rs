//! One BTF blob as the kernel exports it: header, types, strings.
//!
//! Layout: `include/uapi/linux/btf.h` and `Documentation/bpf/btf.rst`. One pass
//! checks every length and notes where each type starts; nothing else is
//! allocated per type. All accessors return `None` for what does not fit.

use std::ops::Range;

use super::BtfError;

pub(super) const INT: u8 = 1;
pub(super) const PTR: u8 = 2;
pub(super) const ARRAY: u8 = 3;
pub(super) const STRUCT: u8 = 4;
pub(super) const UNION: u8 = 5;
pub(super) const ENUM: u8 = 6;
pub(super) const FWD: u8 = 7;
pub(super) const TYPEDEF: u8 = 8;
pub(super) const VOLATILE: u8 = 9;
pub(super) const CONST: u8 = 10;
pub(super) const RESTRICT: u8 = 11;
pub(super) const FUNC: u8 = 12;
pub(super) const FUNC_PROTO: u8 = 13;
pub(super) const VAR: u8 = 14;
pub(super) const DATASEC: u8 = 15;
pub(super) const FLOAT: u8 = 16;
pub(super) const DECL_TAG: u8 = 17;
pub(super) const TYPE_TAG: u8 = 18;
pub(super) const ENUM64: u8 = 19;

const MAGIC: u16 = 0xeb9f;
const HEADER_LEN: usize = 24;
const TYPE_LEN: usize = 12;

pub(super) fn read_u32(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// FNV-1a up to the first zero byte. Collisions cost a comparison, no more.
fn hash(name: &[u8]) -> u32 {
    let mut h = 0x811c_9dc5u32;
    for b in name {
        if *b == 0 {
            break;
        }
        h = (h ^ u32::from(*b)).wrapping_mul(0x0100_0193);
    }
    h
}

/// Bytes behind the common part of a type, by kind.
fn extra_len(kind: u8, vlen: usize) -> Option<usize> {
    Some(match kind {
        INT | VAR | DECL_TAG => 4,
        ARRAY => 12,
        STRUCT | UNION | DATASEC | ENUM64 => vlen * 12,
        ENUM | FUNC_PROTO => vlen * 8,
        PTR | FWD | TYPEDEF | VOLATILE | CONST | RESTRICT | FUNC | FLOAT | TYPE_TAG => 0,
        _ => return None,
    })
}

/// One type: the common part decoded, the rest as bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type<'a> {
    pub(super) name_off: u32,
    pub(super) kind: u8,
    /// Members carry a bit-field size in the top byte of their offset.
    pub(super) kflag: bool,
    /// `size` or `type`, by kind.
    pub(super) value: u32,
    extra: &'a [u8],
    vlen: usize,
}

impl<'a> Type<'a> {
    fn parse(data: &'a [u8], at: usize) -> Option<(Self, usize)> {
        let info = read_u32(data, at.checked_add(4)?)?;
        let kind = ((info >> 24) & 0x1f) as u8;
        let vlen = (info & 0xffff) as usize;
        let start = at.checked_add(TYPE_LEN)?;
        let end = start.checked_add(extra_len(kind, vlen)?)?;
        let this = Self {
            name_off: read_u32(data, at)?,
            kind,
            kflag: info >> 31 == 1,
            value: read_u32(data, at + 8)?,
            extra: data.get(start..end)?,
            vlen,
        };
        Some((this, end))
    }

    /// The variable part in rows of `N` words.
    pub(super) fn rows<const N: usize>(&self) -> impl Iterator<Item = [u32; N]> + 'a {
        self.extra.chunks_exact(4 * N).take(self.vlen).map(|row| {
            std::array::from_fn(|i| {
                u32::from_ne_bytes([row[4 * i], row[4 * i + 1], row[4 * i + 2], row[4 * i + 3]])
            })
        })
    }

    /// (element type, number of elements) of an ARRAY.
    pub(super) fn array(&self) -> Option<(u32, u32)> {
        Some((read_u32(self.extra, 0)?, read_u32(self.extra, 8)?))
    }
}

/// A parsed blob.
#[derive(Debug)]
pub(super) struct Image {
    data: Vec<u8>,
    /// Where each of this blob's own types starts.
    starts: Vec<u32>,
    strings: Range<usize>,
    /// Id of the first type here: 1, or behind the base's last.
    first_id: u32,
    /// Offset of the first string here: 0, or the base's length.
    str_base: u32,
    /// (hash of name, id) of what is looked up by name, sorted.
    index: Vec<(u32, u32)>,
}

impl Image {
    /// Checks and indexes `data`; `base` is vmlinux for the BTF of a module.
    pub(super) fn parse(name: &str, data: Vec<u8>, base: Option<&Image>) -> Result<Self, BtfError> {
        let bad = |what: &'static str| BtfError::Malformed {
            name: name.to_owned(),
            what,
        };
        if data.len() < HEADER_LEN {
            return Err(bad("it is shorter than its header"));
        }
        match u16::from_ne_bytes([data[0], data[1]]) {
            MAGIC => {}
            m if m.swap_bytes() == MAGIC => {
                return Err(bad("it was made for a machine of the other byte order"));
            }
            _ => return Err(bad("it does not begin with BTF's magic number")),
        }
        let field = |at| read_u32(&data, at).map_or(usize::MAX, |v| v as usize);
        let section = |off: usize, len: usize| {
            let start = field(4).checked_add(off)?;
            let end = start.checked_add(len)?;
            (end <= data.len()).then_some(start..end)
        };
        let types = section(field(8), field(12)).ok_or_else(|| bad("its types are cut off"))?;
        let strings =
            section(field(16), field(20)).ok_or_else(|| bad("its strings are cut off"))?;
        let mut image = Self {
            data,
            starts: Vec::with_capacity(types.len() / 18),
            strings,
            first_id: base.map_or(1, |b| b.first_id + b.starts.len() as u32),
            str_base: base.map_or(0, |b| b.strings.len() as u32),
            index: Vec::new(),
        };
        image.walk(types, base).ok_or_else(|| {
            bad("one of its types is cut off or of a kind this version does not know")
        })?;
        Ok(image)
    }

    fn walk(&mut self, types: Range<usize>, base: Option<&Image>) -> Option<()> {
        let mut at = types.start;
        let body = self.data.get(..types.end)?;
        let mut index = Vec::with_capacity(self.starts.capacity());
        while at < types.end {
            let (ty, next) = Type::parse(body, at)?;
            let id = self.first_id.checked_add(self.starts.len() as u32)?;
            let by_name = matches!(ty.kind, STRUCT | UNION | ENUM | ENUM64 | TYPEDEF | FUNC);
            if by_name && ty.name_off != 0 {
                let name = match base {
                    Some(b) if ty.name_off < self.str_base => b.tail(ty.name_off),
                    _ => self.tail(ty.name_off),
                };
                index.push((hash(name.unwrap_or_default()), id));
            }
            self.starts.push(u32::try_from(at).ok()?);
            at = next;
        }
        index.sort_unstable();
        self.index = index;
        Some(())
    }

    /// This blob's strings from an offset on.
    fn tail(&self, off: u32) -> Option<&[u8]> {
        let at = off.checked_sub(self.str_base)? as usize;
        self.data.get(self.strings.clone())?.get(at..)
    }

    fn own_string(&self, off: u32) -> Option<&[u8]> {
        let rest = self.tail(off)?;
        let end = rest.iter().position(|b| *b == 0)?;
        rest.get(..end)
    }

    fn own_type(&self, id: u32) -> Option<Type<'_>> {
        let at = *self.starts.get(id.checked_sub(self.first_id)? as usize)?;
        Type::parse(&self.data, at as usize).map(|(ty, _)| ty)
    }
}

/// vmlinux alone, or a module on top of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) base: &'a Image,
    pub(super) split: Option<&'a Image>,
}

/// Modifiers and typedefs in a row before a chain counts as a loop.
const MAX_CHAIN: usize = 64;

impl<'a> View<'a> {
    pub(super) fn ty(&self, id: u32) -> Option<Type<'a>> {
        match self.split {
            Some(s) if id >= s.first_id => s.own_type(id),
            _ => self.base.own_type(id),
        }
    }

    pub(super) fn string(&self, off: u32) -> Option<&'a [u8]> {
        match self.split {
            Some(s) if off >= s.str_base => s.own_string(off),
            _ => self.base.own_string(off),
        }
    }

    pub(super) fn text(&self, off: u32) -> String {
        String::from_utf8_lossy(self.string(off).unwrap_or_default()).into_owned()
    }

    /// Types of this name and one of these kinds in the topmost blob (the
    /// module's own where there is one).
    pub(super) fn named(self, name: &'a str, kinds: &'a [u8]) -> impl Iterator<Item = Type<'a>> {
        let top = self.split.unwrap_or(self.base);
        let wanted = hash(name.as_bytes());
        let from = top.index.partition_point(|(h, _)| *h < wanted);
        top.index[from..]
            .iter()
            .take_while(move |(h, _)| *h == wanted)
            .filter_map(move |(_, id)| self.ty(*id))
            .filter(move |t| {
                kinds.contains(&t.kind) && self.string(t.name_off) == Some(name.as_bytes())
            })
    }

    /// The type behind typedefs and modifiers.
    pub(super) fn resolve(&self, mut id: u32) -> Option<Type<'a>> {
        for _ in 0..MAX_CHAIN {
            let ty = self.ty(id)?;
            match ty.kind {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => id = ty.value,
                _ => return Some(ty),
            }
        }
        None
    }

    /// Size in bytes of a type.
    pub(super) fn size(&self, id: u32) -> Option<u32> {
        let mut count = 1u32;
        let mut ty = self.resolve(id)?;
        for _ in 0..MAX_CHAIN {
            match ty.kind {
                ARRAY => {
                    let (elem, n) = ty.array()?;
                    count = count.checked_mul(n)?;
                    ty = self.resolve(elem)?;
                }
                PTR => return count.checked_mul(size_of::<usize>() as u32),
                INT | STRUCT | UNION | ENUM | ENUM64 | FLOAT => return count.checked_mul(ty.value),
                _ => return None,
            }
        }
        None
    }

    /// A type as C would write it, near enough to be compared.
    pub(super) fn type_name(&self, mut id: u32) -> String {
        let mut stars = String::new();
        for _ in 0..MAX_CHAIN {
            if id == 0 {
                return format!("void{stars}");
            }
            let Some(ty) = self.ty(id) else { break };
            let prefix = match ty.kind {
                PTR => {
                    stars.insert(0, if stars.is_empty() { ' ' } else { '*' });
                    if stars.len() == 1 {
                        stars.push('*');
                    }
                    id = ty.value;
                    continue;
                }
                CONST | VOLATILE | RESTRICT | TYPE_TAG => {
                    id = ty.value;
                    continue;
                }
                UNION => "union ",
                ENUM | ENUM64 => "enum ",
                FWD if ty.kflag => "union ",
                STRUCT | FWD => "struct ",
                FUNC_PROTO => return format!("function{stars}"),
                ARRAY => return format!("array{stars}"),
                _ => "",
            };
            return format!("{prefix}{}{stars}", self.text(ty.name_off));
        }
        "?".to_owned()
    }
}
