//! The moving picture at the top of the README: a ring all-reduce goes round, ZeRO's shards appear,
//! a pipeline fills. The library computes what moves and when; the SVG's own styles move it.
//!
//! It is an image of its own there, with no page around it: it has its colours with it, once for
//! light pages and once for dark ones.

use super::ring;
use anyhow::Result;
use kit::show::Activity;
use kit::show::svg::{activity_colour, rank_colour};
use shardlab::parallel::pipeline::{Pipeline, Schedule, Times, Work, simulate};
use shardlab::plan::{BytesEach, zero_memory};

const RANKS: usize = 4;
/// Seconds of the loop, and the part of it in which something moves.
const LOOP: f64 = 9.0;
const MOVING: f64 = 0.82;

/// The colours of a page: of letters, and of empty boxes.
pub type Page = [&'static str; 2];
pub const LIGHT: Page = ["#24292f", "#d0d7de"];
pub const DARK: Page = ["#e6edf3", "#484f58"];

/// The picture as an SVG file.
///
/// # Errors
/// If the library refuses to compute a part.
pub fn opening([ink, rule]: Page) -> Result<String> {
    let mut film = Film::default();
    ring_all_reduce(&mut film);
    shards(&mut film);
    pipeline(&mut film)?;
    let Film { moves, body } = film;
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 880 250\" role=\"img\" \
         aria-label=\"A ring all-reduce goes round, ZeRO's shards appear, a pipeline fills.\">\n<style>\n\
         text {{ font: 13px system-ui, sans-serif; fill: {ink}; text-anchor: middle }}\n\
         .title {{ font-size: 15px; font-weight: 600 }}\n.frame {{ fill: none; stroke: {rule} }}\n\
         .m {{ animation-duration: {LOOP}s; animation-iteration-count: infinite }}\n\
         @media (prefers-reduced-motion) {{ .m {{ animation-delay: -{:.1}s; animation-play-state: paused }} }}\n\
         {moves}</style>\n{body}</svg>",
        LOOP * MOVING
    ))
}

/// The picture while it is drawn: its keyframes, as CSS, and its elements.
#[derive(Default)]
struct Film {
    moves: String,
    body: String,
}

impl Film {
    fn add(&mut self, element: String) {
        self.body += &element;
        self.body.push('\n');
    }

    fn title(&mut self, x: usize, words: &str) {
        self.add(format!("<text class=\"title\" x=\"{x}\" y=\"24\">{words}</text>"));
    }

    /// A new movement through `frames`, each at a part of the moving time, with the first style
    /// before it and the last one after it. Returns the attributes of what it moves.
    fn through(&mut self, frames: &[(f64, String)]) -> String {
        let name = self.moves.matches("@keyframes").count();
        let ends = |at, frame: Option<&(f64, String)>| frame.map(|(_, style)| (at, style.clone()));
        let first = ends(0.0, frames.first());
        let last = ends(1.0 / MOVING, frames.last());
        let all = first.iter().chain(frames).chain(&last);
        let all = all.map(|(at, style)| format!(" {:.1}% {{ {style} }}", 100.0 * MOVING * at));
        self.moves += &format!("@keyframes k{name} {{{} }}\n", all.collect::<String>());
        format!("class=\"m\" style=\"animation-name: k{name}\"")
    }

    /// What is not there before a moment, and stays.
    fn appears(&mut self, at: f64) -> String {
        self.through(&[(at, "opacity: 0.08".into()), (at + 0.03, "opacity: 1".into())])
    }
}

/// Four ranks in a square. In each round a chunk goes from each to the next. A part of a rank
/// lights up when it has a complete sum.
fn ring_all_reduce(film: &mut Film) {
    const PLACES: [(f64, f64); RANKS] =
        [(75.0, 75.0), (205.0, 75.0), (205.0, 190.0), (75.0, 190.0)];
    let states = ring(RANKS);
    let rounds = states.len() - 1;
    let time = |round: usize| round as f64 / rounds as f64;
    film.title(140, "all-reduce, in a ring");
    for round in 0..rounds {
        for (from, (x, y)) in PLACES.into_iter().enumerate() {
            let to = PLACES[(from + 1) % RANKS];
            let moved = |share: f64, opacity: u8| {
                let [right, down] = [to.0 - x, to.1 - y].map(|way| share * way);
                format!("transform: translate({right:.0}px, {down:.0}px); opacity: {opacity}")
            };
            let (begin, end) = (time(round), time(round + 1));
            let attributes = film.through(&[
                (begin, moved(0.2, 0)),
                (begin + 0.01, moved(0.2, 1)),
                (end - 0.01, moved(0.8, 1)),
                (end, moved(0.8, 0)),
            ]);
            let colour = rank_colour(from);
            film.add(format!(
                "<g {attributes}><circle cx=\"{x}\" cy=\"{y}\" r=\"7\" fill=\"{colour}\"/></g>"
            ));
        }
    }
    for (rank, (x, y)) in PLACES.into_iter().enumerate() {
        let colour = rank_colour(rank);
        let (left, top) = (x - 32.0, y - 10.0);
        for chunk in 0..RANKS {
            let is_sum = |(_, held): &(_, Vec<Vec<Vec<bool>>>)| !held[rank][chunk].contains(&false);
            let complete = states.iter().position(is_sum).unwrap_or(rounds);
            let attributes = film.appears(time(complete));
            film.add(format!(
                "<rect {attributes} x=\"{}\" y=\"{top}\" width=\"16\" height=\"20\" fill=\"{colour}\"/>",
                left + 16.0 * chunk as f64
            ));
        }
        let below = if rank < 2 { y - 18.0 } else { y + 28.0 };
        film.add(format!(
            "<rect x=\"{left}\" y=\"{top}\" width=\"64\" height=\"20\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <text x=\"{x}\" y=\"{below}\">rank {rank}</text>"
        ));
    }
}

