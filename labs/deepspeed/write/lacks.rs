//! What a run lacks that resumes from the result. DeepSpeed's loader of universal checkpoints loads
//! what the optimizer has, in every stage, and leaves the module alone.

use crate::doubt::first;
use crate::read::{Rest, Source};
use kit::show::thousands;
use std::path::Path;

/// Names in a line of Python.
const NAMED: usize = 3;

/// Each loss of weights in a sentence, with the Python that makes it good. `numbers` is how many
/// numbers the weights have that the optimizer does not have. `notes` gets the buffers.
pub(crate) fn lacks(
    source: &Source,
    rest: &Rest,
    numbers: usize,
    notes: &mut Vec<String>,
) -> Vec<(String, Option<String>)> {
    let mut all = Vec::new();
    let names: Vec<&str> = rest.weights.iter().map(|weight| weight.name.as_str()).collect();
    if !names.is_empty() {
        let [weights, go, them] = number(names.len(), ["frozen weight", "goes", "it"]);
        // Stage 1 lists none, so that a weight can also have been forgotten.
        let listed = |name: &&str| {
            let mut frozen = source.models.iter().flat_map(|model| &model.frozen);
            frozen.any(|(frozen, _)| frozen == name)
        };
        let or = match names.iter().all(listed) {
            true => "",
            false => ", or in no group of the optimizer,",
        };
        let mut what = format!(
            "{weights}{or} of {} numbers ({}) {go} whole into zero/NAME/fp32.pt, and DeepSpeed's loader of universal \
             checkpoints restores {them} in no stage. Load {them} in your program before deepspeed.initialize",
            thousands(numbers as u64),
            first(names.iter().copied()),
        );
        if source.stage == 3 {
            what += " (in deepspeed.zero.GatheredParameters, if zero.Init made the model)";
        }
        if source.tp > 1 {
            what += " (only this rank's part, if the program itself divides the model)";
        }
        all.push((what + ":", Some(python(&names, &source.options.output))));
    }
    if !rest.lost.is_empty() {
        let [weights, are, them] = number(rest.lost.len(), ["weight", "is", "it"]);
        let what = format!(
            "{weights} ({}) {are} in no group of the optimizer, and DeepSpeed saves no value of {them} in stage 3: load \
             {them} in your program, from where the run had {them}, before deepspeed.initialize",
            first(rest.lost.iter().map(String::as_str)),
        );
        all.push((what, None));
    }
    if !rest.unread.is_empty() {
        let what = format!(
            "{} cannot be read here, because of the type of the numbers, and is left out ({}): load it in your program, from \
             the checkpoint itself, before deepspeed.initialize",
            number(rest.unread.len(), ["tensor", "is", "it"])[0],
            first(rest.unread.iter().map(String::as_str)),
        );
        all.push((what, None));
    }
    if source.stage > 1 && source.models.iter().any(|model| model.without_frozen) {
        let what = "saved with exclude_frozen_parameters: frozen weights, if the model has some, are in no file. Load \
                    them in your program, from where the run had them, before deepspeed.initialize";
        all.push((what.to_string(), None));
    }
    if !rest.buffers.is_empty() {
        let [buffers, stay, them] = number(rest.buffers.len(), ["buffer", "stays", "it"]);
        notes.push(format!(
            "{buffers} ({}) {stay} in {}, under \"module\": DeepSpeed's loader of universal checkpoints does not \
             restore {them}",
            first(rest.buffers.iter().map(String::as_str)),
            source.models[0].path.file_name().unwrap_or_default().display(),
        ));
    }
    if !rest.of_layers.is_empty() {
        let what = format!(
            "{} in no group of the optimizer, frozen or a buffer ({}): the values are in the files layer_… of {}, and \
             DeepSpeed's loader of universal checkpoints restores none",
            number(rest.of_layers.len(), ["layers' tensor", "is", "it"])[0],
            first(rest.of_layers.iter().map(String::as_str)),
            source.options.input.display(),
        );
        all.push((what, None));
    }
    all
}

/// So many of a noun, with its verb and pronoun.
fn number(count: usize, [noun, verb, pronoun]: [&str; 3]) -> [String; 3] {
    if count == 1 {
        return [format!("1 {noun}"), verb.to_string(), pronoun.to_string()];
    }
    let verb = match verb {
        "is" => "are",
        "goes" => "go",
        _ => verb.trim_end_matches('s'),
    };
    [
        format!("{} {noun}s", thousands(count as u64)),
        verb.to_string(),
        "them".to_string(),
    ]
}

/// Python that loads weights into `model`: these, or all that are frozen.
fn python(names: &[&str], output: &Path) -> String {
    let names = if names.len() <= NAMED {
        format!("[{}]", names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", "))
    } else {
        "[n for n, p in model.named_parameters() if not p.requires_grad]".to_string()
    };
    let folder = quoted(&format!("{}/zero/", output.display()));
    format!(
        "for frozen in {names}: model.get_parameter(frozen).data.copy_(torch.load({folder} + frozen + \"/fp32.pt\")[\"param\"])"
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
        let line = python(&["a.weight"], Path::new("my \"u\\niversal\""));
        let folder = r#""my \"u\\niversal\"/zero/""#;
        assert_eq!(
            line,
            format!(
                "for frozen in [\"a.weight\"]: model.get_parameter(frozen).data.copy_(torch.load({folder} + frozen + \"/fp32.pt\")[\"param\"])"
            )
        );
        assert!(python(&["a", "b", "c", "d"], Path::new("u")).contains("not p.requires_grad]:"));
    }
}
