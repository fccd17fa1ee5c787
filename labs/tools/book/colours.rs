//! The colours of outputs. `book/outputs` holds what a command prints as plain text. `book/colours`
//! holds the same text with a terminal's colour codes, and the preprocessor shows it in place of
//! the plain one.
//!
//! A rank has its colour on a page as in the terminal. The text on the page is text: it can be
//! selected, copied and searched, and says everything without colours.

use anyhow::{Context, Result};
use std::collections::HashMap;
use std::path::Path;

/// A letter, and the codes of its colour (`1;32`), which are empty where it has none.
type Painted = (char, String);

/// The letters of a line that has colour codes (`ESC [ … m`).
fn painted(line: &str) -> Vec<Painted> {
    let mut all = Vec::new();
    let mut codes = String::new();
    let mut rest = line.chars();
    while let Some(letter) = rest.next() {
        if letter != '\x1b' {
            all.push((letter, codes.clone()));
            continue;
        }
        let code: String =
            rest.by_ref().skip_while(|&c| c == '[').take_while(|&c| c != 'm').collect();
        if code.is_empty() || code == "0" {
            codes.clear();
        } else if codes.is_empty() {
            codes = code;
        } else {
            codes = format!("{codes};{code}");
        }
    }
    all
}

/// `text` without colour codes.
pub fn plain(text: &str) -> String {
    painted(text).into_iter().map(|(letter, _)| letter).collect()
}

/// Neighbours of one colour, and its codes.
fn runs(line: &[Painted]) -> impl Iterator<Item = (&str, String)> {
    line.chunk_by(|a, b| a.1 == b.1)
        .map(|run| (run[0].1.as_str(), run.iter().map(|one| one.0).collect()))
}

/// The one colour of each sign of drawings (`▓`). A sign that has several has none here.
fn signs(lines: &[Vec<Painted>]) -> HashMap<char, String> {
    let mut all: HashMap<char, Option<String>> = HashMap::new();
    for (sign, codes) in lines.iter().flatten() {
        if sign.is_ascii() || sign.is_alphanumeric() || codes.is_empty() {
            continue;
        }
        let hue = codes.trim_start_matches("7;");
        let known = all.entry(*sign).or_insert(Some(hue.to_string()));
        if known.as_deref() != Some(hue) {
            *known = None;
        }
    }
    all.into_iter().filter_map(|(sign, codes)| Some((sign, codes?))).collect()
}

/// `text` in the colours of another run of its command. A line that differs in digits alone has the
/// other's colours. In a drawing of other times, each sign has its own colour, and all else none.
/// `None` where nothing has a colour.
pub fn repainted(text: &str, colours: &str) -> Option<String> {
    let digits = |line: &str| line.replace(|c: char| c.is_ascii_digit(), "0");
    let letters = |line: &[Painted]| line.iter().map(|one| one.0).collect::<String>();
    let others: Vec<Vec<Painted>> = colours.lines().map(painted).collect();
    let signs = signs(&others);
    let mut from = 0;
    let mut any = false;
    let mut out = String::new();
    for (at, line) in text.lines().enumerate() {
        let alike = |other: &Vec<Painted>| digits(letters(other).trim_end()) == digits(line);
        // The drawing at its place, if all of its signs have the colours that it would give them.
        let agrees = |other: &&Vec<Painted>| {
            let same = |(sign, (_, codes)): (char, &Painted)| match signs.get(&sign) {
                Some(own) => own == codes.trim_start_matches("7;"),
                None => true,
            };
            letters(other).trim_end().chars().count() == line.chars().count()
                && line.chars().zip(other.iter()).all(same)
        };
        let other = match others[from..].iter().position(alike) {
            Some(ahead) => {
                from += ahead + 1;
                Some(&others[from - 1])
            }
            None => others.get(at).filter(agrees),
        };
        let codes = |i: usize, letter| match other {
            Some(other) => other.get(i).map(|one| one.1.clone()),
            None => signs.get(&letter).cloned(),
        };
        let line: Vec<Painted> = line
            .chars()
            .enumerate()
            .map(|(i, letter)| (letter, codes(i, letter).unwrap_or_default()))
            .collect();
        for (codes, words) in runs(&line) {
            if codes.is_empty() {
                out += &words;
            } else {
                any = true;
                out += &format!("\x1b[{codes}m{words}\x1b[0m");
            }
        }
        out.push('\n');
    }
    any.then_some(out)
}

