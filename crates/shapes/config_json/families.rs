//! Families of dense decoders: the table `families.toml`, and how a config.json is read by it.

use super::keys::{Keys, in_words};
use super::{Described, LONGEST, head_width};
use crate::error::BadInput;
use crate::model::{Dense, Family as Layers, ModelShape};
use crate::units::thousands;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// A row of the table. Its head explains the keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Family {
    types: String,
    longest: usize,
    #[serde(default)]
    needs: String,
    #[serde(default)]
    names: Map<String, Value>,
    #[serde(default)]
    defaults: Map<String, Value>,
    #[serde(default)]
    nested: Map<String, Value>,
    #[serde(default)]
    has: Map<String, Value>,
    #[serde(default)]
    when: Vec<When>,
    #[serde(default)]
    never: String,
    #[serde(default)]
    same_width: String,
    #[serde(default)]
    own: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct When {
    key: String,
    #[serde(default = "yes")]
    is: Value,
    then: Map<String, Value>,
}

fn yes() -> Value {
    true.into()
}

/// What sets a family's layers apart, for one file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Choices {
    norms: [usize; 2],
    norm_vectors: usize,
    qk_norms: Normed,
    gated: bool,
    qkv_bias: bool,
    proj_bias: bool,
    mlp_bias: bool,
    head_bias: bool,
    table_norm: bool,
    parallel: bool,
    dropout: bool,
    /// 0: as the file says.
    kv_heads: usize,
    ffn_times: Option<usize>,
    positions: Option<usize>,
    full_every: Option<usize>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Normed {
    No,
    Head,
    All,
}

/// A Llama's choices, from which the others differ.
const LLAMA: &str = r#"{
    "norms": [2, 0], "norm_vectors": 1, "qk_norms": "no", "gated": true, "parallel": false,
    "qkv_bias": "?attention_bias", "proj_bias": "?attention_bias", "mlp_bias": "?mlp_bias",
    "head_bias": false, "table_norm": false, "dropout": false, "kv_heads": 0
}"#;

#[derive(Deserialize)]
struct Table {
    family: Vec<Family>,
}

static TABLE: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let table = toml::from_str(include_str!("families.toml"));
    let table: Table = table.expect("the table is this crate's own, and a test reads it");
    table.family
});

/// The family of a `model_type`.
pub(super) fn named(kind: &str) -> Option<&'static Family> {
    TABLE.iter().find(|family| words(&family.types).any(|known| known == kind))
}

/// The families by their first names.
pub(super) fn names() -> Vec<&'static str> {
    TABLE.iter().filter_map(|family| words(&family.types).next()).collect()
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split_whitespace()
}

impl Family {
    /// Whether the family's files have this key, and it changes no count or is counted.
    pub fn knows(&self, key: &str) -> bool {
        let read =
            |value: &Value| value.as_str().is_some_and(|text| text.strip_prefix('?') == Some(key));
        let lists = [&self.needs, &self.own, &self.same_width];
        lists.into_iter().any(|list| words(list).any(|known| known == key))
            || self.defaults.contains_key(key)
            || self.names.values().any(|name| name == key)
            || self.has.values().any(read)
            || self.when.iter().any(|when| when.key == key)
    }

    /// The keys of a file, and of those that it leaves out the family's values. What a file says to
    /// be null has none.
    pub fn filled(&self, keys: &Keys, nested: bool) -> Map<String, Value> {
        let mut all = self.defaults.clone();
        if nested {
            all.extend(self.nested.clone());
        }
        all.extend(keys.0.clone());
        for (usual, name) in &self.names {
            let value = name.as_str().and_then(|name| keys.get(name)).cloned();
            all.insert(usual.clone(), value.unwrap_or_default());
        }
        all
    }