/// What each of four ranks holds, from DDP to ZeRO-3: a bar shrinks where a stage divides it.
fn shards(film: &mut Film) {
    const HEIGHT: f64 = 150.0;
    const BASE: f64 = 205.0;
    let held =
        |stage| zero_memory(stage, 1 << 20, RANKS as u64, BytesEach::F32).map(|bytes| bytes as f64);
    let all: f64 = held(0).iter().sum();
    film.title(440, "who holds what: ZeRO");
    let names = ["every rank holds all", "ZeRO-1", "ZeRO-2", "ZeRO-3"];
    for (stage, name) in names.into_iter().enumerate() {
        let [begin, end] = [stage, stage + 1].map(|at| at as f64 / 4.0);
        let shown = |is: bool| format!("opacity: {}", u8::from(is));
        let attributes = film.through(&[
            (begin, shown(stage == 0)),
            (begin + 0.02, shown(true)),
            (end - 0.01, shown(true)),
            (end, shown(stage == 3)),
        ]);
        film.add(format!("<text {attributes} x=\"440\" y=\"230\">{name}</text>"));
    }
    for rank in 0..RANKS {
        let colour = rank_colour(rank);
        let x = 335.0 + 56.0 * rank as f64;
        let mut base = BASE;
        for (part, opacity) in [1.0, 0.7, 0.4].into_iter().enumerate() {
            let full = HEIGHT * held(0)[part] / all;
            base -= full;
            let scaled =
                |stage: usize| format!("transform: scaleY({})", held(stage)[part] / held(0)[part]);
            let shrinks = |stage: usize| {
                let at = stage as f64 / 4.0;
                [(at, scaled(stage - 1)), (at + 0.08, scaled(stage))]
            };
            let moves = film.through(&[1, 2, 3].map(shrinks).concat());
            // A rank's shard keeps its place in the whole.
            let origin = base + full * (RANKS - 1 - rank) as f64 / (RANKS - 1) as f64;
            let origin = format!("style=\"transform-origin: {x}px {origin:.1}px; ");
            let moves = moves.replace("style=\"", &origin);
            let place = format!("x=\"{x}\" y=\"{base:.1}\" width=\"42\" height=\"{full:.1}\"");
            film.add(format!(
                "<rect class=\"frame\" {place}/>\n\
                 <g {moves}><rect {place} fill=\"{colour}\" fill-opacity=\"{opacity}\"/></g>"
            ));
        }
    }
}

/// A step of a pipeline, pass by pass, as the library plays its schedule.
fn pipeline(film: &mut Film) -> Result<()> {
    const LEFT: f64 = 618.0;
    const WIDTH: f64 = 250.0;
    let pipeline = Pipeline { ranks: RANKS, chunks: 1, micro_batches: 6 };
    let orders = Schedule::OneForwardOneBackward.orders(&pipeline)?;
    let times = Times { forward: 1.0, backward: 2.0, weights: 0.0, message: 0.0 };
    let step = simulate(&pipeline, &orders, &times)?;
    let scale = WIDTH / step.makespan;
    film.title(743, "a pipeline fills");
    for (rank, (order, starts)) in orders.iter().zip(&step.starts).enumerate() {
        let y = 62.0 + 38.0 * rank as f64;
        film.add(format!(
            "<rect class=\"frame\" x=\"{LEFT}\" y=\"{y}\" width=\"{WIDTH}\" height=\"28\"/>"
        ));
        for (pass, start) in order.iter().zip(starts) {
            let (seconds, activity) = match pass.work {
                Work::Forward => (times.forward, Activity::FORWARD),
                _ => (times.backward, Activity::BACKWARD),
            };
            let attributes = film.appears(start / step.makespan * 0.96);
            film.add(format!(
                "<rect {attributes} x=\"{:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"28\" fill=\"{}\"/>",
                LEFT + scale * start + 0.5,
                scale * seconds - 1.0,
                activity_colour(activity)
            ));
        }
    }
    let idle = 100.0 * step.bubble();
    film.add(format!(
        "<text x=\"743\" y=\"230\">forward and backward; idle for {idle:.0}%</text>"
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `book figure opening-light > .github/opening-light.svg` makes one of the README's files.
    #[test]
    fn the_readmes_pictures_are_these() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        for (page, name) in [(LIGHT, "light"), (DARK, "dark")] {
            let file = root.join(format!(".github/opening-{name}.svg"));
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.trim_end() == opening(page).unwrap(), "{}", file.display());
            assert!(text.len() < 300_000, "{} bytes", text.len());
        }
    }
}
