//! Rows that take different ways, as tokens do to their experts: copies of rows, layers that each
//! take some of them, and weighted sums of what these make.
//!
//! candle's own operations do the same. In its backward pass each of them makes a tensor of all
//! rows, and adds it to another one, once for every layer that takes a few of them.

use super::graph::{TensorOp, apply, rows};
use super::in_place::{elements, free};
use super::{backward_from, gradient, read};
use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, Device, Layout, Result, Shape, Tensor, Var, bail,
};
use std::sync::{Mutex, PoisonError};

/// The rows of `x` [.., width] at `places`, each as often as it stands there: [places, width].
///
/// Backward: a row's gradient is the sum over its copies.
///
/// # Errors
/// If there is no row at a place.
pub fn picked(x: &Tensor, places: Vec<u32>) -> Result<Tensor> {
    apply(x, Picked { places })
}

struct Picked {
    places: Vec<u32>,
}

impl TensorOp for Picked {
    const NAME: &'static str = "copies of rows";

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let (all, width) = rows(dims)?;
        if let Some(place) = self.places.iter().find(|&&place| place as usize >= all) {
            bail!("there is no row {place} among {all}");
        }
        Ok((gathered(x, width, &self.places), (self.places.len(), width).into()))
    }

    fn input_gradient(&self, x: &[f32], dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        let (_, width) = rows(dims)?;
        let mut dx = vec![0.0; x.len()];
        for (dy, &place) in dy.chunks_exact(width).zip(&self.places) {
            row(&mut dx, width, place).iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy);
        }
        Ok(dx)
    }
}

/// `x` [rows, width] in parts: part i has the rows at `places[i]`, and `layer` makes as many rows
/// of it. Returns these in the places of what they were made of. Each row belongs to one part. The
/// memory of `x` is freed.
///
/// Backward: every part has a graph of its own, whose backward pass gets its rows' gradients.
///
/// # Errors
/// If `layer` fails or makes another number of rows, or a row is in no part.
pub fn by_parts(
    x: Tensor,
    places: Vec<Vec<u32>>,
    mut layer: impl FnMut(usize, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let (all, width) = x.dims2()?;
    if places.iter().map(Vec::len).sum::<usize>() != all {
        bail!("parts have to contain each of {all} rows once");
    }
    let mut parts = Vec::new();
    for (number, places) in places.into_iter().enumerate() {
        let shape = (places.len(), width);
        let part = read(&x, |x| Ok(gathered(x, width, &places)))?;
        // Without a backward pass candle has no graph to record.
        let (start, y) = if x.track_op() {
            let start = Var::from_vec(part, shape, &Device::Cpu)?;
            let y = layer(number, &start)?;
            (Some(start), y)
        } else {
            (None, layer(number, &Tensor::from_vec(part, shape, &Device::Cpu)?)?)
        };
        if y.dims2()?.0 != places.len() {
            bail!("a layer made {:?} of {shape:?}", y.shape());
        }
        parts.push(Part { places, start, y });
    }
    let y = x.apply_op1(Joined { parts: Mutex::new(parts) })?;
    free(&x)?;
    Ok(y)
}

struct Part {
    places: Vec<u32>,
    /// Where its graph begins, if there is one.
    start: Option<Var>,
    y: Tensor,
}

struct Joined {
    parts: Mutex<Vec<Part>>,
}

impl CustomOp1 for Joined {
    fn name(&self) -> &'static str {
        "parts"
    }

    fn cpu_fwd(&self, _x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let width = parts.first().map_or(Ok(0), |part| part.y.dim(1))?;
        let shape = (layout.dims()[0], width);
        let mut y = vec![0.0; shape.0 * width];
        for part in parts.iter() {
            read(&part.y, |of_part| scattered(&mut y, width, &part.places, of_part))?;
        }
        Ok((CpuStorage::F32(y), shape.into()))
    }

    fn bwd(&self, x: &Tensor, _y: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        // Each graph is freed when its backward pass is done.
        let parts = std::mem::take(&mut *self.parts.lock().unwrap_or_else(PoisonError::into_inner));
        let (_, width) = x.dims2()?;
        let mut dx = vec![0.0; x.elem_count()];
        // The last one first: gradients become complete from the model's end to its start.
        for Part { places, start, y } in parts.into_iter().rev() {
            let Some(start) = start else {
                bail!("these parts were computed without a graph");
            };
            let of_part = read(dy, |dy| Ok(gathered(dy, y.dim(1)?, &places)))?;
            let gradients = backward_from(&y, &Tensor::from_vec(of_part, y.shape(), dy.device())?)?;
            read(&gradient(&gradients, &start)?, |of_part| {
                scattered(&mut dx, width, &places, of_part)
            })?;
        }
        Tensor::from_vec(dx, x.shape(), x.device()).map(Some)
    }
}

