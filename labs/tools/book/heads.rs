//! What a page's head says of it: a link that is pasted into a chat or found by a search shows it,
//! with a picture.
//!
//! mdBook gives all pages one description. The project's address comes from one place: the key
//! `repository` of `Cargo.toml`. While that is a comment, a page names its picture by its place in
//! the book, which some readers of heads cannot follow. The same key makes a link of the words that
//! say where to report what is wrong. A page's scripts are told to wait for it.

use super::colours::escaped;
use super::compare::pattern;
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// The picture, seen from the book's folder.
const PICTURE: &str = "card.png";

/// The longest description: search engines cut the rest.
const LONGEST: usize = 200;

/// Writes the head of each page of the built book in `folder`.
///
/// # Errors
/// If a page cannot be read or written, or has no head by mdBook.
pub fn write(root: &Path, folder: &Path) -> Result<()> {
    let sources = root.join("book/src");
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"))?;
    let site = site(&manifest);
    std::fs::copy(root.join("book").join(PICTURE), folder.join(PICTURE))
        .with_context(|| format!("cannot copy {PICTURE}"))?;
    for page in pages(&std::fs::read_to_string(sources.join("SUMMARY.md"))?) {
        let path = folder.join(&page).with_extension("html");
        let says = || format!("cannot read {}", path.display());
        let html = std::fs::read_to_string(&path).with_context(says)?;
        let markdown = std::fs::read_to_string(sources.join(&page))?;
        let html = with_head(&html, &markdown, &page, site.as_deref())
            .with_context(|| path.display().to_string())?;
        let html = painted_first(&with_reports(html, repository(&manifest)));
        std::fs::write(&path, html)?;
    }
    Ok(())
}

/// The files of all pages, as the summary links them.
pub(super) fn pages(summary: &str) -> Vec<String> {
    let links = summary.split("](").skip(1);
    links.filter_map(|link| Some(link.split_once(')')?.0.to_string())).collect()
}

/// The address of the project, if it has said one.
fn repository(manifest: &str) -> Option<&str> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("repository = \""))?;
    Some(line.trim_end_matches('"').trim_end_matches('/'))
}

/// The address of the book where GitHub serves it, if the project has said its own.
fn site(manifest: &str) -> Option<String> {
    let (owner, name) =
        repository(manifest)?.strip_prefix("https://github.com/")?.split_once('/')?;
    Some(format!("https://{}.github.io/{name}/", owner.to_lowercase()))
}

/// Words of a page that say where to report what is wrong.
const REPORT: &str = "<span class=\"report\">where you got this book</span>";

/// Makes a link of these words, if the project has an address.
fn with_reports(html: String, repository: Option<&str>) -> String {
    match repository {
        Some(address) => {
            html.replace(REPORT, &format!("<a href=\"{address}/issues\">at {address}/issues</a>"))
        }
        None => html,
    }
}

