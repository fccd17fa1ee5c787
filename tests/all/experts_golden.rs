//! Models with experts beside Hugging Face's transformers, which has computed these files in
//! float64: `golden/experts/CASE/{config.json, model.safetensors, expected.json}`.
//!
//! Mixtral is the library's own. Of Qwen3 and DeepSeek-V3 the library has the experts: attention
//! and the rest are written out here in candle's operations.

use crate::suite::needed;
use candle_core::{D, Device, Result, Tensor, Var};
use candle_nn::{loss::cross_entropy, ops::softmax};
use safetensors::SafeTensors;
use serde_json::Value;
use shardlab::data::Batch;
use shardlab::launch;
use shardlab::model::{Auxiliary, Balance, Layer, Llama, Mixture, Pass, Scope};
use shardlab::plan::{Experts, Family, Groups, LlamaExtra, ModelShape, Rope, Scores, Selection};
use shardlab::tensor::{self, Activation, Init, Param, Params, Precision, read};
use shardlab::train::global_norm;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a model makes of a batch.
struct Found {
    /// [tokens, vocabulary]
    logits: Vec<f32>,
    loss: f64,
    /// By name.
    gradients: BTreeMap<String, Vec<f32>>,
}

fn folder(case: &str) -> PathBuf {
    launch::one_compute_thread_a_rank();
    needed("SHARDLAB_EXTRAS").join("golden/experts").join(case)
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// Rows of token or expert numbers, one after the other.
fn ids(value: &Value) -> Vec<u32> {
    let rows = value.as_array().unwrap().iter();
    rows.flat_map(floats).map(|id| id as u32).collect()
}

fn number(config: &Value, key: &str) -> usize {
    config[key].as_u64().unwrap_or_else(|| panic!("{key} is no number")) as usize
}

/// All tensors of a file: shape and elements, by name.
fn tensors(path: &Path) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let all = file.tensors().into_iter().map(|(name, tensor)| {
        let numbers = tensor.data().chunks_exact(4);
        let numbers = numbers.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        (name, (tensor.shape().to_vec(), numbers.collect()))
    });
    all.collect()
}

/// Gives `params` their values in a file, and returns those that are left.
fn load(
    params: &Params,
    mut file: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    params.allocate(0);
    let mut values = params.values_mut();
    for spec in params.specs() {
        let (shape, numbers) = file.remove(&spec.name).unwrap_or_else(|| panic!("{}", spec.name));
        assert_eq!(shape, spec.shape, "{}", spec.name);
        values[spec.range()].copy_from_slice(&numbers);
    }
    file
}

fn gradients(params: &Params) -> BTreeMap<String, Vec<f32>> {
    let all = params.gradients();
    let of = |spec: &Arc<tensor::Spec>| (spec.name.clone(), all[spec.range()].to_vec());
    params.specs().iter().map(of).collect()
}

