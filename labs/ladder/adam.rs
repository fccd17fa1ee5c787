//! The optimizer.

/// Adam's state for some parameters: two numbers each. A slice of the parameters needs a slice of
/// the state.
pub struct Adam {
    steps: i32,
    mean: Vec<f32>,
    square: Vec<f32>,
}

const LR: f32 = 3e-3;
const BETA1: f32 = 0.9;
const BETA2: f32 = 0.99;
const EPSILON: f32 = 1e-8;

impl Adam {
    /// The state of `numel` parameters before the first step.
    pub fn new(numel: usize) -> Adam {
        Adam { steps: 0, mean: vec![0.0; numel], square: vec![0.0; numel] }
    }

    /// How many parameters this state is for.
    pub fn numel(&self) -> usize {
        self.mean.len()
    }

    /// Kingma and Ba's update, with its corrections for the first steps.
    pub(crate) fn update(&mut self, weights: &mut [f32], gradients: &[f32]) {
        self.steps += 1;
        let unbias1 = 1.0 - BETA1.powi(self.steps);
        let unbias2 = 1.0 - BETA2.powi(self.steps);
        for (i, (w, &g)) in weights.iter_mut().zip(gradients).enumerate() {
            let m = &mut self.mean[i];
            let v = &mut self.square[i];
            *m = BETA1 * *m + (1.0 - BETA1) * g;
            *v = BETA2 * *v + (1.0 - BETA2) * g * g;
            *w -= LR * (*m / unbias1) / ((*v / unbias2).sqrt() + EPSILON);
        }
    }
}
