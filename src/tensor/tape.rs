//! The tape: a forward pass notes what it does, and a backward pass reads the notes from their end.
//!
//! An [`Activation`] has numbers, and knows where on a tape it was made. Each operation appends a
//! link: the places of its inputs, and what its backward pass needs. So the gradient of an
//! activation is complete when [`Activation::backward`] comes to the operation that made it, since
//! whatever has read it stands behind.
//!
//! Everything that a training does with backward passes is done with this list. A pipeline's stage
//! begins a tape with the activations of another rank ([`Activation::start`]), and reads it from a
//! gradient that comes from there. Zero-bubble schedules run the second halves later
//! ([`Deferred`]). Recomputation makes a part of a tape in the backward pass (`recompute.rs`), and
//! each expert has a tape of its own rows (`routed.rs`).

use super::stored::add;
use candle_core::{Result, Shape, bail};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

/// Numbers that a link and an activation have in common: nothing is copied to be kept.
pub(super) type Floats = Arc<Vec<f32>>;

/// What was done in a pass, in order.
#[derive(Clone, Default)]
pub struct Tape(Arc<Mutex<Vec<Link>>>);

struct Link {
    /// `None`: here the tape begins.
    operation: Option<Arc<dyn Operation>>,
    /// The places of the activations that it has read. `None`: one that is on no tape.
    inputs: Vec<Option<usize>>,
}

/// An operation that has run, with what it has saved for the two halves of its backward pass.
pub(super) trait Operation: Send + Sync {
    /// The gradient of each input, given the result's gradient `dy`. What has a tape inside hands
    /// on `later` to its backward pass.
    fn input_gradients(
        &self,
        dy: &Floats,
        later: &mut Option<&mut Deferred>,
    ) -> Result<Vec<Floats>>;

    fn has_weights(&self) -> bool {
        false
    }

    /// Adds the gradients of the weights. No other operation waits for them.
    fn weight_gradients(&self, _dy: &[f32]) -> Result<()> {
        Ok(())
    }
}

/// The weights' halves of a backward pass, which nobody has run yet. A layer's backward pass has
/// two halves. The previous layer, perhaps on the previous stage of a pipeline, waits for the
/// gradient of the input. Only the optimizer waits for the gradients of the weights. A stage can
/// compute them when it would otherwise be idle (zero-bubble schedules: Qi et al.,
/// arXiv 2401.10241). The price is memory: what they read stays until then.
#[must_use = "the weights have no gradients until `run` is called"]
#[derive(Default)]
pub struct Deferred {
    halves: Vec<(Arc<dyn Operation>, Floats)>,
}

impl Deferred {
    /// Computes the gradients, in the order of the pass. The sums are bitwise the same as without
    /// deferral.
    ///
    /// # Errors
    /// If an operation cannot add its gradient, or a hook fails: a rank has ended with which it
    /// communicates.
    pub fn run(self) -> Result<()> {
        self.halves
            .into_iter()
            .try_for_each(|(operation, dy)| operation.weight_gradients(&dy))
    }
}

/// What operations read and make: f32 numbers of a shape, row-major. A clone has the same numbers.
#[derive(Clone)]
pub struct Activation {
    pub(super) numbers: Floats,
    shape: Shape,
    /// The tape that it is on, and its place there. `None`: no backward pass follows.
    from: Option<(Tape, usize)>,
}

/// The gradients of the activations with which a tape began: what a stage sends back.
pub struct InputGradients(Vec<(usize, Floats)>);

impl Tape {
    /// Appends a link, and returns its place.
    fn append(&self, link: Link) -> usize {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.push(link);
        links.len() - 1
    }

    /// Notes that `operation` has made `numbers`, of shape `shape`, of `inputs`. Whatever is on no
    /// tape makes what is on none.
    pub(super) fn note(
        inputs: &[&Activation],
        (numbers, shape): (Vec<f32>, Shape),
        operation: impl FnOnce(&Floats) -> Arc<dyn Operation>,
    ) -> Result<Activation> {
        let mut all = inputs.iter().filter_map(|x| x.from.as_ref());
        let Some((tape, _)) = all.next() else {
            return Ok(Activation { numbers: Arc::new(numbers), shape, from: None });
        };
        if all.any(|(other, _)| !Arc::ptr_eq(&tape.0, &other.0)) {
            bail!("an operation reads activations of two tapes: one pass makes one tape");
        }
        let inputs = inputs.iter().map(|x| x.from.as_ref().map(|(_, place)| *place)).collect();
        Ok(tape.noted(inputs, (numbers, shape), operation))
    }

