//! One plan of lab11, worked: every byte of one device.

use crate::draw::{Anchor, Coat, Ink, Sketch};
use crate::plans::tensor_and_data;
use anyhow::Result;
use kit::show::{bytes_decimal, significant, thousands};
use planner::{Degrees, Plan, TrainingJob};

/// A kind of bytes: its name, how many, and where they come from.
type Kind = (&'static str, f64, String);

fn kinds(job: &TrainingJob, plan: &Plan) -> Vec<Kind> {
    let s = &plan.strategy;
    let billions = significant(job.model.parameters() as f64 / 1e9, 3);
    let state = |bytes: u64, from: usize| {
        let of = if s.zero.number() >= from {
            format!("/ {} / {}", s.tensor, s.data)
        } else {
            format!("/ {}", s.tensor)
        };
        format!("{bytes} × {billions} billion {of}")
    };
    let load = &plan.load;
    let layers = job.model.layers;
    let free = job.cluster.device.room() - load.total();
    let reserve = job.cluster.device.memory - job.cluster.device.room();
    let tokens = s.sequences() * job.model.block;
    let batch = format!("{} × {}", s.sequences(), thousands(job.model.block as u64));
    let each = job.keeps(s);
    let in_layers = (layers * tokens) as f64 * each;
    let of_layers = format!("{batch} tokens × {layers} layers × {}", bytes_decimal(each));
    let logits = format!("{batch} × {} / {}", thousands(job.model.vocabulary as u64), s.tensor);
    vec![
        ("weights", load.weights, state(job.bytes.parameter, 3)),
        ("gradients", load.gradients, state(job.bytes.gradient, 2)),
        ("optimizer", load.optimizer, state(job.bytes.optimizer, 1)),
        ("layers", in_layers, of_layers),
        (
            "head",
            load.activations - in_layers,
            format!("logits: 4 × {logits}; and their input"),
        ),
        ("working", load.working, "copies of the logits".to_string()),
        ("free", free, String::new()),
        ("reserve", reserve, "a tenth, for the runtime".to_string()),
    ]
    .into_iter()
    .filter(|kind| kind.1 > 0.0)
    .collect()
}

/// The plan.
pub(super) fn picture() -> Result<String> {
    const WIDE: f64 = 598.0;
    const ROW: f64 = 22.0;
    let (job, plan) = tensor_and_data()?;
    let device = &job.cluster.device;
    let mut sketch = Sketch::wide(600.0);
    let used = bytes_decimal(plan.load.total());
    let words = format!("{}: {used} of {}", plan.strategy.words(), bytes_decimal(device.memory));
    sketch.words((0.0, 14.0), Anchor::Start, words);
    let mut x = 1.0;
    let all = kinds(&job, &plan);
    for (kind, (name, bytes, from)) in all.iter().enumerate() {
        let wide = WIDE * bytes / device.memory;
        let (ink, coat) = match *name {
            "free" => (Ink::Page, Coat::Line),
            "reserve" => (Ink::Page, Coat::Dashes),
            _ => (Ink::Kind(kind), Coat::Full),
        };
        sketch.boxed((x, 24.0), (wide, 34.0), ink, coat, "");
        x += wide;
        let y = 84.0 + ROW * kind as f64;
        sketch.boxed((0.0, y - 11.0), (12.0, 12.0), ink, coat, "");
        sketch.words((20.0, y), Anchor::Start, name);
        sketch.words((180.0, y), Anchor::End, bytes_decimal(*bytes));
        sketch.words((196.0, y), Anchor::Start, from);
    }
    let title = format!("Every byte of one {} under {}", device.name, plan.strategy.words());
    Ok(sketch.svg(&title, 84.0 + ROW * all.len() as f64 - 8.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bar is the whole device, and its first part what two bytes of each of an eighth of the
    /// parameters take.
    #[test]
    fn all_bytes_of_the_device_are_there() {
        let (job, plan) = tensor_and_data().unwrap();
        let all = kinds(&job, &plan);
        let sum: f64 = all.iter().map(|kind| kind.1).sum();
        assert!((sum / job.cluster.device.memory - 1.0).abs() < 1e-9);
        let eighth = 2.0 * job.model.parameters() as f64 / 8.0;
        assert!((all[0].1 / eighth - 1.0).abs() < 0.01, "{all:?}");
    }
}
