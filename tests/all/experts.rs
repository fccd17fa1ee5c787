//! Models with experts: on several ranks, and beside Hugging Face's transformers, which has
//! computed these files in float64: `golden/experts/CASE/{config.json, model.safetensors,
//! expected.json}`.

use crate::suite::{context, experts as suite, needed};
use safetensors::SafeTensors;
use serde_json::Value;
use shardlab::data::Batch;
use shardlab::launch;
use shardlab::model::{Auxiliary, Balance, Llama, Pass, Scope};
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::Stage;
use shardlab::plan::{Experts, Family, LlamaExtra, ModelShape, Rope};
use shardlab::tensor::read;
use shardlab::train::global_norm;
use std::path::Path;

/// Experts that every rank holds, and experts that ranks share: losses, weights, and each gradient.
#[test]
fn a_mesh_trains_what_one_rank_trains() {
    let experts = Experts { number: 4, chosen: 2, normalized: true };
    let family = Family::GptExperts { ffn: 64, experts };
    for strategy in [
        "dp=1,recompute=full",
        "dp=2",
        "dp=2,zero=1",
        "dp=2,zero=2",
        "dp=2,zero=3",
        "tp=2",
        "cp=2",
        "pp=2,m=2,zero=1",
        "dp=2,tp=2,pp=2,m=2,zero=1,recompute=full",
        "dp=2,ep=2",
        "dp=2,ep=2,zero=1",
        "dp=2,ep=2,zero=2",
        "dp=2,ep=2,zero=3",
        "dp=4,ep=2",
        "dp=4,ep=2,zero=1",
        "dp=4,ep=2,zero=2",
        "dp=4,ep=2,zero=3",
        "cp=2,ep=2,cp-comm=ring",
        "dp=2,cp=2,ep=4,zero=3",
        "dp=2,tp=2,ep=2,zero=2",
        "dp=2,pp=2,ep=2,m=2,zero=1,recompute=full",
    ] {
        let ranks = strategy.parse::<Strategy>().unwrap().ranks();
        launch::run(ranks, |comm| {
            context::a_mesh_trains_what_one_rank_trains(&comm, family, strategy)
        })
        .unwrap();
    }
}

#[test]
fn sums_in_one_order_have_the_same_bits() {
    launch::run(2, |comm| suite::sums_in_one_order_have_the_same_bits(&comm)).unwrap();
}

#[test]
fn shared_experts_compute_what_one_rank_computes() {
    for ranks in 1..=4 {
        launch::run(ranks, |comm| {
            suite::shared_experts_compute_what_one_rank_computes(&comm)?;
            suite::copies_travel_in_the_type_of_the_pass(&comm)?;
            suite::a_load_over_all_ranks_is_one_ranks(&comm)
        })
        .unwrap();
    }
}

