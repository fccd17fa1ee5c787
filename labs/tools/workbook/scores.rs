//! The ladder's scores of a room as one chart: who solved a rung, and where readers stand between
//! the best possible score and the worst in the room.

use super::document::{Document, harmless};
use kit::show::{Screen, bar, general, thousands};
use std::collections::BTreeMap;

/// What the names of the ladder's exercises begin with.
const RUNG: &str = "ladder-";

/// Columns of a chart between the two numbers at its sides.
const CHART: usize = 30;

/// One rung of the ladder, as a room climbs it.
#[derive(Default)]
struct Rung {
    name: String,
    /// Readers who have solved it.
    solved: usize,
    /// By what is scored.
    scores: BTreeMap<String, Scores>,
}

/// One score of all readers.
struct Scores {
    /// The best possible one.
    target: u64,
    /// Each reader's best.
    got: Vec<u64>,
}

/// The chart, if anyone in the room has a score.
pub(super) fn scores<'a>(
    screen: &Screen,
    documents: impl ExactSizeIterator<Item = &'a Document>,
) -> Option<String> {
    let readers = documents.len();
    let mut rungs: Vec<Rung> = Vec::new();
    // In the order in which the readers have them.
    let mut whats: Vec<String> = Vec::new();
    for entry in documents.flat_map(|document| &document.exercises) {
        let Some(name) = entry.name.strip_prefix(RUNG) else {
            continue;
        };
        let at = rungs.iter().position(|rung| rung.name == name);
        let at = at.unwrap_or_else(|| {
            rungs.push(Rung { name: name.into(), ..Rung::default() });
            rungs.len() - 1
        });
        rungs[at].solved += usize::from(entry.solved);
        for figure in &entry.record.figures {
            if !whats.contains(&figure.what) {
                whats.push(figure.what.clone());
            }
            let scores = rungs[at].scores.entry(figure.what.clone());
            let scores = scores.or_insert(Scores { target: figure.target, got: Vec::new() });
            scores.target = scores.target.min(figure.target);
            scores.got.push(figure.got);
        }
    }
    if whats.is_empty() {
        return None;
    }
    let mut lines = vec![
        screen.bold("The ladder"),
        screen.dim(screen.wrap(
            "Each line goes from the best possible score to the worst in the room. A digit says how many readers stand there, \
             + that there are more than 9. The first column has reached the best.",
            2,
        )),
        String::new(),
        screen.bold(format!("  {:<15} solved", "")),
    ];
    for rung in &rungs {
        let share = rung.solved as f64 / readers as f64;
        lines.push(format!(
            "  {} {:>7} of {readers:<2} {}",
            cut(screen, &rung.name, 15),
            rung.solved,
            bar(screen, share, CHART)
        ));
    }
    for what in &whats {
        lines.push(String::new());
        lines.push(
            screen.bold(format!("  {}", cut(screen, what, screen.width.max(20) - 4).trim_end())),
        );
        for rung in &rungs {
            if let Some(scores) = rung.scores.get(what) {
                lines.push(format!("  {} {}", cut(screen, &rung.name, 15), scores.line(screen)));
            }
        }
    }
    Some(lines.join("\n"))
}

/// A participant's text in exactly `columns` columns.
fn cut(screen: &Screen, text: &str, columns: usize) -> String {
    let text = harmless(text);
    let text = if screen.ascii { screen.quote(&text, 0) } else { text };
    format!("{:<columns$}", text.chars().take(columns).collect::<String>())
}

impl Scores {
    /// The best possible score, the readers, and the worst of them.
    fn line(&self, screen: &Screen) -> String {
        let worst = self.got.iter().copied().max().unwrap_or(self.target);
        let mut counts = [0; CHART];
        for &got in &self.got {
            counts[place(got, self.target, worst)] += 1;
        }
        let digit = |count: &usize| match count {
            0 if screen.ascii => '.',
            0 => '·',
            1..10 => char::from(b'0' + *count as u8),
            _ => '+',
        };
        let chart: String = counts.iter().map(digit).collect();
        let side = if screen.ascii { '|' } else { '│' };
        let end = if worst > self.target {
            number(worst)
        } else {
            screen.tick()
        };
        format!("{:>13} {side}{chart}{side} {end}", number(self.target))
    }
}

