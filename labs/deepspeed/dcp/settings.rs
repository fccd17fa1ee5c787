//! What is no tensor, as plain values. JSON has no tuples, and not every float: a tuple is an
//! object with the key `tuple`, a float one with the key `float` and a text.

use crate::tensors::{Content, Setting};
use crate::torch::{Graph, Id, Node, TorchFile, Value};
use serde_json::{Value as Json, json};
use shardlab::error::BadInput;

/// The value of a setting, or `None` if it is none that JSON can say.
pub(crate) fn plain(setting: &Setting) -> Result<Option<Json>, BadInput> {
    match &setting.content {
        Content::Plain(value) => Ok(Some(value.clone())),
        Content::Archive(place) => {
            let saved = TorchFile::open_part(&place.file, Some(place.bytes.clone()))?;
            Ok(to_json(saved.graph.root()))
        }
    }
}

fn to_json(node: Node) -> Option<Json> {
    let items = || node.items().map(to_json).collect::<Option<Vec<Json>>>();
    match node.value() {
        Value::None => Some(Json::Null),
        Value::Bool(value) => Some(json!(value)),
        Value::Int(value) => Some(json!(value)),
        Value::Float(value) => Some(json!({ "float": value.to_string() })),
        Value::Text(value) => Some(json!(value)),
        Value::List(_) => Some(Json::Array(items()?)),
        Value::Tuple(_) => Some(json!({ "tuple": items()? })),
        _ => None,
    }
}

/// The value of Python for a plain one, or `None` if there is none.
pub(super) fn from_json(graph: &mut Graph, value: &Json) -> Option<Id> {
    let value = match value {
        Json::Null => Value::None,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => Value::Int(number.as_i64()?),
        Json::String(text) => Value::Text(text.as_str().into()),
        Json::Array(items) => Value::List(all_from(graph, items)?),
        Json::Object(fields) if fields.contains_key("float") => {
            Value::Float(fields["float"].as_str()?.parse().ok()?)
        }
        Json::Object(fields) => Value::Tuple(all_from(graph, fields.get("tuple")?.as_array()?)?),
    };
    Some(graph.push(value))
}

fn all_from(graph: &mut Graph, items: &[Json]) -> Option<Vec<Id>> {
    items.iter().map(|item| from_json(graph, item)).collect()
}
