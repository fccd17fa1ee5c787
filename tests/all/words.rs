//! Everything that people read: words and beginnings of sentences that make them read twice.
//!
//! Read are the README files, the book's pages, the notebooks' text, `labs/labs.toml`, and in Rust the comments and the
//! texts in quotes, which screens print. `data/play.txt` is a play and may say what it likes. A phrase that is right where it
//! stands goes into `JUSTIFIED`, with the reason.

use std::path::{Path, PathBuf};

/// Words, and what to write instead. A slot of a phrase may be one of several words.
const WORDS: [(&str, &str); 36] = [
    ("another", "\"a different\", \"one more\", or the noun itself"),
    ("of its|their|your|our|my|his|her own", "\"its own\", before the noun"),
    ("everyone|everybody|nobody", "who: \"every rank\", \"no other rank\", \"you\""),
    ("one has|cannot|can|must|would|needs|wants", "who: \"you\", \"a rank\""),
    ("by heart", "\"memorizing\", \"overfitting\""),
    ("for a moment", "\"temporary\", \"peak\""),
    ("how many-th", "\"number\", \"which\""),
    ("on its|their way", "\"in flight\""),
    ("under way", "\"in flight\", \"running\""),
    ("no exceptions", "when it fails"),
    ("without exception", "when it fails"),
    ("are free", "what it costs, and when"),
    ("stretch|stretches", "\"range\", \"phase\", \"interval\""),
    ("place|places in a|the text|row|sequence|vector|buffer|buffers", "\"offset\""),
    ("decimal point", "\"floating point\""),
    ("perceptron|perceptrons", "\"MLP\""),
    ("a rank more", "\"one more rank\""),
    ("every rank more", "\"each additional rank\""),
    ("the other way about", "\"the opposite\""),
    ("the|a seed's", "\"the source's\": a seed is a random seed"),
    ("helps on", "\"gives the next hint\""),
    ("step and rank", "\"per rank per step\""),
    (
        "`|bytes|byte|numbers|messages|message|sequences|tokens|samples|seconds|second|ms|mb|kb|gb|flops|copies|batches|times|\
         one|two|steps|rounds|gradients|values|elements|operations a|an rank|step|node|iteration|parameter|element|core|\
         layer|micro-batch|collective|call|block|bucket|line|number|process|evaluation|sequence|token|device|gpu",
        "\"per\": \"bytes per rank per step\"",
    ),
    ("for ever", "\"forever\""),
    ("anew", "\"again\""),
    ("in the midst", "\"during\""),
    ("mend|mends|mended", "\"repair\""),
    ("booked", "\"recorded\""),
    ("teacher|teachers", "\"instructor\""),
    ("by so much|many", "\"by this amount\""),
    ("set|sets|setting out", "\"starts\""),
    ("go|goes|went|going round", "\"travels around the ring\""),
    ("somebody", "who: \"a rank\", \"you\", \"a colleague\""),
    ("whoever", "\"the rank that\""),
    ("told apart", "\"distinguished\""),
    ("stand|stands there|in|at|beside", "\"is\""),
];

/// Beginnings that only a question may have.
const QUESTIONS: [&str; 7] = ["What", "Who", "Where", "That", "Of", "As", "And"];

/// Where a phrase stays: the file's beginning, what stands there, and why.
const JUSTIFIED: [(&str, &str, &str); 1] = [("book/src/why.md", "Yet Another Accelerated SGD", "a paper's title")];

/// What stands on one line of a file, or goes on over several.
struct Passage {
    line: usize,
    text: String,
    /// Whole sentences, rather than what a screen puts together.
    sentences: bool,
}

/// What takes the place of code, formulas and values in a sentence.
const CODE: &str = "`";

