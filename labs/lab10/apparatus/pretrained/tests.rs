//! Folders and files of a tiny Llama, as other people's are: what runs, what is said, what is
//! refused.

use super::*;
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use safetensors::tensor::{Dtype, TensorView};
use shapes::config_json::to_config;
use shardlab::plan::{Family, LlamaExtra, Rope, RopeScaling};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tempfile::TempDir;

const SHAPE: ModelShape = ModelShape {
    vocabulary: 16,
    block: 32,
    layers: 2,
    heads: 4,
    embd: 8,
    family: Family::Llama(LlamaExtra {
        kv_heads: 2,
        ffn: 12,
        rope: Rope { theta: 10_000.0, scaling: None },
        norm_eps: 1.0 / 65_536.0, // exact in f32, as GGUF has it
        tied: true,
    }),
    experts: None,
};

const TABLE: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The model's tensors, each with its own numbers.
fn tensors() -> Tensors {
    let named = SHAPE.named().into_iter().enumerate();
    named
        .map(|(i, (name, dims))| {
            let count: usize = dims.iter().product();
            let numbers = (0..count).map(|n| (i * 1000 + n) as f32 / 4.0).collect();
            (name, (dims, numbers))
        })
        .collect()
}

fn save(path: &Path, tensors: &Tensors) {
    let bytes: Vec<(&String, &Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, (dims, numbers))| {
            (name, dims, numbers.iter().flat_map(|n| n.to_le_bytes()).collect())
        })
        .collect();
    let views = bytes.iter().map(|(name, dims, bytes)| {
        (name.as_str(), TensorView::new(Dtype::F32, dims.to_vec(), bytes).unwrap())
    });
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// A folder with config.json and these files of weights.
fn folder(files: &[(&str, &Tensors)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), to_config(&SHAPE).unwrap()).unwrap();
    for (name, tensors) in files {
        save(&dir.path().join(name), tensors);
    }
    dir
}

fn refused(path: &Path) -> BadInput {
    Pretrained::open(path)
        .err()
        .unwrap_or_else(|| panic!("{} is refused", path.display()))
}

/// A head of its own is the head, whatever config.json says, and an equal one is the table.
#[test]
fn a_head_of_its_own_is_the_head() {
    let plain = tensors();
    let mut last_differs = plain[TABLE].clone();
    *last_differs.1.last_mut().unwrap() += 0.25;
    for (head, says) in [
        (plain[TABLE].clone(), None),
        (last_differs, Some("lm_head.weight has different values: it is the head")),
    ] {
        let mut all = plain.clone();
        all.insert(HEAD.into(), head.clone());
        let dir = folder(&[(ONE, &all)]);
        let model = Pretrained::open(dir.path()).unwrap();
        assert_eq!(model.shape.tied(), says.is_none());
        assert_eq!(model.notes.len(), usize::from(says.is_some()), "{:?}", model.notes);
        if let Some(says) = says {
            assert!(model.notes[0].contains(says), "{:?}", model.notes);
            let llama = shardlab::model::Llama::new(&model.shape).unwrap();
            llama.params.allocate(1);
            model.load(&llama.params, Precision::F32).unwrap();
            let specs = llama.params.specs();
            let spec = specs.iter().find(|spec| spec.name == HEAD).unwrap();
            assert_eq!(llama.params.values_mut()[spec.range()], head.1);
        }
    }
    let mut all = plain.clone();
    all.insert(HEAD.into(), (vec![18, 8], vec![0.0; 144]));
    let error = refused(folder(&[(ONE, &all)]).path());
    assert!(error.what.contains("lm_head.weight is [18, 8], not [16, 8]"), "{error}");
    // A program that saves each number once may keep the other name.
    let mut all = plain.clone();
    let table = all.remove(TABLE).unwrap();
    all.insert(HEAD.into(), table);
    let dir = folder(&[(ONE, &all)]);
    let model = Pretrained::open(dir.path()).unwrap();
    assert_eq!((model.shape, model.notes), (SHAPE, Vec::new()));
}

