//! The picture of a packet's way, as SVG: once from left to right for wide
//! screens, once from top to bottom for phones and paper. The page's style
//! chooses.

use std::fmt::Write as _;

use super::super::text::clean;
use super::page::Page;
use super::path::{Group, Kind, Mark, Stop};

/// Most places that a wide picture is drawn for; with more its text would be too small to read.
const WIDE_STOPS: usize = 8;
/// Height of a line of text.
const LINE: usize = 15;
/// Width of a character at the size of text, in tenths.
const CHAR: usize = 71;

/// Draws the way; `about` is what a screen reader says.
pub(super) fn draw(page: &mut Page, stops: &[Stop], about: &str) {
    if stops.is_empty() {
        return;
    }
    if stops.len() <= WIDE_STOPS {
        wide(page, stops, about);
    }
    tall(page, stops, about);
}

/// Elements of one picture, the ground first.
#[derive(Default)]
struct Layers {
    ground: Page,
    lines: Page,
    top: Page,
}

impl Layers {
    fn finish(self, page: &mut Page, class: &str, (width, height): (usize, usize), about: &str) {
        page.raw(&format!(
            "<svg class=\"{class}\" width=\"{width}\" viewBox=\"0 0 {width} {height}\" role=\"img\"><title>"
        ));
        page.text(about).raw("</title>");
        for layer in [self.ground, self.lines, self.top] {
            page.raw(&layer.finish());
        }
        page.raw("</svg>");
    }

    fn text(&mut self, (x, y): (usize, usize), anchor: &str, class: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let class = class.trim();
        self.top.raw(&format!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" class=\"{class}\">"
        ));
        self.top.text(text).raw("</text>");
    }

    fn group(&mut self, (x, y, w, h): (usize, usize, usize, usize), pod: bool) {
        let class = if pod { "group pod" } else { "group" };
        self.ground.raw(&format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"10\"/>"
        ));
    }

    /// The frame around the place where it ended.
    fn frame(&mut self, (x, y, w, h): (usize, usize, usize, usize)) {
        self.lines.raw(&format!(
            "<rect class=\"fatal\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"6\"/>"
        ));
    }

    /// The way between two places.
    fn segment(&mut self, from: (usize, usize), to: (usize, usize), pipe: bool, gone: bool) {
        let ends = format!(
            "x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"",
            from.0, from.1, to.0, to.1
        );
        if pipe {
            self.lines.raw(&format!("<line class=\"pipe\" {ends}/>"));
        }
        let class = if gone { "gone" } else { "wire" };
        self.lines.raw(&format!("<line class=\"{class}\" {ends}/>"));
    }

    fn stop(&mut self, (x, y): (usize, usize), kind: Kind) {
        match kind {
            Kind::Pod => {
                let (x, y) = (x - 8, y - 8);
                self.top.raw(&format!("<rect class=\"stop pod\" x=\"{x}\" y=\"{y}\" width=\"16\" height=\"16\" rx=\"3\"/>"));
            }
            Kind::Iface => {
                self.top.raw(&format!(
                    "<circle class=\"stop\" cx=\"{x}\" cy=\"{y}\" r=\"7\"/>"
                ));
            }
            Kind::Dead | Kind::Gone => {
                let mut d = String::new();
                for (sx, sy) in [
                    (5_i64, -14_i64),
                    (14, -5),
                    (14, 5),
                    (5, 14),
                    (-5, 14),
                    (-14, 5),
                    (-14, -5),
                    (-5, -14),
                ] {
                    let _ = write!(d, "{},{} ", x as i64 + sx, y as i64 + sy);
                }
                self.top.raw(&format!(
                    "<polygon class=\"stop end\" points=\"{}\"/>",
                    d.trim()
                ));
                for (a, b) in [(-6_i64, 6_i64), (6, -6)] {
                    self.top.raw(&format!(
                        "<line class=\"cross\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
                        x as i64 + a,
                        y as i64 - 6,
                        x as i64 + b,
                        y as i64 + 6
                    ));
                }
            }
        }
    }

    /// The little sign of something done, on the line.
    fn tick(&mut self, (x, y): (usize, usize), mark: &Mark) {
        let inferred = if mark.inferred { " inferred" } else { "" };
        self.top.raw(&format!(
            "<rect class=\"tick {}{inferred}\" x=\"{}\" y=\"{}\" width=\"9\" height=\"9\" transform=\"rotate(45 {x} {y})\"/>",
            mark.class, x as f64 - 4.5, y as f64 - 4.5
        ));
    }
}

fn is_end(stop: &Stop) -> bool {
    matches!(stop.kind, Kind::Dead | Kind::Gone)
}

