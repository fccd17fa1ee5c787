//! The map of this book: everything that devices can divide, on one model and four devices.
//!
//! In small it is a row of pictures above a page, with the page's own framed. In full each has a
//! card that says what is cut, what is sent and when it is the answer; beside it are the plans that
//! lab11's search finds best. The poster is both on one sheet.

use crate::plans::cluster;
use anyhow::{Context, Result};
use kit::show::svg::{Anchor, Page, Point, WIDTH, framed, rank_colour};
use planner::{Degrees, TrainingJob, model, search};

/// Devices of the picture, and parts of everything that is cut.
const PARTS: usize = 4;

/// One way to divide a training.
struct Cut {
    name: &'static str,
    /// What the field calls it.
    strategy: &'static str,
    /// The page about it.
    page: &'static str,
    /// The batch, the model and its state.
    divided: [Divided; 3],
    cuts: &'static str,
    sends: &'static str,
    when: &'static str,
}

/// How a part of the picture is divided among the devices.
#[derive(Clone, Copy, PartialEq)]
enum Divided {
    /// Each device has all of it.
    Not,
    Rows,
    Columns,
    /// Columns of separate boxes.
    Boxes,
}

const CUTS: [Cut; 7] = [
    Cut {
        name: "data",
        strategy: "data parallelism (DDP)",
        page: "lab03",
        divided: [Divided::Rows, Divided::Not, Divided::Not],
        cuts: "the batch: each device has a copy of the|model, and sequences of its own",
        sends: "all gradients, once per step: an all-reduce,|which the backward pass can hide",
        when: "the model fits, and more sequences per|second are wanted",
    },
    Cut {
        name: "state",
        strategy: "ZeRO, FSDP",
        page: "lab04",
        divided: [Divided::Rows, Divided::Not, Divided::Columns],
        cuts: "what data ranks hold twice: Adam's moments,|then gradients, then weights",
        sends: "the same bytes; half as many again if|weights are cut as well (ZeRO-3)",
        when: "a layer fits, and the state does not",
    },
    Cut {
        name: "matrices",
        strategy: "tensor parallelism",
        page: "lab05",
        divided: [Divided::Not, Divided::Columns, Divided::Columns],
        cuts: "heads, and the columns and rows of|matrices, in every layer",
        sends: "activations: two all-reduces per layer and|pass, and all ranks wait for them",
        when: "a layer or its step is too large, and links|are fast: within a node",
    },
    Cut {
        name: "sequence",
        strategy: "sequence parallelism",
        page: "lab05",
        divided: [Divided::Columns, Divided::Columns, Divided::Columns],
        cuts: "the positions of each sequence, between the|matrices of tensor ranks",
        sends: "a reduce-scatter and an all-gather in place|of each all-reduce",
        when: "there are tensor ranks, and activations|fill them",
    },
    Cut {
        name: "layers",
        strategy: "pipeline parallelism",
        page: "lab06",
        divided: [Divided::Not, Divided::Rows, Divided::Columns],
        cuts: "layers into stages, which micro-batches|pass one after the other",
        sends: "activations at each cut, to one neighbour:|the fewest bytes of all",
        when: "links are slow (between nodes), and there|are many micro-batches: else stages wait",
    },
    Cut {
        name: "context",
        strategy: "context parallelism",
        page: "lab12",
        divided: [Divided::Columns, Divided::Not, Divided::Not],
        cuts: "the positions of each sequence; each device|has all weights, as data ranks have",
        sends: "keys and values of every layer, and their|gradients; all gradients, once per step",
        when: "a sequence is too long for one device",
    },
    Cut {
        name: "experts",
        strategy: "expert parallelism",
        page: "lab13",
        divided: [Divided::Rows, Divided::Boxes, Divided::Columns],
        cuts: "the experts of each layer, of which a token|needs a few",
        sends: "tokens to their experts and back: two|all-to-alls per layer and pass",
        when: "the model is a mixture of experts, too many|for one device",
    },
];

/// A picture of one cut: a batch of four sequences, a model of four layers and the state of its
/// weights, gradients and moments, each in its device's colour, or grey where each device has all.
/// A part is `unit` high.
fn cut(page: &mut Page, (x, y): Point, cut: &Cut, unit: f64) {
    let batch = (unit, unit);
    let layer = (1.3 * unit, unit);
    let [of_batch, of_model, of_state] = cut.divided;
    part(page, (x, y), batch, PARTS, of_batch);
    let model = x + (PARTS as f64 + 1.0) * unit;
    part(page, (model, y), layer, PARTS, of_model);
    let state = model + PARTS as f64 * layer.0 + unit;
    for kind in 0..3 {
        let top = y + 1.5 * unit * f64::from(kind);
        part(page, (state, top), batch, 1, of_state);
    }
}

/// The width of such a picture.
fn wide(unit: f64) -> f64 {
    (PARTS as f64 * 3.3 + 2.0) * unit
}

