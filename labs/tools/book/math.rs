//! Formulas: `$...$` in a line and `$$...$$` alone on lines are TeX in the pages and MathML in the
//! book, which browsers draw themselves: no script, no font, no network.

use super::aids::Aids;
use super::answers::with_answers;
use super::colours::coloured;
use super::decks::with_decks;
use super::predictions::with_questions;
use super::tabs::with_tabs;
use anyhow::{Context, Result, bail};
use kit::Course;
use pulldown_latex::config::DisplayMode;
use pulldown_latex::{Parser, RenderConfig, Storage, mathml};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;

/// mdBook's preprocessor: reads (context, book) as JSON from stdin, writes the book with its
/// formulas as MathML, its outputs in their colours, tabs, and aids to reading, to stdout. With the
/// arguments `supports RENDERER` it only says, by its success, that it is: the book is made as HTML
/// alone.
///
/// # Errors
///
/// Where stdin is not what mdBook writes, or a formula is no TeX.
pub fn preprocess(args: &[String]) -> Result<()> {
    if !args.is_empty() {
        return Ok(());
    }
    let mut json = String::new();
    std::io::stdin()
        .read_to_string(&mut json)
        .context("cannot read what mdBook hands over")?;
    let mut both: [Value; 2] =
        serde_json::from_str(&json).context("mdBook hands over (context, book) as JSON")?;
    let [context, book] = &mut both;
    let folder = context["root"].as_str().context("mdBook hands over where the book is")?;
    let root = Path::new(folder).parent().context("the book is in the checkout")?.to_owned();
    let course = Course::read()?;
    let aids = Aids::read(&root)?;
    pages(book, &|file, page| {
        let page = with_decks(&course, &aids, &root, page)?;
        let page = with_answers(&course, &root, &page)?;
        let page = with_tabs(file, &page)?;
        let page = coloured(&mathml_of_page(&aids.add(file, &page))?);
        with_questions(file, &page)
    })?;
    std::io::stdout()
        .write_all(serde_json::to_string(book)?.as_bytes())
        .context("cannot write the book")
}

/// Converts every chapter's text, however deep it lies, from its file's name and the text.
fn pages(value: &mut Value, convert: &impl Fn(&str, &str) -> Result<String>) -> Result<()> {
    match value {
        Value::Array(items) => items.iter_mut().try_for_each(|item| pages(item, convert)),
        Value::Object(fields) => {
            let text = |field| fields.get(field).and_then(Value::as_str).unwrap_or_default();
            let [name, file] = ["name", "path"].map(|field| text(field).to_owned());
            if let Some(Value::String(content)) = fields.get_mut("content") {
                *content = convert(&file, content).with_context(|| format!("in {name:?}"))?;
            }
            fields.values_mut().try_for_each(|field| pages(field, convert))
        }
        _ => Ok(()),
    }
}

/// The page with its formulas as MathML. Code, in a line or fenced, stays as it is.
///
/// # Errors
///
/// Where a formula is no TeX, or does not end.
pub fn mathml_of_page(page: &str) -> Result<String> {
    let mut out = String::new();
    let mut fence: Option<&str> = None;
    let mut prose = String::new();
    for line in page.split_inclusive('\n') {
        let start = line.trim_start();
        let marks = ["```", "~~~"].into_iter().find(|marks| start.starts_with(marks));
        match (fence, marks) {
            (None, Some(marks)) => {
                out += &mathml_of_prose(&std::mem::take(&mut prose))?;
                out += line;
                fence = Some(marks);
            }
            (Some(open), marks) => {
                out += line;
                fence = (marks != Some(open)).then_some(open);
            }
            (None, None) => prose += line,
        }
    }
    Ok(out + &mathml_of_prose(&prose)?)
}

