//! Files of published models, small ones, and broken ones.

use super::*;
use serde_json::json;

const NONE: Sizes = Sizes {
    layers: None,
    embd: None,
    heads: None,
    kv_heads: None,
    ffn: None,
    vocab: None,
    seq: None,
};

fn with(config: &Value, sizes: &Sizes) -> Result<Described, BadInput> {
    parse("my.json", &config.to_string(), sizes)
}

fn small(kind: &str) -> Value {
    json!({"model_type": kind, "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8,
           "num_key_value_heads": 4, "intermediate_size": 96, "vocab_size": 100})
}

fn changed(config: &Value, changes: &Value) -> Value {
    let mut config = config.clone();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

/// The numbers of published models, and the parameters that transformers 5.23 gives them: its own
/// layers were built on PyTorch's meta device and counted. Most are also in the headers of
/// published weights or on model cards. Falcon's weights have a copy of the tied head:
/// 7,217,189,760 parameters of the 7B, and 41,835,970,560 of the 40B.
#[test]
fn published_models_have_the_parameters_of_their_layers() {
    let numbers = |kind: &str, [layers, embd, heads, vocab]: [usize; 4]| {
        json!({"model_type": kind, "num_hidden_layers": layers, "hidden_size": embd,
               "num_attention_heads": heads, "vocab_size": vocab})
    };
    for (config, more, parameters) in [
        // Llama 3 8B
        (
            numbers("llama", [32, 4096, 32, 128_256]),
            json!({"intermediate_size": 14_336, "num_key_value_heads": 8}),
            8_030_261_248,
        ),
        // Mistral 7B, without the key whose usual value is 8; and NeMo, whose heads are narrower
        // than the model.
        (
            numbers("mistral", [32, 4096, 32, 32_000]),
            json!({"intermediate_size": 14_336}),
            7_241_732_096,
        ),
        (
            numbers("mistral", [40, 5120, 32, 131_072]),
            json!({"intermediate_size": 14_336, "num_key_value_heads": 8, "head_dim": 128}),
            12_247_782_400,
        ),
        // Qwen 2.5 7B and 0.5B
        (
            numbers("qwen2", [28, 3584, 28, 152_064]),
            json!({"intermediate_size": 18_944, "num_key_value_heads": 4}),
            7_615_616_512,
        ),
        (
            numbers("qwen2", [24, 896, 14, 151_936]),
            json!({"intermediate_size": 4864, "num_key_value_heads": 2, "tie_word_embeddings": true}),
            494_032_768,
        ),
        // Qwen 3 8B and 0.6B, whose heads are wider than the model
        (
            numbers("qwen3", [36, 4096, 32, 151_936]),
            json!({"intermediate_size": 12_288, "num_key_value_heads": 8}),
            8_190_735_360,
        ),
        (
            numbers("qwen3", [28, 1024, 16, 151_936]),
            json!({"intermediate_size": 3072, "num_key_value_heads": 8, "tie_word_embeddings": true}),
            596_049_920,
        ),
        // GPT-NeoX 20B, Pythia 6.9B
        (
            numbers("gpt_neox", [44, 6144, 64, 50_432]),
            json!({"intermediate_size": 24_576}),
            20_554_567_680,
        ),
        (
            numbers("gpt_neox", [32, 4096, 32, 50_432]),
            json!({"intermediate_size": 16_384}),
            6_857_302_016,
        ),
        // BLOOM, with the names that its file has
        (
            json!({"model_type": "bloom", "vocab_size": 250_880}),
            json!({"n_embed": 14_336, "n_layer": 70, "num_attention_heads": 112}),
            176_247_271_424,
        ),
        // OPT 125M and 66B
        (
            numbers("opt", [12, 768, 12, 50_272]),
            json!({"ffn_dim": 3072, "word_embed_proj_dim": 768}),
            125_239_296,
        ),
        (
            numbers("opt", [64, 9216, 72, 50_272]),
            json!({"ffn_dim": 36_864}),
            65_719_701_504,
        ),
        // Falcon RW 1B, 7B, 40B and 11B: four combinations of norms and heads
        (
            numbers("falcon", [24, 2048, 32, 50_304]),
            json!({"multi_query": false, "parallel_attn": false, "bias": true, "alibi": true}),
            1_311_625_216,
        ),
        (numbers("falcon", [32, 4544, 71, 65_024]), json!({}), 6_921_720_704),
        (
            numbers("falcon", [60, 8192, 128, 65_024]),
            json!({"new_decoder_architecture": true, "num_kv_heads": 8}),
            41_303_293_952,
        ),
        (
            numbers("falcon", [60, 4096, 32, 65_024]),
            json!({"new_decoder_architecture": true, "num_kv_heads": 8, "num_ln_in_parallel_attn": 1,
                   "ffn_hidden_size": 16_384, "tie_word_embeddings": false}),
            11_102_822_400,
        ),
        // GPT-2 XL, Phi-3 mini, Gemma 7B
        (
            json!({"model_type": "gpt2", "vocab_size": 50_257}),
            json!({"n_embd": 1600, "n_layer": 48, "n_head": 25}),
            1_557_611_200,
        ),
        (
            numbers("phi3", [32, 3072, 32, 32_064]),
            json!({"intermediate_size": 8192}),
            3_821_079_552,
        ),
        (
            numbers("gemma", [28, 3072, 16, 256_000]),
            json!({"intermediate_size": 24_576}),
            8_537_680_896,
        ),
    ] {
        let config = changed(&config, &more);
        let described = with(&config, &NONE).unwrap();
        assert_eq!(described.shape.parameters(), parameters, "{config}");
        assert!(described.not_understood.is_empty(), "{described:?}");
        assert_eq!(described.name, config["model_type"], "{config}");
    }
}

#[test]
fn a_gpt2_is_the_one_by_name() {
    let config = json!({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50_257});
    let by_name = super::super::model("gpt2").unwrap();
    assert_eq!(with(&config, &NONE).unwrap().shape, by_name);
    // A table of learned positions keeps its rows, whatever part of them is used, and grows when it
    // must.
    let positions = |seq| {
        let sizes = Sizes { seq: Some(seq), ..NONE };
        with(&config, &sizes).unwrap().shape.positions() / 768
    };
    assert_eq!([positions(512), positions(2048)], [1024, 2048]);
    let wide = changed(&config, &json!({"n_inner": 1000, "resid_pdrop": 0}));
    let dense = with(&wide, &NONE).unwrap().shape.dense();
    assert_eq!((dense.ffn, dense.dropout), (1000, false));
}

/// Attention beside the MLP, dropout, and what else is no parameter.
#[test]
fn what_has_no_parameters_is_read_too() {
    let dense = |kind: &str, more: Value| {
        let config = changed(&small(kind), &more);
        with(&config, &NONE).unwrap().shape.dense()
    };
    assert!(dense("gpt_neox", json!({})).parallel);
    assert!(!dense("gpt_neox", json!({"use_parallel_residual": false})).parallel);
    assert!(dense("falcon", json!({})).parallel);
    assert!(
        dense("falcon", json!({"parallel_attn": false, "new_decoder_architecture": true})).parallel
    );
    assert!(!dense("falcon", json!({"parallel_attn": false})).parallel);
    assert!(!dense("bloom", json!({})).parallel && !dense("bloom", json!({})).dropout);
    assert!(dense("opt", json!({"ffn_dim": 96})).dropout);
    assert!(!dense("opt", json!({"ffn_dim": 96, "dropout": 0.0})).dropout);
    assert!(dense("gpt_neox", json!({"hidden_dropout": 0.1})).dropout);
    assert!(!dense("gpt_neox", json!({"attention_bias": false})).qkv_bias);
    assert!(dense("gpt_neox", json!({"attention_bias": false})).mlp_bias);
    assert!(dense("llama", json!({"attention_bias": true})).proj_bias);
    assert!(dense("llama", json!({"mlp_bias": true})).mlp_bias);
    assert!(!dense("mistral", json!({"attention_bias": true})).qkv_bias);
    let both = dense("falcon", json!({"hidden_size": 64, "n_embed": 32}));
    assert_eq!(both.ffn, 128); // the older name counts
    assert_eq!(dense("llama", json!({"num_key_value_heads": null})).kv_heads, 8);
    assert_eq!(dense("qwen2", json!({"num_key_value_heads": null})).kv_heads, 8);
    assert_eq!(
        dense("opt", json!({"ffn_dim": 96, "layer_norm_elementwise_affine": false})).norm_vectors,
        0
    );
}

#[test]
fn sequences_are_those_of_pretraining() {
    let block = |kind: &str, more: Value, seq| {
        let config = changed(&small(kind), &more);
        with(&config, &Sizes { seq, ..NONE }).unwrap().shape.block
    };
    let long = json!({"max_position_embeddings": 131_072});
    assert_eq!(block("llama", long.clone(), None), 8192);
    assert_eq!(block("llama", long, Some(32_768)), 32_768);
    assert_eq!(block("llama", json!({"max_position_embeddings": 4096}), None), 4096);
    assert_eq!(block("bloom", json!({"seq_length": 1024}), None), 1024);
    assert_eq!([block("bloom", json!({}), None), block("falcon", json!({}), None)], [2048; 2]);
    assert_eq!(
        [block("mistral", json!({}), None), block("phi3", json!({}), None)],
        [8192, 4096]
    );
}

#[test]
fn flags_change_single_numbers() {
    let all = Sizes {
        layers: Some(3),
        embd: Some(128),
        heads: Some(16),
        kv_heads: Some(2),
        ffn: Some(40),
        vocab: Some(50),
        seq: Some(77),
    };
    let described = with(&small("qwen2"), &all).unwrap();
    let shape = described.shape;
    assert_eq!([shape.layers, shape.embd, shape.heads], [3, 128, 16]);
    assert_eq!([shape.kv_heads(), shape.ffn(), shape.head()], [2, 40, 8]);
    assert_eq!([shape.vocabulary, shape.block], [50, 77]);
    assert_eq!(described.name, "your qwen2");
    for kind in ["bloom", "falcon", "gpt_neox", "gpt2", "opt"] {
        let config = changed(&small(kind), &json!({"ffn_dim": 96}));
        let shape = with(&config, &all).unwrap().shape;
        assert_eq!([shape.kv_heads(), shape.ffn(), shape.head()], [2, 40, 8], "{kind}");
    }
    // What follows from another number follows from the new one.
    let wider = Sizes { embd: Some(128), heads: Some(16), ..NONE };
    let bloom = with(&small("bloom"), &wider).unwrap().shape;
    assert_eq!([bloom.ffn(), bloom.kv_heads(), bloom.head()], [512, 16, 8]);
    let llama = changed(&small("llama"), &json!({"num_key_value_heads": 8, "head_dim": 8}));
    let llama = with(&llama, &Sizes { heads: Some(4), ..NONE }).unwrap().shape;
    assert_eq!([llama.kv_heads(), llama.head()], [4, 16]);
    let falcon = json!({"new_decoder_architecture": true, "num_kv_heads": 8});
    let falcon = with(&changed(&small("falcon"), &falcon), &wider).unwrap().shape;
    assert_eq!(falcon.kv_heads(), 16);
    // A width of heads that is the file's own stays. The length of sequences makes no other model
    // of it.
    let own = changed(&small("llama"), &json!({"head_dim": 10, "_name_or_path": "me/mine"}));
    let longer = Sizes { seq: Some(512), ..NONE };
    assert_eq!(with(&own, &longer).unwrap().name, "me/mine");
    assert_eq!(with(&own, &wider).unwrap().shape.head(), 10);
}

#[test]
fn what_is_not_understood_is_named_with_its_value() {
    let more = json!({
        "architectures": ["MistralForCausalLM"], "torch_dtype": "bfloat16", "bos_token_id": 1,
        "attention_dropout": 0.0, "rope_theta": 1e6, "transformers_version": "5.0", "use_cache": true,
        "hidden_act": "silu", "rms_norm_eps": 1e-5, "nothing": null, "off": false, "num_experts": 1,
        "layer_types": ["full_attention", "full_attention"], "summary_type": "mean",
        "sliding_window": 4096, "quantization_config": {"bits": 4}, "a\u{202e}b": "c\u{1b}[2J".repeat(9),
    });
    let found = with(&changed(&small("mistral"), &more), &NONE).unwrap();
    let mut names = found.not_understood.clone();
    names.sort();
    assert_eq!(names[1..], ["quantization_config = {\"bits\":4}", "sliding_window = 4096"]);
    assert!(names[0].starts_with("a\\u{202e}b = \"c\\u001b[2J"), "{names:?}");
    assert!(names[0].ends_with("...") && names[0].is_ascii(), "{names:?}");

    let not_read = |more: Value| {
        let config = changed(&small("qwen2"), &more);
        with(&config, &NONE).unwrap().not_understood
    };
    let off = json!({"use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28});
    assert!(not_read(off).is_empty());
    let on = json!({"use_sliding_window": true, "sliding_window": 4096});
    assert_eq!(not_read(on), ["sliding_window = 4096", "use_sliding_window = true"]);
    let mixed = json!({"layer_types": ["sliding_attention", "full_attention"]});
    assert_eq!(not_read(mixed).len(), 1);
    // OPT's two ways to normalize: the usual one is not there.
    assert!(not_read(json!({"do_layer_norm_before": true})).is_empty());
    assert_eq!(
        not_read(json!({"do_layer_norm_before": false})),
        ["do_layer_norm_before = false"]
    );
}

#[test]
fn what_is_wrong_is_told_before_any_work() {
    let llama = small("llama");
    for (changes, says, helps) in [
        (json!({"model_type": "mamba"}), "its model_type is mamba", "knows bloom, falcon"),
        (json!({"model_type": null}), "it has no model_type", "mistral"),
        (
            json!({"model_type": "mixtral", "num_local_experts": 8}),
            "has experts (num_local_experts = 8)",
            "dense models only",
        ),
        (json!({"num_experts": 64}), "has experts (num_experts = 64)", "dense"),
        (
            json!({"n_routed_experts": 160}),
            "has experts (n_routed_experts = 160)",
            "dense",
        ),
        (
            json!({"hidden_size": null}),
            "it has no hidden_size or n_embd or n_embed",
            "config.json",
        ),
        (json!({"intermediate_size": null}), "it has no intermediate_size", "config.json"),
        (json!({"vocab_size": null}), "it has no vocab_size", "config.json"),
        (json!({"model_type": "opt"}), "it has no ffn_dim", "config.json"),
        (
            json!({"hidden_size": "64"}),
            "hidden_size is \"64\", not a whole number from 1 to 16777216",
            "config.json",
        ),
        (
            json!({"hidden_size": 64.5}),
            "hidden_size is 64.5, not a whole number",
            "config.json",
        ),
        (
            json!({"num_hidden_layers": 0}),
            "num_hidden_layers is 0, not a whole number from 1 to 10000",
            "config.json",
        ),
        (
            json!({"num_hidden_layers": 10_001}),
            "num_hidden_layers is 10001",
            "config.json",
        ),
        (json!({"vocab_size": 1 << 25}), "vocab_size is 33554432", "config.json"),
        (json!({"num_attention_heads": -8}), "num_attention_heads is -8", "config.json"),
        (
            json!({"attention_bias": "yes"}),
            "attention_bias is \"yes\", not true or false",
            "config.json",
        ),
        (
            json!({"num_attention_heads": 7}),
            "7 heads cannot share a width of 64 evenly",
            "a width of 70",
        ),
        (
            json!({"num_key_value_heads": 3}),
            "8 query heads cannot share 3 key and value heads",
            "divisor of 8",
        ),
        (
            json!({"num_attention_heads": 65_536, "head_dim": 1024, "num_key_value_heads": 1}),
            "65536 heads of width 1024 are 67108864 wide",
            "16777216",
        ),
        (
            json!({"num_hidden_layers": 10_000, "hidden_size": 1 << 24, "intermediate_size": 1 << 24}),
            "1.7e19 parameters is more than the planner counts",
            "at most 1e15",
        ),
        (
            json!({"model_type": "opt", "ffn_dim": 96, "word_embed_proj_dim": 32}),
            "its token table is 32 wide (word_embed_proj_dim), and its layers 64",
            "one width",
        ),
    ] {
        let error = with(&changed(&llama, &changes), &NONE).unwrap_err();
        assert!(
            error.what.starts_with("my.json: ")
                && error.what.contains(says)
                && error.help.contains(helps),
            "{changes}: {error}"
        );
    }
    for (text, says) in [
        (
            "{\n \"model_type\": llama}",
            "my.json, line 2, column 16: it is not JSON: expected value",
        ),
        ("{\n \"a\" 1}", "my.json, line 2, column 6: it is not JSON: expected `:`\n"),
        ("", "my.json, line 1, column 0: it is not JSON: EOF"),
        ("[1]", "my.json: it is JSON, but has no keys"),
    ] {
        let error = parse("my.json", text, &NONE).unwrap_err();
        assert_eq!(
            (error.to_string().starts_with(says), error.help.as_str()),
            (true, HELP),
            "{error}"
        );
    }
    let deep = "[".repeat(100_000);
    assert!(parse("my.json", &deep, &NONE).unwrap_err().what.contains("recursion"));
}

#[test]
fn files_that_cannot_be_read_are_refused() {
    let error = read(Path::new("no/such.json"), &NONE).unwrap_err();
    assert!(error.what.starts_with("no/such.json cannot be read: "), "{error}");
    let path = std::env::temp_dir().join(format!("lab11-large-{}.json", std::process::id()));
    std::fs::write(&path, " ".repeat(MOST_BYTES as usize + 1)).unwrap();
    let error = read(&path, &NONE).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    assert!(error.what.contains("at most 1048576 are expected"), "{error}");
    assert!(read(&std::env::temp_dir(), &NONE).unwrap_err().what.contains("a folder"));
}
