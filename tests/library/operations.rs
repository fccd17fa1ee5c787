//! The operations: each plain composition against numeric derivatives (f64), each fused one against
//! that composition.

use super::plain;
use candle_core::{DType, Device, Result, Shape, Tensor, Var};
use shardlab::difference::largest_difference;
use shardlab::launch;
use shardlab::tensor::Precision::{Bf16, F32};
use shardlab::tensor::{self, Activation, Init, Operand, Param, Params, Slices, Tape, TensorOp};
use std::sync::Arc;

const CPU: &Device = &Device::Cpu;

/// Numbers without a pattern that an operation could be blind to, between -scale and scale.
fn numbers(seed: u64, shape: &[usize], scale: f64) -> Tensor {
    // As the ranks of this program's other tests do: candle and rayon decide once in a process.
    launch::one_compute_thread_a_rank();
    let stream = tensor::random::Stream::new(seed, "operations");
    let n: usize = shape.iter().product();
    let x: Vec<f64> = (0..n as u64).map(|i| scale * (2.0 * stream.uniform(i) - 1.0)).collect();
    Tensor::from_vec(x, shape, CPU).unwrap()
}

fn flat(x: &Tensor) -> Vec<f64> {
    x.flatten_all().unwrap().to_dtype(DType::F64).unwrap().to_vec1().unwrap()
}

/// `sum(y · weights)` with fixed weights: a scalar through which every element of y matters
/// differently.
fn scalar(y: &Tensor) -> Result<Tensor> {
    y.mul(&numbers(99, y.dims(), 1.0).to_dtype(y.dtype())?)?.sum_all()
}

/// An operation as a function of its float arguments, the first of which is its input and the rest
/// its weights.
type Plain<'a> = &'a dyn Fn(&[&Tensor]) -> Result<Tensor>;
type Fused<'a> = &'a dyn Fn(&Tensor, &[Param]) -> Result<Tensor>;

/// candle's gradients of the plain composition, checked against central differences.
fn plain_gradients(name: &str, f: Plain, args: &[Tensor]) -> Vec<Vec<f64>> {
    let vars: Vec<Var> = args.iter().map(|x| Var::from_tensor(x).unwrap()).collect();
    let tensors: Vec<&Tensor> = vars.iter().map(|v| v.as_tensor()).collect();
    let grads = scalar(&f(&tensors).unwrap()).unwrap().backward().unwrap();
    let analytic: Vec<Vec<f64>> =
        tensors.iter().map(|t| flat(grads.get(t).expect("a gradient"))).collect();

    const H: f64 = 1e-5;
    for (a, arg) in args.iter().enumerate() {
        for i in (0..arg.elem_count()).step_by(1 + arg.elem_count() / 40) {
            let at = |delta: f64| {
                let mut x = flat(arg);
                x[i] += delta;
                let moved = Tensor::from_vec(x, arg.shape(), CPU).unwrap();
                let args: Vec<&Tensor> =
                    args.iter().enumerate().map(|(b, x)| if a == b { &moved } else { x }).collect();
                scalar(&f(&args).unwrap()).unwrap().to_scalar::<f64>().unwrap()
            };
            let numeric = (at(H) - at(-H)) / (2.0 * H);
            let error = (numeric - analytic[a][i]).abs();
            assert!(
                error < 1e-6,
                "{name}: argument {a}, element {i}: {} but numerically {numeric}",
                analytic[a][i]
            );
        }
    }
    analytic
}

/// The largest difference, relative to the largest element.
fn relative(a: &[f64], b: &[f64]) -> f64 {
    largest_difference(a, b) / largest_difference(b, &vec![0.0; b.len()])
}

/// Holds a fused operation's values and gradients to the plain composition's.
fn hold(name: &str, f: Fused, plain: Plain, args: &[Tensor]) {
    hold_within(1e-5, name, f, plain, args);
}

