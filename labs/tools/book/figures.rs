//! Pictures for pages: who holds what, drawn from the arithmetic of `plan`, and the curves of a run's metrics.

use super::exposed::exposed_picture;
use super::memory::memory_picture;
use super::mesh::mesh_picture;
use super::plans::best_plans;
use anyhow::{Context, Result};
use kit::show::{
    Activity, Chart, Chunk, Draws, Fill, Holding, Holdings, Interval, Links, Loads, Moments, Nodes,
    Piece, Plot, Replicas, Ring, Screen, Series, Slices, Timeline, block, block_svg, bytes_binary,
    bytes_decimal, gantt, gantt_svg, percent, seconds,
};
use lab01::{benchmark, predict};
use lab04::computed_step;
use lab05::gemm;
use lab06::Predicted;
use lab09::padding_figures;
use serde_json::Value;
use shardlab::comm::Link;
use shardlab::comm::algorithms::{Algorithm, Arrival, Collective, Task};
use shardlab::error::BadInput;
use shardlab::mesh::{Coordinates, Layout, Order};
use shardlab::optim::AdamWConfig;
use shardlab::parallel::partition::Flat;
use shardlab::parallel::pipeline::{Pipeline, Schedule};
use shardlab::parallel::zero::{Stage, ZeroConfig};
use shardlab::plan::{BytesEach, Family, Keep, ModelShape, Network, zero_memory};
use shardlab::tensor::Precision;
use shardlab::train::{Ranges, SkipPolicy};
use std::path::Path;
use std::{iter, slice};

/// The names of all figures.
pub const FIGURES: [&str; 27] = [
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

/// Bytes of a batch. A token is one 4-byte number, and each has the one that follows it as its target.
const DATA: u64 = (2 * 4 * BATCH * BABY.block) as u64;

/// A figure by its name, as text for a screen or, without one, as SVG.
///
/// # Errors
///
/// [`BadInput`] where no figure has this name.
pub fn figure(name: &str, screen: Option<&Screen>) -> Result<String> {
    let on = screen.cloned().unwrap_or_else(Screen::plain);
    let (text, svg) = match name {
        "activations" => {
            let plot = activations(&BABY, BATCH, false);
            (plot.render(&on), plot.svg())
        }
        "cost" => {
            let times = cost()?;
            let plot = times_of(&times);
            (plot.render(&on), plot.svg())
        }
        "padding" => (
            padding_figures(|plot| plot.render(&on)),
            padding_figures(|plot| plot.svg()),
        ),
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
            let adamw = AdamWConfig {
                beta1: 0.9,
                beta2: 0.99,
                epsilon: 1e-8,
                weight_decay: 0.1,
            };
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
            (
                gantt(&on, slice::from_ref(&chart)),
                gantt_svg(title, slice::from_ref(&chart)),
            )
        }
        "schedules" => {
            let interleaved = (Schedule::Interleaved { group: 4 }, 2);
            let plain = |schedule| (schedule, 1);
            let [gpipe, one, zero] = [
                Schedule::GPipe,
                Schedule::OneForwardOneBackward,
                Schedule::ZeroBubble,
            ]
            .map(plain);
            let charts =
                [gpipe, one, interleaved, zero].map(|(schedule, chunks)| chart(schedule, chunks));
            let charts = charts.into_iter().collect::<Result<Vec<_>>>()?;
            (
                gantt(&on, &charts),
                gantt_svg(
                    "Four schedules with 4 ranks and 8 micro-batches, to one scale",
                    &charts,
                ),
            )
        }
        "axes" => (
            axes().render(&on),
            axes().svg("Eight ranks on three axes, two on each"),
        ),
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
            let rows = plans
                .iter()
                .map(|(words, bytes)| (words.as_str(), *bytes))
                .collect();
            let loads = Loads {
                kinds: ["state", "activations", "working"],
                rows,
                device,
            };
            let title = "Bytes per rank of the fastest plans for 70 billion parameters on 512 H100";
            (loads.render(&on), loads.svg(title))
        }
        _ => {
            let (holdings, title) = holdings(name)?;
            (holdings.render(&on), holdings.svg(title))
        }
    };
    Ok(if screen.is_some() { text } else { svg })
}

