//! Plain values of a pickle as JSON.

use crate::torch::{Node, Value};

/// Hyperparameters as JSON: what plain values there are. `left` values are written; a list can be
/// used many times.
pub(crate) fn json(node: Node, depth: usize, left: &mut usize) -> serde_json::Value {
    use serde_json::Value as Json;
    *left = left.saturating_sub(1);
    match node.value() {
        _ if *left == 0 => Json::Null,
        Value::Bool(value) => Json::from(*value),
        Value::Int(value) => Json::from(*value),
        Value::Float(value) => Json::from(*value),
        Value::Text(text) => Json::from(&**text),
        Value::List(_) | Value::Tuple(_) if depth > 0 => node
            .items()
            .map_while(|item| (*left > 0).then(|| json(item, depth - 1, left)))
            .collect(),
        Value::Dict(_) if depth > 0 => {
            let entries = node.entries().take(*left);
            let entries = entries.filter_map(|(key, value)| {
                Some((key.text()?.to_string(), json(value, depth - 1, left)))
            });
            Json::Object(entries.collect())
        }
        _ => Json::Null,
    }
}
