//! Each operation composed from candle's own, in any float type: slow, obvious, and the reference
//! for the fused operations.
//!
//! Weights are plain tensors here, and candle differentiates all of it. (candle-nn's own
//! `LayerNorm`, `RmsNorm` and `softmax_last_dim` compute the right values but cut the graph, so
//! that no layer before them learns.)

use candle_core::{D, Result, Tensor};
use candle_nn::ops;

/// Reference for [`tensor::linear`](shardlab::tensor::linear()).
pub fn linear(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    x.broadcast_matmul(&weight.t()?)
}

/// Reference for [`tensor::linear_bias`](shardlab::tensor::linear_bias()).
pub fn linear_bias(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    linear(x, weight)?.broadcast_add(bias)
}

/// Reference for [`tensor::gelu`](shardlab::tensor::gelu()).
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    let below = (((x / 2f64.sqrt())?.erf()? + 1.0)? / 2.0)?;
    x * below
}

/// Reference for [`tensor::layer_norm`](shardlab::tensor::layer_norm()).
pub fn layer_norm(x: &Tensor, gain: &Tensor) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    let deviation = (variance + 1e-5)?.sqrt()?;
    centred.broadcast_div(&deviation)?.broadcast_mul(gain)
}

/// Reference for [`tensor::embed`](shardlab::tensor::embed()); `ids` [sequences, length] of u32.
pub fn embed(ids: &Tensor, tokens: &Tensor) -> Result<Tensor> {
    let (sequences, length) = ids.dims2()?;
    tokens.index_select(&ids.flatten_all()?, 0)?.reshape((sequences, length, ()))
}

/// Reference for [`tensor::add_positions`](shardlab::tensor::add_positions()).
pub fn add_positions(x: &Tensor, positions: &Tensor) -> Result<Tensor> {
    x.broadcast_add(&positions.narrow(0, 0, x.dim(1)?)?)
}

/// Reference for [`tensor::causal_attention`](shardlab::tensor::causal_attention()), without
/// dropout.
pub fn causal_attention(qkv: &Tensor, heads: usize) -> Result<Tensor> {
    let (sequences, length, triple) = qkv.dims3()?;
    let width = triple / 3;
    let part = |i| {
        let part = qkv.narrow(D::Minus1, i * width, width)?.reshape((
            sequences,
            length,
            heads,
            width / heads,
        ))?;
        part.transpose(1, 2)?.contiguous()
    };
    let q = part(0)?;
    let k = part(1)?;
    let v = part(2)?;
    let scores = (q.matmul(&k.t()?.contiguous()?)? / ((width / heads) as f64).sqrt())?;
    let future: Vec<f64> = (0..length * length)
        .map(|i| if i % length > i / length { -1e30 } else { 0.0 })
        .collect();
    let future = Tensor::from_vec(future, (length, length), qkv.device())?.to_dtype(qkv.dtype())?;
    let probabilities = ops::softmax(&scores.broadcast_add(&future)?, D::Minus1)?;
    probabilities.matmul(&v)?.transpose(1, 2)?.reshape((sequences, length, width))
}

/// Reference for [`tensor::linears`](shardlab::tensor::linears()).
pub fn linears(x: &Tensor, weights: &[&Tensor]) -> Result<Tensor> {
    let parts: Vec<Tensor> =
        weights.iter().map(|weight| linear(x, weight)).collect::<Result<_>>()?;
    Tensor::cat(&parts, D::Minus1)
}

/// Reference for [`tensor::rms_norm`](shardlab::tensor::rms_norm()).
pub fn rms_norm(x: &Tensor, gain: &Tensor, epsilon: f32) -> Result<Tensor> {
    ops::rms_norm_slow(x, gain, epsilon)
}

/// Reference for [`tensor::swiglu`](shardlab::tensor::swiglu()).
pub fn swiglu(x: &Tensor) -> Result<Tensor> {
    ops::swiglu(x)
}

/// Reference for [`tensor::rope`](shardlab::tensor::rope()), with these frequencies for each pair
/// of a head.
pub fn rope(x: &Tensor, frequencies: &[f64], heads: usize, first: usize) -> Result<Tensor> {
    let (sequences, length, width) = x.dims3()?;
    let turned = 2 * frequencies.len() * heads;
    let angles = (first..first + length)
        .flat_map(|at| frequencies.iter().map(move |frequency| at as f64 * frequency));
    let angles = Tensor::from_iter(angles, x.device())?
        .reshape((length, ()))?
        .to_dtype(x.dtype())?;
    let all = x
        .narrow(D::Minus1, 0, turned)?
        .reshape((sequences, length, heads, ()))?
        .transpose(1, 2)?
        .contiguous()?;
    let all = candle_nn::rotary_emb::rope_slow(&all, &angles.cos()?, &angles.sin()?)?;
    let all = all.transpose(1, 2)?.reshape((sequences, length, turned))?;
    Tensor::cat(&[all, x.narrow(D::Minus1, turned, width - turned)?], D::Minus1)
}

/// Reference for [`tensor::grouped_attention`](shardlab::tensor::grouped_attention()): every key
/// and value is repeated for its query heads.
pub fn grouped_attention(qkv: &Tensor, heads: usize, kv_heads: usize) -> Result<Tensor> {
    let (sequences, length, row) = qkv.dims3()?;
    let head = row / (heads + 2 * kv_heads);
    let group = heads / kv_heads;
    let repeated = |first: usize| {
        let part = qkv.narrow(D::Minus1, first * head, kv_heads * head)?;
        let part = part.reshape((sequences, length, kv_heads, 1, head))?;
        part.broadcast_as((sequences, length, kv_heads, group, head))?.reshape((
            sequences,
            length,
            heads * head,
        ))
    };
    let q = qkv.narrow(D::Minus1, 0, heads * head)?;
    causal_attention(
        &Tensor::cat(&[q, repeated(heads)?, repeated(heads + kv_heads)?], D::Minus1)?,
        heads,
    )
}

/// Reference for [`tensor::cross_entropy`](shardlab::tensor::cross_entropy()); `targets` has one
/// u32 per row.
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let logits = logits.flatten_to(D::Minus2)?;
    let log_probabilities = ops::log_softmax(&logits, D::Minus1)?;
    log_probabilities.gather(&targets.unsqueeze(1)?, 1)?.mean_all()?.neg()
}

/// Reference for [`tensor::squared_error`](shardlab::tensor::squared_error()); `target` has `y`'s
/// shape.
pub fn squared_error(y: &Tensor, target: &Tensor) -> Result<Tensor> {
    (y - target)?.sqr()?.sum_all()
}
