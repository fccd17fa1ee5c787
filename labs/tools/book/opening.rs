//! The moving picture at the top of the README: a ring all-reduce goes round, ZeRO's shards appear,
//! a pipeline fills. The library computes what moves and when; the SVG's own styles move it.
//!
//! It is an image of its own there, with no page around it: it has its colours with it, once for
//! light pages and once for dark ones.

use anyhow::{Context, Result};
use kit::show::Activity;
use kit::show::svg::{activity_colour, rank_colour};
use shardlab::comm::algorithms::{Algorithm, Collective, Task};
use shardlab::parallel::pipeline::{Pipeline, Schedule, Times, Work, simulate};
use shardlab::plan::{BytesEach, zero_memory};
use std::collections::BTreeSet;
use std::fmt::Write;

const RANKS: usize = 4;
/// Seconds of the loop, and the part of it in which something moves.
const LOOP: f64 = 9.0;
const MOVING: f64 = 0.82;

/// The colours of a page.
#[derive(Clone, Copy)]
pub enum Page {
    Light,
    Dark,
}

impl Page {
    fn ink(self) -> &'static str {
        match self {
            Page::Light => "#24292f",
            Page::Dark => "#e6edf3",
        }
    }

    fn rule(self) -> &'static str {
        match self {
            Page::Light => "#d0d7de",
            Page::Dark => "#484f58",
        }
    }
}

/// The picture as an SVG file.
///
/// # Errors
/// If the library refuses to compute a part.
pub fn opening(page: Page) -> Result<String> {
    let mut moves = Moves::default();
    let ring = ring(&mut moves)?;
    let shards = shards(&mut moves);
    let pipeline = pipeline(&mut moves)?;
    let (ink, rule) = (page.ink(), page.rule());
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 880 250\" role=\"img\" \
         aria-label=\"A ring all-reduce goes round, ZeRO's shards appear, a pipeline fills.\">\n<style>\n\
         text {{ font: 13px system-ui, sans-serif; fill: {ink}; text-anchor: middle }}\n\
         .title {{ font-size: 15px; font-weight: 600 }}\n.frame {{ fill: none; stroke: {rule} }}\n\
         .m {{ animation-duration: {LOOP}s; animation-iteration-count: infinite }}\n\
         @media (prefers-reduced-motion) {{ .m {{ animation-delay: -{:.1}s; animation-play-state: paused }} }}\n\
         {}</style>\n{ring}{shards}{pipeline}</svg>",
        LOOP * MOVING,
        moves.0
    ))
}

/// The keyframes, as CSS.
#[derive(Default)]
struct Moves(String);

impl Moves {
    /// A new movement through `frames`, each at a part of the moving time. Returns the attributes
    /// of what it moves.
    fn through(&mut self, frames: &[(f64, String)]) -> String {
        let name = self.0.matches("@keyframes").count();
        let _ = write!(self.0, "@keyframes k{name} {{");
        for (at, style) in frames {
            let _ = write!(self.0, " {:.1}% {{ {style} }}", 100.0 * MOVING * at);
        }
        self.0 += " }\n";
        format!("class=\"m\" style=\"animation-name: k{name}\"")
    }

    /// What is not there before a moment, and stays.
    fn appears(&mut self, at: f64) -> String {
        let hidden = "opacity: 0.08".to_string();
        self.through(&[
            (0.0, hidden.clone()),
            (at, hidden),
            (at + 0.03, "opacity: 1".into()),
            (1.0 / MOVING, "opacity: 1".into()),
        ])
    }
}

/// A chunk on its way from a rank to the next.
struct Hop {
    round: usize,
    from: usize,
    to: usize,
    chunk: usize,
}

/// All hops of a ring all-reduce, round by round, and how many rounds it has.
fn hops() -> Result<(Vec<Hop>, usize)> {
    let bytes = size_of::<f32>();
    let task = Task::new(Collective::AllReduce, Algorithm::Ring, RANKS, RANKS, bytes, 0)?;
    let mut hops = Vec::new();
    for from in 0..RANKS {
        for round in task.rounds(from) {
            let send = round.send.context("each rank sends in each round")?;
            hops.push(Hop {
                round: round.number,
                from,
                to: send.to,
                chunk: send.range.start,
            });
        }
    }
    hops.sort_by_key(|hop| hop.round);
    let rounds = hops.last().map_or(0, |hop| hop.round + 1);
    Ok((hops, rounds))
}