/// The same numbers in a different type are equal, and more than one chunk is compared.
#[test]
fn heads_are_compared_as_numbers() {
    let rows = 3 * CHUNK / 8;
    let numbers: Vec<f32> = (0..rows * 8).map(|n| (n % 128) as f32).collect();
    let narrow = |change: f32| -> Vec<u8> {
        let mut numbers = numbers.clone();
        numbers[2 * CHUNK + 5] += change;
        numbers.iter().flat_map(|&n| bf16::from_f32(n).to_le_bytes()).collect()
    };
    let wide: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    for (change, tied) in [(0.0, true), (1.0, false)] {
        let dir = tempfile::tempdir().unwrap();
        let shape = ModelShape { vocabulary: rows, ..SHAPE };
        std::fs::write(dir.path().join("config.json"), to_config(&shape).unwrap()).unwrap();
        let mut all: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = tensors()
            .into_iter()
            .map(|(name, (dims, numbers))| {
                (name, Dtype::F32, dims, numbers.iter().flat_map(|n| n.to_le_bytes()).collect())
            })
            .collect();
        all.retain(|(name, ..)| name != TABLE);
        all.push((TABLE.into(), Dtype::F32, vec![rows, 8], wide.clone()));
        all.push((HEAD.into(), Dtype::BF16, vec![rows, 8], narrow(change)));
        let views = all.iter().map(|(name, dtype, dims, bytes)| {
            (name.as_str(), TensorView::new(*dtype, dims.clone(), bytes).unwrap())
        });
        let bytes = safetensors::serialize(views, None).unwrap();
        std::fs::write(dir.path().join(ONE), bytes).unwrap();
        assert_eq!(Pretrained::open(dir.path()).unwrap().shape.tied(), tied);
    }
}

/// A folder that lacks names says what is there instead, and what to do.
#[test]
fn what_is_there_instead_is_said() {
    let renamed = |new: &dyn Fn(&str) -> String| -> Tensors {
        tensors().into_iter().map(|(name, tensor)| (new(&name), tensor)).collect()
    };
    let in_place_of = |old: &str, new: &str| renamed(&|name| name.replace(old, new));
    for (all, what, help) in [
        (
            renamed(&|name| format!("module.{name}")),
            "its names begin with module.",
            "rename",
        ),
        (renamed(&|name| format!("_orig_mod.{name}")), "begin with _orig_mod.", "rename"),
        (
            renamed(&|name| format!("language_model.{name}")),
            "with language_model.",
            "rename",
        ),
        (
            renamed(&|name| format!("base_model.model.{name}")),
            "with base_model.model.",
            "rename",
        ),
        (
            in_place_of("model.", ""),
            "but embed_tokens.weight: its names lack the model.",
            "rename",
        ),
        (
            in_place_of("model.", "encoder."),
            "its names begin with encoder., not with model.",
            "rename",
        ),
        (
            in_place_of("q_proj", "qkv_proj"),
            "qkv_proj.weight: several matrices",
            "divide its rows",
        ),
        (
            in_place_of("gate_proj", "gate_up_proj"),
            "gate_up_proj.weight: several",
            "divide its rows",
        ),
        (
            in_place_of("mlp.", "block_sparse_moe.experts.0."),
            "experts in place of",
            "dense Llama",
        ),
        (
            in_place_of("q_proj.weight", "q_proj.qweight"),
            "qweight: quantised weights",
            "GGUF",
        ),
        (
            in_place_of("q_proj.weight", "q_proj.lora_A.weight"),
            "an adapter's matrices",
            "merge",
        ),
        (
            in_place_of("q_proj", "query"),
            "but model.layers.0.self_attn.query.weight, model",
            "belong",
        ),
    ] {
        let error = refused(folder(&[(ONE, &all)]).path());
        assert!(error.what.contains(what) && error.help.contains(help), "{error}");
        assert!(
            error
                .what
                .contains("does not hold the model of its config.json: it has no model.")
        );
    }
    let mut half = tensors();
    let other: Tensors = half.split_off("model.layers.1");
    let parts = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let dir = folder(&[(parts[0], &half), (parts[1], &other)]);
    let error = refused(dir.path());
    assert!(
        error.what.contains("parts of the weights, without model.safetensors.index"),
        "{error}"
    );
    let map: BTreeMap<&str, &str> = half.keys().map(|name| (name.as_str(), parts[0])).collect();
    let index = serde_json::json!({ "weight_map": map });
    std::fs::write(dir.path().join(INDEX), index.to_string()).unwrap();
    let error = refused(dir.path());
    let says = "model-00002-of-00002.safetensors is not read, because model.safetensors.index.json";
    assert!(error.what.contains(says), "{error}");
    let error = refused(folder(&[(ONE, &half), ("more.safetensors", &other)]).path());
    let says = "; more.safetensors is not read, because model.safetensors is there";
    assert!(error.what.ends_with(says), "{error}");
    // A file that is not of the folder's weights, in it and by its name.
    for (name, what, help) in [
        ("adapter_model.safetensors", "an adapter's weights", "merge"),
        ("consolidated.00.pth", "Meta's or Mistral's own format", "transformers"),
        ("pytorch_model-00001-of-00002.bin", "as PyTorch saves them", "as safetensors"),
        ("a.gguf.part1of2", "a GGUF file that was cut", "cat NAME.gguf.part*"),
        (
            "weights.safetensors",
            "weights of another name",
            "rename the file to model.safetensors",
        ),
        ("notes.txt", "", "as safetensors, or as a GGUF file"),
    ] {
        let dir = folder(&[]);
        std::fs::write(dir.path().join(name), "x").unwrap();
        let error = refused(dir.path());
        assert!(error.what.contains(what) && error.help.contains(help), "{name}: {error}");
        let error = refused(&dir.path().join(name));
        assert!(error.what.contains(what) && error.what.contains("is no model: "), "{error}");
    }
}

