//! A strategy as a text: `dp=4,tp=2,pp=2,zero=1,sp`.

use super::context::{Exchange, Slicing};
use super::layout::Order;
use super::partition::Partition;
use super::schedule::Schedule;
use super::stage::Stage;
use super::{Offloaded, Recompute, Strategy};
use crate::error::BadInput;
use crate::named::{NamedValue, find};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

impl fmt::Display for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Recompute::None => f.write_str("none"),
            Recompute::Selective => f.write_str("selective"),
            Recompute::Norms => f.write_str("norms"),
            Recompute::Mlp => f.write_str("mlp"),
            Recompute::OneIn(layers) => write!(f, "1/{layers}"),
            Recompute::Full => f.write_str("full"),
            Recompute::Blocks(blocks) => write!(f, "{blocks}"),
        }
    }
}

/// What differs from [`Strategy::SINGLE`], or `dp=1`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut parts = Vec::new();
        let mut say = |unusual: bool, part: fmt::Arguments| {
            if unusual {
                parts.push(part.to_string());
            }
        };
        let mut number = |key: &str, value: usize, usual: usize| {
            say(value != usual, format_args!("{key}={value}"));
        };
        number("dp", self.data, 1);
        number("tp", self.tensor, 1);
        number("pp", self.pipeline, 1);
        number("cp", self.context, 1);
        number("ep", self.expert, 1);
        number("chunks", self.chunks, 1);
        number("m", self.micro_batches.unwrap_or(0), 0);
        number("mb", self.micro_batch.unwrap_or(0), 0);
        number("zero", self.zero.number(), 0);
        if self.replicas > 1 {
            number("shard", self.shard_ranks(), 0);
        }
        let schedule = self.schedule();
        let Strategy { partition, exchange, slicing, recompute, offload, order, .. } = *self;
        say(schedule != self.usual_schedule(), format_args!("schedule={}", schedule.name()));
        if let Schedule::Interleaved { group } = schedule {
            say(group != self.pipeline, format_args!("group={group}"));
        }
        say(partition != Partition::Uniform, format_args!("partition={}", partition.name()));
        if self.context > 1 {
            say(exchange != Exchange::Gather, format_args!("cp-comm={}", exchange.name()));
            say(slicing != Slicing::ZigZag, format_args!("cp-order={}", slicing.name()));
        }
        say(recompute != Recompute::None, format_args!("recompute={recompute}"));
        say(self.sequence, format_args!("sp"));
        say(offload != Offloaded::None, format_args!("offload={}", offload.name()));
        say(self.tiles > 1, format_args!("tiles={}", self.tiles));
        say(order != Order::PipelineSlowest, format_args!("order={}", order.name()));
        say(self.vocabulary_multiple > 1, format_args!("pad={}", self.vocabulary_multiple));
        if parts.is_empty() {
            parts.push("dp=1".to_string());
        }
        f.write_str(&parts.join(","))
    }
}

const HELP: &str = "write it like dp=4,tp=2,pp=2,zero=1,sp; what is left out is 1, none or off. \
                    Also: cp, ep, cp-comm, cp-order, chunks, m, mb, schedule, group, partition, \
                    shard, recompute, offload, tiles, order, pad";

fn bad(what: String) -> BadInput {
    BadInput::new(what, HELP)
}

/// A text that names more ranks is refused, so that no product of them overflows.
const MOST_RANKS: usize = 1 << 30;

/// The value that a text names.
fn choice<T: NamedValue>(key: &str, value: &str) -> Result<T, BadInput> {
    let names: Vec<&str> = T::TABLE.iter().map(|row| row.1).collect();
    find(value).ok_or_else(|| bad(format!("{key}={value} is none of {}", names.join(", "))))
}

