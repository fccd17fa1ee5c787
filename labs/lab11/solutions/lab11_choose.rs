//! lab11-choose · Three plans to repair

/// One plan for each team.
pub fn plans() -> [&'static str; 3] {
    // Weights and gradients take 77 GB by themselves. Smaller micro-batches and recomputation leave
    // them as they are.
    let team_1 = "dp=32,mb=4,zero=3";
    // All ranks of a node share one slow card. Gathers stay within the node, and gradients leave it
    // once per step.
    let team_2 = "dp=32,mb=1,zero=3,shard=8";
    // The pipeline has 32 stages and 96 micro-batches. Smaller ones are more of them.
    let team_3 = "dp=4,tp=8,pp=32,mb=1,zero=1,sp";
    [team_1, team_2, team_3]
}
