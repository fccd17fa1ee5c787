//! Files that `torch.save` writes: read, written, damaged.

use candle_core::pickle;
use deepspeed::torch::{Dtype, Graph, TorchFile, Value, save_tensor, save_value};
use std::path::{Path, PathBuf};

/// A dictionary with a tensor of 2 x 3 numbers.
fn write(dir: &Path) -> PathBuf {
    let path = dir.join("fp32.pt");
    let fields = |graph: &mut Graph| {
        let key = graph.text("cat_dim");
        let value = graph.push(Value::Int(1));
        vec![(key, value)]
    };
    save_tensor(&path, Dtype::F32, &[2, 3], bytemuck::cast_slice(&NUMBERS), Some(&fields)).unwrap();
    path
}

const NUMBERS: [f32; 6] = [0.5, -1.0, 2.0, 3.25, f32::MIN_POSITIVE, 6e6];

fn read(path: &Path) -> Result<Vec<f32>, String> {
    let file = TorchFile::open(path).map_err(|error| error.what)?;
    file.ensure_undamaged().map_err(|error| error.what)?;
    let param = file.graph.root().get("param").ok_or("no param")?;
    let tensor = file.tensor(param).map_err(|error| error.what)?.ok_or("no tensor")?;
    let mut numbers = vec![0.0; tensor.numel()];
    let bytes = bytemuck::cast_slice_mut(&mut numbers);
    if bytes.len() == tensor.numel() * tensor.dtype.size() {
        tensor.read(0..tensor.numel(), bytes).map_err(|error| error.what)?;
    }
    Ok(numbers)
}

#[test]
fn what_is_written_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path());
    assert_eq!(read(&path), Ok(NUMBERS.to_vec()));
    let file = TorchFile::open(&path).unwrap();
    assert_eq!(file.graph.root().get("cat_dim").unwrap().int(), Some(1));
    let tensor = file.tensor(file.graph.root().get("param").unwrap()).unwrap().unwrap();
    assert_eq!((tensor.dtype, &tensor.shape[..]), (Dtype::F32, &[2, 3][..]));
    let mut part = [0u8; 8];
    tensor.read(1..3, &mut part).unwrap();
    assert_eq!(bytemuck::cast_slice::<u8, f32>(&part), &NUMBERS[1..3]);
}

/// A different reader, candle's, finds the same numbers.
#[test]
fn candle_reads_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = pickle::read_all(write(dir.path())).unwrap();
    let [(name, tensor)] = &tensors[..] else {
        panic!("{tensors:?}")
    };
    assert_eq!((name.as_str(), tensor.dims()), ("param", &[2, 3][..]));
    assert_eq!(tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap(), NUMBERS);
}

/// torch.save puts numbers at multiples of 64 bytes, so that a reader may map them.
#[test]
fn numbers_begin_at_multiples_of_64_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(write(dir.path())).unwrap();
    let numbers: &[u8] = bytemuck::cast_slice(&NUMBERS);
    let at = bytes.windows(numbers.len()).position(|part| part == numbers).unwrap();
    assert_eq!(at % 64, 0);
}

/// Values are copied with their tensors, and shared values stay shared.
#[test]
fn values_are_copied() {
    let dir = tempfile::tempdir().unwrap();
    let file = TorchFile::open(&write(dir.path())).unwrap();
    let mut graph = file.graph.clone();
    let tensor = graph.root().get("param").unwrap().id;
    let pairs = ["param", "again"].map(|key| (graph.text(key), tensor));
    graph.root = graph.push(Value::Dict(pairs.to_vec()));
    let path = dir.path().join("copy.pt");
    save_value(&path, &file, &graph).unwrap();
    assert_eq!(read(&path), Ok(NUMBERS.to_vec()));
    let root = TorchFile::open(&path).unwrap().graph;
    let [param, again] = ["param", "again"].map(|key| root.root().get(key).unwrap().id);
    assert_eq!(param, again);
}

