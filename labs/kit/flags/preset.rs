//! Presets: three runs with names.

/// Shapes and settings that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// 0.8 M parameters, 64 tokens of context: minutes on a laptop.
    Baby,
    /// 10.6 M parameters, 256 tokens: nanoGPT's char-level model with a small batch.
    Char,
    /// 85 M parameters, 1,024 tokens: the source's wordplay run, made for GPUs.
    Wordplay,
}

/// The settings of a preset.
pub struct Defaults {
    pub layers: usize,
    pub heads: usize,
    pub embd: usize,
    pub block: usize,
    pub batch: usize,
    pub lr: f64,
    pub min_lr: f64,
    pub beta2: f64,
    pub steps: usize,
    pub lr_decay_steps: Option<usize>,
    pub eval_interval: usize,
    pub eval_iters: usize,
}

impl Preset {
    pub fn defaults(self) -> Defaults {
        let small = Defaults {
            layers: 4,
            heads: 4,
            embd: 128,
            block: 64,
            batch: 12,
            lr: 1e-3,
            min_lr: 1e-4,
            beta2: 0.99,
            steps: 1000,
            lr_decay_steps: None,
            eval_interval: 500,
            eval_iters: 50,
        };
        match self {
            Preset::Baby => small,
            Preset::Char => Defaults {
                layers: 6,
                heads: 6,
                embd: 384,
                block: 256,
                batch: 4,
                steps: 500,
                eval_interval: 250,
                ..small
            },
            Preset::Wordplay => Defaults {
                layers: 12,
                heads: 12,
                embd: 768,
                block: 1024,
                batch: 64,
                lr: 6e-4,
                min_lr: 6e-5,
                beta2: 0.95,
                lr_decay_steps: Some(600_000),
                eval_interval: 250,
                eval_iters: 200,
                ..small
            },
        }
    }
}
