//! The job of a real log: Megatron-LM on 8 GPUs, June 2025. The book lists it among its sources.

use super::report::{Job, MEGABYTE, Memory};
use kit::show::{Screen, explained, folded, thousands};
use shardlab::launch;
use shardlab::mesh::Coordinates;
use shardlab::parallel::pipeline::{Pipeline, Schedule, Work};
use shardlab::parallel::tensor::padded;
use shardlab::plan::{AttentionScores, BytesEach, DropoutMasks, Family, Kept, ModelShape, Shards};

/// Bytes per parameter that each rank of the job held after its first iteration, which was
/// skipped. The gradients are in 16 bits, and Megatron-LM copies them to f32 before the optimizer.
/// There are no moments before the first update.
const HELD: BytesEach = BytesEach {
    parameter: 2,
    gradient: 2 + 4,
    optimizer: 4, // the f32 master
};

/// The memory that the log states for ranks 0 to 7: allocated, max allocated and reserved, in
/// units of 2^20 bytes.
const MEMORY: [[f64; 3]; 8] = [
    [1941.8955078125, 7706.13916015625, 8174.0],
    [1941.8955078125, 7706.13916015625, 8178.0],
    [1348.8955078125, 7150.60791015625, 7352.0],
    [1348.8955078125, 7150.60791015625, 7356.0],
    [1348.8955078125, 7086.60791015625, 7300.0],
    [1348.8955078125, 7086.60791015625, 7292.0],
    [1958.19287109375, 6713.7314453125, 7050.0],
    [1958.19287109375, 6713.6689453125, 7038.0],
];

/// The job.
pub fn job() -> Job {
    let shape = ModelShape {
        vocabulary: 50_257,
        block: 2048,
        layers: 16,
        heads: 32,
        embd: 2048,
        family: Family::Gpt2,
        experts: None,
    };
    let sizes = Coordinates { data: 1, pipeline: 4, tensor: 2 };
    let chunks = 4;
    let rows = padded(shape.vocabulary, sizes.tensor, 128);
    let layer = |rank: usize, chunk: usize| {
        let layer = chunk * sizes.pipeline + rank;
        layer..layer + 1
    };
    Job {
        shards: Shards {
            shape,
            tensor: sizes.tensor,
            pipeline: sizes.pipeline,
            sequence: false,
            rows,
        },
        sizes,
        chunks,
        layers: (0..sizes.pipeline)
            .map(|rank| (0..chunks).map(|chunk| layer(rank, chunk)).collect())
            .collect(),
        micro_batches: 8,
        micro_batch: 2,
        steps: 20,
        log_interval: 1,
        eval_interval: 20,
        eval_iters: 10,
        split: "949,50,1",
        load: Some("ngc_models"),
        weights: "torch.float16",
        bytes: BytesEach::MEGATRON,
        distributed_optimizer: false,
        multiple: 128,
        lr: 6e-5,
        clip: 1.0,
        seed: 1234,
    }
}

/// Bytes that a rank of `stage` holds for its parameters after the first iteration.
pub fn held(stage: usize) -> f64 {
    job().parameters(stage) as f64 * HELD.on_a_rank(1)
}

/// The memory of each rank, as the log states it.
pub fn memory() -> [Memory; 8] {
    MEMORY.map(|figures| Memory::of(figures.map(|mb| mb * MEGABYTE)))
}