/// Lets the project's own scripts run when the page has been read: mdBook has browsers fetch all of
/// them, one after the other, before they paint.
fn painted_first(html: &str) -> String {
    let ours = pattern(r#"<script src="((?:\.\./)*(?:figures/|run/|teach/|aids-|tabs-))"#);
    ours.replace_all(html, r#"<script defer src="$1"#).into_owned()
}

fn with_head(html: &str, markdown: &str, page: &str, site: Option<&str>) -> Result<String> {
    let start = html.find("<meta name=\"description\"").context("no description by mdBook")?;
    let end = start + html[start..].find('>').context("a head that ends")? + 1;
    let title = markdown.lines().next().and_then(|line| line.strip_prefix("# "));
    let title = escaped(title.context("a page begins with its title")?);
    let says = description(markdown);
    ensure!(!says.is_empty(), "its first paragraph says nothing");
    let says = escaped(&says).replace('"', "&quot;");
    let above = "../".repeat(page.matches('/').count());
    let picture = format!("{}{PICTURE}", site.unwrap_or(&above));
    let head = format!(
        "<meta name=\"description\" content=\"{says}\">\n        \
         <meta property=\"og:type\" content=\"article\">\n        \
         <meta property=\"og:site_name\" content=\"shardlab\">\n        \
         <meta property=\"og:title\" content=\"{title}\">\n        \
         <meta property=\"og:description\" content=\"{says}\">\n        \
         <meta property=\"og:image\" content=\"{picture}\">\n        \
         <meta name=\"twitter:card\" content=\"summary_large_image\">"
    );
    Ok(format!("{}{head}{}", &html[..start], &html[end..]))
}

/// The first sentences of a page, without their marks of Markdown: in most of them the question
/// below the title.
fn description(markdown: &str) -> String {
    let blocks = markdown.split("\n\n").skip(1).map(str::trim);
    let prose = |block: &&str| {
        !block.is_empty() && !block.starts_with(['<', '>', '{', '`', '|', '$', '#', '!', '-'])
    };
    let mut block = blocks.filter(prose).filter(|block| !block.starts_with("Takes ["));
    // A link is its words.
    let text = pattern(r"\]\([^)]*\)?").replace_all(block.next().unwrap_or_default(), "");
    let text = text.replace(['*', '`', '[', '$'], "").replace('\n', " ");
    if text.len() <= LONGEST {
        return text;
    }
    let ends = text.match_indices(". ").map(|(at, _)| at + 1);
    match ends.take_while(|&end| end <= LONGEST).last() {
        Some(end) => text[..end].to_string(),
        None => {
            let words = &text[..text.floor_char_boundary(LONGEST - 1)];
            format!("{} …", words.rsplit_once(' ').map_or(words, |(words, _)| words))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_scripts_wait_and_mdbooks_do_not() {
        let scripts =
            r#"<script src="../book-1.js"></script><script src="../run/a-2.js"></script>"#;
        let waits =
            r#"<script src="../book-1.js"></script><script defer src="../run/a-2.js"></script>"#;
        assert_eq!(painted_first(scripts), waits);
    }

    #[test]
    fn a_page_is_described_by_its_question_or_its_first_sentences() {
        let asks = "# lab\n\n*What is `x`?*\n\n1 second to run\n";
        assert_eq!(description(asks), "What is x?");
        let told = "# A\n\nTakes [5 minutes](x.md).\n\n<nav>\n</nav>\n\nOf [one](a.md) and two.\n";
        assert_eq!(description(told), "Of one and two.");
        let long = format!("# A\n\nOne. Two. {}\n", "word ".repeat(100));
        assert_eq!(description(&long), "One. Two.");
        let endless = description(&format!("# A\n\n{}\n", "wörd ".repeat(100)));
        assert!(endless.len() < 210 && endless.ends_with("wörd …"), "{endless}");
    }

    #[test]
    fn a_head_names_title_description_and_picture() {
        let html = "<head>\n<meta name=\"description\" content=\"all\">\n</head>";
        let markdown = "# A & B\n\n*\"Why\"?*\n";
        let there = site("x\nrepository = \"https://github.com/Some/book\"\n");
        let head = with_head(html, markdown, "teach/a.md", there.as_deref()).unwrap();
        for part in [
            "name=\"description\" content=\"&quot;Why&quot;?\"",
            "og:title\" content=\"A &amp; B\"",
            "og:image\" content=\"https://some.github.io/book/card.png\"",
        ] {
            assert!(head.contains(part), "{part} in {head}");
        }
        assert_eq!(site("# repository = \"…\"\n"), None);
        let words = format!("Report it {REPORT}.");
        assert_eq!(with_reports(words.clone(), repository("# repository = \"…\"\n")), words);
        let linked = with_reports(words, repository("repository = \"https://a.org/b/\"\n"));
        assert!(linked.contains("<a href=\"https://a.org/b/issues\">"), "{linked}");
        let index = include_str!("../../../book/src/index.md");
        assert_eq!(index.matches(REPORT).count(), 1);
        let head = with_head(html, markdown, "teach/a.md", None).unwrap();
        assert!(head.contains("og:image\" content=\"../card.png\""), "{head}");
        assert!(with_head("<head></head>", markdown, "a.md", None).is_err());
    }
}
