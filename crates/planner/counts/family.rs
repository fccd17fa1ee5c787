//! A row of the table of families, and a layer's numbers as the row finds them in a file.

use serde::Deserialize;
use serde_json::{Map, Value};
use shapes::config_json::Keys;
use shapes::error::BadInput;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A row of the table. Its head explains the keys.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Family {
    pub types: String,
    like: String,
    pub has: Map<String, Value>,
    names: Map<String, Value>,
    defaults: Map<String, Value>,
    kinds: Map<String, Value>,
    by_kind: Map<String, Value>,
    own: String,
}

#[derive(Deserialize)]
struct Table {
    /// Keys of many families that change no count.
    ignored: String,
    /// Keys that every family may have.
    usual: String,
    /// Other names of a key.
    spelled: BTreeMap<String, String>,
    family: Vec<Family>,
}

static READ: LazyLock<Table> = LazyLock::new(|| {
    let table = toml::from_str(include_str!("families.toml"));
    table.expect("the table is this crate's own, and a test reads it")
});

/// The families by their first types, each with what it takes from the row that it is like.
pub static TABLE: LazyLock<BTreeMap<String, Family>> = LazyLock::new(|| {
    let mut table: BTreeMap<String, Family> = BTreeMap::new();
    for row in &READ.family {
        let mut whole = table.get(&row.like).cloned().unwrap_or_default();
        for (into, from) in [
            (&mut whole.has, &row.has),
            (&mut whole.names, &row.names),
            (&mut whole.defaults, &row.defaults),
            (&mut whole.kinds, &row.kinds),
            (&mut whole.by_kind, &row.by_kind),
        ] {
            into.extend(from.clone());
        }
        whole.own = format!("{} {}", whole.own, row.own);
        whole.types.clone_from(&row.types);
        let first = row.types.split_whitespace().next().unwrap_or_default();
        table.insert(first.to_string(), whole);
    }
    table
});

/// The family of a `model_type`.
pub fn named(kind: &str) -> Option<&'static Family> {
    TABLE.values().find(|family| lists(&family.types, kind))
}

fn lists(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|known| known == word)
}

impl Family {
    /// Whether the family's files have this key.
    fn has_key(&self, key: &str) -> bool {
        let named = |names: &Map<String, Value>| {
            names.values().any(|name| name.as_str().is_some_and(|name| lists(name, key)))
        };
        lists(&READ.usual, key)
            || lists(&self.own, key)
            || self.defaults.contains_key(key)
            || named(&self.names)
            || self.by_kind.values().filter_map(Value::as_object).any(named)
    }

    /// Whether a key changes no count of the family.
    pub fn ignores(&self, key: &str) -> bool {
        lists(&READ.ignored, key) || self.has_key(key)
    }

    /// What layers of a type are made of.
    pub fn made_of(&self, kind: &str) -> Option<&str> {
        self.kinds.get(kind).and_then(Value::as_str)
    }
}

/// One layer of a model. Numbers are found in this order: what the row says of all its models, the
/// file's own value for this layer, for layers of this kind, for all, and the class's default.
pub struct Layer<'a> {
    pub family: &'a Family,
    pub keys: Keys<'a>,
    pub index: usize,
    pub kind: &'a str,
}

impl<'a> Layer<'a> {
    /// A key's value, under the names that it has in this family.
    pub fn find(&self, key: &str) -> Option<&'a Value> {
        match self.family.has.get(key) {
            Some(Value::String(text)) if text.starts_with('?') => self.of_file(&text[1..]),
            Some(value) => Some(value),
            None => self.of_file(key),
        }
    }

    /// The same, whatever the row says of all its models.
    fn of_file(&self, key: &str) -> Option<&'a Value> {
        let family = self.family;
        let own = self.in_file("per_layer_config").and_then(Value::as_object);
        let of_layer = own.and_then(|own| {
            let mine = |text: &str| text.parse() == Ok(self.index);
            own.iter().find(|(name, _)| mine(name))?.1.get(key)
        });
        if of_layer.is_some_and(|value| !value.is_null()) {
            return of_layer;
        }
        let of_kind = family.by_kind.get(self.kind).and_then(|names| names.get(key)?.as_str());
        let value = of_kind.and_then(|name| self.named(name));
        if value.is_some_and(|value| !value.is_null()) {
            return value;
        }
        let name = family.names.get(key).and_then(Value::as_str);
        let spelled = READ.spelled.get(key).map_or(key, String::as_str);
        let found = name.map_or_else(|| self.named(spelled), |name| self.named(name));
        found.or_else(|| family.defaults.get(key))
    }

    /// The value of the first of these names that the file has, or that the class has a value for.
    fn named(&self, names: &str) -> Option<&'a Value> {
        let each = || names.split_whitespace();
        let given = each().filter_map(|name| self.in_file(name)).next();
        given.or_else(|| each().find_map(|name| self.family.defaults.get(name)))
    }

    /// The file's value, if the family's files have this key.
    fn in_file(&self, name: &str) -> Option<&'a Value> {
        if !self.family.has_key(name) {
            return None;
        }
        self.keys.0.get(name) // null as well, which is not what the class has without the key
    }

    /// A number, if it is there. Of a list it is this layer's.
    pub fn given(&self, key: &str) -> Result<Option<u128>, BadInput> {
        let value = match self.find(key) {
            Some(Value::Array(list)) => list.get(self.index),
            other => other,
        };
        match value {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(set)) => Ok(Some(u128::from(*set))),
            Some(value) => {
                let number = value.as_u64().filter(|number| *number <= 1 << 24);
                let wrong = || {
                    let what =
                        format!("config.json: {key} is {value}, not a whole number that fits");
                    BadInput::new(what, "is it the model's own, complete file?")
                };
                number.map(u128::from).map(Some).ok_or_else(wrong)
            }
        }
    }

    /// A number that the layer needs.
    pub fn number(&self, key: &str) -> Result<u128, BadInput> {
        let named = self.family.names.get(key).and_then(Value::as_str).unwrap_or(key);
        let lacks = || {
            let what = format!("config.json has no {named}");
            BadInput::new(what, "is it the model's own, complete file?")
        };
        self.given(key)?.ok_or_else(lacks)
    }

    pub fn or(&self, key: &str, default: u128) -> Result<u128, BadInput> {
        Ok(self.given(key)?.unwrap_or(default))
    }

    /// Whether a key is set.
    pub fn yes(&self, key: &str) -> Result<bool, BadInput> {
        Ok(self.given(key)?.unwrap_or(0) > 0)
    }

    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.find(key).and_then(Value::as_str)
    }

    /// A list of one entry for each layer.
    pub fn list(&self, key: &str) -> Option<&'a Vec<Value>> {
        self.find(key).and_then(Value::as_array)
    }
}