/// The same, up to `bound` of the largest element.
fn hold_within(bound: f64, name: &str, f: Fused, plain: Plain, args: &[Tensor]) {
    let expected = plain_gradients(name, plain, args);
    let input = Var::from_tensor(&args[0].to_dtype(DType::F32).unwrap()).unwrap();
    let params: Arc<Params> = Params::new();
    let handles: Vec<Param> = args[1..]
        .iter()
        .enumerate()
        .map(|(i, x)| params.declare(format!("weight {i}"), x.dims(), Init::Constant(0.0)).unwrap())
        .collect();
    params.allocate(0);
    let values: Vec<f32> = args[1..].iter().flat_map(flat).map(|x| x as f32).collect();
    params.values_mut().copy_from_slice(&values);
    // Backward passes add: what is there before must still be there.
    params.gradients().fill(1.0);

    let y = f(&input, &handles).unwrap();
    let plain_y = plain(&args.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(y.dims(), plain_y.dims(), "{name}");
    let error = relative(&flat(&y), &flat(&plain_y));
    assert!(error < bound, "{name}: values off by {error:e}");

    let grads = scalar(&y).unwrap().backward().unwrap();
    if let Some(dx) = grads.get(&input) {
        let error = relative(&flat(dx), &expected[0]);
        assert!(error < bound, "{name}: the input's gradient is off by {error:e}");
    } else {
        assert_eq!(name, "embed", "{name} gives its input no gradient");
    }
    for (handle, expected) in handles.iter().zip(&expected[1..]) {
        let got: Vec<f64> = params.gradients()[handle.spec().range()]
            .iter()
            .map(|&g| f64::from(g) - 1.0)
            .collect();
        let error = relative(&got, expected);
        assert!(
            error < bound,
            "{name}: the gradient of {} is off by {error:e}",
            handle.spec().name
        );
    }
}

#[test]
fn linear() {
    let args = [numbers(1, &[2, 5, 12], 1.0), numbers(2, &[7, 12], 1.0)];
    hold(
        "linear",
        &|x, w| tensor::linear(x, &w[0], F32),
        &|a| plain::linear(a[0], a[1]),
        &args,
    );
}

/// The numbers that bf16 has next to these.
fn rounded(x: &Tensor) -> Tensor {
    let values: Vec<f32> = flat(x).iter().map(|&x| x as f32).collect();
    let values: Vec<f64> = Bf16.rounded(&values).into_iter().map(f64::from).collect();
    Tensor::from_vec(values, x.dims(), CPU).unwrap()
}

/// What is multiplied is rounded, and nothing else: with numbers that bf16 has, the forward pass is
/// f32's.
#[test]
fn products_in_bf16() {
    let x = numbers(1, &[2, 5, 12], 1.0);
    let w = [numbers(2, &[7, 12], 1.0), numbers(3, &[3, 12], 1.0)];
    let all = [&x, &w[0], &w[1]].map(rounded);
    let linears: Plain = &|a| plain::linears(a[0], &a[1..]);
    let apart = |args: &[Tensor]| {
        let params = Params::new();
        let declare =
            |i: usize| params.declare(format!("{i}"), args[i].dims(), Init::Constant(0.0)).unwrap();
        let w = [declare(1), declare(2)];
        params.allocate(0);
        let values: Vec<f32> = args[1..].iter().flat_map(flat).map(|x| x as f32).collect();
        params.values_mut().copy_from_slice(&values);
        let x = args[0].to_dtype(DType::F32).unwrap();
        let y = tensor::linears(&x, &[&w[0], &w[1]], Bf16).unwrap();
        relative(&flat(&y), &flat(&linears(&args.iter().collect::<Vec<_>>()).unwrap()))
    };
    assert!(apart(&all) < 1e-6, "off by {:e}", apart(&all));
    let unrounded = [x.clone(), w[0].clone(), w[1].clone()];
    assert!(apart(&unrounded) > 1e-4, "factors were not rounded");

    // Half of the last of 8 bits, of both factors; gradients are rounded, too.
    let bound = 2.0 / 256.0;
    hold_within(
        bound,
        "linears",
        &|x, w| tensor::linears(x, &[&w[0], &w[1]], Bf16),
        linears,
        &all,
    );
    let linear = |x: &Tensor, w: &[Param]| tensor::linear(x, &w[0], Bf16);
    hold_within(bound, "linear", &linear, &|a| plain::linear(a[0], a[1]), &all[..2]);
    let qkv = [rounded(&numbers(4, &[2, 70, 3 * 8], 1.0))];
    let fused = |x: &Tensor, _: &[Param]| tensor::causal_attention(x, 2, 0, None, Bf16);
    let attention: Plain = &|a| plain::causal_attention(a[0], 2);
    hold_within(bound, "attention", &fused, attention, &qkv);
}

#[test]
fn gelu() {
    hold(
        "gelu",
        &|x, _| tensor::gelu(x.copy()?),
        &|a| plain::gelu(a[0]),
        &[numbers(3, &[4, 100], 6.0)],
    );
}

#[test]
fn gelu_far_out() -> Result<()> {
    let x = Tensor::new(&[-1e4f32, -13.0, -8.0, 0.0, 13.0, 1e4], CPU)?;
    let y = tensor::gelu(x)?.to_vec1::<f32>()?;
    assert_eq!((y[3], y[4], y[5]), (0.0, 13.0, 1e4));
    assert!(y[..3].iter().all(|y| (-1e-10..=0.0).contains(y)), "{y:?}");
    Ok(())
}

#[test]
fn layer_norm() {
    let args = [numbers(4, &[3, 4, 37], 2.0), numbers(5, &[37], 1.5)];
    hold(
        "layer_norm",
        &|x, w| tensor::layer_norm(x, &w[0]),
        &|a| plain::layer_norm(a[0], a[1]),
        &args,
    );
}

#[test]
fn attention() {
    for (sequences, length, heads, head) in
        [(2, 9, 3, 5), (1, 1, 2, 4), (1, 33, 1, 16), (1, 64, 1, 4), (2, 130, 2, 3)]
    {
        let args = [numbers(6, &[sequences, length, 3 * heads * head], 1.5)];
        let fused = |x: &Tensor, _: &[Param]| tensor::causal_attention(x, heads, 0, None, F32);
        hold("attention", &fused, &|a| plain::causal_attention(a[0], heads), &args);
    }
}

#[test]
fn rms_norm() {
    let args = [numbers(20, &[3, 4, 37], 2.0), numbers(21, &[37], 1.5)];
    hold(
        "rms_norm",
        &|x, w| tensor::rms_norm(x, &w[0], 1e-3),
        &|a| plain::rms_norm(a[0], a[1], 1e-3),
        &args,
    );
}

#[test]
fn swiglu() {
    hold(
        "swiglu",
        &|x, _| tensor::swiglu(x),
        &|a| plain::swiglu(a[0]),
        &[numbers(22, &[4, 3, 50], 6.0)],
    );
}

/// Three heads of six numbers turn, and the four numbers after them do not.
#[test]
fn rope() {
    let frequencies = vec![1.0, 0.3, 0.01];
    let rotations = tensor::Rotations::new(frequencies.clone());
    for first in [0, 7] {
        let fused =
            |x: &Tensor, _: &[Param]| tensor::rope((x + 0.0)?, &rotations, 3, &Slices::from(first));
        hold(
            "rope",
            &fused,
            &|a| plain::rope(a[0], &frequencies, 3, first),
            &[numbers(23, &[2, 5, 22], 1.0)],
        );
    }
}

#[test]
fn linears() {
    let args = [
        numbers(24, &[2, 3, 20], 1.0),
        numbers(25, &[7, 20], 1.0),
        numbers(26, &[2, 20], 1.0),
    ];
    let plain = |a: &[&Tensor]| plain::linears(a[0], &a[1..]);
    hold("linears", &|x, w| tensor::linears(x, &[&w[0], &w[1]], F32), &plain, &args);
    // In a pass that generates, few rows have their own product.
    for rows in [1, 4, 5] {
        let args = [numbers(24, &[1, rows, 20], 1.0), args[1].clone(), args[2].clone()];
        hold(
            "linears",
            &|x, w| tensor::linears_of_few_rows(x, &[&w[0], &w[1]]),
            &plain,
            &args,
        );
    }
}

#[test]
fn grouped_attention() {
    for (sequences, length, heads, kv_heads, head) in
        [(2, 9, 6, 2, 4), (1, 70, 4, 1, 3), (2, 5, 2, 2, 4)]
    {
        let args = [numbers(27, &[sequences, length, (heads + 2 * kv_heads) * head], 1.5)];
        let fused = |x: &Tensor, _: &[Param]| tensor::grouped_attention(x, heads, kv_heads, F32);
        hold(
            "grouped_attention",
            &fused,
            &|a| plain::grouped_attention(a[0], heads, kv_heads),
            &args,
        );
    }
}

#[test]
fn cross_entropy() {
    let targets = [3u32, 0, 10, 6, 6, 1];
    let plain_targets = Tensor::new(&targets, CPU).unwrap();
    let args = [numbers(7, &[2, 3, 11], 4.0)];
    let fused = |x: &Tensor, _: &[Param]| tensor::cross_entropy(x, &targets);
    hold("cross_entropy", &fused, &|a| plain::cross_entropy(a[0], &plain_targets), &args);
}

/// Rows without a target count neither in the mean nor in the gradient.
#[test]
fn ignored_targets_do_not_count() {
    let x = numbers(7, &[1, 6, 11], 4.0);
    let targets = [3u32, tensor::IGNORED, 10, 6, tensor::IGNORED, 1];
    let rows = Tensor::new(&[0u32, 2, 3, 5], CPU).unwrap();
    let kept = Tensor::new(&[3u32, 10, 6, 1], CPU).unwrap();
    let plain = |a: &[&Tensor]| plain::cross_entropy(&a[0].index_select(&rows, 1)?, &kept);
    hold(
        "cross_entropy",
        &|x, _| tensor::cross_entropy(x, &targets),
        &plain,
        std::slice::from_ref(&x),
    );
    let x = x.to_dtype(DType::F32).unwrap();
    let none = tensor::cross_entropy(&x, &[tensor::IGNORED; 6]).unwrap();
    assert_eq!(none.to_scalar::<f32>().unwrap(), 0.0);
}

#[test]
fn embed() {
    let ids = [4u32, 0, 4, 2, 1, 4];
    let plain_ids = Tensor::new(&ids, CPU).unwrap().reshape((2, 3)).unwrap();
    // The first argument of `hold` is an input, which an embedding does not have.
    let args = [numbers(8, &[1], 1.0), numbers(9, &[5, 6], 1.0)];
    let fused = |_: &Tensor, w: &[Param]| {
        tensor::root(tensor::embed(&ids, 3, &w[0], Some(&Tape::default()))?)
    };
    let plain = |a: &[&Tensor]| plain::embed(&plain_ids, a[1])?.broadcast_add(&(a[0] - a[0])?);
    hold("embed", &fused, &plain, &args);
}

#[test]
fn add_positions() {
    let args = [numbers(8, &[2, 3, 6], 1.0), numbers(10, &[4, 6], 1.0)];
    // The operation uses its input up: a sum with nothing has its own memory, and hands the
    // gradient on.
    let fused =
        |x: &Tensor, w: &[Param]| tensor::add_positions((x + 0.0)?, &w[0], &Slices::default());
    hold("add_positions", &fused, &|a| plain::add_positions(a[0], a[1]), &args);
}

/// Two halves of a tape, on two pipeline stages: the bits of the whole one.
#[test]
fn a_backward_pass_goes_on_from_a_given_gradient() -> Result<()> {
    let x: Vec<f32> = flat(&numbers(17, &[3, 20], 2.0)).iter().map(|&x| x as f32).collect();
    let start = |x: &[f32]| Activation::start(x.to_vec(), (3, 20));
    // The boundary feeds two operations, as a residual stream does.
    let first = |x: &Activation| tensor::gelu(x.clone());
    let second = |x: &Activation| tensor::squared_error(&tensor::sum(x, first(x)?)?, &[0.5; 60]);
    let begun = start(&x)?;
    let whole = second(&first(&begun)?)?.backward(vec![1.0], None)?.of(&begun)?;

    let begun = start(&x)?;
    let sent = first(&begun)?;
    let received = start(sent.numbers())?;
    let owed = second(&received)?.backward(vec![1.0], None)?.of(&received)?;
    let mut gradients = sent.clone().backward(owed.clone(), None)?;
    assert_eq!(gradients.of(&begun)?, whole);

    let says = |result: Result<_>| result.map(drop).unwrap_err().to_string();
    let text = gradients.of(&received).map(drop).unwrap_err().to_string();
    assert!(text.contains("did not reach the start of shape [3, 20]"), "{text}");
    let text = says(first(&start(&x)?)?.backward(vec![0.0; 20], None));
    assert!(text.contains("20 numbers are no gradient of [3, 20]"), "{text}");
    let text = says(sent.backward(owed, None));
    assert!(text.contains("serves one backward pass"), "{text}");
    let text = says(first(&Activation::new(x, (3, 20))?)?.backward(vec![0.0; 60], None));
    assert!(text.contains("nothing was noted for a backward pass"), "{text}");
    Ok(())
}

/// A norm, two matrices, and GELU between them.
fn half_a_block() -> Result<(Arc<Params>, [Param; 3])> {
    let params = Params::new();
    let gain = params.declare("gain", &[20], Init::Uniform(1.0))?;
    let fc = params.declare("fc", &[30, 20], Init::Normal(0.5))?;
    let out = params.declare("out", &[20, 30], Init::Normal(0.5))?;
    params.allocate(3);
    Ok((params, [gain, fc, out]))
}

/// On a tape of their own, operations compute what they do as four nodes of candle's graph, whose
/// sums candle adds up.
#[test]
fn a_tape_is_one_node_and_has_the_bits_of_its_operations() -> Result<()> {
    let (params, [gain, fc, out]) = half_a_block()?;
    fn layers<X: Operand>(x: &X, [gain, fc, out]: [&Param; 3]) -> Result<X> {
        let x = tensor::linear(&tensor::layer_norm(x, gain)?, fc, F32)?;
        tensor::linear(&tensor::gelu(x)?, out, F32)
    }
    let weights = [&gain, &fc, &out];
    let x = Var::from_tensor(&numbers(21, &[3, 5, 20], 2.0).to_dtype(DType::F32)?)?;
    let run = |y: Tensor| {
        params.zero_gradients();
        let gradients = scalar(&y)?.backward()?;
        Ok((flat(&y), flat(gradients.get(&x).unwrap()), params.gradients().to_vec()))
    };
    let expect = |on_tape: Tensor, apart: Tensor, nodes| -> Result<()> {
        assert_eq!(on_tape.sorted_nodes().len(), 2, "the tape, and the variable");
        assert_eq!(apart.sorted_nodes().len(), nodes);
        let on_tape: Result<_> = run(on_tape);
        assert_eq!(on_tape?, run(apart)?);
        Ok(())
    };
    expect(tensor::node(&x, |x| layers(x, weights))?, layers(x.as_tensor(), weights)?, 5)?;
    // One residual sum, and two.
    let sum = |x: &Tensor| x + layers(x, weights)?;
    let on_tape = |x: &Activation| tensor::sum(x, layers(x, weights)?);
    expect(tensor::node(&x, on_tape)?, sum(&x)?, 6)?;
    expect(tensor::node(&x, |x| on_tape(&on_tape(x)?))?, sum(&sum(&x)?)?, 11)
}

/// A residual sum lies in the memory of its second part. candle would keep both.
#[test]
fn a_sum_needs_no_memory_of_its_own() -> Result<()> {
    let x = Activation::start(vec![1.0; 60], (3, 20))?;
    let y = tensor::gelu(x.clone())?;
    let memory = y.numbers().as_ptr();
    assert_eq!(tensor::sum(&x, y)?.numbers().as_ptr(), memory);
    Ok(())
}

/// The square, by a backward pass that reads its result.
struct Square;

impl TensorOp for Square {
    const NAME: &'static str = "square";
    const READS_RESULT: bool = true;

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        Ok((x.iter().map(|x| x * x).collect(), dims.into()))
    }

    fn input_gradient(&self, _: &[f32], _: &[usize], _: &[f32]) -> Result<Vec<f32>> {
        candle_core::bail!("it needs its result")
    }

    fn gradient_beside(&self, _: &[f32], _: &[usize], y: &[f32], dy: &[f32]) -> Result<Vec<f32>> {
        Ok(y.iter().zip(dy).map(|(y, dy)| 2.0 * y.sqrt() * dy).collect())
    }
}

