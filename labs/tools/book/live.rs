//! Interactive figures, for a notebook.

use super::cut::cut_cases;
use super::drift::drift_cases;
use super::figures::figure;
use super::mesh::mesh_cases;
use super::plans::plans;
use super::reshard::reshard_cases;
use super::schedules::schedules;
use super::straggler::straggler_cases;
use anyhow::Result;
use kit::show::Picture;
use shardlab::error::BadInput;

/// The interactive figures and their scripts. The book's pages link the same files.
const SCRIPTS: [(&str, &str); 13] = [
    ("cost", include_str!("../../../book/figures/cost.js")),
    ("stages", include_str!("../../../book/figures/stages.js")),
    ("ring", include_str!("../../../book/figures/ring.js")),
    ("schedule", include_str!("../../../book/figures/schedule.js")),
    ("plans", include_str!("../../../book/figures/plans.js")),
    ("exposed", include_str!("../../../book/figures/exposed.js")),
    ("mesh", include_str!("../../../book/figures/mesh.js")),
    ("memory", include_str!("../../../book/figures/memory.js")),
    ("reshard", include_str!("../../../book/figures/reshard.js")),
    ("cut", include_str!("../../../book/figures/cut.js")),
    ("bad-batch", include_str!("../../../book/figures/bad-batch.js")),
    ("straggler", include_str!("../../../book/figures/straggler.js")),
    ("drift", include_str!("../../../book/figures/drift.js")),
];

/// All cases that a reader can choose in an interactive figure, as JSON for its script, which then
/// has no formulas for them.
///
/// # Errors
///
/// [`BadInput`] where a figure's script computes all, or where no interactive figure has this name.
pub fn cases(name: &str) -> Result<String> {
    match name {
        "schedule" => schedules(),
        "plans" => plans(),
        "cut" => cut_cases(),
        "reshard" => reshard_cases(),
        "mesh" => mesh_cases(),
        "straggler" => straggler_cases(),
        "drift" => drift_cases(),
        _ => {
            let what = format!("no cases are written for the figure {name:?}");
            Err(
                BadInput::new(what, "give schedule, plans, cut, reshard, mesh, straggler or drift")
                    .into(),
            )
        }
    }
}

/// An interactive figure for a notebook: "cost", "stages", "ring", "schedule",
/// "plans", "exposed", "mesh", "memory", "reshard", "cut", "bad-batch", "straggler" or "drift".
/// Its static picture stays if scripts do not run.
///
/// # Errors
///
/// [`BadInput`] where no interactive figure has this name.
pub fn live(name: &str) -> Result<Picture> {
    let svg = figure(name)?;
    let Some((_, script)) = SCRIPTS.into_iter().find(|figure| figure.0 == name) else {
        let help = format!("give one of these: {}", SCRIPTS.map(|figure| figure.0).join(", "));
        return Err(BadInput::new(format!("the figure {name:?} is not interactive"), help).into());
    };
    let data = |cases: &str| format!("<script type=\"application/json\">\n{cases}\n</script>\n");
    let data = match name {
        // Thousands of cases, as the book has them: to find them again would take seconds.
        "schedule" => data(include_str!("../../../book/outputs/schedule.json")),
        "plans" => data(include_str!("../../../book/outputs/plans.json")),
        "cut" | "reshard" | "mesh" | "straggler" | "drift" => data(&cases(name)?),
        _ => String::new(),
    };
    let style = include_str!("../../../book/figures/figures.css");
    let shared = include_str!("../../../book/figures/shared.js");
    Ok(Picture(format!(
        "<figure data-figure=\"{name}\">\n{svg}\n{data}</figure>\n<style>\n{style}</style>\n<script>\n{shared}{script}</script>"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_figure_has_a_picture_that_stays() {
        for (name, _) in SCRIPTS {
            let Picture(html) = live(name).unwrap();
            let places = ["<svg ", "</svg>", "<script>", &format!("shardlab.live(\"{name}\"")]
                .map(|part| html.find(part));
            assert!(places.is_sorted() && places[0].is_some(), "{name}: {places:?}");
        }
        assert!(live("block").is_err() && live("nothing").is_err());
    }
}
