//! Llamas: sharded as in one piece, and read from folders, good and bad.

use crate::suite::llama::{self, LLAMA, SHAPE, loaded, write_folder};
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use half::{bf16, f16};
use labs::lab10::pretrained::{Pretrained, Stream};
use safetensors::tensor::{Dtype, TensorView};
use shardlab::comm::Comm;
use shardlab::difference::largest_difference;
use shardlab::launch;
use shardlab::model::Llama;
use shardlab::parallel::strategy::ensure_tensor_llama;
use shardlab::plan::{Family, LlamaExtra, ModelShape, Rope};
use shardlab::tensor::Precision;
use std::path::Path;

fn on(ranks: usize, test: impl Fn(&Comm) -> anyhow::Result<()> + Sync) {
    launch::run(ranks, |comm| test(&comm)).unwrap();
}

#[test]
fn meshes_train_what_one_rank_trains() {
    for (ranks, pipeline, tensor) in [(2, 1, 1), (2, 1, 2), (2, 2, 1), (4, 2, 2), (4, 1, 2)] {
        on(ranks, |comm| llama::a_mesh_trains_what_one_rank_trains(comm, pipeline, tensor));
    }
}

#[test]
fn sharing_changes_no_token() {
    [1, 2, 4]
        .into_iter()
        .for_each(|ranks| on(ranks, llama::sharing_changes_no_token));
}

#[test]
#[ignore = "needs SHARDLAB_EXTRAS: a folder with models/stories260K"]
fn the_story_is_told() {
    [1, 2, 4].into_iter().for_each(|ranks| on(ranks, llama::the_story_is_told));
}

#[test]
fn heads_that_ranks_cannot_share_are_refused() {
    let error = ensure_tensor_llama(&shapes::llamas::named("smollm2-135m").unwrap(), 2)
        .unwrap_err()
        .to_string();
    assert!(
        error
            .contains("3 key and value heads (for 9 query heads) cannot be divided evenly among 2"),
        "{error}"
    );
    assert!(error.contains("choose `tensor` among 1, 3"), "{error}");
    assert!(ensure_tensor_llama(&SHAPE, 2).is_ok());
}

type Named = (String, Vec<usize>, Vec<f32>);

/// The tensors of a written folder.
fn tensors(dir: &Path) -> Vec<Named> {
    write_folder(dir, &SHAPE).unwrap();
    let (params, values) = loaded(dir).unwrap();
    params
        .specs()
        .iter()
        .map(|spec| (spec.name.clone(), spec.shape.clone(), values[spec.range()].to_vec()))
        .collect()
}

/// Writes tensors of any type.
fn write(path: &Path, tensors: &[Named], dtype: Dtype) {
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, _, values)| match dtype {
            Dtype::BF16 => values.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect(),
            Dtype::F16 => values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
            Dtype::F64 => values.iter().flat_map(|&x| f64::from(x).to_le_bytes()).collect(),
            _ => values.iter().flat_map(|&x| x.to_le_bytes()).collect(),
        })
        .collect();
    let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
        (name.as_str(), TensorView::new(dtype, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, path).unwrap();
}

fn refused(dir: &Path) -> String {
    let error = Pretrained::open(dir).err().expect("a bad folder").to_string();
    assert!(error.contains("\nhelp: "), "{error}");
    error
}

