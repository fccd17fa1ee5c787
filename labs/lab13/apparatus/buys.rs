//! What experts buy: mixtures beside a dense GPT that computes as much for a token.

use anyhow::Result;
use kit::MetricsFile;
use kit::show::{Plot, Screen, Series, table, thousands};
use serde::Serialize;
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::parallel::Strategy;
use shardlab::plan::{Experts, ModelShape};
use shardlab::train::{Config, Training, evaluate};
use std::time::Instant;

/// The mixtures: experts of a block, and how many of them a token has.
const MIXTURES: [[usize; 2]; 4] = [[4, 1], [8, 1], [4, 2], [8, 2]];

/// The mixtures and the dense model.
pub const MODELS: usize = MIXTURES.len() + 1;

/// Evaluations of a training, and tokens of each.
const EVALUATIONS: usize = 10;
const TOKENS: usize = 8192;

/// A model, and its trainings from several seeds.
pub struct Trained {
    name: String,
    shape: ModelShape,
    curves: Vec<Vec<Point>>,
}

/// One evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Point {
    steps: usize,
    /// Of all steps until then, without evaluations.
    seconds: f64,
    /// On text that no model trains on.
    loss: f64,
}

/// The dense GPT and the mixtures, none of them trained. An MLP of a mixture is so narrow that a
/// token's experts together are as wide as the dense one.
pub fn models(dense: ModelShape, experts: Experts) -> Vec<Trained> {
    let trained = |name: String, experts| Trained {
        name,
        shape: ModelShape { experts, ..dense },
        curves: Vec::new(),
    };
    let mut all = vec![trained("dense".to_string(), None)];
    all.extend(MIXTURES.map(|[count, top_k]| {
        let ffn = 4 * dense.embd / top_k;
        let experts = Experts { count, top_k, ffn, normalized: top_k > 1, ..experts };
        trained(format!("{top_k} of {count}"), Some(experts))
    }));
    all
}

/// Trains every model from `seeds` seeds, one after the other, all on the same batches.
///
/// # Errors
/// If a pass, a message or a file fails.
pub fn train(
    models: &mut [Trained],
    config: &Config,
    corpus: &Corpus,
    seeds: u64,
    metrics: &mut MetricsFile,
    comm: &Comm,
) -> Result<()> {
    for seed in config.seed..config.seed + seeds {
        for model in &mut *models {
            let config = Config { shape: model.shape, seed, ..config.clone() };
            let curve = curve(&model.name, &config, corpus, comm)?;
            for &point in &curve {
                metrics.write(&Line { model: &model.name, seed, point })?;
            }
            model.curves.push(curve);
        }
    }
    Ok(())
}

/// An evaluation, as `--metrics` writes it.
#[derive(Serialize)]
struct Line<'a> {
    model: &'a str,
    seed: u64,
    #[serde(flatten)]
    point: Point,
}

fn curve(name: &str, config: &Config, corpus: &Corpus, comm: &Comm) -> Result<Vec<Point>> {
    let strategy = Strategy { data: config.ranks, ..Strategy::SINGLE };
    let mut training = Training::new(config, &strategy, comm)?;
    let mut curve = Vec::new();
    let mut seconds = 0.0;
    let every = config.steps.div_ceil(EVALUATIONS);
    let batches = TOKENS.div_ceil(config.batch * config.shape.block);
    for step in 0..config.steps {
        kit::progress(comm, || format!("{name}, seed {}: step {}", config.seed, step + 1));
        let begun = Instant::now();
        training.step(&corpus.train, step)?;
        seconds += begun.elapsed().as_secs_f64();
        let steps = step + 1;
        if steps.is_multiple_of(every) || steps == config.steps {
            let sampler = training.sampler();
            let loss = |gpt: &_| evaluate(gpt, comm, &sampler, &corpus.validation, batches);
            let loss = training.whole(loss)?;
            curve.push(Point { steps, seconds, loss });
        }
    }
    Ok(curve)
}

