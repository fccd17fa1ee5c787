//! Log lines with the fields of Megatron-DeepSpeed's log, in which steps are called iterations.
//!
//! A skipped iteration has no loss and no gradient norm. It takes almost no time, so it would
//! spoil each average. The source's log repeats the last norm there, and prints a throughput of
//! more than a million tokens per second. These lines average only over iterations that trained,
//! and leave out fields that nothing trained for. With `--log-skipped` they are the source's, for
//! a comparison ([`mean_speed`]). A *gpu* is a rank here.

use crate::skipping::{Counters, Outcome};
use kit::show;
use shardlab::data::{Batch, Vocabulary};
use shardlab::train::Config;

/// The figures that all lines of a run share.
#[derive(Clone, Copy, Debug)]
pub struct LoggedRun {
    pub steps: usize,
    pub ranks: usize,
    /// Sequences per step, over all ranks.
    pub samples: usize,
    /// Tokens per sequence.
    pub block: usize,
    /// FLOPs of one token: of the model's forward and backward pass, and with passes that are
    /// computed once more to save activations.
    pub flops_per_token: [f64; 2],
}

impl LoggedRun {
    /// The run that a config defines, without recomputation.
    pub fn of(config: &Config) -> LoggedRun {
        LoggedRun {
            steps: config.steps,
            ranks: config.ranks,
            samples: config.samples_per_step(),
            block: config.shape.block,
            flops_per_token: [config.shape.flops_per_token() as f64; 2],
        }
    }
}

/// The iterations since the last line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    trained: usize,
    skipped: usize,
    /// Skipped iterations whose time counts, as in the source's log.
    timed_skips: usize,
    nan: usize,
    seconds: f64,
    loss: f64,
    /// The last norm, also of an earlier interval.
    grad_norm: f64,
}

impl Interval {
    /// Adds a step with its outcome, which took `seconds`.
    pub fn add(&mut self, outcome: &Outcome, seconds: f64) {
        match *outcome {
            Outcome::Taken { loss, grad_norm, .. } => self.trained(seconds, loss, grad_norm),
            Outcome::PastBound { loss, .. } | Outcome::Overflow { loss } => {
                self.skipped(Some(loss))
            }
            Outcome::InRange => self.skipped(None),
        }
    }

    /// Adds an iteration that trained. `loss` is the mean over all ranks.
    pub fn trained(&mut self, seconds: f64, loss: f64, grad_norm: f64) {
        self.trained += 1;
        self.seconds += seconds;
        self.loss += loss;
        self.grad_norm = grad_norm;
    }

    /// Adds an iteration that was skipped. `loss`, if it was computed before, counts only if it is
    /// not finite.
    pub fn skipped(&mut self, loss: Option<f64>) {
        self.skipped += 1;
        self.nan += usize::from(loss.is_some_and(|loss| !loss.is_finite()));
    }

    /// Counts a skipped iteration's time, as the source's log does.
    pub fn count_skipped_time(&mut self, seconds: f64) {
        self.timed_skips += 1;
        self.seconds += seconds;
    }

    /// The line after the interval's last iteration. The next interval begins empty.
    pub fn line(
        &mut self,
        run: &LoggedRun,
        counters: &Counters,
        lr: f64,
        loss_scale: f64,
    ) -> String {
        let Interval { trained, skipped, timed_skips, nan, seconds, loss, grad_norm } = *self;
        *self = Interval { grad_norm, ..Interval::default() };
        let samples = counters.global_samples;
        let timed = trained + timed_skips;
        let count = timed as f64;
        let mut fields = vec![
            format!("iteration={:>8}/{:>8}", counters.global_steps, run.steps),
            format!("consumed_samples={samples:>12}"),
            format!("consumed_tokens={:>12}", samples * run.block),
        ];
        if timed > 0 {
            fields.push(format!("elapsed_time_per_iteration_ms={:.1}", 1e3 * seconds / count));
        }
        fields.push(format!("learning_rate={}", show::general(lr, 6)));
        fields.push(format!("global_batch_size={:>5}", run.samples));
        if trained > 0 {
            fields.push(format!("lm loss={:.6}", loss / trained as f64));
        }
        fields.push(format!("loss_scale={loss_scale:.1}"));
        if timed > 0 {
            fields.push(format!("grad_norm={grad_norm:.3}"));
        }
        fields.push(format!("actual_seqlen={:>5}", run.block));
        fields.push(format!("number_of_skipped_iterations={skipped:>3}"));
        fields.push(format!("number_of_nan_iterations={nan:>3}"));
        if timed > 0 {
            let sps = run.samples as f64 * count / seconds;
            fields.push(format!("samples_per_second={sps:.3}"));
            let tgs = sps * run.block as f64 / run.ranks as f64;
            fields.push(format!("tokens_per_gpu_per_second_tgs={tgs:.3}"));
            // Per rank, as in the source. [DS] is DeepSpeed's count, which includes recomputation.
            let [model, executed] = run.flops_per_token.map(|flops| 1e-12 * tgs * flops);
            fields.push(format!("[LM]TFLOPs={model:.2}"));
            fields.push(format!("[DS]TFLOPs={executed:.2}"));
        }
        fields.join(" | ") + " |"
    }
}

