//! The planner's bytes against what the ranks of labs 04 to 07 and 12 hold.

use crate::alone;
use planner::{Cluster, Degrees, Device, Overlap, Program, Stage, Strategy, TrainingJob};
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::parallel::context::Exchange;
use shardlab::plan::{Family, ModelShape};
use shardlab::tensor::Precision;
use shardlab::train::{Config, Training};

/// A rank's pipeline stage, the bytes of its state, and those of its activations when they are
/// most. With ZeRO-3 these have the layers that are gathered then.
type Held = (usize, f64, f64);

/// What each rank holds in the second step of a training: the first one also leaves buffers that
/// are not a step's. In a ring, a rank that is late holds more, as its neighbour's next block is
/// there already. So of a ring the least of several steps counts.
fn trained(
    corpus: &Corpus,
    shape: ModelShape,
    dropout: f64,
    batch: usize,
    precision: Precision,
    strategy: Strategy,
) -> Vec<Held> {
    let micro_batches = Some(strategy.micro_batches_of(batch));
    let strategy = Strategy { micro_batches, ..strategy };
    let config = Config {
        shape,
        steps: if strategy.exchange == Exchange::Ring { 12 } else { 2 },
        dropout,
        precision,
        ..Config::small(strategy.data, corpus)
    };
    let config = config.under(&strategy);
    let train = |comm: Comm| {
        let mut training = Training::new(&config, &strategy, &comm)?;
        let mut activations = isize::MAX;
        for step in 0..config.steps {
            let ran = training.step(&corpus.train, step)?.computed.ran;
            let most = ran.passes.iter().map(|pass| pass.bytes).max().unwrap_or(0);
            if step > 0 {
                activations = activations.min(most);
            }
        }
        let memory = training.zero.memory();
        let state = memory.parameters + memory.gradients + memory.optimizer;
        Ok((training.mesh.at.pipeline, state as f64, activations as f64))
    };
    launch::run(strategy.ranks(), train).unwrap()
}

/// The planner's bytes for a rank of a pipeline stage.
fn planned(job: &TrainingJob, strategy: &Strategy, stage: usize) -> [f64; 2] {
    let load = job.load_of(strategy, stage);
    // Between two passes: the layer that was used last and the next one, and no gradients in
    // flight.
    let layers = if strategy.zero == Stage::Three { 2.0 } else { 0.0 };
    // Layers read them in f32.
    let gathered = layers * 4.0 * job.model.largest_layer() as f64 / strategy.tensor as f64;
    [load.state(), load.activations + gathered]
}

/// The labs' jobs: what state and activations take on each rank, within 5% of the plan.
#[test]
fn the_planner_foresees_the_bytes_of_the_labs() {
    if !alone("planned::the_planner_foresees_the_bytes_of_the_labs") {
        return;
    }
    launch::one_compute_thread_a_rank();
    let corpus = Corpus::embedded().unwrap();
    let shape = |layers, embd, block| ModelShape {
        vocabulary: 65,
        block,
        layers,
        heads: 4,
        embd,
        family: Family::Gpt,
        experts: None,
    };
    let thin = shape(12, 64, 64);
    let baby = shape(4, 128, 64);
    let deep = shape(8, 64, 32);
    // A wider model, because the inputs of thin layers are not much larger than candle's own notes
    // about them.
    let wide = shape(8, 256, 32);
    let mut wrong = Vec::new();
    let cluster = Cluster::new(Device::named("laptop").unwrap(), "ethernet").unwrap();
    let (f32, bf16) = (Precision::F32, Precision::Bf16);
    for (lab, shape, dropout, batch, precision, plan) in [
        ("lab04", thin, 0.0, 48, f32, "dp=4,mb=12,zero=0"),
        ("lab04", thin, 0.0, 48, f32, "dp=4,mb=12,zero=1"),
        ("lab04", thin, 0.0, 48, f32, "dp=4,mb=12,zero=2"),
        ("lab04", thin, 0.0, 48, f32, "dp=4,mb=12,zero=3"),
        ("lab05", baby, 0.1, 12, f32, "mb=12"),
        ("lab05", baby, 0.1, 12, f32, "tp=2,mb=12"),
        ("lab05", baby, 0.1, 12, f32, "tp=2,mb=12,sp"),
        ("lab06", deep, 0.0, 16, f32, "pp=4,mb=2"),
        ("lab06", deep, 0.0, 16, f32, "pp=4,mb=2,chunks=2"),
        ("lab06", wide, 0.0, 16, f32, "pp=4,mb=2,recompute=full"),
        ("lab07", baby, 0.0, 16, f32, "dp=2,tp=2,pp=2,mb=2,zero=1"),
        ("lab12", baby, 0.0, 8, f32, "cp=2,mb=8"),
        ("lab12", baby, 0.1, 8, f32, "dp=2,cp=4,mb=4,zero=1,cp-comm=ring"),
        ("lab12", baby, 0.0, 8, f32, "cp=2,mb=8,zero=1,cp-comm=ulysses"),
        ("lab12", thin, 0.0, 48, f32, "dp=2,cp=2,mb=24,zero=3"),
        ("lab12", baby, 0.0, 8, f32, "tp=2,cp=2,mb=8,sp"),
        ("lab04", thin, 0.0, 48, bf16, "dp=4,mb=12,zero=1"),
        ("lab04", thin, 0.0, 48, bf16, "dp=4,mb=12,zero=3"),
        ("lab07", baby, 0.0, 16, bf16, "dp=2,tp=2,pp=2,mb=2,zero=1"),
    ] {
        let strategy: Strategy = plan.parse().unwrap();
        let job = TrainingJob {
            batch,
            bytes: precision.bytes_each(f32),
            dropout: dropout > 0.0,
            overlap: Overlap::None,
            program: Program::Shardlab,
            ..TrainingJob::new(shape, cluster.clone(), strategy.ranks())
        };
        let all = trained(&corpus, shape, dropout, batch, precision, strategy);
        for (stage, state, activations) in all {
            let [state_planned, activations_planned] = planned(&job, &strategy, stage);
            for (of, is, says) in [
                ("state", state, state_planned),
                ("activations", activations, activations_planned),
            ] {
                if (says / is - 1.0).abs() >= 0.05 {
                    wrong.push(format!(
                        "{lab} {plan}, {precision:?}, stage {stage}: {of} {is} bytes, planned {says}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
