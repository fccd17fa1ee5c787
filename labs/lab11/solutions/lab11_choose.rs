//! lab11-choose · A plan for three situations

/// One strategy for each team.
pub fn strategies() -> [&'static str; 3] {
    let team_1 = "dp=8,zero=3";
    let team_2 = "dp=4,tp=4,pp=4,zero=1,sp";
    let team_3 = "dp=32,tp=4,pp=8,chunks=8,zero=1,recompute=norms,sp";
    [team_1, team_2, team_3]
}
