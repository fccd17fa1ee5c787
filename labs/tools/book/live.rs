//! Interactive figures, for a notebook.

use super::figures::figure;
use super::{cut, divisor, drift, mesh, plans, reshard, schedules, straggler};
use anyhow::{Context, Result};
use kit::show::Picture;
use shardlab::error::BadInput;

/// An interactive figure: its name, its script, which the book's pages link as well, and what makes
/// the cases that it shows. A script without cases has formulas.
type Live = (&'static str, &'static str, Option<fn() -> Result<String>>);

macro_rules! script {
    ($name:literal) => {
        include_str!(concat!("../../../book/figures/", $name, ".js"))
    };
}

const ALL: [Live; 14] = [
    ("cost", script!("cost"), None),
    ("stages", script!("stages"), None),
    ("ring", script!("ring"), None),
    ("schedule", script!("schedule"), Some(schedules::cases)),
    ("plans", script!("plans"), Some(plans::cases)),
    ("exposed", script!("exposed"), None),
    ("mesh", script!("mesh"), Some(mesh::cases)),
    ("memory", script!("memory"), None),
    ("reshard", script!("reshard"), Some(reshard::cases)),
    ("cut", script!("cut"), Some(cut::cases)),
    ("bad-batch", script!("bad-batch"), None),
    ("straggler", script!("straggler"), Some(straggler::cases)),
    ("drift", script!("drift"), Some(drift::cases)),
    ("divisor", script!("divisor"), Some(divisor::cases)),
];

/// The figure of this name among some.
fn find(all: &[Live], name: &str, what: &str) -> Result<Live> {
    if let Some(found) = all.iter().find(|figure| figure.0 == name) {
        return Ok(*found);
    }
    let names: Vec<&str> = all.iter().map(|figure| figure.0).collect();
    let help = format!("give one of these: {}", names.join(", "));
    Err(BadInput::new(format!("the figure {name:?} {what}"), help).into())
}

/// All cases that a reader can choose in an interactive figure, as JSON for its script, which then
/// has no formulas for them.
///
/// # Errors
///
/// [`BadInput`] where a figure's script computes all, or where no interactive figure has this name.
pub fn cases(name: &str) -> Result<String> {
    let with_cases: Vec<Live> = ALL.into_iter().filter(|figure| figure.2.is_some()).collect();
    let (_, _, cases) = find(&with_cases, name, "has no cases")?;
    cases.context("a figure with cases")?()
}

/// An interactive figure for a notebook, such as "cost". Its static picture stays if scripts do
/// not run.
///
/// # Errors
///
/// [`BadInput`] where no interactive figure has this name; it lists them.
pub fn live(name: &str) -> Result<Picture> {
    let svg = figure(name)?;
    let (_, script, cases) = find(&ALL, name, "is not interactive")?;
    let data = match (name, cases) {
        // Thousands of cases, as the book has them: to find them again would take seconds.
        ("schedule", _) => Some(include_str!("../../../book/outputs/schedule.json").into()),
        ("plans", _) => Some(include_str!("../../../book/outputs/plans.json").into()),
        (_, cases) => cases.map(|cases| cases()).transpose()?,
    };
    let data = data.map_or(String::new(), |data: String| {
        format!("<script type=\"application/json\">\n{data}\n</script>\n")
    });
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
        for (name, ..) in ALL {
            let Picture(html) = live(name).unwrap();
            let places = ["<svg ", "</svg>", "<script>", &format!("shardlab.live(\"{name}\"")]
                .map(|part| html.find(part));
            assert!(places.is_sorted() && places[0].is_some(), "{name}: {places:?}");
        }
        assert!(live("block").is_err() && live("nothing").is_err());
        let refused = cases("cost").unwrap_err();
        let refused = refused.downcast_ref::<BadInput>().unwrap();
        assert!(refused.help.contains("plans") && !refused.help.contains("cost"), "{refused:?}");
    }
}
