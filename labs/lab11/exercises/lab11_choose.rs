//! lab11-choose · Three plans to repair
//!
//! Three teams train on nodes of eight A100 with 80 GB. A node has eight network cards, and those
//! of team 2 only one. Each team has a plan, and none of the plans is good. Repair each by **one**
//! change:
//!
//! ```text
//! team  model        devices  plan                            result
//!    1  gpt3-13b          32  dp=32,mb=4,zero=1               142 GB of 76 GB
//!    2  llama-2-13b       32  dp=32,mb=1,zero=3               162..219 s a step
//!    3  gpt3-175b      1,024  dp=4,tp=8,pp=32,mb=4,zero=1,sp  24..29 s a step
//! ```
//!
//! A change gives one setting a different value, or moves ranks from one axis to another: `dp=32`
//! becomes `dp=16,tp=2`. With it a step may take 5% longer than with the best single change, so for
//! some teams more than one change passes. The check compares what the planner predicts; `--plan`
//! widens that to the range in which published runs lie. The table of all plans does not help. Ask
//! what limits each plan:
//!
//! - `cargo run --bin lab11 -- --device a100-80g --model
//!   gpt3-13b --devices 32 --plan dp=32,mb=4,zero=1`
//! - also with `--network cloud-100g` for team 2, and with `--batch 1536` for team 3.
//!
//! The settings are `dp`, `tp`, `pp`, `chunks`, `mb`, `zero`, `recompute` (`full`, `mlp`, `norms`,
//! `1/2`), `sp` and `shard`, the number of ranks among which ZeRO divides.

/// One plan for each team.
pub fn plans() -> [&'static str; 3] {
    let team_1 = "dp=32,mb=4,zero=1";
    let team_2 = "dp=32,mb=1,zero=3";
    let team_3 = "dp=4,tp=8,pp=32,mb=4,zero=1,sp";
    todo!("{team_1}, {team_2} and {team_3}: what limits each, and which single change helps?")
}
