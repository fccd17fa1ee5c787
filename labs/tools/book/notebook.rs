//! Compares what a notebook's cells print with what they printed when it was written.
//!
//! A cell's metadata has the rules for its output: `"shardlab": {"rules": [{"line": " ms", "shape":
//! true}]}`, as an entry of `book/outputs.toml` has them. A cell without rules must print the same.

use super::compare::{Rule, differences};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use shardlab::files;
use std::path::Path;

/// A notebook, with its pictures.
const MOST_BYTES: u64 = 64 << 20;

/// Fails if a notebook's cells have printed something else after a run: one difference per line.
///
/// # Errors
/// Also if one of them cannot be read, is no notebook, or has rules that are none.
pub fn compare_notebooks(written: &Path, run: &Path) -> Result<()> {
    let differ = compare(&read(written)?, &read(run)?)?;
    ensure!(differ.is_empty(), "{}", differ.join("\n"));
    Ok(())
}

fn read(path: &Path) -> Result<Value> {
    let text = files::text(path, MOST_BYTES);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no notebook", path.display()))
}

fn compare(written: &Value, run: &Value) -> Result<Vec<String>> {
    let [written, run] = [written, run].map(code_cells);
    let mut found = Vec::new();
    for (number, (written, run)) in (1..).zip(written.iter().zip(&run)) {
        let rules = written["metadata"]["shardlab"]["rules"].clone();
        let rules: Option<Vec<Rule>> =
            serde_json::from_value(rules).with_context(|| format!("the rules of cell {number}"))?;
        let [before, now] = [written, run].map(|cell| printed(cell));
        let of_cell = differences(&before, &now, &rules.unwrap_or_default());
        found.extend(of_cell.into_iter().map(|what| format!("cell {number}: {what}")));
    }
    if written.len() != run.len() {
        found.push(format!("{} cells of code, and {} after the run", written.len(), run.len()));
    }
    Ok(found)
}

fn code_cells(notebook: &Value) -> Vec<&Value> {
    let cells = notebook["cells"].as_array().into_iter().flatten();
    cells.filter(|cell| cell["cell_type"] == "code").collect()
}

/// All that a cell printed: its lines, its value, its pictures.
fn printed(cell: &Value) -> String {
    let mut text = String::new();
    for output in cell["outputs"].as_array().into_iter().flatten() {
        let kinds = [&output["text"], &output["data"]["text/plain"], &output["data"]["text/html"]];
        for kind in kinds {
            // Lines, or one string with all of them.
            let lines = kind.as_array().into_iter().flatten().chain([kind]);
            text.extend(lines.filter_map(Value::as_str));
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn notebook(outputs: Value, rules: Value) -> Value {
        let metadata = json!({ "shardlab": { "rules": rules } });
        let first = json!({ "cell_type": "code", "metadata": {}, "outputs": [] });
        let cell = json!({ "cell_type": "code", "metadata": metadata, "outputs": outputs });
        json!({ "cells": [{ "cell_type": "markdown" }, first, cell] })
    }

    fn lines(lines: &str) -> Value {
        json!([{ "name": "stdout", "text": lines }])
    }

    #[test]
    fn a_number_that_has_changed_is_found() {
        let written = notebook(lines("loss 3.769\ntook 7 ms\n"), Value::Null);
        let run = notebook(lines("loss 3.770\ntook 9 ms\n"), Value::Null);
        assert!(compare(&written, &written).unwrap().is_empty());
        let found = compare(&written, &run).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], "cell 2: expected: loss 3.769\n     got: loss 3.770");
        // A time may differ, where a rule says so.
        let written =
            notebook(lines("loss 3.769\ntook 7 ms\n"), json!([{ "line": " ms", "shape": true }]));
        assert_eq!(compare(&written, &run).unwrap().len(), 1);
        let wrong = notebook(lines(""), json!([{ "lines": " ms" }]));
        let error = compare(&wrong, &run).unwrap_err();
        assert!(
            format!("{error:#}").starts_with("the rules of cell 2: unknown field"),
            "{error:#}"
        );
    }

    #[test]
    fn a_value_and_a_picture_are_compared() {
        let value = |text: &str| json!([{ "data": { "text/plain": [text] } }]);
        let picture = |text: &str| json!([{ "data": { "text/html": text } }]);
        let differ = |a: Value, b: Value| {
            compare(&notebook(a, Value::Null), &notebook(b, Value::Null)).unwrap().len()
        };
        assert_eq!(differ(value("[6, 6]"), value("[6, 6]")), 0);
        assert_eq!(differ(value("[6, 6]"), value("[6, 7]")), 1);
        assert_eq!(differ(picture("<svg a"), picture("<svg b")), 1);
        assert_eq!(differ(lines("a\n"), json!([])), 1);
    }
}
