//! A Llama that ranks share, against the Llama in one piece: training, generation, fine-tuning.

use super::trained::loss_rounding;
use labs::lab10::pretrained::Pretrained;
use labs::lab10::{Continuation, KvCache, TokenSampling, ZeroInference, generate};
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Batch;
use shardlab::difference::largest_difference;
use shardlab::mesh::{Axis, Coordinates, Layout, Mesh, Order};
use shardlab::model::{Build, Llama, Pass, Plain};
use shardlab::optim::AdamWConfig;
use shardlab::parallel::TensorParallel;
use shardlab::parallel::pipeline::{Partition, Pipeline, Schedule, Stages};
use shardlab::parallel::strategy::ensure_tensor_llama;
use shardlab::parallel::zero::{Stage, Wrap, Zero, ZeroConfig};
use shardlab::plan::{Family, LlamaExtra, ModelShape, Rope, RopeScaling};
use shardlab::tensor::random::Stream;
use shardlab::tensor::{IGNORED, Params, Precision};
use shardlab::train::{AdamW, clip_scale, global_norm};
use std::collections::HashMap;
use std::path::Path;

/// Four query heads share two keys and values, and two ranks share 37 tokens with padding.
pub const SHAPE: ModelShape = ModelShape {
    vocabulary: 37,
    block: 32,
    layers: 4,
    heads: 4,
    embd: 32,
    family: Family::Llama(LLAMA),
    experts: None,
};

pub const LLAMA: LlamaExtra = LlamaExtra {
    kv_heads: 2,
    ffn: 48,
    rope: Rope {
        theta: 100.0,
        scaling: Some(RopeScaling {
            factor: 4.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_block: 16,
        }),
    },
    norm_eps: 1e-5,
    tied: true,
};

const SEED: u64 = 7;
const STEPS: usize = 4;
const LR: f64 = 1e-3;
const ADAMW: AdamWConfig = AdamWConfig { beta2: 0.95, ..AdamWConfig::NANOGPT };

/// A mesh of all ranks, with so many stages and tensor ranks.
fn mesh(world: &Comm, pipeline: usize, tensor: usize) -> anyhow::Result<Mesh> {
    let sizes = Coordinates { data: world.size() / pipeline / tensor, pipeline, tensor };
    Mesh::new(world, Layout { sizes, order: Order::default() })
}

/// Two sequences of random tokens, of which one each has no target: micro-batch `micro` of data
/// rank `rank`.
fn batch(step: usize, rank: usize, micro: usize) -> Batch {
    let length = 8;
    let number = (step * 100 + rank * 10 + micro) as u64;
    let stream = Stream::new(number, "llama");
    let token = |i: usize| stream.below(SHAPE.vocabulary as u64, i as u64) as u32;
    let sequence = |s: usize, first: usize| (0..length).map(move |i| token(s * 100 + first + i));
    Batch {
        inputs: (0..2).flat_map(|s| sequence(s, 0)).collect(),
        targets: (0..2)
            .flat_map(|s| sequence(s, 1).enumerate())
            .map(|(i, t)| if i == 3 { IGNORED } else { t })
            .collect(),
        length,
        sequences: [0, 1].into(),
        starts: vec![0; 2],
        documents: Default::default(),
    }
}

/// Values of whole parameters, by name.
type Values = HashMap<String, Vec<f32>>;