/// For each of the tokens of `weights` [.., chosen] the sum of its rows of `x` [rows, width], each
/// times its weight: [.., width]. `places` has for each weight the place of its row, which no
/// other weight has. A weight without a place adds nothing.
///
/// # Errors
/// If there are more or fewer places or rows than weights, or there is no row at a place.
pub fn weighted_sums(x: &Tensor, weights: &Tensor, places: Vec<Option<u32>>) -> Result<Tensor> {
    let all = x.dims2()?.0;
    let mut found = places.iter().flatten();
    if places.len() != weights.elem_count()
        || found.clone().count() != all
        || found.any(|&place| place as usize >= all)
    {
        bail!("{:?} weights need a row each, out of {:?}", weights.dims(), x.dims());
    }
    x.apply_op2(weights, WeightedSums { places })
}

struct WeightedSums {
    places: Vec<Option<u32>>,
}

impl CustomOp2 for WeightedSums {
    fn name(&self) -> &'static str {
        "weighted sums"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        of_x: &Layout,
        weights: &CpuStorage,
        of_weights: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, weights) = (elements(x, of_x)?, elements(weights, of_weights)?);
        let (_, width) = rows(of_x.dims())?;
        let (tokens, chosen) = rows(of_weights.dims())?;
        let mut y = vec![0.0; tokens * width];
        for (at, (weight, place)) in weights.iter().zip(&self.places).enumerate() {
            let Some(place) = *place else { continue };
            let x = &x[place as usize * width..][..width];
            let y = row(&mut y, width, (at / chosen) as u32);
            y.iter_mut().zip(x).for_each(|(y, x)| *y += weight * x);
        }
        let outer = &of_weights.dims()[..of_weights.dims().len() - 1];
        Ok((CpuStorage::F32(y), [outer, &[width]].concat().into()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weights: &Tensor,
        _y: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (_, width) = x.dims2()?;
        let (_, chosen) = rows(weights.dims())?;
        let mut dx = vec![0.0; x.elem_count()];
        let mut dw = Vec::with_capacity(self.places.len());
        read(x, |x| {
            read(weights, |weights| {
                read(dy, |dy| {
                    for (at, (weight, place)) in weights.iter().zip(&self.places).enumerate() {
                        let Some(place) = *place else {
                            dw.push(0.0);
                            continue;
                        };
                        let dy = &dy[at / chosen * width..][..width];
                        let x = &x[place as usize * width..][..width];
                        dw.push(dy.iter().zip(x).map(|(dy, x)| dy * x).sum::<f32>());
                        let dx = row(&mut dx, width, place);
                        dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx = weight * dy);
                    }
                    Ok(())
                })
            })
        })?;
        let dx = Tensor::from_vec(dx, x.shape(), x.device())?;
        let dw = Tensor::from_vec(dw, weights.shape(), weights.device())?;
        Ok((Some(dx), Some(dw)))
    }
}

/// The rows of `x` at `places`.
fn gathered(x: &[f32], width: usize, places: &[u32]) -> Vec<f32> {
    let mut all = Vec::with_capacity(places.len() * width);
    for &place in places {
        all.extend_from_slice(&x[place as usize * width..][..width]);
    }
    all
}

/// Writes rows `x` to their `places` in `y`.
fn scattered(y: &mut [f32], width: usize, places: &[u32], x: &[f32]) -> Result<()> {
    for (x, &place) in x.chunks_exact(width.max(1)).zip(places) {
        row(y, width, place).copy_from_slice(x);
    }
    Ok(())
}