    /// The shape that a file describes.
    ///
    /// # Errors
    /// If a key is missing or of a wrong kind, or adds what is not counted.
    pub fn read(&self, keys: &Keys) -> Result<Described, BadInput> {
        let heads = keys.needed("num_attention_heads")?;
        let embd = keys.needed("hidden_size")?;
        for key in words(&self.needs) {
            keys.needed(key)?;
        }
        self.ensure_counted(keys, embd)?;
        let choices = self.choices(keys)?;
        let kv_heads = match choices.kv_heads {
            0 => keys.size("num_key_value_heads")?.unwrap_or(heads),
            fixed => fixed,
        };
        let head = match keys.size("head_dim")? {
            Some(head) => head,
            None => head_width(embd, heads)?,
        };
        let (block, no_length) = self.longest(keys);
        let positions = match choices.positions {
            None => 0,
            Some(more) => keys.needed("max_position_embeddings")?.saturating_add(more),
        };
        let vocabulary = keys.needed("vocab_size")?;
        let layers = keys.needed("num_hidden_layers")?;
        let times = keys.size("expansion_ratio")?.or(choices.ffn_times);
        let ffn = match (keys.size("intermediate_size")?, times) {
            (None, Some(times)) => times.saturating_mul(embd),
            _ => keys.needed("intermediate_size")?,
        };
        let mut notes = Vec::new();
        let windows = windows(keys, layers, choices.full_every).unwrap_or_else(|why| {
            notes.push(format!("{why}: all layers are taken to see all positions"));
            [0; 2]
        });
        notes.extend(choices.full_every.and_then(|_| other_windows(keys, layers)));
        let qk_norms = match choices.qk_norms {
            Normed::No => [0; 2],
            Normed::Head => [head; 2],
            Normed::All => [heads, kv_heads].map(|heads| heads.saturating_mul(head)),
        };
        let table_norm = if choices.table_norm { choices.norm_vectors } else { 0 };
        let dense = Dense {
            gated: choices.gated,
            qkv_bias: choices.qkv_bias,
            proj_bias: choices.proj_bias,
            mlp_bias: choices.mlp_bias,
            norms: choices.norms,
            norm_vectors: choices.norm_vectors,
            qk_norms,
            parallel: choices.parallel,
            windows,
            positions,
            ends: [table_norm.saturating_mul(embd), if choices.head_bias { vocabulary } else { 0 }],
            tied: keys.flag("tie_word_embeddings")?,
            dropout: choices.dropout,
            ..Dense::llama(kv_heads, head, ffn)
        };
        let shape = ModelShape {
            vocabulary,
            block,
            layers,
            heads,
            embd,
            family: Layers::Dense(dense),
            experts: None,
        };
        Ok(Described { shape, notes, no_length })
    }

    /// The row's choices, with those that the file's keys make.
    fn choices(&self, keys: &Keys) -> Result<Choices, BadInput> {
        let mut all: Map<String, Value> = serde_json::from_str(LLAMA).unwrap_or_default();
        all.extend(self.has.clone());
        for when in &self.when {
            let is = match when.is {
                Value::Bool(is) => keys.flag(&when.key)? == is,
                _ => keys.get(&when.key) == Some(&when.is),
            };
            if is {
                all.extend(when.then.clone());
            }
        }
        for (choice, value) in &mut all {
            if let Some(key) = value.as_str().and_then(|text| text.strip_prefix('?')) {
                let set = if choice == "dropout" {
                    keys.number(key).ok().flatten().is_some_and(|rate| rate > 0.0)
                } else {
                    keys.flag(key)?
                };
                *value = set.into();
            }
        }
        let read = serde_json::from_value(Value::Object(all));
        read.map_err(|error| BadInput::new(format!("the table of families: {error}"), "report it"))
    }

