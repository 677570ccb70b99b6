//! Keys, and lines that are typed.

use std::path::PathBuf;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::keys::{self, Action};
use super::{App, Effect, Phase, Prompt, Top};
use crate::output::format::FORMATS;
use crate::tui::query::Query;
use crate::tui::theme::Ink;

/// Longest line that can be typed, in characters.
const LONGEST: usize = 400;

/// The usual ending of a format's files.
pub(crate) fn ending(format: usize) -> &'static str {
    match FORMATS.get(format).map_or("text", |f| f.name) {
        "text" => "txt",
        "perfetto" => "perfetto.json",
        "otlp" => "otlp.json",
        "mermaid" => "mmd",
        name => name,
    }
}

impl App {
    pub(super) fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        if key.modifiers.contains(KeyModifiers::ALT) {
            // Escape and a key close behind it look the same to a terminal.
            let mut effects = self.key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
            let rest = key.modifiers - KeyModifiers::ALT;
            effects.extend(self.key(KeyEvent::new(key.code, rest)));
            return effects;
        }
        self.message = None;
        if let Some(prompt) = self.prompt.take() {
            return self.typed(prompt, key);
        }
        let Some(action) = keys::action(key) else {
            return Vec::new();
        };
        self.act(action)
    }

    fn act(&mut self, action: Action) -> Vec<Effect> {
        match action {
            // Out of what lies on top first, as everywhere.
            Action::Quit if self.top.is_some() => self.top = None,
            Action::Quit => return self.quit(),
            Action::Suspend => return vec![Effect::Suspend],
            Action::Back => self.back(),
            Action::Open if self.top.is_none() => self.open(),
            Action::Open => {}
            Action::Next => self.cycle(true),
            Action::Previous => self.cycle(false),
            Action::Up => self.go(-1),
            Action::Down => self.go(1),
            Action::PageUp => self.go(-self.page()),
            Action::PageDown => self.go(self.page()),
            Action::First => self.go(isize::MIN + 1),
            Action::Last => self.go(isize::MAX),
            Action::Fault => self.first_fault(),
            Action::OnlyFaults => self.only_faults(),
            Action::Search => self.prompt = Some(Prompt::Search(String::new())),
            Action::Filter => {
                let text = self.model.filter().text().to_owned();
                self.prompt = Some(Prompt::Filter(text));
            }
            Action::SearchNext => self.find(true, false),
            Action::SearchPrevious => self.find(false, false),
            Action::Follow => self.toggle_follow(),
            Action::Pause => self.toggle_pause(),
            Action::Compare => self.compare(),
            Action::Verdict => self.lay(Top::Verdict),
            Action::Missing => self.lay(Top::Missing),
            Action::Help => self.lay(Top::Help),
            Action::Zoom => self.zoom = !self.zoom,
            Action::Export => self.ask_export(),
        }
        Vec::new()
    }

    /// Lays something on top, or takes it away again.
    fn lay(&mut self, top: Top) {
        self.scroll = 0;
        self.top = if self.top.as_ref() == Some(&top) {
            None
        } else {
            Some(top)
        };
    }

    fn toggle_follow(&mut self) {
        if self.phase != Phase::Live {
            self.message = Some(("nothing comes in any more".into(), Ink::Head));
            return;
        }
        self.follow = !self.follow;
        if self.follow {
            self.choose_newest();
        }
    }

    fn toggle_pause(&mut self) {
        if self.paused {
            self.resume();
        } else if self.phase == Phase::Live {
            self.paused = true;
        } else {
            self.message = Some(("nothing comes in any more".into(), Ink::Head));
        }
    }

    fn ask_export(&mut self) {
        if matches!(self.phase, Phase::Loading { .. }) {
            self.message = Some(("wait until it is loaded".into(), Ink::Head));
            return;
        }
        self.prompt = Some(Prompt::Export(0, format!("tracer-export.{}", ending(0))));
    }

    pub(super) fn paste(&mut self, text: &str) {
        let Some(prompt) = &mut self.prompt else {
            return;
        };
        let line = match prompt {
            Prompt::Search(t) | Prompt::Filter(t) | Prompt::Export(_, t) => t,
        };
        let room = LONGEST.saturating_sub(line.chars().count());
        line.extend(text.chars().filter(|c| !c.is_control()).take(room));
    }

    /// A key while a line is typed.
    fn typed(&mut self, mut prompt: Prompt, key: KeyEvent) -> Vec<Effect> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let text = match &mut prompt {
            Prompt::Search(t) | Prompt::Filter(t) | Prompt::Export(_, t) => t,
        };
        match key.code {
            KeyCode::Char('c') if control => return self.quit(),
            KeyCode::Char('z') if control => {
                self.prompt = Some(prompt);
                return vec![Effect::Suspend];
            }
            KeyCode::Char('u') if control => text.clear(),
            KeyCode::Char('w') if control => {
                let cut = text.trim_end().rfind(' ').map_or(0, |at| at + 1);
                text.truncate(cut);
            }
            KeyCode::Char(c) if !control && !c.is_control() && text.chars().count() < LONGEST => {
                text.push(c);
            }
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Esc => return Vec::new(),
            KeyCode::Enter => return self.entered(prompt),
            KeyCode::Tab | KeyCode::Down | KeyCode::Right => turn(&mut prompt, 1),
            KeyCode::BackTab | KeyCode::Up | KeyCode::Left => {
                turn(&mut prompt, FORMATS.len() - 1);
            }
            _ => {}
        }
        self.prompt = Some(prompt);
        Vec::new()
    }

    fn entered(&mut self, prompt: Prompt) -> Vec<Effect> {
        match prompt {
            Prompt::Search(text) => match Query::parse(&text) {
                Ok(query) => {
                    self.search = query;
                    if !self.search.is_empty() {
                        self.find(true, true);
                    }
                }
                Err(why) => {
                    self.message = Some((why, Ink::Bad));
                    self.prompt = Some(Prompt::Search(text));
                }
            },
            Prompt::Filter(text) => match Query::parse(&text) {
                Ok(query) => {
                    let only_faults = self.model.only_faults();
                    self.model.set_filter(query, only_faults);
                }
                Err(why) => {
                    self.message = Some((why, Ink::Bad));
                    self.prompt = Some(Prompt::Filter(text));
                }
            },
            Prompt::Export(format, name) => {
                let name = name.trim();
                let Some(format) = FORMATS.get(format).filter(|_| !name.is_empty()) else {
                    self.message = Some(("a file needs a name".into(), Ink::Bad));
                    return Vec::new();
                };
                self.message = Some((format!("writing {name} ..."), Ink::Head));
                return vec![Effect::Export {
                    format,
                    path: PathBuf::from(name),
                    snapshot: Box::new(self.model.snapshot()),
                }];
            }
        }
        Vec::new()
    }
}

/// Another format; the name's ending goes with it.
fn turn(prompt: &mut Prompt, by: usize) {
    let Prompt::Export(format, name) = prompt else {
        return;
    };
    let old = format!(".{}", ending(*format));
    *format = (*format + by) % FORMATS.len();
    if let Some(stem) = name.strip_suffix(&old) {
        *name = format!("{stem}.{}", ending(*format));
    }
}