/// Prints the losses of all models at equal FLOPs and at equal time.
pub fn show(screen: &Screen, models: &[Trained]) {
    let [dense, ..] = models else { return };
    let mut plot = Plot::new("validation loss, first seed", "seconds").height(12);
    for model in models {
        let points = model.curves[0].iter().map(|point| (point.seconds, point.loss));
        plot = plot.series(Series::line(&model.name, points));
    }
    screen.say(format!("{}\n", plot.render(screen)));
    let heads = ["model", "parameters", "of a token", "equal FLOPs", "equal time", "a step"];
    screen.say(table(screen, &heads, models.iter().map(|model| model.row(dense))));
    let words = "Validation losses: mean over seeds, lowest to highest. Equal FLOPs: after as many \
                 steps as the dense model. Equal time: after as many seconds, on a line between \
                 evaluations. A step: its time beside a dense one's.";
    screen.say(screen.wrap(words, 2));
}

impl Trained {
    fn row(&self, dense: &Trained) -> Vec<String> {
        let all = self.shape.parameters();
        let last = |model: &Trained, curve: usize| model.curves[curve].last().copied();
        let ends: Vec<[Point; 2]> = (0..self.curves.len())
            .filter_map(|curve| Some([last(self, curve)?, last(dense, curve)?]))
            .collect();
        let equal_flops: Vec<f64> = ends.iter().map(|[end, _]| end.loss).collect();
        let pairs = self.curves.iter().zip(&ends);
        let equal_time: Vec<f64> = pairs.map(|(curve, [_, end])| at(curve, end.seconds)).collect();
        let mean = |place: usize| ends.iter().map(|end| end[place].seconds).sum::<f64>();
        vec![
            self.name.clone(),
            thousands(all),
            thousands(all - self.shape.idle()),
            spread(&equal_flops),
            spread(&equal_time),
            format!("{:.2}", mean(0) / mean(1)),
        ]
    }
}

/// A curve's loss after `seconds`, on a straight line between two evaluations. Before the first one
/// and after the last one it is theirs.
fn at(curve: &[Point], seconds: f64) -> f64 {
    let later = curve.iter().position(|point| point.seconds >= seconds);
    match later.map(|later| (later.checked_sub(1).map(|earlier| curve[earlier]), curve[later])) {
        None => curve.last().map_or(f64::NAN, |last| last.loss),
        Some((None, first)) => first.loss,
        Some((Some(a), b)) => {
            let part = (seconds - a.seconds) / (b.seconds - a.seconds);
            a.loss + part * (b.loss - a.loss)
        }
    }
}

/// Of several losses the mean, the lowest and the highest.
fn spread(losses: &[f64]) -> String {
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    let lowest = losses.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = losses.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match losses {
        [_] => format!("{mean:.3}"),
        _ => format!("{mean:.3} ({lowest:.2}-{highest:.2})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::plan::Family;

    #[test]
    fn a_mixture_computes_as_much_as_the_dense_model() {
        let dense = ModelShape {
            vocabulary: 65,
            block: 32,
            layers: 2,
            heads: 2,
            embd: 16,
            family: Family::Gpt,
            experts: None,
        };
        let models = models(dense, Experts::default());
        for model in &models[1..] {
            let number = model.shape.experts.unwrap().count as u64;
            let router = 2 * 16 * number;
            let active = model.shape.parameters() - model.shape.idle();
            assert_eq!(active, dense.parameters() + router, "{}", model.name);
        }
    }

    #[test]
    fn equal_time_lies_between_evaluations() {
        let point = |seconds, loss| Point { steps: 1, seconds, loss };
        let curve = [point(1.0, 4.0), point(3.0, 3.0)];
        assert_eq!([0.5, 1.0, 2.0, 3.0, 9.0].map(|s| at(&curve, s)), [4.0, 4.0, 3.5, 3.0, 3.0]);
        assert_eq!(spread(&[2.0, 2.5, 3.0]), "2.500 (2.00-3.00)");
    }
}