/// The same experts, loss, logits, and gradients with the auxiliary loss and without.
fn beside(case: &str, run: impl Fn(&Batch, &Pass) -> Found) {
    let expected = json(&folder(case).join("expected.json"));
    let coefficient = expected["router_aux_loss_coef"].as_f64().unwrap();
    let mut compared = 0;
    for (name, expected) in expected["batches"].as_object().unwrap() {
        let name = format!("{case}, {name}");
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
        let without = (coefficient > 0.0).then_some(0.0);
        for coefficient in [coefficient].into_iter().chain(without) {
            let balance = Balance::new(Auxiliary {
                coefficient,
                scope: Scope::Model,
                ..Auxiliary::default()
            });
            let pass = Pass { balance: Some(balance.clone()), ..Pass::training(None) };
            let Found { logits, loss, gradients } = run(&batch, &pass);
            let norm = logits.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
            assert!((norm - figure("logits_norm")).abs() < 3e-5, "{name}: logits {norm}");
            let vocabulary = logits.len() / batch.inputs.len();
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

            assert!((loss - figure("cross_entropy")).abs() < 1e-5, "{name}: {loss}");
            if let Some(aux) = expected["aux"].as_f64() {
                assert!((balance.loss() - aux).abs() < 1e-5, "{name}: {}", balance.loss());
            }
            let all = loss + balance.weighted();
            if without.is_none() || coefficient > 0.0 {
                assert!((all - figure("loss")).abs() < 1e-5, "{name}: {all}");
            }
            let loads = balance.loads();
            let layers = expected["moe_layers"].as_array().unwrap();
            assert_eq!(loads.len(), layers.len());
            for (load, layer) in loads.values().zip(layers) {
                // In the order of their weights; a bias selects in another.
                let each = layer["experts"][0].as_array().unwrap().len();
                let sorted = |mut chosen: Vec<u32>| {
                    chosen.chunks_exact_mut(each).for_each(<[u32]>::sort_unstable);
                    chosen
                };
                let expected = sorted(ids(&layer["experts"]));
                assert_eq!(sorted(load.chosen.clone()), expected, "{name}");
                compared += expected.len() / each;
            }

            let alone = &expected["grad_norm_of_cross_entropy_alone"];
            let mut worst = 0f64;
            for (parameter, gradient) in &gradients {
                let what = format!("{name}, {parameter}");
                let norm = global_norm(gradient);
                if coefficient == 0.0 && without.is_some() {
                    if let Some(expected) = alone[parameter].as_f64() {
                        assert!((norm / expected - 1.0).abs() < 1e-5, "{what}: {norm}");
                    }
                    continue;
                }
                let figures = &expected["grads"][parameter];
                let expected = figures["norm"].as_f64().unwrap_or_else(|| panic!("{what}"));
                let largest = gradient.iter().fold(0f32, |most, g| most.max(g.abs()));
                // Numbers that are each within 1e-5 of the largest have norms so far apart; those
                // of an expert without a token are 0.
                let most = 1e-5 * f64::from(largest) * (gradient.len() as f64).sqrt();
                assert!((norm - expected).abs() <= most, "{what}: {norm}");
                let first = figures["first8"].as_array().map(|_| floats(&figures["first8"]));
                for (g, expected) in gradient.iter().zip(first.unwrap_or_default()) {
                    let apart = (f64::from(*g) - expected).abs();
                    worst = worst.max(apart / f64::from(largest).max(f64::MIN_POSITIVE));
                }
            }
            assert_eq!(gradients.len(), expected["grads"].as_object().unwrap().len(), "{name}");
            assert!(worst < 1e-5, "{name}: a gradient is off by {worst:e} of its largest");
            println!("{name}: logits off by {largest:.1e}, gradients by {worst:.1e}");
        }
    }
    assert!(compared > 0);
}

#[test]
#[ignore = "needs SHARDLAB_EXTRAS: a folder with golden/experts"]
fn mixtral_is_that_of_transformers() {
    let folder = folder("mixtral");
    let config = json(&folder.join("config.json"));
    let theta = config["rope_parameters"]["rope_theta"].as_f64().unwrap();
    let shape = ModelShape {
        vocabulary: number(&config, "vocab_size"),
        block: number(&config, "max_position_embeddings"),
        layers: number(&config, "num_hidden_layers"),
        heads: number(&config, "num_attention_heads"),
        embd: number(&config, "hidden_size"),
        family: Family::Llama(LlamaExtra {
            kv_heads: number(&config, "num_key_value_heads"),
            ffn: number(&config, "intermediate_size"),
            rope: Rope { theta, scaling: None },
            norm_eps: config["rms_norm_eps"].as_f64().unwrap(),
            tied: false,
        }),
        experts: Some(Experts {
            count: number(&config, "num_local_experts"),
            top_k: number(&config, "num_experts_per_tok"),
            ffn: number(&config, "intermediate_size"),
            normalized: true,
            ..Experts::default()
        }),
    };
    let model = Llama::new(&shape).unwrap();
    let left = load(&model.params, tensors(&folder.join("model.safetensors")));
    assert!(left.is_empty(), "{:?}", left.keys());
    beside("mixtral", |batch, pass| {
        let logits = model.logits(&batch.inputs, batch.length, &Pass::evaluate()).unwrap();
        let logits = read(&logits, |logits| Ok(logits.to_vec())).unwrap();
        model.params.zero_gradients();
        let loss = model.loss(batch, pass).unwrap();
        loss.backward().unwrap();
        let loss = f64::from(loss.to_scalar::<f32>().unwrap());
        Found { logits, loss, gradients: gradients(&model.params) }
    });
}

