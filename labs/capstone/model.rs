//! lab03's GPT in pieces: its blocks one by one, and its two ends. A builder decides how ranks
//! share the layers.

use anyhow::Result;
use shardlab::model::{Attention, Block, Build, Entry, Exit, Layer, Mlp, Plain, Role};
use shardlab::plan::ModelShape;
use shardlab::tensor::{Copies, Init, Param, Params, Whole};
use std::sync::Arc;

/// The standard deviation of initial matrices.
const STD: f32 = 0.02;

/// Makes a block's MLP of its two matrices.
pub type MakeMlp<'a> = &'a dyn Fn(&Arc<Params>, [Whole; 2], String) -> Result<Box<dyn Layer>>;

/// Declares one block: attention and an MLP, each after a norm.
pub fn block(
    shape: &ModelShape,
    params: &Arc<Params>,
    layer: usize,
    build: &dyn Build,
    mlp: MakeMlp,
) -> Result<Block> {
    let whole = |part: &str, init| {
        let (name, dims) = shape.block_named(layer, part);
        Whole::new(name, &dims, init)
    };
    let gain = |part| whole(part, Init::Constant(1.0));
    let matrix = |part| whole(part, Init::Normal(STD));
    // Matrices that write into the residual stream begin smaller.
    let into_stream = |part| whole(part, Init::Normal(STD / (2.0 * shape.layers as f32).sqrt()));

    let norm1 = build.norm(params, gain("ln1.weight"))?;
    let norm2 = build.norm(params, gain("ln2.weight"))?;
    let attention = Attention {
        qkv: build.linear(params, matrix("qkv.weight"), Role::AttentionIn)?,
        proj: build.linear(params, into_stream("proj.weight"), Role::AttentionOut)?,
        heads: build.heads(shape.heads),
        name: shape.block_name(layer),
    };
    let matrices = [matrix("fc.weight"), into_stream("out.weight")];
    Ok(Block {
        norm1,
        attention: Box::new(attention),
        norm2,
        mlp: mlp(params, matrices, shape.block_name(layer))?,
    })
}

/// An MLP on one rank.
pub fn whole_mlp(
    params: &Arc<Params>,
    [fc, out]: [Whole; 2],
    name: String,
) -> Result<Box<dyn Layer>> {
    Ok(Box::new(Mlp {
        fc: Plain.linear(params, fc, Role::MlpIn)?,
        out: Plain.linear(params, out, Role::MlpOut)?,
        name,
    }))
}

/// Declares the token table, which the first layer uses, and the head.
pub fn table(
    shape: &ModelShape,
    params: &Arc<Params>,
    build: &dyn Build,
    copies: Copies,
) -> Result<Param> {
    let (name, dims) = shape.table_named();
    Ok(build.table(params, Whole::new(name, &dims, Init::Normal(STD)), copies)?)
}

/// Tokens and positions become activations.
pub fn entry(
    shape: &ModelShape,
    params: &Arc<Params>,
    build: &dyn Build,
    table: Param,
) -> Result<Box<dyn Entry>> {
    let positions = shape.positions_named();
    let positions = positions.map(|(name, dims)| Whole::new(name, &dims, Init::Normal(STD)));
    Ok(build.entry(params, table, positions)?)
}

/// The last norm and the head.
pub type Head = (Box<dyn Layer>, Box<dyn Exit>);

/// Activations become the loss.
pub fn head(
    shape: &ModelShape,
    params: &Arc<Params>,
    build: &dyn Build,
    table: Param,
) -> Result<Head> {
    let (name, dims) = shape.last_norm_named().swap_remove(0);
    let norm = build.norm(params, Whole::new(name, &dims, Init::Constant(1.0)))?;
    Ok((norm, build.exit(table)))
}
