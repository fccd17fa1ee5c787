//! Files that are broken, exchanged or made to do harm: each is an error that names a file. No
//! reader panics, waits forever, runs what a file asks for, takes memory that the files do not
//! justify, or writes outside the output folder.

use super::llama::small_gguf;
use super::suite::program::program;
use super::suite::{llama, universal as suite};
use deepspeed::example::{Example, Group};
use deepspeed::torch::{Graph, Id, TorchFile, Value, save_value};
use deepspeed::{Options, convert};
use labs::lab10::pretrained::Pretrained;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRng, TestRunner};
use shardlab::checkpoint::universal::{Universal, merge, slices};
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::model::Llama;
use shardlab::parallel::zero::Stage;
use shardlab::tensor::Precision;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Files by name, below the folder `step5`.
type Files = BTreeMap<String, Vec<u8>>;

/// A kind of files, and what reads them. It may write to the folder `universal` beside `step5`.
type Kind = (Files, fn(&Path) -> Result<(), BadInput>);

/// Names and shapes of a group's parameters.
fn group(parameters: &[(&str, &[usize])]) -> Group {
    parameters
        .iter()
        .map(|(name, shape)| (name.to_string(), shape.to_vec()))
        .collect()
}

/// Gives a file an entry, in place of the one that it has, if it has one.
fn record(path: &Path, key: &str, value: impl FnOnce(&mut Graph) -> Id) {
    let file = TorchFile::open(path).unwrap();
    let mut graph = file.graph.clone();
    let others = file.graph.root().entries().filter(|(of, _)| of.text() != Some(key));
    let mut entries: Vec<(Id, Id)> = others.map(|(key, value)| (key.id, value.id)).collect();
    let value = value(&mut graph);
    entries.push((graph.text(key), value));
    graph.root = graph.push(Value::Dict(entries));
    // torch.save writes the file's own name into it.
    let dir = tempfile::tempdir().unwrap();
    let changed = dir.path().join(path.file_name().unwrap());
    save_value(&changed, &file, &graph).unwrap();
    std::fs::copy(changed, path).unwrap();
}

fn options(dir: &Path) -> Options {
    Options {
        verify: true,
        ..Options::new(dir.join("step5"), dir.join("universal"))
    }
}

fn groups() -> Vec<Group> {
    vec![group(&[("wte", &[5, 2]), ("a.weight", &[3, 4])]), group(&[("norm", &[3])])]
}

fn values(_mp: usize, name: &str, state: usize, element: usize) -> f32 {
    (name.len() * 7 + state) as f32 + element as f32 * 0.25
}

fn saved(example: &Example) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    example.save(&dir.path().join("step5"), &values).unwrap();
    dir
}

const MODEL: &str = "mp_rank_00_model_states.pt";
const SHARDS: [&str; 2] = [
    "zero_pp_rank_0_mp_rank_00_optim_states.pt",
    "zero_pp_rank_1_mp_rank_00_optim_states.pt",
];

fn files(dir: &Path) -> Files {
    let mut all = Files::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            let below = files(&entry.path()).into_iter();
            all.extend(below.map(|(file, bytes)| (format!("{name}/{file}"), bytes)));
        } else {
            all.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
    all
}

