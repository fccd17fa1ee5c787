//! Help in two lengths: `-h` has a line for each flag that a first reader needs, `--help` has all
//! flags, and examples.
//!
//! Flags stand in groups under these headings. Rare ones are marked with `hide_short_help`.

use crate::commands::commands;
use clap::{Arg, Command};
use std::collections::HashMap;
use std::ffi::OsString;

pub const RANKS: &str = "Ranks and network";
pub const MODEL: &str = "Model and data";
pub const TRAINING: &str = "Training";
pub const STRATEGY: &str = "Strategy";
/// What a program does with its flags instead of a plain run.
pub const INSTEAD: &str = "Look closer";
pub const OUTPUT: &str = "Output";
pub const BREAK: &str = "Break on purpose";

/// Columns of a help screen, on a wider terminal, too.
const WIDTH: usize = 80;

/// The end of a program's `--help`: its flags in some examples, and what each of them does.
pub fn examples(program: &str, all: &[(&str, &str)]) -> String {
    let example = |(flags, what): &(&str, &str)| {
        let flags = if flags.is_empty() {
            String::new()
        } else {
            format!(" -- {flags}")
        };
        let command = folded(format!("  cargo run --bin {program}{flags}"));
        format!("\n{command}\n      {what}")
    };
    let all: String = all.iter().map(example).collect();
    commands(&format!("Examples:{all}"))
}

/// A command on as many lines as it needs, which a shell reads as one.
fn folded(command: String) -> String {
    if command.chars().count() <= WIDTH {
        return command;
    }
    match command[..WIDTH - 2].rfind(" --") {
        Some(at) => format!("{} \\\n     {}", &command[..at], &command[at..]),
        None => command,
    }
}

/// The form of help that a command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Short,
    Long,
}

/// The first of `-h` and `--help` among a program's arguments.
pub(crate) fn asked(mut arguments: impl Iterator<Item = OsString>) -> Option<Form> {
    arguments.find_map(|one| match one.to_str() {
        Some("-h") => Some(Form::Short),
        Some("--help") => Some(Form::Long),
        _ => None,
    })
}

/// The command with its help arranged in this form. What it parses stays the same.
pub(crate) fn arranged(command: Command, form: Form) -> Command {
    let all = "--help shows all flags, their values, and examples.";
    let mut command = command.max_term_width(WIDTH).after_help(all);
    command.build(); // adds --help and --version
    let command = command.mut_args(|arg| match arg.get_id().as_str() {
        "help" | "version" => arg.help_heading("Help"),
        _ => arg,
    });
    match form {
        Form::Long => command,
        Form::Short => in_lines(command),
    }
}

/// Shortens what is said of each flag, so that it fits beside the flag.
fn in_lines(command: Command) -> Command {
    let mut widest: HashMap<Option<String>, usize> = HashMap::new();
    let heading = |arg: &Arg| arg.get_help_heading().map(str::to_string);
    let is_shown = |arg: &&Arg| !arg.is_hide_set() && !arg.is_hide_short_help_set();
    for arg in command.get_arguments().filter(is_shown) {
        let widest = widest.entry(heading(arg)).or_default();
        *widest = (*widest).max(width(arg));
    }
    command.mut_args(|arg| {
        let taken = widest.get(&heading(&arg)).copied().unwrap_or_default();
        shortened(arg, WIDTH.saturating_sub(taken))
    })
}

/// Columns of a flag and its value, with the margins around them. Flags leave four columns for a
/// short form.
fn width(arg: &Arg) -> usize {
    let short = if arg.get_long().is_some() { 4 } else { 0 };
    2 + short + arg.to_string().chars().count() + 2
}

/// The flag with a text of at most `room` columns: without its values, its default, or the end of
/// its sentence, where these do not fit.
fn shortened(arg: Arg, room: usize) -> Arg {
    let Some(text) = arg.get_help().map(ToString::to_string) else {
        return arg;
    };
    let listed = |what: &str, values: Vec<String>| match values.len() {
        0 => 0,
        _ => format!(" [{what}: {}]", values.join(", ")).chars().count(),
    };
    let possible = arg.get_possible_values();
    let possible = possible.iter().filter(|value| !value.is_hide_set());
    let values = match arg.is_hide_possible_values_set() {
        true => 0,
        false => {
            listed("possible values", possible.map(|one| one.get_name().to_string()).collect())
        }
    };
    let default = match arg.is_hide_default_value_set() || !arg.get_action().takes_values() {
        true => 0,
        false => {
            let defaults = arg.get_default_values().iter();
            listed("default", defaults.map(|one| one.to_string_lossy().into()).collect())
        }
    };
    let aliases = arg.get_visible_aliases().unwrap_or_default();
    let aliases = aliases.iter().map(|alias| format!("--{alias}")).collect();
    let room = room.saturating_sub(listed("aliases", aliases));
    let length = text.chars().count();
    if length + default + values <= room {
        return arg;
    }
    let arg = arg.hide_possible_values(true);
    if length + default <= room {
        return arg;
    }
    // A default that is long is told in a sentence of its own, or not needed to begin with.
    let arg = arg.hide_default_value(true);
    let clause = clause(&text, room).to_string();
    arg.help(clause)
}

/// The text up to the last mark of punctuation, outside of brackets, before which it fits. All of
/// it if there is none.
fn clause(text: &str, room: usize) -> &str {
    if text.chars().count() <= room {
        return text;
    }
    let mut depth = 0;
    let mut end = text.len();
    for (column, (at, c)) in text.char_indices().enumerate() {
        if column > room {
            break;
        }
        let rest = &text[at..];
        let ends = [", ", ": ", "; ", ". ", " [", " ("];
        if depth == 0 && ends.iter().any(|mark| rest.starts_with(mark)) {
            end = at;
        }
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            _ => {}
        }
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_with_a_clause() {
        let text = "Number of ranks: threads of this process [default: 2], or the launcher's";
        assert_eq!(clause(text, 99), text);
        assert_eq!(clause(text, 60), "Number of ranks: threads of this process [default: 2]");
        assert_eq!(clause(text, 52), "Number of ranks: threads of this process");
        assert_eq!(clause(text, 20), "Number of ranks");
        assert_eq!(clause(text, 5), text);
    }

    #[test]
    fn the_short_form_keeps_what_fits() {
        let flag = || {
            Arg::new("zero")
                .long("zero")
                .help("The stage: what ranks shard")
                .value_parser(["none", "optimizer", "gradients"])
                .default_value("none")
        };
        let says = |room: usize| {
            let arg = shortened(flag(), room);
            let hidden = (arg.is_hide_possible_values_set(), arg.is_hide_default_value_set());
            (arg.get_help().unwrap().to_string(), hidden)
        };
        let whole = "The stage: what ranks shard".to_string();
        assert_eq!(says(90), (whole.clone(), (false, false)));
        assert_eq!(says(50), (whole.clone(), (true, false)));
        assert_eq!(says(30), (whole, (true, true)));
        assert_eq!(says(20), ("The stage".to_string(), (true, true)));
    }

    #[test]
    fn the_first_flag_that_asks_for_help_decides() {
        let form = |line: &str| asked(line.split(' ').map(OsString::from));
        assert_eq!(form("lab --ranks 2"), None);
        assert_eq!(form("lab -h --help"), Some(Form::Short));
        assert_eq!(form("lab --ranks 2 --help"), Some(Form::Long));
    }
}
