//! What a flag shows in place of the run is made from few others: `--show`, `--plot` and their
//! like. Others are refused, not left unread.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use shardlab::error::BadInput;

/// Which flags a drawing reads, besides `--ascii`.
enum Reads {
    Only(&'static str),
    AllBut(&'static str),
}
use Reads::{AllBut, Only};

/// By program, flag, and its value if that matters.
const INSTEAD: [(&str, &str, &str, Reads); 22] = [
    ("lab01", "feed", "", AllBut("collective algorithm up_to network")),
    ("lab01", "rounds", "", AllBut("up_to network")),
    ("lab01", "simulate", "", AllBut("algorithm up_to")),
    (
        "lab04",
        "show",
        "timeline",
        Only(
            "ranks link dtype reduce_dtype zero prefetch_bucket strategy preset layers heads embd \
             block init_from data batch global_batch grad_accum",
        ),
    ),
    ("lab05", "show", "sum", Only("ranks")),
    ("lab05", "show", "gemm", Only("")),
    ("lab05", "show", "mesh", Only("ranks tp pp per_node order")),
    ("lab09", "plot", "", Only("")),
    ("lab09", "padding", "", Only("broken out")),
    ("lab09", "broken", "strip", Only("padding out")),
    ("lab10", "life_cycle", "", Only("model")),
    ("lab10", "source", "", Only("")),
    (
        "lab10",
        "emit_deepspeed",
        "",
        Only("ranks tp pp zero micro_batches batch dtype strategy"),
    ),
    ("lab10", "prompt", "", AllBut("seq batch roofline")),
    ("lab11", "published", "", Only("")),
    ("lab11", "presets", "", Only("")),
    ("lab11", "help_cluster", "", Only("")),
    ("lab11", "ledger", "", AllBut("top")),
    ("lab11", "plan", "", AllBut("top")),
    ("lab12", "show", "bytes", Only("")),
    ("lab13", "show", "bytes", Only("")),
    ("lab13", "show", "buys", AllBut("svg strategy no_overlap")),
];

/// Refuses flags that what is asked for would not read.
pub(super) fn ensure_read(command: &Command, matches: &ArgMatches) -> Result<(), BadInput> {
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let has = |id: &str, value: &str| {
        let given = matches.try_get_raw(id).ok().flatten().and_then(|mut given| given.next());
        value.is_empty() || given.is_some_and(|given| given == value)
    };
    let names = |names: &str, id: &str| names.split_whitespace().any(|name| name == id);
    for (program, mode, value, reads) in &INSTEAD {
        if command.get_name() != *program {
            continue;
        }
        let (Only(listed) | AllBut(listed)) = reads;
        debug_assert!(
            listed
                .split_whitespace()
                .chain([*mode])
                .all(|id| command.get_arguments().any(|flag| flag.get_id() == id)),
            "{mode}: {listed}"
        );
        if !is_given(mode) || !has(mode, value) {
            continue;
        }
        let is_read = |id: &str| match reads {
            Only(read) => names(read, id),
            AllBut(unread) => !names(unread, id),
        };
        let long = |id: &str| {
            let flag = command.get_arguments().find(|flag| flag.get_id() == id);
            flag.and_then(|flag| flag.get_long()).unwrap_or(id).to_string()
        };
        let others = command.get_arguments().map(|flag| flag.get_id().as_str());
        let mut others = others.filter(|id| is_given(id) && ![*mode, "ascii"].contains(id));
        if let Some(other) = others.find(|id| !is_read(id)) {
            let [mode, other] = [mode, other].map(long);
            let with = if value.is_empty() {
                mode.clone()
            } else {
                format!("{mode} {value}")
            };
            let what = format!("--{with} does not read --{other}");
            return Err(BadInput::new(
                what,
                format!("leave one of them out: --{mode} or --{other}"),
            ));
        }
    }
    Ok(())
}
