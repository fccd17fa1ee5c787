//! The GPT and its training against what PyTorch computes in float64 for the same start and data,
//! which are formulas: parameter j, element k: 0.08 sin(1 + 0.1 k + 0.5 j) for matrices, 1 + 0.01
//! sin(0.3 k + j) for gains; token t of sequence i of step s: (7 i + 3 t + t² + 11 s) mod 65.
//! Figures by PyTorch 2.15.0, 2 layers, 2 heads, 32 wide, block 32.

use shardlab::data::Batch;
use shardlab::difference::same_bits;
use shardlab::launch;
use shardlab::model::{Gpt, Input, Pass, Plain};
use shardlab::plan::{Family, ModelShape};
use shardlab::tensor::{Activation, Copies, Deferred, Dropout};
use shardlab::train::{AdamW, AdamWConfig, clip_scale, global_norm};
use std::sync::{Arc, Mutex};

const LOSSES: [f64; 20] = [
    4.322140251833508,
    4.3559754389220515,
    4.326861437681501,
    4.305057664214307,
    4.276687444427517,
    4.25242686049057,
    4.209796704700253,
    4.109241232064208,
    4.105425362341852,
    4.07651980801349,
    4.080010504518662,
    4.059146749087604,
    4.08600680619872,
    4.07101690037618,
    4.043505419428194,
    4.009871688083274,
    4.000082239561032,
    4.051555096512062,
    4.002143891999933,
    3.947822111253655,
];

/// The first step's gradient norms, in the model's order.
const FIRST_GRADIENT_NORMS: [(&str, f64); 15] = [
    ("wte.weight", 3.0379649562342332),
    ("wpe.weight", 3.349883616335043),
    ("blocks.0.ln1.weight", 0.013044961282647665),
    ("blocks.0.ln2.weight", 0.13152415005091994),
    ("blocks.0.qkv.weight", 1.3908072022415219),
    ("blocks.0.proj.weight", 12.802809193692095),
    ("blocks.0.fc.weight", 3.7445816934212814),
    ("blocks.0.out.weight", 0.6568411814786069),
    ("blocks.1.ln1.weight", 0.001717939279830741),
    ("blocks.1.ln2.weight", 0.047434189175696244),
    ("blocks.1.qkv.weight", 0.44130517957969606),
    ("blocks.1.proj.weight", 1.8724042038763111),
    ("blocks.1.fc.weight", 1.137796238624567),
    ("blocks.1.out.weight", 0.3945760768290328),
    ("lnf.weight", 0.09140382659045847),
];

fn batch(step: usize) -> Batch {
    // As the ranks of this program's other tests do: candle and rayon decide once in a process.
    launch::one_compute_thread_a_rank();
    let token = |i: usize, t: usize| ((7 * i + 3 * t + t * t + 11 * step) % 65) as u32;
    let all =
        |shift: usize| (0..4).flat_map(|i| (0..32).map(move |t| token(i, t + shift))).collect();
    Batch {
        inputs: all(0),
        targets: all(1),
        length: 32,
        sequences: (0..4).collect(),
        starts: vec![0; 4],
        documents: Default::default(),
    }
}

fn start_from_formulas(gpt: &Gpt) {
    gpt.params.allocate(0);
    let mut values = gpt.params.values_mut();
    for spec in gpt.params.specs() {
        for (k, x) in values[spec.range()].iter_mut().enumerate() {
            let j = spec.index as f64;
            let k = k as f64;
            let matrix = spec.shape.len() == 2;
            *x = (if matrix {
                0.08 * (1.0 + 0.1 * k + 0.5 * j).sin()
            } else {
                1.0 + 0.01 * (0.3 * k + j).sin()
            }) as f32;
        }
    }
}

