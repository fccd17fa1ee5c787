//! Two nodes and the links between them.

use crate::draw::Links;
use kit::show::{bytes_decimal, seconds};
use shardlab::comm::Link;
use shardlab::plan::Network;

/// Two nodes of Polaris, with the simulator's numbers.
pub(super) fn picture() -> Links {
    let [_, network, ..] = Network::presets();
    let words =
        |link: Link| format!("{}/s, {}", bytes_decimal(link.bandwidth), seconds(link.latency));
    Links {
        ranks: network.ranks_per_node,
        cards: network.cards,
        within: words(network.within),
        between: format!("{} for each card", words(network.between)),
    }
}
