//! The models, written once. A model composes layers that it is given, so a sharded layer can
//! replace a plain one.
//!
//! Letters in shapes: S sequences of L tokens, D the width of the model, F the inner width of an
//! MLP, H heads, V tokens of the vocabulary, E experts, k of them for each token.
//!
//! Reading order: `layers.rs` (the layers), `decoder.rs` (the whole model, or one pipeline stage),
//! `gpt.rs` and `llama.rs` (the blocks of two families), `build.rs` (the makers of layers),
//! `experts.rs` (several MLPs in place of one), `router.rs` (who chooses them) and `balance.rs`
//! (what keeps the router fair), `generate.rs` (text from a GPT), `mlp.rs` (linear layers only, for
//! the smallest job).

mod balance;
mod build;
mod decoder;
mod experts;
mod generate;
mod gpt;
mod layers;
mod llama;
mod mlp;
mod router;

pub use balance::{AddUp, Auxiliary, Balance, Load, Scope};
pub use build::{Build, Plain, Role, Tiled};
pub use decoder::{Chunk, Decoder, Input, Positions};
pub use experts::{Counts, Dispatched, Dispatching, Mixture, TokenDispatcher};
pub use generate::{draw, generate};
pub use layers::{
    Attend, Attention, Block, Embedding, Entry, Exit, Head, Heads, Layer, LayerNorm, Linear,
    Linears, Mlp, Pass, RmsNorm, TiledLinear,
};
pub use mlp::LinearStack;

/// A decoder whose shape is a GPT's, as labs 02 to 09 train it.
///
/// It learns a line by heart, and continues it:
///
/// ```
/// use shardlab::data::{Corpus, Sampler, Sampling};
/// use shardlab::model::{Gpt, Pass, generate};
/// use shardlab::optim::{AdamW, AdamWConfig};
/// use shardlab::plan::{Family, ModelShape};
/// use shardlab::tensor::random::Stream;
///
/// let text = Corpus::new("a line", &"to be or not to be, ".repeat(20))?;
/// let vocabulary = text.vocabulary.size();
/// let (heads, embd, family, experts) = (2, 32, Family::Gpt, None);
/// let shape = ModelShape { vocabulary, block: 16, layers: 1, heads, embd, family, experts };
/// let gpt = Gpt::new(&shape)?;
/// gpt.params.allocate(1337);
/// let mut adamw = AdamW::new(AdamWConfig::default(), &gpt.params);
/// let sampling = Sampling::Seeds;
/// let sampler = Sampler { sampling, seed: 1337, rank: 0, ranks: 1, batch: 4, block: 16 };
/// for step in 0..200 {
///     gpt.params.zero_gradients();
///     let batch = sampler.batch(&text.train, step, 0);
///     gpt.loss(&batch, &Pass::training(None))?.backward()?;
///     adamw.step(&gpt.params, 3e-3, 1.0)?;
/// }
/// let next = generate(&gpt, &text.train[..9], 10, 0.1, Stream::new(1337, "text"))?;
/// assert_eq!(text.vocabulary.decode(&next), "not to be,");
/// # anyhow::Ok(())
/// ```
pub type Gpt = Decoder;

/// A decoder whose shape is a Llama's, as lab10 trains and runs it.
pub type Llama = Decoder;