/// lab07's mesh.
fn axes() -> Replicas {
    let layout = Layout {
        sizes: Coordinates {
            data: 2,
            pipeline: 2,
            tensor: 2,
        },
        order: Order::default(),
    };
    let cell = |data, pipeline| {
        (0..2)
            .map(|tensor| {
                layout.rank(Coordinates {
                    data,
                    pipeline,
                    tensor,
                })
            })
            .collect()
    };
    let ranks = (0..2)
        .map(|data| (0..2).map(|pipeline| cell(data, pipeline)).collect())
        .collect();
    let layers = ["stage 0: layers 0-1", "stage 1: layers 2-3"]
        .map(String::from)
        .to_vec();
    Replicas { ranks, layers }
}

/// Four steps of four micro-batches, of which steps 2 and 3 are bad, in each way to skip.
fn draws() -> Result<Draws> {
    const ACCUMULATION: usize = 4;
    let none = Ranges::default();
    let range = Ranges::parse(&[2, 3])?;
    let row = |(name, policy, ranges): (&str, SkipPolicy, &Ranges)| {
        let step = |step| {
            let plan = policy.plan(ranges, step, ACCUMULATION);
            let learned = if plan.train { ACCUMULATION } else { 0 };
            iter::repeat_n(None, plan.discard).chain(iter::repeat_n(Some(step), learned))
        };
        (name.to_string(), (1..=4).flat_map(step).collect())
    };
    let ways = [
        ("no skip", SkipPolicy::Count, &none),
        ("count", SkipPolicy::Count, &range),
        ("one-batch", SkipPolicy::OneBatch, &range),
    ];
    Ok(Draws {
        rows: ways.map(row).into(),
        bad: ACCUMULATION + 1..=3 * ACCUMULATION,
    })
}

/// Two parameters of 6 and 4 elements, as 4 ranks hold them, whole, and as 3 and 2 ranks hold them.
fn slices() -> Slices {
    let piece = |label: String, numel, rank, padding| Piece {
        label,
        numel,
        rank,
        padding,
    };
    let row = |ranks: usize| {
        let flat = Flat { numel: 10, ranks };
        let slice = |rank: usize| {
            let held = flat.range(rank).len();
            let padding = flat.padding(rank);
            let pieces = [
                piece(format!("rank {rank}"), held, Some(rank), false),
                piece(padding.to_string(), padding, Some(rank), true),
            ];
            pieces.into_iter().filter(|piece| piece.numel > 0)
        };
        (
            format!("{ranks} ranks"),
            (0..ranks).flat_map(slice).collect(),
        )
    };
    let whole = [("a, 6 elements", 6), ("b, 4 elements", 4)]
        .map(|(name, numel)| piece(name.into(), numel, None, false));
    Slices(vec![
        row(4),
        ("whole".to_string(), whole.into()),
        row(3),
        row(2),
    ])
}

/// lab01's prediction for four ranks on Ethernet, as `--json` writes it.
fn cost() -> Result<Value> {
    let [.., ethernet] = Network::presets();
    let timings = predict::predict(
        Collective::AllReduce,
        4,
        &benchmark::sizes(4, 1 << 30),
        &ethernet,
    )?;
    Ok(benchmark::json(&timings, &[], ethernet.name))
}

/// The paper's example: 7.5 billion parameters on 64 ranks, with devices of 80 GB.
fn stages() -> Loads<'static> {
    let rows = [
        "stage 0 shards nothing",
        "stage 1 shards optimizer",
        "stage 2 shards optimizer, gradients",
        "stage 3 shards everything",
    ];
    let bytes =
        |stage| zero_memory(stage, 7_500_000_000, 64, BytesEach::MIXED).map(|bytes| bytes as f64);
    let rows = rows
        .into_iter()
        .enumerate()
        .map(|(stage, name)| (name, bytes(stage)))
        .collect();
    Loads {
        kinds: ["parameters", "gradients", "optimizer"],
        rows,
        device: 80e9,
    }
}

