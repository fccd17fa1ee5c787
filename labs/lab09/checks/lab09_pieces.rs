//! The check of lab09-pieces: old ranks save their slices, and new rank 1 reads what the reader says.

use exercise::rank_1;
use kit::check::{Evidence, run};
use shardlab::{Result, launch};
use std::ops::Range;
use std::process::ExitCode;

const NUMEL: usize = 10;
const OLD: usize = 3;
const NEW: usize = 2;

fn main() -> ExitCode {
    run(&[("new rank 1 has its half of the parameter", pieces)])
}

/// What a place of a file holds: an element, or padding.
type Place = Option<usize>;

/// The old ranks' files, each written by its rank.
fn saved() -> Result<Vec<Vec<Place>>> {
    launch::run(OLD, |comm| {
        let length = NUMEL.div_ceil(comm.size());
        let places = comm.rank() * length..(comm.rank() + 1) * length;
        Ok(places.map(|i| Some(i).filter(|&i| i < NUMEL)).collect())
    })
}

/// In the words of the picture.
fn in_words(places: &[Place]) -> String {
    let word = |place: &Place| place.map_or("padding".to_string(), |element| element.to_string());
    let words: Vec<String> = places.iter().map(word).collect();
    if words.is_empty() {
        "nothing".into()
    } else {
        words.join(" ")
    }
}

fn pieces(evidence: &mut Evidence) -> Result<()> {
    let files = saved()?;
    let length = files[0].len();
    let half = NUMEL.div_ceil(NEW);
    let mine: Vec<Place> = (half..NUMEL).map(Some).collect();
    let found = rank_1();
    let mut read: Vec<Place> = Vec::new();
    let mut beyond = None;
    for (file, places) in &found {
        match files.get(*file).and_then(|file| file.get(places.clone())) {
            Some(part) => read.extend(part),
            None => beyond = beyond.or(Some(format!("places {places:?} of file {file}"))),
        }
    }
    if let Some(beyond) = &beyond {
        evidence.row(
            false,
            "files that exist, and their places",
            format!("files 0 to {}, places 0 to {}", OLD - 1, length - 1),
            beyond,
        );
    }
    let got = in_words(&read);
    evidence.row(
        read == mine,
        "elements that rank 1 reads",
        in_words(&mine),
        got,
    );
    let empty = found.iter().filter(|(_, places)| places.is_empty()).count();
    evidence.row(empty == 0, "files opened for nothing", 0, empty);
    let is = |pieces: &[(usize, Range<usize>)]| found == pieces;
    evidence.means_if(
        is(&[(1, half..2 * length), (2, 2 * length..NUMEL)]) || beyond.is_some(),
        format!(
            "Places count from the beginning of each file, and files have {length} places. Element {half} of the \
             parameter is place {} of file 1.",
            half - length
        ),
    );
    evidence.means_if(
        read.len() + 2 == mine.len() && found.len() == 2,
        "Two elements are missing, one of each file: a range ends before its second number, so `0..1` is one place.",
    );
    evidence.means_if(
        read.first() == Some(&Some(half + 1)) && read.contains(&None),
        "The padded parameter is cut in halves here, 12 in 6 and 6. Padding belonged to the old ranks' cut. The new \
         one is of the 10 elements.",
    );
    evidence.means_if(
        read.contains(&None),
        "Padding was read. It filled up the old slices, and is no part of the parameter: on the new rank it would \
         stand where weights should.",
    );
    evidence.means_if(
        read.iter().flatten().any(|&element| element < half),
        "New rank 0 holds some of these elements. Each element is read once, by the rank that holds it.",
    );
    evidence.means_if(
        is(&[(2, 0..2), (1, 1..4)]),
        "The right elements in the wrong order: rank 1 would train with weights that have changed their places.",
    );
    evidence.means_if(
        read.len() < mine.len(),
        "Elements are missing: the half of rank 1 begins in the middle of file 1 and goes on in file 2.",
    );
    evidence.means_if(
        empty > 0,
        "An empty range reads nothing, and its file has to be opened: leave it out.",
    );
    evidence.means("Rank 1 holds elements 5 to 9. Find each of them in the picture.");
    Ok(())
}