/// The text of Markdown, paragraph by paragraph: without code, formulas and what links lead to.
fn markdown(text: &str, first_line: usize) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    let (mut fenced, mut goes_on) = (false, false);
    let lines: Vec<&str> = text.lines().collect();
    for (i, line) in lines.iter().enumerate() {
        let line = line.trim_start().trim_start_matches("> ");
        if line.starts_with("```") || line.starts_with("$$") && !line[2..].contains("$$") {
            (fenced, goes_on) = (!fenced, false);
            continue;
        }
        if fenced || line.is_empty() || line == ">" || line.starts_with("{{#") || line.starts_with("[!") {
            goes_on = false;
            continue;
        }
        let item = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(['-', '*', '.']);
        let begins = item.len() < line.len() && item.starts_with(' ');
        let mut add = |text: &str, goes_on: bool, sentences: bool| match passages.last_mut() {
            Some(last) if goes_on => last.text += &format!(" {text}"),
            _ => passages.push(Passage { line: first_line + i, text: text.to_string(), sentences }),
        };
        if line.starts_with('#') {
            add(line, false, false);
        } else if line.starts_with('|') {
            let head = lines.get(i + 1).is_some_and(|next| next.trim_start().starts_with("|--"));
            line.split('|').map(str::trim).for_each(|cell| add(cell, false, !head && is_sentence(cell)));
        } else {
            let text = if begins { item.trim_start() } else { line };
            add(text, goes_on && !begins && !line.starts_with('<'), true);
        }
        goes_on = !line.starts_with(['#', '|']);
    }
    for passage in &mut passages {
        passage.text = plain(&passage.text);
    }
    passages
}

/// Titles and names may begin as they like.
fn is_sentence(text: &str) -> bool {
    text.ends_with(['.', '!', '?'])
}

/// A paragraph without what is no word: code and formulas become one mark, links their text, and HTML goes.
fn plain(paragraph: &str) -> String {
    let mut text = String::new();
    let mut rest = paragraph;
    while let Some(at) = rest.find(['`', '$', '<', ']', '[', '*']) {
        text += &rest[..at];
        let mark = rest[at..].chars().next().unwrap();
        rest = &rest[at + 1..];
        let skipped = match mark {
            '`' | '$' => rest.trim_start_matches(mark).split_once(mark),
            '<' if rest.starts_with(|c: char| c.is_alphabetic() || c == '/') => rest.split_once('>'),
            ']' if rest.starts_with('(') => rest.split_once(')'),
            _ => None,
        };
        if let Some((_, after)) = skipped {
            text += if matches!(mark, '`' | '$') { CODE } else { "" };
            rest = after.trim_start_matches(if mark == '$' { '$' } else { '`' });
        }
    }
    text + rest
}

/// Comments and texts in quotes of Rust source, up to its tests.
fn rust(source: &str) -> Vec<Passage> {
    let tests =
        source.match_indices("#[cfg(test)]").find(|(at, _)| source[*at..].lines().nth(1).unwrap().contains("mod "));
    let source = &source[..tests.map_or(source.len(), |(at, _)| at)];
    let (mut passages, mut doc, mut doc_line, mut doc_kind) = (Vec::new(), String::new(), 0, None);
    let mut rest = source;
    let line_of = |rest: &str| source[..source.len() - rest.len()].matches('\n').count() + 1;
    while let Some(at) = rest.find(['/', '"', '\'', '\n']) {
        let (before, found) = rest.split_at(at);
        let comment = found.strip_prefix("//").map(|comment| comment.split('\n').next().unwrap());
        // A comment of several lines, of one kind, is one text.
        let kind = comment.map(|comment| comment.chars().next().filter(|first| matches!(first, '/' | '!')));
        if kind != doc_kind || !before.trim().is_empty() {
            passages.extend(markdown(&std::mem::take(&mut doc), doc_line));
        }
        if let Some(comment) = comment.filter(|comment| !comment.contains("ANCHOR")) {
            if doc.is_empty() {
                doc_line = line_of(found);
            }
            let words = comment.strip_prefix(['/', '!']).unwrap_or(comment);
            doc += &format!("{}\n", words.strip_prefix(' ').unwrap_or(words));
        }
        doc_kind = kind;
        if let Some(comment) = comment {
            // The line's end belongs to it.
            rest = found[2 + comment.len()..].strip_prefix('\n').unwrap_or_default();
            continue;
        }
        if found.starts_with('"') {
            let hashes = before.len() - before.trim_end_matches('#').len();
            let raw = before.trim_end_matches('#').ends_with('r');
            let end = if raw { format!("\"{}", "#".repeat(hashes)) } else { "\"".into() };
            let mut from = 1;
            let length = loop {
                let at = from + found[from..].find(&end).unwrap_or(found.len() - from);
                let slashes = found[..at].len() - found[..at].trim_end_matches('\\').len();
                if raw || slashes % 2 == 0 || at == found.len() { break at } else { from = at + 1 }
            };
            let text = found[1..length].replace("\\n", " . ").replace('\\', " ");
            passages.push(Passage { line: line_of(found), text: values(&text), sentences: false });
            rest = found.get(length + end.len()..).unwrap_or_default();
        } else if let Some(quoted) = found.strip_prefix('\'') {
            let mut chars = quoted.char_indices();
            let first = chars.next().map(|(_, c)| c);
            let closed = match first {
                Some('\\') => quoted[2..].find('\'').map(|at| at + 3),
                _ => chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1),
            };
            rest = &quoted[closed.unwrap_or(0)..];
        } else {
            rest = &found[1..];
        }
    }
    passages.extend(markdown(&doc, doc_line));
    passages
}