    /// Refuses what would add parameters that are not counted.
    fn ensure_counted(&self, keys: &Keys, embd: usize) -> Result<(), BadInput> {
        let refuse = |what: String| Err(BadInput::new(format!("config.json: {what}"), ""));
        for key in words(&self.never) {
            if let Some((experts, number)) = keys.experts().filter(|(experts, _)| *experts == key) {
                return refuse(format!("it has {number} experts in a layer ({experts})"));
            }
            if keys.flag(key)? {
                return refuse(format!("{key} adds parameters that are not counted here"));
            }
        }
        for key in words(&self.same_width) {
            let width = keys.size(key)?.unwrap_or(embd);
            if width != embd {
                return refuse(format!(
                    "{key} is {width} in a width of {embd}: the matrices between are not counted here"
                ));
            }
        }
        let Some(Value::Array(kinds)) = keys.get("layer_types") else {
            return Ok(());
        };
        let known = ["full_attention", "attention", "sliding_attention", "chunked_attention"];
        let other = kinds
            .iter()
            .find(|kind| !kind.as_str().is_some_and(|kind| known.contains(&kind)));
        match other {
            Some(kind) => refuse(format!(
                "it has layers of the kind {}, which are not counted here",
                in_words(kind)
            )),
            None => Ok(()),
        }
    }

    /// The longest sequence, and why it is the family's, if the file does not say.
    fn longest(&self, keys: &Keys) -> (usize, Option<String>) {
        let key = "max_position_embeddings";
        let given = keys.size(key);
        let why = match given {
            Ok(Some(block)) if (1..=LONGEST).contains(&block) => return (block, None),
            Ok(None) => format!("config.json has no {key}"),
            Ok(Some(block)) => format!("config.json: {} is {block}", keys.spelled(key)),
            Err(error) => error.what,
        };
        let tokens = thousands(self.longest as u64);
        let note = format!("{why}: its longest sequence is taken to have {tokens} tokens");
        (self.longest, Some(note))
    }
}

/// How many layers have a window, and how many positions it has; or why nobody knows.
fn windows(keys: &Keys, layers: usize, full_every: Option<usize>) -> Result<[usize; 2], String> {
    let Some(every) = full_every else {
        return Ok([0; 2]);
    };
    let width = keys.size("sliding_window").map_err(|error| error.what)?;
    let Some(width) = width.filter(|width| *width > 0) else {
        return Ok([0; 2]);
    };
    if keys
        .get("use_sliding_window")
        .is_some_and(|used| !used.as_bool().unwrap_or(true))
    {
        return Ok([0; 2]);
    }
    let of_kinds = |kinds: &Vec<Value>| {
        let windowed = |kind: &&Value| {
            kind.as_str()
                .is_some_and(|kind| kind.contains("_attention") && kind != "full_attention")
        };
        kinds.iter().filter(windowed).count().min(layers)
    };
    let of_pattern = |every: usize| layers - layers.checked_div(every).unwrap_or(0);
    let pattern = ["sliding_window_pattern", "_sliding_window_pattern"]
        .iter()
        .find_map(|key| keys.get(key));
    let windowed = match (keys.get("layer_types"), pattern) {
        (Some(Value::Array(kinds)), _) => of_kinds(kinds),
        _ if keys.get("use_sliding_window").is_some() => {
            let whole = keys.size("max_window_layers").map_err(|error| error.what)?;
            layers.saturating_sub(whole.unwrap_or(0))
        }
        (_, Some(Value::String(cycle))) if !cycle.is_empty() => {
            let sees_all: Vec<bool> = cycle.chars().map(|kind| kind == 'G').collect();
            (0..layers).filter(|layer| !sees_all[layer % sees_all.len()]).count()
        }
        (_, Some(pattern)) => {
            let every = pattern.as_u64().and_then(|every| usize::try_from(every).ok());
            of_pattern(every.ok_or_else(|| {
                format!("config.json: sliding_window_pattern is {}", in_words(pattern))
            })?)
        }
        _ => of_pattern(every),
    };
    Ok([windowed, if windowed > 0 { width } else { 0 }])
}