#[test]
fn shared_experts_are_saved() {
    for stage in Stage::ALL {
        let dir = tempfile::tempdir().unwrap();
        launch::run(2, |comm| suite::shared_experts_are_saved(&comm, stage, dir.path())).unwrap();
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// Rows of token numbers, one after the other.
fn ids(value: &Value) -> Vec<u32> {
    let rows = value.as_array().unwrap().iter();
    rows.flat_map(floats).map(|id| id as u32).collect()
}

fn shape(config: &Value) -> ModelShape {
    let number = |key: &str| config[key].as_u64().unwrap() as usize;
    let experts = Experts {
        number: number("num_local_experts"),
        chosen: number("num_experts_per_tok"),
        normalized: true,
    };
    let theta = config["rope_parameters"]["rope_theta"].as_f64().unwrap();
    ModelShape {
        vocabulary: number("vocab_size"),
        block: number("max_position_embeddings"),
        layers: number("num_hidden_layers"),
        heads: number("num_attention_heads"),
        embd: number("hidden_size"),
        family: Family::Llama(LlamaExtra {
            kv_heads: number("num_key_value_heads"),
            ffn: number("intermediate_size"),
            rope: Rope { theta, scaling: None },
            norm_eps: config["rms_norm_eps"].as_f64().unwrap(),
            tied: false,
            experts: Some(experts),
        }),
    }
}

fn load(model: &Llama, path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    model.params.allocate(0);
    let mut values = model.params.values_mut();
    for spec in model.params.specs() {
        let tensor = file.tensor(&spec.name).unwrap();
        assert_eq!(tensor.shape(), spec.shape, "{}", spec.name);
        let numbers = tensor.data().chunks_exact(4);
        let numbers = numbers.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        values[spec.range()].iter_mut().zip(numbers).for_each(|(value, x)| *value = x);
    }
    assert_eq!(file.names().len(), model.params.specs().len());
}

/// The same experts, loss, logits, and gradients with the auxiliary loss and without.
#[test]
#[ignore = "needs SHARDLAB_EXTRAS: a folder with golden/experts"]
fn mixtral_is_that_of_transformers() {
    launch::one_compute_thread_a_rank();
    let folder = needed("SHARDLAB_EXTRAS").join("golden/experts/mixtral");
    let expected = json(&folder.join("expected.json"));
    let model = Llama::new(&shape(&json(&folder.join("config.json")))).unwrap();
    load(&model, &folder.join("model.safetensors"));
    let coefficient = expected["router_aux_loss_coef"].as_f64().unwrap();
    for (name, expected) in expected["batches"].as_object().unwrap() {
        let figure = |key: &str| expected[key].as_f64().unwrap();
        let inputs = ids(&expected["tokens"]);
        let sequences = expected["tokens"].as_array().unwrap().len();
        let batch = Batch {
            length: inputs.len() / sequences,
            inputs,
            targets: ids(&expected["targets"]),
            sequences: (0..sequences as u64).collect(),
            starts: vec![0; sequences],
            documents: Default::default(),
        };
        let logits = model.logits(&batch.inputs, batch.length, &Pass::evaluate()).unwrap();
        let logits = read(&logits, |logits| Ok(logits.to_vec())).unwrap();
        let norm = logits.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        assert!((norm - figure("logits_norm")).abs() < 3e-5, "{name}: logits {norm}");
        let vocabulary = model.shape.vocabulary;
        let mut largest = 0f64;
        for (place, row) in expected["logits_rows"].as_object().into_iter().flatten() {
            let (sequence, position) = place.split_once(',').unwrap();
            let place = sequence.parse::<usize>().unwrap() * batch.length;
            let place = (place + position.parse::<usize>().unwrap()) * vocabulary;
            for (x, expected) in logits[place..][..vocabulary].iter().zip(floats(row)) {
                largest = largest.max((f64::from(*x) - expected).abs());
            }
        }
        assert!(largest < 3e-5, "{name}: logits off by {largest:e}");

        for coefficient in [coefficient, 0.0] {
            let balance = Balance::new(Auxiliary {
                coefficient,
                scope: Scope::Model,
                ..Auxiliary::default()
            });
            let pass = Pass { balance: Some(balance.clone()), ..Pass::training(None) };
            model.params.zero_gradients();
            let loss = model.loss(&batch, &pass).unwrap();
            loss.backward().unwrap();
            let loss = f64::from(loss.to_scalar::<f32>().unwrap());
            assert!((loss - figure("cross_entropy")).abs() < 1e-5, "{name}: {loss}");
            assert!((balance.loss() - figure("aux")).abs() < 1e-5, "{name}: {}", balance.loss());
            let all = loss + balance.weighted();
            if coefficient > 0.0 {
                assert!((all - figure("loss")).abs() < 1e-5, "{name}: {all}");
            }
            let loads = balance.loads();
            let layers = expected["moe_layers"].as_array().unwrap();
            assert_eq!(loads.len(), layers.len());
            for (load, layer) in loads.values().zip(layers) {
                assert_eq!(load.chosen, ids(&layer["experts"]), "{name}");
            }

            let gradients = model.params.gradients();
            let alone = &expected["grad_norm_of_cross_entropy_alone"];
            let mut worst = 0f64;
            for spec in model.params.specs() {
                let gradient = &gradients[spec.range()];
                let norm = global_norm(gradient);
                let figures = &expected["grads"][&spec.name];
                if coefficient == 0.0 {
                    if let Some(expected) = alone[&spec.name].as_f64() {
                        assert!((norm / expected - 1.0).abs() < 1e-5, "{name}, {}", spec.name);
                    }
                    continue;
                }
                let expected = figures["norm"].as_f64().unwrap();
                let largest = gradient.iter().fold(0f32, |most, g| most.max(g.abs()));
                // Numbers that are each within 1e-5 of the largest have norms so far apart.
                let most = 1e-5 * f64::from(largest) * (gradient.len() as f64).sqrt();
                assert!((norm - expected).abs() < most, "{name}, {}: {norm}", spec.name);
                let first = figures["first8"].as_array().map(|_| floats(&figures["first8"]));
                for (g, expected) in gradient.iter().zip(first.unwrap_or_default()) {
                    worst = worst.max((f64::from(*g) - expected).abs() / f64::from(largest));
                }
            }
            assert!(worst < 1e-5, "{name}: a gradient is off by {worst:e} of its largest");
            println!("{name}: logits off by {largest:.1e}, gradients by {worst:.1e}");
        }
    }
}
