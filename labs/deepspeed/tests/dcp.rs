//! A folder that PyTorch 2.15 has saved on four ranks: `dcp/dcp.py` made it, and says what is in
//! it.

use crate::checkpoint::{Conversion, Difference, Format, diff, open};
use crate::tensors::Checkpoint;
use serde_json::Value as Json;
use shardlab::error::BadInput;
use shardlab::sha256;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};

const SAVED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dcp/saved");

/// What PyTorch reads from it, by name: type, shape and SHA-256.
fn expected() -> BTreeMap<String, Json> {
    serde_json::from_str(include_str!("dcp/expected.json")).unwrap()
}

fn read(checkpoint: &Checkpoint) -> Result<BTreeMap<String, Json>, BadInput> {
    let about = |tensor: &crate::tensors::Tensor| {
        let sha256 = sha256::hex(&tensor.read()?);
        let dtype = tensor.dtype.name();
        let about = serde_json::json!({ "dtype": dtype, "shape": tensor.shape, "sha256": sha256 });
        Ok((tensor.name.clone(), about))
    };
    checkpoint.tensors.iter().map(about).collect()
}

fn convert(input: &Path, output: PathBuf, to: Format, only: Option<&str>) -> PathBuf {
    let only = only.map(str::to_string);
    let conversion = Conversion {
        input: input.into(),
        output: output.clone(),
        to,
        only,
        workers: 2,
    };
    let plan = conversion.plan().unwrap();
    conversion.run(&plan, &()).unwrap();
    output
}

/// A copy to damage.
fn copy() -> TempDir {
    let dir = tempdir().unwrap();
    for entry in std::fs::read_dir(SAVED).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    dir
}

#[test]
fn every_tensor_has_the_bits_that_pytorch_reads() {
    let (format, checkpoint) = open(Path::new(SAVED)).unwrap();
    assert_eq!(format, Format::Dcp);
    assert_eq!(read(&checkpoint).unwrap(), expected());
    let up = checkpoint
        .tensors
        .iter()
        .find(|tensor| tensor.name == "model.up.weight")
        .unwrap();
    let mut rows: Vec<_> = up.parts.iter().map(|part| (part.offset[0], part.shape[0])).collect();
    rows.sort_unstable();
    // Tensor parallelism cuts six rows in two, and FSDP each three again.
    assert_eq!(rows, [(0, 2), (2, 1), (3, 2), (5, 1)]);
}

/// The way back gives all tensors, all settings that are plain values, and the keys of names.
#[test]
fn there_and_back_nothing_is_lost() {
    let dir = tempdir().unwrap();
    let whole = convert(Path::new(SAVED), dir.path().join("whole"), Format::Safetensors, None);
    let back = convert(&whole, dir.path().join("back"), Format::Dcp, None);
    let (_, first) = open(Path::new(SAVED)).unwrap();
    let (_, last) = open(&back).unwrap();
    assert_eq!(read(&last).unwrap(), expected());
    let differences = diff(&first, &last, 2).unwrap();
    assert_eq!(differences, [("extra.shape".to_string(), Difference::Missing(1))]);
    let keys = |checkpoint: &Checkpoint| {
        let keys = checkpoint.tensors.iter().map(|one| (one.name.clone(), one.keys.clone()));
        keys.collect::<BTreeMap<_, _>>()
    };
    assert_eq!(keys(&first), keys(&last));
    assert_eq!(keys(&last)["extra.list.1.a.b"].len(), 4);
    // From DCP to DCP the object is copied as it is.
    let again = convert(Path::new(SAVED), dir.path().join("again"), Format::Dcp, None);
    let differences = diff(&first, &open(&again).unwrap().1, 2).unwrap();
    assert_eq!(differences, [("extra.shape".to_string(), Difference::Object)]);
}

#[test]
fn a_prefix_is_cut_off_and_what_it_leaves_is_counted() {
    let dir = tempdir().unwrap();
    let conversion = Conversion {
        input: SAVED.into(),
        output: dir.path().join("weights"),
        to: Format::Safetensors,
        only: Some("model.".to_string()),
        workers: 1,
    };
    let plan = conversion.plan().unwrap();
    let (_, all) = open(Path::new(SAVED)).unwrap();
    assert_eq!(plan.others, all.tensors.len() + all.values.len() - 3);
    conversion.run(&plan, &()).unwrap();
    let (_, weights) = open(&conversion.output).unwrap();
    let expected = expected();
    let found = read(&weights).unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), ["down.weight", "norm.weight", "up.weight"]);
    for (name, about) in found {
        assert_eq!(about, expected[&format!("model.{name}")]);
    }
    let nothing = Conversion { only: Some("modell.".to_string()), ..conversion };
    assert!(nothing.plan().unwrap_err().what.contains("begins with \"modell.\""));
}