#[test]
#[ignore = "needs SHARDLAB_EXTRAS: a folder with golden/experts"]
fn the_experts_of_qwen3_are_those_of_transformers() {
    let config = json(&folder("qwen3_moe").join("config.json"));
    let experts = Experts {
        count: number(&config, "num_experts"),
        top_k: number(&config, "num_experts_per_tok"),
        normalized: config["norm_topk_prob"].as_bool().unwrap(),
        ..Experts::default()
    };
    let model = Published::read("qwen3_moe", experts, 0, Published::grouped_attention);
    beside("qwen3_moe", |batch, pass| model.run(batch, pass).unwrap());
}

#[test]
#[ignore = "needs SHARDLAB_EXTRAS: a folder with golden/experts"]
fn the_experts_of_deepseek_v3_are_those_of_transformers() {
    let config = json(&folder("deepseek_v3").join("config.json"));
    let groups = Groups {
        count: number(&config, "n_group"),
        top_k: number(&config, "topk_group"),
    };
    let experts = Experts {
        count: number(&config, "n_routed_experts"),
        top_k: number(&config, "num_experts_per_tok"),
        normalized: config["norm_topk_prob"].as_bool().unwrap(),
        selection: Selection {
            scores: Scores::Sigmoid,
            groups: Some(groups),
            bias: true,
            factor: config["routed_scaling_factor"].as_f64().unwrap(),
            capacity: None,
        },
        shared: number(&config, "n_shared_experts"),
        ..Experts::default()
    };
    let dense = number(&config, "first_k_dense_replace");
    let model = Published::read("deepseek_v3", experts, dense, Published::latent_attention);
    beside("deepseek_v3", |batch, pass| model.run(batch, pass).unwrap());
}

/// A published model: the library's experts, and all else in candle's operations.
struct Published {
    config: Value,
    /// All that is not in a mixture, by name.
    weights: BTreeMap<String, Var>,
    /// The experts' parameters.
    params: Arc<Params>,
    /// `None`: a dense layer.
    mixtures: Vec<Option<Mixture>>,
    attention: Attention,
}

/// A layer's attention for rows [sequences, positions, width].
type Attention = fn(&Published, layer: usize, x: &Tensor) -> Result<Tensor>;

impl Published {
    /// The first `dense` layers have no experts.
    fn read(case: &str, rules: Experts, dense: usize, attention: Attention) -> Published {
        let folder = folder(case);
        let config = json(&folder.join("config.json"));
        let width = number(&config, "hidden_size");
        let inner = number(&config, "moe_intermediate_size");
        let params = Params::new();
        let declare = |name: String, shape: &[usize]| {
            params.declare(name, shape, Init::Constant(0.0)).unwrap()
        };
        let mixture = |layer: usize| {
            let place = format!("model.layers.{layer}.mlp");
            let mlp = |part: String, inner: usize| -> Box<dyn Layer> {
                let of = |matrix: &str, shape: [usize; 2]| {
                    declare(format!("{place}.{part}.{matrix}_proj.weight"), &shape)
                };
                let [gate, up] = ["gate", "up"].map(|matrix| of(matrix, [inner, width]));
                Box::new(Gated { gate, up, down: of("down", [width, inner]) })
            };
            let bias = || declare(format!("{place}.gate.{}", Experts::BIAS), &[rules.count]);
            let shared = || mlp("shared_experts".to_string(), rules.shared * inner);
            Mixture {
                router: declare(format!("{place}.gate.weight"), &[rules.count, width]),
                bias: rules.selection.bias.then(bias),
                experts: (0..rules.count).map(|i| mlp(format!("experts.{i}"), inner)).collect(),
                shared: (rules.shared > 0).then(shared),
                dispatcher: None,
                rules,
                name: format!("{layer}"),
            }
        };
        let layers = 0..number(&config, "num_hidden_layers");
        let mixtures = layers.map(|layer| (layer >= dense).then(|| mixture(layer))).collect();
        let left = load(&params, tensors(&folder.join("model.safetensors")));
        let variable = |(name, (shape, numbers))| {
            (name, Var::from_vec::<_, f32>(numbers, shape, &Device::Cpu).unwrap())
        };
        let weights = left.into_iter().map(variable).collect();
        Published { config, weights, params, mixtures, attention }
    }