/// The losses of a training on one rank that takes all sequences as one batch, and the trained
/// parameters.
fn serial(shape: &ModelShape, ranks: usize, micros: usize) -> anyhow::Result<(Vec<f64>, Values)> {
    let llama = Llama::new(shape)?;
    llama.params.allocate(SEED);
    let mut adamw = AdamW::new(ADAMW, &llama.params);
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let all: Vec<Batch> = (0..ranks)
            .flat_map(|rank| (0..micros).map(move |micro| batch(step, rank, micro)))
            .collect();
        llama.params.zero_gradients();
        let loss = llama.loss(&Batch::concat(&all), &Pass::training(None))?;
        loss.backward()?;
        for spec in llama.params.specs() {
            let learns = llama.params.gradients()[spec.range()].iter().any(|&g| g != 0.0);
            assert!(learns, "{} receives no gradient", spec.name);
        }
        let norm = global_norm(&llama.params.gradients());
        adamw.step(&llama.params, LR, clip_scale(norm, 1.0)?)?;
        losses.push(f64::from(loss.to_scalar::<f32>()?));
    }
    let values = llama.params.values();
    let named = llama
        .params
        .specs()
        .iter()
        .map(|spec| (spec.name.clone(), values[spec.range()].to_vec()));
    Ok((losses, named.collect()))
}

/// Trains with tied and untied heads in every stage of ZeRO that the mesh allows, and compares with
/// one rank.
pub fn a_mesh_trains_what_one_rank_trains(
    world: &Comm,
    pipeline: usize,
    tensor: usize,
) -> anyhow::Result<()> {
    let mesh = mesh(world, pipeline, tensor)?;
    for tied in [true, false] {
        let shape = ModelShape { family: Family::Llama(LlamaExtra { tied, ..LLAMA }), ..SHAPE };
        let micros = if pipeline > 1 { 2 } else { 1 };
        let (expected, values) = serial(&shape, mesh.group(Axis::Data).size(), micros)?;
        for sequence in if tensor > 1 { &[false, true][..] } else { &[false] } {
            let mut first: Option<Vec<f64>> = None;
            for stage in Stage::ALL.into_iter().filter(|&stage| pipeline == 1 || stage < Stage::Two)
            {
                let what = format!(
                    "{pipeline} x {tensor}, tied {tied}, sequence parallelism {sequence}, {stage:?}"
                );
                let losses = train(&mesh, &shape, stage, *sequence, micros, &values)?;
                let apart = largest_difference(&losses, &expected);
                // All ranks' sequences together.
                let tokens = 2 * 8 * micros * mesh.group(Axis::Data).size();
                assert!(apart < loss_rounding(tokens), "{what}: {losses:?}, serial {expected:?}");
                // All stages add in the same order, where the transport does.
                match &first {
                    Some(first) if world.adds_in_rank_order() => {
                        assert_eq!(&losses, first, "{what}")
                    }
                    _ => first = Some(losses),
                }
            }
        }
    }
    Ok(())
}

fn train(
    mesh: &Mesh,
    shape: &ModelShape,
    stage: Stage,
    sequence: bool,
    micros: usize,
    expected: &Values,
) -> anyhow::Result<Vec<f64>> {
    let ranks = mesh.group(Axis::Pipeline);
    let data = mesh.group(Axis::Data);
    let mut tensor = TensorParallel::new(mesh.group(Axis::Tensor).clone());
    if sequence {
        tensor = tensor.sequence_parallel();
    }
    let pipeline = Pipeline { ranks: ranks.size(), chunks: 1, micro_batches: micros };
    let layers = Partition::Parameters
        .divide(shape.layers, pipeline.stages(), |layers| shape.stage_parameters(layers))?;
    let build: &dyn Build = if tensor.group().size() > 1 { &tensor } else { &Plain };
    let stages =
        Stages::of(pipeline, ranks, &layers, |mine| Ok(Llama::chunks(shape, mine, build)?))?;
    if tensor.group().size() == 1 {
        let counted = shape.stage_parameters(&layers[ranks.rank()]);
        assert_eq!(stages.chunks[0].params.numel() as u64, counted);
    }
    let config = ZeroConfig::new(stage, Precision::F32, ADAMW);
    let zero = Zero::init(&stages.chunks[0].params, data, config, SEED)?;
    let mut zero = zero.with_tensor(&tensor)?.with_pipeline(ranks)?;
    let schedule = Schedule::OneForwardOneBackward;
    let program = pipeline.with_messages(ranks.rank(), &schedule.order(&pipeline, ranks.rank()));
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let micro_batches: Vec<(Batch, Pass)> = (0..micros)
            .map(|micro| (batch(step, data.rank(), micro), Pass::training(None)))
            .collect();
        let length = 8 / if sequence { tensor.group().size() } else { 1 };
        zero.begin()?;
        let ran = stages.step(&program, &micro_batches, [2, length, shape.embd], &zero)?;
        zero.finish()?;
        zero.step(LR, 1.0)?;
        let mut loss = [ran.losses.iter().sum::<f64>() / micros as f64];
        ranks.broadcast(&mut loss, ranks.size() - 1)?;
        data.all_reduce(&mut loss, Reduce::Mean)?;
        losses.push(loss[0]);
    }
    zero.each(|spec, shard| {
        spec.runs(0..shard.len(), |here, at| {
            let apart = largest_difference(
                &shard[here.clone()],
                &expected[&spec.whole.name][at..at + here.len()],
            );
            // Adam divides by a root: where a gradient is nearly zero, rounding decides its sign.
            // Each step is 10 times as long.
            assert!(apart < LR / 10.0, "{} from {at} on: {apart:e}", spec.name);
        });
    })?;
    Ok(losses)
}