#[test]
fn all_stored_types_and_split_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = tensors(dir.path());
    let flat: Vec<f32> = loaded(dir.path()).unwrap().1;
    let file = dir.path().join("model.safetensors");
    write(&file, &tensors, Dtype::BF16);
    let rounded: Vec<f32> = flat.iter().map(|&x| bf16::from_f32(x).to_f32()).collect();
    assert_eq!(loaded(dir.path()).unwrap().1, rounded);
    // Stored as bf16, the parameters have the same bits.
    let model = Pretrained::open(dir.path()).unwrap();
    let params = Llama::new(&model.shape).unwrap().params;
    model.load(&params, Precision::Bf16).unwrap();
    assert!(
        params
            .stored_values::<bf16>()
            .iter()
            .zip(&rounded)
            .all(|(x, y)| x.to_f32() == *y)
    );
    write(&file, &tensors, Dtype::F16);
    assert_eq!(
        loaded(dir.path()).unwrap().1,
        flat.iter().map(|&x| f16::from_f32(x).to_f32()).collect::<Vec<_>>()
    );

    std::fs::remove_file(&file).unwrap();
    let (a, b) = tensors.split_at(10);
    let mut map = serde_json::Map::new();
    for (part, name) in
        [(a, "model-00001-of-00002.safetensors"), (b, "model-00002-of-00002.safetensors")]
    {
        write(&dir.path().join(name), part, Dtype::F32);
        map.extend(part.iter().map(|(tensor, ..)| (tensor.clone(), name.into())));
    }
    let index = dir.path().join("model.safetensors.index.json");
    std::fs::write(&index, serde_json::json!({ "weight_map": map }).to_string()).unwrap();
    assert_eq!(loaded(dir.path()).unwrap().1, flat);
    map["model.norm.weight"] = "../elsewhere.safetensors".into();
    std::fs::write(&index, serde_json::json!({ "weight_map": map }).to_string()).unwrap();
    assert!(
        refused(dir.path()).contains("\"../elsewhere.safetensors\" is not a file of this folder")
    );
}

#[test]
fn bad_folders_are_refused_by_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    assert!(refused(dir.path()).contains("it has no config.json"));
    let good = tensors(dir.path());
    let file = dir.path().join("model.safetensors");
    let with = |edit: &dyn Fn(&mut Vec<Named>)| {
        let mut tensors = good.clone();
        edit(&mut tensors);
        write(&file, &tensors, Dtype::F32);
        refused(dir.path())
    };
    let error = with(&|tensors| tensors.truncate(2));
    assert!(
        error.contains("it has no model.layers.0.self_attn.k_proj.weight")
            || error.contains(" more"),
        "{error}"
    );
    let error = with(&|tensors| drop(tensors.remove(2)));
    assert!(error.contains("it has no model.layers.0.self_attn.q_proj.weight\n"), "{error}");
    let error = with(&|tensors| tensors[1].1 = vec![16, 2]);
    assert!(
        error.contains("model.layers.0.input_layernorm.weight is [16, 2], not [32]"),
        "{error}"
    );
    let error = with(&|tensors| {
        tensors.push(("model.layers.0.self_attn.q_proj.bias".into(), vec![1], vec![0.0]))
    });
    assert!(
        error.contains("it has unexpected tensors: model.layers.0.self_attn.q_proj.bias"),
        "{error}"
    );
    write(&file, &good, Dtype::F64);
    assert!(refused(dir.path()).contains("is stored as F64"));
    // The frequencies of old files, and a copy of a tied head, are no errors.
    let mut more = good.clone();
    more.push(("model.layers.0.self_attn.rotary_emb.inv_freq".into(), vec![1], vec![0.0]));
    more.push(("lm_head.weight".into(), good[0].1.clone(), good[0].2.clone()));
    write(&file, &more, Dtype::F32);
    assert!(Pretrained::open(dir.path()).is_ok());

    let bytes = std::fs::read(&file).unwrap();
    for end in [0, 7, 100, bytes.len() - 1] {
        std::fs::write(&file, &bytes[..end]).unwrap();
        let error = refused(dir.path());
        assert!(
            error.contains("cannot read the weights in ")
                && error.contains("is the file complete?"),
            "{error}"
        );
    }
    std::fs::remove_file(&file).unwrap();
    assert!(refused(dir.path()).contains("neither model.safetensors nor"));
    std::fs::write(dir.path().join("config.json"), "{\"model_type\": \"gpt2\"}").unwrap();
    assert!(refused(dir.path()).contains("model_type is gpt2"));
}

/// The rows of a head as GGUF has them: neighbours turn together.
fn interleaved(rows: &[f32], head: usize, width: usize) -> Vec<f32> {
    let number = |i: usize| (i % 2) * (head / 2) + i / 2;
    let heads = rows.chunks_exact(head * width);
    heads
        .flat_map(|rows| (0..head).flat_map(move |i| rows[number(i) * width..][..width].to_vec()))
        .collect()
}

/// The weights of a folder as a GGUF file in it.
pub fn small_gguf(dir: &Path) -> std::path::PathBuf {
    let file = dir.join("small.gguf");
    write_gguf(&file, &tensors(dir), &SHAPE, GgmlDType::F32);
    file
}