/// The ring all-reduce of `ranks` ranks, one number per chunk, before its first round and after each round: the chunk that
/// each rank has sent, and the chunks that each rank holds.
pub fn ring(ranks: usize) -> Vec<(Vec<usize>, Vec<Vec<Chunk>>)> {
    let task = Task::new(Collective::AllReduce, Algorithm::Ring, ranks, ranks, 4, 0)
        .expect("the ring is an all-reduce");
    let own = |rank: usize| vec![(0..ranks).map(|other| other == rank).collect::<Chunk>(); ranks];
    let mut states = vec![(Vec::new(), (0..ranks).map(own).collect::<Vec<_>>())];
    let mut left: Vec<_> = (0..ranks).map(|rank| task.rounds(rank)).collect();
    for round in 0..task.total_rounds() {
        let mut sent = Vec::new();
        let before = &states[round].1;
        let mut held = before.clone();
        for (rank, chunks) in held.iter_mut().enumerate() {
            let Some((send, recv)) = left[rank]
                .next()
                .and_then(|round| round.send.zip(round.recv))
            else {
                continue;
            };
            sent.push(send.range.start);
            for i in recv.range {
                let there = chunks[i].iter().zip(&before[recv.from][i]);
                chunks[i] = there
                    .map(|(&old, &new)| new || (old && recv.arrival == Arrival::Combine))
                    .collect();
            }
        }
        states.push((sent, held));
    }
    states
}

/// The chunks of the ring before it, after its reduce-scatter, and after its all-gather. Partial sums are left out: only
/// complete chunks are shown.
fn moments() -> Moments {
    let states = ring(4);
    let complete = |chunk: &Chunk| {
        if chunk.contains(&false) {
            vec![false; chunk.len()]
        } else {
            chunk.clone()
        }
    };
    let after = |round: usize| {
        states[round]
            .1
            .iter()
            .map(|chunks| chunks.iter().map(complete).collect())
            .collect()
    };
    Moments(vec![
        ("before".to_owned(), states[0].1.clone()),
        ("after reduce-scatter".to_owned(), after(3)),
        ("after all-gather".to_owned(), after(6)),
    ])
}

/// Two nodes of Polaris, with the simulator's numbers.
fn links() -> Links {
    let [_, network, ..] = Network::presets();
    let words = |link: Link| {
        format!(
            "{}/s, {}",
            bytes_decimal(link.bandwidth),
            seconds(link.latency)
        )
    };
    Links {
        ranks: network.ranks_per_node,
        cards: network.cards,
        within: words(network.within),
        between: format!("{} for each card", words(network.between)),
    }
}

/// A step without overlap and with it: four buckets, a backward pass of 8 s, and 1.6 s on the network for each bucket.
fn overlap() -> Timeline<'static> {
    const FORWARD: f64 = 4.0;
    const BUCKETS: usize = 4;
    const COMPUTE: f64 = 2.0;
    const SEND: f64 = 1.6;
    let mut rows = Vec::new();
    for overlaps in [false, true] {
        let mut rank = Vec::new();
        let mut network = Vec::new();
        let add = |row: &mut Vec<Interval>, activity, start: f64, seconds: f64| {
            row.push(Interval {
                activity,
                start,
                end: start + seconds,
            });
            start + seconds
        };
        let mut now = add(&mut rank, Activity::FORWARD, 0.0, FORWARD);
        let mut free: f64 = 0.0;
        for _ in 0..BUCKETS {
            now = add(&mut rank, Activity::BACKWARD, now, COMPUTE);
            free = add(&mut network, Activity::ALL_REDUCE, free.max(now), SEND);
            if !overlaps {
                now = add(&mut rank, Activity::WAITING, now, SEND);
            }
        }
        add(&mut rank, Activity::WAITING, now, (free - now).max(0.0));
        add(&mut rank, Activity::OPTIMIZER, free, 1.0);
        let name = if overlaps { "with overlap" } else { "without" };
        rows.extend([(name.to_string(), rank), ("network".to_string(), network)]);
    }
    Timeline {
        title: "A step with four buckets, without overlap and with it".into(),
        rows,
        marks: Vec::new(),
        axis: "time",
    }
}

