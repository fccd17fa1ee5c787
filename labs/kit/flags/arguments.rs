//! The command line, and the errors about it.

use super::shown;
use crate::commands::commands;
use crate::flags::{ensure_said_once, with_flags};
use crate::process::mistake::{self, Mistake};
use crate::question::Ask;
use crate::show::{Screen, above};
use crate::{help, predict, show};
use anyhow::Result;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use shardlab::error::BadInput;
use shardlab::{launch, notice};
use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;

/// Runs a program, for its `main`: `run` gets its command line. [`launch::main`] says what its exit
/// code is.
pub fn main<Args: clap::Parser>(run: impl FnOnce(Args) -> Result<()>) -> ExitCode {
    launch::main(|| ended(run(arguments()?)))
}

/// The end of a run: says where its picture is, if it has left the screen and nothing has said so,
/// as where a check has failed.
fn ended(ran: Result<()>) -> Result<()> {
    let screen = Screen::detect(false);
    let error = ran.as_ref().err().map(|error| format!("error: {error:#}"));
    let lines = error.map_or(0, |error| show::in_lines(&screen, &error).lines().count());
    if let Some(line) = above::line(0, lines) {
        screen.say(screen.wrap(&line, 2));
    }
    ran
}

/// The same for a lab, which can ask for a prediction before it runs.
pub fn lab<Args: clap::Parser>(run: impl FnOnce(Args) -> Result<()>, question: Ask) -> ExitCode {
    launch::main(|| {
        let flag = Arg::new(PREDICT)
            .long(PREDICT)
            .action(ArgAction::SetTrue)
            .help("Ask what the run will show, before it runs")
            .help_heading(help::INSTEAD)
            .hide_short_help(true);
        let (args, matches) = parsed(|command| command.arg(flag))?;
        if !matches.get_flag(PREDICT) {
            return ended(run(args));
        }
        ensure_alone(&matches)?;
        predict::ensure_can_ask()?;
        let question = question()?;
        let screen = Screen::detect(false);
        let words = ["predict", "An empty line runs without a prediction."];
        let said = predict::ask(&screen, words, &question, io::stdin().lock(), io::stdout())?;
        screen.say("");
        let Some(said) = said.filter(|said| !said.is_empty()) else {
            return ended(run(args));
        };
        if let Err(error) = predict::keep(&question, &said) {
            notice::complain(&format!("the prediction is not kept: {error}"));
        }
        ended(run(args))?;
        screen.say(predict::answered(&screen, &question, &said));
        Ok(())
    })
}

const PREDICT: &str = "predict";

/// A question is about the run without flags.
fn ensure_alone(matches: &ArgMatches) -> Result<(), BadInput> {
    let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    if matches.ids().map(clap::Id::as_str).any(|id| id != PREDICT && given(id)) {
        let what = "--predict asks about the run without flags, and here are some";
        return Err(BadInput::new(what, "give --predict alone"));
    }
    Ok(())
}

/// Parses the command line as `Args` describes it. [`main`] prints its errors like any other error.
/// `--help` and `--version` print to stdout and end the process.
pub fn arguments<Args: clap::Parser>() -> Result<Args, BadInput> {
    parsed(|command| command).map(|(args, _)| args)
}

/// Parses it with what `more` adds to the command. The matches have what `Args` did not take.
fn parsed<Args: clap::Parser>(
    more: impl FnOnce(Command) -> Command,
) -> Result<(Args, ArgMatches), BadInput> {
    // Errors name commands and settings, too.
    notice::print_with(|text| show::complain_folded(&with_flags(&commands(text))));
    let mut command = more(Args::command());
    if let Some(form) = help::asked(std::env::args_os()) {
        command = help::arranged(command, form);
    }
    let found = command.try_get_matches_from_mut(std::env::args_os());
    let read = |matches: ArgMatches| {
        let settings = settings(&command, &matches);
        let deadline = matches.try_get_one("deadline").ok().flatten().copied();
        let args = Args::from_arg_matches(&matches)?;
        // Over MPI, each rank has a command line of its own.
        launch::started_with(settings, deadline);
        mistake::note(asked_mistake(&command, &matches));
        Ok((args, matches))
    };
    if let Ok(matches) = &found {
        ensure_said_once(matches)?;
        shown::ensure_read(&command, matches)?;
    }
    found.and_then(read).map_err(|error| {
        // A program without its command prints more than an error: everything that it can do.
        if !error.use_stderr()
            || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        {
            error.exit()
        }
        refusal(&error.to_string())
    })
}

/// The mistake that `--break` asks for.
fn asked_mistake(command: &Command, matches: &ArgMatches) -> Option<Mistake> {
    let flag = command.get_arguments().find(|arg| arg.get_long() == Some("break"))?;
    let given = matches.try_get_raw(flag.get_id().as_str()).ok().flatten()?.next()?;
    let given = given.to_str()?.to_string();
    let value = flag
        .get_possible_values()
        .into_iter()
        .find(|value| value.matches(&given, false))?;
    Some([given, format!("{}.", value.get_help()?)])
}