/// A residual sum may not be added into a result that a backward pass reads.
#[test]
fn an_operation_that_reads_its_result_may_end_a_residual() -> Result<()> {
    let x = Activation::start(vec![3.0, 5.0], 2)?;
    let y = tensor::sum(&x, tensor::consume(x.clone(), Square)?)?;
    assert_eq!(y.numbers(), [12.0, 30.0]);
    assert_eq!(y.backward(vec![1.0; 2], None)?.of(&x)?, [7.0, 11.0]);
    Ok(())
}

/// Activations of two passes cannot meet.
#[test]
fn one_pass_makes_one_tape() -> Result<()> {
    let x = Activation::start(vec![3.0, 5.0], 2)?;
    let other = Activation::start(vec![3.0, 5.0], 2)?;
    let says = |result: Result<Activation>| result.map(drop).unwrap_err().to_string();
    assert!(says(tensor::sum(&x, other)).contains("two tapes"));
    assert!(says(tensor::sum(&x, Activation::new(vec![1.0], 1)?)).contains("have no sum"));
    Ok(())
}

/// What tiles of a matrix make stands side by side, and each gets its columns' gradient.
#[test]
fn parts_stand_side_by_side() -> Result<()> {
    let x = Activation::start(vec![1.0, 2.0, 3.0, 4.0], (2, 2))?;
    let one = Activation::new(vec![7.0, 8.0], (2, 1))?;
    let y = tensor::side_by_side(&[x.clone(), one, x.clone()])?;
    assert_eq!(y.numbers(), [1.0, 2.0, 7.0, 1.0, 2.0, 3.0, 4.0, 8.0, 3.0, 4.0]);
    let dy = (1..=10).map(|i| i as f32).collect();
    assert_eq!(y.backward(dy, None)?.of(&x)?, [5.0, 7.0, 15.0, 17.0]);
    let row = Activation::new(vec![1.0, 2.0], (1, 2))?;
    assert!(tensor::side_by_side(&[row, Activation::new(vec![3.0], ())?]).is_err());
    Ok(())
}