/// `rows` rows of parts of this size.
fn part(page: &mut Page, (x, y): Point, (width, height): Point, rows: usize, divided: Divided) {
    if divided == Divided::Not {
        let size = (width * PARTS as f64, height * rows as f64);
        let style = "fill=\"currentColor\" fill-opacity=\"0.15\" stroke=\"currentColor\" stroke-opacity=\"0.5\"";
        return page.rect((x, y), size, style);
    }
    let gap = if divided == Divided::Boxes { 0.3 } else { 0.08 };
    for row in 0..rows {
        for column in 0..PARTS {
            let device = if divided == Divided::Rows { row } else { column };
            let corner =
                (x + width * (column as f64 + gap / 2.0), y + height * (row as f64 + gap / 2.0));
            let size = (width * (1.0 - gap), height * (1.0 - gap));
            page.rect(corner, size, format!("fill=\"{}\"", rank_colour(device)));
        }
    }
}

/// The map in small. The cuts of these names are framed: the reader is there. Each leads to its
/// page.
pub(super) fn small(here: &[&str]) -> String {
    const UNIT: f64 = 4.0;
    const ROOM: f64 = WIDTH / CUTS.len() as f64;
    let mut page = Page::default();
    for (i, each) in CUTS.iter().enumerate() {
        let left = ROOM * i as f64;
        page.add(format!("<a href=\"{}.html\">", each.page));
        if here.contains(&each.name) {
            page.rect((left + 1.0, 1.0), (ROOM - 2.0, 45.0), framed("currentColor", 1.5));
        }
        cut(&mut page, (left + (ROOM - wide(UNIT)) / 2.0, 7.0), each, UNIT);
        page.text((left + ROOM / 2.0, 40.0), Anchor::Middle, each.name);
        page.add("</a>");
    }
    let title = match here {
        [] => "The map: seven ways to divide a training".to_string(),
        _ => format!("The map: seven ways to divide a training; you are at {}", here.join(", ")),
    };
    page.finish(&title, 47.0)
}

/// Width of the full map.
const FULL: f64 = 720.0;

/// A card's size.
const CARD: Point = (FULL / 2.0, 208.0);

/// The map in full: a picture for each cut, so that a narrow page has them below each other.
pub(super) fn full() -> String {
    let picture = |(i, each): (usize, &Cut)| {
        let mut page = Page::default();
        card(&mut page, (0.0, 0.0), each, i == 0, true);
        let title =
            format!("{}: what it cuts, what it sends, and when it is the answer", each.strategy);
        page.finish_wide(&title, CARD, 13.0)
    };
    let all: Vec<String> = CUTS.iter().enumerate().map(picture).collect();
    format!("<div class=\"cards\">\n{}\n</div>", all.join("\n"))
}

/// All cards, two in a row. Returns where they end.
fn cards(page: &mut Page, top: f64) -> f64 {
    for (i, each) in CUTS.iter().enumerate() {
        let corner = (CARD.0 * (i % 2) as f64, top + CARD.1 * (i / 2) as f64);
        card(page, corner, each, i == 0, false);
    }
    top + CARD.1 * CUTS.len().div_ceil(2) as f64
}

/// What one cut divides and sends. `numbered`: with the devices' numbers, which are said once.
/// `linked`: its title leads to the lab, which a sheet of paper cannot.
fn card(page: &mut Page, (left, y): Point, each: &Cut, numbered: bool, linked: bool) {
    const UNIT: f64 = 11.0;
    const LINE: f64 = 17.0;
    if linked {
        page.add(format!("<a href=\"{}.html\">", each.page));
    }
    page.add("<g font-weight=\"bold\">");
    page.text((left, y + 20.0), Anchor::Start, each.strategy);
    page.add("</g>");
    if linked {
        page.add("</a>");
    }
    cut(page, (left, y + 32.0), each, UNIT);
    let places = [2.0, 5.0 + 2.6, 6.0 + 5.2 + 2.0].map(|parts| left + parts * UNIT);
    for (words, x) in ["batch", "model", "state"].into_iter().zip(places) {
        page.text((x, y + 92.0), Anchor::Middle, words);
    }
    if numbered {
        for device in 0..PARTS {
            let x = left + wide(UNIT) + 40.0 + 28.0 * device as f64;
            page.circle((x, y + 54.0), 9.0, format!("fill=\"{}\"", rank_colour(device)));
        }
        page.text((left + wide(UNIT) + 82.0, y + 82.0), Anchor::Middle, "devices 0 to 3");
    }
    let rows = [("cuts", each.cuts), ("sends", each.sends), ("when", each.when)];
    let mut line = y + 112.0;
    for (head, words) in rows {
        page.text((left, line), Anchor::Start, head);
        for words in words.split('|') {
            page.text((left + 42.0, line), Anchor::Start, words);
            line += LINE;
        }
    }
}

const MODELS: [&str; 4] = ["llama-3.2-1b", "llama-3-8b", "llama-3-70b", "llama-3.1-405b"];
const SIZES: [usize; 4] = [8, 64, 512, 4096];

/// Which strategy, when: the plans that lab11's search finds fastest.
pub(super) fn which() -> Result<String> {
    let mut page = Page::default();
    let bottom = table(&mut page, 0.0)?;
    let title = "The fastest strategy for four Llamas on 8 to 4,096 H100, by lab11's search";
    Ok(page.finish_wide(title, (FULL, bottom), 13.0))
}

