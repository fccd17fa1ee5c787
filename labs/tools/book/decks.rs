//! The slides of every lab, from what `labs/labs.toml` and the book have of it: its question, its
//! picture, an output, a mistake, and what to take home. Nothing on them is typed for a slide.

use super::aids::{Aids, read};
use super::places::filled;
use anyhow::Result;
use kit::show::counted;
use kit::{Course, Lab, capitalized};
use std::path::Path;

/// A heading of two lines.
const LONGEST: usize = 90;

/// Where a page has all slides.
const PLACE: &str = "<section class=\"decks\">";

/// The page with the slides of every lab, if it has a place for them. `root` is the checkout.
///
/// # Errors
/// If a lab names an output that is not there.
pub fn with_decks(course: &Course, aids: &Aids, root: &Path, page: &str) -> Result<String> {
    filled(page, PLACE, |_| decks(course, aids, root))
}

/// Five slides for each lab. Each names its decks: its lab, and the paths that have this lab.
fn decks(course: &Course, aids: &Aids, root: &Path) -> Result<String> {
    let mut out = String::new();
    for (i, lab) in course.labs.iter().enumerate() {
        let page = format!("{}.md", lab.name);
        let mut names = vec![lab.name.as_str()];
        names.extend(aids.paths_with(&page));
        let names = names.join("|");
        let slide = |heading: &str, body: &str| {
            format!(
                "<section class=\"slide\" data-decks=\"{names}\">\n\n## {heading}\n\n{body}\n\n</section>\n"
            )
        };
        out += &slide(&format!("{} · {}", lab.name, lab.title), &question(lab));
        out += &notes(lab);
        let picture = read(root, &format!("book/outputs/{}.svg", lab.picture))?;
        let page = read(root, &format!("book/src/{page}")).unwrap_or_default();
        out += &slide(&caption(lab, &page, &picture), picture.trim());
        for (file, usual) in [(&lab.output, "The run"), (&lab.breaks, "What goes wrong")] {
            let text = read(root, &format!("book/outputs/{file}.txt"))?;
            out += &slide(
                &what_ran(&text).unwrap_or(usual.into()),
                &format!("```text\n{}\n```", text.trim_end()),
            );
        }
        out += &slide("To take home", &takeaway(lab, course.labs.get(i + 1)));
    }
    Ok(out)
}

fn question(Lab { name, question, takes, ranks, .. }: &Lab) -> String {
    let ranks = counted(*ranks, "rank", "ranks");
    format!(
        "<p class=\"large\">{question}</p>\n\nPredict, then run: `cargo run --bin {name} -- --predict`\n\n{ranks}, {takes}"
    )
}

/// A speaker's note is the sheet that everyone holds.
fn notes(lab: &Lab) -> String {
    let Lab { name, title, .. } = lab;
    let place = format!("{name} · {title}").to_lowercase();
    let place: String = place
        .chars()
        .filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-')
        .map(|c| if c == ' ' { '-' } else { c })
        .collect();
    let to_write: Vec<String> = lab
        .to_write()
        .map(|exercise| format!("`{}` ({} minutes)", exercise.name, exercise.minutes))
        .collect();
    format!(
        "<aside class=\"notes\">\n\n[The sheet](sheets.md#{place}) has what to type. To write: {}. [The page]({page}).\n\n</aside>\n",
        to_write.join(", "),
        page = format_args!("../{name}.md"),
    )
}

