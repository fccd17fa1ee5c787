//! lab11-choose · A plan for three situations
//!
//! Three teams ask you for a strategy. You write each as lab11 does: `dp=8,tp=1,pp=1,mb=1,zero=2,recompute=full`. The rest
//! is 1, none or off; `sp` switches sequence parallelism on.
//!
//! - Team 1 trains llama-3-8b on one node with eight A100 of 80 GB: `lab11 --model llama-3-8b --devices 8 --device a100-80g`.
//! - Team 2 trains llama-2-70b on 64 of them. Its nodes have one 100 Gbit/s card for all eight GPUs: `--network cloud-100g`.
//! - Team 3 trains gpt3-175b on 1,024 of them, in nodes with eight cards, the default network, with `--batch 1536`.
//!
//! The check searches all strategies, and grades yours: its step may take 5% longer than the best one's. Decide first by the
//! rules, and use `lab11 --plan` to see what yours costs. Reading the answer off the lab's table is allowed in the end.

/// One strategy for each team.
pub fn strategies() -> [&'static str; 3] {
    let team_1 = "dp=8";
    todo!("{team_1} does not even fit: what does each team do?")
}
