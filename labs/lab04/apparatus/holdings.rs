//! The picture of which rank holds what.

use super::job::Job;
use super::measured::Measured;
use super::stages::title;
use kit::show::{Fill, Holding, Holdings, Screen, bytes_decimal};

/// The picture of which rank holds what, for one stage.
pub fn drawing(screen: &Screen, measured: &Measured, job: &Job) -> String {
    let mut rows = Vec::new();
    // The stage from which on ranks share these.
    for ((name, bytes, _), from) in measured.beside_formula(job).into_iter().zip([3, 2, 1]) {
        let fill = |index| {
            if measured.stage.number() >= from {
                let of = job.ranks;
                Fill::Slice { index, of }
            } else {
                Fill::Same
            }
        };
        rows.push(Holding { name, ranks: (0..job.ranks).map(fill).collect(), bytes });
    }
    let note = job.offloaded.map_or(String::new(), |place| {
        let bytes = bytes_decimal(measured.offloaded() as f64);
        format!("{bytes} of it {place}")
    });
    let heading = screen.bold(title(measured.stage).replace('\n', screen.separator()));
    format!("  {heading}\n{}", Holdings { rows, note }.render(screen))
}
