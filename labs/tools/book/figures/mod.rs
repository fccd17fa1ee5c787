//! Pictures for pages, one concept a file: their numbers are the library's and the labs'.

mod axes;
mod block_on_ranks;
mod data_parallel;
mod draws;
mod heads;
mod held;
mod life_cycle;
mod links;
mod live_activations;
mod overlap;
mod plan;
mod plots;
mod ring;
mod roofline;
mod scaling;
mod schedules;
mod settings;
mod slices;
mod zero_life;

use super::exposed::exposed_picture;
use super::memory::memory_picture;
use super::mesh::mesh_picture;
use super::plans::best_plans;
use anyhow::Result;
use axes::axes;
use block_on_ranks::block_on_ranks;
use data_parallel::data_parallel;
use draws::draws;
use heads::heads;
use held::{holdings, holdings_of, stages};
use kit::show::{Chart, Loads, Nodes, Ring, Screen, block, block_svg, gantt, gantt_svg};
use lab04::computed_step;
use lab05::gemm;
use lab09::padding_figures;
use life_cycle::life_cycle;
use links::links;
use live_activations::live_activations;
use overlap::overlap;
use plan::plan;
pub use plots::{activations, plot};
use plots::{cost, times_of};
use ring::moments;
pub use ring::ring;
use roofline::roofline;
use scaling::scaling;
use schedules::chart;
use settings::settings;
use shardlab::optim::AdamWConfig;
use shardlab::parallel::pipeline::Schedule;
use shardlab::parallel::zero::{Stage, ZeroConfig};
use shardlab::plan::{DropoutMasks, Family, ModelShape};
use shardlab::tensor::Precision;
use slices::slices;
use std::slice;
use zero_life::zero_life;

/// The names of all figures.
pub const FIGURES: &[&str] = &[
    "cost",
    "stages",
    "gemm-columns",
    "gemm-rows",
    "activations",
    "memory",
    "zero-step",
    "nodes",
    "block",
    "overlap",
    "exposed",
    "one-device",
    "ddp-before",
    "ddp-after",
    "zero-1",
    "zero-3",
    "ring",
    "all-reduce",
    "links",
    "schedule",
    "schedules",
    "axes",
    "mesh",
    "draws",
    "slices",
    "padding",
    "plans",
    "block-tp",
    "block-sp",
    "heads",
    "zero-life",
    "live",
    "data-parallel",
    "scaling",
    "settings",
    "roofline",
    "life-cycle",
    "plan",
    "ladder-steps",
];

/// lab03's baby model, on the play that comes with the workbook.
const BABY: ModelShape = ModelShape {
    vocabulary: 65,
    block: 64,
    layers: 4,
    heads: 4,
    embd: 128,
    family: Family::Gpt,
};

/// Sequences in its batch.
const BATCH: usize = 12;

/// Bytes of a batch. A token is one 4-byte number, and each has the one that follows it as its
/// target.
const DATA: u64 = (2 * 4 * BATCH * BABY.block) as u64;