#[test]
fn training_follows_pytorch() {
    let gpt = Gpt::new(&ModelShape {
        vocabulary: 65,
        block: 32,
        layers: 2,
        heads: 2,
        embd: 32,
        family: Family::Gpt,
        experts: None,
    })
    .unwrap();
    start_from_formulas(&gpt);
    let config = AdamWConfig { beta2: 0.95, ..AdamWConfig::NANOGPT };
    let mut adamw = AdamW::new(config, &gpt.params);
    for (step, expected) in LOSSES.into_iter().enumerate() {
        gpt.params.zero_gradients();
        let loss = gpt.loss(&batch(step), &Pass::training(None)).unwrap();
        loss.backward().unwrap();
        let loss = f64::from(loss.to_scalar::<f32>().unwrap());
        let bound = if step == 0 { 1e-5 } else { 1e-3 };
        assert!((loss - expected).abs() < bound, "step {step}: loss {loss}, PyTorch {expected}");

        if step == 0 {
            let gradients = gpt.params.gradients();
            assert_eq!(gpt.params.specs().len(), FIRST_GRADIENT_NORMS.len());
            for (spec, (name, expected)) in gpt.params.specs().iter().zip(FIRST_GRADIENT_NORMS) {
                let norm = global_norm(&gradients[spec.range()]);
                assert_eq!(spec.name, name);
                assert!(
                    (norm / expected - 1.0).abs() < 1e-3,
                    "{name}: gradient norm {norm}, PyTorch {expected}"
                );
            }
        }
        let norm = global_norm(&gpt.params.gradients());
        adamw.step(&gpt.params, 1e-3, clip_scale(norm, 1.0).unwrap()).unwrap();
    }
}

/// A zero-bubble pipeline computes the weights' gradients later: the same bits, and the hooks run
/// when they are complete.
#[test]
fn weight_gradients_can_wait() {
    let [at_once, deferred] = [false, true].map(|later| {
        let gpt = Gpt::new(&ModelShape {
            vocabulary: 65,
            block: 32,
            layers: 2,
            heads: 2,
            embd: 32,
            family: Family::Gpt,
            experts: None,
        })
        .unwrap();
        gpt.params.allocate(1);
        let complete: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = complete.clone();
        let _listener = gpt.params.listen(Box::new(move |_, spec| {
            seen.lock().unwrap().push(spec.name.clone());
            Ok(())
        }));
        // Twice: a second pass adds to what the first one left.
        for step in 0..2 {
            let batch = batch(step);
            let input = Input::Tokens { ids: &batch.inputs, length: batch.length };
            let loss = gpt.forward(input, &batch.targets, &Pass::training(None)).unwrap();
            if later {
                let before = gpt.params.gradients().clone();
                let mut weights = Deferred::default();
                loss.backward(vec![1.0], Some(&mut weights)).unwrap();
                assert!(
                    same_bits(&gpt.params.gradients(), &before),
                    "nothing is added before it is asked for"
                );
                assert_eq!(complete.lock().unwrap().len(), 15 * step);
                weights.run().unwrap();
            } else {
                loss.backward(vec![1.0], None).unwrap();
            }
        }
        (gpt.params.gradients().clone(), complete.lock().unwrap().clone())
    });
    assert!(same_bits(&deferred.0, &at_once.0));
    assert_eq!(deferred.1, at_once.1);
    assert_eq!(at_once.1.len(), 2 * 15);
    assert!(at_once.0.iter().any(|&gradient| gradient != 0.0));
}

/// Runs the parts of a model one after the other, as the stages of a pipeline would, with
/// everything between them passed on by value; returns the loss.
fn in_stages(parts: &[&Gpt], batch: &Batch, pass: &Pass) -> f32 {
    let copy = |x: &Activation| Activation::start(x.numbers().to_vec(), x.shape()).unwrap();
    let mut passes: Vec<(Option<Activation>, Activation)> = Vec::new();
    for part in parts {
        let received = passes.last().map(|(_, sent)| copy(sent));
        let input = match &received {
            None => Input::Tokens { ids: &batch.inputs, length: batch.length },
            Some(received) => Input::Hidden(received),
        };
        let result = part.forward(input, &batch.targets, pass).unwrap();
        passes.push((received, result));
    }
    let loss = passes[parts.len() - 1].1.scalar().unwrap();
    // The table's gradient begins with what the head adds to it, wherever the head is.
    let table = |gpt: &Gpt| {
        gpt.params
            .specs()
            .iter()
            .find(|spec| spec.name == "wte.weight")
            .unwrap()
            .range()
    };
    let mut owed = vec![1.0];
    for (part, (received, result)) in parts.iter().zip(passes).rev() {
        if received.is_none() && !Arc::ptr_eq(&part.params, &parts[parts.len() - 1].params) {
            let head = &parts[parts.len() - 1];
            let from_head = head.params.gradients()[table(head)].to_vec();
            part.params.gradients()[table(part)].copy_from_slice(&from_head);
        }
        let mut gradients = result.backward(owed, None).unwrap();
        owed = received.map_or(Vec::new(), |x| gradients.of(&x).unwrap());
    }
    loss
}