/// The speed of a log's run, tokens per second and rank, read in two ways.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanSpeed {
    /// Tokens of the lines that have a loss, over the time of these lines.
    pub trained: f64,
    /// The mean of what all lines print.
    pub of_all_lines: f64,
}

/// The mean speed by the lines of a log, one for each iteration, of as many tokens. None if no line
/// has a loss. Their times are no help: a step of a small model takes less than they show.
pub fn mean_speed<'a>(lines: impl Iterator<Item = &'a str>) -> Option<MeanSpeed> {
    // Seconds for each token of a rank, line by line.
    let mut trained = Vec::new();
    let mut speeds = Vec::new();
    for line in lines {
        let field = |name: &str| -> Option<f64> {
            let field = line.split('|').find_map(|field| field.trim().strip_prefix(name))?;
            field.trim().parse().ok()
        };
        let Some(speed) = field("tokens_per_gpu_per_second_tgs=") else {
            continue;
        };
        speeds.push(speed);
        if field("lm loss=").is_some() {
            trained.push(1.0 / speed);
        }
    }
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    (!trained.is_empty())
        .then(|| MeanSpeed { trained: 1.0 / mean(&trained), of_all_lines: mean(&speeds) })
}

/// The tokens of a micro-step as the source's log shows them, and their text: each sequence's
/// first and last tokens. `micro` counts from 0.
pub fn drawn(
    iteration: usize,
    micro: usize,
    accumulation: usize,
    batch: &Batch,
    vocabulary: &Vocabulary,
) -> String {
    const ENDS: usize = 3;
    let rows = batch
        .inputs
        .chunks(batch.length.max(1))
        .zip(batch.targets.chunks(batch.length.max(1)));
    let mut lines = format!("iteration={iteration} [{micro}/{accumulation}]: ");
    lines += &format!("[{}, {}]", batch.sequences.len(), batch.length + 1);
    for (inputs, targets) in rows {
        let row: Vec<u32> = inputs.iter().chain(targets.last()).copied().collect();
        let numbers = |tokens: &[u32]| {
            tokens.iter().map(|token| format!("{token:>5}")).collect::<Vec<_>>().join(", ")
        };
        let tokens = if row.len() > 2 * ENDS {
            let first = numbers(&row[..ENDS]);
            let last = numbers(&row[row.len() - ENDS..]);
            format!("{first},  ..., {last}")
        } else {
            numbers(&row)
        };
        let text: String = vocabulary.decode(&row).chars().take(24).collect();
        lines += &format!("\n  [{tokens}]  {text:?}");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::data::{Corpus, Sampler, Sampling};

    /// The run whose log the source shows: 24 ranks, 768 sequences of 4,096 tokens. The log does
    /// not name the model. Its FLOPs per token follow from its rates, and they are the same in all
    /// lines.
    const RUN: LoggedRun = LoggedRun {
        steps: 635_782,
        ranks: 24,
        samples: 768,
        block: 4096,
        flops_per_token: [20.30e12 / 4432.597, 26.18e12 / 4432.597],
    };

    fn after(steps: usize) -> Counters {
        Counters {
            global_steps: steps,
            global_samples: 768 * steps,
            ..Counters::default()
        }
    }

    #[test]
    fn a_line_has_the_sources_fields_and_figures() {
        let mut interval = Interval::default();
        // The log prints milliseconds with one digit; the rates tell more of them.
        interval.trained(29.570_024, 11.167250, 6.363);
        assert_eq!(
            interval.line(&RUN, &after(1), 9.4372e-9, 1.0),
            "iteration=       1/  635782 | consumed_samples=         768 | consumed_tokens=     3145728 | \
             elapsed_time_per_iteration_ms=29570.0 | learning_rate=9.4372e-09 | global_batch_size=  768 | \
             lm loss=11.167250 | loss_scale=1.0 | grad_norm=6.363 | actual_seqlen= 4096 | \
             number_of_skipped_iterations=  0 | number_of_nan_iterations=  0 | samples_per_second=25.972 | \
             tokens_per_gpu_per_second_tgs=4432.597 | [LM]TFLOPs=20.30 | [DS]TFLOPs=26.18 |"
        );
        // An iteration that the source skipped: it has a speed, and the last norm once more.
        interval.skipped(None);
        interval.count_skipped_time(0.106_803_42);
        let line = interval.line(&RUN, &after(2), 1.88744e-8, 1.0);
        let begins = "iteration=       2/  635782 | consumed_samples=        1536 | consumed_tokens=     6291456 | \
                      elapsed_time_per_iteration_ms=106.8 | learning_rate=1.88744e-08 | global_batch_size=  768 | \
                      loss_scale=1.0 | grad_norm=6.363 | actual_seqlen= 4096 | number_of_skipped_iterations=  1 | \
                      number_of_nan_iterations=  0 | samples_per_second=7190.781 | ";
        let rates = line.strip_prefix(begins).unwrap_or_else(|| panic!("{line}"));
        let rate = |name: &str| -> f64 {
            let field = rates.split(" | ").find_map(|field| field.strip_prefix(name)).unwrap();
            field.trim_end_matches(" |").parse().unwrap()
        };
        for (name, printed) in [
            ("tokens_per_gpu_per_second_tgs=", 1_227_226.651),
            ("[LM]TFLOPs=", 5620.92),
            ("[DS]TFLOPs=", 7247.49),
        ] {
            assert!((rate(name) / printed - 1.0).abs() < 1e-3, "{name} {line}");
        }
    }

    /// The source's log of a run that skips steps 2 and 3: a mean over its three lines says 4,247
    /// TFLOPs and 0.93 million tokens per second, where one step trained at 28.29 and 6,176.
    #[test]
    fn a_mean_over_the_sources_lines_is_150_times_the_speed() {
        let lines = [
            "elapsed_time_per_iteration_ms=21224.4 | lm loss=11.167250 | tokens_per_gpu_per_second_tgs=6175.523 | x |",
            "elapsed_time_per_iteration_ms=106.8 | grad_norm=6.363 | tokens_per_gpu_per_second_tgs=1227226.651 | x |",
            "elapsed_time_per_iteration_ms=84.7 | grad_norm=6.363 | tokens_per_gpu_per_second_tgs=1548080.271 | x |",
        ];
        let speed = mean_speed(lines.into_iter()).unwrap();
        assert!((speed.trained - 6175.523).abs() < 1e-6, "{speed:?}");
        assert_eq!((speed.of_all_lines / speed.trained).round(), 150.0);
        assert_eq!(mean_speed(lines[1..].iter().copied()), None);
        // 128 tokens in 2.6, 0.7, 0.4 and 1.3 ms, rounded.
        let short = [(2.6, 49531.866), (0.7, 184131.332), (0.4, 355479.522), (1.3, 100262.877)];
        let lines = short.map(|(ms, speed)| {
            format!("elapsed_time_per_iteration_ms={ms} | lm loss=4.1 | tokens_per_gpu_per_second_tgs={speed} |")
        });
        let speed = mean_speed(lines.iter().map(String::as_str)).unwrap();
        assert_eq!(speed.trained.round(), 104_148.0);
    }

    #[test]
    fn a_skipped_iteration_has_neither_loss_nor_speed() {
        let mut interval = Interval::default();
        interval.skipped(None);
        assert_eq!(
            interval.line(&RUN, &after(2), 1.88744e-8, 1.0),
            "iteration=       2/  635782 | consumed_samples=        1536 | consumed_tokens=     6291456 | \
             learning_rate=1.88744e-08 | global_batch_size=  768 | loss_scale=1.0 | actual_seqlen= 4096 | \
             number_of_skipped_iterations=  1 | number_of_nan_iterations=  0 |"
        );
    }

    #[test]
    fn skipped_iterations_stay_out_of_averages() {
        let mut interval = Interval::default();
        interval.trained(2.0, 4.0, 1.0);
        interval.skipped(Some(f64::NAN));
        interval.skipped(Some(9.0));
        interval.trained(4.0, 3.0, 0.5);
        let line = interval.line(&RUN, &after(4), 1e-3, 65_536.0);
        for field in [
            "elapsed_time_per_iteration_ms=3000.0 ",
            "lm loss=3.500000 ",
            "loss_scale=65536.0 ",
            "grad_norm=0.500 ",
            "number_of_skipped_iterations=  2 ",
            "number_of_nan_iterations=  1 ",
            "samples_per_second=256.000 ",
        ] {
            assert!(line.contains(field), "{field}: {line}");
        }
        // Each line counts the iterations since the previous one.
        assert!(interval.line(&RUN, &after(4), 1e-3, 1.0).contains("skipped_iterations=  0 "));
    }

    #[test]
    fn a_micro_step_shows_its_tokens_and_their_text() {
        let corpus = Corpus::new("test", &"abcdefghij".repeat(11)).unwrap();
        let sampler = Sampler {
            sampling: Sampling::Partition,
            seed: 1,
            rank: 0,
            ranks: 1,
            batch: 2,
            block: 9,
        };
        let batch = sampler.batch(&corpus.train, 1, 0);
        let shown = drawn(2, 0, 8, &batch, &corpus.vocabulary);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!((lines[0], lines.len()), ("iteration=2 [0/8]: [2, 10]", 3));
        let from = batch.starts[0] % 10;
        let token = |i: usize| (from + i) % 10;
        let expected = format!(
            "  [{:>5}, {:>5}, {:>5},  ..., {:>5}, {:>5}, {:>5}]  ",
            token(0),
            token(1),
            token(2),
            token(7),
            token(8),
            token(9)
        );
        assert!(lines[1].starts_with(&expected), "{}", lines[1]);
        assert!(lines[1].ends_with('"') && lines[1].len() == expected.len() + 12, "{}", lines[1]);
    }
}