/// A note, if a list and a rule say of the same layers whether they have windows, and differ. As in
/// transformers, the list is read.
fn other_windows(keys: &Keys, layers: usize) -> Option<String> {
    let Some(Value::Array(kinds)) = keys.get("layer_types") else {
        return None;
    };
    let has_window = |kind: &Value| {
        kind.as_str()
            .is_some_and(|kind| kind.ends_with("_attention") && kind != "full_attention")
    };
    let by_list: Vec<bool> = kinds.iter().map(has_window).collect();
    let patterns = ["sliding_window_pattern", "_sliding_window_pattern"];
    let named = patterns.iter().find_map(|key| Some((*key, keys.get(key)?)));
    let (key, by_rule): (&str, Vec<bool>) = match named {
        Some((key, Value::String(cycle))) if !cycle.is_empty() => {
            (key, cycle.chars().map(|kind| kind != 'G').cycle().take(layers).collect())
        }
        Some((key, pattern)) => {
            let every = pattern.as_u64().filter(|every| *every > 0)?;
            (key, (1..=layers as u64).map(|layer| layer % every != 0).collect())
        }
        None if keys.get("use_sliding_window").and_then(Value::as_bool) == Some(true) => {
            let key = "max_window_layers";
            let whole = keys.size(key).ok().flatten()?;
            (key, (0..layers).map(|layer| layer >= whole).collect())
        }
        None => return None,
    };
    let layer = by_list.iter().zip(&by_rule).position(|(list, rule)| list != rule)?;
    let has = |window: bool| if window { "a window" } else { "none" };
    Some(format!(
        "config.json: {key} gives layer {layer} {}, and layer_types {}: layer_types is read",
        has(by_rule[layer]),
        has(by_list[layer])
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list and the rule of one model, in each form that a rule has.
    #[test]
    fn a_list_of_windows_is_compared_with_its_rule() {
        let said = |list: &str, rule: Value| {
            let kinds: Vec<&str> = list
                .chars()
                .map(|kind| {
                    if kind == 'L' {
                        "sliding_attention"
                    } else {
                        "full_attention"
                    }
                })
                .collect();
            let Value::Object(mut keys) = rule else {
                panic!("no table")
            };
            keys.insert("layer_types".into(), kinds.into());
            other_windows(&Keys(&keys), list.len())
        };
        use serde_json::json;
        assert_eq!(said("LLGLLG", json!({"sliding_window_pattern": 3})), None);
        assert_eq!(said("LLGL", json!({"_sliding_window_pattern": "LLG"})), None);
        assert_eq!(said("GGLL", json!({"use_sliding_window": true, "max_window_layers": 2})), None);
        assert_eq!(
            said("GGLL", json!({"use_sliding_window": false, "max_window_layers": 4})),
            None
        );
        assert_eq!(said("GGLL", json!({})), None);
        for (list, rule, says) in [
            (
                "LGL",
                json!({"sliding_window_pattern": 3}),
                "sliding_window_pattern gives layer 1 a window, and layer_types none",
            ),
            (
                "LLLG",
                json!({"sliding_window_pattern": "LLG"}),
                "gives layer 2 none, and layer_types a window",
            ),
            (
                "LGLL",
                json!({"use_sliding_window": true, "max_window_layers": 2}),
                "max_window_layers gives layer 0 none",
            ),
        ] {
            assert!(said(list, rule).is_some_and(|said| said.contains(says)), "{list}");
        }
    }

    /// Each row makes choices of its own kinds from an empty file, whatever its keys say.
    #[test]
    fn every_row_of_the_table_can_be_read() {
        let empty = Map::new();
        assert!(["llama", "gpt2", "qwen2"].map(named).iter().all(Option::is_some));
        for family in TABLE.iter() {
            family.choices(&Keys(&family.filled(&Keys(&empty), true))).unwrap();
            for when in &family.when {
                let mut keys = family.filled(&Keys(&empty), false);
                keys.insert(when.key.clone(), when.is.clone());
                family.choices(&Keys(&keys)).unwrap();
            }
            assert_eq!(words(&family.types).filter(|kind| named(kind).is_none()).count(), 0);
        }
    }
}
