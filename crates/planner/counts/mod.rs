//! Parameters of models with experts, and with layers of several kinds: all of them, and those that
//! one token passes.
//!
//! A family is a row of `families.toml`, a kind of layer a function. Counts are those of
//! transformers 5.24.0: each tensor once, no buffers. `counts.py` has them from transformers
//! itself, and writes `counted.json`, against which the tests hold this.
//!
//! Reading order: `mod.rs` (what is counted of a whole model), `family.rs` (a row of the table, and
//! a layer's numbers), `order.rs` (which layer is of which kind), `mixers.rs` and `mlps.rs` (the
//! kinds).

mod family;
mod mixers;
mod mlps;
mod order;
#[cfg(test)]
mod tests;

use family::{Family, Layer};
use shapes::config_json::{self, Keys, some};
use shapes::error::BadInput;
use shapes::units::thousands;
use std::collections::BTreeMap;

/// A part's parameters. One token passes all of them but the idle ones: those of the experts that
/// it is not sent to.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: u128,
    idle: u128,
}

impl Count {
    fn of(all: u128) -> Count {
        Count { all, idle: 0 }
    }
}

impl std::ops::Add for Count {
    type Output = Count;

    fn add(self, other: Count) -> Count {
        Count { all: self.all + other.all, idle: self.idle + other.idle }
    }
}

/// What a config.json's model has.
#[derive(Debug)]
pub struct Counted {
    /// All parameters, each tensor once, without buffers.
    pub parameters: u64,
    /// Those that a token passes: all but those of experts that it is not sent to. Its rows of the
    /// token table are counted as the whole table.
    pub active: u64,
    /// Layers by what they are made of, such as "attention + experts".
    pub layers: BTreeMap<String, usize>,
    /// What is not in the counts, or was read in one of several ways.
    pub notes: Vec<String>,
}

/// Counts a config.json's parameters if its family is one of those with experts or layers of other
/// kinds; `None` for another family.
///
/// # Errors
/// If the text is no config.json, lacks a key, or has keys that may change the count and are not
/// understood.
pub fn counted(json: &str) -> Result<Option<Counted>, BadInput> {
    let Ok(all) = config_json::json(json) else {
        return Ok(None); // what reads every other file says what is wrong
    };
    let Some(outer) = all.as_object().map(Keys) else {
        return Ok(None);
    };
    let Some(kind) = outer.text("model_type").ok().flatten() else {
        return Ok(None);
    };
    let nested = config_json::nested(&outer).filter(|_| outer.get("hidden_size").is_none());
    let inner = nested.map_or(outer, |(_, inner)| inner);
    let of_text = inner.text("model_type")?.unwrap_or(kind);
    let Some(family) = family::named(of_text) else {
        return Ok(None);
    };
    let of = Model { family, keys: inner, outer };
    let Some(mut counted) = of.count()? else {
        return Ok(None);
    };
    if let Some((table, _)) = nested {
        let towers = config_json::towers(&outer);
        let note = format!("of this {kind} the language model is counted ({table}){towers}");
        counted.notes.insert(0, note);
    }
    Ok(Some(counted))
}

/// A file, read as its family reads it.
struct Model<'a> {
    family: &'a Family,
    keys: Keys<'a>,
    outer: Keys<'a>,
}