/// Why the log's memory is below its estimate: 12 bytes per parameter and buffers, instead of 18.
pub fn below_the_estimate(screen: &Screen) -> String {
    let job = job();
    let memory = memory();
    let in_mb = |bytes: f64| format!("{:.2}", bytes / MEGABYTE);
    let row = |stage: usize| {
        let rank = stage * job.sizes.tensor;
        let held = held(stage);
        let allocated = memory[rank].allocated;
        let ranks = format!("{rank}, {}", rank + 1);
        let counted = thousands(job.parameters(stage));
        vec![ranks, counted, in_mb(held), in_mb(allocated), in_mb(allocated - held)]
    };
    let moments = BytesEach { optimizer: HELD.optimizer + 8, ..HELD };
    let words = format!(
        "In MB (2^20 bytes), after iteration 1. The rest is a whole number of MB, or a quarter more, and 5 kB: buffers, which \
         do not depend on the number of parameters. {} bytes per parameter: weights 2, gradients 2 and their f32 copy 4, \
         f32 master 4. Iteration 1 was skipped, because its gradients overflowed at the loss scale 4,294,967,296. So Adam had \
         no moments yet: 8 bytes per parameter less. With them, rank 0 would hold {} MB and its buffers, more than the \
         estimate's {}: the estimate counts 18 bytes, this job takes {}.",
        HELD.on_a_rank(1),
        in_mb(job.parameters(0) as f64 * moments.on_a_rank(1)),
        in_mb(job.estimated_bytes()),
        moments.on_a_rank(1)
    );
    let head = ["ranks", "parameters", "x 12 bytes", "allocated", "the rest"];
    explained(screen, &head, (0..job.sizes.pipeline).map(row), &words)
}

/// Bytes that a pass through one layer keeps until its backward pass, with selective
/// recomputation: s b h (10 + 24/t), of Korthikanti and others (2022).
fn kept_by_a_pass(job: &Job) -> f64 {
    let shape = &job.shards.shape;
    let kept = Kept::of(shape, 2.0, AttentionScores::None, DropoutMasks::Kept);
    (shape.block * job.micro_batch) as f64 * kept.on_a_rank(job.sizes.tensor, 1)
}

/// Bytes of one micro-batch's logits on a tensor rank, in 16 bits. Only the last stage has them.
fn logits(job: &Job, stage: usize) -> f64 {
    let tokens = job.shards.shape.block * job.micro_batch;
    let is_last = stage + 1 == job.sizes.pipeline;
    f64::from(u8::from(is_last)) * 2.0 * (tokens * job.shards.rows / job.sizes.tensor) as f64
}

/// The passes that the peak of a stage's first rank has room for, and the bytes that are left.
fn passes_at_the_peak(job: &Job, stage: usize) -> (usize, f64) {
    let memory = &memory()[stage * job.sizes.tensor];
    let activations = memory.max_allocated - memory.allocated - logits(job, stage);
    let pass = kept_by_a_pass(job);
    let passes = (activations / pass).floor();
    (passes as usize, activations - passes * pass)
}

/// Passes that a stage keeps at its peak if micro-batches visit the chunks in groups of `group`:
/// the forward passes before its first backward pass.
fn by_the_schedule(job: &Job, stage: usize, group: usize) -> usize {
    let Job { sizes, chunks, micro_batches, .. } = *job;
    let pipeline = Pipeline { ranks: sizes.pipeline, chunks, micro_batches };
    let order = Schedule::Interleaved { group }.order(&pipeline, stage);
    order.iter().take_while(|op| op.work == Work::Forward).count()
}

/// The order of passes, read from the peaks.
pub fn schedule_from_memory(screen: &Screen) -> String {
    let job = job();
    let memory = memory();
    let in_mb = |bytes: f64| format!("{:.1}", bytes / MEGABYTE);
    let groups = [job.sizes.pipeline, job.micro_batches];
    let row = |stage: usize| {
        let rank = stage * job.sizes.tensor;
        let (passes, rest) = passes_at_the_peak(&job, stage);
        let mut row = vec![
            format!("{rank}, {}", rank + 1),
            in_mb(memory[rank].max_allocated - memory[rank].allocated),
            in_mb(logits(&job, stage)),
            passes.to_string(),
            in_mb(rest),
        ];
        row.extend(groups.map(|group| by_the_schedule(&job, stage, group).to_string()));
        row
    };
    let head = ["ranks\n", "peak -\nallocated", "logits\n", "passes\n", "the\nrest"];
    let mut head = head.map(String::from).to_vec();
    head.extend(groups.map(|group| format!("in groups\nof {group}")));
    let words = format!(
        "In MB. A pass keeps s b h (10 + 24/t) bytes = {} MB until its backward pass. The last two columns: the passes that \
         Megatron-LM's order would keep.",
        in_mb(kept_by_a_pass(&job))
    );
    explained(screen, &head, (0..job.sizes.pipeline).map(row), &words)
}

