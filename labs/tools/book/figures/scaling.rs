//! Weak and strong scaling of one job, predicted for a network.

use anyhow::Result;
use kit::show::{Plot, Series, thousands};
use labs::lab01::predict::scaled;
use shardlab::plan::Network;

/// The speed-up on 4 to 65,536 ranks of Polaris, which the table beside it prints.
pub(super) fn picture() -> Result<Plot<'static>> {
    let network = Network::named("polaris").expect("a preset");
    let all = scaled(&network)?;
    let first = all.first().map_or(1, |one| one.ranks) as f64;
    let curve = |name, of: &dyn Fn(usize, [f64; 2]) -> f64| {
        let points = all.iter().map(|one| (one.ranks as f64, of(one.ranks, one.speed_up)));
        Series::line(name, points.collect::<Vec<_>>())
    };
    Ok(Plot::new("speed-up in samples per second", "ranks")
        .log_x()
        .log_y()
        .labels(|x| thousands(x as u64), |y| thousands(y as u64))
        .height(12)
        .series(curve("as many times as ranks", &|ranks, _| ranks as f64 / first).looking(4))
        .series(curve("weak scaling", &|_, [weak, _]| weak))
        .series(curve("strong scaling", &|_, [_, strong]| strong)))
}
