//! Which layer is of which kind, by the list or the rule that a family's files have.

use super::family::Layer;
use serde_json::Value;
use shapes::error::BadInput;

/// For each layer its type, and what it is made of: a mixer and an MLP or experts.
pub fn of<'a>(model: &Layer<'a>) -> Result<Vec<(String, Vec<&'a str>)>, BadInput> {
    let types = types(model)?;
    let mut order = Vec::new();
    for (index, kind) in types.into_iter().enumerate() {
        let Some(mixer) = model.family.made_of(&kind).or(match kind.as_str() {
            "full_attention" | "sliding_attention" | "chunked_attention" => Some("attention"),
            _ => None,
        }) else {
            return Err(BadInput::new(
                format!(
                    "config.json: layer {index} is of the kind {kind:?}, which is not counted in this family"
                ),
                "is it the model's own, complete file?",
            ));
        };
        let mut parts: Vec<&str> = mixer.split_whitespace().collect();
        if !model.yes("only_mixers")? {
            parts.push(if routes(model, index)? { "experts" } else { "mlp" });
        }
        if model.yes("experts_beside")? {
            parts.push("experts");
        }
        order.push((kind, parts));
    }
    Ok(order)
}

/// The names that older files have for a type.
fn renamed(kind: &str) -> &str {
    match kind {
        "attention" => "full_attention",
        "mamba" => "linear_attention",
        other => other,
    }
}

fn types(model: &Layer) -> Result<Vec<String>, BadInput> {
    let layers = model.given("num_hidden_layers")?.map_or(0, |layers| layers as usize);
    let listed = model.list("layer_types").map(|list| {
        list.iter()
            .map(|kind| renamed(kind.as_str().unwrap_or("?")).to_string())
            .collect()
    });
    let pattern = model.text("layer_pattern").map(|pattern| {
        let kind = |letter| match letter {
            'M' => "linear_attention",
            '*' => "full_attention",
            'E' => "moe",
            '-' => "mlp",
            _ => "?",
        };
        pattern.chars().map(|letter| kind(letter).to_string()).collect()
    });
    // DeepSeek-V4's files say how many positions become one key.
    let ratios = model.list("compress_ratios").map(|list| {
        let kind = |ratio: &Value| match ratio.as_u64() {
            Some(0) => "sliding_attention",
            Some(4) => "compressed_sparse_attention",
            Some(128) => "heavily_compressed_attention",
            _ => "?",
        };
        list.iter().map(|ratio| kind(ratio).to_string()).collect()
    });
    let of_file: Option<Vec<String>> = listed.or(pattern).or(ratios);
    if let Some(mut types) = of_file {
        if model.yes("more_layers_listed")? && types.len() > layers {
            types.truncate(layers);
        }
        if model.yes("counts_its_list")? || types.len() == layers {
            return ended(model, types);
        }
        return Err(BadInput::new(
            format!("config.json's layer_types has {} entries for {layers} layers", types.len()),
            "one of the two is another model's: an entry is for each of num_hidden_layers",
        ));
    }
    if !(1..=10_000).contains(&layers) {
        return Err(BadInput::new(
            format!("config.json: num_hidden_layers is {layers}, not 1 to 10000"),
            "is it the model's own, complete file?",
        ));
    }
    let other = model.text("other_kind").unwrap_or("full_attention").to_string();
    let mut types = Vec::new();
    for index in 0..layers {
        let full = full(model, index)?;
        types.push(if full { "full_attention".into() } else { other.clone() });
    }
    ended(model, types)
}

/// Gemma 4 makes its last layer attend to all positions, whatever the file says.
fn ended(model: &Layer, mut types: Vec<String>) -> Result<Vec<String>, BadInput> {
    if let (true, Some(last)) = (model.yes("last_is_full")?, types.last_mut()) {
        *last = "full_attention".into();
    }
    Ok(types)
}

/// Whether a layer attends to all positions, by the rule of its family.
fn full(model: &Layer, index: usize) -> Result<bool, BadInput> {
    let has = |list: &Vec<Value>, number: usize| {
        list.iter().any(|entry| entry.as_u64() == Some(number as u64))
    };
    if let Some(list) = model.list("full_layers") {
        return Ok(has(list, index));
    }
    if let Some(list) = model.list("full_flags") {
        return Ok(list.get(index).and_then(Value::as_u64) == Some(1));
    }
    let table = model.find("linear_attn_config").and_then(|table| table.get("full_attn_layers"));
    if let Some(Value::Array(list)) = table {
        return Ok(has(list, index + 1));
    }
    let index = index as u128;
    let every = model.or("full_every", 1)?;
    if every == 0 || index < model.or("full_from", 0)? {
        return Ok(false);
    }
    let offset = model.or("full_offset", every - 1)?;
    Ok(index % every == offset || index < model.or("full_first", 0)?)
}

/// Whether a layer has experts, by the rule of its family.
fn routes(model: &Layer, index: usize) -> Result<bool, BadInput> {
    if model.or("num_experts", 0)? == 0 {
        return Ok(false);
    }
    if model.find("experts_beside").is_some() {
        return Ok(false);
    }
    let number = |value: &Value| value.as_u64();
    if let Some(list) = model.list("mlp_layer_types") {
        return Ok(list.get(index).and_then(Value::as_str).is_some_and(|kind| kind != "dense"));
    }
    if let Some(list) = model.list("moe_layers") {
        return Ok(list.iter().filter_map(number).any(|layer| layer == index as u64));
    }
    if let Some(list) = model.list("moe_layer_freq") {
        return Ok(list.get(index).and_then(number) == Some(1));
    }
    if let Some(list) = model.list("mlp_only_layers")
        && list.iter().filter_map(number).any(|layer| layer == index as u64)
    {
        return Ok(false);
    }
    let index = index as u128;
    if let Some(first) = model.given("moe_layer_start_index")? {
        let last = model.given("moe_layer_end_index")?.unwrap_or(u128::MAX);
        let every = model.or("moe_layer_interval", 1)?.max(1);
        return Ok((index + 1).is_multiple_of(every) && (first..=last).contains(&index));
    }
    let every = model.or("moe_every", 1)?.max(1);
    let offset = model.or("moe_offset", every - 1)?;
    Ok(index % every == offset && index >= model.or("first_dense", 0)?)
}
