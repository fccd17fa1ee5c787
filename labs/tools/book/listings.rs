//! Listings as wide as a page: comments that are longer than a hundred columns are folded. Code is not touched: rustfmt keeps it
//! within them.

/// Columns that a listing has room for beside the book's list of pages, in a window of 1,280 pixels.
const COLUMNS: usize = 100;

/// The page, with the long comments of its Rust and Python folded.
pub fn narrow(page: &str) -> String {
    let mut out = String::new();
    let mut mark = None;
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            mark = match (mark, language.trim_end()) {
                (None, "rust") => Some("// "),
                (None, "python") => Some("# "),
                _ => None,
            };
        }
        let long = line.chars().count() > COLUMNS;
        let found = mark.filter(|_| long).and_then(|mark| split(line, mark));
        let Some(comment) = found else {
            out += &format!("{line}\n");
            continue;
        };
        // The sentences of the lines below go on after it.
        let mut text = comment.text.to_string();
        while comment.code.is_none()
            && let Some(next) = lines.peek().and_then(|next| split(next, comment.mark))
            && next.continues(&comment)
        {
            text += &format!(" {}", next.text);
            lines.next();
        }
        out += &folded(&comment, &text);
    }
    out
}

/// A line's comment.
struct Comment<'a> {
    indent: &'a str,
    /// `///` or `//` or `#`, and a space.
    mark: &'a str,
    text: &'a str,
    /// What comes before it.
    code: Option<&'a str>,
}

impl Comment<'_> {
    /// Whether it is the next line of the same paragraph.
    fn continues(&self, first: &Comment) -> bool {
        let same = (self.indent, self.mark) == (first.indent, first.mark);
        same && self.code.is_none() && self.text.starts_with(char::is_alphanumeric)
    }
}

fn split<'a>(line: &'a str, mark: &'a str) -> Option<Comment<'a>> {
    let line = line.trim_end();
    let own = line.trim_start();
    let indent = &line[..line.len() - own.len()];
    let comment = |mark, text, code| Comment {
        indent,
        mark,
        text,
        code,
    };
    let found = if let Some(text) = own.strip_prefix("/// ") {
        comment("/// ", text, None)
    } else if let Some(text) = own.strip_prefix(mark) {
        comment(mark, text, None)
    } else {
        let at = own.rfind(&format!(" {mark}"))?;
        let code = own[..at].trim_end();
        comment(mark, &own[at + 1 + mark.len()..], Some(code))
    };
    Some(found)
}

/// A comment on lines of its own, above its code.
fn folded(comment: &Comment, text: &str) -> String {
    let Comment {
        indent, mark, code, ..
    } = comment;
    let mut lines = vec![format!("{indent}{mark}")];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("a comment has a first line");
        if last.chars().count() + word.chars().count() > COLUMNS {
            lines.push(format!("{indent}{mark}{word} "));
        } else {
            *last += &format!("{word} ");
        }
    }
    lines.extend(code.map(|code| format!("{indent}{code}")));
    let lines = lines.iter().map(|line| line.trim_end().to_string() + "\n");
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_comments_are_folded_and_code_stays() {
        let words = "word ".repeat(30);
        let page = format!(
            "{words}\n```rust\n    /// {words}\n    /// word.\n    let x = 1; // {words}\nlet y = \"{words}\";\n// short\n```\n```text\n// {words}\n```\n"
        );
        let narrowed = narrow(&page);
        let lines: Vec<&str> = narrowed.lines().collect();
        // Two lines for each comment, the first with the line below it, the second with its code below.
        assert_eq!(lines.len(), page.lines().count() + 2, "{narrowed}");
        assert!(lines[2].starts_with("    /// word") && lines[3].ends_with(" word."));
        assert!(lines[4].starts_with("    // word") && lines[6] == "    let x = 1;");
        let wide = lines.iter().filter(|line| line.chars().count() > COLUMNS);
        // The prose, a string, and an output are as they were.
        assert_eq!(wide.count(), 3, "{narrowed}");
        let counted = |text: &str| text.matches("word").count();
        assert_eq!(counted(&narrowed), counted(&page));
    }
}