fn put(files: &Files, dir: &Path) {
    std::fs::create_dir_all(dir.join("step5")).unwrap();
    for (name, bytes) in files {
        let path = dir.join("step5").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// A checkpoint of this library's own, of two ranks, and its universal one.
fn train(dir: &Path) -> (PathBuf, PathBuf) {
    let save = dir.join("save");
    let to = dir.join("made");
    launch::run(2, |comm| suite::train_and_convert(&comm, Stage::One, &save, &to)).unwrap();
    (save.join("save-0001-step-2"), to)
}

/// DeepSpeed's files of stages 1 and 3, this library's, universal ones, safetensors and GGUF.
fn kinds() -> Vec<Kind> {
    let dir = tempfile::tempdir().unwrap();
    let (save, universal) = train(dir.path());
    let model = dir.path().join("model");
    std::fs::create_dir(&model).unwrap();
    llama::write_folder(&model, &llama::SHAPE).unwrap();
    let folder = files(&model);
    let gguf = std::fs::read(small_gguf(&model)).unwrap();
    let of = |stage| files(&saved(&Example::new(stage, 2, groups())).path().join("step5"));
    let native = |dir: &Path| {
        slices(&dir.join("step5"))?;
        merge(&dir.join("step5"), &dir.join("universal")).map(drop)
    };
    let read_universal = |dir: &Path| {
        let universal = Universal::open(&dir.join("step5"))?;
        let mut names = universal.parameters.keys();
        names.try_for_each(|name| universal.read(name).map(drop))
    };
    vec![
        (of(1), |dir| convert(&options(dir), &()).map(drop)),
        (of(3), |dir| convert(&options(dir), &()).map(drop)),
        (files(&save), native),
        (files(&universal), read_universal),
        (folder, |dir| weights(&dir.join("step5"))),
        (Files::from([("small.gguf".into(), gguf)]), |dir| {
            weights(&dir.join("step5/small.gguf"))
        }),
    ]
}

/// Opens a pretrained model and reads all its weights.
fn weights(path: &Path) -> Result<(), BadInput> {
    let model = Pretrained::open(path)?;
    let llama = Llama::new(&model.shape).expect("the shape of a model that was opened");
    model.load(&llama.params, Precision::F32)
}

/// Reads files from a fresh folder. An error has a help, and leaves nothing else there.
fn read((files, read): &Kind) -> Result<(), BadInput> {
    let dir = tempfile::tempdir().unwrap();
    put(files, dir.path());
    let result = read(dir.path());
    if let Err(BadInput { what, help }) = &result {
        assert!(!help.is_empty(), "{what}");
        let left = std::fs::read_dir(dir.path()).unwrap().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["step5"], "{what}");
    }
    result
}

#[test]
fn truncated_missing_and_exchanged_files_are_refused() {
    let refused = |files: Files, reader, name: &str| {
        let error = read(&(files, reader)).expect_err(name).what;
        assert!(error.contains("step5"), "an error names a file: {error}");
    };
    for (files, reader) in kinds() {
        read(&(files.clone(), reader)).unwrap();
        let names: Vec<&String> = files.keys().collect();
        for (at, name) in names.iter().enumerate() {
            let with = |bytes: &[u8]| {
                let mut files = files.clone();
                files.insert(name.to_string(), bytes.to_vec());
                files
            };
            let bytes = &files[*name];
            refused(with(b""), reader, name);
            refused(with(&bytes[..bytes.len() / 2]), reader, name);
            let mut missing = files.clone();
            missing.remove(*name);
            refused(missing, reader, name);
            let other = names[(at + 1) % names.len()];
            let mut exchanged = with(&files[other]);
            exchanged.insert(other.clone(), bytes.clone());
            if exchanged != files {
                refused(exchanged, reader, name);
            }
        }
    }
}

/// Some hundred files with changed bytes, read by a process whose memory is limited: each is an
/// error or a value.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "reads hundreds of files: the gate runs it; run it when you change what reads files"]
fn changed_bytes_are_errors_or_values() {
    let mut child = Command::new("sh");
    child.args(["-c", "ulimit -v 1500000; exec \"$0\" \"$@\""]);
    child.arg(std::env::current_exe().unwrap());
    child.args(["--ignored", "--exact", "--nocapture", "hostile::changed_bytes"]);
    let output = child.output().unwrap();
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "for changed_bytes_are_errors_or_values"]
fn changed_bytes() {
    let kinds = kinds();
    let changes = prop::collection::vec((any::<Index>(), any::<u8>()), 1..4);
    let any = (any::<Index>(), any::<Index>(), changes);
    let config = Config { cases: 800, failure_persistence: None, ..Config::default() };
    let random = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, random);
    let tested = runner.run(&any, |(kind, name, changes)| {
        let (mut files, reader) = kind.get(&kinds).clone();
        let name = name.get(&files.keys().cloned().collect::<Vec<_>>()).clone();
        let bytes = files.get_mut(&name).unwrap();
        // Headers come first, but a pickle's values.
        let part = if name.ends_with(".pt") {
            unchecked(bytes)
        } else {
            0..bytes.len().min(4096)
        };
        for (at, byte) in changes {
            // Every second change is of an integer, if there are any.
            let is_integer = |at: &usize| *at > 0 && bytes[at - 1] == b'J' && byte % 2 == 0;
            let integers: Vec<usize> = part.clone().filter(is_integer).collect();
            let places = if integers.is_empty() {
                part.clone().collect()
            } else {
                integers
            };
            bytes[*at.get(&places)] = byte;
        }
        read(&(files, reader)).ok();
        Ok(())
    });
    tested.unwrap_or_else(|error| panic!("{error}"));
}

