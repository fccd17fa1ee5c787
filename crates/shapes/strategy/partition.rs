//! The layers of each stage.

use crate::error::BadInput;
use crate::model::ModelShape;
use crate::named::named;
use std::ops::Range;

named! {
    /// A rule that divides a model's layers among stages. Every stage has neighbouring layers.
    pub enum Partition by default Uniform {
        /// Equally many layers, as far as they divide evenly.
        Uniform = "uniform",
        /// Equally many parameters, as far as layers allow. The first stage also has the embedding,
        /// the last one the head.
        Parameters = "parameters",
    }
}

impl Partition {
    /// The layers of each of `stages` stages of a GPT.
    ///
    /// # Errors
    /// If there are more stages than layers, or none.
    pub fn layers(self, shape: &ModelShape, stages: usize) -> Result<Vec<Range<usize>>, BadInput> {
        self.divide(shape.layers, stages, |layers| shape.stage_parameters(layers))
    }

    /// The layers of each of `stages` stages of a model with `layers` layers. `parameters` counts
    /// those of a stage.
    ///
    /// # Errors
    /// If there are more stages than layers, or none.
    pub fn divide(
        self,
        layers: usize,
        stages: usize,
        parameters: impl Fn(&Range<usize>) -> u64,
    ) -> Result<Vec<Range<usize>>, BadInput> {
        if stages == 0 || stages > layers {
            let what = format!(
                "{stages} stages cannot share {layers} layers: a stage without a layer has no parameters"
            );
            let help = format!("choose at most {layers} stages (ranks x chunks), or more `layers`");
            return Err(BadInput::new(what, help));
        }
        Ok(match self {
            Partition::Uniform => {
                let cut = |stage: usize| stage * layers / stages;
                (0..stages).map(|stage| cut(stage)..cut(stage + 1)).collect()
            }
            Partition::Parameters => balanced(layers, stages, parameters),
        })
    }
}

/// The cuts with the smallest sum of squared sizes: no other cuts have sizes that differ less.
fn balanced(
    layers: usize,
    stages: usize,
    parameters: impl Fn(&Range<usize>) -> u64,
) -> Vec<Range<usize>> {
    // best[n]: if the first n layers are divided among the stages so far, the sum of squares, and
    // where each starts.
    let mut best = vec![None; layers + 1];
    best[0] = Some((0.0, Vec::new()));
    for _ in 0..stages {
        let up_to = |end: usize| {
            let with_last = |start: usize| {
                let (squares, starts): &(f64, Vec<usize>) = best[start].as_ref()?;
                let starts: Vec<usize> = starts.iter().copied().chain([start]).collect();
                Some((squares + (parameters(&(start..end)) as f64).powi(2), starts))
            };
            (0..end).filter_map(with_last).min_by(|(a, _), (b, _)| a.total_cmp(b))
        };
        best = (0..=layers).map(up_to).collect();
    }
    let (_, starts) = best.pop().flatten().unwrap_or_default();
    let ends = starts[1..].iter().copied().chain([layers]);
    starts.iter().zip(ends).map(|(&start, end)| start..end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Family;

    const SHAPE: ModelShape = ModelShape {
        vocabulary: 4000,
        block: 32,
        layers: 8,
        heads: 4,
        embd: 64,
        family: Family::Gpt,
        experts: None,
    };

    #[test]
    fn stages_cover_all_layers_in_order() {
        for partition in [Partition::Uniform, Partition::Parameters] {
            for stages in 1..=8 {
                let cuts = partition.layers(&SHAPE, stages).unwrap();
                assert_eq!(cuts.len(), stages);
                assert!(cuts.iter().all(|layers| !layers.is_empty()));
                assert!(cuts.windows(2).all(|pair| pair[0].end == pair[1].start));
                assert_eq!((cuts[0].start, cuts[stages - 1].end), (0, 8));
            }
            for stages in [0, 9] {
                assert!(partition.layers(&SHAPE, stages).is_err());
            }
        }
    }

    /// A large table makes the ends heavy, so they get fewer blocks.
    #[test]
    fn parameters_balance_the_largest_stage() {
        let largest = |partition: Partition| {
            let cuts = partition.layers(&SHAPE, 4).unwrap();
            cuts.iter().map(|layers| SHAPE.stage_parameters(layers)).max().unwrap()
        };
        assert_eq!(Partition::Parameters.layers(&SHAPE, 4).unwrap(), [0..1, 1..4, 4..7, 7..8]);
        assert!(largest(Partition::Parameters) < largest(Partition::Uniform));
    }
}