/// A file of the folder's weights stands for the folder.
#[test]
fn a_file_of_the_weights_is_their_folder() {
    let dir = folder(&[(ONE, &tensors()), ("other.safetensors", &tensors())]);
    for name in [ONE, "config.json"] {
        let model = Pretrained::open(&dir.path().join(name)).unwrap();
        assert_eq!((model.shape, model.dir.as_path()), (SHAPE, dir.path()));
        let note = "the weights are those in model.safetensors; not read: other.safetensors";
        assert_eq!(model.notes, [note]);
    }
    let error = refused(&dir.path().join("other.safetensors"));
    assert!(error.what.contains("is no model: weights of another name"), "{error}");
    let name = |path: PathBuf| super::super::Model::find(path.to_str().unwrap()).unwrap().name;
    let folder = dir.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(name(dir.path().join(ONE)), folder);
}

/// Python's bare infinities hide no token that ends a text.
#[test]
fn ends_are_read_beside_infinities() {
    let dir = folder(&[(ONE, &tensors())]);
    let config = to_config(&SHAPE).unwrap();
    let config = config.replacen('{', "{\"eos_token_id\": [3, 5], \"x\": -Infinity,", 1);
    std::fs::write(dir.path().join("config.json"), config).unwrap();
    let model = Pretrained::open(dir.path()).unwrap();
    assert_eq!((model.ends, model.notes.len()), (vec![3, 5], 1));
}

/// A GGUF file's metadata and tensors.
#[derive(Clone)]
struct Written {
    metadata: BTreeMap<String, Value>,
    tensors: Tensors,
}

impl Written {
    fn llama() -> Written {
        let llama = SHAPE.llama().unwrap();
        let numbers = [
            ("context_length", SHAPE.block),
            ("block_count", SHAPE.layers),
            ("embedding_length", SHAPE.embd),
            ("feed_forward_length", llama.ffn),
            ("attention.head_count", SHAPE.heads),
            ("attention.head_count_kv", llama.kv_heads),
        ];
        let mut metadata: BTreeMap<String, Value> = numbers
            .into_iter()
            .map(|(key, number)| (format!("llama.{key}"), Value::U32(number as u32)))
            .collect();
        let text = |text: &str| Value::String(text.into());
        metadata.insert("general.architecture".into(), text("llama"));
        metadata
            .insert("llama.attention.layer_norm_rms_epsilon".into(), Value::F32(1.0 / 65_536.0));
        metadata.insert("llama.rope.freq_base".into(), Value::F32(10_000.0));
        let named = tensors().into_iter().map(|(name, tensor)| (gguf::gguf_name(&name), tensor));
        Written { metadata, tensors: named.collect() }
    }

    fn with(mut self, key: &str, value: Value) -> Written {
        self.metadata.insert(key.into(), value);
        self
    }

    fn write(&self, path: &Path) {
        let tensors: Vec<(&str, QTensor)> = self
            .tensors
            .iter()
            .map(|(name, (dims, numbers))| {
                let tensor = Tensor::from_slice(numbers, &dims[..], &Device::Cpu).unwrap();
                (name.as_str(), QTensor::quantize(&tensor, GgmlDType::F32).unwrap())
            })
            .collect();
        let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, t)| (*name, t)).collect();
        let metadata: Vec<(&str, &Value)> =
            self.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let mut file = std::fs::File::create(path).unwrap();
        gguf_file::write(&mut file, &metadata, &tensors).unwrap();
    }

    fn open(&self) -> Result<Pretrained, BadInput> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        self.write(&path);
        Pretrained::open(&path)
    }
}

fn numbers(list: &[u32]) -> Value {
    Value::Array(list.iter().map(|&n| Value::U32(n)).collect())
}