/// One step of 4 ranks and 8 micro-batches. Time counts forward passes of a rank, and the peak micro-batches.
fn chart(schedule: Schedule, chunks: usize) -> Result<Chart> {
    let step = Predicted::paced(
        schedule,
        Pipeline {
            ranks: 4,
            chunks,
            micro_batches: 8,
        },
        1.0,
    )?;
    let simulated = &step.simulated;
    let peak = simulated.peaks.iter().max().copied().unwrap_or(0) as f64 / chunks as f64;
    let chunks = if chunks > 1 {
        format!(", {chunks} chunks per rank")
    } else {
        String::new()
    };
    let name = schedule.name();
    let bubble = percent(simulated.bubble());
    let title = format!(
        "{name}{chunks}: takes {}, bubble {bubble} of the step, peak {peak}",
        simulated.makespan
    );
    Ok(Chart {
        title,
        ranks: step.bars,
    })
}

/// A drawing of who holds what, in f32, and its title.
fn holdings(name: &str) -> Result<(Holdings<'static>, &'static str), BadInput> {
    // Ranks, stage, and whether each rank has its own gradients.
    let (ranks, stage, own, title, note) = match name {
        "one-device" => (
            1,
            0,
            false,
            "One device holds everything: state and activations",
            "One device: nothing is sharded.",
        ),
        "ddp-before" => (
            3,
            0,
            true,
            "Data parallelism, after the backward pass: every rank has its own gradients",
            "Before averaging: different data, so different gradients.",
        ),
        "ddp-after" => (
            3,
            0,
            false,
            "Data parallelism, after averaging: only the data differ",
            "After averaging: the same on every rank, except for the data.",
        ),
        "zero-1" => (
            3,
            1,
            false,
            "ZeRO, stage 1: the optimizer state is sharded; activations are not drawn",
            "Stage 1: the optimizer state is sharded. Activations, which ZeRO leaves whole, are not drawn.",
        ),
        "zero-3" => (
            3,
            3,
            false,
            "ZeRO, stage 3: the whole state is sharded; activations are not drawn",
            "Stage 3: the whole state is sharded. Activations, which ZeRO leaves whole, are not drawn.",
        ),
        _ => {
            let what = format!("there is no figure {name:?}");
            return Err(BadInput::new(
                what,
                format!("give one of these: {}", FIGURES.join(", ")),
            ));
        }
    };
    let [parameters, gradients, optimizer] =
        zero_memory(stage, BABY.parameters(), ranks as u64, BytesEach::F32);
    let row = |name, own, sharded_from, bytes: u64| {
        let alike = if own { Fill::Own } else { Fill::Same };
        let held = |index| {
            if stage >= sharded_from {
                Fill::Slice { index, of: ranks }
            } else {
                alike
            }
        };
        Holding {
            name,
            ranks: (0..ranks).map(held).collect(),
            bytes: bytes as f64,
        }
    };
    let mut rows = vec![
        row("data", ranks > 1, 4, DATA),
        row("parameters", false, 3, parameters),
        row("gradients", own, 2, gradients),
        row("optimizer", false, 1, optimizer),
    ];
    // The other figures are about who shares the state. Data parallelism's show the moment after the backward pass, when no
    // activations are left.
    if name == "one-device" {
        rows.push(row(
            "activations",
            false,
            4,
            BABY.memory(BATCH, false).activations,
        ));
    }
    Ok((
        Holdings {
            rows,
            note: note.into(),
        },
        title,
    ))
}

/// Activations over one step of a model, as the plot of a page or a screen.
pub fn activations(shape: &ModelShape, batch: usize, dropout: bool) -> Plot<'static> {
    let series = |name, keep| {
        let bytes = shape.activations_over_a_step(batch, dropout, keep);
        Series::line(
            name,
            bytes
                .into_iter()
                .enumerate()
                .map(|(part, bytes)| (part as f64, bytes as f64)),
        )
    };
    Plot::new("activations", "part of the step")
        .series(series("kept to the end", Keep::ToTheEnd))
        .series(series("freed when used", Keep::UntilUsed))
        .series(series("recomputed", Keep::BlockInputs))
        .labels(|part| format!("{part}"), bytes_decimal)
}

