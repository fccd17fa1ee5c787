#!/usr/bin/env bash
# safetensors 0.8.0 (the Rust crate): serialize with metadata, and the order in which a reader lists the tensors.
# One would guess: equal tensors and equal metadata make equal files, so that ranks and runs can be compared by a checksum of the file.
# What happens: the metadata is a hash map, and its keys are written in the map's order, another one in every map. Of 20 files with three
# keys several have different bytes; with one key, or none, all are equal. The tensors' own order in the file is fixed (by name, within
# one type; not as they were given), but names(), iter() and tensors() of the reader list them in another order each time, so ranks
# that send them one by one in that order mix them up.
# What to do: one key, with JSON of an ordered map in it; compare hashes of the tensors, not of files; Metadata::offset_keys(),
# or sort, for an order that all ranks share.
# Seen 2026-11-29: what is in SEEN below.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
mkdir "$D/src"
cat > "$D/Cargo.toml" <<'END'
[package]
name = "bytes"
version = "0.0.0"
edition = "2021"
[dependencies]
safetensors = "=0.8.0"
[profile.dev]
debug = false
END
cat > "$D/src/main.rs" <<'END'
use safetensors::{serialize, tensor::TensorView, Dtype, SafeTensors};
use std::collections::{BTreeSet, HashMap};

fn main() -> Result<(), safetensors::SafeTensorError> {
    let zeros = [0u8; 8];
    let names: Vec<String> = (0..12).map(|i| format!("blocks.{i}")).collect();
    for keys in [0, 1, 3] {
        let (mut files, mut listed, mut offsets) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for _ in 0..20 {
            let some = ["step", "shape", "vocabulary"].into_iter().take(keys);
            let metadata: HashMap<_, _> = some.map(|key| (key.to_string(), "7".to_string())).collect();
            let views = names.iter().map(|name| (name, TensorView::new(Dtype::F32, vec![2], &zeros).unwrap()));
            let file = serialize(views, (keys > 0).then_some(metadata))?;
            listed.insert(SafeTensors::deserialize(&file)?.names().join(" "));
            offsets.insert(SafeTensors::read_metadata(&file)?.1.offset_keys().join(" "));
            files.insert(file);
        }
        let (equal, many) = (files.len() == 1, listed.len() > 10);
        println!("{keys} keys: 20 equal files {equal}; more than 10 orders of names() {many}, of offset_keys() {}", offsets.len());
    }
    Ok(())
}
END
SEEN="0 keys: 20 equal files true; more than 10 orders of names() true, of offset_keys() 1
1 keys: 20 equal files true; more than 10 orders of names() true, of offset_keys() 1
3 keys: 20 equal files false; more than 10 orders of names() true, of offset_keys() 1"
GOT=$(cd "$D" && cargo run -q 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$GOT" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$GOT"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$GOT"
