//! Compares two runs of one command. Their outputs must be equal, except for text that depends on
//! the machine or the moment. Rules state the differences that a line may have. A line without a
//! rule must be the same.

use regex::Regex;
use serde::Deserialize;
use std::sync::LazyLock;

/// Allowed differences in some lines of an output. If several rules fit a line, only the first
/// counts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The rule fits every line that contains this text. The empty string fits all lines.
    pub line: Option<String>,
    /// The rule fits a block of lines: it begins with a line that contains this text, and ends
    /// before `until`.
    pub from: Option<String>,
    /// The block ends before the first line that contains this text. The empty string means an
    /// empty line. Without `until` the block extends to the output's end.
    pub until: Option<String>,
    /// Numbers with a point may differ by this fraction of their value. Whole numbers must be
    /// equal.
    pub floats: Option<f64>,
    /// All numbers may differ by this amount.
    pub within: Option<f64>,
    /// Numbers after one of these names and `=` may have any value, for instance seconds and
    /// speeds.
    #[serde(default)]
    pub free: Vec<String>,
    /// All numbers may have any value, and bars any length.
    #[serde(default)]
    pub shape: bool,
    /// The line or the block may contain anything, for instance names of hosts, hashes, the
    /// number of cores, or what a model wrote.
    #[serde(default)]
    pub any: bool,
    /// The block is a drawing of measured figures, so only its number of lines must be equal.
    #[serde(default)]
    pub picture: bool,
    /// The line or the block may be missing, such as a row about other work on the machine.
    #[serde(default)]
    pub optional: bool,
}

/// The differences in `got` that no rule allows, one per entry.
pub fn differences(expected: &str, got: &str, rules: &[Rule]) -> Vec<String> {
    let expected = parts(expected, rules);
    let got = parts(got, rules);
    let mut found = Vec::new();
    for (expected, got) in expected.iter().zip(&got) {
        if !same(expected, got) {
            found.push(format!(
                "expected: {}\n     got: {}",
                shown(&expected.text),
                shown(&got.text)
            ));
        }
    }
    if expected.len() != got.len() {
        let (longer, which) = if expected.len() > got.len() {
            (&expected, "no longer there")
        } else {
            (&got, "new")
        };
        found.push(format!("{which}: {}", shown(&longer[expected.len().min(got.len())].text)));
    }
    found
}

/// A line or a block, and the rule that fits it.
struct Part<'a> {
    text: Vec<&'a str>,
    rule: Option<&'a Rule>,
}

fn parts<'a>(text: &'a str, rules: &'a [Rule]) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let fits = |rule: &&Rule| {
            [&rule.line, &rule.from]
                .into_iter()
                .flatten()
                .any(|mark| line.contains(mark.as_str()))
        };
        let rule = rules.iter().find(fits);
        let mut text = vec![line];
        if let Some(Rule { from: Some(_), until, .. }) = rule {
            let is_end = |line: &str| until.as_deref().is_some_and(|mark| has(line, mark));
            while let Some(line) = lines.next_if(|line| !is_end(line)) {
                text.push(line);
            }
        }
        if !rule.is_some_and(|rule| rule.optional) {
            parts.push(Part { text, rule });
        }
    }
    parts
}

/// Whether a line contains a mark. The empty mark means an empty line.
pub(super) fn has(line: &str, mark: &str) -> bool {
    match mark {
        "" => line.trim().is_empty(),
        _ => line.contains(mark),
    }
}

fn same(expected: &Part, got: &Part) -> bool {
    let Some(rule) = expected.rule else {
        return expected.text == got.text;
    };
    let mut lines = expected.text.iter().zip(&got.text);
    let as_many = expected.text.len() == got.text.len();
    rule.any || as_many && (rule.picture || lines.all(|(a, b)| same_line(a, b, rule)))
}

fn same_line(expected: &str, got: &str, rule: &Rule) -> bool {
    let was = words(expected);
    let is = words(got);
    was.len() == is.len()
        && was.iter().zip(&is).enumerate().all(|(i, (a, b))| {
            let (Some(x), Some(y)) = (number(a), number(b)) else {
                // A share of time may be printed as <1%, and a bar is as long as the number beside
                // it.
                let any_share =
                    |text: &str| text.strip_suffix('<').unwrap_or(text).replace(['█', '░'], "");
                return a == b || (rule.shape && any_share(a) == any_share(b));
            };
            let free = i > 0 && rule.free.iter().any(|name| is_named(&was[i - 1], name));
            let near = |most: f64| (x - y).abs() <= most + 1e-12;
            free || rule.shape
                || x == y
                || rule.floats.is_some_and(|part| a.contains('.') && near(part * x.abs()))
                || rule.within.is_some_and(near)
        })
}