/// Whether the packet was in a tunnel between these two: at either.
fn in_tunnel(a: &Stop, b: &Stop) -> bool {
    a.tunnel || b.tunnel
}

/// Cuts a text into lines of at most so many characters, at spaces where there
/// are some; four lines at most.
fn wrap(text: &str, room: usize) -> Vec<String> {
    const LINES: usize = 4;
    // Escapes are longer than what they stand for.
    let text = clean(text);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_inclusive([' ', '/', ',']) {
        let len = word.trim_end().chars().count();
        if used > 0 && used + len > room {
            lines.push(String::new());
            used = 0;
        }
        for c in word.chars() {
            if used >= room && c != ' ' {
                lines.push(String::new());
                used = 0;
            }
            if let Some(line) = lines.last_mut() {
                line.push(c);
                used += 1;
            }
        }
        if lines.len() > LINES {
            break;
        }
    }
    if lines.len() > LINES {
        lines.truncate(LINES);
        if let Some(last) = lines.last_mut() {
            last.pop();
            last.push('…');
        }
    }
    lines.into_iter().map(|l| l.trim_end().to_owned()).collect()
}

/// How many characters fit of a title, which is set larger.
fn bold(room: usize) -> usize {
    room * 71 / 77
}

/// Lines of a mark, with their classes.
fn mark_lines(mark: &Mark, room: usize) -> Vec<(String, String)> {
    let sign = if mark.inferred { "~ " } else { "" };
    let title = format!("{sign}{}", mark.title);
    let head = wrap(&title, bold(room)).into_iter();
    let head = head.map(|l| (l, format!("title {}", mark.class)));
    let rest = mark.lines.iter().flat_map(|l| wrap(l, room));
    head.chain(rest.map(|l| (l, mark.class.to_owned())))
        .collect()
}

fn more(stop: &Stop) -> Option<String> {
    (stop.more > 0).then(|| format!("+ {} more, see below", stop.more))
}

/// Neighbouring places in one group: the first, the last, the group.
type Run<'a> = (usize, usize, Option<&'a Group>);

fn runs(stops: &[Stop]) -> Vec<Run<'_>> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    for (i, stop) in stops.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if run.2.is_some() && run.2 == stop.group.as_ref() => run.1 = i,
            _ => runs.push((i, i, stop.group.as_ref())),
        }
    }
    runs
}

/// From left to right.
fn wide(page: &mut Page, stops: &[Stop], about: &str) {
    const COLUMN: usize = 150;
    const GAP: usize = 22;
    const TOP: usize = 84;
    let room = COLUMN * 10 / CHAR - 1;
    let mut layers = Layers::default();
    let runs = runs(stops);
    let mut xs = vec![0; stops.len()];
    let mut x = 8;
    for (first, last, _) in &runs {
        for at in &mut xs[*first..=*last] {
            *at = x + COLUMN / 2;
            x += COLUMN;
        }
        x += GAP;
    }
    let width = x - GAP + 8;
    let mut bottoms = vec![TOP + 40; stops.len()];
    for (i, stop) in stops.iter().enumerate() {
        let at = xs[i];
        layers.stop((at, TOP), stop.kind);
        let bad = if is_end(stop) { " bad" } else { "" };
        for (n, line) in wrap(&stop.title, bold(room))
            .into_iter()
            .take(2)
            .rev()
            .enumerate()
        {
            layers.text(
                (at, TOP - 22 - n * LINE),
                "middle",
                &format!("title{bad}"),
                &line,
            );
        }
        let mut y = TOP + 28;
        let lines = stop.sub.iter().flat_map(|s| wrap(s, room));
        for line in lines.take(9) {
            layers.text(
                (at, y),
                "middle",
                if is_end(stop) { "bad" } else { "sub" },
                &line,
            );
            y += LINE;
        }
        bottoms[i] = y;
        if is_end(stop) {
            layers.frame((at - COLUMN / 2 + 4, TOP - 40, COLUMN - 8, y + 30 - TOP));
        }
    }
    // What was done stands below all places, between its two.
    let under = bottoms.iter().max().map_or(TOP, |y| y + 6);
    for (i, stop) in stops.iter().enumerate() {
        if let Some(next) = stops.get(i + 1) {
            let gone = next.kind == Kind::Gone;
            layers.segment(
                (xs[i], TOP),
                (xs[i + 1], TOP),
                in_tunnel(stop, next) && !gone,
                gone,
            );
        }
        if stop.marks.is_empty() {
            continue;
        }
        let end = xs.get(i + 1).copied().unwrap_or(xs[i] + COLUMN);
        let middle = usize::midpoint(xs[i], end);
        let mut y = under + LINE;
        for (n, mark) in stop.marks.iter().enumerate() {
            let share = (end - xs[i]) * (n + 1) / (stop.marks.len() + 1);
            layers.tick((xs[i] + share, TOP), mark);
            for (line, class) in mark_lines(mark, room) {
                layers.text((middle, y), "middle", &class, &line);
                y += LINE;
            }
            y += 4;
        }
        if let Some(more) = more(stop) {
            layers.text((middle, y), "middle", "sub", &more);
            y += LINE;
        }
        bottoms[i] = y;
    }
    let height = bottoms.iter().max().map_or(TOP, |y| y + 8);
    for (first, last, group) in runs {
        let Some(Group { name, is_pod }) = group else {
            continue;
        };
        let (left, right) = (xs[first] - COLUMN / 2, xs[last] + COLUMN / 2);
        let bottom = bottoms[first..=last].iter().max().map_or(TOP, |y| y + 2);
        layers.group((left, 4, right - left, bottom - 4), *is_pod);
        let room = (right - left) * 10 / 74;
        let middle = usize::midpoint(left, right);
        for (n, line) in wrap(name, room).iter().take(2).enumerate() {
            layers.text((middle, 20 + n * 13), "middle", "grouptitle", line);
        }
    }
    layers.finish(page, "wide", (width, height), about);
}