fn write_gguf(path: &Path, tensors: &[Named], shape: &ModelShape, dtype: GgmlDType) {
    write_gguf_with(path, tensors, shape, dtype, &[]);
}

fn write_gguf_with(
    path: &Path,
    tensors: &[Named],
    shape: &ModelShape,
    dtype: GgmlDType,
    more: &[(&str, Value)],
) {
    let Family::Llama(llama) = shape.family else {
        panic!("{shape:?}");
    };
    let names = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("model.layers", "blk"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    let quantized: Vec<(String, QTensor)> = tensors
        .iter()
        .map(|(name, dims, values)| {
            let turned = name.contains("q_proj") || name.contains("k_proj");
            let values = if turned {
                interleaved(values, shape.head(), shape.embd)
            } else {
                values.clone()
            };
            let tensor = Tensor::from_vec(values, &dims[..], &Device::Cpu).unwrap();
            let dtype = if dims.len() == 2 && dims[1] % 32 == 0 {
                dtype
            } else {
                GgmlDType::F32
            };
            let name = names
                .iter()
                .fold(name.clone(), |name, (ours, theirs)| name.replace(ours, theirs));
            (name, QTensor::quantize(&tensor, dtype).unwrap())
        })
        .collect();
    let size = |n: usize| Value::U32(n as u32);
    let metadata = [
        ("general.architecture", Value::String("llama".into())),
        ("llama.embedding_length", size(shape.embd)),
        ("llama.block_count", size(shape.layers)),
        ("llama.attention.head_count", size(shape.heads)),
        ("llama.attention.head_count_kv", size(shape.kv_heads())),
        ("llama.feed_forward_length", size(shape.ffn())),
        ("llama.context_length", size(shape.block)),
        ("llama.rope.freq_base", Value::F32(llama.rope.theta as f32)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(llama.norm_eps as f32)),
    ];
    let metadata = metadata
        .iter()
        .filter(|(key, _)| more.iter().all(|(other, _)| other != key))
        .chain(more);
    let metadata: Vec<(&str, &Value)> = metadata.map(|(key, value)| (*key, value)).collect();
    let quantized: Vec<(&str, &QTensor)> =
        quantized.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    gguf_file::write(&mut std::fs::File::create(path).unwrap(), &metadata, &quantized).unwrap();
}

#[test]
fn gguf_has_the_same_weights() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = tensors(dir.path());
    let flat = loaded(dir.path()).unwrap().1;
    std::fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    let file = dir.path().join("tiny.gguf");
    write_gguf(&file, &tensors, &SHAPE, GgmlDType::F32);
    assert_eq!(loaded(dir.path()).unwrap().1, flat);
    assert_eq!(loaded(&file).unwrap().1, flat);
    write_gguf(&file, &tensors, &SHAPE, GgmlDType::Q8_0);
    let quantized = loaded(&file).unwrap().1;
    let most = largest_difference(&quantized, &flat);
    assert!(most > 0.0 && most < 0.04 / 127.0, "{most}");

    // Only config.json says how RoPE is scaled, and it must be this model's.
    let plain = LlamaExtra { rope: Rope { scaling: None, ..LLAMA.rope }, ..LLAMA };
    std::fs::remove_file(dir.path().join("config.json")).unwrap();
    let shape = Pretrained::open(&file).unwrap().shape;
    let Family::Llama(found) = shape.family else {
        panic!("{shape:?}");
    };
    let rounded = LlamaExtra {
        norm_eps: 1e-5, // the file rounds it to f32
        ..found
    };
    assert_eq!(rounded, plain);
    assert_eq!(ModelShape { family: SHAPE.family, ..shape }, SHAPE);
    std::fs::write(
        dir.path().join("config.json"),
        labs::lab10::to_config(&ModelShape { layers: 3, ..SHAPE }).unwrap(),
    )
    .unwrap();
    assert!(
        refused(&file).contains("llama.block_count is 4: config.json beside it says otherwise"),
        "{}",
        refused(&file)
    );
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 40]).unwrap();
    std::fs::remove_file(dir.path().join("config.json")).unwrap();
    let error = loaded(&file).err().expect("a file cut short").to_string();
    assert!(
        error.contains("its tensors end at") && error.contains("is the file complete?"),
        "{error}"
    );
    std::fs::write(&file, "GGUF").unwrap();
    assert!(refused(&file).contains("as GGUF"));
}