/// Flags that may differ between ranks: they change neither what a rank computes nor what it calls.
const OF_A_RANK: [&str; 5] = ["out", "trace", "metrics", "ascii", "deadline"];

/// What must be the same on all ranks: the program's name, and each flag that has a value.
fn settings(command: &clap::Command, matches: &ArgMatches) -> launch::CommandLine {
    let name = command.get_name().to_string();
    let mut settings = BTreeMap::from([("the program".to_string(), name)]);
    for flag in command.get_arguments() {
        let id = flag.get_id().as_str();
        let Ok(Some(values)) = matches.try_get_raw(id) else {
            continue;
        };
        let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
        let name = flag.get_long().map_or(id.to_string(), |long| format!("--{long}"));
        let written = match flag.get_action() {
            ArgAction::SetTrue if values == ["true"] => name.clone(),
            ArgAction::SetTrue => continue,
            _ => format!("{name} {}", values.join(" ")),
        };
        if !OF_A_RANK.contains(&id) {
            settings.insert(name, written);
        }
    }
    launch::CommandLine(settings)
}

/// Turns clap's error into the form of ours. clap prints the mistake first, and then the possible
/// values, in brackets or after an empty line.
fn refusal(error: &str) -> BadInput {
    let (wrong, rest) = error.split_once("\n\n").unwrap_or((error, ""));
    let (mut what, mut help): (Vec<&str>, Vec<&str>) = Default::default();
    for line in wrong.trim_start_matches("error: ").lines().map(str::trim) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(possible) => help.push(possible),
            None => what.push(line),
        }
    }
    let rest = rest.lines().map(str::trim).filter(|line| !line.is_empty());
    help.extend(rest.map(|line| line.strip_prefix("tip: ").unwrap_or(line)));
    BadInput::new(what.join(" "), help.join("\n      "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Debug, Parser)]
    #[command(name = "lab")]
    struct Args {
        /// A list
        #[arg(long, value_parser = ["naive", "ring", "tree"])]
        algorithm: Option<String>,
        #[arg(long, value_parser = |_: &str| Err::<usize, _>("give a number"))]
        ranks: Option<usize>,
        #[arg(required = true)]
        program: Vec<String>,
    }

    /// What ranks must share: a given value, a default, a switch that is on. Not the names of a
    /// rank's own files.
    #[test]
    fn settings_are_the_flags_that_change_what_a_rank_does() {
        #[derive(Debug, Parser)]
        #[command(name = "lab")]
        struct Args {
            #[command(flatten)]
            comm: crate::CommFlags,
            #[command(flatten)]
            log: crate::LogFlags,
            #[arg(long, default_value_t = 1)]
            grad_accum: usize,
            #[arg(long)]
            clip: Option<f64>,
            #[arg(long, num_args = 2)]
            range: Vec<usize>,
            program: Vec<String>,
        }
        let of = |line: &str| -> Vec<String> {
            let mut command = Args::command();
            let matches = command.try_get_matches_from_mut(line.split(' ')).unwrap();
            settings(&command, &matches).0.into_values().collect()
        };
        assert_eq!(of("lab"), ["--grad-accum 1", "lab"]);
        assert_eq!(of("lab --trace t --metrics m --deadline 5"), of("lab"));
        assert_eq!(
            of("lab --no-check --clip 0 --range 3 4 --grad-accum 2 x y"),
            ["--clip 0", "--grad-accum 2", "--no-check", "--range 3 4", "program x y", "lab"]
        );
    }

    #[test]
    fn refusals_say_what_is_wrong_and_what_is_possible() {
        let refused = |line: &str| {
            let error = Args::try_parse_from(line.split(' ')).unwrap_err();
            refusal(&error.to_string()).to_string()
        };
        let more = "For more information, try '--help'.";
        assert_eq!(
            refused("lab --algorithm star x"),
            format!(
                "invalid value 'star' for '--algorithm <ALGORITHM>'\nhelp: possible values: naive, ring, tree\n      {more}"
            )
        );
        assert_eq!(
            refused("lab --algorithm rin x"),
            format!(
                "invalid value 'rin' for '--algorithm <ALGORITHM>'\nhelp: possible values: naive, ring, tree\n      \
                 a similar value exists: 'ring'\n      {more}"
            )
        );
        assert_eq!(
            refused("lab --rank 2 x"),
            format!(
                "unexpected argument '--rank' found\nhelp: a similar argument exists: '--ranks'\n      \
                 Usage: lab --ranks <RANKS> <PROGRAM>...\n      {more}"
            )
        );
        assert_eq!(
            refused("lab --ranks 2 x"),
            format!("invalid value '2' for '--ranks <RANKS>': give a number\nhelp: {more}")
        );
        assert_eq!(
            refused("lab"),
            format!(
                "the following required arguments were not provided: <PROGRAM>...\nhelp: Usage: lab <PROGRAM>...\n      {more}"
            )
        );
    }
}