fn mathml_of_prose(prose: &str) -> Result<String> {
    let mut out = String::new();
    let mut rest = prose;
    while let Some(at) = rest.find(['`', '$']) {
        out += &rest[..at];
        rest = &rest[at..];
        let first = if rest.starts_with('`') { '`' } else { '$' };
        let marks = &rest[..rest.chars().take_while(|&c| c == first).count()];
        let inside = &rest[marks.len()..];
        let Some(end) = inside.find(marks) else {
            let line = inside.lines().next().unwrap_or_default();
            bail!("{marks} is opened and not closed, before {line:?}");
        };
        let content = &inside[..end];
        rest = &inside[end + marks.len()..];
        match (first, marks.len()) {
            ('`', _) => out += &format!("{marks}{content}{marks}"),
            (_, 1) => out += &mathml(content, DisplayMode::Inline)?,
            (_, 2) => {
                out += &format!(
                    "<div class=\"formula\">{}</div>",
                    mathml(content, DisplayMode::Block)?
                )
            }
            (_, n) => bail!("a formula is opened by $ or $$, not by {n} of them"),
        }
    }
    Ok(out + rest)
}

fn mathml(tex: &str, display_mode: DisplayMode) -> Result<String> {
    let storage = Storage::new();
    let mut out = String::new();
    let parser = Parser::new(tex.trim(), &storage);
    let config = RenderConfig { display_mode, ..RenderConfig::default() };
    let events: Result<Vec<_>, _> = parser.collect();
    let events = events.map_err(|error| anyhow::anyhow!("the formula {tex:?}: {error}"))?;
    let events = events.into_iter().map(Ok::<_, std::convert::Infallible>);
    mathml::push_mathml(&mut out, events, config)
        .with_context(|| format!("the formula {tex:?}"))?;
    // Not by the font: without one for mathematics the sign is as small as a letter.
    let sum = "<mo movablelimits=\"false\">∑</mo>";
    let sized = sum.replace("<mo ", "<mo class=\"sum\" largeop=\"false\" ");
    let out = out.replace(sum, &sized);
    // A line end or a Markdown mark inside would end the HTML, or become emphasis.
    Ok(out.replace('\n', "").replace('*', "&#42;").replace('_', "&#95;"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_become_mathml_and_code_stays() -> Result<()> {
        let page =
            "Cost $\\frac{a}{b}$ and `$HOME`.\n\n```sh\n$ cargo run   # $x$\n```\n\n$$x_1 * y$$\n";
        let html = mathml_of_page(page)?;
        assert!(
            html.contains("<mfrac>")
                && html.contains("`$HOME`")
                && html.contains("$ cargo run   # $x$\n")
        );
        assert!(html.contains("<div class=\"formula\"><math display=\"block\""), "{html}");
        let sum = mathml_of_page("$$\\sum_{r=0}^{n-1} G_r$$\n")?;
        assert!(sum.contains("<mo class=\"sum\" largeop=\"false\" movable"), "{sum}");
        assert!(!html.contains("$$") && html.matches("<math").count() == 2, "{html}");
        let formula = &html[html.find("<div").unwrap()..];
        assert!(!formula.contains(['*', '_']), "{formula}");
        Ok(())
    }

    #[test]
    fn what_cannot_be_a_formula_is_an_error_with_its_place() {
        for (page, part) in [
            ("a $ b", "not closed"),
            ("$\\frac{1}$", "frac"),
            ("$\\nosuchthing$", "nosuchthing"),
        ] {
            let error = format!("{:#}", mathml_of_page(page).unwrap_err());
            assert!(error.contains(part), "{page}: {error}");
        }
    }

    #[test]
    fn every_chapter_of_mdbooks_json_is_converted() -> Result<()> {
        let mut book = serde_json::json!({"items": [{"Chapter": {"name": "a", "content": "$x$", "sub_items": [
            {"Chapter": {"name": "b", "content": "$y$", "sub_items": []}}]}}, "Separator"]});
        pages(&mut book, &|_, page| mathml_of_page(page))?;
        let json = book.to_string();
        assert_eq!(json.matches("<math").count(), 2, "{json}");
        Ok(())
    }
}