/// Each key that changes what is computed is refused by its name, or must have the one value that
/// changes nothing.
#[test]
fn ggufs_keys_are_obeyed_or_refused() {
    let text = |text: &str| Value::String(text.into());
    let llama = Written::llama();
    for (key, value, says) in [
        (
            "llama.expert_count",
            Value::U32(8),
            Some("llama.expert_count is 8: models with experts"),
        ),
        ("llama.expert_count", Value::U32(0), None),
        ("llama.expert_used_count", Value::U32(2), Some("llama.expert_used_count is 2")),
        ("llama.rope.dimension_count", Value::U32(2), None),
        (
            "llama.rope.dimension_count",
            Value::U32(1),
            Some("rope.dimension_count is 1: RoPE on a part"),
        ),
        (
            "llama.rope.scale_linear",
            Value::F32(4.0),
            Some("llama.rope.scale_linear is 4: RoPE's"),
        ),
        ("llama.rope.scale_linear", Value::F32(1.0), None),
        (
            "llama.rope.scaling.factor",
            Value::F32(4.0),
            Some("llama.rope.scaling.factor is 4"),
        ),
        ("llama.rope.scaling.factor", Value::F32(0.0), None),
        ("llama.rope.scaling.factor", text("4"), Some("scaling.factor is not a number")),
        ("llama.rope.scaling.type", text("yarn"), Some("RoPE scaling yarn")),
        ("llama.rope.scaling.type", text("linear"), Some("RoPE scaling linear")),
        ("llama.rope.scaling.type", text("none"), None),
        ("llama.rope.scaling.attn_factor", Value::F32(0.5), Some("attn_factor is 0.5")),
        ("llama.attention.key_length", Value::U32(2), None),
        (
            "llama.attention.key_length",
            Value::U32(4),
            Some("4 heads of 4 in a width of 8 are not"),
        ),
        (
            "llama.attention.value_length",
            Value::U32(1),
            Some("4 heads of 1 in a width of 8"),
        ),
        (
            "llama.attention.causal",
            Value::Bool(false),
            Some("llama.attention.causal is 0"),
        ),
        ("llama.attention.causal", Value::Bool(true), None),
        ("llama.vocab_size", Value::U32(16), None),
        (
            "llama.vocab_size",
            Value::U32(17),
            Some("vocab_size is 17: the token table has 16 rows"),
        ),
        ("tokenizer.ggml.tokens", Value::Array(vec![text("a"); 16]), None),
        (
            "tokenizer.ggml.tokens",
            Value::Array(vec![text("a"); 15]),
            Some("tokens has 15, and the token table 16 rows"),
        ),
        ("general.type", text("model"), None),
        (
            "general.type",
            text("mmproj"),
            Some("it is a projector for images or sound (general.type"),
        ),
        ("general.type", text("adapter"), Some("it is an adapter")),
        (
            "general.type",
            text("imatrix"),
            Some("no language model (general.type is imatrix)"),
        ),
        ("general.file_type", Value::U32(7), None),
        (
            "general.architecture",
            text("qwen2"),
            Some("its architecture is qwen2, not llama"),
        ),
        ("split.count", Value::U16(2), Some("part 1 of a model in 2 files (split.count)")),
        ("split.count", Value::U16(1), None),
        ("llama.attention.head_count_kv", numbers(&[2, 2]), None),
        (
            "llama.attention.head_count_kv",
            numbers(&[2, 4]),
            Some("head_count_kv differs from layer"),
        ),
        (
            "llama.attention.head_count_kv",
            numbers(&[2]),
            Some("head_count_kv is a list of 1, not of"),
        ),
        ("llama.attention.head_count", numbers(&[4, 4]), None),
        ("llama.feed_forward_length", numbers(&[12, 12]), None),
        (
            "llama.feed_forward_length",
            numbers(&[12, 8]),
            Some("feed_forward_length differs from"),
        ),
        (
            "llama.feed_forward_length",
            text("12"),
            Some("feed_forward_length is not a number"),
        ),
        (
            "llama.context_length",
            Value::F32(1.5),
            Some("context_length is 1.5, not a whole number"),
        ),
        ("llama.tensor_data_layout", text("Meta AI original pth"), None),
        ("mradermacher.quantized_by", text("x"), None),
        ("quantize.imatrix.file", text("x"), None),
    ] {
        match (llama.clone().with(key, value.clone()).open(), says) {
            (Ok(model), None) => {
                assert_eq!((model.shape, model.notes), (SHAPE, Vec::new()), "{key}")
            }
            (Ok(_), Some(says)) => panic!("{key} = {value:?} is read: {says}"),
            (Err(error), says) => {
                let is_said = says.is_some_and(|says| error.what.contains(says));
                assert!(is_said && !error.help.is_empty(), "{key} = {value:?}: {error}");
            }
        }
    }
    let scaled = |kind: &str, factor: f32| {
        let scaled = llama.clone().with("llama.rope.scaling.type", text(kind));
        scaled.with("llama.rope.scaling.factor", Value::F32(factor)).open()
    };
    assert!(scaled("none", 4.0).is_ok() && scaled("linear", 1.0).is_ok());
    assert!(scaled("linear", 4.0).err().unwrap().what.contains("scaling.factor is 4"));
    let unknown = llama.clone().with("llama.logit_scale", Value::F32(2.0)).with("x.y", text("z"));
    let notes = unknown.open().unwrap().notes;
    assert!(
        notes.len() == 1 && notes[0].ends_with("not read: llama.logit_scale, x.y"),
        "{notes:?}"
    );
    let mut without = llama;
    without.metadata.remove("llama.attention.layer_norm_rms_epsilon");
    let error = without.open().err().unwrap();
    assert!(
        error.what.contains("it has no llama.attention.layer_norm_rms_epsilon"),
        "{error}"
    );
}

