//! Does this machine have what labs and exercises need? For people before a workshop, and for those
//! who help them.
//!
//! `look.rs` looks at the machine, and tries what can be tried: a program is really linked, a file
//! really written. `judge.rs` says what that means.

mod judge;
mod look;

use kit::show::Screen;
use serde::Serialize;

/// How good something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Good,
    /// Labs and exercises work without it, or with less of it.
    Remark,
    /// Labs or exercises do not work.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sign {
    /// One word.
    pub what: &'static str,
    pub state: State,
    pub found: String,
    /// What does not work so. Empty where all does.
    pub without: String,
    /// What to do about it.
    pub help: String,
}

/// All that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Whether labs and exercises work here.
    pub healthy: bool,
    /// The rustc that has built this program.
    pub built_by: &'static str,
    pub host: String,
    pub signs: Vec<Sign>,
}

impl Health {
    /// Looks at this machine, for about a second.
    pub fn of_this_machine(screen: &Screen) -> Health {
        let signs = look::all(screen);
        Health {
            healthy: signs.iter().all(|sign| sign.state != State::Bad),
            built_by: super::toolchain::BUILT_BY,
            host: shardlab::launch::host_name(),
            signs,
        }
    }

    /// One line for each sign, and below those that are not good what to do.
    pub fn render(&self, screen: &Screen) -> String {
        let mut lines = vec![screen.heading("workbook doctor", &self.host)];
        for sign in &self.signs {
            lines.push(sign.render(screen));
        }
        let bad = self.signs.iter().filter(|f| f.state == State::Bad);
        let bad: Vec<&str> = bad.map(|sign| sign.what).collect();
        lines.push(if bad.is_empty() {
            "Labs and exercises work here.".to_string()
        } else {
            format!("Not ready: {}.", bad.join(", "))
        });
        lines.join("\n")
    }
}

impl Sign {
    fn render(&self, screen: &Screen) -> String {
        let mark = match self.state {
            State::Good => screen.tick(),
            State::Remark if screen.ascii => "-".to_string(),
            State::Remark => "·".to_string(),
            State::Bad => screen.cross(),
        };
        let mut lines = vec![screen.mark(&mark, self.what, &self.found)];
        for (label, text) in [("without", &self.without), ("do", &self.help)] {
            if !text.is_empty() {
                lines.push(screen.mark("", "", &format!("{label}: {text}")));
            }
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_bad_is_said_with_what_to_do_in_80_columns() {
        let sign = |what, state, without: &str, help: &str| Sign {
            what,
            state,
            found: "found ".repeat(20).trim().to_string(),
            without: without.to_string(),
            help: help.to_string(),
        };
        let mut health = Health {
            healthy: true,
            built_by: "rustc 1.2.3",
            host: "x1".into(),
            signs: vec![
                sign("rustc", State::Good, "", ""),
                sign("MPI", State::Remark, "no more than one node", "load it"),
            ],
        };
        for ascii in [false, true] {
            let screen = Screen { ascii, ..Screen::plain() };
            let text = health.render(&screen);
            assert!(text.ends_with("\nLabs and exercises work here."), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert!(!ascii || text.is_ascii(), "{text}");
            // All texts begin in one column.
            let starts: Vec<usize> = ["found found", "without: no", "do: load"]
                .map(|part| {
                    let line = text.lines().find(|line| line.contains(part)).unwrap();
                    line[..line.find(part).unwrap()].chars().count()
                })
                .to_vec();
            assert!(starts.iter().all(|&start| start == starts[0]), "{text}");
        }
        health.signs.push(sign("linker", State::Bad, "no exercise", "install gcc"));
        let text = health.render(&Screen::plain());
        assert!(text.contains("✗ linker") && text.ends_with("\nNot ready: linker."), "{text}");
    }
}
