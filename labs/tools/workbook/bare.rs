//! Code without what does not run.

/// `code` without comments and white space. Both count within string literals.
pub(super) fn bare(code: &str) -> String {
    let mut bare = String::new();
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let (len, runs) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), false)
        } else if rest.starts_with("/*") {
            (block_comment(rest), false)
        } else if c == '"' {
            (string(rest), true)
        } else if rest.starts_with("'\"'") {
            // A quotation mark as a character begins no string.
            (3, true)
        } else {
            (c.len_utf8(), !c.is_whitespace())
        };
        if runs {
            bare += &rest[..len];
        }
        rest = &rest[len..];
    }
    bare
}

/// The length of the string literal with which `code` begins.
fn string(code: &str) -> usize {
    let mut escaped = true;
    for (i, c) in code.char_indices() {
        if c == '"' && !escaped {
            return i + 1;
        }
        // The first character is the opening quotation mark.
        escaped = i > 0 && c == '\\' && !escaped;
    }
    code.len()
}

/// The length of the comment with which `code` begins. It may hold others.
fn block_comment(code: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < code.len() {
        let rest = &code.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::bare;

    #[test]
    fn comments_and_white_space_do_not_run() {
        let code = "//! A task.\nfn f() {\n    g(\"a // b\"); // why\n}\n";
        let same = "fn f()  { /* what /* is */ ä */ g(\"a // b\") ; }";
        assert_eq!(bare(code), "fnf(){g(\"a // b\");}");
        assert_eq!(bare(code), bare(same));
        assert_ne!(bare(code), bare(&code.replace("a // b", "a //  b")));
        assert_ne!(bare(code), bare(&code.replace("f()", "h()")));
    }

    #[test]
    fn quotation_marks_may_be_characters_or_escaped() {
        assert_eq!(bare("'\"' // a\n'\"'"), "'\"''\"'");
        assert_eq!(bare(r#" "a\"b \\" // c"#), r#""a\"b \\""#);
        assert_eq!(bare("\"open // "), "\"open // ");
    }
}
