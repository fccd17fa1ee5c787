//! The check of lab09-pieces: old ranks save their slices, and new rank 1 looks where the reader
//! says.

use exercise::found_at;
use kit::check::{Evidence, run};
use shardlab::{Result, launch};
use std::process::ExitCode;

const NUMEL: usize = 28;
/// With padding.
const PADDED: usize = 32;
const OLD: usize = 4;
const NEW: usize = 2;

pub fn main() -> ExitCode {
    run(&[("where new rank 1 finds its first element", begins)])
}

/// What a place of a file holds: an element, or padding.
type Place = Option<usize>;

/// The old ranks' files, each written by its rank.
fn saved() -> Result<Vec<Vec<Place>>> {
    launch::run(OLD, |comm| {
        let length = PADDED / comm.size();
        let places = comm.rank() * length..(comm.rank() + 1) * length;
        Ok(places.map(|i| Some(i).filter(|&i| i < NUMEL)).collect())
    })
}

fn begins(evidence: &mut Evidence) -> Result<()> {
    let files = saved()?;
    let length = files[0].len();
    // The new ranks divide the elements, without padding.
    let mine = NUMEL / NEW;
    let (file, place) = found_at();
    let found = files.get(file).and_then(|file| file.get(place));
    let what = match found {
        Some(Some(element)) => format!("element {element}"),
        Some(None) => "padding".into(),
        None => "nothing".into(),
    };
    evidence.row(
        found == Some(&Some(mine)),
        "new rank 1 begins with",
        "?",
        format!("file {file}, place {place}: {what}"),
    );
    let last = length - 1;
    evidence.means_if(
        file >= OLD,
        format!("There is no file {file}: four ranks have saved files 0 to {}.", OLD - 1),
    );
    evidence.means_if(
        place > last,
        format!(
            "File {file} has places 0 to {last}. An element has one number in the parameter and another one in its file: places \
             begin with 0 in each file."
        ),
    );
    evidence.means_if(
        found == Some(&Some(OLD * length / NEW)),
        "So the padded parameter is cut in two. Padding belonged to the old ranks' cut. The new one is of the 28 elements.",
    );
    evidence.means_if(
        found == Some(&None),
        "This is padding. It filled up the old cut, and no new rank reads it.",
    );
    if let Some(Some(element)) = found {
        evidence.means_if(
            *element < mine,
            format!(
                "Element {element} is there. It belongs to new rank 0, which has the first half."
            ),
        );
        evidence.means(format!(
            "Element {element} is there. If new rank 1 begins with it, nobody reads some of the elements before it."
        ));
    }
    Ok(())
}