/// Header values by which a reader divides, or of which it makes lists.
#[test]
fn a_gguf_that_would_make_candle_panic_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = tensors(dir.path());
    std::fs::remove_file(dir.path().join("config.json")).unwrap();
    let file = dir.path().join("odd.gguf");
    let with = |key: &'static str, value: Value| {
        write_gguf_with(&file, &tensors, &SHAPE, GgmlDType::F32, &[(key, value)]);
        Pretrained::open(&file).map(drop).map_err(|error| error.to_string())
    };
    with("general.alignment", Value::U32(32)).unwrap();
    for value in [Value::U32(0), Value::U8(0), Value::I16(0), Value::I32(0)] {
        let error = with("general.alignment", value).unwrap_err();
        assert!(
            error.contains("odd.gguf as GGUF: its general.alignment is no u32 above 0\nhelp: "),
            "{error}"
        );
    }
    // A list longer than any header, in a file that takes no disk.
    let list = [
        b"GGUF".as_slice(),
        &3u32.to_le_bytes(),
        &0u64.to_le_bytes(),
        &1u64.to_le_bytes(),
        &1u64.to_le_bytes(),
        b"a",
        &9u32.to_le_bytes(),
        &0u32.to_le_bytes(),
        &(1u64 << 30).to_le_bytes(),
    ];
    std::fs::write(&file, list.concat()).unwrap();
    std::fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    let error = refused(&file);
    assert!(error.contains("array of 1073741824 elements needs"), "{error}");
    for (key, value) in [
        ("llama.attention.head_count", Value::U32(0)),
        ("llama.attention.head_count_kv", Value::U32(0)),
        ("llama.block_count", Value::U32(1 << 29)),
        ("llama.block_count", Value::U64(u64::MAX)),
        ("llama.embedding_length", Value::U64(u64::MAX)),
        ("llama.context_length", Value::U32(0)),
    ] {
        let error = with(key, value).unwrap_err();
        assert!(error.contains("\nhelp: "), "{error}");
    }
}

/// A tokenizer of four words, whose post-processor begins a text with token 1.
const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [
    {"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
    "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "decoder": null,
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}},
        {"Sequence": {"id": "B", "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
    "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "<s>": 1, "every": 2, "rank": 3, "waits": 4}, "unk_token": "<unk>"}}"#;

#[test]
fn a_folders_tokenizer_begins_texts_and_streams_them() {
    let dir = tempfile::tempdir().unwrap();
    write_folder(dir.path(), &SHAPE).unwrap();
    let open = || Pretrained::open(dir.path()).unwrap();
    let error = open().text().err().unwrap().to_string();
    assert!(error.contains("tokenizer.json") && error.contains("help:"), "{error}");
    let path = dir.path().join("tokenizer.json");
    std::fs::write(&path, TOKENIZER).unwrap();
    let text = open().text().unwrap();
    assert_eq!(text.tokens("every rank waits").unwrap(), [1, 2, 3, 4]);
    assert_eq!(text.tokens("").unwrap(), [1]);
    assert_eq!((text.text(&[1, 3, 4]), text.token(4)), ("rank waits".into(), "waits".into()));
    let mut stream = Stream::default();
    let streamed: String = [1, 2, 3, 4].map(|token| stream.push(&text, token)).concat();
    assert_eq!(streamed, "every rank waits");
    assert!(open().ends.is_empty());
    std::fs::write(dir.path().join("generation_config.json"), r#"{"eos_token_id": [2, 4]}"#)
        .unwrap();
    assert_eq!(open().ends, [2, 4]);
    std::fs::write(&path, TOKENIZER.replace("\"waits\": 4", "\"waits\": 37")).unwrap();
    let error = open().text().err().unwrap().to_string();
    assert!(error.contains("it has 38 tokens, and the model 37"), "{error}");
    std::fs::write(&path, "{").unwrap();
    assert!(open().text().is_err());
}
