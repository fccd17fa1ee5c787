//! Counts beside those of transformers, and files that are refused.

use super::counted;
use super::family::TABLE;
use serde_json::{Value, json};

fn models() -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("counted.json")).unwrap();
    all["models"].as_array().unwrap().clone()
}

/// Every family in at least two sizes.
#[test]
fn models_have_the_parameters_that_transformers_gives_them() {
    let models = models();
    for family in TABLE.keys() {
        let sizes = models.iter().filter(|model| model["config"]["model_type"] == family.as_str());
        assert!(sizes.count() > 1, "{family}");
    }
    let mut wrong = Vec::new();
    for model in models {
        let config = &model["config"];
        let is = counted(&config.to_string()).map(|counted| {
            let counted = counted.expect("its family is in the table");
            (counted.parameters, counted.active)
        });
        let number = |key: &str| model[key].as_u64().unwrap();
        let expected = (number("parameters"), number("active"));
        if is.as_ref().ok() != Some(&expected) {
            wrong.push(format!("{is:?}, not {expected:?}: {config}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn mixtral(key: &str, value: Value) -> String {
    let model = models().into_iter().find(|model| model["config"]["model_type"] == "mixtral");
    let mut config = model.unwrap()["config"].clone();
    config[key] = value;
    config.to_string()
}

/// A key of another family is named, and what it adds is never left out in silence.
#[test]
fn keys_that_may_change_the_count_are_refused_by_name() {
    for (key, value, says) in [
        ("n_shared_experts", json!(2), "a mixtral does not have here: n_shared_experts"),
        ("kv_lora_rank", json!(16), "kv_lora_rank"),
        ("first_k_dense_replace", json!(1), "first_k_dense_replace"),
        ("layer_types", json!(["full_attention"]), "1 entries for 4 layers"),
        (
            "layer_types",
            json!(vec!["linear_attention"; 4]),
            "of the kind \"linear_attention\"",
        ),
        ("num_hidden_layers", json!(0), "num_hidden_layers is 0"),
        ("hidden_size", json!("64"), "hidden_size is \"64\""),
        ("hidden_size", json!(u64::MAX), "not a whole number that fits"),
        ("num_experts_per_tok", json!(64), "cannot be sent to 64 of 4 experts"),
        ("vocab_size", Value::Null, "no vocab_size"),
    ] {
        let error = counted(&mixtral(key, value)).unwrap_err();
        assert!(error.what.contains(says) && !error.help.is_empty(), "{key}: {error}");
    }
    for (key, value, notes) in [
        ("attention_bias", json!(false), 0),
        ("n_shared_experts", json!(0), 0),
        ("router_aux_loss_coef", json!(0.5), 0),
        ("strange", json!(0.5), 1),
    ] {
        let counted = counted(&mixtral(key, value)).unwrap().unwrap();
        assert_eq!(counted.notes.len(), notes, "{key}: {:?}", counted.notes);
    }
    for other in ["{", "[1]", r#"{"model_type": "llama"}"#, "{}"] {
        assert!(counted(other).unwrap().is_none(), "{other}");
    }
}

/// A layer that predicts further tokens and biases that only select are said, and not counted.
#[test]
fn what_is_not_counted_is_said() {
    let says = |key: &str| {
        let model = models().into_iter().find(|model| !model["config"][key].is_null()).unwrap();
        counted(&model["config"].to_string()).unwrap().unwrap().notes.join("; ")
    };
    assert!(says("num_nextn_predict_layers").contains("1 more of the last layer"));
    assert!(says("n_routed_experts").contains("biases that select experts"));
    assert!(says("zero_expert_num").contains("zero experts"));
}

/// The tie may be said by the table around the text's.
#[test]
fn a_tie_outside_of_the_texts_table_is_read() {
    let models = models();
    let model = models.iter().find(|model| model["config"]["model_type"] == "gemma4_text");
    let of = |outer: Value| {
        let config = json!({
            "model_type": "gemma4", "text_config": model.unwrap()["config"],
            "tie_word_embeddings": outer, "vision_config": {"a": 1},
        });
        counted(&config.to_string()).unwrap().unwrap()
    };
    assert_eq!(of(json!(false)).parameters - of(json!(true)).parameters, 1000 * 64);
    assert!(of(Value::Null).notes[0].contains("the language model is counted (text_config)"));
}
