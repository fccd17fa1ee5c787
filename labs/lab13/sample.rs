//! One rank's tokens and experts, on which the lesson's mixture and the library's are compared.

use anyhow::Result;
use candle_core::{Device, Result as Candle, Var};
use shardlab::comm::Comm;
use shardlab::model::{Layer, Linear, Mixture, Mlp};
use shardlab::parallel::ExpertParallel;
use shardlab::plan::Experts;
use shardlab::tensor::{Init, Params};
use std::sync::Arc;

/// The tokens of each rank in a [`Sample`], and the width of tokens and of experts.
pub const TOKENS: usize = 32;
pub const WIDTH: usize = 32;

/// One rank's tokens and experts, for both mixtures.
pub struct Sample {
    pub group: Comm,
    pub x: Var,
    /// The router, then two matrices of each expert that is here.
    pub params: Arc<Params>,
    pub library: Mixture,
}

impl Sample {
    /// Of `rules.count` experts, which the ranks of `group` divide evenly.
    pub fn new(group: &Comm, rules: Experts, seed: u64) -> Result<Sample> {
        let mut x = vec![0.0; TOKENS * WIDTH];
        Init::Normal(1.0).fill(seed, "x", group.rank() * x.len(), &mut x);
        let x = Var::from_vec(x, (TOKENS, WIDTH), &Device::Cpu)?;
        let params = Params::new();
        let matrix = |name: String, rows| params.declare(name, &[rows, WIDTH], Init::Normal(0.2));
        let router = matrix("router".into(), rules.count)?;
        let linear = |name: String| -> Candle<Box<dyn Layer>> {
            Ok(Box::new(Linear { weight: matrix(name, WIDTH)?, bias: None }))
        };
        let expert = |i: usize| -> Candle<Box<dyn Layer>> {
            let [fc, out] = [linear(format!("{i}.fc"))?, linear(format!("{i}.out"))?];
            Ok(Box::new(Mlp { fc, out, name: i.to_string() }))
        };
        let shared = ExpertParallel::new(group.clone());
        let experts = shared.share(rules.count).map(expert).collect::<Candle<_>>()?;
        params.allocate(seed);
        let dispatcher = Some(Arc::new(shared) as _);
        let library = Mixture {
            router,
            bias: None,
            experts,
            shared: None,
            dispatcher,
            rules,
            name: "experts".into(),
        };
        Ok(Sample { group: group.clone(), x, params, library })
    }
}