/// Writes a model's folder: config.json and model.safetensors, with random weights.
pub fn write_folder(dir: &Path, shape: &ModelShape) -> anyhow::Result<()> {
    let params = Llama::new(shape)?.params;
    params.allocate(SEED);
    let values = params.values();
    let views: Vec<(String, safetensors::tensor::TensorView)> = params
        .specs()
        .iter()
        .map(|spec| {
            let bytes: &[u8] = bytemuck::cast_slice(&values[spec.range()]);
            let view = safetensors::tensor::TensorView::new(
                safetensors::Dtype::F32,
                spec.shape.clone(),
                bytes,
            );
            Ok((spec.name.clone(), view?))
        })
        .collect::<anyhow::Result<_>>()?;
    std::fs::write(
        dir.join("config.json"),
        labs::lab10::to_config(shape).expect("a Llama has a config.json"),
    )?;
    Ok(safetensors::serialize_to_file(views, None, &dir.join("model.safetensors"))?)
}

/// How a model is shared while it generates.
#[derive(Clone, Copy, Debug)]
pub struct Sharing {
    pub pipeline: usize,
    pub tensor: usize,
    /// Whether all other ranks shard the parameters (ZeRO-3); else they are replicas.
    pub zero: bool,
}

/// Continues `prompt` with `dir`'s model: the tokens, on every rank.
pub fn generated(
    world: &Comm,
    dir: &Path,
    sharing: Sharing,
    precision: Precision,
    prompt: &[u32],
    how: &Continuation,
) -> anyhow::Result<Vec<u32>> {
    let model = Pretrained::open(dir)?;
    let mesh = mesh(world, sharing.pipeline, sharing.tensor)?;
    let tensor = TensorParallel::new(mesh.group(Axis::Tensor).clone());
    ensure_tensor_llama(&model.shape, sharing.tensor)?;
    let build: &dyn Build = if sharing.tensor > 1 { &tensor } else { &Plain };
    let layers = Partition::Uniform
        .divide(model.shape.layers, sharing.pipeline, |layers| layers.len() as u64)?;
    let llama = Llama::stage(&model.shape, layers[mesh.at.pipeline].clone(), build)?;
    let cache = KvCache::new(&llama, prompt.len() + how.count, build);
    let stages = mesh.group(Axis::Pipeline);
    let mut streamed = Vec::new();
    let mut run = || {
        generate(&llama, &cache, Some(stages), prompt, how, |generated| {
            assert_eq!(generated.likeliest.len(), how.likeliest);
            streamed.push(generated.token);
            Ok(())
        })
    };
    let text = if sharing.zero {
        let data = mesh.group(Axis::Data);
        let zero = model.begin(data, |begin| {
            ZeroInference::new(&llama.params, data, Wrap::Blocks, precision, begin)
        })?;
        let text = zero.passes(run)?;
        let shards = zero.bytes();
        assert!(
            shards < 4 * llama.params.numel() / mesh.group(Axis::Data).size() + 4096,
            "{shards} bytes"
        );
        text
    } else {
        model.load(&llama.params, precision)?;
        run()?
    };
    assert_eq!(text.tokens, streamed);
    assert_eq!(cache.seen(), prompt.len() + text.tokens.len() - 1);
    Ok(text.tokens)
}

