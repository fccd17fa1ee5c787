//! From the files of N ranks to whole parameters.
//!
//! Each rank's file lists which elements of which whole parameter it has. So a parameter is put
//! together by copying each slice to its place: no rule about a parameter's name is needed, and no
//! padding has to be stripped, because no slice reaches into the padding.

use super::folder::{Universal, Writer, floats, is_name};
use crate::checkpoint::files;
use crate::checkpoint::manifest::{Manifest, rank_file};
use crate::checkpoint::shard::{Held, KINDS, ShardHeader};
use crate::error::BadInput;
use safetensors::tensor::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

const INCOMPLETE: &str = "convert a checkpoint that is complete, with the files of all ranks";

/// A slice of a parameter that one rank's file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    pub rank: usize,
    /// Offsets in the whole parameter.
    pub elements: Range<usize>,
}

/// One rank's file: where each fragment's numbers are in it.
struct RankFile {
    path: PathBuf,
    header: ShardHeader,
    /// The offset of each tensor's bytes in the file.
    offsets: BTreeMap<String, u64>,
}

impl RankFile {
    /// Reads and checks all of the file once, and keeps only its header.
    fn open(manifest: &Manifest, folder: &Path, rank: usize) -> Result<RankFile, BadInput> {
        let bytes = manifest.rank(folder, rank)?;
        let path = folder.join(rank_file(rank));
        let broken = |error: String| {
            BadInput::new(format!("{} is no rank's state: {error}", path.display()), INCOMPLETE)
        };
        let header = ShardHeader::read(&bytes).map_err(|error| broken(format!("{error:#}")))?;
        let (size, metadata) =
            SafeTensors::read_metadata(&bytes).map_err(|error| broken(error.to_string()))?;
        // Tensors follow the header's size, in 8 bytes, and the header.
        let first = 8 + size;
        let mut offsets = BTreeMap::new();
        for (name, tensor) in metadata.tensors() {
            offsets.insert(name, (first + tensor.data_offsets.0) as u64);
        }
        for (name, held) in &header.fragments {
            held.ensure_sound().map_err(|error| broken(format!("{error:#}")))?;
            if !is_name(&held.whole.0) {
                return Err(broken(format!("{:?} cannot be a parameter's name", held.whole.0)));
            }
            for kind in KINDS {
                let Some(tensor) = metadata.info(&format!("{kind}.{name}")) else {
                    return Err(broken(format!("it has no {kind}.{name}")));
                };
                let (begin, end) = tensor.data_offsets;
                let numel = held.numel(kind);
                if tensor.dtype != Dtype::F32 || (end - begin) / 4 != numel {
                    return Err(broken(format!("{kind}.{name} is not {numel} f32")));
                }
            }
        }
        Ok(RankFile { path, header, offsets })
    }

    /// Reads one tensor of a fragment.
    fn read(&self, kind: &str, name: &str, held: &Held) -> Result<Vec<f32>, BadInput> {
        let offset = self.offsets.get(&format!("{kind}.{name}")).copied().unwrap_or_default();
        let bytes = files::read_at(&self.path, offset, 4 * held.elements.len())?;
        Ok(floats(&bytes))
    }
}

/// A fragment in a rank's file, by the name of the rank's parameter.
type Fragment<'a> = (usize, &'a str, &'a Held);

/// One whole parameter, and its fragments in rank order.
struct Fragments<'a> {
    shape: &'a [usize],
    all: Vec<Fragment<'a>>,
}

fn wholes(files: &[RankFile]) -> BTreeMap<&str, Fragments<'_>> {
    let mut wholes = BTreeMap::new();
    for (rank, file) in files.iter().enumerate() {
        for (name, held) in file.header.fragments.iter().filter(|(_, held)| held.counts) {
            let (whole, shape) = &held.whole;
            let fragments = wholes
                .entry(whole.as_str())
                .or_insert_with(|| Fragments { shape, all: Vec::new() });
            fragments.all.push((rank, name.as_str(), held));
        }
    }
    wholes
}

fn open(folder: &Path) -> Result<(Manifest, Vec<RankFile>), BadInput> {
    let manifest = Manifest::parse(&Manifest::text(folder)?, folder)?;
    let ranks = 0..manifest.job.ranks;
    let files = ranks
        .map(|rank| RankFile::open(&manifest, folder, rank))
        .collect::<Result<_, _>>()?;
    Ok((manifest, files))
}

/// The slices of each whole parameter that the files of a checkpoint have, in rank order: for
/// pictures.
///
/// # Errors
/// If a rank's file is missing, damaged, or no rank's state.
pub fn slices(folder: &Path) -> Result<BTreeMap<String, Vec<Slice>>, BadInput> {
    let (_, files) = open(folder)?;
    let mut all = BTreeMap::new();
    for (name, fragments) in wholes(&files) {
        let slices: &mut Vec<Slice> = all.entry(name.to_string()).or_default();
        for (rank, _, held) in fragments.all {
            held.runs(|run, at| slices.push(Slice { rank, elements: at..at + run.len() }));
        }
    }
    Ok(all)
}

