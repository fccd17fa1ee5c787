//! The stages on a real network, predicted.

use super::computed::zero_step;
use super::ring::ring;
use super::stages::by_stage;
use kit::show::{Screen, bytes_decimal};
use shardlab::parallel::zero::Stage;
use shardlab::plan::{
    AttentionScores, BytesEach, DropoutMasks, Family, Kept, ModelShape, Network, zero_memory,
};

/// GPT-3's model of 2.7 billion parameters (Brown et al., arXiv 2005.14165, table 2.1). One of its
/// GPUs cannot train it with plain data parallelism.
const REAL: ModelShape = ModelShape {
    vocabulary: 50_257,
    block: 2048,
    layers: 32,
    heads: 32,
    embd: 2560,
    family: Family::Gpt,
    experts: None,
};
const GPUS: usize = 64;
/// 40% of an A100's bf16 peak of 312 TFLOP/s (NVIDIA's data sheet, 2020).
const GPU_SPEED: f64 = 0.4 * 312e12;
/// Sequences of a rank: with 4 the largest batch that stages 1 to 3 have room for.
const SEQUENCES: [usize; 2] = [1, 4];

/// Bytes of an A100 that a training may use. PyTorch reports 39.4 GiB for a card of "40 GB"; the
/// runtime's own buffers and fragmentation take a tenth.
const ROOM: f64 = 0.9 * 39.4 * (1u64 << 30) as f64;

/// The bytes of one of its ranks: weights, gradients, optimizer, and all that a pass over so many
/// sequences keeps.
fn polaris_bytes(stage: Stage, sequences: usize) -> f64 {
    let held = zero_memory(stage.number(), REAL.parameters(), GPUS as u64, BytesEach::MIXED);
    let state = held.iter().sum::<u64>() as f64;
    let model = ModelShape { family: Family::Gpt2, ..REAL };
    let tokens = (sequences * model.block) as f64;
    let width = model.embd as f64;
    let blocks = model.layers as f64
        * Kept::of(&model, 2.0, AttentionScores::None, DropoutMasks::Kept).on_a_rank(1, 1);
    // Before the blocks a mask of dropout, after them a norm and the head's input, and logits in
    // f32.
    let ends = width + 2.0 * 2.0 * width + 4.0 * model.vocabulary as f64;
    // ZeRO-3 has two layers gathered, and the gradients of one.
    let gathered = match stage.number() {
        3 => 3.0 * 2.0 * model.largest_layer() as f64,
        _ => 0.0,
    };
    state + tokens * (blocks + ends) + gathered
}

/// The stages on a real network, predicted: what a rank holds, and how long a step takes.
pub fn on_polaris(screen: &Screen) -> String {
    let Some(network) = Network::named("polaris") else {
        return String::new();
    };
    let numel = REAL.parameters();
    let column = |stage: Stage| {
        let mut cells = Vec::new();
        for sequences in SEQUENCES {
            let needs = polaris_bytes(stage, sequences);
            cells.push(screen.fits(needs <= ROOM, bytes_decimal(needs)));
            let block = numel / REAL.layers as u64;
            let seconds = |collective, numel| ring(collective, numel, GPUS, 2, &network);
            let step =
                zero_step(stage.number(), &REAL, sequences * REAL.block, GPU_SPEED, block, seconds);
            let waiting = 100.0 * step.waiting() / step.seconds();
            cells.push(format!("{} ({waiting:.0}%)", screen.seconds(step.seconds())));
        }
        cells
    };
    let names = ["needs, 2k", "step, 2k", "needs, 8k", "step, 8k"];
    let title = format!(
        "Predicted: {:.2} billion parameters in bf16 on {GPUS} A100 of 40 GB (Polaris)",
        numel as f64 / 1e9
    );
    let columns: Vec<Vec<String>> = Stage::ALL.into_iter().map(column).collect();
    let words = format!(
        "needs: with the activations of 2k or 8k tokens; {:.0} GB fit. step: its time, and how much of it a GPU waits. \
         Stages 1, 2: nothing hides the gather.",
        ROOM / 1e9
    );
    let table = by_stage(screen, &names, &Stage::ALL, &columns);
    format!("{}\n{table}\n{}", screen.title(&title, 2), screen.wrap(&words, 2))
}
