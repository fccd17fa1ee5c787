//! What Muon's whole matrices cost: who updates how many parameters, and how long that takes.

use super::job::Job;
use super::measured::Measured;
use super::stages::by_stage;
use kit::show::{Screen, seconds, significant, thousands};
use shardlab::parallel::zero::Stage;

/// Parameters in matrices by rank, in each stage, and the time of an update.
pub fn owned(screen: &Screen, all: &[Measured], job: &Job) -> String {
    let mean = job.muons as f64 / job.ranks as f64;
    let column = |one: &Measured| {
        let most = one.owned.iter().copied().max().unwrap_or(0);
        let least = one.owned.iter().copied().min().unwrap_or(0);
        let of_mean = format!("{} x", significant(most as f64 / mean, 3));
        vec![thousands(most), thousands(least), of_mean, seconds(one.update)]
    };
    let names = ["fullest rank", "emptiest", "fullest/mean", "update"];
    let stages: Vec<Stage> = all.iter().map(|one| one.stage).collect();
    let columns: Vec<Vec<String>> = all.iter().map(column).collect();
    let table = by_stage(screen, &names, &stages, &columns);
    let words = format!(
        "Of {} parameters in Muon's matrices, those that a rank updates. A matrix has one owner, or in stage 0 every rank \
         does them all. update: this rank's optimizer, in its fastest step.",
        thousands(job.muons)
    );
    format!("{table}\n{}", screen.wrap(&words, 2))
}
