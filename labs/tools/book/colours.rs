//! The colours of outputs. `book/outputs` holds what a command prints on a terminal, with its codes
//! for colours, and the preprocessor makes HTML of them.
//!
//! A rank has its colour on a page as in the terminal. The text on the page is text: it can be
//! selected, copied and searched, and says everything without colours.

use super::compare::pattern;
use regex::{Captures, Regex};
use std::borrow::Cow;
use std::sync::LazyLock;

/// `text` without codes, and without spaces at the ends of its lines.
pub fn plain(text: &str) -> String {
    let text = anstream::adapter::strip_str(text).to_string();
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// The page with its outputs in their colours: blocks that begin with ````
/// ```text ```` at a line's start, and have codes.
pub fn coloured(page: &str) -> String {
    const OPEN: &str = "\n```text\n";
    const CLOSE: &str = "\n```\n";
    let mut out = String::new();
    let mut rest = page;
    while let Some((before, inside)) = rest.split_once(OPEN) {
        let (block, after) = inside.split_once(CLOSE).unwrap_or((inside, ""));
        out += before;
        if DOTS.is_match(block) || block.contains('\x1b') {
            out += &format!(
                "\n<pre><code class=\"output nohighlight hljs\">{}\n</code></pre>\n",
                html(block)
            );
        } else {
            out += &[OPEN, block, CLOSE].concat();
        }
        rest = after;
    }
    out + rest
}

/// A text as HTML may hold it between its tags.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A text with codes as HTML. A class for each code says the colour: `book/shardlab.css` has them.
fn html(text: &str) -> String {
    let text = escaped(text);
    let text = curves(&text);
    let mut parts = text.split("\x1b[");
    let mut out = parts.next().unwrap_or_default().to_string();
    let mut open = 0;
    for part in parts {
        let (codes, words) = part.split_once('m').unwrap_or(("0", part));
        if codes == "0" {
            out += &"</span>".repeat(open);
            open = 0;
        } else {
            out += &format!("<span class=\"{}\">", classes(codes));
            open += 1;
        }
        out += words;
    }
    out + &"</span>".repeat(open)
}

/// Characters with which a terminal draws curves: the braille patterns, two by four dots.
static DOTS: LazyLock<Regex> = LazyLock::new(|| pattern(r"[\u{2800}-\u{28ff}]+"));

/// The text with its curves as SVG. Few of a browser's fonts have braille, and another font's
/// characters are wider than the rest of the line: curves would run past their axes.
fn curves(text: &str) -> Cow<'_, str> {
    DOTS.replace_all(text, |dots: &Captures| svg(&dots[0]))
}

/// Cells of two by four dots, each as wide as a character. A dot is a line without length and with
/// round ends.
fn svg(dots: &str) -> String {
    // Unicode numbers the dots of the left column 1, 2, 3, 7 and those of the right one 4, 5, 6, 8.
    const PLACES: [(usize, usize); 8] =
        [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)];
    let cells = dots.chars().count();
    let mut path = String::new();
    for (cell, pattern) in dots.chars().enumerate() {
        for (bit, (x, y)) in PLACES.into_iter().enumerate() {
            if (u32::from(pattern) - 0x2800) >> bit & 1 == 1 {
                path += &format!("M{} {}h0", 4 * cell + 2 * x + 1, 2 * y + 1);
            }
        }
    }
    let width = 4 * cells;
    format!(
        "<svg class=\"dots\" aria-hidden=\"true\" style=\"width:{cells}ch\" viewBox=\"0 0 {width} 8\" \
         preserveAspectRatio=\"none\"><path d=\"{path}\"/></svg>"
    )
}

/// The classes of a code: `1;38;5;137` is bold and one of 256 colours.
fn classes(codes: &str) -> String {
    let codes = codes.replace("38;5;", "");
    format!("ansi-{}", codes.replace(';', " ansi-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    const TEXT: &str = "$ cargo run --bin lab00\n  \x1b[33mrank 1\x1b[0m  took 12 ms \x1b[1;32m✓\x1b[0m\n  F0 <-\n";

    #[test]
    fn an_output_of_a_page_is_shown_in_colours_and_remains_text() {
        let page = format!("Words.\n\n```text\n{TEXT}```\n\nMore.\n\n```text\nelse\n```\n");
        let shown = coloured(&page);
        assert!(
            shown.contains("  <span class=\"ansi-33\">rank 1</span>  took 12 ms "),
            "{shown}"
        );
        assert!(shown.contains("</span>\n  F0 &lt;-\n</code></pre>\n\nMore."), "{shown}");
        assert!(shown.ends_with("\n```text\nelse\n```\n"), "{shown}");
        assert_eq!(plain(TEXT), "$ cargo run --bin lab00\n  rank 1  took 12 ms ✓\n  F0 <-\n");
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

    /// Every code has its look on pages.
    #[test]
    fn colours_are_those_of_the_style() {
        let book = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../book"));
        let style = std::fs::read_to_string(book.join("shardlab.css")).unwrap();
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(book.join("outputs")).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for part in text.split("\x1b[").skip(1) {
                let codes = part.split('m').next().unwrap_or_default();
                for class in classes(codes).split_whitespace().filter(|class| *class != "ansi-0") {
                    assert!(style.contains(&format!(".{class} ")), "{path:?}: {class}");
                    found.insert(class.to_string());
                }
            }
        }
        assert!(found.contains("ansi-32"), "no tick of a check is green: {found:?}");
    }
}