fn row(x: &mut [f32], width: usize, place: u32) -> &mut [f32] {
    &mut x[place as usize * width..][..width]
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::DType;

    const WIDTH: usize = 3;

    fn var(rows: usize, seed: f32) -> Var {
        let number = |i: usize| ((i * 7 % 11) as f32 + seed).sin();
        let all: Vec<f32> = (0..rows * WIDTH).map(number).collect();
        Var::from_vec(all, (rows, WIDTH), &Device::Cpu).unwrap()
    }

    fn numbers(x: &Tensor) -> Vec<f32> {
        x.flatten_all().unwrap().to_vec1().unwrap()
    }

    /// The result, and the gradients of `vars` in the sum of its squares.
    fn run(y: &Tensor, vars: &[&Var]) -> Vec<f32> {
        let gradients = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        let of = |var: &&Var| numbers(gradients.get(var).unwrap());
        [numbers(y)].into_iter().chain(vars.iter().map(of)).flatten().collect()
    }

    fn same(a: &[f32], b: &[f32]) {
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6), "{a:?} {b:?}");
    }

    /// Copies, layers and sums, beside candle's own operations.
    #[test]
    fn rows_go_and_come_back_as_in_candle() {
        let (x, scale) = (var(3, 0.3), var(1, 0.7));
        let weights = Var::from_slice(&[0.2f32, 0.8, 0.5, 0.5, 0.9, 0.1], (3, 2), &Device::Cpu);
        let weights = weights.unwrap();
        // Copies of tokens 1 0 2 2 1 0; the first of token 0's weights belongs to copy 1.
        let (tokens, places) = (vec![1, 0, 2, 2, 1, 0], vec![1, 5, 4, 0, 2, 3]);
        let copies = picked(&x, tokens.clone()).unwrap();
        let parts = vec![vec![1, 4, 5], vec![], vec![0, 2, 3]];
        let layer =
            |part: usize, x: &Tensor| x.broadcast_mul(&scale)?.affine(part as f64 + 1.0, 0.0);
        let y = by_parts(copies, parts, layer).unwrap();
        let all = places.iter().copied().map(Some).collect();
        let y = weighted_sums(&y, &weights, all).unwrap();
        // A layer's own parameters have no tensor on the graph outside.
        let ours = run(&y, &[&x, &weights]);

        let index = |all: &[u32]| Tensor::from_slice(all, all.len(), &Device::Cpu).unwrap();
        let copies = x.index_select(&index(&tokens), 0).unwrap();
        let part = Tensor::from_slice(&[3f32, 1.0, 3.0, 3.0, 1.0, 1.0], (6, 1), &Device::Cpu);
        let y = copies.broadcast_mul(&scale).unwrap().broadcast_mul(&part.unwrap()).unwrap();
        let y = y.index_select(&index(&places), 0).unwrap();
        let y = y.broadcast_mul(&weights.flatten_all().unwrap().unsqueeze(1).unwrap()).unwrap();
        let y = y.reshape((3, 2, WIDTH)).unwrap().sum(1).unwrap();
        same(&ours, &run(&y, &[&x, &weights]));
    }

    /// The second token keeps one of its two experts.
    #[test]
    fn a_weight_without_a_row_adds_and_learns_nothing() {
        let x = var(3, 0.3);
        let weights = Var::from_slice(&[0.2f32, 0.8, 0.5, 0.6], (2, 2), &Device::Cpu).unwrap();
        let places = vec![Some(1), Some(0), None, Some(2)];
        let found = run(&weighted_sums(&x, &weights, places).unwrap(), &[&x, &weights]);
        let row = |i| x.narrow(0, i, 1).unwrap();
        let weight = |i, j| weights.narrow(0, i, 1).unwrap().narrow(1, j, 1).unwrap();
        let times = |place, i, j| row(place).broadcast_mul(&weight(i, j)).unwrap();
        let first = (times(1, 0, 0) + times(0, 0, 1)).unwrap();
        let y = Tensor::cat(&[first, times(2, 1, 1)], 0).unwrap();
        same(&found, &run(&y, &[&x, &weights]));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let x = var(2, 0.1);
        let says = |result: Result<Tensor>| result.unwrap_err().to_string();
        assert!(says(picked(&x, vec![0, 2])).contains("there is no row 2 among 2"));
        let identity = |_, x: &Tensor| Ok(x.clone());
        let few = by_parts(x.as_tensor().copy().unwrap(), vec![vec![0]], identity);
        assert!(says(few).contains("each of 2 rows once"));
        let fewer = |_: usize, x: &Tensor| x.narrow(0, 0, 1);
        let fewer = by_parts(x.as_tensor().copy().unwrap(), vec![vec![0, 1]], fewer);
        assert!(says(fewer).contains("a layer made [1, 3] of (2, 3)"));
        let weights = Tensor::ones((2, 2), DType::F32, &Device::Cpu).unwrap();
        for places in [vec![Some(0), Some(1)], vec![Some(0), Some(2), None, None], vec![None; 4]] {
            assert!(says(weighted_sums(&x, &weights, places)).contains("need a row each"));
        }
    }
}