/// From top to bottom.
fn tall(page: &mut Page, stops: &[Stop], about: &str) {
    const WIDTH: usize = 340;
    const X: usize = 34;
    const TEXT: usize = 58;
    const ROOM: usize = (WIDTH - TEXT - 12) * 10 / CHAR;
    let mut layers = Layers::default();
    let mut y = 8;
    let mut at: Vec<usize> = Vec::new();
    let mut ticks: Vec<(usize, &Mark)> = Vec::new();
    for (first, last, group) in runs(stops) {
        let top = y;
        if let Some(Group { name, .. }) = group {
            let name = wrap(name, ROOM).swap_remove(0);
            layers.text((52, y + 18), "start", "grouptitle", &name);
            y += 28;
        }
        for (i, stop) in stops[first..=last].iter().enumerate() {
            at.push(y + 12);
            layers.stop((X, y + 12), stop.kind);
            let begin = y;
            let bad = if is_end(stop) { "bad" } else { "" };
            y += 17;
            for line in wrap(&stop.title, bold(ROOM)) {
                layers.text((TEXT, y), "start", &format!("title {bad}"), &line);
                y += LINE;
            }
            for line in stop.sub.iter().flat_map(|s| wrap(s, ROOM)) {
                layers.text(
                    (TEXT, y),
                    "start",
                    if is_end(stop) { "bad" } else { "sub" },
                    &line,
                );
                y += LINE;
            }
            if is_end(stop) {
                layers.frame((TEXT - 8, begin, WIDTH - TEXT - 6, y - begin - 4));
            }
            // What was done on leaving the last place of a group is inside it.
            for mark in &stop.marks {
                ticks.push((y + 8, mark));
                for (line, class) in mark_lines(mark, ROOM) {
                    layers.text((TEXT, y + 12), "start", &class, &line);
                    y += LINE;
                }
                y += 5;
            }
            if let Some(more) = more(stop) {
                layers.text((TEXT, y + 12), "start", "sub", &more);
                y += LINE;
            }
            y += if first + i == last { 4 } else { 8 };
        }
        if let Some(Group { is_pod, .. }) = group {
            layers.group((6, top, WIDTH - 12, y - top + 4), *is_pod);
            y += 4;
        }
        y += 16;
    }
    for (i, pair) in stops.windows(2).enumerate() {
        let gone = pair[1].kind == Kind::Gone;
        let pipe = in_tunnel(&pair[0], &pair[1]) && !gone;
        layers.segment((X, at[i]), (X, at[i + 1]), pipe, gone);
    }
    for (y, mark) in ticks {
        layers.tick((X, y), mark);
    }
    layers.finish(page, "tall", (WIDTH, y), about);
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn long_texts_stay_in_their_room() {
        assert_eq!(wrap("a b", 10), ["a b"]);
        assert_eq!(wrap("10.98.235.247:80 x", 10), ["10.98.235.", "247:80 x"]);
        assert_eq!(wrap("pod/default/client", 12), ["pod/default/", "client"]);
        let long = wrap(&"x".repeat(100), 10);
        assert_eq!(long.len(), 4);
        assert!(long.iter().all(|l| l.chars().count() <= 10));
        assert!(long[3].ends_with('…'));
    }
}