impl FromStr for Strategy {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Strategy, BadInput> {
        let mut strategy = Strategy::SINGLE;
        let mut shard = None;
        let mut group = None;
        let mut seen = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            if seen.contains(&key) {
                return Err(bad(format!("{key} is there twice")));
            }
            seen.push(key);
            let number = |least: usize, most: usize| match value.parse::<usize>() {
                Ok(number) if (least..=most).contains(&number) => Ok(number),
                _ => Err(bad(format!("{key}={value} is no whole number from {least} to {most}"))),
            };
            match key {
                "dp" => strategy.data = number(1, 1 << 24)?,
                "tp" => strategy.tensor = number(1, 1 << 16)?,
                "pp" => strategy.pipeline = number(1, 1 << 16)?,
                "cp" => strategy.context = number(1, 1 << 16)?,
                "ep" => strategy.expert = number(1, 1 << 16)?,
                "cp-comm" => strategy.exchange = choice(key, value)?,
                "cp-order" => strategy.slicing = choice(key, value)?,
                "chunks" => strategy.chunks = number(1, 1 << 10)?,
                "m" => strategy.micro_batches = Some(number(1, 1 << 20)?),
                "mb" => strategy.micro_batch = Some(number(1, 1 << 20)?),
                "zero" => strategy.zero = Stage::ALL[number(0, 3)?],
                "shard" => shard = Some(number(1, 1 << 24)?),
                "group" => group = Some(number(1, 1 << 20)?),
                "tiles" => strategy.tiles = number(1, 1 << 10)?,
                "pad" => strategy.vocabulary_multiple = number(1, 1 << 16)?,
                "sp" if value.is_empty() => strategy.sequence = true,
                "schedule" => strategy.schedule = Some(schedule(value)?),
                "partition" => strategy.partition = choice(key, value)?,
                "recompute" => strategy.recompute = recompute(value)?,
                "offload" => strategy.offload = choice(key, value)?,
                "order" => strategy.order = choice(key, value)?,
                _ => return Err(bad(format!("there is no {part:?} in a strategy"))),
            }
        }
        let Strategy { data, context, tensor, pipeline, .. } = strategy;
        let ranks = [data, context, tensor, pipeline]
            .iter()
            .try_fold(1usize, |ranks, &axis| ranks.checked_mul(axis));
        if ranks.is_none_or(|ranks| ranks > MOST_RANKS) {
            return Err(BadInput::new(
                format!(
                    "dp={data} x tp={tensor} x pp={pipeline} x cp={context} is more than 2^30 ranks"
                ),
                "give smaller numbers: no machine has so many",
            ));
        }
        if let Some(shard) = shard {
            let data = strategy.gradient_ranks();
            if !data.is_multiple_of(shard) {
                let of = if strategy.context > 1 { "dp·cp" } else { "dp" };
                return Err(bad(format!("shard={shard} does not divide {of}={data}")));
            }
            strategy.replicas = data / shard;
        }
        match (strategy.schedule, group) {
            (Some(Schedule::Interleaved { .. }), group) => {
                let group = group.unwrap_or(strategy.pipeline);
                strategy.schedule = Some(Schedule::Interleaved { group });
            }
            (None, Some(group)) if strategy.chunks > 1 => {
                strategy.schedule = Some(Schedule::Interleaved { group });
            }
            (_, Some(group)) => {
                return Err(bad(format!("group={group} is for interleaved schedules")));
            }
            (_, None) => {}
        }
        // Two texts of one strategy are one value.
        if context == 1 {
            (strategy.exchange, strategy.slicing) = (Exchange::Gather, Slicing::ZigZag);
        }
        if strategy.schedule == Some(strategy.usual_schedule()) {
            strategy.schedule = None;
        }
        Ok(strategy)
    }
}

/// A text says the groups of an interleaved schedule apart.
fn schedule(value: &str) -> Result<Schedule, BadInput> {
    let all = [
        Schedule::GPipe,
        Schedule::OneForwardOneBackward,
        Schedule::Interleaved { group: 0 },
        Schedule::ZeroBubble,
    ];
    let named = all.into_iter().find(|schedule| schedule.name() == value);
    named.ok_or_else(|| {
        bad(format!("schedule={value} is none of gpipe, 1f1b, interleaved, zero-bubble"))
    })
}

fn recompute(value: &str) -> Result<Recompute, BadInput> {
    match (value, value.strip_prefix("1/").map(str::parse), value.parse()) {
        ("none", ..) => Ok(Recompute::None),
        ("selective", ..) => Ok(Recompute::Selective),
        ("norms", ..) => Ok(Recompute::Norms),
        ("mlp", ..) => Ok(Recompute::Mlp),
        ("full" | "1", ..) => Ok(Recompute::Full),
        (_, Some(Ok(layers @ 2..=1000)), _) => Ok(Recompute::OneIn(layers)),
        (.., Ok(blocks @ 2..=1000)) => Ok(Recompute::Blocks(blocks)),
        _ => Err(bad(format!(
            "recompute={value} is neither none, selective, norms, mlp, full, nor a part of the \
             layers such as 1/2, nor a number of layers"
        ))),
    }
}

impl Serialize for Strategy {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Strategy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Strategy, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}