/// One element changed: where, and by how much.
#[test]
fn a_difference_of_one_element_is_found() {
    let dir = tempdir().unwrap();
    let whole = convert(Path::new(SAVED), dir.path().join("whole"), Format::Safetensors, None);
    let path = whole.join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let (_, first) = open(&whole).unwrap();
    let up = first.tensors.iter().find(|tensor| tensor.name == "model.up.weight").unwrap();
    let at = up.parts[0].place.bytes.start as usize + 4 * 7;
    let before = f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    bytes[at..at + 4].copy_from_slice(&(before + 0.5).to_le_bytes());
    let other = dir.path().join("other.safetensors");
    std::fs::write(&other, bytes).unwrap();
    let differences = diff(&first, &open(&other).unwrap().1, 1).unwrap();
    let by = f64::from((before + 0.5) - before);
    assert_eq!(differences, [("model.up.weight".to_string(), Difference::Elements(1, by))]);
}

/// Numbers that look random, the same in every run.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

/// The table has no checksum: a changed letter of a name is another name. Everything else is
/// refused by the file's name, or right.
#[test]
fn a_table_that_was_changed_is_refused_or_read_right() {
    let dir = copy();
    let path = dir.path().join(".metadata");
    let whole = std::fs::read(&path).unwrap();
    let expected = expected();
    let mut state = 1;
    let mut refused = 0;
    for _ in 0..200 {
        let mut bytes = whole.clone();
        let at = random(&mut state) % bytes.len();
        match random(&mut state) % 4 {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << (random(&mut state) % 8),
            2 => bytes[at] = random(&mut state) as u8,
            _ => drop(bytes.remove(at)),
        }
        std::fs::write(&path, bytes).unwrap();
        match open(dir.path()).and_then(|(_, checkpoint)| read(&checkpoint)) {
            Ok(found) => {
                for (name, about) in found {
                    assert!(expected.get(&name).is_none_or(|right| *right == about), "{name}");
                }
            }
            Err(error) => {
                refused += 1;
                let folder = dir.path().to_str().unwrap();
                assert!(error.what.contains(folder) && !error.help.is_empty(), "{error:?}");
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

/// A bit that flips in a file is noticed by a checksum, or is in none of the elements.
#[test]
fn a_flipped_bit_is_never_read() {
    let dir = copy();
    let expected = expected();
    let (mut state, mut refused) = (2, 0);
    for _ in 0..200 {
        let path = dir.path().join(format!("__{}_0.distcp", random(&mut state) % 4));
        let whole = std::fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        let at = random(&mut state) % bytes.len();
        bytes[at] ^= 1 << (random(&mut state) % 8);
        std::fs::write(&path, bytes).unwrap();
        match open(dir.path()).and_then(|(_, checkpoint)| read(&checkpoint)) {
            Ok(found) => assert_eq!(found, expected),
            Err(error) => {
                refused += 1;
                assert!(error.what.contains(path.to_str().unwrap()), "{error:?}");
            }
        }
        std::fs::write(path, whole).unwrap();
    }
    assert!(refused > 20, "{refused}");
}

/// A folder that is incomplete, or another program's, is refused with the way out.
#[test]
fn what_is_no_checkpoint_here_is_refused_by_name() {
    let dir = copy();
    let refused = |about: &str| {
        let error = open(dir.path()).unwrap_err();
        assert!(error.what.contains(about), "{error:?}");
    };
    let file = dir.path().join("__3_0.distcp");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    refused("of __3_0.distcp, which has");
    std::fs::remove_file(&file).unwrap();
    refused("it names __3_0.distcp, which cannot be opened");
    // `os.system("true")`, and a value of Python's own.
    for hostile in [&b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."[..], b"\x80\x02}."] {
        std::fs::write(dir.path().join(".metadata"), hostile).unwrap();
        refused("no table of PyTorch's distributed checkpoint");
    }
    std::fs::remove_file(dir.path().join(".metadata")).unwrap();
    refused("and no .metadata");
    let zero = tempdir().unwrap();
    std::fs::create_dir(zero.path().join("zero")).unwrap();
    assert!(open(zero.path()).unwrap_err().help.contains("ds_to_universal"));
}