    fn run(&self, batch: &Batch, pass: &Pass) -> Result<Found> {
        self.params.zero_gradients();
        let sequences = batch.inputs.len() / batch.length;
        let tokens = Tensor::new(&batch.inputs[..], &Device::Cpu)?;
        let x = self.weights["model.embed_tokens.weight"].index_select(&tokens, 0)?;
        let mut x = x.reshape((sequences, batch.length, ()))?;
        for (layer, mixture) in self.mixtures.iter().enumerate() {
            let norm = |part, x: &Tensor| self.norm(&format!("model.layers.{layer}.{part}"), x);
            x = (&x + (self.attention)(self, layer, &norm("input_layernorm", &x)?)?)?;
            let normed = norm("post_attention_layernorm", &x)?.contiguous()?;
            x = (x + match mixture {
                Some(mixture) => mixture.on_graph(&normed, pass)?,
                None => self.dense(layer, &normed)?,
            })?;
        }
        let logits = self.product("lm_head", &self.norm("model.norm", &x)?)?.flatten_to(1)?;
        let loss = cross_entropy(&logits, &Tensor::new(&batch.targets[..], &Device::Cpu)?)?;
        let store = loss.backward()?;
        let mut gradients = gradients(&self.params);
        // It has none for transformers, and the load here.
        gradients.retain(|name, _| !name.ends_with(Experts::BIAS));
        for (name, weight) in &self.weights {
            let gradient = store.get(weight).expect("all weights have learned").flatten_all()?;
            gradients.insert(name.clone(), gradient.to_vec1()?);
        }
        let loss = f64::from(loss.to_scalar::<f32>()?);
        Ok(Found { logits: logits.flatten_all()?.to_vec1()?, loss, gradients })
    }

    /// RMSNorm.
    fn norm(&self, name: &str, x: &Tensor) -> Result<Tensor> {
        let epsilon = self.config["rms_norm_eps"].as_f64().unwrap();
        let mean = (x.sqr()?.mean_keepdim(D::Minus1)? + epsilon)?.sqrt()?;
        x.broadcast_div(&mean)?.broadcast_mul(&self.weights[&format!("{name}.weight")])
    }

    fn product(&self, name: &str, x: &Tensor) -> Result<Tensor> {
        x.broadcast_matmul(&self.weights[&format!("{name}.weight")].t()?)
    }

    fn dense(&self, layer: usize, x: &Tensor) -> Result<Tensor> {
        let of = |matrix: &str, x| self.product(&format!("model.layers.{layer}.mlp.{matrix}"), x);
        of("down_proj", &(of("gate_proj", x)?.silu()? * of("up_proj", x)?)?)
    }

    /// Queries share keys and values, and are normalised head by head. A head's width is a number
    /// of its own.
    fn grouped_attention(&self, layer: usize, x: &Tensor) -> Result<Tensor> {
        let name = |part: &str| format!("model.layers.{layer}.self_attn.{part}");
        let heads = number(&self.config, "num_attention_heads");
        let kv_heads = number(&self.config, "num_key_value_heads");
        let q = split(&self.product(&name("q_proj"), x)?, heads)?;
        let k = split(&self.product(&name("k_proj"), x)?, kv_heads)?;
        let v = split(&self.product(&name("v_proj"), x)?, kv_heads)?;
        let q = self.turned(&self.norm(&name("q_norm"), &q)?, false)?;
        let k = self.turned(&self.norm(&name("k_norm"), &k)?, false)?;
        let repeated = |x: Tensor| {
            let (sequences, kv_heads, length, width) = x.dims4()?;
            let each = heads / kv_heads;
            x.unsqueeze(2)?
                .broadcast_as((sequences, kv_heads, each, length, width))?
                .reshape((sequences, heads, length, width))
        };
        self.product(&name("o_proj"), &attention(&q, &repeated(k)?, &repeated(v)?)?)
    }