/// A text with colour codes as a block of HTML. A class for each code says the colour:
/// `book/shardlab.css` has them.
fn html(text: &str) -> String {
    let escaped =
        |words: &str| words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut out = String::from("<pre><code class=\"output nohighlight hljs\">");
    for line in text.lines() {
        for (codes, words) in runs(&painted(line)) {
            let words = escaped(&words);
            match classes(codes) {
                classes if classes.is_empty() => out += &words,
                classes => out += &format!("<span class=\"{classes}\">{words}</span>"),
            }
        }
        out.push('\n');
    }
    out + "</code></pre>\n"
}

/// The classes of colour codes: `1;38;5;137` is bold and one of 256 colours.
fn classes(codes: &str) -> String {
    let mut all = Vec::new();
    let mut rest = codes.split(';').filter(|code| !code.is_empty());
    while let Some(code) = rest.next() {
        all.push(match code {
            "38" => format!("ansi-{}", rest.nth(1).unwrap_or_default()),
            code => format!("ansi-{code}"),
        });
    }
    all.join(" ")
}

/// All outputs that have colours, by their plain text.
pub struct Colours(HashMap<String, String>);

impl Colours {
    /// Those of the book in the folder `book`.
    ///
    /// # Errors
    ///
    /// Where its folder `colours` cannot be read.
    pub fn of(book: &Path) -> Result<Colours> {
        let mut all = HashMap::new();
        let folder = book.join("colours");
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let key = text.lines().map(plain).map(|line| line + "\n").collect();
            all.insert(key, html(&text));
        }
        Ok(Colours(all))
    }

    /// The page with its outputs in their colours: blocks that begin with ````
    /// ```text ```` at a line's start.
    pub fn of_page(&self, page: &str) -> String {
        const OPEN: &str = "```text\n";
        let mut out = String::new();
        let mut rest = page;
        while let Some(at) = rest.find(OPEN) {
            let starts_a_line = at == 0 || rest[..at].ends_with('\n');
            let inside = &rest[at + OPEN.len()..];
            let block = inside.split_once("\n```\n").map(|(block, _)| block);
            let found = block.and_then(|block| self.0.get(&format!("{}\n", block.trim_end())));
            match (starts_a_line, block, found) {
                (true, Some(block), Some(html)) => {
                    out += &rest[..at];
                    out += html;
                    rest = &inside[block.len() + "\n```\n".len()..];
                }
                _ => {
                    out += &rest[..at + OPEN.len()];
                    rest = inside;
                }
            }
        }
        out + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "$ cargo run --bin lab00\n  rank 1  took 12 ms ✓\n  F0B0 <-\n";
    const OTHER: &str = "$ cargo run --bin lab00\n  \x1b[33mrank 1\x1b[0m  took 37 ms \x1b[32m✓\x1b[0m\n  \x1b[35m 0\x1b[0m\x1b[32m 0\x1b[0m <-\n";
    const PAINTED: &str = "$ cargo run --bin lab00\n  \x1b[33mrank 1\x1b[0m  took 12 ms \x1b[32m✓\x1b[0m\n  \x1b[35mF0\x1b[0m\x1b[32mB0\x1b[0m <-\n";

    #[test]
    fn text_stays_and_takes_the_colours_of_another_run() {
        let painted = repainted(TEXT, OTHER).unwrap();
        assert_eq!(painted, PAINTED);
        assert_eq!(plain(&painted), TEXT);
        assert_eq!(repainted(TEXT, TEXT), None);
        // A drawing of other times has the colours of its signs.
        let legend = "\x1b[35m▓\x1b[0m forward\n\x1b[35m▓▓\x1b[0m0\n";
        let drawn = repainted("▓ forward\n0▓\n", legend).unwrap();
        assert_eq!(drawn, "\x1b[35m▓\x1b[0m forward\n0\x1b[35m▓\x1b[0m\n");
        // A line that came or went leaves the others their colours.
        let later = repainted(TEXT, &OTHER.replacen('\n', "\nnew\n", 1)).unwrap();
        assert!(later.contains("\x1b[33mrank 1"), "{later:?}");
    }

    #[test]
    fn an_output_of_a_page_is_shown_in_colours_and_remains_text() {
        let colours = Colours(HashMap::from([(TEXT.to_string(), html(PAINTED))]));
        let page = format!("Words.\n\n```text\n{TEXT}```\n\nMore.\n\n```text\nelse\n```\n");
        let shown = colours.of_page(&page);
        assert!(
            shown.contains("  <span class=\"ansi-33\">rank 1</span>  took 12 ms "),
            "{shown}"
        );
        assert!(shown.contains("</span> &lt;-\n</code></pre>\n\nMore."), "{shown}");
        assert!(shown.ends_with("```text\nelse\n```\n"), "{shown}");
        assert_eq!(classes("1;38;5;137"), "ansi-1 ansi-137");
    }

    /// A colour as the parts of red, green and blue.
    fn parts(colour: &str) -> [f64; 3] {
        [1, 3, 5].map(|i| f64::from(u8::from_str_radix(&colour[i..i + 2], 16).unwrap()) / 255.0)
    }

    /// So much of the first colour, and the rest of the second.
    fn mixed(one: [f64; 3], share: f64, other: [f64; 3]) -> [f64; 3] {
        [0, 1, 2].map(|i| share * one[i] + (1.0 - share) * other[i])
    }

    fn luminance(colour: [f64; 3]) -> f64 {
        let linear = |c: f64| match c <= 0.04045 {
            true => c / 12.92,
            false => ((c + 0.055) / 1.055).powf(2.4),
        };
        let [r, g, b] = colour.map(linear);
        0.2126 * r + 0.7152 * g + 0.0722 * b
    }

    /// Letters of each colour can be read in each of mdBook's themes: a contrast of 4.5, as WCAG
    /// asks for text.
    #[test]
    fn coloured_letters_can_be_read_in_all_themes() {
        let book = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../book"));
        let style = std::fs::read_to_string(book.join("shardlab.css")).unwrap();
        assert!(style.contains("--box: color-mix(in srgb, var(--fg) 5%, var(--bg))"));
        let mixed_letters = "color-mix(in srgb, var(--hue, var(--fg)) var(--share), var(--pole))";
        for rule in [
            mixed_letters,
            ":root { --pole: #ffffff; --share: 65%; }",
            ":root.light { --pole: #000000; }",
            ":root.rust { --pole: #000000; --share: 55%; }",
        ] {
            assert!(style.contains(rule), "{rule}");
        }
        // The colours of letters and page, and what hues are mixed with: light, rust, coal, navy,
        // ayu.
        let themes = [
            ("#000000", "#ffffff", "#000000", 0.65),
            ("#262625", "#e1e1db", "#000000", 0.55),
            ("#98a3ad", "#131516", "#ffffff", 0.65),
            ("#bcbdd0", "#161923", "#ffffff", 0.65),
            ("#c5c5c5", "#0f1419", "#ffffff", 0.65),
        ];
        for rule in style.lines().filter(|line| line.starts_with(".ansi-")) {
            let Some((_, hue)) = rule.split_once("--hue: ") else {
                continue;
            };
            for (letters, page, pole, share) in themes {
                let [letters, page, pole] = [letters, page, pole].map(parts);
                let box_ = luminance(mixed(letters, 0.05, page));
                let hue = luminance(mixed(parts(hue), share, pole));
                let contrast = (hue.max(box_) + 0.05) / (hue.min(box_) + 0.05);
                assert!(contrast >= 4.5, "{rule} {contrast:.1} on {page:?}");
            }
        }
    }

    /// What has colours says what the plain output says, and every colour has its look on pages.
    #[test]
    fn colours_are_those_of_the_outputs() {
        let book = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../book"));
        let style = std::fs::read_to_string(book.join("shardlab.css")).unwrap();
        for entry in std::fs::read_dir(book.join("colours")).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let output = std::fs::read_to_string(book.join(format!("outputs/{name}.txt")));
            assert_eq!(
                plain(&text),
                output.unwrap_or_default(),
                "{name}: run `cargo run --bin book -- outputs {name} --colours`"
            );
            for line in text.lines() {
                for (codes, _) in runs(&painted(line)) {
                    for class in classes(codes).split_whitespace() {
                        assert!(style.contains(&format!(".{class} ")), "{name}: {class}");
                    }
                }
            }
        }
    }
}
