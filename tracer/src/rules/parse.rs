//! What `iptables-save` writes (`iptables-save(8)`), of the nft and the legacy
//! variant alike: `*table`, `:CHAIN policy [packets:bytes]`, rules, `COMMIT`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::model::{Chain, Condition, Match, Policy, Rule, Table, Target};
use super::words::{Word, split};
use super::{matches, targets};
use crate::state::IptablesDump;

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line number, 1 first.
    pub line: usize,
    /// The line.
    pub text: String,
    /// Why.
    pub why: String,
}

/// An option with its arguments.
#[derive(Debug)]
pub(super) struct Opt {
    /// After `!`.
    pub(super) not: bool,
    /// With its dashes.
    pub(super) name: String,
    /// Arguments.
    pub(super) args: Vec<String>,
}

impl Opt {
    /// The only argument.
    pub(super) fn arg(&self) -> Option<&str> {
        match &*self.args {
            [arg] => Some(arg),
            _ => None,
        }
    }
}

/// The options behind one `-m` or `-j`.
#[derive(Debug)]
pub(super) struct Group {
    /// The match or target; empty for what needs no module.
    pub(super) name: String,
    /// Its options.
    pub(super) opts: Vec<Opt>,
}

impl Group {
    /// The options as text, to say what was not understood.
    pub(super) fn args(&self) -> Arc<str> {
        let opts: Vec<String> = self.opts.iter().map(written).collect();
        opts.join(" ").into()
    }

    /// The option with this name.
    pub(super) fn opt(&self, name: &str) -> Option<&Opt> {
        self.opts.iter().find(|o| o.name == name)
    }
}

/// An option as text.
pub(super) fn written(opt: &Opt) -> String {
    let mut text = if opt.not {
        format!("! {}", opt.name)
    } else {
        opt.name.clone()
    };
    for arg in &opt.args {
        text.push(' ');
        text.push_str(arg);
    }
    text
}

/// All tables of a dump.
pub(super) fn tables(dump: &IptablesDump, problems: &mut Vec<Problem>) -> Vec<Table> {
    let mut reader = Reader {
        dump,
        tables: Vec::new(),
        open: None,
    };
    for (number, line) in dump.text.lines().enumerate() {
        if let Err(why) = reader.line(line.trim()) {
            problems.push(Problem {
                line: number + 1,
                text: line.to_owned(),
                why,
            });
        }
    }
    if let Some(mut table) = reader.open.take() {
        table.opaque = Some("the dump ends within the table".into());
        problems.push(Problem {
            line: dump.text.lines().count(),
            text: format!("*{}", table.name),
            why: "the table has no COMMIT".into(),
        });
        reader.tables.push(table);
    }
    reader.tables
}

struct Reader<'a> {
    dump: &'a IptablesDump,
    tables: Vec<Table>,
    open: Option<Table>,
}

impl Reader<'_> {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() {
            return Ok(());
        }
        if let Some(comment) = line.strip_prefix('#') {
            return self.comment(comment);
        }
        if let Some(name) = line.strip_prefix('*') {
            let previous = self.open.replace(self.table(name));
            return match previous {
                None => Ok(()),
                Some(mut table) => {
                    table.opaque = Some("the dump has no end of this table".into());
                    let why = format!("table {} has no COMMIT", table.name);
                    self.tables.push(table);
                    Err(why)
                }
            };
        }
        let Some(table) = &mut self.open else {
            return Err("outside of any table".into());
        };
        if line == "COMMIT" {
            self.tables.extend(self.open.take());
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix(':') {
            let chain = chain(rest)?;
            table.chains.insert(Arc::clone(&chain.name), chain);
            return Ok(());
        }
        let (counters, text) = counters(line);
        let Some(rest) = text.strip_prefix("-A ") else {
            table.opaque = Some("a line of the dump is not understood".into());
            return Err("neither a table, a chain nor a rule".into());
        };
        let name = rest.split_whitespace().next().unwrap_or_default();
        if !table.chains.contains_key(name) {
            table.opaque = Some("a rule's chain is not declared".into());
            return Err(format!("chain {name} is not declared"));
        }
        let parsed = rule(text, &table.chains);
        let problem = parsed.as_ref().err().cloned();
        let mut rule = parsed.unwrap_or_else(|_| unreadable(text));
        rule.counters = counters;
        if let Some(chain) = table.chains.get_mut(name) {
            rule.index = chain.rules.len() + 1;
            chain.rules.push(rule);
        }
        problem.map_or(Ok(()), Err)
    }

    /// iptables-nft says in a comment that a table, or some of its base chains,
    /// cannot be shown.
    fn comment(&mut self, comment: &str) -> Result<(), String> {
        let Some(at) = comment.find("incompatible") else {
            return Ok(());
        };
        let name = comment[..at].split(['`', '\'', '"']).nth(1);
        let mut table = self.table(name.unwrap_or_default());
        table.opaque = Some("iptables cannot show all of it".into());
        self.tables.push(table);
        Err("iptables cannot show all of this table".into())
    }

    fn table(&self, name: &str) -> Table {
        Table {
            ipv6: self.dump.ipv6,
            variant: Arc::clone(&self.dump.variant),
            name: name.into(),
            opaque: None,
            chains: BTreeMap::new(),
        }
    }
}