/// Without a config.json, a file is measured against its metadata, in its own names.
#[test]
fn a_gguf_file_alone_is_spoken_of_in_its_own_names() {
    let llama = Written::llama();
    for (old, new, what) in [
        (
            "ffn_gate",
            "ffn_gate_exps",
            "blk.0.ffn_gate_exps.weight: experts in place of one MLP",
        ),
        ("attn_q", "attn_qkv", "blk.0.attn_qkv.weight: several matrices in one tensor"),
        ("blk.1.", "blk.7.", "it has no blk.1.attn_k.weight, blk.1.attn_norm.weight"),
    ] {
        let mut other = llama.clone();
        let all = other.tensors.into_iter();
        other.tensors = all.map(|(name, tensor)| (name.replace(old, new), tensor)).collect();
        let error = other.open().err().unwrap();
        let whose = "does not hold the model of its metadata: it has no blk.";
        assert!(error.what.contains(whose), "{error}");
        let sorted = what.starts_with("it has no blk.1.") || error.what.contains(what);
        assert!(sorted && !error.to_string().contains("config.json"), "{error}");
    }
    let mut bias = llama.clone();
    bias.tensors.insert("blk.0.attn_q.bias".into(), (vec![8], vec![0.0; 8]));
    let error = bias.open().err().unwrap();
    assert!(error.what.contains("unexpected tensors: blk.0.attn_q.bias"), "{error}");
}

/// A config.json beside a file knows RoPE's scaling, and contradicts nothing else.
#[test]
fn a_config_beside_a_gguf_file_agrees_with_it() {
    let open = |written: &Written, config: &ModelShape| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.json"), to_config(config).unwrap()).unwrap();
        written.write(&dir.path().join("model.gguf"));
        Pretrained::open(dir.path())
    };
    let llama = Written::llama();
    let model = open(&llama, &SHAPE).unwrap();
    assert_eq!((model.shape, model.notes), (SHAPE, Vec::new()));
    let theta = llama.clone().with("llama.rope.freq_base", Value::F32(500_000.0));
    let error = open(&theta, &SHAPE).err().unwrap();
    let says = "llama.rope.freq_base is 500000: config.json beside it says otherwise";
    assert!(error.what.contains(says), "{error}");
    let scaled = llama.clone().with("llama.rope.scale_linear", Value::F32(4.0));
    assert!(open(&scaled, &SHAPE).err().unwrap().what.contains("scale_linear is 4"));
    let qwen = llama.clone().with("general.architecture", Value::String("qwen3".into()));
    assert!(open(&qwen, &SHAPE).err().unwrap().what.contains("architecture is qwen3"));
    let mut head = llama;
    head.tensors.insert("output.weight".into(), (vec![16, 8], vec![0.5; 128]));
    let model = open(&head, &SHAPE).unwrap();
    assert!(!model.shape.tied() && model.notes[0].contains("output.weight: it is the head"));
    assert!(!head.open().unwrap().shape.tied());
}

