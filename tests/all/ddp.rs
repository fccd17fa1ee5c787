//! Data parallelism is the serial program: N ranks against one rank, bitwise where sums have the
//! same order.

use crate::suite;
use crate::suite::trained::config;
use kit::flags::EvalConfig;
use kit::parity::{self, Trained};
use kit::{EvalFlags, Footprint, TrainFlags};
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::model::Gpt;
use shardlab::parallel::zero::Stage;
use shardlab::parallel::{Ddp, Strategy};
use shardlab::plan::DropoutMasks;
use shardlab::train::{self, Config, Training};

fn ddp(config: &Config, corpus: &Corpus, steps: usize) -> Vec<Trained> {
    launch::run(config.ranks, |comm| {
        let strategy = Strategy::data(config.ranks, Stage::Ddp);
        parity::parallel(Training::new(config, &strategy, &comm)?, &corpus.train, steps)
    })
    .unwrap()
}

#[test]
fn n_ranks_train_what_one_rank_trains() {
    for ranks in 1..=4 {
        launch::run(ranks, |comm| suite::parity::ranks_train_what_one_rank_trains(&comm, true))
            .unwrap();
    }
}

/// Dropout matters in the test above: without it, the losses are others.
#[test]
fn dropout_changes_training_and_depends_on_the_seed() {
    let losses = |dropout, seed| {
        let (config, corpus) = config(2, |config| (config.dropout, config.seed) = (dropout, seed));
        ddp(&config, &corpus, 3)[0].losses.clone()
    };
    assert_ne!(losses(0.1, 1), losses(0.0, 1));
    assert_ne!(losses(0.1, 1), losses(0.1, 2));
    assert_eq!(losses(0.1, 1), losses(0.1, 1));
}

#[test]
fn nothing_is_synchronised_before_the_last_micro_step() {
    for ranks in 2..=4 {
        launch::run(ranks, |comm| suite::parity::only_the_last_micro_step_synchronises(&comm))
            .unwrap();
    }
}

#[test]
fn a_parameter_without_a_gradient_is_an_error() {
    use shardlab::tensor::{Init, Params};
    let error = launch::run(2, |comm| {
        let params = Params::new();
        params.declare("unused", &[3], Init::Constant(1.0))?;
        params.allocate(0);
        Ddp::new(&params, &comm)?.finish()
    });
    let error = format!("{:#}", error.unwrap_err());
    assert!(error.contains("unused got no gradient in this step"), "{error}");
}

#[test]
fn two_last_backward_passes_in_a_step_are_an_error_and_the_next_step_is_a_new_one() {
    let errors = launch::run(2, |comm| {
        let (config, corpus) = suite::trained::config(2, |_| ());
        let gpt = Gpt::new(&config.shape)?;
        gpt.params.allocate(0);
        let ddp = Ddp::new(&gpt.params, &comm)?;
        let step = |passes| {
            gpt.params.zero_gradients();
            for micro in 0..passes {
                let batch = config.sampler(comm.rank()).batch(&corpus.train, 0, micro);
                gpt.loss(&batch, &config.pass(0, &batch.sequences))?.backward()?;
            }
            ddp.finish()
        };
        let error = step(2).unwrap_err();
        assert_eq!(step(1)?.len(), ddp.buckets().len());
        Ok(format!("{error:#}"))
    });
    let error = &errors.unwrap()[0];
    assert!(error.contains("averaged more than once in this step"), "{error}");
}

/// Both hear of every parameter, and one that has gone hears nothing.
#[test]
fn several_hooks_can_listen() {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    static HEARD: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let (config, corpus) = suite::trained::config(1, |_| ());
    let gpt = Gpt::new(&config.shape).unwrap();
    gpt.params.allocate(0);
    let listen = |i: usize| {
        gpt.params.listen(Box::new(move |_, _| {
            HEARD[i].fetch_add(1, Relaxed);
            Ok(())
        }))
    };
    let first = listen(0);
    let _second = listen(1);
    let backward = || {
        let batch = config.sampler(0).batch(&corpus.train, 0, 0);
        gpt.loss(&batch, &config.pass(0, &batch.sequences)).unwrap().backward().unwrap();
    };
    backward();
    drop(first);
    backward();
    let parameters = gpt.params.specs().len();
    assert_eq!(HEARD.each_ref().map(|heard| heard.load(Relaxed)), [parameters, 2 * parameters]);
}