/// Rebuilds the log of a real job, shows why its memory lies below its estimate, and what its
/// peaks say of the order of passes.
pub fn show(screen: &Screen) {
    if launch::is_first_process() {
        let job = job();
        let memory = memory();
        let memory = memory.iter().enumerate().map(|(rank, memory)| memory.line(rank, 1));
        let header = job.header().into_iter();
        let counts = header.chain(job.counts());
        let begin = counts.chain(job.begin());
        for line in begin.chain(job.estimate()).chain(memory) {
            screen.say(folded(&line, screen.width));
        }
        screen.say(format!("\n{}", below_the_estimate(screen)));
        screen.say(format!("\n{}", schedule_from_memory(screen)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{Iteration, times};
    use super::*;

    fn has(lines: &[String], expected: &[&str]) {
        for expected in expected {
            assert!(
                lines.iter().any(|line| line == expected),
                "{expected:?} is missing in\n{}",
                lines.join("\n")
            );
        }
    }

    #[test]
    fn the_logs_own_lines() {
        let job = job();
        has(
            &job.header(),
            &[
                "Number of virtual stages per pipeline stage: 4",
                "using torch.float16 for parameters ...",
                "------------------------ arguments ------------------------",
                "  global_batch_size ............................... 16",
                "  hidden_size ..................................... 2048",
                "  lr .............................................. 6e-05",
                "  clip_grad ....................................... 1.0",
                "  virtual_pipeline_model_parallel_size ............ 4",
                "-------------------- end of arguments ---------------------",
                " > padded vocab (size: 50257) with 175 dummy tokens (new size: 50432)",
                "> initialized tensor model parallel with size 2",
                "> initialized pipeline model parallel with size 4",
                "> setting random seeds to 1234 ...",
            ],
        );
        has(
            &job.header(),
            &[
                "  eval_interval ................................... 20",
                "  eval_iters ...................................... 10",
                "  split ........................................... 949,50,1",
            ],
        );
        assert_eq!(
            job.begin(),
            [
                "WARNING: could not find the metadata file ngc_models/latest_checkpointed_iteration.txt",
                "    will not load any checkpoints and will start from random",
                "> building train, validation, and test datasets ...",
                " > datasets target sizes (minimum size):",
                "    train:      320",
                "    validation: 320",
                "    test:       160",
            ]
        );
        assert_eq!(job.counts().len(), 8);
        has(
            &job.counts(),
            &[
                " > number of parameters on (tensor, pipeline) model parallel rank (1, 0): 156577792",
                " > number of parameters on (tensor, pipeline) model parallel rank (0, 1): 100741120",
                " > number of parameters on (tensor, pipeline) model parallel rank (1, 2): 100741120",
                " > number of parameters on (tensor, pipeline) model parallel rank (0, 3): 152387584",
            ],
        );
        assert_eq!(
            job.estimate(),
            [
                "Number of parameters in transformer block in billions:  0.81",
                "Number of parameters in embedding layers in billions: 0.10",
                "Total number of parameters in billions: 0.91",
                "Number of parameters in most loaded shard in billions: 0.1523",
                "Number of parameters in other shards in billions: 0.1007",
                "Theoretical memory footprints: weight and optimizer=2614.79 MB",
            ]
        );
    }

    #[test]
    fn an_iteration_and_times_as_the_log_prints_them() {
        let skipped = Iteration {
            number: 1,
            steps: 20,
            seconds: 4.4932,
            lr: 0.0,
            global_batch: 16,
            loss: None,
            loss_scale: 4_294_967_296.0,
            grad_norm: None,
            nan: 0,
        };
        assert_eq!(
            skipped.line(),
            " iteration        1/      20 | consumed samples:           16 | elapsed time per iteration (ms): 4493.2 | learning \
             rate: 0.000000E+00 | global batch size:    16 | loss scale: 4294967296.0 | number of skipped iterations:   1 | \
             number of nan iterations:   0 |"
        );
        let taken = Iteration {
            loss: Some(10.987654321),
            grad_norm: Some(2.5),
            lr: 6e-5,
            loss_scale: 1.0,
            ..skipped
        };
        let line = taken.line();
        assert!(
            line.contains(
                " | lm loss: 1.098765E+01 | loss scale: 1.0 | grad norm: 2.500 | number of skipped"
            ),
            "{line}"
        );
        assert!(
            line.contains("learning rate: 6.000000E-05 |")
                && line.contains("skipped iterations:   0 |"),
            "{line}"
        );
        assert_eq!(
            times(&[("model-and-optimizer-setup", 0.19721, 0.20995)]),
            [
                "(min, max) time across ranks (ms):",
                "    model-and-optimizer-setup ......................: (197.21, 209.95)"
            ]
        );
    }

    /// The peaks have room for 32, 32, 32 and 25 passes of 176 MiB. What is left is less than one,
    /// on each rank, and is known to the MiB.
    #[test]
    fn peaks_say_how_many_passes_were_kept() {
        let job = job();
        assert_eq!(kept_by_a_pass(&job) / MEGABYTE, 176.0);
        assert_eq!([2, 3].map(|stage| logits(&job, stage) / MEGABYTE), [0.0, 197.0]);
        let found = [0, 1, 2, 3].map(|stage| passes_at_the_peak(&job, stage));
        assert_eq!(found.map(|(passes, _)| passes), [32, 32, 32, 25]);
        let rest = found.map(|(_, rest)| (rest / MEGABYTE).round());
        assert_eq!(rest, [132.0, 170.0, 106.0, 159.0]);
        // The other rank of each stage has the same peak, but for 64 KiB on the last.
        let memory = memory();
        for pair in memory.chunks(2) {
            assert!((pair[0].max_allocated - pair[1].max_allocated).abs() <= 65_536.0);
        }
        // The order in groups of 8 is that of the log's ranks 6 and 7; its own arguments mean 4.
        let by = |group| [0, 1, 2, 3].map(|stage| by_the_schedule(&job, stage, group));
        assert_eq!(by(8), [31, 29, 27, 25]);
        assert_eq!(by(4), [19, 17, 15, 13]);
        // `allocated` has f32 copies of the gradients, which were not there at the peak.
        let copies = [0, 1, 2, 3].map(|stage| job.parameters(stage) as f64 * 4.0);
        let real = [0, 1, 2, 3].map(|stage| ((found[stage].1 + copies[stage]) / MEGABYTE).round());
        assert_eq!(real, [730.0, 554.0, 490.0, 740.0]);
    }

    /// What is left beside 12 bytes per parameter does not depend on the number of parameters: MiB
    /// in quarters, and 5 or 5.5 KiB.
    #[test]
    fn after_a_skipped_step_a_rank_holds_twelve_bytes_per_parameter() {
        for (rank, memory) in memory().iter().enumerate() {
            let rest = memory.allocated - held(rank / 2);
            let quarters = (rest / (MEGABYTE / 4.0)).floor();
            let small = rest - quarters * MEGABYTE / 4.0;
            assert!(small == 5120.0 || small == 5632.0, "rank {rank}: {rest} bytes");
            assert_eq!(quarters / 4.0, [150.0, 196.0, 196.0, 214.25][rank / 2]);
            assert!(memory.allocated < job().estimated_bytes());
        }
    }
}
