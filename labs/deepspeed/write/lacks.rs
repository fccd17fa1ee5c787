//! What a run lacks that resumes from the result. DeepSpeed's loader of universal checkpoints loads
//! what the optimizer has, in every stage, and leaves the module alone.

use crate::doubt::first;
use crate::read::{Rest, Source};
use kit::show::thousands;
use std::path::Path;

const LOADER: &str =
    "DeepSpeed's loader of universal checkpoints restores nothing that the optimizer does not have";
const ELSEWHERE: &str =
    "Load the values in your program, from where the run had them, before deepspeed.initialize";

/// What happened to tensors of which the result has no value.
const LOST: &str = "in no group of the optimizer: DeepSpeed saves no value in stage 3";
const UNREAD: &str = "left out: the type of the numbers cannot be read here";
const OF_LAYERS: &str = "in no group of the optimizer, frozen or a buffer, in the files layer_…";

/// Names in a line of Python.
const NAMED: usize = 3;

/// Each loss in a sentence, with the Python that makes it good. `numbers` is how many numbers the
/// weights have that the optimizer does not have. `notes` gets the buffers.
pub(crate) fn lacks(
    source: &Source,
    rest: &Rest,
    numbers: usize,
    notes: &mut Vec<String>,
) -> Vec<(String, Option<String>)> {
    let mut all = Vec::new();
    let names: Vec<&String> = rest.weights.iter().map(|weight| &weight.name).collect();
    if !names.is_empty() {
        let listed = |name| source.models.iter().any(|model| model.frozen.contains_key(name));
        // Stage 1 lists none, so that the program can also have forgotten a weight.
        let or = match names.iter().all(|name| listed(*name)) {
            true => "",
            false => ", or in no group of the optimizer,",
        };
        let mut what = format!(
            "{}{or} of {} numbers, whole in zero/NAME/fp32.pt. {LOADER}, in any stage. In your program, before \
             deepspeed.initialize",
            counted("frozen weight", names.iter().copied()),
            thousands(numbers as u64),
        );
        if source.stage == 3 {
            what += " (in deepspeed.zero.GatheredParameters, if zero.Init made the model)";
        }
        if source.tp > 1 {
            what += " (only this rank's part, if the program itself divides the model)";
        }
        all.push((what + ":", Some(python(&names, &source.options.output))));
    }
    if source.stage > 1 && source.models.iter().any(|model| model.without_frozen) {
        let what = "saved with exclude_frozen_parameters: frozen weights, if the model has some, are in no file";
        all.push((format!("{what}. {ELSEWHERE}"), None));
    }
    for (names, noun, what, help) in [
        (&rest.lost, "weight", LOST, ELSEWHERE),
        (&rest.unread, "tensor", UNREAD, ELSEWHERE),
        (&rest.of_layers, "layers' tensor", OF_LAYERS, LOADER),
    ] {
        if !names.is_empty() {
            all.push((format!("{} {what}. {help}", counted(noun, names.iter())), None));
        }
    }
    if !rest.buffers.is_empty() {
        let names = counted("buffer", rest.buffers.iter());
        let file = source.models[0].path.file_name().unwrap_or_default().display();
        notes.push(format!("{names}, kept under \"module\" in {file}. {LOADER}"));
    }
    all
}

/// How many there are, and the names of the first.
fn counted<'a>(noun: &str, names: impl ExactSizeIterator<Item = &'a String>) -> String {
    let end = if names.len() == 1 { "" } else { "s" };
    format!("{} {noun}{end} ({})", thousands(names.len() as u64), first(names))
}

/// Python that loads weights into `model`: these, or all that are frozen.
fn python(names: &[&String], output: &Path) -> String {
    let mut frozen = "[n for n, p in model.named_parameters() if not p.requires_grad]".to_string();
    if names.len() <= NAMED {
        let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
        frozen = format!("[{}]", names.join(", "));
    }
    let folder = quoted(&format!("{}/zero/", output.display()));
    format!(
        "for frozen in {frozen}: model.get_parameter(frozen).data.copy_(torch.load({folder} + frozen + \"/fp32.pt\")[\"param\"])"
    )
}

/// A text as Python writes it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_folders_are_pythons_texts() {
        let line = python(&[&"a.weight".to_string()], Path::new("my \"u\\niversal\""));
        let folder = r#""my \"u\\niversal\"/zero/""#;
        assert_eq!(
            line,
            format!(
                "for frozen in [\"a.weight\"]: model.get_parameter(frozen).data.copy_(torch.load({folder} + frozen + \"/fp32.pt\")[\"param\"])"
            )
        );
        assert!(python(&[&String::new(); 4], Path::new("u")).contains("not p.requires_grad]:"));
    }
}