/// Whether the text before a number ends with `name=`.
fn is_named(before: &str, name: &str) -> bool {
    let head = before.strip_suffix('=').and_then(|before| before.strip_suffix(name));
    head.is_some_and(|head| !head.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// A number: 1,234.5 and 1.2e-3 are one each.
static NUMBER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[0-9]+(?:[.,][0-9]+)*(?:e[+-][0-9]+)?"));

/// What only aligns.
static FILLER: LazyLock<Regex> = LazyLock::new(|| pattern("[ …]+"));

/// A pattern of this program's own.
pub(super) fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}

/// The line as texts and the numbers between them. Several spaces count as one, because they only
/// align.
fn words(line: &str) -> Vec<String> {
    let line = FILLER.replace_all(line, " ");
    let mut words = Vec::new();
    let mut at = 0;
    for number in NUMBER.find_iter(&line) {
        words.extend([&line[at..number.start()], number.as_str()].map(String::from));
        at = number.end();
    }
    words.push(line[at..].into());
    words
}

fn number(word: &str) -> Option<f64> {
    word.starts_with(|c: char| c.is_ascii_digit())
        .then(|| word.replace(',', "").parse().ok())?
}

fn shown(lines: &[&str]) -> String {
    match lines {
        [line] => (*line).to_string(),
        lines => format!("{} ({} lines)", lines[0], lines.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(toml: &str) -> Rule {
        toml::from_str(toml).unwrap()
    }

    fn same(expected: &str, got: &str, rules: &[Rule]) -> bool {
        differences(expected, got, rules).is_empty()
    }

    #[test]
    fn a_line_without_a_rule_is_exact() {
        assert!(same("a 1\nb", "a 1\nb", &[]));
        assert!(!same("a 1\nb", "a 2\nb", &[]));
        assert!(!same("a\nb", "a", &[]) && !same("a", "a\nb", &[]));
    }

    #[test]
    fn floats_have_their_tolerance_and_integers_none() {
        let rules = [rule("line = 'step='\nfloats = 0.01\nfree = ['dt', 'tps']")];
        let line = "step=10 loss=3.769 dt=0.070 tps=21,928";
        assert!(same(line, "step=10 loss=3.790 dt=1.5 tps=900", &rules));
        assert!(!same(line, "step=10 loss=3.900 dt=0.070 tps=21,928", &rules), "a loss");
        assert!(same(line, "step=10 loss=3.769 dt=7.0e-2 tps=2.1e+04", &rules), "an exponent");
        assert!(!same(line, "step=11 loss=3.769 dt=0.070 tps=21,928", &rules), "a step");
        assert!(!same(line, "step=10 loss=3.769 dtf=0.070 tps=21,928", &rules), "a name");
        assert!(!same(line, "step=10 loss=3.769 dt=0.070", &rules), "fewer");
    }

    #[test]
    fn shapes_allow_any_number_and_any_alignment() {
        let rules = [rule("line = 'iter'\nshape = true")];
        assert!(same("   1.322  100.0%  99 iterations", "  12.5  99.0%  99 iterations", &rules));
        assert!(same("99 iterations · data <1%", "99 iterations · data 2%", &rules));
        assert!(!same("1.3 iterations", "1.3 s iterations", &rules));
        assert!(
            same("iter ████░ 21 MB", "iter ██░ 9 MB", &rules),
            "a bar is as long as its number"
        );
        assert!(!same("iter ████ 21 MB", "iter ████ 21 MB, stopped", &rules));
    }

    #[test]
    fn pixels_may_move_a_little() {
        let rules = [rule("line = ''\nwithin = 3.0")];
        assert!(same("<path d=\"M1.0 2L3 4\"/>", "<path d=\"M2.5 2L5.9 4\"/>", &rules));
        assert!(!same("<path d=\"M1.0 2L3 4\"/>", "<path d=\"M1.0 2L7 4\"/>", &rules));
        assert!(!same("<path d=\"M1.0 2L3 4\"/>", "<path d=\"M1.0 2L3 4L5 6\"/>", &rules));
    }

    #[test]
    fn what_may_say_anything_is_still_there() {
        let rules = [rule("from = 'LAUNCH='\nuntil = 'DEPTH'\nany = true")];
        let was = "LAUNCH=mpirun\n-n 2\nDEPTH=1";
        assert!(same(was, "LAUNCH=none\nDEPTH=1", &rules));
        assert!(!same(was, "DEPTH=1", &rules) && !same(was, "LAUNCH=none\nDEPTH=2", &rules));
    }

    #[test]
    fn an_optional_row_may_be_missing_or_there() {
        let rules = [rule("from = '  mfu'\nuntil = '…'\noptional = true")];
        let with = "sent 2\n  mfu 134%\n  other work\n…";
        assert!(same("sent 2\n…", with, &rules) && same(with, "sent 2\n…", &rules));
        assert!(!same("sent 2\n…", "sent 2\nmore\n…", &rules));
    }

    #[test]
    fn pictures_count_their_lines() {
        let rules = [rule("from = 'seconds'\nuntil = 'end'\npicture = true")];
        assert!(same("seconds\n⡇\n⢀\nend", "seconds\n⠤\n ⠤⠤\nend", &rules));
        assert!(!same("seconds\n⡇\n⢀\nend", "seconds\n⠤\nend", &rules));
    }
}
