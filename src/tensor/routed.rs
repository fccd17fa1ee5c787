//! Rows that take different ways, as tokens do to their experts: copies of rows, layers that each
//! take some of them, and weighted sums of what these make.
//!
//! candle's own operations do the same. In its backward pass each of them makes a tensor of all
//! rows, and adds it to another one, once for every layer that takes a few of them.

use super::operation::{Operand, TensorOp, apply, rows};
use super::tape::{Activation, Deferred, Floats, Operation, Tape};
use candle_core::{Result, Shape, bail};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

/// The rows of `x` [.., D] at `places`, each as often as it stands there: [places, D].
///
/// Backward: a row's gradient is the sum over its copies.
///
/// # Errors
/// If there is no row at a place.
pub fn picked<X: Operand>(x: &X, places: Vec<u32>) -> Result<X> {
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

/// Which rows a part takes, and where the rows go that a layer makes of them.
pub struct Route {
    pub from: Vec<u32>,
    pub to: Vec<u32>,
}

/// Each layer's part of `x` [.., D], and what it makes of it: [all parts' rows, width].
/// Several parts may take one row. The backward pass does not need `x`.
///
/// Backward: every part has a tape of its own, whose backward pass gets its rows' gradients. A row
/// of `x` gets the sum of its parts', in their order.
///
/// # Errors
/// If `layer` fails or makes another number of rows, a part takes a row that is not there, or rows
/// do not go to one place each.
pub fn by_parts(
    x: Activation,
    routes: Vec<Route>,
    mut layer: impl FnMut(usize, &Activation) -> Result<Activation>,
) -> Result<Activation> {
    let (all_rows, width) = rows(x.dims())?;
    ensure_routes(&routes, all_rows)?;
    let all: usize = routes.iter().map(|route| route.to.len()).sum();
    let mut parts = Vec::new();
    let mut y = Vec::new();
    let mut wide = 0;
    for (number, route) in routes.into_iter().enumerate() {
        let shape = (route.from.len(), width);
        let part = Activation::new(gathered(x.numbers(), width, &route.from), shape)?;
        let start = if x.is_recorded() {
            part.started(&Tape::default())?
        } else {
            part
        };
        let of_part = layer(number, &start)?;
        let (made, of_row) = of_part.dims2()?;
        if made != route.to.len() {
            bail!("a layer made {:?} of {shape:?}", of_part.shape());
        }
        wide = of_row;
        y.resize(all * wide, 0.0);
        scattered(&mut y, wide, &route.to, of_part.numbers());
        parts.push(Part { route, start: start.emptied(), end: of_part.emptied() });
    }
    let x = x.emptied();
    Tape::note(&[&x], (y, (all, wide).into()), |_| {
        Arc::new(Parts { parts: Mutex::new(parts), shape: (all_rows, width) })
    })
}

/// Refuses routes that leave a place empty, or begin where no row is.
fn ensure_routes(routes: &[Route], rows: usize) -> Result<()> {
    let all: usize = routes.iter().map(|route| route.to.len()).sum();
    let mut taken = vec![false; all];
    for Route { from, to } in routes {
        if from.len() != to.len() || from.iter().any(|&row| row as usize >= rows) {
            bail!("a part takes {} of {rows} rows to {} places", from.len(), to.len());
        }
        for &place in to {
            match taken.get_mut(place as usize) {
                Some(taken) if !*taken => *taken = true,
                _ => bail!("{all} rows go to {all} places, and two to place {place}"),
            }
        }
    }
    Ok(())
}

struct Part {
    route: Route,
    /// Where its tape begins and ends.
    start: Activation,
    end: Activation,
}

struct Parts {
    parts: Mutex<Vec<Part>>,
    /// Of the rows that went in.
    shape: (usize, usize),
}

impl Operation for Parts {
    fn input_gradients(
        &self,
        dy: &Floats,
        later: &mut Option<&mut Deferred>,
    ) -> Result<Vec<Floats>> {
        let parts = mem::take(&mut *self.parts.lock().unwrap_or_else(PoisonError::into_inner));
        let mut found = Vec::with_capacity(parts.len());
        // The last one first: gradients become complete from the model's end to its start.
        for Part { route, start, end } in parts.into_iter().rev() {
            let (_, width) = end.dims2()?;
            let of_part = gathered(dy, width, &route.to);
            let mut gradients = end.backward(of_part, later.as_deref_mut())?;
            found.push((route.from, gradients.of(&start)?));
        }
        let (rows, width) = self.shape;
        let mut dx = vec![0.0; rows * width];
        for (from, of_part) in found.into_iter().rev() {
            for (&place, of_row) in from.iter().zip(of_part.chunks_exact(width.max(1))) {
                row(&mut dx, width, place).iter_mut().zip(of_row).for_each(|(dx, dy)| *dx += dy);
            }
        }
        Ok(vec![Arc::new(dx)])
    }
}

/// For each of the tokens of `weights` [.., k] the sum of its rows of `x` [rows, D], each
/// times its weight: [.., D]. `places` has for each weight the place of its row, which no
/// other weight has. A weight without a place adds nothing.
///
/// # Errors
/// If there are more or fewer places or rows than weights, or there is no row at a place.
pub fn weighted_sums(
    x: &Activation,
    weights: &Activation,
    places: Vec<Option<u32>>,
) -> Result<Activation> {
    let (all, width) = x.dims2()?;
    let mut found = places.iter().flatten();
    if places.len() != weights.numbers().len()
        || found.clone().count() != all
        || found.any(|&place| place as usize >= all)
    {
        bail!("{:?} weights need a row each, out of {:?}", weights.dims(), x.dims());
    }
    let (tokens, chosen) = rows(weights.dims())?;
    let mut y = vec![0.0; tokens * width];
    for (at, (weight, place)) in weights.numbers().iter().zip(&places).enumerate() {
        let Some(place) = *place else { continue };
        let x = &x.numbers()[place as usize * width..][..width];
        let y = row(&mut y, width, (at / chosen) as u32);
        y.iter_mut().zip(x).for_each(|(y, x)| *y += weight * x);
    }
    let outer = &weights.dims()[..weights.dims().len() - 1];
    let shape = [outer, &[width]].concat().into();
    Tape::note(&[x, weights], (y, shape), |_| {
        let (x, weights) = (x.numbers.clone(), weights.numbers.clone());
        Arc::new(WeightedSums { x, width, weights, chosen, places })
    })
}

struct WeightedSums {
    x: Floats,
    width: usize,
    weights: Floats,
    /// Weights of a token.
    chosen: usize,
    places: Vec<Option<u32>>,
}

impl Operation for WeightedSums {
    fn input_gradients(&self, dy: &Floats, _: &mut Option<&mut Deferred>) -> Result<Vec<Floats>> {
        let width = self.width;
        let mut dx = vec![0.0; self.x.len()];
        let mut dw = Vec::with_capacity(self.places.len());
        for (at, (weight, place)) in self.weights.iter().zip(&self.places).enumerate() {
            let Some(place) = *place else {
                dw.push(0.0);
                continue;
            };
            let dy = &dy[at / self.chosen * width..][..width];
            let x = &self.x[place as usize * width..][..width];
            dw.push(dy.iter().zip(x).map(|(dy, x)| dy * x).sum::<f32>());
            let dx = row(&mut dx, width, place);
            dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx = weight * dy);
        }
        Ok(vec![Arc::new(dx), Arc::new(dw)])
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
fn scattered(y: &mut [f32], width: usize, places: &[u32], x: &[f32]) {
    for (x, &place) in x.chunks_exact(width.max(1)).zip(places) {
        row(y, width, place).copy_from_slice(x);
    }
}

fn row(x: &mut [f32], width: usize, place: u32) -> &mut [f32] {
    &mut x[place as usize * width..][..width]
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Tensor, Var};

    const WIDTH: usize = 3;

    fn numbers(rows: usize, seed: f32) -> Vec<f32> {
        (0..rows * WIDTH).map(|i| ((i * 7 % 11) as f32 + seed).sin()).collect()
    }

    fn var(numbers: &[f32], rows: usize) -> Var {
        let shape = (rows, numbers.len() / rows);
        Var::from_slice(numbers, shape, &Device::Cpu).unwrap()
    }

    fn start(tape: &Tape, numbers: &[f32], rows: usize) -> Activation {
        let shape = (rows, numbers.len() / rows);
        Activation::new(numbers.to_vec(), shape).unwrap().started(tape).unwrap()
    }

    /// The result, and the gradients of `starts` in the sum of its squares.
    fn run(y: &Activation, starts: &[&Activation]) -> Vec<f32> {
        let mut all = y.numbers().to_vec();
        let dy = all.iter().map(|y| 2.0 * y).collect();
        let mut gradients = y.clone().backward(dy, None).unwrap();
        starts.iter().for_each(|start| all.extend(gradients.of(start).unwrap()));
        all
    }

    /// The same in candle.
    fn run_in_candle(y: &Tensor, vars: &[&Var]) -> Vec<f32> {
        let gradients = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        let numbers = |x: &Tensor| x.flatten_all().unwrap().to_vec1().unwrap();
        let of = |var: &&Var| numbers(gradients.get(var).unwrap());
        [numbers(y)].into_iter().chain(vars.iter().map(of)).flatten().collect()
    }

    fn same(a: &[f32], b: &[f32]) {
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6), "{a:?} {b:?}");
    }

    /// Multiplies each row by one.
    struct Scaled(Vec<f32>);

    impl TensorOp for Scaled {
        const NAME: &'static str = "scaled";

        fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
            Ok((self.input_gradient(x, dims, x)?, dims.into()))
        }

        fn input_gradient(&self, _: &[f32], _: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
            Ok(dy.iter().zip(self.0.iter().cycle()).map(|(x, scale)| x * scale).collect())
        }
    }

    /// Copies, layers and sums, beside candle's own operations.
    #[test]
    fn rows_go_and_come_back_as_in_candle() {
        let (of_x, scale) = (numbers(3, 0.3), numbers(1, 0.7));
        let of_weights = [0.2f32, 0.8, 0.5, 0.5, 0.9, 0.1];
        // Copies of tokens 1 0 2 2 1 0; the first of token 0's weights belongs to copy 1.
        let (tokens, places) = (vec![1, 0, 2, 2, 1, 0], vec![1, 5, 4, 0, 2, 3]);
        let back = |places: Vec<u32>| Route { from: places.clone(), to: places };
        let parts = [vec![1, 4, 5], vec![], vec![0, 2, 3]].map(back).into();
        let tape = Tape::default();
        let (x, weights) = (start(&tape, &of_x, 3), start(&tape, &of_weights, 3));
        let copies = picked(&x, tokens.clone()).unwrap();
        let layer = |part: usize, x: &Activation| {
            apply(x, Scaled(scale.iter().map(|scale| scale * (part as f32 + 1.0)).collect()))
        };
        let y = by_parts(copies, parts, layer).unwrap();
        let all: Vec<Option<u32>> = places.iter().copied().map(Some).collect();
        let y = weighted_sums(&y, &weights, all.clone()).unwrap();
        let ours = run(&y, &[&x, &weights]);
        // Without the copies: parts take the tokens' rows themselves.
        let tape = Tape::default();
        let (x, weights) = (start(&tape, &of_x, 3), start(&tape, &of_weights, 3));
        let part = |from: [u32; 3], to: [u32; 3]| Route { from: from.into(), to: to.into() };
        let none = Route { from: Vec::new(), to: Vec::new() };
        let parts = vec![part([0, 1, 0], [1, 4, 5]), none, part([1, 2, 2], [0, 2, 3])];
        let y = by_parts(x.clone(), parts, layer).unwrap();
        let y = weighted_sums(&y, &weights, all.clone()).unwrap();
        same(&run(&y, &[&x, &weights]), &ours);

        let (x, weights, scale) = (var(&of_x, 3), var(&of_weights, 3), var(&scale, 1));
        let index = |all: &[u32]| Tensor::from_slice(all, all.len(), &Device::Cpu).unwrap();
        let copies = x.index_select(&index(&tokens), 0).unwrap();
        let part = Tensor::from_slice(&[3f32, 1.0, 3.0, 3.0, 1.0, 1.0], (6, 1), &Device::Cpu);
        let y = copies.broadcast_mul(&scale).unwrap().broadcast_mul(&part.unwrap()).unwrap();
        let y = y.index_select(&index(&places), 0).unwrap();
        let y = y.broadcast_mul(&weights.flatten_all().unwrap().unsqueeze(1).unwrap()).unwrap();
        let y = y.reshape((3, 2, WIDTH)).unwrap().sum(1).unwrap();
        same(&ours, &run_in_candle(&y, &[&x, &weights]));
    }

    /// The second token keeps one of its two experts.
    #[test]
    fn a_weight_without_a_row_adds_and_learns_nothing() {
        let (of_x, of_weights) = (numbers(3, 0.3), [0.2f32, 0.8, 0.5, 0.6]);
        let tape = Tape::default();
        let (x, weights) = (start(&tape, &of_x, 3), start(&tape, &of_weights, 2));
        let places = vec![Some(1), Some(0), None, Some(2)];
        let found = run(&weighted_sums(&x, &weights, places).unwrap(), &[&x, &weights]);
        let (x, weights) = (var(&of_x, 3), var(&of_weights, 2));
        let row = |i| x.narrow(0, i, 1).unwrap();
        let weight = |i, j| weights.narrow(0, i, 1).unwrap().narrow(1, j, 1).unwrap();
        let times = |place, i, j| row(place).broadcast_mul(&weight(i, j)).unwrap();
        let first = (times(1, 0, 0) + times(0, 0, 1)).unwrap();
        let y = Tensor::cat(&[first, times(2, 1, 1)], 0).unwrap();
        same(&found, &run_in_candle(&y, &[&x, &weights]));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let x = Activation::new(numbers(2, 0.1), (2, WIDTH)).unwrap();
        let says = |result: Result<Activation>| result.map(drop).unwrap_err().to_string();
        assert!(says(picked(&x, vec![0, 2])).contains("there is no row 2 among 2"));
        let identity = |_, x: &Activation| Ok(x.clone());
        let route = |from: &[u32], to: &[u32]| Route { from: from.into(), to: to.into() };
        for (from, to) in [(vec![2], vec![0]), (vec![0], vec![])] {
            let refused = says(by_parts(x.clone(), vec![route(&from, &to)], identity));
            assert!(refused.contains("a part takes 1 of 2 rows"), "{refused}");
        }
        for to in [[0, 0], [0, 2]] {
            let refused = says(by_parts(x.clone(), vec![route(&[0, 1], &to)], identity));
            assert!(refused.contains("2 rows go to 2 places"), "{refused}");
        }
        let fewer = |_: usize, x: &Activation| picked(x, vec![0]);
        let fewer = by_parts(x.clone(), vec![route(&[0, 1], &[0, 1])], fewer);
        assert!(says(fewer).contains("a layer made [1, 3] of (2, 3)"));
        let weights = Activation::new(vec![1.0; 4], (2, 2)).unwrap();
        for places in [vec![Some(0), Some(1)], vec![Some(0), Some(2), None, None], vec![None; 4]] {
            assert!(says(weighted_sums(&x, &weights, places)).contains("need a row each"));
        }
    }
}