/// Converts the checkpoint in `folder` to the universal checkpoint `to`. In memory there is one
/// parameter at a time, with its two moments.
///
/// # Errors
/// If a rank's file is missing or damaged, the files do not have all elements of a parameter or
/// disagree about some, `to` exists, or the disk refuses.
pub fn merge(folder: &Path, to: &Path) -> Result<Universal, BadInput> {
    let (manifest, files) = open(folder)?;
    let mut writer = Writer::begin(to)?;
    for (whole, Fragments { shape, all }) in wholes(&files) {
        let numel = shape.iter().product();
        ensure_enough(&files, whole, shape, &all)?;
        let one_moment = all.iter().any(|(.., held)| held.one_moment);
        let states = KINDS.map(|kind| match kind {
            "exp_avg_sq" if one_moment => Ok(Vec::new()),
            kind => assemble(&files, kind, whole, numel, &all),
        });
        let [values, exp_avg, exp_avg_sq] = states;
        writer.write(whole, shape, [&values?, &exp_avg?, &exp_avg_sq?])?;
    }
    let steps = files.first().map_or(0, |file| file.header.steps);
    if let Some(other) = files.iter().find(|file| file.header.steps != steps) {
        let what = format!(
            "{} is of optimizer step {}, and the first rank's file of {steps}",
            other.path.display(),
            other.header.steps
        );
        return Err(BadInput::new(what, INCOMPLETE));
    }
    writer.finish(steps, manifest)
}

/// Refuses fragments of different wholes, or of fewer elements than the whole has: no memory is
/// taken for what no file has.
fn ensure_enough(
    files: &[RankFile],
    whole: &str,
    shape: &[usize],
    all: &[Fragment],
) -> Result<(), BadInput> {
    let one_moment = |held: &Held| held.one_moment && !held.elements.is_empty();
    let muons = all.iter().any(|(.., held)| one_moment(held));
    let other = |held: &Held| !held.elements.is_empty() && one_moment(held) != muons;
    if let Some((rank, ..)) = all.iter().find(|(.., held)| other(held)) {
        let path = files[*rank].path.display();
        let what = format!("{path} has two moments of {whole}, and another file one");
        return Err(BadInput::new(what, INCOMPLETE));
    }
    if let Some((rank, _, held)) = all.iter().find(|(.., held)| held.whole.1 != shape) {
        let path = files[*rank].path.display();
        return Err(BadInput::new(
            format!("{path} has {whole} as {:?}, and others as {shape:?}", held.whole.1),
            INCOMPLETE,
        ));
    }
    let numel = shape.iter().product::<usize>();
    let held = all.iter().map(|(.., held)| held.elements.len()).sum::<usize>();
    if held < numel {
        let folder = files[0].path.parent().unwrap_or(Path::new("")).display();
        let what = format!("the files in {folder} have {held} of the {numel} elements of {whole}");
        return Err(BadInput::new(what, INCOMPLETE));
    }
    Ok(())
}

/// Copies each slice to its place. Ranks that hold the same elements must hold the same bits.
fn assemble(
    files: &[RankFile],
    kind: &str,
    whole: &str,
    numel: usize,
    fragments: &[Fragment],
) -> Result<Vec<f32>, BadInput> {
    let mut numbers = vec![0f32; numel];
    let mut owner = vec![u32::MAX; numel];
    for &(rank, name, held) in fragments {
        let part = files[rank].read(kind, name, held)?;
        let mut wrong = None;
        held.runs(|run, at| {
            for (i, to) in run.zip(at..) {
                let Some(slot) = numbers.get_mut(to) else {
                    wrong = wrong.or(Some((to, None)));
                    return;
                };
                if owner[to] == u32::MAX {
                    *slot = part[i];
                    owner[to] = rank as u32;
                } else if slot.to_bits() != part[i].to_bits() {
                    wrong = wrong.or(Some((to, Some(owner[to]))));
                }
            }
        });
        if let Some((at, other)) = wrong {
            let what = match other {
                Some(other) => {
                    format!(
                        "ranks {other} and {rank} hold different {kind} of {whole}, first at element {at}"
                    )
                }
                None => format!(
                    "{}: element {at} of {whole} is beyond its {numel}",
                    files[rank].path.display()
                ),
            };
            return Err(BadInput::new(
                what,
                "the ranks' models have drifted apart: use an earlier checkpoint",
            ));
        }
    }
    match owner.iter().position(|&rank| rank == u32::MAX) {
        Some(at) => Err(BadInput::new(
            format!("no rank's file has element {at} of {whole} ({kind})"),
            INCOMPLETE,
        )),
        None => Ok(numbers),
    }
}