/// A figure by its name, as text for a screen or, without one, as SVG.
///
/// # Errors
///
/// [`BadInput`](shardlab::error::BadInput) where no figure has this name.
pub fn figure(name: &str, screen: Option<&Screen>) -> Result<String> {
    let on = screen.cloned().unwrap_or_else(Screen::plain);
    let (text, svg) = match name {
        "activations" => {
            let plot = activations(&BABY, BATCH, DropoutMasks::None);
            (plot.render(&on), plot.svg())
        }
        "cost" => {
            let times = cost()?;
            let plot = times_of(&times);
            (plot.render(&on), plot.svg())
        }
        "padding" => (padding_figures(|plot| plot.render(&on)), padding_figures(|plot| plot.svg())),
        "nodes" => {
            let nodes = Nodes(vec![("node1".into(), 4), ("node2".into(), 4)]);
            (nodes.render(&on), nodes.svg("Eight ranks on two nodes"))
        }
        "ring" => {
            let ring = Ring(ring(4)[1].0.clone());
            let title = "The first round of a ring of four ranks: each sends one chunk to the next";
            (ring.render(&on), ring.svg(title))
        }
        "all-reduce" => {
            let title = "An all-reduce of four ranks is a reduce-scatter and an all-gather";
            (moments().render(&on), moments().svg(title))
        }
        "links" => {
            let title = "Two nodes of Polaris: fast links within a node, slow ones between the nodes' cards";
            (links().render(&on), links().svg(title))
        }
        "stages" => {
            let title = "Bytes per rank of 7.5 billion parameters on 64 ranks in ZeRO's stages, in mixed precision";
            (stages().render(&on), stages().svg(title))
        }
        "block" => (block(&on), block_svg()),
        "gemm-columns" => gemm(&on, false),
        "gemm-rows" => gemm(&on, true),
        "zero-step" => {
            let adamw = AdamWConfig { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.1 };
            let stage_3 = ZeroConfig::new(Stage::Three, Precision::F32, adamw);
            let (timeline, _) = computed_step(&on, &BABY, BATCH, 4, &stage_3, None);
            (timeline.render(&on), timeline.svg())
        }
        "overlap" => (overlap().render(&on), overlap().svg()),
        "exposed" => (exposed_picture().render(&on), exposed_picture().svg()),
        "schedule" => {
            let chart = Chart {
                title: String::new(),
                ..chart(Schedule::OneForwardOneBackward, 1)?
            };
            let title = "One step of 1F1B with 4 ranks and 8 micro-batches";
            (gantt(&on, slice::from_ref(&chart)), gantt_svg(title, slice::from_ref(&chart)))
        }
        "schedules" => {
            let interleaved = (Schedule::Interleaved { group: 4 }, 2);
            let plain = |schedule| (schedule, 1);
            let [gpipe, one, zero] =
                [Schedule::GPipe, Schedule::OneForwardOneBackward, Schedule::ZeroBubble].map(plain);
            let charts =
                [gpipe, one, interleaved, zero].map(|(schedule, chunks)| chart(schedule, chunks));
            let charts = charts.into_iter().collect::<Result<Vec<_>>>()?;
            (
                gantt(&on, &charts),
                gantt_svg("Four schedules with 4 ranks and 8 micro-batches, to one scale", &charts),
            )
        }
        "axes" => (axes().render(&on), axes().svg("Eight ranks on three axes, two on each")),
        "memory" => {
            let title = "Bytes of a rank that trains 6.7 billion parameters, in four ways";
            let loads = memory_picture()?;
            (loads.render(&on), loads.svg(title))
        }
        "mesh" => (mesh_picture(Some(&on)), mesh_picture(None)),
        "draws" => {
            let title = "Micro-batches of four steps: which step learns from each, in three ways to treat steps 2 and 3";
            (draws()?.render(&on), draws()?.svg(title))
        }
        "slices" => {
            let title =
                "Ten elements on four ranks, as two whole parameters, on three ranks and on two";
            (slices().render(&on), slices().svg(title))
        }
        "plans" => {
            let (plans, device) = best_plans()?;
            let rows = plans.iter().map(|(words, bytes)| (words.as_str(), *bytes)).collect();
            let loads = Loads { kinds: ["state", "activations", "working"], rows, device };
            let title = "Bytes per rank of the fastest plans for 70 billion parameters on 512 H100";
            (loads.render(&on), loads.svg(title))
        }
        "ladder-steps" => {
            let runs = ladder::picture::runs()?;
            (
                ladder::picture::steps(&on, &runs, &ladder::CLOCK),
                ladder::picture::steps_svg(&runs, &ladder::CLOCK),
            )
        }
        "block-tp" => block_on_ranks(&on, false),
        "block-sp" => block_on_ranks(&on, true),
        "heads" => heads(&on),
        "zero-life" => zero_life(&on),
        "live" => live_activations(&on)?,
        "data-parallel" => data_parallel(&on),
        "scaling" => (scaling()?.render(&on), scaling()?.svg()),
        "settings" => settings(&on)?,
        "roofline" => roofline(&on)?,
        "life-cycle" => life_cycle(&on)?,
        "plan" => plan(&on)?,
        _ => {
            let (holdings, title) = holdings(name)?;
            (holdings.render(&on), holdings.svg(title))
        }
    };
    Ok(if screen.is_some() { text } else { svg })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_drawn_in_both_ways() {
        for &name in FIGURES {
            let text = figure(name, Some(&Screen::plain())).unwrap();
            let svg = figure(name, None).unwrap();
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"), "{svg}");
            if let "activations" | "memory" | "exposed" | "cost" | "padding" | "block" | "overlap"
            | "zero-step" | "stages" | "draws" | "plans" | "block-tp" | "block-sp"
            | "heads" | "zero-life" | "live" | "data-parallel" | "scaling" | "settings"
            | "roofline" | "life-cycle" | "plan" | "ladder-steps" = name
            {
                let [shown, drawn] = match name {
                    "activations" => ["recomputed", ">recomputed<"],
                    "memory" => {
                        ["nothing shared, FlashAttention", ">nothing shared, FlashAttention<"]
                    }
                    "exposed" => ["20 buckets", ">81.9 ms<"],
                    "cost" => ["predicted", ">rabenseifner<"],
                    "padding" => ["padding that fits", ">padding that does not<"],
                    "block" => ["attention, 4d²", ">4 d²<"],
                    "overlap" => ["without", ">without<"],
                    "stages" => ["120 GB, does not fit", ">31.4 GB ✓<"],
                    "block-tp" => ["backward all-reduce", ">backward: all-reduce<"],
                    "block-sp" => ["forward all-gather", ">forward: all-gather<"],
                    "heads" => ["columns 64-127", ">rank 1<"],
                    // A third of 4 bytes each of a block's 196,736 parameters, and all of them.
                    "zero-life" => ["262 kB", ">787 kB<"],
                    "live" => ["peak 4  ▁▁▂▂▃▃▄▄", ">peak 4<"],
                    "data-parallel" => ["batch 2", ">its own gradients<"],
                    "scaling" => ["strong scaling", ">weak scaling<"],
                    "settings" => ["one rank alone: 4.16 MB", ">1.02 MB<"],
                    "roofline" => ["ridge is at 295", ">ridge, 295<"],
                    "life-cycle" => ["1.8e20", ">1.8e20 FLOPs<"],
                    "ladder-steps" => ["pipeline │", ">pipeline<"],
                    "plan" => ["2 × 70.6 billion / 8", ">17.6 GB<"],
                    "plans" => ["TP 8 + ZeRO-2 64", ">66.5 GB ✓<"],
                    // One micro-batch is discarded for each of the two steps.
                    "draws" => ["one-batch     1  1  1  1  –  –  2  2  2  2  3", ">one-batch<"],
                    _ => ["no prefetch │···", ">waiting<"],
                };
                assert!(text.contains(shown) && svg.contains(drawn), "{text}\n{svg}");
                continue;
            }
            assert!(text.contains("rank 0") && svg.contains(">rank 0<"), "{text}\n{svg}");
            // A drawing of what ranks hold shows activations, or says that it does not.
            assert_eq!(
                svg.contains(">activations<") && svg.contains(">36.1 MB<"),
                name == "one-device",
                "{svg}"
            );
            if name.starts_with("zero") {
                assert!(text.contains("not drawn") && svg.contains("not drawn"), "{text}\n{svg}");
                assert!(text.contains("2.14 MB") && svg.contains(">2.14 MB<"), "{text}\n{svg}");
            } else if name.starts_with("one") || name.starts_with("ddp") {
                assert!(text.contains("3.22 MB") && svg.contains(">6.43 MB<"), "{text}\n{svg}");
            }
        }
        assert!(figure("nothing", None).is_err());
    }

    #[test]
    fn an_all_reduce_is_complete_where_it_should_be() {
        let text = figure("all-reduce", Some(&Screen::plain())).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "  rank 0    1    2    3    4 → 1111                → 1111 2222 3333 4444"
        );
        assert_eq!(
            lines[4],
            "  rank 3 1000 2000 3000 4000 →                4444 → 1111 2222 3333 4444"
        );
        let ring = figure("ring", Some(&Screen::plain())).unwrap();
        assert!(ring.starts_with("  rank 0 ── chunk 3 ─→ rank 1\n"), "{ring}");
    }

    #[test]
    fn times_are_drawn() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let points = "[{\"bytes\": 1024, \"seconds\": 1e-5}, {\"bytes\": 4096, \"seconds\": 2e-5}]";
        let times = format!(
            "{{\"network\": \"polaris\", \"ways\": [{{\"algorithm\": \"ring\", \"points\": {points}}}]}}"
        );
        std::fs::write(file.path(), times).unwrap();
        let svg = plot(file.path()).unwrap();
        assert!(
            svg.contains("predicted") && svg.contains("ring") && svg.contains("4.00 KiB"),
            "{svg}"
        );
    }

    #[test]
    fn losses_are_drawn() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            file.path(),
            "{\"step\":1,\"loss\":4.2}\n{\"step\":2,\"loss\":4.1,\"val_loss\":4.0}\n",
        )
        .unwrap();
        assert!(plot(file.path()).unwrap().contains(">val<"));
    }
}