/// After how many rounds each rank's chunk is the sum of all ranks' numbers.
fn rounds_to_the_sum(hops: &[Hop], rounds: usize) -> Vec<Vec<usize>> {
    // Whose numbers each rank's chunk contains.
    let own = |rank: usize| vec![BTreeSet::from([rank]); RANKS];
    let mut holds: Vec<_> = (0..RANKS).map(own).collect();
    let mut complete = vec![vec![rounds; RANKS]; RANKS];
    for same in hops.chunk_by(|a, b| a.round == b.round) {
        let before = holds.clone();
        for &Hop { round, from, to, chunk } in same {
            holds[to][chunk].extend(&before[from][chunk]);
            if holds[to][chunk].len() == RANKS {
                complete[to][chunk] = complete[to][chunk].min(round + 1);
            }
        }
    }
    complete
}

/// Four ranks in a square. In each round a chunk goes from each to the next. A part of a rank
/// lights up when it has a complete sum.
fn ring(moves: &mut Moves) -> Result<String> {
    const PLACES: [(f64, f64); RANKS] =
        [(75.0, 75.0), (205.0, 75.0), (205.0, 190.0), (75.0, 190.0)];
    let (hops, rounds) = hops()?;
    let time = |round: usize| round as f64 / rounds as f64;
    let mut out =
        String::from("<text class=\"title\" x=\"140\" y=\"24\">all-reduce, in a ring</text>\n");
    for &Hop { round, from, to, .. } in &hops {
        let (x, y) = PLACES[from];
        let moved = |share: f64, opacity: u8| {
            let [right, down] = [PLACES[to].0 - x, PLACES[to].1 - y].map(|way| share * way);
            format!("transform: translate({right:.0}px, {down:.0}px); opacity: {opacity}")
        };
        let (begin, end) = (time(round), time(round + 1));
        let attributes = moves.through(&[
            (0.0, moved(0.2, 0)),
            (begin, moved(0.2, 0)),
            (begin + 0.01, moved(0.2, 1)),
            (end - 0.01, moved(0.8, 1)),
            (end, moved(0.8, 0)),
            (1.0 / MOVING, moved(0.8, 0)),
        ]);
        let colour = rank_colour(from);
        let _ = writeln!(
            out,
            "<g {attributes}><circle cx=\"{x}\" cy=\"{y}\" r=\"7\" fill=\"{colour}\"/></g>"
        );
    }
    for (rank, sums) in rounds_to_the_sum(&hops, rounds).into_iter().enumerate() {
        let (x, y) = PLACES[rank];
        let colour = rank_colour(rank);
        let top = y - 10.0;
        for (chunk, round) in sums.into_iter().enumerate() {
            let attributes = moves.appears(time(round));
            let left = x - 32.0 + 16.0 * chunk as f64;
            let _ = writeln!(
                out,
                "<rect {attributes} x=\"{left}\" y=\"{top}\" width=\"16\" height=\"20\" fill=\"{colour}\"/>"
            );
        }
        let _ = writeln!(
            out,
            "<rect x=\"{}\" y=\"{top}\" width=\"64\" height=\"20\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <text x=\"{x}\" y=\"{}\">rank {rank}</text>",
            x - 32.0,
            if rank < 2 { y - 18.0 } else { y + 28.0 }
        );
    }
    Ok(out)
}

