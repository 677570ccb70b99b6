//! Which functions this kernel has, and which function an address lies in, from
//! `/proc/kallsyms` (`Documentation/filesystems/proc.rst`).

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

const PATH: &str = "/proc/kallsyms";

/// A wanted function as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbol {
    /// Copies under the plain name. More than one is ambiguous to a kprobe.
    pub plain: u32,
    /// Module of the first plain copy, absent in vmlinux.
    pub module: Option<Arc<str>>,
    /// Names of compiler-made variants: `NAME.isra.0`, `NAME.constprop.0`, ...
    pub suffixed: Vec<String>,
}

impl Symbol {
    /// Whether a kprobe can be put on the plain name.
    pub fn is_plain(&self) -> bool {
        self.plain > 0
    }
}

/// Symbols of the running kernel.
#[derive(Debug, Default)]
pub struct Kallsyms {
    text: String,
    wanted: HashMap<String, Symbol>,
    restricted: bool,
    sorted: OnceLock<Vec<(u64, u32, u32)>>,
}

/// `ADDRESS KIND NAME`, and `[MODULE]` behind a tab where there is one.
struct Line<'a> {
    addr: &'a str,
    kind: u8,
    name: &'a str,
    module: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (addr, rest) = line.split_once(' ')?;
        let (kind, name) = rest.split_once(' ')?;
        let (name, module) = match name.split_once('\t') {
            Some((name, module)) => (name, module.trim().strip_prefix('[')?.strip_suffix(']')),
            None => (name, None),
        };
        Some(Self {
            addr,
            kind: *kind.as_bytes().first()?,
            name,
            module,
        })
    }

    fn is_zero(&self) -> bool {
        self.addr.bytes().all(|b| b == b'0')
    }
}

impl Kallsyms {
    /// Reads the running kernel's symbols and notes the wanted ones.
    pub fn load(wanted: &[&str]) -> std::io::Result<Self> {
        Ok(Self::from_text(std::fs::read_to_string(PATH)?, wanted))
    }

    /// The same from text in the form of `/proc/kallsyms`.
    pub fn from_text(text: String, wanted: &[&str]) -> Self {
        let mut found: HashMap<String, Symbol> = wanted
            .iter()
            .map(|name| ((*name).to_owned(), Symbol::default()))
            .collect();
        let mut restricted = true;
        // Four bytes rule out nearly every symbol before any hashing.
        let firsts = wanted.iter().map(|name| name.as_bytes().get(..4));
        let firsts: Vec<&[u8]> = firsts.map(Option::unwrap_or_default).collect();
        for line in text.lines().filter_map(Line::parse) {
            restricted = restricted && line.is_zero();
            if !matches!(line.kind, b't' | b'T') {
                continue;
            }
            if !firsts.contains(&line.name.as_bytes().get(..4).unwrap_or_default()) {
                continue;
            }
            let base = line.name.split('.').next().unwrap_or(line.name);
            let Some(symbol) = found.get_mut(base) else {
                continue;
            };
            if base.len() < line.name.len() {
                symbol.suffixed.push(line.name.to_owned());
                continue;
            }
            if symbol.plain == 0 {
                symbol.module = line.module.map(Arc::from);
            }
            symbol.plain += 1;
        }
        Self {
            text,
            wanted: found,
            restricted,
            sorted: OnceLock::new(),
        }
    }

    /// A wanted function, where the kernel has it in any form.
    pub fn get(&self, name: &str) -> Option<&Symbol> {
        let symbol = self.wanted.get(name)?;
        (symbol.plain > 0 || !symbol.suffixed.is_empty()).then_some(symbol)
    }

    /// Whether the wanted function exists under its plain name.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some_and(Symbol::is_plain)
    }

    /// Every address reads as zero (`kernel.kptr_restrict`, or no
    /// `CAP_SYSLOG`): names can be checked, addresses cannot be resolved.
    pub fn is_restricted(&self) -> bool {
        self.restricted
    }

    fn sorted(&self) -> &[(u64, u32, u32)] {
        self.sorted.get_or_init(|| {
            if self.restricted {
                return Vec::new();
            }
            let start = self.text.as_ptr() as usize;
            let mut all: Vec<_> = self
                .text
                .lines()
                .filter_map(Line::parse)
                .filter(|l| matches!(l.kind, b't' | b'T' | b'w' | b'W'))
                .filter_map(|l| {
                    let addr = u64::from_str_radix(l.addr, 16).ok()?;
                    let at = l.name.as_ptr() as usize - start;
                    Some((addr, at as u32, l.name.len() as u32))
                })
                .collect();
            // Stable: of aliases at one address the first listed comes first.
            all.sort_by_key(|(addr, ..)| *addr);
            all
        })
    }

    /// Name of the function that `addr` lies in, without the offset and without
    /// the suffix of a compiler-made variant.
    pub fn resolve(&self, addr: u64) -> Option<Arc<str>> {
        let all = self.sorted();
        let behind = all.partition_point(|(a, ..)| *a <= addr);
        let (found, ..) = *all.get(behind.checked_sub(1)?)?;
        let first = all.partition_point(|(a, ..)| *a < found);
        let (_, at, len) = *all.get(first)?;
        let name = self.text.get(at as usize..(at + len) as usize)?;
        Some(Arc::from(name.split('.').next().unwrap_or(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
ffffffff81000000 T _stext
ffffffff81000010 t ip_error.isra.0
ffffffff81000020 T ip_rcv
ffffffff81000020 T __pfx_alias
ffffffff81000040 D some_data
ffffffffa0000000 t ipt_do_table\t[ip_tables]
ffffffffa0000100 t dup\t[a]
ffffffffa0000200 t dup\t[b]
bad line
";

    #[test]
    fn wanted_functions_are_told_from_variants_and_data() {
        let k = Kallsyms::from_text(
            TEXT.to_owned(),
            &[
                "ip_rcv",
                "ip_error",
                "ipt_do_table",
                "dup",
                "some_data",
                "no",
            ],
        );
        assert!(k.has("ip_rcv") && k.has("ipt_do_table"));
        assert!(!k.has("ip_error") && !k.has("some_data") && !k.has("no"));
        assert_eq!(k.get("ip_error").unwrap().suffixed, ["ip_error.isra.0"]);
        let module = k.get("ipt_do_table").unwrap().module.as_deref();
        assert_eq!(module, Some("ip_tables"));
        assert_eq!(k.get("dup").unwrap().plain, 2);
        assert!(!k.is_restricted());
    }

    #[test]
    fn addresses_resolve_to_the_function_around_them() {
        let k = Kallsyms::from_text(TEXT.to_owned(), &[]);
        let name = |addr| k.resolve(addr).map(|n| n.to_string());
        assert_eq!(name(0xffff_ffff_8100_0025).as_deref(), Some("ip_rcv"));
        assert_eq!(name(0xffff_ffff_8100_0011).as_deref(), Some("ip_error"));
        assert_eq!(name(0xffff_ffff_a000_00ff).as_deref(), Some("ipt_do_table"));
        assert_eq!(name(0x10), None);
    }

    #[test]
    fn restricted_symbols_still_tell_names() {
        let text = "0000000000000000 T ip_rcv\n0000000000000000 T b\n";
        let k = Kallsyms::from_text(text.to_owned(), &["ip_rcv"]);
        assert!(k.is_restricted() && k.has("ip_rcv"));
        assert_eq!(k.resolve(0xffff_ffff_8100_0025), None);
    }
}