    /// Queries, and keys with values, come from narrow vectors. Positions turn a part of each head,
    /// and all heads share that part of the key.
    fn latent_attention(&self, layer: usize, x: &Tensor) -> Result<Tensor> {
        let name = |part: &str| format!("model.layers.{layer}.self_attn.{part}");
        let heads = number(&self.config, "num_attention_heads");
        let plain = number(&self.config, "qk_nope_head_dim");
        let turned = number(&self.config, "qk_rope_head_dim");
        let latent = number(&self.config, "kv_lora_rank");
        let values = number(&self.config, "v_head_dim");
        let narrow = self.norm(&name("q_a_layernorm"), &self.product(&name("q_a_proj"), x)?)?;
        let q = split(&self.product(&name("q_b_proj"), &narrow)?, heads)?;
        let both = self.product(&name("kv_a_proj_with_mqa"), x)?;
        let narrow = self.norm(&name("kv_a_layernorm"), &both.narrow(D::Minus1, 0, latent)?)?;
        let kv = split(&self.product(&name("kv_b_proj"), &narrow)?, heads)?;
        let shared = split(&both.narrow(D::Minus1, latent, turned)?, 1)?;
        let shared = self.turned(&shared, true)?;
        let (sequences, _, length, _) = shared.dims4()?;
        let shared = shared.broadcast_as((sequences, heads, length, turned))?;
        let k = Tensor::cat(&[kv.narrow(D::Minus1, 0, plain)?, shared.contiguous()?], D::Minus1)?;
        let of_q = self.turned(&q.narrow(D::Minus1, plain, turned)?, true)?;
        let q = Tensor::cat(&[q.narrow(D::Minus1, 0, plain)?, of_q], D::Minus1)?;
        let v = kv.narrow(D::Minus1, plain, values)?;
        self.product(&name("o_proj"), &attention(&q, &k, &v)?)
    }

    /// Turns pairs of each head's numbers [.., positions, width] by the position: numbers with
    /// half a width between them, or neighbours. Results are in the order of the first.
    fn turned(&self, x: &Tensor, neighbours: bool) -> Result<Tensor> {
        let theta = self.config["rope_parameters"]["rope_theta"].as_f64().unwrap();
        let (sequences, heads, length, width) = x.dims4()?;
        let half = width / 2;
        let angle = |place: usize| {
            let frequency = theta.powf(-((place % half) as f64) / half as f64);
            (place / half) as f64 * frequency
        };
        let table = |of: fn(f64) -> f64| {
            let numbers = (0..length * half).map(|place| of(angle(place)) as f32);
            Tensor::from_iter(numbers, &Device::Cpu)?.reshape((length, half))
        };
        let (cos, sin) = (table(f64::cos)?, table(f64::sin)?);
        let [a, b] = if neighbours {
            let pairs = x.contiguous()?.reshape((sequences, heads, length, half, 2))?;
            [pairs.narrow(D::Minus1, 0, 1)?, pairs.narrow(D::Minus1, 1, 1)?]
        } else {
            [x.narrow(D::Minus1, 0, half)?, x.narrow(D::Minus1, half, half)?]
        };
        let [a, b] = [a, b].map(|x| x.contiguous()?.reshape((sequences, heads, length, half)));
        let (a, b) = (a?, b?);
        let first = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
        let second = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
        Tensor::cat(&[first, second], D::Minus1)
    }
}

/// [sequences, positions, heads · width] as [sequences, heads, positions, width].
fn split(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (sequences, length, _) = x.dims3()?;
    x.contiguous()?
        .reshape((sequences, length, heads, ()))?
        .transpose(1, 2)?
        .contiguous()
}

/// Causal attention of heads [sequences, heads, positions, width], which are joined again.
fn attention(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    let (_, _, length, width) = q.dims4()?;
    let future = (0..length * length).map(|place| {
        let hidden = place % length > place / length;
        if hidden { f32::NEG_INFINITY } else { 0.0 }
    });
    let mask = Tensor::from_iter(future, &Device::Cpu)?.reshape((length, length))?;
    let keys = k.transpose(2, 3)?.contiguous()?;
    let scores = (q.contiguous()?.matmul(&keys)? / (width as f64).sqrt())?;
    let shares = softmax(&scores.broadcast_add(&mask)?, D::Minus1)?;
    shares.matmul(&v.contiguous()?)?.transpose(1, 2)?.contiguous()?.flatten_from(2)
}

/// An expert of three matrices.
struct Gated {
    gate: Param,
    up: Param,
    down: Param,
}

impl Layer for Gated {
    fn forward(&self, x: &Activation, _pass: &Pass) -> Result<Activation> {
        let of = |weight| tensor::linear(x, weight, Precision::F32);
        let both = tensor::side_by_side(&[of(&self.gate)?, of(&self.up)?])?;
        tensor::linear(&tensor::swiglu(&both)?, &self.down, Precision::F32)
    }
}