/// The factors of RoPE's frequencies in a file are those of the config.json beside it: otherwise
/// the model would write another text, without a word.
#[test]
fn a_scaling_that_only_one_of_two_files_knows_is_no_secret() {
    let scaling = RopeScaling {
        factor: 4.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_block: 16,
    };
    let with = |scaling| {
        let mut llama = *SHAPE.llama().unwrap();
        llama.rope.scaling = scaling;
        ModelShape { family: Family::Llama(llama), ..SHAPE }
    };
    let scaled = with(Some(scaling));
    let frequencies = |shape: &ModelShape| shape.llama().unwrap().rope.frequencies(shape.head());
    let both = frequencies(&SHAPE).into_iter().zip(frequencies(&scaled));
    let factors: Vec<f32> = both.map(|(plain, scaled)| (plain / scaled) as f32).collect();
    let mut file = Written::llama();
    file.tensors.insert("rope_freqs.weight".into(), (vec![factors.len()], factors));
    let opened = |file: &Written, config: &ModelShape| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.json"), to_config(config).unwrap()).unwrap();
        file.write(&dir.path().join("model.gguf"));
        Pretrained::open(dir.path())
    };
    let model = opened(&file, &scaled).unwrap();
    assert_eq!((model.shape, model.notes), (scaled, Vec::new()));
    let refusal = |config: &ModelShape| opened(&file, config).err().unwrap().to_string();
    assert!(refusal(&SHAPE).contains("scales RoPE, and config.json beside it not at all"));
    let other = with(Some(RopeScaling { factor: 8.0, ..scaling }));
    assert!(refusal(&other).contains("scales RoPE, and config.json beside it otherwise"));
    assert!(file.open().err().unwrap().what.contains("config.json, which says how"));
    let notes = opened(&Written::llama(), &scaled).unwrap().notes;
    assert!(notes.len() == 1 && notes[0].contains("the GGUF file does not"), "{notes:?}");
}

/// The place of a tensor's offset in a file's header, behind its name, its dimensions and its type.
fn offset_of(file: &[u8], name: &str) -> usize {
    let begins = file.windows(name.len()).position(|bytes| bytes == name.as_bytes());
    let behind = begins.unwrap() + name.len();
    behind + 4 + 8 * file[behind] as usize + 4
}

/// Each tensor has its own bytes, where its file's alignment lets one begin, and a name of its own.
#[test]
fn tensors_of_a_gguf_file_stand_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    Written::llama().write(&path);
    let whole = std::fs::read(&path).unwrap();
    let [one, other] = ["blk.0.attn_q.weight", "blk.1.attn_q.weight"];
    let refusal = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut file = whole.clone();
        change(&mut file);
        std::fs::write(&path, file).unwrap();
        refused(&path).what
    };
    let at = |file: &[u8], name: &str| -> u64 {
        let at = offset_of(file, name);
        u64::from_le_bytes(file[at..at + 8].try_into().unwrap())
    };
    let set = |file: &mut Vec<u8>, name: &str, offset: u64| {
        let at = offset_of(file, name);
        file[at..at + 8].copy_from_slice(&offset.to_le_bytes());
    };
    let shared = refusal(&|file| set(file, other, at(file, one)));
    assert!(shared.contains("share bytes") && shared.contains("attn_q.weight"), "{shared}");
    let odd = refusal(&|file| set(file, one, at(file, one) + 4));
    assert!(
        odd.contains(&format!("{one} begins at byte")) && odd.contains("alignment, 32"),
        "{odd}"
    );
}

/// A name or a key that a header lists twice: a map has one of the two.
#[test]
fn a_gguf_file_names_each_tensor_and_each_key_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let mut with_tensor = Written::llama();
    let extra = (vec![8, 8], vec![0.5; 64]);
    with_tensor.tensors.insert("blk.0.attn_x.weight".into(), extra);
    let mut with_key = Written::llama();
    let heads = with_key.metadata["llama.attention.head_count"].clone();
    with_key.metadata.insert("llama.attention.head_coun_".into(), heads);
    for (written, extra, again, says) in [
        (with_tensor, "blk.0.attn_x.weight", "blk.0.attn_q.weight", " tensors, and "),
        (
            with_key,
            "llama.attention.head_coun_",
            "llama.attention.head_count",
            " keys, and ",
        ),
    ] {
        written.write(&path);
        let mut file = std::fs::read(&path).unwrap();
        let is_extra = |bytes: &[u8]| bytes == extra.as_bytes();
        let at = file.windows(extra.len()).position(is_extra).unwrap();
        file[at..at + extra.len()].copy_from_slice(again.as_bytes());
        std::fs::write(&path, file).unwrap();
        let error = refused(&path);
        assert!(error.what.contains(says) && error.help.contains("etch"), "{error}");
    }
}

