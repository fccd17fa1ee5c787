//! The training loop that the book shows: on one device, and the same with data parallelism.

use anyhow::Result;
use labs::lab02::MlpConfig;
use shardlab::comm::Comm;
use shardlab::launch;
use shardlab::model::LinearStack;
use shardlab::parallel::Ddp;
use std::path::PathBuf;

// ANCHOR: serial
fn train(config: &MlpConfig) -> Result<LinearStack> {
    let model = config.model()?;
    model.params.allocate(config.seed); // random weights
    let mut adam = config.adam(&model.params);
    let data = config.inputs(0);
    for step in 0..config.steps {
        let x = data.batch(step);
        model.params.zero_gradients();
        let loss = model.loss(&x)?; // forward pass: how wrong is the model on this batch?
        loss.backward()?; // backward pass: which way must each parameter move?
        adam.step(&model.params, config.lr, 1.0)?; // the optimizer moves it a little
    }
    Ok(model)
}
// ANCHOR_END: serial

fn train_in_parallel(config: &MlpConfig, comm: &Comm) -> Result<LinearStack> {
    let model = config.model()?;
    model.params.allocate(config.seed); // random weights
    let ddp = Ddp::new(&model.params, comm)?; // rank 0's weights to every rank
    let mut adam = config.adam(&model.params);
    let data = config.inputs(comm.rank()); // each rank has its own batches
    for step in 0..config.steps {
        let x = data.batch(step);
        model.params.zero_gradients();
        let loss = model.loss(&x)?; // forward pass: how wrong is the model on this batch?
        loss.backward()?; // backward pass: which way must each parameter move?
        ddp.finish()?; // the mean of all ranks' gradients
        adam.step(&model.params, config.lr, 1.0)?; // the optimizer moves it a little
    }
    Ok(model)
}

fn config(ranks: usize) -> MlpConfig {
    let out = PathBuf::new();
    MlpConfig {
        ranks,
        steps: 5,
        warmup_iters: 0,
        log_interval: 1,
        batch: 4,
        lr: 1e-3,
        seed: 1337,
        out,
    }
}

/// The two loops are what they say: one rank trains what the serial loop trains, and several train
/// one model, another one.
#[test]
fn the_loops_train() {
    let weights = |model: LinearStack| model.params.values().clone();
    let serial = weights(train(&config(1)).unwrap());
    let parallel = |ranks| {
        launch::run(ranks, |comm| Ok(weights(train_in_parallel(&config(ranks), &comm)?))).unwrap()
    };
    assert!(parallel(1)[0] == serial);
    let two = parallel(2);
    assert!(two[0] == two[1] && two[0] != serial);
}

/// lab02's chapter shows the second loop as a difference from the first one: its lines are the real
/// ones.
#[test]
fn the_difference_in_the_book_is_the_real_one() {
    let source = include_str!("loops.rs");
    let body = |name: &str| -> Vec<&str> {
        let from = source.lines().skip_while(|line| !line.starts_with(&format!("fn {name}(")));
        from.skip(1).take_while(|line| *line != "}").collect()
    };
    let serial = body("train");
    let parallel = body("train_in_parallel");
    let page = include_str!("../../book/src/lab02.md");
    let shown: Vec<&str> = page
        .lines()
        .skip_while(|line| !line.starts_with("```diff"))
        .skip(1)
        .take_while(|line| *line != "```")
        .collect();
    let without = |sign: char| -> Vec<&str> {
        shown
            .iter()
            .filter(|line| !line.starts_with(sign))
            .map(|line| line.get(1..).unwrap_or_default())
            .collect()
    };
    assert_eq!(without('+'), serial);
    assert_eq!(without('-'), parallel);
    assert_eq!(shown.iter().filter(|line| line.starts_with('+')).count(), 3);
}
