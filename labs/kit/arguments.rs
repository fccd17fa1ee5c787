//! The command line, and the errors about it.

use crate::{help, show, started};
use anyhow::Result;
use clap::ArgMatches;
use clap::error::ErrorKind;
use shardlab::error::BadInput;
use shardlab::{launch, notice};
use std::process::ExitCode;

/// Runs a program, for its `main`: `run` gets its command line. [`launch::main`] says what its exit code is.
pub fn main<Args: clap::Parser>(run: impl FnOnce(Args) -> Result<()>) -> ExitCode {
    launch::main(|| run(arguments()?))
}

/// Parses the command line as `Args` describes it. [`main`] prints its errors like any other error.
/// `--help` and `--version` print to stdout and end the process.
pub fn arguments<Args: clap::Parser>() -> Result<Args, BadInput> {
    // Errors name commands, too.
    notice::fold_with(|text| show::folded_for_stderr(&started::commands(text)));
    let command = match help::asked(std::env::args_os()) {
        Some(form) => help::arranged(Args::command(), form),
        None => Args::command(),
    };
    let read = |mut matches: ArgMatches| Args::from_arg_matches_mut(&mut matches);
    command.try_get_matches().and_then(read).map_err(|error| {
        // A program without its command prints more than an error: everything that it can do.
        if !error.use_stderr()
            || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        {
            error.exit()
        }
        refusal(&error.to_string())
    })
}

/// Turns clap's error into the form of ours. clap prints the mistake first, and then the possible values, in brackets or after
/// an empty line.
fn refusal(error: &str) -> BadInput {
    let (wrong, rest) = error.split_once("\n\n").unwrap_or((error, ""));
    let (mut what, mut help): (Vec<&str>, Vec<&str>) = Default::default();
    for line in wrong.trim_start_matches("error: ").lines().map(str::trim) {
        match line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
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
    use clap::Parser;

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