/// PyTorch's own file under the name of safetensors.
#[test]
fn a_zip_archive_is_no_file_of_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(super::files::ONE);
    std::fs::write(&path, b"PK\x03\x04 and so on").unwrap();
    let error = super::files::Files::open(dir.path(), &SHAPE).map(drop).unwrap_err();
    assert!(error.what.contains("as torch.save writes them"), "{error}");
}

/// Several files in a folder: parts of one model, a projector beside it, or a choice.
#[test]
fn several_gguf_files_are_told_apart() {
    let llama = Written::llama();
    for (names, says, help) in [
        (
            ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"],
            "a model in 2 GGUF files",
            "--merge",
        ),
        (
            ["a-Q4.gguf", "a-Q8.gguf"],
            "several GGUF files: a-Q4.gguf, a-Q8.gguf",
            "--model ",
        ),
        (["mmproj-a.gguf", "a.gguf"], "", ""),
    ] {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            llama.write(&dir.path().join(name));
        }
        match Pretrained::open(dir.path()) {
            Ok(model) => assert!(says.is_empty() && model.shape == SHAPE),
            Err(error) => {
                assert!(!says.is_empty() && error.what.contains(says), "{error}");
                assert!(error.help.contains(help), "{error}");
            }
        }
    }
}

/// A file that ends early is refused before anything is read of it, in one line.
#[test]
fn a_cut_file_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    Written::llama().write(&path);
    let whole = std::fs::read(&path).unwrap();
    for (name, length, says, help) in [
        ("model.gguf", whole.len() - 1, "and its tensors end at", "Compare its size"),
        (
            "model.gguf.part1of2",
            whole.len() / 2,
            "and its tensors end at",
            "cat NAME.gguf.part*",
        ),
        ("cut.gguf", 100, "as GGUF: ", "is the file complete"),
        ("empty.gguf", 0, "it does not begin as a GGUF file does", "or a GGUF file"),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = refused(&path);
        assert!(error.what.contains(says) && error.help.contains(help), "{error}");
        assert_eq!(error.what.lines().count(), 1, "{error}");
    }
}

/// candle adds the calls that led to an error where `RUST_BACKTRACE` asks for them.
#[test]
fn an_error_of_candles_is_one_line() {
    let error = candle_core::Error::Msg("cut\n   0: frames".into());
    assert_eq!(gguf::in_one_line(&error), "cut");
}

/// Other weights in a folder may have other values: a note says which are read.
#[test]
fn weights_that_are_not_read_are_named() {
    let notes = |files: &[&str]| {
        let dir = folder(&[(ONE, &tensors())]);
        for file in files {
            std::fs::write(dir.path().join(file), "{}").unwrap();
        }
        Pretrained::open(dir.path()).unwrap().notes
    };
    assert_eq!(notes(&["tokenizer.json", "training_args.bin"]), Vec::<String>::new());
    for file in [INDEX, "a-Q4.gguf", "pytorch_model.bin", "adapter_model.safetensors"] {
        assert_eq!(
            notes(&[file]),
            [format!("the weights are those in model.safetensors; not read: {file}")]
        );
    }
    // Those that an index lists, too.
    let part = "model-00001-of-00001.safetensors";
    let dir = folder(&[(part, &tensors())]);
    let map: serde_json::Map<String, serde_json::Value> =
        tensors().into_keys().map(|name| (name, part.into())).collect();
    let index = serde_json::json!({ "weight_map": map }).to_string();
    std::fs::write(dir.path().join(INDEX), index).unwrap();
    assert!(Pretrained::open(dir.path()).unwrap().notes.is_empty());
    std::fs::write(dir.path().join("old.safetensors"), "").unwrap();
    let notes = Pretrained::open(dir.path()).unwrap().notes;
    assert_eq!(notes, [format!("the weights are those in {part}; not read: old.safetensors")]);
}

/// Frequencies of RoPE that came along in safetensors are those of config.json, or are no secret.
#[test]
fn frequencies_among_the_weights_are_compared() {
    let rope = SHAPE.llama().unwrap().rope;
    let frequencies = rope.frequencies(SHAPE.head());
    let count = frequencies.len();
    let with = |name: &str, numbers: Vec<f32>| {
        let mut all = tensors();
        all.insert(name.into(), (vec![count], numbers));
        let dir = folder(&[(ONE, &all)]);
        Pretrained::open(dir.path()).map(|model| model.notes)
    };
    assert_eq!(with("rope_freqs.weight", vec![1.0; count]), Ok(Vec::new()));
    let error = with("rope_freqs.weight", vec![8.0; count]).unwrap_err();
    assert!(error.what.contains("rope_freqs.weight scales RoPE, and config.json not at all"));
    let old = "model.layers.0.self_attn.rotary_emb.inv_freq";
    let rounded = |x: &f64| half::bf16::from_f64(*x).to_f32();
    assert_eq!(with(old, frequencies.iter().map(rounded).collect()), Ok(Vec::new()));
    let notes = with(old, frequencies.iter().map(|x| 0.5 * *x as f32).collect()).unwrap();
    assert!(
        notes.len() == 1 && notes[0].contains("inv_freq has other frequencies"),
        "{notes:?}"
    );
}

