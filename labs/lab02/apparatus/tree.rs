//! A whole, its parts, and their parts: seconds and shares, nested as a profiler shows calls.

use kit::show::{Screen, percent};

/// Something that took time, and its parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    pub name: String,
    pub seconds: f64,
    /// They need not add up to the whole.
    pub parts: Vec<Branch>,
}

impl Branch {
    /// A branch without parts.
    pub fn new(name: impl Into<String>, seconds: f64) -> Branch {
        Branch { name: name.into(), seconds, parts: Vec::new() }
    }

    /// The same with `parts`.
    pub fn with(self, parts: Vec<Branch>) -> Branch {
        Branch { parts, ..self }
    }
}

/// A line for each branch: seconds (milliseconds of precision), its share of `root`, and its name
/// where it belongs.
pub fn tree(screen: &Screen, root: &Branch) -> String {
    let mut lines = vec![screen.bold("  seconds   share")];
    add(screen, root, root.seconds, ("", ""), &mut lines);
    lines.join("\n")
}

/// `here` comes before the branch's own name, `below` before those of its parts.
fn add(
    screen: &Screen,
    branch: &Branch,
    whole: f64,
    (here, below): (&str, &str),
    lines: &mut Vec<String>,
) {
    let share = percent(branch.seconds / whole);
    let start = format!("{:>9.3} {share:>7}  ", branch.seconds);
    let room = screen.width.saturating_sub(start.chars().count() + here.chars().count());
    let name: String = branch.name.chars().take(room.max(8)).collect();
    lines.push(format!("{start}{}{name}", screen.dim(here)));
    let (fork, last, line) = if screen.ascii {
        ("|- ", "`- ", "|  ")
    } else {
        ("├─ ", "└─ ", "│  ")
    };
    for (i, part) in branch.parts.iter().enumerate() {
        let (here, next) = if i + 1 < branch.parts.len() {
            (fork, line)
        } else {
            (last, "   ")
        };
        add(
            screen,
            part,
            whole,
            (&format!("{below}{here}"), &format!("{below}{next}")),
            lines,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step() -> Branch {
        let reduce = Branch::new("all-reduce", 0.5)
            .with(vec![Branch::new("waiting", 0.4), Branch::new("reducing", 0.1)]);
        Branch::new("iteration", 2.0).with(vec![
            Branch::new("forward", 0.5),
            Branch::new("backward", 1.25).with(vec![reduce]),
            Branch::new("optimizer", 0.2504),
        ])
    }

    #[test]
    fn a_step() {
        let expected = "
  seconds   share
    2.000  100.0%  iteration
    0.500   25.0%  ├─ forward
    1.250   62.5%  ├─ backward
    0.500   25.0%  │  └─ all-reduce
    0.400   20.0%  │     ├─ waiting
    0.100    5.0%  │     └─ reducing
    0.250   12.5%  └─ optimizer
";
        assert_eq!(tree(&Screen::plain(), &step()), expected.trim_matches('\n'));
    }

    #[test]
    fn a_step_in_ascii() {
        let text = tree(&Screen { ascii: true, ..Screen::plain() }, &step());
        assert!(text.is_ascii());
        assert!(text.ends_with("|     `- reducing\n    0.250   12.5%  `- optimizer"), "{text}");
    }

    #[test]
    fn nothing_took_any_time() {
        assert_eq!(
            tree(&Screen::plain(), &Branch::new("a", 0.0)),
            "  seconds   share\n    0.000     n/a  a"
        );
    }
}
