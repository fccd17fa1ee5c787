//! From a library's settings to the bytes of a rank: mesh, layers, ZeRO.

use crate::draw::{Anchor, Coat, Ink, Sketch};
use anyhow::Result;
use kit::show::bytes_decimal;
use labs::lab10::{DsConfig, PipelineConfig, make_ds_config};
use shardlab::parallel::zero::Stage;
use shardlab::plan::{BytesEach, Portion, zero_memory};

const RANKS: usize = 8;
const MODEL: &str = "stories260k";

/// What the settings make of one rank.
struct Part {
    /// Its replica, stage and tensor rank.
    place: [usize; 3],
    layers: String,
    /// Bytes of parameters, gradients and optimizer.
    bytes: [u64; 3],
}

/// Two tensor ranks, two stages and ZeRO-1 on eight ranks: what each rank has.
fn parts() -> Result<(Vec<Part>, u64)> {
    let config = make_ds_config(DsConfig {
        tensor_parallel: 2,
        pipeline: Some(PipelineConfig::new(2)),
        zero_stage: Stage::One,
        ..DsConfig::default()
    })?;
    let shape = shapes::llamas::named(MODEL)?;
    let layout = config.mesh(RANKS)?;
    let layers = config.layers(&shape)?;
    let part = |rank| {
        let at = layout.coordinates(rank);
        let of_stage = &layers[at.pipeline];
        let portion = Portion { tensor: config.tensor_parallel, ..shape.portion(of_stage) };
        let held = shape.parameters_on_a_rank(&portion);
        let stage = config.zero_stage.number();
        Part {
            place: [at.data, at.pipeline, at.tensor],
            layers: format!("{}-{}", of_stage.start, of_stage.end - 1),
            bytes: zero_memory(stage, held as u64, layout.sizes.data as u64, BytesEach::F32),
        }
    };
    let whole = zero_memory(0, shape.parameters(), 1, BytesEach::F32).iter().sum();
    Ok(((0..RANKS).map(part).collect(), whole))
}

const ROWS: [&str; 3] = ["replica", "stage", "tensor rank"];

/// The way from settings to bytes.
pub(super) fn picture() -> Result<String> {
    const LEFT: f64 = 84.0;
    const COLUMN: f64 = 64.0;
    const HIGH: f64 = 110.0;
    let (parts, whole) = parts()?;
    let mut sketch = Sketch::wide(600.0);
    sketch.words((0.0, 19.0), Anchor::Start, "settings");
    for (i, words) in ["tensor 2", "stages 2", "ZeRO-1", "8 ranks"].into_iter().enumerate() {
        let corner = (LEFT + 129.0 * i as f64, 2.0);
        sketch.boxed(corner, (117.0, 26.0), Ink::Page, Coat::Line, words);
    }
    sketch.words((0.0, 61.0), Anchor::Start, "mesh");
    for (i, name) in ROWS.into_iter().enumerate() {
        sketch.words((0.0, 84.0 + 20.0 * i as f64), Anchor::Start, name);
    }
    sketch.words((0.0, 158.0), Anchor::Start, "layers");
    sketch.words((0.0, 176.0), Anchor::Start, "of each matrix");
    let base = 206.0 + HIGH;
    let most = parts.iter().map(|part| part.bytes.iter().sum::<u64>()).max();
    let scale = HIGH / most.unwrap_or(1).max(1) as f64;
    sketch.words((0.0, base - HIGH + 12.0), Anchor::Start, "bytes");
    for (rank, part) in parts.iter().enumerate() {
        let left = LEFT + COLUMN * rank as f64;
        let middle = left + COLUMN / 2.0 - 2.0;
        let corner = (left, 44.0);
        let words = format!("rank {rank}");
        sketch.boxed(corner, (COLUMN - 4.0, 26.0), Ink::Rank(rank), Coat::Line, &words);
        for (i, place) in part.place.into_iter().enumerate() {
            sketch.words((middle, 84.0 + 4.0 + 20.0 * i as f64 - 4.0), Anchor::Middle, place);
        }
        sketch.words((middle, 158.0), Anchor::Middle, &part.layers);
        sketch.words((middle, 176.0), Anchor::Middle, "half");
        let mut y = base;
        for (kind, bytes) in part.bytes.into_iter().enumerate() {
            let high = scale * bytes as f64;
            y -= high;
            sketch.boxed((left + 8.0, y), (COLUMN - 20.0, high), Ink::Kind(kind), Coat::Full, "");
        }
        let all: u64 = part.bytes.iter().sum();
        sketch.words((middle, base + 17.0), Anchor::Middle, bytes_decimal(all as f64));
    }
    let mut x = 0.0;
    for (kind, name) in ["parameters", "gradients", "optimizer"].into_iter().enumerate() {
        sketch.boxed((x, base + 30.0), (12.0, 12.0), Ink::Kind(kind), Coat::Full, "");
        sketch.words((x + 17.0, base + 41.0), Anchor::Start, name);
        x += 110.0;
    }
    let words = format!("one rank alone: {}", bytes_decimal(whole as f64));
    sketch.words((600.0, base + 41.0), Anchor::End, words);
    let title = "Settings divide ranks into replicas, stages and tensor ranks, these divide the layers, and ZeRO the optimizer";
    Ok(sketch.svg(title, base + 48.0))
}