/// Cut into stages, and into chunks that share a rank, with dropout: bit for bit the loss and
/// gradients of the whole model.
#[test]
fn a_model_in_stages_is_the_model() {
    let shape = ModelShape {
        vocabulary: 65,
        block: 32,
        layers: 4,
        heads: 2,
        embd: 32,
        family: Family::Gpt,
        experts: None,
    };
    let dropout = Dropout {
        p: 0.2,
        seed: 3,
        step: 1,
        sequences: [4u64, 5, 6, 7].as_slice().into(),
        slices: Default::default(),
    };
    let pass = Pass::training(Some(dropout));
    let whole = Gpt::new(&shape).unwrap();
    whole.params.allocate(1);
    let loss = whole.loss(&batch(0), &pass).unwrap();
    loss.backward().unwrap();
    let loss: f32 = loss.to_scalar().unwrap();
    assert_ne!(
        loss,
        whole.loss(&batch(0), &Pass::evaluate()).unwrap().to_scalar::<f32>().unwrap()
    );

    // By rank, and the order in which ranks have their turns.
    let stage = |layers: std::ops::Range<usize>| vec![layers];
    for (ranks, turns) in [
        (vec![stage(0..2), stage(2..4)], vec![(0, 0), (1, 0)]),
        (
            (0..4).map(|i| stage(i..i + 1)).collect(),
            (0..4).map(|rank| (rank, 0)).collect(),
        ),
        // Interleaved, and there and back: the token table is tied on rank 0.
        (vec![vec![0..1, 2..3], vec![1..2, 3..4]], vec![(0, 0), (1, 0), (0, 1), (1, 1)]),
        (vec![vec![0..1, 3..4], vec![1..3]], vec![(0, 0), (1, 0), (0, 1)]),
    ] {
        let ranks: Vec<Vec<Gpt>> = ranks
            .iter()
            .map(|chunks: &Vec<_>| Gpt::chunks(&shape, chunks, &Plain).unwrap())
            .collect();
        ranks.iter().for_each(|chunks| chunks[0].params.allocate(1));
        let parts: Vec<&Gpt> = turns
            .iter()
            .map(|&(rank, chunk): &(usize, usize)| &ranks[rank][chunk])
            .collect();
        assert!(same_bits(&[in_stages(&parts, &batch(0), &pass)], &[loss]));
        let mut seen = 0;
        for params in ranks.iter().map(|chunks| &chunks[0].params) {
            for spec in params.specs() {
                let all = whole.params.specs();
                let same = all.iter().find(|same| same.name == spec.name).unwrap();
                seen += 1;
                let values = params.values();
                let expected = whole.params.values();
                assert!(same_bits(&values[spec.range()], &expected[same.range()]), "{}", spec.name);
                // The head's own copy of the table has the head's part of the gradient.
                if spec.name != "wte.weight" || Arc::ptr_eq(params, &parts[0].params) {
                    let part = params.gradients();
                    let whole = whole.params.gradients();
                    assert!(same_bits(&part[spec.range()], &whole[same.range()]), "{}", spec.name);
                }
            }
        }
        let tied = Arc::ptr_eq(&parts[0].params, &parts[parts.len() - 1].params);
        assert_eq!(seen, whole.params.specs().len() + usize::from(!tied));
        for (part, first) in [(parts[0], true), (parts[parts.len() - 1], false)] {
            let copies = if tied { Copies::One } else { Copies::Tied { first } };
            assert_eq!(
                part.params
                    .specs()
                    .iter()
                    .find(|spec| spec.name == "wte.weight")
                    .unwrap()
                    .copies,
                copies
            );
        }
    }
}

