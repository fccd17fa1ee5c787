//! A listing in Rust with its twin in PyTorch: two tabs. A page has both one after the other, the
//! second as `python,twin`, and here they get their tabs.
//!
//! Printed, and without scripts, both stand below each other. `book/tabs.js` shows the one that the
//! reader has chosen, on all pages.

use anyhow::{Context, Result, ensure};
use std::fmt::Write;

const RUST: &str = "\n```rust\n";
const TWIN: &str = "\n```python,twin\n";
const CLOSE: &str = "\n```\n";

/// The page in this file, with tabs for each pair of listings.
///
/// # Errors
///
/// Where a twin does not follow its listing in Rust.
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
        let (python, after) = twin.split_once(CLOSE).with_context(which)?;
        out += text;
        out += &tabs(&format!("{stem}-{number}"), rust, python)?;
        rest = after;
    }
    Ok(out + rest)
}

/// Both listings, each in its panel below the tabs. `id` is the pair's, in the whole book.
fn tabs(id: &str, rust: &str, python: &str) -> Result<String> {
    let in_pytorch = "In PyTorch. It runs beside the lab, and [both must arrive at the same numbers](from-here.md#the-same-numbers-on-both-sides).";
    let panels = [
        ("rust", "Rust", format!("```rust\n{rust}\n```")),
        ("pytorch", "PyTorch", format!("{in_pytorch}\n\n```python\n{python}\n```")),
    ];
    let mut out = "\n<div class=\"twins\">\n".to_owned();
    out += "<div role=\"tablist\" aria-label=\"The listing in\">";
    for (i, (kind, name, _)) in panels.iter().enumerate() {
        let [selected, index] = [["true", "0"], ["false", "-1"]][i];
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
    fn a_twin_without_its_listing_is_an_error() {
        let twin = "\n```python,twin\n0\n```\n";
        for before in ["", "\n```rust\nlet a;\n```\n\nText between.\n", "\n```sh\nls\n```\n"] {
            assert!(with_tabs("a.md", &format!("{before}{twin}")).is_err(), "{before}");
        }
    }
}