/// All ways in which `ranks` ranks can share a model with two key and value heads and at least two
/// layers.
pub fn all_sharings(ranks: usize) -> Vec<Sharing> {
    let all = [(1, 1), (2, 1), (1, 2), (2, 2)];
    let fits = all
        .into_iter()
        .filter(|&(pipeline, tensor)| ranks.is_multiple_of(pipeline * tensor));
    fits.flat_map(|(pipeline, tensor)| [false, true].map(|zero| Sharing { pipeline, tensor, zero }))
        .collect()
}

/// A random model continues a prompt in the same way, however it is shared. The reference computes
/// every token's logits from the whole text, without a cache.
pub fn sharing_changes_no_token(world: &Comm) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    for tied in [true, false] {
        let shape = ModelShape { family: Family::Llama(LlamaExtra { tied, ..LLAMA }), ..SHAPE };
        write_folder(dir.path(), &shape)?;
        let prompt = [1, 5, 30, 36, 2];
        let drawn = TokenSampling { temperature: 1.0, seed: 3 };
        for sampling in [TokenSampling::GREEDY, drawn] {
            let how = Continuation { count: 20, sampling, likeliest: 5, ends: Vec::new() };
            let whole = Llama::new(&shape)?;
            Pretrained::open(dir.path())?.load(&whole.params, Precision::F32)?;
            let mut expected = prompt.to_vec();
            for i in 0..how.count {
                let logits = whole.logits(&expected, expected.len(), &Pass::evaluate())?;
                let last =
                    logits.narrow(1, expected.len() - 1, 1)?.flatten_all()?.to_vec1::<f32>()?;
                expected.push(sampling.choose(&last, i as u64)?);
            }
            for sharing in all_sharings(world.size()) {
                let found = generated(world, dir.path(), sharing, Precision::F32, &prompt, &how)?;
                assert_eq!(
                    found,
                    expected[prompt.len()..],
                    "{sharing:?}, {sampling:?}, tied {tied}"
                );
            }
        }
    }
    Ok(())
}

/// The folder of the pretrained stories260K.
pub fn stories() -> std::path::PathBuf {
    super::needed("SHARDLAB_EXTRAS").join("models/stories260K")
}

/// The real model tells the published story, however it is shared.
pub fn the_story_is_told(world: &Comm) -> anyhow::Result<()> {
    let dir = stories();
    let text = Pretrained::open(&dir)?.text()?;
    let how = Continuation {
        count: 200,
        sampling: TokenSampling::GREEDY,
        likeliest: 5,
        ends: Vec::new(),
    };
    let mut first = None;
    for sharing in all_sharings(world.size()) {
        // Five layers, so the second stage has one more.
        let tokens = generated(world, &dir, sharing, Precision::F32, &text.tokens("")?, &how)?;
        let story = text.text(&tokens);
        let begins = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, \
                      she saw a big, red ball.";
        assert!(story.starts_with(begins), "{sharing:?}: {story}");
        assert_eq!(*first.get_or_insert_with(|| tokens.clone()), tokens, "{sharing:?}");
    }
    Ok(())
}

/// A folder's weights, in one piece.
pub fn loaded(dir: &Path) -> anyhow::Result<(std::sync::Arc<Params>, Vec<f32>)> {
    let model = Pretrained::open(dir)?;
    let params = Llama::new(&model.shape)?.params;
    model.load(&params, Precision::F32)?;
    let values = params.values().clone();
    Ok((params, values))
}
