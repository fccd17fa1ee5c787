//! How the cases of an interactive figure are written for its script.

use serde_json::Value;

/// A JSON object of lists, with one entry per line: what differs between two versions is seen.
pub(super) fn json_of<const N: usize>(fields: [(&str, Vec<Value>); N]) -> String {
    let fields = fields.map(|(name, values)| {
        let values: Vec<String> = values.iter().map(Value::to_string).collect();
        format!("\"{name}\":[{}]", values.join(",\n"))
    });
    format!("{{{}}}", fields.join(",\n"))
}