/// The column of a score: the first one for the best possible, and the others up to the worst.
fn place(got: u64, target: u64, worst: u64) -> usize {
    if got <= target {
        return 0;
    }
    let share = (got - target) as f64 / (worst - target) as f64;
    1 + (share * (CHART - 2) as f64).round() as usize
}

/// At most 13 columns, whatever someone has written into a document.
fn number(value: u64) -> String {
    let text = thousands(value);
    if text.len() <= 13 {
        text
    } else {
        general(value as f64, 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, Outcome, Record};
    use kit::check::Figure;

    const WHATS: [&str; 3] = [
        "peak bytes per rank",
        "bytes sent per rank and step",
        "microseconds per step on a slow link",
    ];

    /// A document of someone who has reached `got[rung]` times the best of each score. 0 is not
    /// solved.
    fn document(got: &[u64]) -> Document {
        let entry = |(i, &times): (usize, &u64)| {
            let figures = WHATS.iter().map(|what| Figure {
                what: (*what).into(),
                got: times * 10_000,
                target: 10_000,
            });
            let record = Record {
                figures: if times > 0 { figures.collect() } else { Vec::new() },
                outcome: Some(Outcome::Solved),
                ..Record::default()
            };
            Entry {
                name: ["ladder-each", "ladder-flat", "lab01-ring"][i].into(),
                solved: times > 0,
                begun: true,
                record,
                check: None,
            }
        };
        Document {
            version: 1,
            who: String::new(),
            when: 0,
            exercises: got.iter().enumerate().map(entry).collect(),
        }
    }

    fn chart(screen: &Screen, documents: &[Document]) -> Option<String> {
        scores(screen, documents.iter())
    }

    #[test]
    fn a_room_stands_between_the_best_and_its_worst() {
        let mut room = vec![document(&[1, 0, 1]); 12];
        room.extend([document(&[1, 1, 0]), document(&[2, 0, 0]), document(&[3, 1, 0])]);
        let text = chart(&Screen::plain(), &room).unwrap();
        let line = |what: &str, rung: &str| {
            let block = text.split(what).nth(1).expect(what);
            let line = block.lines().find(|line| line.trim_start().starts_with(rung));
            line.expect(rung).to_string()
        };
        assert!(line("solved", "each").ends_with(&format!("15 of 15 {}", "█".repeat(30))));
        assert!(line("solved", "flat").contains(" 2 of 15 ████░"), "{text}");
        for what in WHATS {
            let each = line(what, "each");
            // Thirteen at the best, one in the middle, one at the end.
            let dots = "·".repeat(14);
            assert!(
                each.ends_with(&format!("10,000 │+{dots}1{}1│ 30,000", &dots[..2 * 13])),
                "{each}"
            );
            assert!(line(what, "flat").ends_with(&format!("10,000 │2{}│ ✓", "·".repeat(29))));
        }
        assert!(!text.contains("ring"), "{text}");
        let narrow = text.lines().all(|line| line.chars().count() <= 80);
        assert!(narrow && text.lines().count() == 20, "{text}");
    }

    #[test]
    fn a_room_without_scores_has_no_chart() {
        assert_eq!(chart(&Screen::plain(), &[document(&[0, 0, 1])]), None);
        assert_eq!(chart(&Screen::plain(), &[]), None);
    }

    #[test]
    fn whatever_a_document_says_fits_and_ascii_is_ascii() {
        let mut odd = document(&[1, 2]);
        odd.exercises[0].name = format!("ladder-\u{1b}[2J…{}", "x".repeat(300));
        odd.exercises[0].record.figures[0].what = "ü\n".repeat(300);
        odd.exercises[1].record.figures[0].got = u64::MAX;
        odd.exercises[1].record.figures[1].target = 0;
        for ascii in [false, true] {
            let screen = Screen { ascii, ..Screen::plain() };
            let text = chart(&screen, &[odd.clone(), document(&[1, 1])]).unwrap();
            assert!(!text.contains('\u{1b}') && (text.is_ascii() || !ascii), "{text}");
            assert_eq!(text.lines().find(|line| line.chars().count() > 80), None);
        }
    }
}