#[test]
fn replicas_that_differ_are_found() {
    use shardlab::tensor::{Init, Params};
    let run = |differ: bool| {
        launch::run(3, |comm| {
            let params = Params::new();
            params.declare("w", &[4, 4], Init::Normal(1.0))?;
            params.allocate(if differ { comm.rank() as u64 } else { 0 });
            train::all_hashes(&comm, &params)
        })
    };
    let same = run(false).unwrap();
    let different = run(true).unwrap();
    assert!(
        same.iter()
            .all(|hashes| hashes.len() == 3 && hashes.iter().all(|hash| hash == &hashes[0]))
    );
    assert!(different.iter().all(|hashes| hashes[0] != hashes[1] && hashes[1] != hashes[2]));
    assert_eq!(different[0], different[1]);
}

/// What training flags come to.
pub fn resolved(flags: &str, ranks: usize, corpus: &Corpus) -> (Config, EvalConfig) {
    #[derive(clap::Parser)]
    struct Args {
        #[arg(long)]
        steps: Option<usize>,
        #[command(flatten)]
        train: TrainFlags,
        #[command(flatten)]
        eval: EvalFlags,
    }
    let args = <Args as clap::Parser>::parse_from(format!("program {flags}").split_whitespace());
    let config = args.train.resolve(ranks, args.steps, corpus).unwrap();
    let eval = args.eval.resolve(config.steps, &args.train.defaults(), corpus).unwrap();
    (config, eval)
}

/// The figures that the issue of this lab's scripts rely on.
#[test]
fn presets_and_flags() {
    let corpus = Corpus::embedded().unwrap();
    let resolve = |line: &str| resolved(line, 2, &corpus);
    let baby = resolve("").0;
    assert_eq!((baby.ranks, baby.steps, baby.batch), (2, 1000, 12));
    assert_eq!(baby.shape.num_params(), 795_904);
    let char = resolve("--preset char").0;
    assert_eq!((char.shape.num_params(), char.steps, char.batch), (10_646_784, 500, 4));
    let (wordplay, eval) = resolved("--preset wordplay --sampler seeds", 4, &corpus);
    assert_eq!(wordplay.tokens_per_step(), 262_144);
    assert_eq!(
        (wordplay.schedule.lr, wordplay.schedule.min_lr, wordplay.schedule.decay_steps),
        (6e-4, 6e-5, 600_000)
    );
    assert_eq!((wordplay.adamw.beta2, eval.batches, wordplay.steps), (0.95, 200, 1000));
    // A given flag beats the preset on either side of it.
    for line in ["--embd 64 --preset char", "--preset char --embd 64 --heads 2"] {
        let line = line.replace("--embd 64 --preset", "--heads 2 --embd 64 --preset");
        let shape = resolve(&line).0.shape;
        assert_eq!((shape.embd, shape.heads, shape.layers), (64, 2, 6));
    }
}

#[test]
fn n_ranks_are_bitwise_one_rank_in_turns_with_linear_layers_too() {
    for ranks in 1..=4 {
        launch::run(ranks, |comm| suite::parity::linear_layers(&comm, true)).unwrap();
    }
}

