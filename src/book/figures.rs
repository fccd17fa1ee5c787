//! Pictures that no lab's run draws: who holds what, drawn from the arithmetic of `plan`.

use crate::error::BadInput;
use crate::plan::GptShape;
use crate::show::{Held, Holding, Holdings, bytes_decimal};

/// The names of all figures.
pub const FIGURES: [&str; 3] = ["one-device", "ddp-before", "ddp-after"];

/// lab03's baby model, on the play that comes with the workbook.
const BABY: GptShape = GptShape { vocabulary: 65, block: 64, layers: 4, heads: 4, embd: 128 };

/// Sequences in its batch.
const BATCH: usize = 12;

/// A figure by its name, and its title.
pub fn figure(name: &str) -> Result<(Holdings<'static>, &'static str), BadInput> {
    let (ranks, gradients, title, note) = match name {
        "one-device" => (1, Held::Same, "One device holds everything", "One device: nothing is divided."),
        "ddp-before" => (
            3,
            Held::Own,
            "Data parallelism, after the backward pass: every rank has gradients of its own",
            "Before averaging: other data, so other gradients.",
        ),
        "ddp-after" => (
            3,
            Held::Same,
            "Data parallelism, after averaging: only the data differ",
            "After averaging: all alike but for the data.",
        ),
        _ => {
            let what = format!("there is no figure {name:?}");
            return Err(BadInput::new(what, format!("give one of these: {}", FIGURES.join(", "))));
        }
    };
    let memory = BABY.memory(BATCH, false);
    // A token is one 4-byte number, and each has the one that follows it as its target.
    let data = (2 * 4 * BATCH * BABY.block) as u64;
    let row = |name, held, bytes: u64| Holding { name, ranks: vec![held; ranks], bytes: bytes_decimal(bytes as f64) };
    let own = if ranks == 1 { Held::Same } else { Held::Own };
    let rows = vec![
        row("data", own, data),
        row("parameters", Held::Same, memory.parameters),
        row("gradients", gradients, memory.gradients),
        row("optimizer", Held::Same, memory.optimizer),
    ];
    Ok((Holdings { rows, note: note.into() }, title))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::Screen;

    #[test]
    fn every_figure_draws_the_models_bytes() {
        for name in FIGURES {
            let (holdings, title) = figure(name).unwrap();
            let text = holdings.render(&Screen::plain());
            assert!(text.contains("3.22 MB") && text.contains("6.43 MB"), "{text}");
            assert!(holdings.svg(title).contains(">3.22 MB<"));
        }
        assert!(figure("nothing").is_err());
    }
}