    /// Notes that `operation` has made `numbers` of its `inputs`, by their places on this tape. Of
    /// what is no activation, such as tokens, there are none.
    pub(super) fn noted(
        &self,
        inputs: Vec<Option<usize>>,
        (numbers, shape): (Vec<f32>, Shape),
        operation: impl FnOnce(&Floats) -> Arc<dyn Operation>,
    ) -> Activation {
        let numbers = Arc::new(numbers);
        let operation = Some(operation(&numbers));
        let place = self.append(Link { operation, inputs });
        Activation { numbers, shape, from: Some((self.clone(), place)) }
    }
}

impl Activation {
    /// Numbers for a pass that no backward pass follows.
    ///
    /// # Errors
    /// If `shape` has another number of elements.
    pub fn new(numbers: Vec<f32>, shape: impl Into<Shape>) -> Result<Activation> {
        let shape = shape.into();
        if shape.elem_count() != numbers.len() {
            bail!("{} numbers have no shape {:?}", numbers.len(), shape.dims());
        }
        Ok(Activation { numbers: Arc::new(numbers), shape, from: None })
    }

    /// Numbers with which a tape begins, and whose gradient the backward pass computes.
    ///
    /// # Errors
    /// As [`Activation::new`].
    pub fn start(numbers: Vec<f32>, shape: impl Into<Shape>) -> Result<Activation> {
        Activation::new(numbers, shape)?.started(&Tape::default())
    }

    /// These numbers as a beginning of `tape`, of which there may be several.
    ///
    /// # Errors
    /// If they are on a tape.
    pub fn started(self, tape: &Tape) -> Result<Activation> {
        if self.from.is_some() {
            bail!("this activation is on a tape");
        }
        let place = tape.append(Link { operation: None, inputs: Vec::new() });
        Ok(Activation { from: Some((tape.clone(), place)), ..self })
    }

    /// Runs the backward pass from here, given the gradient of these numbers. It reads the tape
    /// once, and frees each link when it is done. The weights' halves run at once, or are put into
    /// `later`.
    ///
    /// # Errors
    /// If no tape was made, or it has been read, or an operation fails.
    pub fn backward(self, dy: Vec<f32>, later: Option<&mut Deferred>) -> Result<InputGradients> {
        self.backward_from(Arc::new(dy), later)
    }

    // ANCHOR: backward
    pub(super) fn backward_from(
        self,
        dy: Floats,
        mut later: Option<&mut Deferred>,
    ) -> Result<InputGradients> {
        let (mut links, end) = self.taken(&dy)?;
        let mut gradients: Vec<Option<Floats>> = vec![None; end + 1];
        gradients[end] = Some(dy);
        let mut starts = Vec::new();
        while let (Some(Link { operation, inputs }), Some(dy)) = (links.pop(), gradients.pop()) {
            let Some(dy) = dy else {
                continue; // nothing behind it has read the result
            };
            let Some(operation) = operation else {
                starts.push((links.len(), dy));
                continue;
            };
            let of_inputs = operation.input_gradients(&dy, &mut later)?;
            for (place, dx) in inputs.into_iter().zip(of_inputs) {
                if let Some(place) = place {
                    let others = gradients[place].take();
                    gradients[place] = Some(summed(others, dx));
                }
            }
            match &mut later {
                _ if !operation.has_weights() => {}
                None => operation.weight_gradients(&dy)?,
                Some(later) => later.halves.push((operation, dy)),
            }
        }
        Ok(InputGradients(starts))
    }
    // ANCHOR_END: backward

    /// The links up to here, taken off the tape, and the place of the last one.
    fn taken(self, dy: &[f32]) -> Result<(Vec<Link>, usize)> {
        if dy.len() != self.shape.elem_count() {
            bail!("{} numbers are no gradient of {:?}", dy.len(), self.dims());
        }
        let Some((tape, end)) = self.from else {
            bail!("nothing was noted for a backward pass: is this a pass that trains?");
        };
        let mut links = mem::take(&mut *tape.0.lock().unwrap_or_else(PoisonError::into_inner));
        if links.len() <= end {
            bail!("a tape serves one backward pass, and this one has been read");
        }
        links.truncate(end + 1);
        Ok((links, end))
    }

    /// The elements, row-major.
    pub fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    /// The elements, without a copy where nobody else has them.
    pub fn into_numbers(self) -> Vec<f32> {
        drop(self.from);
        Arc::unwrap_or_clone(self.numbers)
    }