/// The bytes of an archive's pickle, whose checksum is taken away.
fn unchecked(archive: &mut [u8]) -> std::ops::Range<usize> {
    let find = |what: &[u8]| archive.windows(what.len()).position(|part| part == what).unwrap();
    let begin = find(b"\x80\x02");
    let end = begin + archive[begin..].windows(4).position(|part| part == b"PK\x07\x08").unwrap();
    let directory = find(b"PK\x01\x02");
    archive[directory + 16..][..4].fill(0);
    begin..end
}

/// A pipe without a writer.
fn pipe(path: &Path) {
    std::fs::remove_file(path).ok();
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Reads on a thread, so that a reader that waits forever fails the test.
fn within_a_minute<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(work()));
    receive
        .recv_timeout(Duration::from_secs(60))
        .expect("a reader waits, or panicked")
}

#[test]
fn only_regular_files_are_read() {
    for (files, reader) in kinds() {
        let dir = tempfile::tempdir().unwrap();
        put(&files, dir.path());
        let name = files.keys().next_back().unwrap();
        pipe(&dir.path().join("step5").join(name));
        let path = dir.path().to_path_buf();
        let error = within_a_minute(move || reader(&path).unwrap_err().what);
        assert!(error.contains(name) && error.contains("no regular file"), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    pipe(&dir.path().join("text"));
    let mut lab03 = Command::new(program("lab03"));
    lab03.args(["--data", "text", "--steps", "1"]).current_dir(dir.path());
    let output = within_a_minute(move || lab03.output().unwrap());
    says(&output, &["text", "no regular file", "\nhelp: "]);
}

/// The tool, started by a line of the shell.
fn tool(dir: &Path, shell: &str) -> Output {
    let folders = ["--input_folder", "step5", "--output_folder", "universal"];
    let workers = ["--num_extract_workers", "1", "--num_merge_workers", "1"];
    Command::new("sh")
        .arg("-c")
        .arg(shell)
        .arg(program("ds_to_universal"))
        .args(folders.iter().chain(&workers))
        .current_dir(dir)
        .output()
        .unwrap()
}

#[track_caller]
fn says(output: &Output, all: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(all.iter().all(|text| error.contains(text)), "{error}");
}

fn refused(dir: &Path) -> String {
    convert(&options(dir), &()).unwrap_err().what
}

/// A name that clears a terminal, of a parameter in a file.
#[test]
fn errors_show_no_control_characters() {
    let dir = saved(&Example::new(1, 2, vec![group(&[("a\u{1b}[2Jb", &[4])])]));
    let output = tool(dir.path(), "exec \"$0\" \"$@\"");
    says(&output, &["cannot be the name of a folder"]);
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
}

/// The disk refuses what is written at once, and what is kept until the archive is complete (the
/// writer's buffer has just room for the second parameter).
#[test]
fn a_disk_that_is_full_gets_nothing_half_made() {
    for (size, limit) in [(100, 20), (43, 0)] {
        let dir = saved(&Example::new(1, 2, vec![group(&[("large", &[size, size])])]));
        let shell = format!("trap '' XFSZ; ulimit -f {limit}; exec \"$0\" \"$@\"");
        let output = tool(dir.path(), &shell);
        let what = "error: cannot write .universal.partial/zero/large/fp32.pt: ";
        says(&output, &[what, "help: files of this size are"]);
        assert!(output.stderr.starts_with(b"error: "), "nothing else is printed");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

/// A parameter that is larger than the memory that is left: an error before the work, not an abort
/// in it.
#[cfg(target_os = "linux")]
#[test]
fn a_parameter_larger_than_memory_is_refused() {
    let dir = saved(&Example::new(1, 1, vec![group(&[("large", &[4000, 4000])])]));
    let output = tool(dir.path(), "ulimit -v 70000; exec \"$0\" \"$@\"");
    let needed = "1 workers need 64.0 MB of memory";
    says(
        &output,
        &[needed, "`ulimit -v` limits this process", "large, takes 64.0 MB", MODEL],
    );
}

/// Replaces the values of a file, and leaves its storages.
fn rewrite(path: &Path, change: impl FnOnce(&mut Graph) -> Id) {
    let file = TorchFile::open(path).unwrap();
    let mut graph = file.graph.clone();
    graph.root = change(&mut graph);
    save_value(path.with_extension("new").as_path(), &file, &graph).unwrap();
    std::fs::rename(path.with_extension("new"), path).unwrap();
}

/// A pickle may ask for any function. This one asks for a shell that writes a file.
#[test]
fn a_function_that_a_pickle_names_is_not_called() {
    let dir = saved(&Example::new(1, 2, groups()));
    let written = dir.path().join("written");
    for name in [MODEL, SHARDS[0]] {
        rewrite(&dir.path().join("step5").join(name), |graph| {
            let system = graph.class("os", "system");
            let command = graph.text(&format!("touch {}", written.display()));
            let call = graph.call(system, vec![command]);
            let entries = graph.root().entries();
            let mut pairs: Vec<_> = entries.map(|(key, value)| (key.id, value.id)).collect();
            pairs.push((graph.text("more"), call));
            graph.push(Value::Dict(pairs))
        });
    }
    convert(&options(dir.path()), &()).unwrap();
    assert!(!written.exists());
}

/// Shapes whose product is small because one size is 0, but not the product of the others.
#[test]
fn absurd_shapes_are_refused() {
    for shape in [&[0, 1 << 40, 1 << 40][..], &[1 << 51], &[i64::MAX, 2], &[1; 33]] {
        let dir = saved(&Example::new(1, 2, groups()));
        rewrite(&dir.path().join("step5").join(MODEL), |graph| {
            let sizes = shape.iter().map(|size| graph.push(Value::Int(*size))).collect();
            let sizes = graph.push(Value::Tuple(sizes));
            let name = graph.text("a.weight");
            let shapes = graph.push(Value::Dict(vec![(name, sizes)]));
            let key = graph.text("param_shapes");
            let shapes = graph.push(Value::List(vec![shapes]));
            graph.push(Value::Dict(vec![(key, shapes)]))
        });
        let error = refused(dir.path());
        assert!(error.contains(MODEL) && error.contains("has the absurd shape"), "{error}");
    }
}

/// Patterns that take very long on some names, or very much memory.
#[test]
fn hostile_patterns_are_refused() {
    fn info(graph: &mut Graph, pattern: &str, times: usize) -> Id {
        let pattern = graph.text(pattern);
        let list = graph.push(Value::List(vec![pattern; times]));
        let key = graph.text("tp_replicated_parameter_patterns");
        graph.push(Value::Dict(vec![(key, list)]))
    }
    let refused_info = |info: fn(&mut Graph) -> Id, how: &str| {
        let name = format!("{}!", "a".repeat(100));
        let groups = vec![group(&[(&name, &[3])])];
        let dir = saved(&Example::new(1, 1, groups));
        record(&dir.path().join("step5").join(MODEL), "universal_checkpoint_info", info);
        let error = refused(dir.path());
        assert!(error.contains(MODEL) && error.contains(how), "{error}");
    };
    refused_info(|graph| info(graph, "(a|a)*(?=b)(a|a)*$", 1), "takes too long");
    refused_info(|graph| info(graph, "(?:(?:(?:a{90}){90}){90})", 1), "broken, or too large");
    refused_info(|graph| info(graph, "\\w{9}", 1000), "broken, or too large");
    refused_info(|graph| info(graph, "a", 20_000), "20000 patterns in one list");
}

/// Copies a file of a different checkpoint over that of this one.
fn with_file_of(dir: tempfile::TempDir, theirs: &Path, name: &str) -> tempfile::TempDir {
    std::fs::copy(theirs.join(name), dir.path().join("step5").join(name)).unwrap();
    dir
}

/// Two trainings with equal shapes and steps: the model's weights tell them apart. In stage 3 there
/// are none. But each rank has its own list of shapes, a step and settings.
#[test]
fn ranks_of_two_trainings_are_distinguished() {
    let other = |mp: usize, name: &str, state: usize, element: usize| {
        -values(mp, name, state, element) - 1.0
    };
    let theirs = tempfile::tempdir().unwrap();
    Example::new(1, 2, groups()).save(theirs.path(), &other).unwrap();
    let dir = with_file_of(saved(&Example::new(1, 2, groups())), theirs.path(), SHARDS[1]);
    let error = refused(dir.path());
    let how = "the model's weight in mp_rank_00_model_states.pt is";
    assert!(error.contains(SHARDS[1]) && error.contains(how), "{error}");
    let model = "zero_pp_rank_1_mp_rank_00_model_states.pt";
    let mut longer = groups();
    longer[0][0].1 = vec![6, 2];
    let ours = Example::new(3, 2, groups());
    let different = "different parameters, or is of a different step";
    for (theirs, name, how) in [
        (Example { step: 6.0, ..ours.clone() }, model, different),
        (Example::new(3, 2, longer), model, different),
        (Example { step: 6.0, ..ours.clone() }, SHARDS[1], "at step 6"),
    ] {
        let theirs = saved(&theirs);
        let dir = with_file_of(saved(&ours), &theirs.path().join("step5"), name);
        let error = refused(dir.path());
        assert!(error.contains(name) && error.contains(how), "{error}");
    }
}

#[test]
fn a_rank_of_another_version_is_not_of_the_same_save() {
    let dir = saved(&Example::new(3, 2, groups()));
    record(&dir.path().join("step5").join(SHARDS[1]), "ds_version", |graph| {
        graph.text("0.9.0")
    });
    let error = refused(dir.path());
    assert!(error.contains(SHARDS[1]) && error.contains("not of the same save"), "{error}");
}

/// A file that was copied over another, with and without the name of its own rank inside, and two
/// that were exchanged.
#[test]
fn files_of_other_ranks_are_refused() {
    for (stage, exchange) in [(1, false), (1, true), (3, false), (3, true)] {
        let dir = saved(&Example::new(stage, 2, groups()));
        let [first, second] = SHARDS.map(|name| dir.path().join("step5").join(name));
        let theirs = std::fs::read(&second).unwrap();
        std::fs::copy(&first, &second).unwrap();
        if exchange {
            std::fs::write(first, theirs).unwrap();
        }
        assert!(refused(dir.path()).contains("was written for rank"));
    }
    // Archives without a name: their writers call the folder `archive`.
    let dir = saved(&Example::new(3, 2, groups()));
    let shard = TorchFile::open(&dir.path().join("step5").join(SHARDS[0])).unwrap();
    let archive = dir.path().join("archive.pt");
    save_value(&archive, &shard, &shard.graph).unwrap();
    for name in SHARDS {
        std::fs::copy(&archive, dir.path().join("step5").join(name)).unwrap();
    }
    assert!(refused(dir.path()).contains("have the same numbers"));
    // Someone who knows better gets the doubt as a note.
    let report = convert(&Options { strict: false, ..options(dir.path()) }, &()).unwrap();
    assert!(report.notes[0].contains("have the same numbers"), "{:?}", report.notes);
}

#[test]
fn values_that_are_not_finite_are_counted() {
    let bad = |mp: usize, name: &str, state: usize, at: usize| match (name, state, at) {
        ("wte", 0, 9) => f32::NAN,
        ("wte", 1, 7 | 8) => f32::NEG_INFINITY,
        ("norm", 2, 0) => f32::INFINITY,
        _ => values(mp, name, state, at),
    };
    let dir = tempfile::tempdir().unwrap();
    Example::new(3, 2, groups()).save(&dir.path().join("step5"), &bad).unwrap();
    let counted = "infinite or NaN: 4, the first in exp_avg of wte";
    let output = tool(dir.path(), "exec \"$0\" \"$@\" --dry-run");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(counted), "{said}");
    let output = tool(dir.path(), "exec \"$0\" \"$@\" --verify");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(counted));
}

#[test]
fn a_name_in_a_rank_file_does_not_lead_outside() {
    let dir = tempfile::tempdir().unwrap();
    let mut saved = files(&train(dir.path()).0);
    let (name, shard) = saved.iter_mut().find(|(name, _)| name.ends_with(".safetensors")).unwrap();
    let name = name.clone();
    let header = 8..8 + u64::from_le_bytes(shard[..8].try_into().unwrap()) as usize;
    let text = String::from_utf8_lossy(&shard[header.clone()]).replace("wte.weight", "wte/weight");
    shard[header].copy_from_slice(text.as_bytes());
    // The manifest has the file as it is now, and its own checksum is right.
    let sum = shardlab::sha256::hex(shard);
    let mut manifest: serde_json::Value = serde_json::from_slice(&saved["manifest.json"]).unwrap();
    let entries = manifest["files"].as_array_mut().unwrap();
    entries.iter_mut().find(|entry| entry["name"] == name.as_str()).unwrap()["sha256"] = sum.into();
    saved.insert("manifest.json".to_string(), serde_json::to_vec(&manifest).unwrap());
    let sum = shardlab::sha256::hex(&saved["manifest.json"]);
    saved.insert("manifest.json.sha256".to_string(), format!("{sum}  manifest.json\n").into());
    put(&saved, dir.path());
    let error = merge(&dir.path().join("step5"), &dir.path().join("universal"))
        .unwrap_err()
        .what;
    let how = "\"wte/weight\" cannot be a parameter's name";
    assert!(error.contains(&name) && error.contains(how), "{error}");
}

/// A file of someone's to which a name of ours leads is neither overwritten nor made longer.
#[cfg(unix)]
#[test]
fn what_links_of_our_names_lead_to_stays_as_it_is() {
    use crate::suite::program::{lab_in, stderr, stdout};
    use std::os::unix::fs::symlink;
    let small = "--layers 1 --embd 16 --heads 2 --block 8 --steps 4";
    let dir = tempfile::tempdir().unwrap();
    let precious = dir.path().join("precious");
    std::fs::write(&precious, "precious").unwrap();
    for (program, flags, folder, name, code) in [
        ("lab08", "--checkpoints c --save-every 2 --resume none", "c", "writer.lock", 2),
        (
            "lab08",
            "--checkpoints d --save-every 2 --resume none",
            "d",
            "progress.jsonl",
            0,
        ),
        ("lab08", "--checkpoints e --save-every 2 --resume none", "e", "latest", 0),
        ("lab03", "--out o", "o", "model.safetensors", 0),
    ] {
        let folder = dir.path().join(folder);
        std::fs::create_dir(&folder).unwrap();
        symlink("../precious", folder.join(name)).unwrap();
        let output = lab_in(dir.path(), program, &format!("{small} {flags}"));
        let said = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{name}: {said}");
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious", "{name}");
        assert!(code == 0 || said.contains("writer.lock is a link"), "{said}");
    }
}