/// The next number of bf16 after 1 is 1.0078125.
#[test]
fn rounding_keeps_what_bf16_has_in_both_passes() -> Result<()> {
    let x = Activation::start(vec![1.0, 1.0015, 1.006, -1.0015], 4)?;
    let y = tensor::round_to_bf16(x.clone())?;
    assert_eq!(y.numbers(), [1.0, 1.0, 1.0078125, -1.0]);
    let dx = y.backward(vec![1.0015, 1.006, 1.0, 0.0], None)?.of(&x)?;
    assert_eq!(dx, [1.0, 1.0078125, 1.0, 0.0]);
    Ok(())
}

/// Dropout's mask is random, so the derivative is taken numerically through the same mask.
#[test]
fn attention_with_dropout_differentiates_through_its_mask() -> Result<()> {
    let rules = tensor::Dropout {
        p: 0.3,
        seed: 5,
        step: 2,
        sequences: [7u64, 8].as_slice().into(),
        slices: Default::default(),
    };
    let f =
        |x: &Tensor| scalar(&tensor::causal_attention(x, 2, 0, Some((&rules, "attention")), F32)?);
    let x = Var::from_tensor(&numbers(11, &[2, 5, 24], 1.0).to_dtype(DType::F32)?)?;
    let grads = f(&x)?.backward()?;
    let analytic = flat(grads.get(&x).expect("a gradient"));
    assert_ne!(
        flat(&f(&x)?),
        flat(&scalar(&tensor::causal_attention(x.as_tensor(), 2, 0, None, F32)?)?)
    );
    for i in (0..x.elem_count()).step_by(7) {
        let at = |delta: f64| {
            let mut moved = flat(&x);
            moved[i] += delta;
            let moved = Tensor::from_vec(moved, x.shape(), CPU)?.to_dtype(DType::F32)?;
            f(&moved)?.to_scalar::<f32>().map(f64::from)
        };
        let numeric = (at(0.01)? - at(-0.01)?) / 0.02;
        assert!(
            (numeric - analytic[i]).abs() < 2e-3,
            "element {i}: {} but numerically {numeric}",
            analytic[i]
        );
    }
    Ok(())
}

