//! One system of colours, for the terminal and for pages.
//!
//! A colour means one thing. A rank has its hue. Curves and algorithms share others, and so do
//! kinds of work: in a timeline the row says who works, and the hue what is done. No rank has a hue
//! of these. Good and bad are `screen.rs`'s.

use super::activity::Activity;

/// A colour of the terminal (`ESC [ … m`) and of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hue {
    pub(super) terminal: &'static str,
    pub(super) page: &'static str,
}

const fn hue(terminal: &'static str, page: &'static str) -> Hue {
    Hue { terminal, page }
}

const MAGENTA: Hue = hue("35", "#b0509f");
const GREEN: Hue = hue("32", "#3c9a4c");
const YELLOW: Hue = hue("33", "#c98a00");
const BLUE: Hue = hue("94", "#4577d0");
const CYAN: Hue = hue("36", "#1b98a8");
const BROWN: Hue = hue("38;5;137", "#8f6b4e");

/// Eight ranks have eight hues. The first six are the terminal's own, so that they follow its
/// theme; blue and red are the bright ones, because the normal ones are hard to read on black. No
/// theme has eight.
pub(super) const RANKS: [Hue; 8] = [
    CYAN,
    YELLOW,
    MAGENTA,
    GREEN,
    BLUE,
    hue("91", "#d0503f"),
    BROWN,
    hue("38;5;141", "#8a6fe0"),
];

const SKY: Hue = hue("38;5;75", "#5aa9e6");
const ORANGE: Hue = hue("38;5;208", "#f0781e");
const LIME: Hue = hue("38;5;106", "#9aae00");
const PINK: Hue = hue("38;5;205", "#ee6fa8");
const GREY: Hue = hue("38;5;246", "#7d8590");
const ROSE: Hue = hue("38;5;174", "#d98f8f");

/// Curves and algorithms.
pub(super) const CURVES: [Hue; 6] = [SKY, ORANGE, LIME, PINK, GREY, ROSE];

pub(super) fn of_rank(rank: usize) -> Hue {
    RANKS[rank % RANKS.len()]
}

pub(super) fn of_curve(look: usize) -> Hue {
    CURVES[look % CURVES.len()]
}

/// The hue of what a rank does. All communication has one. None for waiting.
pub(super) fn of_activity(activity: Activity) -> Option<Hue> {
    match activity {
        Activity::FORWARD => Some(SKY),
        Activity::BACKWARD => Some(ORANGE),
        Activity::WEIGHTS => Some(LIME),
        Activity::ALL_REDUCE | Activity::GATHER | Activity::REDUCE_SCATTER => Some(PINK),
        Activity::OPTIMIZER => Some(GREY),
        Activity::DATA => Some(ROSE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lightness and the two colour axes of CIELAB, in which a distance of 2 is just visible side
    /// by side.
    fn lab(page: &str) -> [f64; 3] {
        let part = |i: usize| f64::from(u8::from_str_radix(&page[i..i + 2], 16).unwrap()) / 255.0;
        let [r, g, b] = [1, 3, 5].map(part).map(|c| {
            if c <= 0.04045 {
                c / 12.92
            } else {
                ((c + 0.055) / 1.055).powf(2.4)
            }
        });
        let root = |t: f64| {
            if t > 0.008856 {
                t.cbrt()
            } else {
                7.787 * t + 16.0 / 116.0
            }
        };
        let x = root((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
        let y = root(0.2126 * r + 0.7152 * g + 0.0722 * b);
        let z = root((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn all_hues_differ_and_can_be_seen_on_light_and_on_dark_pages() {
        let all = [&RANKS[..], &CURVES[..]].concat();
        for (i, one) in all.iter().enumerate() {
            let [lightness, ..] = lab(one.page);
            assert!((45.0..70.0).contains(&lightness), "{one:?}");
            for other in &all[i + 1..] {
                let apart = lab(one.page).into_iter().zip(lab(other.page));
                let apart = apart.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                assert!(apart > 20.0, "{one:?} {other:?}: {apart}");
                assert_ne!(one.terminal, other.terminal);
            }
        }
    }

    /// The explorers of the book draw with the same colours.
    #[test]
    fn explorers_have_these_colours() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../book/figures/shared.js");
        let script = std::fs::read_to_string(path).unwrap();
        let list = |name: &str, hues: &[Hue]| {
            let pages: Vec<String> = hues.iter().map(|hue| format!("{:?}", hue.page)).collect();
            format!("    {name}: [{}],\n", pages.join(", "))
        };
        let pass = |activity: Activity| {
            let page = of_activity(activity).unwrap().page;
            format!("{}: {page:?}", activity.name)
        };
        let passes = [Activity::FORWARD, Activity::BACKWARD, Activity::WEIGHTS].map(pass);
        let link = of_activity(Activity::ALL_REDUCE).unwrap().page;
        let passes = format!("    passes: {{ {}, link: {link:?} }},\n", passes.join(", "));
        for line in [list("ranks", &RANKS), list("curves", &CURVES), passes] {
            assert!(script.contains(&line), "{path} lacks {line}");
        }
    }

    /// The book's outputs are shown in these colours: a class for each of the terminal's codes.
    #[test]
    fn outputs_have_these_colours() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../book/shardlab.css");
        let style = std::fs::read_to_string(path).unwrap();
        for hue in RANKS.iter().chain(&CURVES) {
            let code = hue.terminal.rsplit(';').next().unwrap_or_default();
            let rule = format!(".ansi-{code} {{ --hue: {}; }}\n", hue.page);
            assert!(style.contains(&rule), "{path} lacks {rule}");
        }
    }

    #[test]
    fn what_a_rank_does_has_a_hue_and_only_communication_shares_one() {
        let hues = Activity::ALL.into_iter().filter_map(of_activity);
        let mut pages: Vec<&str> = hues.map(|hue| hue.page).collect();
        assert_eq!(pages.len(), Activity::ALL.len() - 1, "all but waiting");
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages.len(), 6);
    }
}