/// What each of four ranks holds, from DDP to ZeRO-3: a bar shrinks where a stage divides it.
fn shards(moves: &mut Moves) -> String {
    const HEIGHT: f64 = 150.0;
    const BASE: f64 = 205.0;
    let numel = 1 << 20;
    let held = |stage| zero_memory(stage, numel, RANKS as u64, BytesEach::F32);
    let whole: u64 = held(0).iter().sum();
    let mut out =
        String::from("<text class=\"title\" x=\"440\" y=\"24\">who holds what: ZeRO</text>\n");
    for stage in 0..4 {
        let name = if stage == 0 {
            "every rank holds all".to_string()
        } else {
            format!("ZeRO-{stage}")
        };
        let [begin, end] = [stage, stage + 1].map(|at| at as f64 / 4.0);
        let shown = |opacity: u8| format!("opacity: {opacity}");
        let last = if stage == 3 { 1 } else { 0 };
        let attributes = moves.through(&[
            (0.0, shown(u8::from(stage == 0))),
            (begin, shown(u8::from(stage == 0))),
            (begin + 0.02, shown(1)),
            (end - 0.01, shown(1)),
            (end, shown(last)),
            (1.0 / MOVING, shown(last)),
        ]);
        let _ = writeln!(out, "<text {attributes} x=\"440\" y=\"230\">{name}</text>");
    }
    for rank in 0..RANKS {
        let colour = rank_colour(rank);
        let x = 335.0 + 56.0 * rank as f64;
        let mut base = BASE;
        for part in 0..3 {
            let full = HEIGHT * held(0)[part] as f64 / whole as f64;
            base -= full;
            let scaled = |stage: usize| {
                let share = held(stage)[part] as f64 / held(0)[part] as f64;
                format!("transform: scaleY({share})")
            };
            let mut frames = vec![(0.0, scaled(0))];
            for stage in 1..4 {
                let at = stage as f64 / 4.0;
                frames.extend([(at, scaled(stage - 1)), (at + 0.08, scaled(stage))]);
            }
            frames.push((1.0 / MOVING, scaled(3)));
            let attributes = moves.through(&frames);
            // A rank's shard keeps its place in the whole.
            let origin = base + full * (RANKS - 1 - rank) as f64 / (RANKS - 1) as f64;
            let opacity = [1.0, 0.7, 0.4][part];
            let _ = writeln!(
                out,
                "<rect class=\"frame\" x=\"{x}\" y=\"{base:.1}\" width=\"42\" height=\"{full:.1}\"/>\n\
                 <g {}><rect x=\"{x}\" y=\"{base:.1}\" width=\"42\" height=\"{full:.1}\" \
                 fill=\"{colour}\" fill-opacity=\"{opacity}\"/></g>",
                attributes.replace(
                    "style=\"",
                    &format!("style=\"transform-origin: {x}px {origin:.1}px; ")
                )
            );
        }
    }
    out
}

/// A step of a pipeline, pass by pass, as the library plays its schedule.
fn pipeline(moves: &mut Moves) -> Result<String> {
    const LEFT: f64 = 618.0;
    const WIDTH: f64 = 250.0;
    let pipeline = Pipeline { ranks: RANKS, chunks: 1, micro_batches: 6 };
    let orders = Schedule::OneForwardOneBackward.orders(&pipeline)?;
    let times = Times { forward: 1.0, backward: 2.0, weights: 0.0, message: 0.0 };
    let step = simulate(&pipeline, &orders, &times)?;
    let scale = WIDTH / step.makespan;
    let mut out =
        String::from("<text class=\"title\" x=\"743\" y=\"24\">a pipeline fills</text>\n");
    for (rank, (order, starts)) in orders.iter().zip(&step.starts).enumerate() {
        let y = 62.0 + 38.0 * rank as f64;
        let _ = writeln!(
            out,
            "<rect class=\"frame\" x=\"{LEFT}\" y=\"{y}\" width=\"{WIDTH}\" height=\"28\"/>"
        );
        for (pass, start) in order.iter().zip(starts) {
            let (seconds, activity) = match pass.work {
                Work::Forward => (times.forward, Activity::FORWARD),
                _ => (times.backward, Activity::BACKWARD),
            };
            let attributes = moves.appears(start / step.makespan * 0.96);
            let _ = writeln!(
                out,
                "<rect {attributes} x=\"{:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"28\" fill=\"{}\"/>",
                LEFT + scale * start + 0.5,
                scale * seconds - 1.0,
                activity_colour(activity)
            );
        }
    }
    let _ = writeln!(
        out,
        "<text x=\"743\" y=\"230\">forward and backward; idle for {:.0}%</text>",
        100.0 * step.bubble()
    );
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `book figure opening-light > .github/opening-light.svg` makes one of the README's files.
    #[test]
    fn the_readmes_pictures_are_these() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        for (page, name) in [(Page::Light, "light"), (Page::Dark, "dark")] {
            let file = root.join(format!(".github/opening-{name}.svg"));
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.trim_end() == opening(page).unwrap(), "{}", file.display());
            assert!(text.len() < 300_000, "{} bytes", text.len());
        }
    }
}
