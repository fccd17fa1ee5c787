//! Pictures for pages, one concept a file: their numbers are the library's and the labs'.

mod axes;
mod block_on_ranks;
mod checkpoints;
mod context;
mod data_parallel;
mod draws;
mod exchanges;
mod experts;
mod heads;
mod held;
mod life_cycle;
mod links;
mod live_activations;
mod loss_scale;
mod map;
mod overlap;
mod plan;
mod plans;
mod plots;
mod reshard;
mod ring;
mod roofline;
mod scaling;
mod schedules;
mod settings;
mod zero_life;

use super::{bad_batch, cut, divisor, drift, exposed, memory, straggler};
use crate::draw::{block, gantt, round};
use anyhow::Result;
use held::{holdings, stages};
use kit::show::{Chart, Nodes, Screen};
use labs::lab04::computed_step;
use labs::lab05::gemm;
use labs::lab09::padding_figures;
pub use plots::plot;
use plots::{activations, cost};
use ring::moments;
pub(super) use ring::ring;
use schedules::chart;
use shardlab::optim::AdamWConfig;
use shardlab::parallel::pipeline::Schedule;
use shardlab::parallel::zero::{Stage, ZeroConfig};
use shardlab::plan::{Family, ModelShape};
use shardlab::tensor::Precision;

/// lab03's baby model, on the play that comes with the workbook.
const BABY: ModelShape = ModelShape {
    vocabulary: 65,
    block: 64,
    layers: 4,
    heads: 4,
    embd: 128,
    family: Family::Gpt,
    experts: None,
};

/// Sequences in its batch.
const BATCH: usize = 12;

/// Bytes of a batch. A token is one 4-byte number, and each has the one that follows it as its
/// target.
const DATA: u64 = (2 * 4 * BATCH * BABY.block) as u64;

/// A figure by its name, as SVG.
///
/// # Errors
///
/// [`BadInput`](shardlab::error::BadInput) where no figure has this name.
pub fn figure(name: &str) -> Result<String> {
    // What a drawing needs that has no text beside it.
    let screen = Screen::plain();
    Ok(match name {
        "activations" => activations().svg(),
        "cost" => cost()?,
        "padding" => padding_figures(|plot| plot.svg()),
        "nodes" => Nodes(vec![("node1".into(), 4), ("node2".into(), 4)])
            .svg("Eight ranks on two nodes"),
        "ring" => {
            let title = "The first round of a ring of four ranks: each sends one chunk to the next";
            round(title, &ring(4)[1].0)
        }
        "all-reduce" => moments(),
        "links" => links::picture(),
        "stages" => stages().svg(
            "Bytes per rank of 7.5 billion parameters on 64 ranks in ZeRO's stages, in mixed precision",
        ),
        "cut" => cut::picture()?,
        "bad-batch" => bad_batch::picture()?,
        "straggler" => straggler::picture()?,
        "drift" => drift::picture()?,
        "divisor" => divisor::picture()?,
        "block" => block(),
        "gemm-columns" => gemm(&screen, false).1,
        "gemm-rows" => gemm(&screen, true).1,
        "zero-step" => {
            let adamw = AdamWConfig::default();
            let stage_3 = ZeroConfig::new(Stage::Three, Precision::F32, adamw);
            computed_step(&screen, &BABY, BATCH, 4, &stage_3, None).0.svg()
        }
        "overlap" => overlap::picture().svg(),
        "exposed" => exposed::picture().svg(),
        "schedule" | "gpipe" => {
            let (schedule, called) = match name {
                "gpipe" => (Schedule::GPipe, "GPipe"),
                _ => (Schedule::OneForwardOneBackward, "1F1B"),
            };
            let chart = Chart { title: String::new(), ..chart(schedule, 1)? };
            gantt(&format!("One step of {called} with 4 ranks and 8 micro-batches"), &[chart])
        }
        "schedules" => {
            let charts = [
                chart(Schedule::GPipe, 1)?,
                chart(Schedule::OneForwardOneBackward, 1)?,
                chart(Schedule::Interleaved { group: 4 }, 2)?,
                chart(Schedule::ZeroBubble, 1)?,
            ];
            gantt("Four schedules with 4 ranks and 8 micro-batches, to one scale", &charts)
        }
        "axes" => axes::picture(),
        "memory" => memory::picture()?
            .svg("Bytes of a rank that trains 6.7 billion parameters, in four ways"),
        // lab07's eight ranks, on two nodes.
        "mesh" => Nodes(vec![("node 0".into(), 4), ("node 1".into(), 4)])
            .svg("Eight ranks of a mesh, on two nodes"),
        "draws" => draws::picture()?.svg(
            "Micro-batches of four steps: which step learns from each, in three ways to treat steps 2 and 3",
        ),
        "reshard" => reshard::picture()?,
        "loss-scale" => loss_scale::picture()?,
        "checkpoints" => checkpoints::picture(),
        "plans" => plans::picture()?,
        "ladder-steps" => ladder::picture::steps(&ladder::picture::runs()?).svg(),
        "block-tp" => block_on_ranks::picture(false),
        "block-sp" => block_on_ranks::picture(true),
        "heads" => heads::picture(),
        "context" => context::picture(),
        "exchanges" => exchanges::picture(),
        "experts" => experts::picture()?,
        "zero-life" => zero_life::picture(),
        "live" => live_activations::picture()?,
        "data-parallel" => data_parallel::picture(),
        "scaling" => scaling::picture()?.svg(),
        "settings" => settings::picture()?,
        "roofline" => roofline::picture()?,
        "life-cycle" => life_cycle::picture()?,
        "plan" => plan::picture()?,
        "map" => map::small(&[]),
        "map-data" => map::small(&["data"]),
        "map-state" => map::small(&["state"]),
        "map-tensor" => map::small(&["matrices", "sequence"]),
        "map-layers" => map::small(&["layers"]),
        "map-context" => map::small(&["context"]),
        "map-experts" => map::small(&["experts"]),
        "map-axes" => map::small(&["data", "matrices", "layers"]),
        "map-all" => map::small(&["data", "state", "matrices", "sequence", "layers"]),
        "map-full" => map::full(),
        "which" => map::which()?,
        "which-table" => map::which_table()?,
        "poster" => map::poster()?,
        _ => {
            let (holdings, title) = holdings(name)?;
            holdings.svg(title)
        }
    })
}