impl Model<'_> {
    fn count(&self) -> Result<Option<Counted>, BadInput> {
        let ends = self.layer(0, "");
        let order = order::of(&ends)?;
        let mut notes = Vec::new();
        let mut layers = BTreeMap::new();
        let mut sum = Count::default();
        for (index, (kind, parts)) in order.iter().enumerate() {
            let layer = self.layer(index, kind);
            let mut count = Count::of(norms(&layer)?);
            for part in parts {
                count = count + layer.part(part)?;
            }
            sum = sum + count;
            *layers.entry(parts.join(" + ")).or_default() += 1;
        }
        let plain = layers.keys().all(|parts| parts == "attention + mlp");
        if plain && ends.yes("dense_elsewhere")? {
            return Ok(None);
        }
        let whole = sum + Count::of(self.ends(&ends, order.len(), &mut notes)?);
        notes.extend(self.not_counted(&ends, &order)?);
        self.ensure_understood(&ends, &mut notes)?;
        let number = |count: u128| {
            u64::try_from(count).map_err(|_| {
                BadInput::new(
                    "config.json's numbers are too large for a model",
                    "is it the model's own, complete file?",
                )
            })
        };
        Ok(Some(Counted {
            parameters: number(whole.all)?,
            active: number(whole.all - whole.idle)?,
            layers,
            notes,
        }))
    }

    fn layer<'m>(&'m self, index: usize, kind: &'m str) -> Layer<'m> {
        Layer { family: self.family, keys: self.keys, index, kind }
    }

    /// Token table, head, last norm, and what all layers share.
    fn ends(&self, of: &Layer, layers: usize, notes: &mut Vec<String>) -> Result<u128, BadInput> {
        let [d, vocabulary] = [of.number("hidden_size")?, of.number("vocab_size")?];
        let (headless, about_head) = config_json::head(&self.outer);
        notes.extend(about_head);
        let key = "tie_word_embeddings";
        let tied = match (of.find(key), self.outer.get(key)) {
            // transformers writes it where it differs from the class, on either level.
            (Some(_), None) => of.yes(key)?,
            (_, Some(_)) if self.keys.get(key).is_none() => self.outer.flag(key)?,
            _ => of.yes(key)?,
        };
        let mut count = vocabulary * d + d * of.or("norm_vectors", 1)?;
        if !(tied || headless) {
            let rows = of.or("head_rows", 0)?;
            count += if rows > 0 { rows } else { vocabulary } * d;
        }
        if of.yes("lm_head_bias")? && !headless {
            count += vocabulary;
        }
        // A second table with a row for each token and layer, and what brings it to the layers.
        let per_layer = of.or("hidden_size_per_layer_input", 0)?;
        if per_layer > 0 {
            let all = per_layer * layers as u128;
            count += of.number("vocab_size_per_layer_input")? * all + d * all + per_layer;
        }
        let streams = of.or("hc_mult", 0)?;
        if streams > 0 {
            count += streams * streams * d + streams + 1;
        }
        Ok(count)
    }

    /// What a file describes beside the model: layers that predict further tokens, biases that
    /// only select experts.
    fn not_counted(
        &self,
        of: &Layer,
        order: &[(String, Vec<&str>)],
    ) -> Result<Vec<String>, BadInput> {
        let mut notes = Vec::new();
        let predicts = of.or("predicts", 0)?;
        if predicts > 0 {
            let d = of.number("hidden_size")?;
            let last = order.len() - 1;
            let layer = self.layer(last, &order[last].0);
            let mut each = Count::of(2 * d * d + 3 * d + norms(&layer)?);
            for part in &order[last].1 {
                each = each + layer.part(part)?;
            }
            let more = thousands((predicts * each.all).try_into().unwrap_or(u64::MAX));
            notes.push(format!(
                "without what predicts further tokens, as transformers has it: \
                 {predicts} more of the last layer with a projection add {more}, the token table \
                 and the head shared"
            ));
        }
        let routed = order.iter().filter(|(_, parts)| parts.contains(&"experts")).count() as u128;
        if of.yes("selection_bias")? && routed > 0 {
            let biases = routed * of.number("num_experts")?;
            let biases = thousands(biases.try_into().unwrap_or(u64::MAX));
            notes.push(format!(
                "without {biases} biases that select experts: they are buffers, which no gradient \
                 changes"
            ));
        }
        let zero = of.or("zero_expert_num", 0)?;
        if zero > 0 {
            notes.push(format!(
                "transformers gives its {zero} zero experts matrices that it never reads: they are \
                 counted as it counts them"
            ));
        }
        Ok(notes)
    }

    /// Refuses keys that may change the count and were not read, and notes the others.
    fn ensure_understood(&self, of: &Layer, notes: &mut Vec<String>) -> Result<(), BadInput> {
        let known = |key: &str| of.family.ignores(key);
        let mut unread = self.keys.unread_keys(known);
        unread.retain(|key| {
            let value = self.keys.get(key);
            value.is_some_and(|value| *value != 0 && *value != false)
        });
        const SIGNS: [&str; 20] = [
            "expert", "moe", "layer", "size", "dim", "rank", "head", "num_", "n_", "latent",
            "shared", "width", "bias", "group", "every", "gate", "compress", "sparse", "config",
            "dense",
        ];
        let matters = |key: &&String| SIGNS.iter().any(|sign| key.contains(sign));
        let changing: Vec<&String> = unread.iter().filter(matters).collect();
        if !changing.is_empty() {
            let types = &of.family.types;
            let first = types.split_whitespace().next().unwrap_or_default();
            return Err(BadInput::new(
                format!(
                    "config.json has keys that may change the count and that a {first} does not \
                     have here: {}",
                    some(&changing)
                ),
                "what such a key adds is not counted: without it this is another model",
            ));
        }
        if !unread.is_empty() {
            let names = some(&unread);
            notes.push(format!(
                "config.json has keys that are not known here and were not read: {names}"
            ));
        }
        Ok(())
    }
}

/// The norms of a layer and what else it has once, whatever it is made of.
fn norms(of: &Layer) -> Result<u128, BadInput> {
    let d = of.number("hidden_size")?;
    let more = if of.yes("sandwich_norms")? { 2 } else { 0 };
    let mut count = d * (of.or("norms", 2)? + more) * of.or("norm_vectors", 1)?;
    let per_layer = of.or("hidden_size_per_layer_input", 0)?;
    if per_layer > 0 {
        count += 2 * d * per_layer + d;
    }
    let streams = of.or("hc_mult", 0)?;
    if streams > 0 {
        // Weights that mix the streams, for the mixer and for the MLP.
        let ways = of.or("hc_ways", 0)?;
        let (mixed, scales) = if ways > 0 {
            (ways * streams, ways)
        } else {
            ((2 + streams) * streams, 3)
        };
        count += 2 * (mixed * streams * d + mixed + scales);
    }
    Ok(count)
}