/// `NAME policy [packets:bytes]`.
fn chain(text: &str) -> Result<Chain, String> {
    let mut words = text.split_whitespace();
    let name = words.next().ok_or("a chain without a name")?;
    let policy = match words.next() {
        Some("ACCEPT") => Some(Policy::Accept),
        Some("DROP") => Some(Policy::Drop),
        Some("-") => None,
        other => return Err(format!("policy {}", other.unwrap_or("is missing"))),
    };
    let counters = match words.next() {
        None => None,
        Some(word) => Some(pair(word).ok_or_else(|| format!("counters {word}"))?),
    };
    Ok(Chain {
        name: name.into(),
        policy,
        counters,
        rules: Vec::new(),
    })
}

/// Splits `[packets:bytes]` off a rule.
fn counters(line: &str) -> (Option<(u64, u64)>, &str) {
    match line.split_once(' ') {
        Some((word, rest)) if word.starts_with('[') => match pair(word) {
            Some(counters) => (Some(counters), rest.trim_start()),
            None => (None, line),
        },
        _ => (None, line),
    }
}

fn pair(word: &str) -> Option<(u64, u64)> {
    let (packets, bytes) = word.strip_prefix('[')?.strip_suffix(']')?.split_once(':')?;
    Some((packets.parse().ok()?, bytes.parse().ok()?))
}

/// Stands for a rule that could not be read.
fn unreadable(text: &str) -> Rule {
    Rule {
        text: text.into(),
        index: 0,
        counters: None,
        comments: Vec::new(),
        conditions: vec![Condition {
            not: false,
            test: Match::Unknown {
                name: "unreadable rule".into(),
                args: text.into(),
            },
        }],
        target: Target::Unknown {
            name: "unreadable rule".into(),
            args: text.into(),
        },
    }
}

fn rule(text: &str, chains: &BTreeMap<Arc<str>, Chain>) -> Result<Rule, String> {
    let words = split(text)?;
    let (groups, jump) = groups(words.get(2..).unwrap_or_default())?;
    let mut rule = unreadable(text);
    rule.conditions.clear();
    for group in &groups {
        if group.name == "comment" {
            let comments = group.opts.iter().filter_map(Opt::arg);
            rule.comments.extend(comments.map(Arc::from));
        } else {
            rule.conditions.extend(matches::build(group)?);
        }
    }
    rule.target = match jump {
        None => Target::None,
        Some((goto, group)) => targets::build(&group, goto, chains)?,
    };
    Ok(rule)
}

type Jump = Option<(bool, Group)>;

/// Sorts a rule's words: matches, and the target with whether it is a goto.
fn groups(words: &[Word]) -> Result<(Vec<Group>, Jump), String> {
    let mut groups = Vec::new();
    let mut jump: Jump = None;
    let mut open = Group {
        name: String::new(),
        opts: Vec::new(),
    };
    let mut words = words.iter().peekable();
    let mut not = false;
    while let Some(word) = words.next() {
        if word.is_not() {
            if not {
                return Err("two negations".into());
            }
            not = true;
            continue;
        }
        if !word.is_option() {
            return Err(format!("\"{}\" belongs to no option", word.text));
        }
        let mut opt = Opt {
            not: std::mem::take(&mut not),
            name: word.text.clone(),
            args: Vec::new(),
        };
        // What is free text may look like an option.
        let free = matches!(
            &*opt.name,
            "--comment" | "--log-prefix" | "--nflog-prefix" | "--name" | "--string"
        );
        if free && let Some(arg) = words.next() {
            opt.args.push(arg.text.clone());
        }
        while let Some(arg) = words.next_if(|w| !w.is_option() && !w.is_not()) {
            opt.args.push(arg.text.clone());
        }
        match &*opt.name {
            "-m" | "--match" | "-j" | "--jump" | "-g" | "--goto" => {
                let arg = opt.arg().ok_or(format!("{} needs one name", opt.name))?;
                let next = Group {
                    name: arg.to_owned(),
                    opts: Vec::new(),
                };
                let previous = std::mem::replace(&mut open, next);
                file(previous, &mut groups, &mut jump);
                if opt.name != "-m" && opt.name != "--match" {
                    let goto = matches!(&*opt.name, "-g" | "--goto");
                    let group = Group {
                        name: String::new(),
                        opts: Vec::new(),
                    };
                    if jump.replace((goto, group)).is_some() {
                        return Err("two targets".into());
                    }
                }
            }
            name if !name.starts_with("--") || matches::is_plain(name) => {
                groups.push(Group {
                    name: String::new(),
                    opts: vec![opt],
                });
            }
            _ => open.opts.push(opt),
        }
    }
    if not {
        return Err("ends in a negation".into());
    }
    file(open, &mut groups, &mut jump);
    Ok((groups, jump))
}

/// Puts a finished group where it belongs: behind `-j` it is the target's.
fn file(group: Group, groups: &mut Vec<Group>, jump: &mut Jump) {
    match jump {
        Some((_, target)) if target.name.is_empty() => *target = group,
        _ if group.name.is_empty() && group.opts.is_empty() => {}
        _ => groups.push(group),
    }
}