#[test]
fn linear_bias() {
    let args = [numbers(12, &[2, 3, 5], 1.0), numbers(13, &[7, 5], 1.0), numbers(14, &[7], 1.0)];
    let fused = |x: &Tensor, w: &[Param]| tensor::linear_bias(x, &w[0], &w[1], F32);
    hold("linear_bias", &fused, &|a| plain::linear_bias(a[0], a[1], a[2]), &args);
}

#[test]
fn squared_error() {
    let target = numbers(16, &[3, 19], 1.0);
    let plain_target = target.clone();
    let target: Vec<f32> = flat(&target).into_iter().map(|x| x as f32).collect();
    let fused = |x: &Tensor, _: &[Param]| tensor::squared_error(x, &target);
    hold(
        "squared_error",
        &fused,
        &|a| plain::squared_error(a[0], &plain_target),
        &[numbers(15, &[3, 19], 1.0)],
    );
}

/// Each head has a mask of its own, which it keeps when heads are divided among ranks.
#[test]
fn a_head_keeps_its_dropout_mask_in_any_division() -> Result<()> {
    let rules = tensor::Dropout {
        p: 0.3,
        seed: 5,
        step: 2,
        sequences: [7u64].as_slice().into(),
        slices: Default::default(),
    };
    let length = 6;
    let head = 4;
    let whole = numbers(12, &[1, length, 3, 4 * head], 1.0).to_dtype(DType::F32)?;
    let attend = |first: usize, heads: usize| {
        let part = whole.narrow(3, first * head, heads * head)?.contiguous()?.reshape((
            1,
            length,
            3 * heads * head,
        ))?;
        let dropout = Some((&rules, "attention"));
        tensor::causal_attention(&part, heads, first, dropout, F32)
    };
    let halves = Tensor::cat(&[attend(0, 2)?, attend(2, 2)?], 2)?;
    let error = relative(&flat(&halves), &flat(&attend(0, 4)?));
    assert!(error < 1e-6, "{error:e}");
    // The same numbers in two heads, and yet not the same result.
    let twice =
        Tensor::cat(&[whole.narrow(3, 0, head)?, whole.narrow(3, 0, head)?], 3)?.contiguous()?;
    let y = tensor::causal_attention(
        &twice.reshape((1, length, 6 * head))?,
        2,
        0,
        Some((&rules, "attention")),
        F32,
    )?;
    assert_ne!(flat(&y.narrow(2, 0, head)?), flat(&y.narrow(2, head, head)?));
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() {
    let params = Params::new();
    let weight = params.declare("fc.weight", &[4, 3], Init::Constant(1.0)).unwrap();
    let bias = params.declare("fc.bias", &[3], Init::Constant(1.0)).unwrap();
    let again = params.declare("fc.weight", &[1], Init::Constant(0.0)).map(drop);
    assert!(again.unwrap_err().to_string().contains("must be unique"));
    let x = numbers(1, &[2, 5], 1.0).to_dtype(DType::F32).unwrap();
    let text = |r: Result<Tensor>| r.unwrap_err().to_string();
    assert!(
        text(tensor::linear(&x, &weight, F32))
            .contains("fc.weight takes rows of 3 numbers, not [2, 5]")
    );
    let x = numbers(1, &[2, 3], 1.0).to_dtype(DType::F32).unwrap();
    assert!(
        text(tensor::linear(&x, &weight, F32)).contains("parameter fc.weight has no values yet")
    );
    assert!(
        text(tensor::linear_bias(&x, &weight, &bias, F32))
            .contains("fc.bias has 3 numbers for 4 outputs")
    );
    assert!(
        text(tensor::squared_error(&x, &[0.0; 5]))
            .contains("[2, 3] has 6 elements, and the target 5")
    );
    assert!(text(tensor::cross_entropy(&x, &[0, 3])).contains("need 2 targets below 3"));
    assert!(
        text(tensor::causal_attention(&x, 1, 0, None, F32))
            .contains("[sequences, length, 3 x heads x width]")
    );
    // Offsets do not move any more.
    let late = |r: candle_core::Result<()>| {
        r.unwrap_err().to_string().contains("after the model's layout was built")
    };
    assert!(
        late(params.declare("late", &[1], Init::Constant(0.0)).map(drop))
            && late(weight.tie().map(drop))
    );
}