/// The words of a tokenizer of so many tokens, in their order; the first begins a text.
fn tokenizer(words: &[&str]) -> String {
    let begin = words[0];
    let ids: serde_json::Map<String, serde_json::Value> = (0..)
        .zip(words)
        .map(|(id, word)| (word.to_string(), serde_json::Value::from(id)))
        .collect();
    let special = serde_json::json!({"id": begin, "ids": [0], "tokens": [begin]});
    serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
        "added_tokens": [{"id": 0, "content": begin, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": begin, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {begin: special}},
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": words[1]}
    })
    .to_string()
}

/// A GGUF file has tokens of its own, of which tokenizer.json's are read: in another order, each
/// prompt would be another one.
#[test]
fn a_gguf_files_tokens_are_the_tokenizers() {
    const WORDS: [&str; 5] = ["<s>", "<unk>", "every", "rank", "waits"];
    let list = |words: [&str; 5]| {
        let padding = (words.len()..16).map(|i| format!("[PAD{i}]"));
        let all = words.iter().map(|word| word.to_string()).chain(padding);
        Value::Array(all.map(Value::String).collect())
    };
    let text = |written: &Written| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        written.write(&path);
        std::fs::write(dir.path().join("tokenizer.json"), tokenizer(&WORDS)).unwrap();
        let text = Pretrained::open(&path).unwrap().text();
        text.and_then(|text| text.tokens("rank waits"))
            .map_err(|error| error.to_string())
    };
    let tokens = "tokenizer.ggml.tokens";
    let begin = "tokenizer.ggml.bos_token_id";
    let with = |words| Written::llama().with(tokens, list(words));
    assert_eq!(text(&Written::llama()), Ok(vec![0, 3, 4]));
    assert_eq!(text(&with(WORDS).with(begin, Value::U32(0))), Ok(vec![0, 3, 4]));
    // Its own spelling of a token that was added.
    assert_eq!(text(&with(["BOS", "<unk>", "every", "rank", "waits"])), Ok(vec![0, 3, 4]));
    for (file, says) in [
        (with(["<s>", "<unk>", "every", "waits", "rank"]), "its token 3 is \"rank\""),
        (with(["<s>", "<unk>", "each", "rank", "waits"]), "its token 2 is \"every\""),
        (with(["waits", "<unk>", "every", "rank", "<s>"]), "its token 0 is \"<s>\""),
        (with(WORDS).with(begin, Value::U32(2)), "bos_token_id is 2"),
        (with(WORDS).with(begin, Value::U32(99)), "bos_token_id is U32(99)"),
    ] {
        let error = text(&file).unwrap_err();
        assert!(error.contains(says) && error.contains("help: "), "{says}: {error}");
    }
}

/// The end of a text: the configuration's, with a note where the file has another; the file's, if
/// there is no other word.
#[test]
fn a_gguf_files_end_of_a_text_is_read_or_told() {
    let opened = |end: u32, config: Option<&str>| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        let file = Written::llama()
            .with("tokenizer.ggml.eos_token_id", Value::U32(end))
            .with("tokenizer.ggml.eot_token_id", Value::U32(5));
        file.write(&path);
        if let Some(config) = config {
            std::fs::write(dir.path().join("generation_config.json"), config).unwrap();
        }
        Pretrained::open(&path).map(|model| (model.ends, model.notes.concat()))
    };
    assert_eq!(opened(2, None), Ok((vec![2, 5], String::new())));
    assert_eq!(opened(2, Some("{\"eos_token_id\": [1, 2]}")), Ok((vec![1, 2], String::new())));
    let (ends, note) = opened(2, Some("{\"eos_token_id\": 7}")).unwrap();
    assert!(
        ends == [7] && note.contains("with token 2 (tokenizer.ggml.eos_token_id)"),
        "{note}"
    );
    assert!(opened(16, None).unwrap_err().what.contains("the model has 16 tokens"));
}