/// A text that is printed, with a mark for each value put in.
fn values(text: &str) -> String {
    let mut words = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        words += &format!("{before}{CODE}");
        rest = after.split_once('}').map_or("", |(_, after)| after);
    }
    words + rest
}

/// What is wrong with a passage: the words, and what to do.
fn faults(passage: &Passage) -> Vec<(String, String)> {
    let text = passage.text.split_whitespace().collect::<Vec<_>>().join(" ");
    let apart = |c: char| !(c.is_alphanumeric() || c == '-' || c == '\'' || c == '`');
    // A sign between two words keeps them from being one phrase.
    let words: Vec<String> = text
        .split(' ')
        .flat_map(|word| {
            let bare = word.trim_matches(apart);
            let begin = word.starts_with(['(', '"']);
            let end = word.ends_with(['.', ',', ':', ';', '!', '?', '(', ')', '"']);
            [begin.then(String::new), Some(bare.to_lowercase()), end.then(String::new)].into_iter().flatten()
        })
        .collect();
    let mut found = Vec::new();
    for (phrase, instead) in WORDS {
        let slots: Vec<Vec<&str>> =
            phrase.split(' ').filter(|s| !s.is_empty()).map(|s| s.split('|').collect()).collect();
        for words in words.windows(slots.len()) {
            if words.iter().zip(&slots).all(|(word, slot)| slot.contains(&word.as_str())) {
                found.push((words.join(" "), format!("write {instead}")));
            }
        }
    }
    if passage.sentences {
        let mut sentence: Vec<&str> = Vec::new();
        let mut words = text.split(' ').peekable();
        while let Some(word) = words.next() {
            sentence.push(word);
            let closing = word.trim_end_matches(['"', ')', '_', '”']);
            if is_sentence(closing) || words.peek().is_none() {
                let first = sentence[0].trim_matches(|c: char| !c.is_alphanumeric());
                if QUESTIONS.contains(&first) && !closing.ends_with('?') {
                    found.push((sentence.join(" "), "begin with who or what acts".into()));
                }
                sentence.clear();
            }
        }
    }
    found
}

/// Every file with prose, seen from the project's folder, and its passages.
fn files() -> Vec<(String, Vec<Passage>)> {
    let mut files: Vec<(String, Vec<Passage>)> = Vec::new();
    let mut folders: Vec<PathBuf> = ["book/src", "notebooks", "labs", "src"].map(PathBuf::from).into();
    let mut paths = vec![PathBuf::from("README.md")];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() { folders.push(path) } else { paths.push(path) }
        }
    }
    paths.sort();
    for path in paths {
        let text = || std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let passages = match path.extension().and_then(|extension| extension.to_str()) {
            Some("md") => markdown(&text(), 1),
            Some("rs") => rust(&text()),
            Some("toml") => settings(&text()),
            Some("ipynb") => notebook(&text(), &path),
            _ => continue,
        };
        files.push((path.to_str().unwrap().to_string(), passages));
    }
    files
}

