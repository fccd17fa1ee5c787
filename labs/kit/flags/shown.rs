//! `--show` draws from few flags. Others are refused, not left unread.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use shardlab::error::BadInput;

/// Which flags a drawing reads, besides `--ascii`.
enum Reads {
    Only(&'static str),
    AllBut(&'static str),
}
use Reads::{AllBut, Only};

/// By program and value of `--show`.
const DRAWINGS: [(&str, &str, Reads); 7] = [
    (
        "lab04",
        "timeline",
        Only(
            "ranks link dtype reduce_dtype zero prefetch_bucket strategy preset layers heads embd \
             block init_from data batch global_batch grad_accum",
        ),
    ),
    ("lab05", "sum", Only("ranks")),
    ("lab05", "gemm", Only("")),
    ("lab05", "mesh", Only("ranks tp pp per_node order")),
    ("lab12", "bytes", Only("")),
    ("lab13", "bytes", Only("")),
    ("lab13", "buys", AllBut("svg strategy no_overlap")),
];

/// Refuses flags that the drawing would not read.
pub(super) fn ensure_read(command: &Command, matches: &ArgMatches) -> Result<(), BadInput> {
    let show = matches.try_get_raw("show").ok().flatten().and_then(|mut given| given.next());
    let Some(show) = show.and_then(|show| show.to_str()) else {
        return Ok(());
    };
    let is_it = |row: &&(&str, &str, Reads)| (row.0, row.1) == (command.get_name(), show);
    let Some((_, _, reads)) = DRAWINGS.iter().find(is_it) else {
        return Ok(());
    };
    let (Only(listed) | AllBut(listed)) = reads;
    let names = |names: &str, id: &str| names.split_whitespace().any(|name| name == id);
    debug_assert!(
        listed
            .split_whitespace()
            .all(|id| command.get_arguments().any(|flag| flag.get_id() == id)),
        "{listed}"
    );
    let is_read = |id: &str| match reads {
        Only(read) => names(read, id),
        AllBut(unread) => !names(unread, id),
    };
    for flag in command.get_arguments() {
        let id = flag.get_id().as_str();
        let is_given = matches.value_source(id) == Some(ValueSource::CommandLine);
        if is_given && !["show", "ascii"].contains(&id) && !is_read(id) {
            let name = flag.get_long().unwrap_or(id);
            let what = format!("--show {show} does not read --{name}");
            return Err(BadInput::new(what, format!("leave one of them out: --show or --{name}")));
        }
    }
    Ok(())
}
