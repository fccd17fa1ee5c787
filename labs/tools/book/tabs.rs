//! A listing in Rust with its twin in PyTorch: two tabs. A page has both one after the other, the
//! second as `python,twin`, and here they get their tabs. A third one follows where DeepSpeed has
//! its own way, as `python,deepspeed`.
//!
//! Printed, and without scripts, all stand below each other. `book/tabs.js` shows the one that the
//! reader has chosen, on all pages.

use anyhow::{Context, Result, ensure};
use std::fmt::Write;

const RUST: &str = "\n```rust\n";
const TWIN: &str = "\n```python,twin\n";
const ENGINE: &str = "\n```python,deepspeed\n";
const CLOSE: &str = "\n```\n";

/// The page in this file, with tabs for each pair of listings.
///
/// # Errors
///
/// Where a twin does not follow its listing in Rust, or a listing in DeepSpeed no twin.
pub fn with_tabs(file: &str, page: &str) -> Result<String> {
    let stem = file.trim_end_matches(".md").replace('/', "-");
    let mut out = String::new();
    let mut rest = page;
    let mut number = 0;
    while let Some((before, twin)) = rest.split_once(TWIN) {
        number += 1;
        let which = || format!("twin {number}");
        let start = before.rfind(RUST).with_context(|| format!("{}: no listing", which()))?;
        let (text, listing) = (&before[..start], &before[start + RUST.len()..]);
        let (rust, between) = listing.split_once(CLOSE).with_context(which)?;
        ensure!(between.trim().is_empty(), "{} follows no listing in Rust", which());
        let (python, mut after) = twin.split_once(CLOSE).with_context(which)?;
        let mut listings = vec![("rust", rust), ("pytorch", python)];
        if let Some(engine) = after.strip_prefix(ENGINE) {
            let (python, rest) = engine.split_once(CLOSE).with_context(which)?;
            listings.push(("deepspeed", python));
            after = rest;
        }
        out += text;
        out += &tabs(&format!("{stem}-{number}"), &listings)?;
        rest = after;
    }
    ensure!(!rest.contains(ENGINE), "a listing in DeepSpeed follows no twin");
    Ok(out + rest)
}

/// The listings, each in its panel below the tabs. `id` is theirs, in the whole book.
fn tabs(id: &str, listings: &[(&str, &str)]) -> Result<String> {
    let panels = listings.iter().map(|&(kind, listing)| {
        let name = match kind {
            "pytorch" => "PyTorch",
            "deepspeed" => "DeepSpeed",
            _ => return (kind, "Rust", format!("```rust\n{listing}\n```")),
        };
        let runs = format!("In {name}. It runs beside the lab, and [both must arrive at the same numbers](from-here.md#the-same-numbers-on-both-sides).");
        (kind, name, format!("{runs}\n\n```python\n{listing}\n```"))
    });
    let panels: Vec<(&str, &str, String)> = panels.collect();
    let mut out = "\n<div class=\"twins\">\n".to_owned();
    out += "<div role=\"tablist\" aria-label=\"The listing in\">";
    for (i, (kind, name, _)) in panels.iter().enumerate() {
        let [selected, index] = if i == 0 { ["true", "0"] } else { ["false", "-1"] };
        write!(
            out,
            "<button type=\"button\" role=\"tab\" id=\"tab-{kind}-{id}\" aria-controls=\"in-{kind}-{id}\" \
             aria-selected=\"{selected}\" tabindex=\"{index}\" data-in=\"{kind}\">{name}</button>"
        )?;
    }
    out += "</div>\n";
    for (kind, _, listing) in &panels {
        write!(
            out,
            "<div role=\"tabpanel\" id=\"in-{kind}-{id}\" aria-labelledby=\"tab-{kind}-{id}\" data-in=\"{kind}\">\n\n\
             {listing}\n\n</div>\n"
        )?;
    }
    Ok(out + "</div>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_and_its_twin_get_two_tabs_with_names_of_their_own() {
        let pair = "\n```rust\nfn a() {}\n```\n\n```python,twin\ndef a(): 0\n```\n";
        let page = format!("# A\n\n```rust\nlet b;\n```\n\nText:\n{pair}\nMore:\n{pair}\nEnd.\n");
        let page = with_tabs("teach/a.md", &page).unwrap();
        let begin = "# A\n\n```rust\nlet b;\n```\n\nText:\n\n<div class=\"twins\">\n";
        assert!(page.starts_with(begin) && page.ends_with("</div>\n\nEnd.\n"), "{page}");
        assert_eq!(page.matches("role=\"tab\"").count(), 4, "{page}");
        for named in ["tab-rust-teach-a-1", "tab-pytorch-teach-a-2"] {
            let both = [format!("id=\"{named}\""), format!("aria-labelledby=\"{named}\"")];
            assert!(both.iter().all(|part| page.matches(&**part).count() == 1), "{page}");
        }
        assert_eq!(page.matches("\n\n```rust\nfn a() {}\n```\n\n</div>").count(), 2, "{page}");
        assert_eq!(page.matches("\n\n```python\ndef a(): 0\n```\n\n</div>").count(), 2, "{page}");
    }

    #[test]
    fn a_listing_in_deepspeed_gets_a_third_tab_and_only_after_a_twin() {
        let rust = "\n```rust\nfn a() {}\n```\n";
        let twin = "\n```python,twin\ndef a(): 0\n```\n";
        let engine = "\n```python,deepspeed\ndef b(): 0\n```\n";
        let page = with_tabs("a.md", &format!("Text:\n{rust}{twin}{engine}\nEnd.\n")).unwrap();
        assert_eq!(page.matches("role=\"tab\"").count(), 3, "{page}");
        assert_eq!(page.matches("aria-selected=\"true\"").count(), 1, "{page}");
        assert!(
            page.contains("\n\n```python\ndef b(): 0\n```\n\n</div>\n</div>\n\nEnd."),
            "{page}"
        );
        assert!(with_tabs("a.md", &format!("{rust}{engine}")).is_err());
        assert!(with_tabs("a.md", &format!("{rust}{twin}\nText.\n{engine}")).is_err());
    }

    #[test]
    fn a_twin_without_its_listing_is_an_error() {
        let twin = "\n```python,twin\n0\n```\n";
        for before in ["", "\n```rust\nlet a;\n```\n\nText between.\n", "\n```sh\nls\n```\n"] {
            assert!(with_tabs("a.md", &format!("{before}{twin}")).is_err(), "{before}");
        }
    }
}