/// The curves of a lab's file, as an SVG: losses from `--metrics`, or lab01's times from `--json`.
///
/// # Errors
///
/// Where the file cannot be read, or a line of it is no JSON.
pub fn plot(file: &Path) -> Result<String> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    if let Ok(times) = serde_json::from_str::<Value>(&text)
        && times["ways"].is_array()
    {
        return Ok(times_of(&times).svg());
    }
    let records: Vec<Value> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let points = |field: &'static str| {
        records
            .iter()
            .filter_map(move |record| Some((record["step"].as_f64()?, record[field].as_f64()?)))
    };
    let plot = Plot::new("loss, nats per token", "step").height(10);
    let plot = plot
        .series(Series::line("train", points("loss")))
        .series(Series::dots("val", points("val_loss")));
    Ok(plot.svg())
}

/// lab01's times against the bytes of the array, a curve for each algorithm.
fn times_of(times: &Value) -> Plot<'_> {
    let series = times["ways"].as_array().into_iter().flatten().map(|way| {
        let points = way["points"].as_array().map_or(&[][..], Vec::as_slice);
        let points = points
            .iter()
            .filter_map(|point| Some((point["bytes"].as_f64()?, point["seconds"].as_f64()?)));
        Series::line(way["algorithm"].as_str().unwrap_or("?"), points)
    });
    let title = if times["network"] == "threads" {
        "time of one call, measured"
    } else {
        "time of one call, predicted"
    };
    series.fold(
        Plot::new(title, "bytes")
            .log_x()
            .log_y()
            .labels(bytes_binary, seconds)
            .height(12),
        Plot::series,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_drawn_in_both_ways() {
        for name in FIGURES {
            let text = figure(name, Some(&Screen::plain())).unwrap();
            let svg = figure(name, None).unwrap();
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"), "{svg}");
            if let "activations" | "memory" | "cost" | "padding" | "block" | "overlap" | "exposed"
            | "zero-step" | "stages" | "draws" | "plans" = name
            {
                let [shown, drawn] = match name {
                    "activations" => ["recomputed", ">recomputed<"],
                    "memory" => [
                        "nothing shared, FlashAttention",
                        ">nothing shared, FlashAttention<",
                    ],
                    "cost" => ["predicted", ">rabenseifner<"],
                    "padding" => ["padding that fits", ">padding that does not<"],
                    "block" => ["attention, 4d²", ">4 d²<"],
                    "overlap" => ["without", ">without<"],
                    "exposed" => ["20 buckets", ">81.9 ms<"],
                    "stages" => ["120 GB, does not fit", ">31.4 GB ✓<"],
                    "plans" => ["TP 8 + ZeRO-2 64", ">66.5 GB ✓<"],
                    // One micro-batch is discarded for each of the two steps.
                    "draws" => [
                        "one-batch     1  1  1  1  –  –  2  2  2  2  3",
                        ">one-batch<",
                    ],
                    _ => ["no prefetch │···", ">waiting<"],
                };
                assert!(text.contains(shown) && svg.contains(drawn), "{text}\n{svg}");
                continue;
            }
            assert!(
                text.contains("rank 0") && svg.contains(">rank 0<"),
                "{text}\n{svg}"
            );
            // A drawing of what ranks hold shows activations, or says that it does not.
            assert_eq!(
                svg.contains(">activations<") && svg.contains(">36.1 MB<"),
                name == "one-device",
                "{svg}"
            );
            if name.starts_with("zero") {
                assert!(
                    text.contains("not drawn") && svg.contains("not drawn"),
                    "{text}\n{svg}"
                );
                assert!(
                    text.contains("2.14 MB") && svg.contains(">2.14 MB<"),
                    "{text}\n{svg}"
                );
            } else if name.starts_with("one") || name.starts_with("ddp") {
                assert!(
                    text.contains("3.22 MB") && svg.contains(">6.43 MB<"),
                    "{text}\n{svg}"
                );
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
        assert!(
            ring.starts_with("  rank 0 ── chunk 3 ─→ rank 1\n"),
            "{ring}"
        );
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
