//! A model's numbers, as flags give them, and what no model can have.

use clap::builder::RangedU64ValueParser;
use kit::help;
use shardlab::error::BadInput;
use shardlab::plan::ModelShape;

/// A model, and what to call it.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    pub name: String,
    pub shape: ModelShape,
    /// The keys of a config.json that nothing here reads, each with its value:
    /// `sliding_window = 4096`.
    pub not_understood: Vec<String>,
}

/// A model's numbers from flags. They describe one's own model, or change another one's.
#[derive(Clone, Copy, Debug, Default, PartialEq, clap::Args)]
pub struct Sizes {
    /// Layers: a model of your own, with --embd and --heads, or another one's changed
    #[arg(long, value_name = "NUMBER", value_parser = whole(LAYERS), help_heading = help::MODEL)]
    pub layers: Option<usize>,
    /// Width of the model
    #[arg(long, value_name = "NUMBER", value_parser = whole(WIDTH), hide_short_help = true, help_heading = help::MODEL)]
    pub embd: Option<usize>,
    /// Query heads
    #[arg(long, value_name = "NUMBER", value_parser = whole(HEADS), hide_short_help = true, help_heading = help::MODEL)]
    pub heads: Option<usize>,
    /// Key and value heads [default for a model of your own: as many as query heads]
    #[arg(long, value_name = "NUMBER", value_parser = whole(HEADS), hide_short_help = true, help_heading = help::MODEL)]
    pub kv_heads: Option<usize>,
    /// Inner width of the MLP [default for a model of your own: 8/3 of --embd, up to a multiple of
    /// 256]
    #[arg(long, value_name = "NUMBER", value_parser = whole(WIDTH), hide_short_help = true, help_heading = help::MODEL)]
    pub ffn: Option<usize>,
    /// Distinct tokens [default for a model of your own: 32000]
    #[arg(long, value_name = "NUMBER", value_parser = whole(WIDTH), hide_short_help = true, help_heading = help::MODEL)]
    pub vocab: Option<usize>,
    /// Tokens of a sequence [default: the model's, at most 8,192; for a model of your own 4,096]
    #[arg(long, value_name = "TOKENS", value_parser = whole(LENGTH), alias = "length", help_heading = help::MODEL)]
    pub seq: Option<usize>,
}

/// Layers of a model at most, its widths and tokens, its heads, and the tokens of a sequence. The
/// product of all is still a number.
pub(super) const LAYERS: usize = 10_000;
pub(super) const WIDTH: usize = 1 << 24;
pub(super) const HEADS: usize = 1 << 16;
const LENGTH: usize = 1 << 22;
/// Parameters of a model at most: a quadrillion, whose FLOPs 64 bits still count.
const MOST_PARAMETERS: f64 = 1e15;

fn whole(most: usize) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=most as u64)
}

impl Sizes {
    /// Whether a number of the model itself is given: any but the length of its sequences.
    pub(super) fn any(&self) -> bool {
        let length = Sizes { seq: self.seq, ..Sizes::default() };
        *self != length
    }
}

/// The width of each of `heads` heads that share a model's width.
pub(super) fn head_width(embd: usize, heads: usize) -> Result<usize, BadInput> {
    if embd.is_multiple_of(heads) {
        return Ok(embd / heads);
    }
    Err(BadInput::new(
        format!("{heads} heads cannot share a width of {embd} evenly"),
        format!("give {heads} heads a width of {}, for example", embd.next_multiple_of(heads)),
    ))
}

/// Refuses numbers that no model can have, and products that 64 bits do not count. Each number by
/// itself is in its range.
pub(super) fn check(shape: &ModelShape) -> Result<(), BadInput> {
    let heads = shape.heads;
    let kv_heads = shape.kv_heads();
    if !heads.is_multiple_of(kv_heads) {
        return Err(BadInput::new(
            format!("{heads} query heads cannot share {kv_heads} key and value heads evenly"),
            format!("give --kv-heads a divisor of {heads}"),
        ));
    }
    let q = shape.q_width();
    if q > WIDTH {
        return Err(BadInput::new(
            format!("{heads} heads of width {} are {q} wide", shape.head()),
            format!("all heads together are at most {WIDTH} wide"),
        ));
    }
    let blocks = shape.layers as f64 * shape.per_layer() as f64;
    let parameters = blocks + 2.0 * shape.table() as f64 + shape.positions() as f64;
    if parameters > MOST_PARAMETERS {
        return Err(BadInput::new(
            format!("a model of {parameters:.1e} parameters is more than the planner counts"),
            format!("give one of at most {MOST_PARAMETERS:.0e}"),
        ));
    }
    Ok(())
}