/// Every truncated file is an error that names it, and a flipped bit of any byte is one or changes
/// nothing.
#[test]
fn damaged_files_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path());
    let whole = std::fs::read(&path).unwrap();
    for end in 0..whole.len() {
        std::fs::write(&path, &whole[..end]).unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.contains("fp32.pt"), "{end}: {error}");
    }
    for byte in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[byte] ^= 1 << (byte % 8);
        std::fs::write(&path, &flipped).unwrap();
        match read(&path) {
            Ok(numbers) => assert_eq!(numbers, NUMBERS, "byte {byte}"),
            Err(error) => assert!(error.contains("fp32.pt"), "byte {byte}: {error}"),
        }
    }
}

/// Fields of the archive that would make a careless reader allocate, decompress or write elsewhere.
#[test]
fn hostile_archives_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path());
    let whole = std::fs::read(&path).unwrap();
    let find = |what: &[u8]| whole.windows(what.len()).position(|part| part == what).unwrap();
    let directory = find(b"PK\x01\x02");
    let end = find(b"PK\x05\x06");
    let change = |at: usize, bytes: &[u8], how: &str| {
        let mut changed = whole.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        std::fs::write(&path, &changed).unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.contains(how) && error.contains("fp32.pt"), "{error}");
    };
    change(directory + 10, &[8], "compressed");
    change(directory + 8, &[1], "encrypted");
    // Both sizes, so that it is not compressed; then more than the file has.
    change(
        directory + 20,
        &[0xfe, 0xff, 0xff, 0x7f, 0xfe, 0xff, 0xff, 0x7f],
        "beyond the file",
    );
    change(directory + 42, &[0xff, 0xff, 0xff, 0x7f], "cannot be read");
    change(end + 10, &[9, 0], "directory");
    change(end + 12, &[0xff, 0xff, 0xff, 0x7f], "directory would be");
    change(0, b"XXXX", "broken");
    change(find(b"little"), b"bigend", "little-endian");
}

/// Files that are no archive have this number after their first pickle's first bytes. They were
/// written before 1.6, and DeepSpeed still writes them where `checkpoint_serialization` is off.
#[test]
fn files_that_are_no_archive_are_refused_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.pt");
    let begin = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.";
    std::fs::write(&path, begin).unwrap();
    let error = TorchFile::open(&path).err().unwrap();
    assert!(error.what.ends_with(
        "old.pt is no archive: PyTorch before 1.6 wrote it, or DeepSpeed with checkpoint_serialization off"
    ));
    assert!(error.help.contains("with a newer PyTorch"), "{error}");
}

/// A file with nothing in it but the claim that it lists 700 million entries: a few KB of the disk,
/// and 60 GiB by its size.
#[cfg(unix)]
#[test]
fn a_directory_that_is_only_claimed_takes_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("claim.pt");
    let file = std::fs::File::create(&path).unwrap();
    let length: u64 = 60 << 30;
    let record = length - 22 - 20 - 56;
    let begin = length / 2;
    let size = record - begin;
    let mut end = b"PK\x06\x06".to_vec();
    end.extend(44u64.to_le_bytes());
    end.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for number in [size / 46, size / 46, size, begin] {
        end.extend(number.to_le_bytes());
    }
    end.extend(b"PK\x06\x07\0\0\0\0");
    end.extend(record.to_le_bytes());
    end.extend([1, 0, 0, 0]);
    end.extend(b"PK\x05\x06\0\0\0\0");
    end.extend([0xff; 12]);
    end.extend([0, 0]);
    assert_eq!(end.len() as u64, length - record);
    std::os::unix::fs::FileExt::write_all_at(&file, &end, record).unwrap();
    let error = TorchFile::open(&path).err().unwrap();
    assert!(error.what.contains("claim.pt"), "{error}");
    assert!(error.what.contains("directory would be"), "{error}");
}
