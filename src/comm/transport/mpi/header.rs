//! A call in 168 bytes, for the other processes.
//!
//! Ranks compare the first five numbers: kind, type and reduction; elements; root; the number of
//! the collective in its group; the label, or the place in the source if there is none. The other
//! bytes have what an error tells besides.

use crate::comm::call::{Call, CallInfo, CallKind, Peer};
use crate::comm::element::{Dtype, Reduce};

/// A call's description.
pub(super) type Header = [u8; COMPARED + REST];

/// Bytes that ranks compare.
pub(super) const COMPARED: usize = 5 * size_of::<u64>();
/// Bytes that ranks compare, without the label or place.
pub(super) const ARGUMENTS: usize = 4 * size_of::<u64>();
/// The rank's call number, the line, the lengths of three texts, and the texts.
const REST: usize = 16 + TEXTS;
const TEXTS: usize = 112;
/// Bytes of a label and of a group's name; the file has what is left. Longer ones are cut.
const NAME: usize = 32;
/// The length of a text that is not there.
const NONE: u8 = u8::MAX;

/// Describes `call`, a group's collective number `in_group` and the rank's call number `number`.
pub(super) fn encode(call: &Call, in_group: u64, number: u64) -> Header {
    let what =
        call.kind as u64 | (call.dtype as u64) << 8 | call.op.map_or(0, |op| op as u64 + 1) << 16;
    let root = call.peer.map_or(0, |peer| peer.rank as u64 + 1);
    let numbers = [what, call.len as u64, root, in_group, tell_apart(call)];
    let mut header = [0; COMPARED + REST];
    header[..COMPARED].copy_from_slice(bytemuck::cast_slice(&numbers));
    let (fixed, mut texts) = header[COMPARED..].split_at_mut(REST - TEXTS);
    fixed[..8].copy_from_slice(&number.to_ne_bytes());
    fixed[8..12].copy_from_slice(&call.at.line().to_ne_bytes());
    let label = call.label.map(|label| beginning(label, NAME));
    let group = call.group.map(|group| beginning(group, NAME));
    let left = TEXTS - label.map_or(0, str::len) - group.map_or(0, str::len);
    let file = Some(end(call.at.file(), left));
    for (length, text) in fixed[12..].iter_mut().zip([label, group, file]) {
        *length = NONE;
        if let Some(text) = text {
            let (to, rest) = texts.split_at_mut(text.len());
            to.copy_from_slice(text.as_bytes());
            *length = text.len() as u8;
            texts = rest;
        }
    }
    header
}

/// The call that a header of a rank in a group of these `members` describes.
pub(super) fn decode(header: &[u8], members: &[usize]) -> CallInfo {
    let number = |i: usize| u64::from_ne_bytes(eight(&header[8 * i..]));
    let [what, len, root] = [0, 1, 2].map(number);
    let byte = |at: u32| (what >> (8 * at)) as usize & 0xff;
    let (fixed, mut texts) = header[COMPARED..].split_at(REST - TEXTS);
    let [label, group, file] = [fixed[12], fixed[13], fixed[14]].map(|length| {
        if length == NONE {
            return None;
        }
        let (text, rest) = texts.split_at(length.into());
        texts = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    });
    let peer = (root as usize)
        .checked_sub(1)
        .map(|rank| Peer { rank, in_world: members.get(rank).copied().unwrap_or(rank) });
    CallInfo {
        kind: CallKind::ALL[byte(0)],
        dtype: Dtype::ALL[byte(1)],
        len: len as usize,
        op: byte(2).checked_sub(1).map(|op| Reduce::ALL[op]),
        peer,
        // Collectives have none.
        tag: 0,
        group,
        label,
        file: file.unwrap_or_default(),
        line: u32::from_ne_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
        number: Some(number(COMPARED / 8)),
    }
}

fn eight(bytes: &[u8]) -> [u8; 8] {
    bytes[..8].try_into().expect("eight bytes")
}

/// The first bytes of a text, at most `most`, of whole characters.
fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// The last bytes of a text, at most `most`, of whole characters.
fn end(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}

/// A number for a call's label, or 0 if it has none.
pub(super) fn label(call: &Call) -> u64 {
    call.label.map_or(0, |label| hash(HASH, label.as_bytes()))
}

/// A number for a call's label. A call without a label gets one for its place in the source.
fn tell_apart(call: &Call) -> u64 {
    if call.label.is_some() {
        return label(call);
    }
    let place = hash(!HASH, call.at.file().as_bytes());
    let line = hash(place, &call.at.line().to_le_bytes());
    hash(line, &call.at.column().to_le_bytes())
}

/// The start of FNV-1a, a hash that is the same in all processes.
pub(super) const HASH: u64 = 0xcbf2_9ce4_8422_2325;

pub(super) fn hash(hash: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::Location;

    #[track_caller]
    fn call(label: Option<&'static str>, group: Option<&'static str>) -> Call {
        Call {
            kind: CallKind::Broadcast,
            dtype: Dtype::F64,
            len: 96,
            op: Some(Reduce::Max),
            peer: Some(Peer { rank: 1, in_world: 7 }),
            tag: 0,
            group,
            at: Location::caller(),
            label,
        }
    }

    #[test]
    fn a_call_arrives_as_it_was_sent() {
        for call in [
            call(None, None),
            call(Some(""), None),
            call(Some("weights"), Some("tensor")),
            call(None, Some("tensor")),
        ] {
            let arrived = decode(&encode(&call, 3, 1 << 40), &[5, 7, 9]);
            assert_eq!(arrived, call.info(Some(1 << 40)));
        }
    }

    #[test]
    fn long_names_are_cut_and_the_file_keeps_its_end() {
        let long = "é".repeat(40).leak();
        let call = call(Some(long), Some(long));
        let arrived = decode(&encode(&call, 0, 0), &[0, 7]);
        assert_eq!(arrived.label.unwrap(), "é".repeat(16));
        assert_eq!(arrived.group.unwrap(), "é".repeat(16));
        assert!(call.at.file().ends_with(&arrived.file) && !arrived.file.is_empty());
        assert_eq!(end("labs/lab03/lesson.rs", 9), "lesson.rs");
        assert_eq!(end("aé", 1), "");
    }

    #[test]
    fn what_ranks_compare_is_all_that_tells_calls_apart() {
        let header = |call: &Call| encode(call, 3, 1);
        let one = call(Some("weights"), None);
        let other = Call { at: Location::caller(), group: Some("tensor"), ..one };
        assert_eq!(header(&one)[..COMPARED], header(&other)[..COMPARED]);
        let [here, there] = [call(None, None), call(None, None)];
        assert_eq!(header(&here)[..ARGUMENTS], header(&there)[..ARGUMENTS]);
        assert_ne!(header(&here)[..COMPARED], header(&there)[..COMPARED]);
        let changes: [fn(&mut Call); 5] = [
            |call| call.kind = CallKind::Reduce,
            |call| call.dtype = Dtype::F32,
            |call| call.op = Some(Reduce::Min),
            |call| call.len += 1,
            |call| call.peer = None,
        ];
        for change in changes {
            let mut changed = one;
            change(&mut changed);
            assert_ne!(header(&one)[..ARGUMENTS], header(&changed)[..ARGUMENTS]);
        }
        assert_ne!(encode(&one, 4, 1)[..ARGUMENTS], header(&one)[..ARGUMENTS]);
    }
    #[test]
    fn labels_are_told_apart() {
        let of = |text| label(&call(text, Some("data")));
        assert_eq!(of(None), 0);
        assert!(of(Some("one")) != 0 && of(Some("one")) != of(Some("two")));
    }
}