/// The first sentence below the picture on the lab's page, or else what the picture says of itself.
/// A long one ends at its colon.
fn caption(lab: &Lab, page: &str, picture: &str) -> String {
    let include = format!("/{}.svg}}}}", lab.picture);
    let below = page.split_once(&include).map(|(_, below)| below);
    let below = below.and_then(|below| below.split_once("</figure>")).map(|(figure, _)| figure);
    let inside = |text: &str, begins: &str, ends: &str| {
        let (_, rest) = text.split_once(begins)?;
        Some(rest.split_once(ends)?.0.to_string())
    };
    let caption = below.and_then(|figure| inside(figure, "<figcaption>", "</figcaption>"));
    let says = caption.or_else(|| inside(picture, "aria-label=\"", "\"")).unwrap_or_default();
    let until = |text: &str, mark: &str| text.split(mark).next().unwrap_or_default().to_string();
    let sentence = until(&says, ". ");
    let sentence = if sentence.len() > LONGEST {
        until(&sentence, ": ")
    } else {
        sentence
    };
    sentence.trim_end_matches('.').to_string()
}

/// The mistake that an output shows, if the command in its first line asks for one.
fn what_ran(output: &str) -> Option<String> {
    let typed = output.split("\n  ").next().unwrap_or_default();
    let mistake = typed.split("--break ").nth(1)?.split_whitespace().next()?;
    Some(format!("Break it: {}", mistake.replace('-', " ")))
}

fn takeaway(lab: &Lab, next: Option<&Lab>) -> String {
    let mut out = format!("<p class=\"large\">{}</p>", capitalized(&lab.takeaway));
    if let Some(next) = next {
        out += &format!("\n\nNext: {}, {}", next.name, next.announced);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."))
    }

    /// The decks that slides name, of all slides.
    fn names(decks: &str) -> BTreeSet<&str> {
        let all = decks.split("data-decks=\"").skip(1);
        all.flat_map(|rest| rest.split('"').next().unwrap().split('|')).collect()
    }

    #[test]
    fn every_lab_and_every_path_has_a_deck() {
        let mut course = Course::read().unwrap();
        let last = course.labs.last().unwrap().clone();
        course.labs.push(Lab { name: "lab99".into(), title: "Experts".into(), ..last });
        let aids = Aids::read(root()).unwrap();
        let decks = decks(&course, &aids, root()).unwrap();
        let names = names(&decks);
        for lab in &course.labs {
            let own = format!("data-decks=\"{}", lab.name);
            assert_eq!(decks.matches(&own).count(), 5, "{}", lab.name);
            for part in [&lab.question, &lab.takeaway[1..]] {
                assert!(decks.contains(part), "{part}");
            }
        }
        for path in ["90 minutes", "Half a day B", "Two days", "lab99"] {
            assert!(names.contains(path), "{path}: {names:?}");
        }
        assert!(decks.contains("\n## lab99 · Experts\n"));
        assert!(decks.contains("(sheets.md#lab04--who-holds-what)"));
        assert_eq!(decks.matches("\n## ").count(), 5 * course.labs.len());
        assert!(!decks.contains("\n## \n"), "a slide without a heading");
    }

    #[test]
    fn headings_come_from_the_page_and_the_command() {
        let lab = &Course::read().unwrap().labs[0];
        let picture = "<svg aria-label=\"Two nodes\">";
        let page = "<figure>\n{{#include ../outputs/nodes.svg}}\n<figcaption>One. Two.</figcaption>\n</figure>";
        assert_eq!(caption(lab, page, picture), "One");
        assert_eq!(caption(lab, "no figure", picture), "Two nodes");
        let broken = what_ran("$ cargo run --bin lab03 -- --break no-average\n");
        assert_eq!(broken.unwrap(), "Break it: no average");
        assert_eq!(what_ran("$ cargo run --bin lab03\n  check  --break x\n"), None);
    }

    #[test]
    fn only_a_page_with_a_place_gets_slides() {
        let course = Course::read().unwrap();
        let aids = Aids::read(root()).unwrap();
        let with_decks = |page: &str| with_decks(&course, &aids, root(), page).unwrap();
        assert_eq!(with_decks("# A\n"), "# A\n");
        let filled = with_decks(&format!("{PLACE}</section>\n"));
        assert!(filled.starts_with("<section class=\"slide\""));
    }
}