/// What profiles and traces are made of: each bucket's all-reduce, in the order of the backward
/// pass, of this step only.
#[test]
fn all_reduces_are_timed() {
    let config = suite::parity::mlp(2);
    launch::run(2, |comm| {
        let model = config.model()?;
        model.params.allocate(0);
        let ddp = Ddp::new(&model.params, &comm)?;
        for (step, overlap) in [(0, true), (1, false), (2, true)] {
            ddp.overlap(overlap);
            let before = std::time::Instant::now();
            let x = config.inputs(comm.rank()).batch(step);
            model.loss(&x)?.backward()?;
            let backward = std::time::Instant::now();
            let averaged = ddp.finish()?;
            // Three of matrices, and one of all biases.
            assert_eq!(averaged.len(), 4);
            let starts: Vec<_> = [before]
                .into_iter()
                .chain(averaged.iter().map(|b| b.start))
                .chain([backward])
                .collect();
            assert!(starts.is_sorted(), "{averaged:?}");
            let waits: Vec<_> =
                averaged.iter().flat_map(|bucket| [bucket.waited.0, bucket.waited.1]).collect();
            assert!(waits.is_sorted(), "{averaged:?}");
            for bucket in &averaged {
                assert!(
                    bucket.start <= bucket.end && bucket.end <= bucket.waited.1,
                    "{averaged:?}"
                );
                // With overlap, the backward pass is over before anybody waits; without, it stops
                // for each bucket.
                assert_eq!(bucket.waited.0 >= backward, overlap, "{averaged:?}");
                assert!(overlap || bucket.waited == (bucket.start, bucket.end), "{averaged:?}");
            }
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn overlap_changes_no_gradient() {
    for ranks in 1..=4 {
        launch::run(ranks, |comm| suite::parity::overlap_changes_no_gradient(&comm, true)).unwrap();
    }
}

/// The three presets' every column, and each column's flag in its place.
#[test]
fn presets_are_the_published_ones_and_every_flag_beats_them() {
    let corpus = Corpus::new("long enough", &"To be, or not to be? ".repeat(2000)).unwrap();
    let figures = |flags: &str| {
        let (c, eval) = resolved(flags, 2, &corpus);
        let s = c.schedule;
        let a = c.adamw;
        let counts = [
            c.shape.layers,
            c.shape.heads,
            c.shape.embd,
            c.shape.block,
            c.batch,
            c.steps,
            s.warmup,
        ];
        let counts = counts
            .into_iter()
            .chain([eval.due.interval, eval.batches, s.decay_steps])
            .map(|n| n as f64);
        counts
            .chain([s.lr, s.min_lr, a.beta1, a.beta2, a.weight_decay, c.dropout, c.clip])
            .collect::<Vec<f64>>()
    };
    let baby = [
        4., 4., 128., 64., 12., 1000., 100., 500., 50., 1000., 1e-3, 1e-4, 0.9, 0.99, 0.1, 0., 1.,
    ];
    let char = [
        6., 6., 384., 256., 4., 500., 100., 250., 50., 500., 1e-3, 1e-4, 0.9, 0.99, 0.1, 0., 1.,
    ];
    let wordplay = [
        12., 12., 768., 1024., 64., 1000., 100., 250., 200., 6e5, 6e-4, 6e-5, 0.9, 0.95, 0.1, 0.,
        1.,
    ];
    assert_eq!(figures(""), baby);
    assert_eq!(figures("--preset char"), char);
    assert_eq!(figures("--preset wordplay"), wordplay);
    let flags = [
        "--layers 3",
        "--heads 2",
        "--embd 24",
        "--block 8",
        "--batch 5",
        "--steps 7",
        "--warmup 9",
        "--eval-interval 11",
        "--eval-iters 13",
        "--lr-decay-steps 15",
        "--lr 0.5",
        "--min-lr 0.25",
        "--beta1 0.8",
        "--beta2 0.7",
        "--weight-decay 0.3",
        "--dropout 0.2",
        "--clip 2",
    ];
    let given = [3., 2., 24., 8., 5., 7., 9., 11., 13., 15., 0.5, 0.25, 0.8, 0.7, 0.3, 0.2, 2.];
    assert_eq!(figures(&format!("{} --preset wordplay", flags.join(" "))), given);
    // Without --min-lr, a tenth of a given --lr.
    assert_eq!(figures("--lr 0.002")[11], 0.0002);
}

#[test]
fn an_evaluation_does_not_depend_on_the_number_of_ranks() {
    let (config, corpus) = config(1, |_| ());
    let evaluate = |ranks: usize| {
        let values = launch::run(ranks, |comm| {
            let gpt = shardlab::model::Gpt::new(&config.shape)?;
            gpt.params.allocate(5);
            let sampler = shardlab::data::Sampler { rank: comm.rank(), ranks, ..config.sampler(0) };
            train::evaluate(&gpt, &comm, &sampler, &corpus.validation, 5)
        })
        .unwrap();
        assert!(values.iter().all(|value| value == &values[0]));
        values[0]
    };
    let alone = evaluate(1);
    assert!((evaluate(2), evaluate(3)) == (alone, alone));
    // A model that knows nothing is as surprised as ln 65, up to its random start.
    assert!((alone - 65f64.ln()).abs() < 0.1, "{alone}");
}

#[test]
fn a_refused_batch_is_answered_with_the_largest_that_fits() {
    let (config, _) = config(3, |config| config.batch = 1000);
    let footprint = Footprint::new(&config);
    let refusal = footprint.ensure_fits(Some(footprint.total(400) + 1)).unwrap_err();
    assert!(refusal.help.contains("--batch 400 "), "{}", refusal.help);
    assert!(footprint.ensure_fits(Some(footprint.total(1000))).is_ok());
    // All ranks of this machine count.
    assert!(footprint.total(400) >= 3 * config.shape.memory(400, DropoutMasks::None).total());
    assert!(
        footprint
            .ensure_fits(Some(1))
            .unwrap_err()
            .help
            .starts_with("not even --batch 1 fits")
    );
}