/// The texts of a TOML file, each of which stands on one line.
fn settings(text: &str) -> Vec<Passage> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#'));
    lines
        .filter_map(|(line, text)| {
            let text = text.split_once('"')?.1.rsplit_once('"')?.0;
            Some(Passage { line, text: plain(text), sentences: is_sentence(text) })
        })
        .collect()
}

/// The text cells of a notebook; the line is the cell's number.
fn notebook(text: &str, path: &Path) -> Vec<Passage> {
    let notebook: serde_json::Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let cells = (1..).zip(notebook["cells"].as_array().unwrap()).filter(|(_, cell)| cell["cell_type"] == "markdown");
    cells
        .flat_map(|(number, cell)| {
            let source: String = cell["source"].as_array().unwrap().iter().filter_map(|line| line.as_str()).collect();
            markdown(&source, 1).into_iter().map(move |passage| Passage { line: number, ..passage })
        })
        .collect()
}

/// What is wrong in the files that `chosen` picks, a line each.
fn all_faults() -> Vec<String> {
    let mut lines = Vec::new();
    for (file, passages) in files() {
        for passage in passages {
            for (words, instead) in faults(&passage) {
                let right =
                    JUSTIFIED.iter().any(|(begin, phrase, _)| file.starts_with(begin) && passage.text.contains(phrase));
                if !right {
                    lines.push(format!("{file}:{}: \"{words}\": {instead}", passage.line));
                }
            }
        }
    }
    lines
}

#[test]
fn prose_is_without_words_that_are_read_twice() {
    let lines = all_faults();
    assert!(lines.is_empty(), "{} to rewrite, or to justify in tests/all/words.rs:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn a_justified_phrase_is_still_there() {
    let files = files();
    for (begin, phrase, reason) in JUSTIFIED {
        let mut passages = files.iter().filter(|(file, _)| file.starts_with(begin)).flat_map(|(_, passages)| passages);
        assert!(passages.any(|passage| passage.text.contains(phrase)), "{begin} has no {phrase:?} ({reason})");
    }
}

#[test]
fn bad_sentences_are_found_and_good_ones_are_not() {
    let found = |passages: Vec<Passage>| -> Vec<(usize, String)> {
        passages.iter().flat_map(|p| faults(p).into_iter().map(|fault| (p.line, fault.0))).collect()
    };
    let page = "# What to look at\n\nEvery rank sends 12 bytes a\nstep, and `another` is\ncode. Then\nnobody waits.\n\n\
        - Where it is, it stays.\n- What is it, for\n  whom? That is all.\n\n```\nof its own\n```\n\n\
        | what | where |\n|---|---|\n| As many. | [one has](another.md) |\n";
    let on_page =
        [(3, "nobody"), (3, "bytes a step"), (8, "Where it is, it stays."), (9, "That is all."), (18, "As many.")];
    let mut expected: Vec<(usize, String)> = on_page.map(|(line, words)| (line, words.to_string())).into();
    expected.push((18, "one has".into()));
    assert_eq!(found(markdown(page, 1)), expected);
    let signs = markdown("`n` a rank are sent in bytes (a step).", 1);
    assert_eq!(found(signs), [(1, "` a rank".to_string())]);
    let source = "//! What it is.\n\n// another\n/// And so\n/// on. Whether it is.\nfn f<'a>(c: char) -> &'a str {\n    \
        if c == '\"' { \"by heart\" } else { \"for {another} a \\\"moment\" }\n}\n/// As in `what`? Of a\n/// piece.\nconst A: \
        &str = r#\"everyone \"is\" here\"#;\n#[cfg(test)]\nmod tests { \"nobody\" }\n";
    let in_source =
        [(1, "What it is."), (3, "another"), (4, "And so on."), (7, "by heart"), (9, "Of a piece."), (11, "everyone")];
    assert_eq!(found(rust(source)), in_source.map(|(line, words)| (line, words.to_string())));
    assert_eq!(found(settings("# another\nhint = \"Of a `rank`: see.\"\n")), [(2, "Of a `: see.".to_string())]);
}
