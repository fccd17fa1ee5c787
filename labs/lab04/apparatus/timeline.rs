//! One computed step of a stage, unit by unit.

use super::computed::{ComputedStep, zero_step};
use super::ring::ring;
use kit::show::{Screen, Timeline, bytes_decimal};
use shardlab::comm::Link;
use shardlab::comm::algorithms::Collective;
use shardlab::parallel::ZeroConfig;
use shardlab::plan::{ModelShape, Network};
use shardlab::train::Config;

/// FLOPs per second of a rank, and its link, where a timeline is computed and nothing else is
/// known.
const SPEED: f64 = 50e9;
const LINK: Link = Link { latency: 100e-6, bandwidth: 100e6 };

/// One computed step of a stage, unit by unit, as text.
pub fn timeline(screen: &Screen, config: &Config, zero: &ZeroConfig, link: Option<Link>) -> String {
    let (timeline, words) =
        computed_step(screen, &config.shape, config.batch, config.ranks, zero, link);
    format!("{}\n\n{}", timeline.render(screen), screen.wrap(&words, 2))
}

/// One computed step of a stage, unit by unit, and what to say about it. Stage 3 is drawn with its
/// prefetch and, on the same scale, without.
pub fn computed_step(
    screen: &Screen,
    shape: &ModelShape,
    batch: usize,
    ranks: usize,
    zero: &ZeroConfig,
    link: Option<Link>,
) -> (Timeline<'static>, String) {
    let link = link.unwrap_or(LINK);
    let stage = zero.stage.number();
    let network = Network::uniform(link);
    let seconds = |collective, numel| {
        let each = if collective == Collective::AllGather {
            zero.precision
        } else {
            zero.reduce
        };
        ring(collective, numel, ranks, each.bytes(), &network)
    };
    let tokens = batch * shape.block;
    let with = |prefetch: usize| zero_step(stage, shape, tokens, SPEED, prefetch as u64, seconds);
    let in_words = |step: &ComputedStep| {
        let waiting = screen.seconds(step.waiting());
        format!("{}, {waiting} of it waiting", screen.seconds(step.seconds()))
    };
    let step = with(zero.prefetch_bucket);
    let mut text = in_words(&step);
    let mut ends = vec![step.seconds()];
    let mut rows = vec![("computes".to_string(), step.processor), ("link".to_string(), step.link)];
    // The token table is too small to be seen.
    let blocks = step.units.into_iter().skip(1).enumerate();
    rows.extend(blocks.map(|(i, row)| (format!("blocks.{i}"), row)));
    if stage == 3 && zero.prefetch_bucket > 0 {
        let without = with(0);
        text = format!("with prefetch {text}; without prefetch {}", in_words(&without));
        ends.push(without.seconds());
        rows[0].0 = "prefetch".to_string();
        rows.extend([
            ("no prefetch".to_string(), without.processor),
            ("link".to_string(), without.link),
        ]);
    }
    let marks = std::iter::once(0.0).chain(ends).map(|end| (end, screen.seconds(end))).collect();
    let title = format!(
        "one step of stage {stage} on each of {} ranks, computed for {} GFLOP/s and a link of {}, {}/s",
        ranks,
        SPEED / 1e9,
        screen.seconds(link.latency),
        bytes_decimal(link.bandwidth)
    );
    let tied = match stage {
        3 => {
            " Not drawn: the token table, which is small. It is gathered at the start, and again between the passes, because \
             the output head uses it."
        }
        _ => "",
    };
    let words = format!("A step takes {text}.{tied}");
    (Timeline { title, rows, marks, axis: "time" }, words)
}