/// The same as a table of a page, which fits on a phone.
pub(super) fn which_table() -> Result<String> {
    let heads: String = SIZES
        .into_iter()
        .map(|devices| format!("<th>{}</th>", of_devices(devices)))
        .collect();
    let mut rows = Vec::new();
    for (name, plans) in fastest()? {
        let cells: String = plans
            .iter()
            .map(|plan| format!("<td>{}</td>", plan.replace(" + ", "<br>")))
            .collect();
        rows.push(format!("<tr><th scope=\"row\">{name}</th>{cells}</tr>"));
    }
    Ok(format!(
        "<table class=\"which\">\n<thead><tr><td></td>{heads}</tr></thead>\n<tbody>\n{}\n</tbody>\n</table>",
        rows.join("\n")
    ))
}

fn of_devices(devices: usize) -> String {
    format!("{} H100", kit::show::thousands(devices as u64))
}

/// For each model its fastest plans, by the number of devices.
fn fastest() -> Result<Vec<(&'static str, Vec<String>)>> {
    let plan = |name: &str, devices: usize| {
        let cluster = cluster("h100-80g", "dgx-h100")?;
        let search = search(&TrainingJob::new(model(name)?, cluster, devices));
        Ok(match search.by_degrees().first() {
            Some(plan) => plan.strategy.words(),
            None => "does not fit".to_string(),
        })
    };
    let row =
        |name| Ok((name, SIZES.into_iter().map(|size| plan(name, size)).collect::<Result<_>>()?));
    MODELS.into_iter().map(row).collect()
}

/// The same as a picture. Returns where it ends.
fn table(page: &mut Page, top: f64) -> Result<f64> {
    const ROW: f64 = 66.0;
    const LINE: f64 = 17.0;
    let column = |i: usize| 130.0 + (FULL - 130.0) / SIZES.len() as f64 * i as f64;
    for (i, devices) in SIZES.into_iter().enumerate() {
        page.text((column(i), top + 16.0), Anchor::Start, of_devices(devices));
    }
    for (row, (name, plans)) in fastest()?.into_iter().enumerate() {
        let y = top + 26.0 + ROW * row as f64;
        page.line((0.0, y), (FULL, y), "stroke-opacity=\"0.3\"");
        page.text((0.0, y + LINE), Anchor::Start, name);
        for (i, words) in plans.iter().enumerate() {
            for (line, words) in words.split(" + ").enumerate() {
                page.text((column(i), y + LINE * (line + 1) as f64), Anchor::Start, words);
            }
        }
    }
    Ok(top + 26.0 + ROW * MODELS.len() as f64)
}

/// Both on one sheet, to hang on a wall: black on white, whatever shows it.
pub(super) fn poster() -> Result<String> {
    const MARGIN: f64 = 30.0;
    let mut page = Page::default();
    page.text((0.0, 20.0), Anchor::Start, "Everything that devices can divide");
    let middle = cards(&mut page, 40.0);
    let head = "Which strategy, when: the fastest plans of lab11's search";
    page.text((0.0, middle + 26.0), Anchor::Start, head);
    let bottom = table(&mut page, middle + 40.0)? + 20.0;
    let made =
        "shardlab, The Tragedy of Rank Zero's workbook: cargo run --bin book -- figure poster";
    page.text((0.0, bottom), Anchor::Start, made);
    let svg = page.finish_wide("The map of shardlab", (FULL, bottom), 13.0);
    // A sheet of its own has a colour and a size of its own.
    let size = format!(
        "viewBox=\"{} {} {} {}\" width=\"{}mm\" style=\"color:#111;background:#fff;font-family:sans-serif\"",
        -MARGIN,
        -MARGIN,
        FULL + 2.0 * MARGIN,
        bottom + 2.0 * MARGIN,
        // A3, upright.
        297
    );
    let start = svg.find("viewBox").context("a picture has a size")?;
    let end = svg.find(" font-size").context("a picture has letters")?;
    Ok(format!("{}{size}{}", &svg[..start], &svg[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reader_is_somewhere_on_the_map() {
        let frames = |here: &[&str]| small(here).matches("rx=\"5\"").count();
        assert_eq!([frames(&[]), frames(&["data"]), frames(&["data", "layers"])], [0, 1, 2]);
        assert!(small(&["layers"]).contains("you are at layers"));
    }

    #[test]
    fn each_card_leads_to_its_lab_and_a_sheet_of_paper_nowhere() {
        let links = |svg: &str| svg.matches("<a href=\"lab").count();
        assert_eq!([links(&full()), links(&poster().unwrap())], [CUTS.len(), 0]);
    }

    /// Each line of a card ends before the next card begins; letters are 7 wide at most.
    #[test]
    fn cards_have_room_for_their_words() {
        for each in &CUTS {
            for line in [each.cuts, each.sends, each.when]
                .into_iter()
                .flat_map(|words| words.split('|'))
            {
                assert!(42.0 + 6.9 * line.len() as f64 <= FULL / 2.0, "{line}");
            }
        }
    }
}