#[test]
fn a_stage_says_what_it_takes() {
    let shape = ModelShape {
        vocabulary: 65,
        block: 32,
        layers: 4,
        heads: 2,
        embd: 32,
        family: Family::Gpt,
        experts: None,
    };
    let stage = |layers| Gpt::stage(&shape, layers, &Plain).unwrap();
    fn text<T>(result: candle_core::Result<T>) -> String {
        result.map(drop).unwrap_err().to_string()
    }
    let first = stage(0..2);
    let last = stage(2..4);
    let pass = Pass::evaluate();
    let x = Activation::new(vec![0.0; 4 * 32 * 32], (4, 32, 32)).unwrap();
    assert!(text(first.loss(&batch(0), &pass)).contains("the last layer is not here"));
    assert!(text(last.loss(&batch(0), &pass)).contains("these layers take activations"));
    assert!(
        text(first.forward(Input::Hidden(&x), &[], &pass)).contains("these layers take tokens")
    );
    for layers in [3..5, 2..2] {
        let text = Gpt::stage(&shape, layers.clone(), &Plain).map(drop).unwrap_err().to_string();
        assert!(
            text.contains(&format!("a model of 4 layers has no stage of layers {layers:?}")),
            "{text}"
        );
    }
}

/// What candle's own norms would break without a word.
#[test]
fn every_parameter_gets_a_gradient() {
    let gpt = Gpt::new(&ModelShape {
        vocabulary: 65,
        block: 32,
        layers: 3,
        heads: 4,
        embd: 16,
        family: Family::Gpt,
        experts: None,
    })
    .unwrap();
    gpt.params.allocate(1);
    gpt.loss(&batch(0), &Pass::training(None)).unwrap().backward().unwrap();
    let gradients = gpt.params.gradients();
    for spec in gpt.params.specs() {
        assert!(
            gradients[spec.range()].iter().any(|&g| g != 0.0),
            "{} got no gradient",
            spec.name
        );
    }
}

#[test]
fn the_plan_counts_what_the_model_declares() {
    for shape in [
        ModelShape {
            vocabulary: 65,
            block: 64,
            layers: 4,
            heads: 4,
            embd: 128,
            family: Family::Gpt,
            experts: None,
        },
        ModelShape {
            vocabulary: 11,
            block: 7,
            layers: 1,
            heads: 2,
            embd: 6,
            family: Family::Gpt,
            experts: None,
        },
    ] {
        let gpt = Gpt::new(&shape).unwrap();
        let specs = gpt.params.specs();
        let count = |matrices: bool| {
            let some = specs.iter().filter(|s| (s.shape.len() == 2) == matrices);
            (some.clone().count(), some.map(|s| s.numel() as u64).sum())
        };
        assert_eq!((shape.decayed(), shape.not_decayed()), (count(true), count(false)));
    }
}

/// What writes into the residual stream starts smaller, so that the stream does not grow with the
/// layers.
#[test]
fn weights_start_as_published() {
    let gpt = Gpt::new(&ModelShape {
        vocabulary: 65,
        block: 64,
        layers: 8,
        heads: 4,
        embd: 128,
        family: Family::Gpt,
        experts: None,
    })
    .unwrap();
    gpt.params.allocate(3);
    let values = gpt.params.values();
    for spec in gpt.params.specs() {
        let values = &values[spec.range()];
        let n = values.len() as f64;
        let writes = spec.name.contains("proj") || spec.name.contains("out");
        if spec.shape.len() == 1 {
            assert!(values.iter().all(|&x| x == 1.0), "{}", spec.name);
            continue;
        }
        let expected = if writes { 0.02 / 16f64.sqrt() } else { 0.02 };
        let std = (values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / n).sqrt();
        // Five standard errors of a standard deviation.
        assert!((std / expected - 1.0).abs() < 5.0 / (2.0 * n).sqrt(), "{}: {std}", spec.name);
    }
}