    /// The only element.
    ///
    /// # Errors
    /// If there are more.
    pub fn scalar(&self) -> Result<f32> {
        match self.numbers() {
            [number] => Ok(*number),
            _ => bail!("{:?} is no scalar", self.dims()),
        }
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub fn dims(&self) -> &[usize] {
        self.shape.dims()
    }

    /// # Errors
    /// If there are not two dimensions.
    pub fn dims2(&self) -> Result<(usize, usize)> {
        self.shape.dims2()
    }

    /// # Errors
    /// If there are not three dimensions.
    pub fn dims3(&self) -> Result<(usize, usize, usize)> {
        self.shape.dims3()
    }

    /// Whether a backward pass may come by here.
    pub fn is_recorded(&self) -> bool {
        self.from.is_some()
    }

    /// Numbers that others have, too, on no tape.
    pub(super) fn sharing(numbers: Floats, shape: Shape) -> Activation {
        Activation { numbers, shape, from: None }
    }

    /// This place on the tape, without the numbers.
    pub(super) fn emptied(self) -> Activation {
        Activation { numbers: Floats::default(), ..self }
    }

    /// The same numbers, on no tape.
    pub fn detached(&self) -> Activation {
        Activation { from: None, ..self.clone() }
    }

    /// The same numbers in another shape.
    ///
    /// # Errors
    /// If that has another number of elements.
    pub fn reshaped(self, shape: impl Into<Shape>) -> Result<Activation> {
        let shape = shape.into();
        if shape.elem_count() != self.numbers.len() {
            bail!("{:?} cannot have the shape {:?}", self.dims(), shape.dims());
        }
        Ok(Activation { shape, ..self })
    }
}

impl InputGradients {
    /// The gradient of `x`, with which the tape began.
    ///
    /// # Errors
    /// If nothing in the pass has read it.
    pub fn of(&mut self, x: &Activation) -> Result<Vec<f32>> {
        let place = x.from.as_ref().map(|(_, place)| *place);
        match self.0.iter().position(|(start, _)| Some(*start) == place) {
            Some(found) => Ok(Arc::unwrap_or_clone(self.0.swap_remove(found).1)),
            None => bail!("this backward pass did not reach the start of shape {:?}", x.dims()),
        }
    }
}

/// The sum of the gradients that two readers of one activation have for it, in the memory of one.
fn summed(first: Option<Floats>, second: Floats) -> Floats {
    let Some(first) = first else {
        return second;
    };
    let (mut sum, other) = match Arc::try_unwrap(second) {
        Ok(second) => (second, first),
        Err(second) => (Arc::unwrap_or_clone(first), second),
    };
    add(&mut sum, &other);
    Arc::new(sum)
}

/// `x + y`, in the memory of `y` unless somebody keeps that.
///
/// # Errors
/// If they do not have one shape.
pub fn sum(x: &Activation, y: Activation) -> Result<Activation> {
    if x.dims() != y.dims() {
        bail!("{:?} and {:?} have no sum", x.dims(), y.dims());
    }
    let numbers = y.numbers.clone();
    let y = y.emptied();
    let mut sum = Arc::unwrap_or_clone(numbers);
    add(&mut sum, x.numbers());
    Tape::note(&[x, &y], (sum, y.shape().clone()), |_| Arc::new(Sum))
}

struct Sum;

impl Operation for Sum {
    fn input_gradients(&self, dy: &Floats, _: &mut Option<&mut Deferred>) -> Result<Vec<Floats>> {
        Ok(vec![dy.clone(), dy.clone()])
    }
}

/// Results of one number of rows side by side: [.., sum of widths].
///
/// # Errors
/// If there are none, or their rows differ in number.
pub fn side_by_side(parts: &[Activation]) -> Result<Activation> {
    let Some([outer @ .., _]) = parts.first().map(Activation::dims) else {
        bail!("nothing stands side by side");
    };
    let width = |part: &Activation| part.dims().last().copied().unwrap_or(0);
    let widths: Vec<usize> = parts.iter().map(width).collect();
    let n: usize = outer.iter().product();
    if parts.iter().zip(&widths).any(|(part, width)| part.numbers.len() != n * width) {
        bail!("parts of different numbers of rows do not stand side by side");
    }
    let mut y = Vec::with_capacity(n * widths.iter().sum::<usize>());
    for row in 0..n {
        for (part, width) in parts.iter().zip(&widths) {
            y.extend_from_slice(&part.numbers[row * width..][..*width]);
        }
    }
    let shape = [outer, &[widths.iter().sum()]].concat().into();
    let parts: Vec<&Activation> = parts.iter().collect();
    Tape::note(&parts, (y, shape), |_| Arc::new(SideBySide { widths }))
}

struct SideBySide {
    widths: Vec<usize>,
}

impl Operation for SideBySide {
    fn input_gradients(&self, dy: &Floats, _: &mut Option<&mut Deferred>) -> Result<Vec<Floats>> {
        let all: usize = self.widths.iter().sum();
        let mut start = 0;
        let columns = self.widths.iter().map(|&width| {
            let of_part = dy.chunks_exact(all.max(1)).flat_map(|row| &row[start..start + width]);
            let of_part = Arc::new(of_part.copied().collect());
            start += width;
            of_part
        });
        Ok(columns.collect())
    }
}
