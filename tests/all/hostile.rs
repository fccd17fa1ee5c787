//! Checkpoints that are broken, or made to do harm: each is an error that names a file. No reader
//! panics, waits forever, takes memory that the files do not justify, or writes outside the output
//! folder.

use super::mutate::{self, Files, Random};
use super::suite::universal as suite;
#[cfg(target_os = "linux")]
use super::suite::{llama, program::soon};
use crate::suite::program::program;
use deepspeed::example::{Example, Group, group};
use deepspeed::torch::{Graph, Id, TorchFile, Value, save_graph};
use deepspeed::{Format, MANIFEST, Options, Refusal, Report, convert};
use shardlab::checkpoint::universal::{Universal, merge, slices};
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::parallel::zero::Stage;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn options(dir: &Path) -> Options {
    let one = Options::new(dir.join("step5"), dir.join("universal"));
    Options { extract_workers: 1, merge_workers: 1, verify: true, ..one }
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
const SHARD: &str = "zero_pp_rank_1_mp_rank_00_optim_states.pt";

/// Converts on a thread, so that a reader that waits forever fails the test.
fn within_a_minute<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(work()));
    receive
        .recv_timeout(Duration::from_secs(60))
        .expect("a reader waits, or panicked")
}

fn refused(options: &Options) -> String {
    let options = options.clone();
    let BadInput { what, help } =
        within_a_minute(move || convert(&options, &()).unwrap_err().error());
    assert!(!help.is_empty(), "{what}");
    what
}

fn names(dir: &Path) -> BTreeSet<String> {
    std::fs::read_dir(dir)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into())
        .collect()
}

/// In place of a file: a pipe without a writer; a device, which never ends; links to either, to
/// nothing and to itself; a folder.
#[cfg(unix)]
#[test]
fn only_regular_files_are_read() {
    type Put = fn(&Path);
    let put: [(&str, Put); 5] = [
        ("no regular file", |path| {
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success())
        }),
        ("no regular file", |path| std::os::unix::fs::symlink("/dev/zero", path).unwrap()),
        ("no regular file", |path| std::fs::create_dir(path).unwrap()),
        ("No such file", |path| std::os::unix::fs::symlink("nothing", path).unwrap()),
        ("symbolic links", |path| std::os::unix::fs::symlink(path, path).unwrap()),
    ];
    let native = tempfile::tempdir().unwrap();
    let (save, universal) = train(native.path());
    for (how, put) in put {
        for (stage, name) in
            [(1, MODEL), (1, SHARD), (3, "zero_pp_rank_1_mp_rank_00_model_states.pt")]
        {
            let dir = saved(&Example::new(stage, 2, groups()));
            let path = dir.path().join("step5").join(name);
            std::fs::remove_file(&path).unwrap();
            put(&path);
            let error = refused(&options(dir.path()));
            assert!(error.contains(name) && error.contains(how), "{error}");
            assert_eq!(names(dir.path()).len(), 1, "nothing is left");
        }
        for name in ["manifest.json", "manifest.json.sha256", "rank-001.safetensors"] {
            let [whole, to] = ["whole", "to"].map(|name| native.path().join(name));
            std::fs::rename(save.join(name), &whole).unwrap();
            put(&save.join(name));
            let from = save.clone();
            let BadInput { what, .. } = within_a_minute(move || merge(&from, &to).unwrap_err());
            assert!(what.contains(name) && what.contains(how), "{what}");
            remove(&save.join(name));
            std::fs::rename(&whole, save.join(name)).unwrap();
        }
        for name in ["universal.json", "zero/wte.weight/exp_avg.safetensors"] {
            let whole = native.path().join("whole");
            std::fs::rename(universal.join(name), &whole).unwrap();
            put(&universal.join(name));
            let from = universal.clone();
            let read = move || {
                Universal::open(&from)
                    .and_then(|universal| universal.read("wte.weight"))
                    .unwrap_err()
            };
            let BadInput { what, .. } = within_a_minute(read);
            assert!(what.contains(name) && what.contains(how), "{what}");
            remove(&universal.join(name));
            std::fs::rename(&whole, universal.join(name)).unwrap();
        }
    }
}

fn remove(path: &Path) {
    std::fs::remove_file(path).or_else(|_| std::fs::remove_dir(path)).unwrap();
}

/// Files that programs read by a flag's name: a pipe, a device that never ends, and a size that no
/// file of this kind has.
#[cfg(target_os = "linux")]
#[test]
fn no_program_waits_for_what_is_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let here = |name: &str| dir.path().join(name).display().to_string();
    let [lab03, lab08, lab10, lab11, launch] = [
        program("lab03"),
        program("lab08"),
        program("lab10"),
        program("lab11"),
        program("launch"),
    ];
    // The folder of a model with one file that is none.
    let model = |odd: &str| {
        let folder = dir.path().join(format!("with-odd-{odd}"));
        std::fs::create_dir_all(&folder).unwrap();
        llama::write_folder(&folder, &llama::SHAPE).unwrap();
        let path = folder.join(odd);
        std::fs::remove_file(&path).ok();
        (folder.display().to_string(), path)
    };
    let own = |flags: &str, name: &str| (flags.replace("FILE", &here(name)), dir.path().join(name));
    let of_a_model = |odd: &str, flags: &str| {
        let (folder, path) = model(odd);
        (format!("--model {folder} {flags}"), path)
    };
    std::fs::create_dir(dir.path().join("weights")).unwrap();
    let from = format!("--init-from {}", here("weights"));
    let weights = dir.path().join("weights/model.safetensors");
    let generate = "--prompt every --tokens 4 --ranks 1";
    let reads: Vec<(&str, (String, PathBuf))> = vec![
        (lab03, own("--data FILE --steps 1", "text")),
        (lab03, (from, weights)),
        (lab08, own("--find-spikes FILE", "metrics")),
        (lab10, own("--model FILE --ranks 1", "model.gguf")),
        (lab10, of_a_model("config.json", "--ranks 1")),
        (lab10, of_a_model("model.safetensors", "--ranks 1")),
        (lab10, of_a_model("tokenizer.json", generate)),
        (lab11, own("--cluster FILE", "cluster.toml")),
        (launch, own("--hostfile FILE -- true", "hosts")),
    ];
    for (kind, put) in [("a pipe", pipe as fn(&Path)), ("a device", device), ("a folder", folder)] {
        for (program, (flags, path)) in &reads {
            put(path);
            let output =
                soon(Command::new(program).args(flags.split_whitespace()).current_dir(dir.path()));
            let error = String::from_utf8_lossy(&output.stderr);
            let name = path.file_name().unwrap().to_str().unwrap();
            let what = "no regular file";
            let told = error.contains(name) && error.contains(what) && error.contains("\nhelp: ");
            // A folder is a model's, too.
            let other = kind == "a folder" && name == "model.gguf";
            assert!(
                output.status.code() == Some(2) && (told || other),
                "{flags}: {:?} {error}",
                output.status
            );
            remove(path);
        }
    }
    // A terabyte that takes no disk.
    for (program, (flags, path)) in &reads {
        std::fs::File::create(path).unwrap().set_len(1 << 40).unwrap();
        let output =
            soon(Command::new(program).args(flags.split_whitespace()).current_dir(dir.path()));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && error.contains("\nhelp: "),
            "{flags}: {:?} {error}",
            output.status
        );
        remove(path);
    }
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn device(path: &Path) {
    std::os::unix::fs::symlink("/dev/zero", path).unwrap();
}

fn folder(path: &Path) {
    std::fs::create_dir(path).unwrap();
}

/// A checkpoint of two ranks, and its universal one.
fn train(dir: &Path) -> (PathBuf, PathBuf) {
    let save = dir.join("save");
    let to = dir.join("made");
    launch::run(2, |comm| suite::train_and_convert(&comm, Stage::One, &save, &to)).unwrap();
    (save.join("save-0001-step-2"), to)
}

#[cfg(unix)]
#[test]
fn names_that_are_no_text_are_no_files_of_a_checkpoint() {
    use std::os::unix::ffi::OsStrExt;
    let dir = saved(&Example::new(1, 2, groups()));
    let options = options(dir.path());
    let odd = std::ffi::OsStr::from_bytes(b"zero_pp_rank_7_mp_rank_00_optim_states.pt\xff");
    std::fs::write(options.input.join(odd), "").unwrap();
    convert(&options, &()).unwrap();
    // The folders may have such names.
    let odd = Options {
        input: dir.path().join(odd),
        output: dir.path().join("to").join(odd),
        ..options.clone()
    };
    std::fs::rename(&options.input, &odd.input).unwrap();
    convert(&odd, &()).unwrap();
    assert!(odd.output.join("zero/norm/fp32.pt").exists());
}

/// The output folder is replaced. So it must not contain the input, nor anything that a conversion
/// did not write.
#[cfg(unix)]
#[test]
fn the_input_is_never_replaced() {
    let dir = saved(&Example::new(1, 2, groups()));
    let options = options(dir.path());
    let to = |output: PathBuf, how: &str| {
        let before = names(&options.input);
        let error = refused(&Options { output, ..options.clone() });
        assert!(error.contains(how), "{error}");
        assert_eq!(names(&options.input), before);
    };
    to(options.input.join("universal"), "contains the other");
    to(options.input.join("deep/er/universal"), "contains the other");
    to(options.input.join("../step5/./universal"), "contains the other");
    std::os::unix::fs::symlink(&options.input, dir.path().join("link")).unwrap();
    to(dir.path().join("link/universal"), "contains the other");
    to(dir.path().join("link"), "it is the input folder");
    std::fs::create_dir(dir.path().join("zero")).unwrap();
    to(dir.path().to_path_buf(), "contains the other");
    std::fs::remove_dir(dir.path().join("zero")).unwrap();
    // A link, and a file that such a link would overwrite.
    let precious = dir.path().join("precious");
    std::fs::write(&precious, "as it was").unwrap();
    std::os::unix::fs::symlink(&precious, dir.path().join(".latest_universal.partial")).unwrap();
    to(precious.clone(), "it exists, and is no folder");
    std::os::unix::fs::symlink("nothing", dir.path().join("dangling")).unwrap();
    to(dir.path().join("dangling"), "it exists, and is no folder");
    convert(&options, &()).unwrap();
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "as it was");
}

/// An existing folder is replaced only if a conversion wrote all that is in it. Anything else is
/// named, and stays.
#[test]
fn only_what_a_conversion_wrote_is_replaced() {
    let dir = saved(&Example::new(1, 2, groups()));
    let options = options(dir.path());
    let output = &options.output;
    let stays = |file: &str, how: &str| {
        let before = files(dir.path());
        let error = refused(&options);
        assert!(error.contains(file) && error.contains(how), "{error}");
        assert_eq!(files(dir.path()), before);
    };
    // Folders that only look like a conversion's.
    std::fs::create_dir_all(output.join("zero")).unwrap();
    stays("zero", &format!("and no {MANIFEST}"));
    for name in ["zero/precious", "zero/wte/fp32.pt", "mp_rank_00_model_states.pt"] {
        std::fs::create_dir_all(output.join(name).parent().unwrap()).unwrap();
        std::fs::write(output.join(name), "x").unwrap();
        stays("", &format!("and no {MANIFEST}"));
    }
    std::fs::remove_dir_all(output).unwrap();
    // An empty folder has nothing to lose, and what is ours is replaced, in both forms.
    std::fs::create_dir(output).unwrap();
    for format in [Format::Torch, Format::Safetensors, Format::Torch] {
        for keep_temp in [true, false] {
            convert(&Options { format, keep_temp, ..options.clone() }, &()).unwrap();
        }
    }
    // What was added to it, or changed in it, is not ours.
    let not_ours = "was not written by a conversion";
    for name in ["precious", "zero/precious", "zero/wte/fp32.pt.bak", "tmp/wte/fp32.00"] {
        std::fs::create_dir_all(output.join(name).parent().unwrap()).unwrap();
        std::fs::write(output.join(name), "x").unwrap();
        stays(name.trim_end_matches("/wte/fp32.00"), not_ours);
        std::fs::remove_file(output.join(name)).unwrap();
    }
    stays("tmp", not_ours);
    std::fs::remove_dir_all(output.join("tmp")).unwrap();
    let fp32 = output.join("zero/wte/fp32.pt");
    let ours = std::fs::read(&fp32).unwrap();
    std::fs::write(&fp32, "edited by hand").unwrap();
    stays("zero/wte/fp32.pt", "has changed since it was converted");
    std::fs::write(&fp32, ours).unwrap();
    std::fs::write(output.join(MANIFEST), "{}").unwrap();
    stays(MANIFEST, "is no list of files");
    std::fs::remove_dir_all(output).unwrap();
    convert(&options, &()).unwrap();
}

/// The tool, started by a line of the shell.
fn tool(dir: &Path, shell: &str) -> Output {
    let flags = [
        "--input_folder",
        "step5",
        "--output_folder",
        "universal",
        "--num_extract_workers",
        "1",
        "--num_merge_workers",
        "1",
    ];
    let program = program("ds_to_universal");
    Command::new("sh")
        .arg("-c")
        .arg(shell)
        .arg(program)
        .args(flags)
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

#[cfg(unix)]
#[test]
fn a_disk_that_is_full_gets_nothing_half_made() {
    let dir = saved(&Example::new(1, 2, vec![group(&[("large", &[100, 100])])]));
    let output = tool(dir.path(), "trap '' XFSZ; ulimit -f 20; exec \"$0\" \"$@\"");
    says(
        &output,
        &[
            "error: cannot write .universal.partial/zero/large/fp32.pt: ",
            "help: files of this size are",
        ],
    );
    assert_eq!(names(dir.path()).len(), 1);
}

/// Too many open files are not a full disk. What could not be removed without opening more is
/// named.
#[cfg(target_os = "linux")]
#[test]
fn too_many_open_files_are_called_so() {
    let dir = saved(&Example::new(1, 2, groups()));
    let mut left = 0;
    // With fewer the program itself cannot be loaded.
    for limit in 5..16 {
        let output = tool(dir.path(), &format!("ulimit -n {limit}; exec \"$0\" \"$@\""));
        let error = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            break;
        }
        assert!(
            error.contains("Too many open files") && error.contains("`ulimit -n`"),
            "{limit}: {error}"
        );
        assert!(!error.contains("make room"), "{limit}: {error}");
        let partial = names(dir.path()).contains(".universal.partial");
        assert_eq!(
            partial,
            error.contains(".universal.partial is left half-made"),
            "{limit}: {error}"
        );
        left += usize::from(partial);
    }
    assert!(left > 0, "no limit left a folder, so nothing was seen here");
    assert!(tool(dir.path(), "exec \"$0\" \"$@\"").status.success());
    assert_eq!(
        names(dir.path()),
        ["latest_universal", "step5", "universal"].map(String::from).into()
    );
}

/// Root may read everything, unless it gives the right away.
#[cfg(target_os = "linux")]
#[test]
fn a_file_without_permission_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let dir = saved(&Example::new(1, 2, groups()));
    let set = |path: &str, mode| {
        std::fs::set_permissions(dir.path().join(path), PermissionsExt::from_mode(mode)).unwrap()
    };
    let shell = "if [ $(id -u) = 0 ]; then exec setpriv --bounding-set -dac_override,-dac_read_search \"$0\" \"$@\"; else exec \"$0\" \"$@\"; fi";
    set(&format!("step5/{SHARD}"), 0);
    says(&tool(dir.path(), shell), &[SHARD, "Permission denied"]);
    set(&format!("step5/{SHARD}"), 0o600);
    set("", 0o500);
    says(
        &tool(dir.path(), shell),
        &["cannot write .universal.partial", "Permission denied"],
    );
    set("", 0o700);
    set("step5", 0);
    says(&tool(dir.path(), shell), &["cannot read the folder step5", "Permission denied"]);
    set("step5", 0o700);
}

/// A parameter that is larger than the memory that is left: an error before the work, not an abort
/// in it.
#[cfg(target_os = "linux")]
#[test]
fn a_parameter_larger_than_memory_is_refused() {
    let dir = saved(&Example::new(1, 1, vec![group(&[("large", &[4000, 4000])])]));
    let output = tool(dir.path(), "ulimit -v 70000; exec \"$0\" \"$@\"");
    says(
        &output,
        &[
            "1 workers need 64.0 MB of memory",
            "`ulimit -v` limits this process",
            "large, takes 64.0 MB",
            MODEL,
        ],
    );
}

/// Replaces the values of a file, and leaves its storages.
fn rewrite(path: &Path, change: impl FnOnce(&mut Graph) -> Id) {
    let mut graph = TorchFile::open(path).unwrap().graph;
    graph.root = change(&mut graph);
    save_graph(path, &graph, &[]).unwrap();
}

/// A file of some hundred bytes, whose values take more than any memory if each use of a value is a
/// copy.
#[test]
fn values_that_repeat_without_end_are_refused() {
    // Fifteen levels of ten.
    let laugh = |graph: &mut Graph, value: Id| {
        (0..15).fold(value, |inner, _| graph.push(Value::List(vec![inner; 10])))
    };
    for key in ["param_shapes", "universal_checkpoint_info", "buffer_names", "module"] {
        let dir = saved(&Example::new(1, 2, groups()));
        rewrite(&dir.path().join("step5").join(MODEL), |graph| {
            let text = graph.text("n");
            let name = graph.text(key);
            let value = laugh(graph, text);
            let mut pairs: Vec<(Id, Id)> =
                graph.root().entries().map(|(key, value)| (key.id, value.id)).collect();
            pairs.push((name, value));
            graph.push(Value::Dict(pairs))
        });
        let error = refused(&options(dir.path()));
        assert!(
            error.contains(MODEL) && error.contains(&format!("its {key} uses the same values")),
            "{error}"
        );
    }
    let dir = saved(&Example::new(1, 2, groups()));
    rewrite(&dir.path().join("step5").join(SHARD), |graph| {
        let number = graph.push(Value::Int(1));
        let key = graph.text("optimizer_state_dict");
        let value = laugh(graph, number);
        graph.push(Value::Dict(vec![(key, value)]))
    });
    let error = refused(&options(dir.path()));
    assert!(
        error.contains(SHARD) && error.contains("its optimizer_state_dict uses the same values"),
        "{error}"
    );
}

/// Shapes whose product is small because one size is 0, but not the product of the others.
#[test]
fn absurd_shapes_and_sizes_are_refused() {
    let shaped = |shape: &[i64], file: &str| {
        let dir = saved(&Example::new(1, 2, groups()));
        let path = dir.path().join("step5").join(file);
        rewrite(&path, |graph| {
            let sizes = shape.iter().map(|size| graph.push(Value::Int(*size))).collect();
            let sizes = graph.push(Value::Tuple(sizes));
            let name = graph.text("a.weight");
            let shapes = graph.push(Value::Dict(vec![(name, sizes)]));
            let key = graph.text("param_shapes");
            let shapes = graph.push(Value::List(vec![shapes]));
            graph.push(Value::Dict(vec![(key, shapes)]))
        });
        let error = refused(&options(dir.path()));
        assert!(error.contains(file), "{error}");
        error
    };
    for shape in [
        &[0, 1 << 40, 1 << 40][..],
        &[1 << 40, 1 << 40, 0],
        &[1 << 51],
        &[i64::MAX, 2],
        &[1; 33],
    ] {
        let error = shaped(shape, MODEL);
        assert!(error.contains("a.weight has the absurd shape"), "{error}");
    }
    assert!(shaped(&[-1], MODEL).contains("not names with shapes"));
    let twice = Example::new(1, 2, vec![group(&[("a", &[3]), ("a", &[3])])]);
    assert!(refused(&options(saved(&twice).path())).contains("list a twice"));
}

/// Patterns that take very long on some names, or very much memory.
#[test]
fn hostile_patterns_are_refused() {
    fn info(graph: &mut Graph, patterns: &[&str], times: usize) -> Id {
        let patterns: Vec<Id> = patterns.iter().map(|pattern| graph.text(pattern)).collect();
        let patterns = patterns.repeat(times);
        let key = graph.text("tp_replicated_parameter_patterns");
        let list = graph.push(Value::List(patterns));
        graph.push(Value::Dict(vec![(key, list)]))
    }
    let refused_info = |info: fn(&mut Graph) -> Id, how: &str| {
        let name = format!("{}!", "a".repeat(100));
        let example = Example {
            info: Some(info),
            ..Example::new(1, 1, vec![group(&[(&name, &[3])])])
        };
        let error = refused(&options(saved(&example).path()));
        assert!(error.contains(MODEL) && error.contains(how), "{error}");
    };
    refused_info(|graph| info(graph, &["(a|a)*(?=b)(a|a)*$"], 1), "takes too long");
    refused_info(|graph| info(graph, &["(?:(?:(?:a{90}){90}){90})"], 1), "broken, or too large");
    refused_info(|graph| info(graph, &["\\w{9}"], 1000), "broken, or too large");
    refused_info(|graph| info(graph, &["a", ".*!"], 1), "two patterns match it");
    refused_info(|graph| info(graph, &["a"], 20_000), "20000 patterns in one list");
    refused_info(|graph| info(graph, &[&"a".repeat(2000)], 1), "2000 bytes");
}

/// Two trainings with equal shapes and steps: the model's weights tell them apart.
#[test]
fn ranks_of_two_trainings_are_distinguished() {
    let other = |mp: usize, name: &str, state: usize, element: usize| {
        -values(mp, name, state, element) - 1.0
    };
    for bf16 in [false, true] {
        let example = Example { bf16, ..Example::new(1, 2, groups()) };
        let dir = saved(&example);
        let theirs = tempfile::tempdir().unwrap();
        example.save(theirs.path(), &other).unwrap();
        std::fs::copy(theirs.path().join(SHARD), dir.path().join("step5").join(SHARD)).unwrap();
        let error = refused(&options(dir.path()));
        assert!(
            error.contains(SHARD)
                && error.contains("the model's weight in mp_rank_00_model_states.pt is"),
            "{error}"
        );
    }
    // In stage 3 there are no weights. But each rank has its own list of shapes, and a step.
    let name = "zero_pp_rank_1_mp_rank_00_model_states.pt";
    let mut longer = groups();
    longer[0][0].1 = vec![6, 2];
    for theirs in [
        Example { step: 6.0, ..Example::new(3, 2, groups()) },
        Example::new(3, 2, longer),
    ] {
        let dir = saved(&Example::new(3, 2, groups()));
        let theirs = saved(&theirs);
        std::fs::copy(theirs.path().join("step5").join(name), dir.path().join("step5").join(name))
            .unwrap();
        let error = refused(&options(dir.path()));
        assert!(
            error.contains(name)
                && error.contains("different parameters, or is of a different step"),
            "{error}"
        );
    }
}

const SHARDS: [&str; 2] = ["zero_pp_rank_0_mp_rank_00_optim_states.pt", SHARD];

/// Makes an archive forget the name that it was written under, as writers do that are given no
/// name.
fn unname(path: &Path) {
    let stem = path.file_stem().unwrap().to_str().unwrap().as_bytes();
    let mut bytes = std::fs::read(path).unwrap();
    let other = [b'a'; 60];
    for at in 0..bytes.len() - stem.len() {
        if bytes[at..].starts_with(stem) {
            bytes[at..at + stem.len()].copy_from_slice(&other[..stem.len()]);
        }
    }
    std::fs::write(path, bytes).unwrap();
}

/// A checkpoint, with or without names inside, its two ranks' files exchanged or not.
fn exchanged(example: &Example, named: bool, exchange: bool) -> tempfile::TempDir {
    let dir = saved(example);
    let [first, second] = SHARDS.map(|name| dir.path().join("step5").join(name));
    if !named {
        unname(&first);
        unname(&second);
    }
    if exchange {
        let aside = dir.path().join("aside");
        for (from, to) in [(&first, &aside), (&second, &first), (&aside, &second)] {
            std::fs::rename(from, to).unwrap();
        }
    }
    dir
}

/// The tool's exit code with `--verify`, and all that it said.
fn verified(dir: &Path, more: &str) -> (Option<i32>, String) {
    let output = tool(dir, &format!("exec \"$0\" \"$@\" --verify {more}"));
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    (output.status.code(), said)
}

/// Parameters that two ranks divide without padding, so that padding shows nothing.
fn even() -> Vec<Group> {
    vec![group(&[("wte", &[5, 2]), ("a.weight", &[3, 4])]), group(&[("norm", &[4])])]
}

/// Every stage: a file that was copied over another rank's is no rank's own, whatever it says of
/// itself.
#[test]
fn equal_files_of_two_ranks_are_refused() {
    for (stage, named) in [(1, true), (1, false), (2, false), (3, true), (3, false)] {
        let dir = exchanged(&Example::new(stage, 2, even()), named, false);
        let [first, second] = SHARDS.map(|name| dir.path().join("step5").join(name));
        std::fs::copy(first, second).unwrap();
        for more in ["", "--no_strict"] {
            let (code, said) = verified(dir.path(), more);
            assert_eq!(code, Some(1), "{said}");
            assert!(
                SHARDS.iter().all(|name| said.contains(name))
                    && said.contains("have the same numbers"),
                "{said}"
            );
            assert!(said.contains("\nhelp: ") && !said.contains('✓'), "{said}");
            assert_eq!(names(dir.path()).len(), 1);
        }
    }
    // Files that may be equal: nothing is trained yet, and every parameter is as it was made.
    let untrained =
        |_: usize, name: &str, state: usize, _: usize| f32::from(state == 0 && name == "norm");
    for moments in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let example = Example { moments, ..Example::new(3, 2, even()) };
        example.save(&dir.path().join("step5"), &untrained).unwrap();
        convert(&options(dir.path()), &()).unwrap();
    }
}

/// Files of two ranks that were exchanged: the name inside shows it, or the padding. Otherwise
/// nothing does, and no check is ticked. Where the files have whole weights, those show it.
#[test]
fn exchanged_files_are_refused_or_not_called_verified() {
    let refused_as = |example: &Example, named, how: &str| {
        let dir = exchanged(example, named, true);
        let (code, said) = verified(dir.path(), "");
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains(how) && said.contains(SHARDS[0]) && said.contains("help: "),
            "{said}"
        );
        assert_eq!(names(dir.path()).len(), 1);
        // Someone who knows better gets the doubt as a note.
        let (code, said) = verified(dir.path(), "--no_strict");
        assert!(
            code == Some(0) && said.contains("not verifiable") && !said.contains('✓'),
            "{said}"
        );
        assert!(!said.contains("none was"), "{said}");
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&said).contains(how), "{said}");
    };
    refused_as(&Example::new(3, 2, even()), true, "was written for rank 1");
    refused_as(&Example::new(3, 2, groups()), false, "has moments where it should have padding");
    for (exchange, named, reason) in [
        (false, true, "each file names its own rank inside"),
        (false, false, "2 of 2 files do not name their rank"),
        (true, false, "2 of 2 files do not name their rank"),
    ] {
        let dir = exchanged(&Example::new(3, 2, even()), named, exchange);
        let (code, said) = verified(dir.path(), "");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains("not verifiable: ") && said.contains(reason) && !said.contains('✓'),
            "{said}"
        );
    }
    // The norm is small enough to be whole on every rank.
    let whole = Example { persistent: 4, ..Example::new(3, 2, even()) };
    let (code, said) = verified(exchanged(&whole, false, true).path(), "");
    assert!(
        code == Some(2) && said.contains("norm") && said.contains("the model's weight"),
        "{said}"
    );
    let (code, said) = verified(exchanged(&whole, false, false).path(), "");
    assert!(code == Some(0) && said.contains("1 of 3 ✓") && said.contains("9 ✓"), "{said}");
    assert!(!said.contains("not verifiable"), "{said}");
    // A norm that is all ones is compared, and would fit any rank.
    let ones = |mp: usize, name: &str, state: usize, at: usize| match (name, state) {
        ("norm", 0) => 1.0,
        _ => values(mp, name, state, at),
    };
    let dir = tempfile::tempdir().unwrap();
    whole.save(&dir.path().join("step5"), &ones).unwrap();
    let (code, said) = verified(dir.path(), "");
    assert!(code == Some(0) && said.contains("not verifiable"), "{said}");
}

/// What all ranks of a run share, such as the version of DeepSpeed and the learning rate.
#[test]
fn files_of_runs_with_other_settings_are_refused() {
    let dir = saved(&Example::new(3, 2, even()));
    let theirs = tempfile::tempdir().unwrap();
    let other = |mp: usize, name: &str, state: usize, at: usize| values(mp, name, state, at) + 1.0;
    Example { version: "0.9.0", ..Example::new(3, 2, even()) }
        .save(theirs.path(), &other)
        .unwrap();
    std::fs::copy(theirs.path().join(SHARD), dir.path().join("step5").join(SHARD)).unwrap();
    let error = refused(&options(dir.path()));
    assert!(
        error.contains("is from DeepSpeed 0.9.0, ") && error.contains("not of the same save"),
        "{error}"
    );
}

/// Values that are infinite or NaN are counted and named. Padding is not: DeepSpeed leaves in it
/// what was in memory.
#[test]
fn values_that_are_not_finite_are_counted() {
    let bad = |mp: usize, name: &str, state: usize, at: usize| match (name, state, at) {
        ("wte", 0, 9) => f32::NAN,
        ("wte", 1, 7 | 8) => f32::NEG_INFINITY,
        ("norm", 2, 0) => f32::INFINITY,
        _ => values(mp, name, state, at),
    };
    for (stage, bf16) in [(1, true), (3, false)] {
        let dir = tempfile::tempdir().unwrap();
        Example { bf16, padding: f32::NAN, ..Example::new(stage, 2, groups()) }
            .save(&dir.path().join("step5"), &bad)
            .unwrap();
        let places = [
            "4 values are infinite or NaN, in ",
            &format!("1 in exp_avg_sq of norm ({})", SHARDS[0]),
            "1 in fp32 of wte (",
            "2 in exp_avg of wte (",
        ];
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (code, said) = verified(dir.path(), "");
        assert_eq!(code, Some(1), "{said}");
        let text = words(&said);
        assert!(
            places.iter().all(|place| text.contains(place)) && text.contains("4 are not ✗"),
            "{said}"
        );
        let output = tool(dir.path(), "exec \"$0\" \"$@\"");
        let said = words(&String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success() && said.contains("warning"), "{said}");
        assert!(places.iter().all(|place| said.contains(place)), "{said}");
    }
    // Nothing but padding.
    let dir = saved(&Example { padding: f32::NAN, ..Example::new(3, 2, groups()) });
    let (code, said) = verified(dir.path(), "");
    assert!(code == Some(0) && !said.contains("NaN"), "{said}");
}

/// One line per run: what was tried, and what it took.
#[derive(Default)]
struct Tally {
    refused: usize,
    accepted: usize,
    slowest: Duration,
}

impl Tally {
    fn count<T>(&mut self, result: &Result<T, BadInput>, begin: Instant) {
        *(if result.is_ok() {
            &mut self.accepted
        } else {
            &mut self.refused
        }) += 1;
        self.slowest = self.slowest.max(begin.elapsed());
    }
}

fn files(dir: &Path) -> Files {
    let mut files = Files::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        match entry.path().is_dir() {
            true => files.extend(
                self::files(&entry.path())
                    .into_iter()
                    .map(|(file, bytes)| (format!("{name}/{file}"), bytes)),
            ),
            false => drop(files.insert(name, std::fs::read(entry.path()).unwrap())),
        }
    }
    files
}

fn put(files: &Files, dir: &Path) {
    for (name, bytes) in files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // A name that the damage made may be no name.
        drop(std::fs::write(path, bytes));
    }
}

/// Checkpoints of all kinds.
fn checkpoints() -> Vec<Files> {
    fn info(graph: &mut Graph) -> Id {
        let mut entries = Vec::new();
        for (key, pattern) in [
            ("parameter_with_row_parallelism_patterns", "a\\."),
            ("tp_replicated_parameter_patterns", "norm"),
            ("parameter_to_average_patterns", "mean"),
            ("vocabulary_parameter_patterns", "wte"),
            ("parameter_with_2_sub_params_cat_dim_0", "swiglu"),
        ] {
            let pattern = graph.text(pattern);
            let list = graph.push(Value::List(vec![pattern]));
            entries.push((graph.text(key), list));
        }
        let numbers = [9, 2, -1, 0].map(|number| graph.push(Value::Int(number)));
        entries.push((graph.text("original_vocab_size"), numbers[0]));
        // A parameter that consists of several.
        let pattern = graph.text("qkv");
        let patterns = graph.push(Value::List(vec![pattern]));
        let shape = graph.push(Value::Tuple(numbers[1..3].to_vec()));
        let pairs = [("patterns", patterns), ("shape", shape), ("partition_dim", numbers[3])];
        let pairs = pairs.map(|(key, value)| (graph.text(key), value)).to_vec();
        let inner = graph.push(Value::Dict(pairs));
        let list = graph.push(Value::List(vec![inner]));
        entries.push((graph.text("parameter_with_sub_params"), list));
        graph.push(Value::Dict(entries))
    }
    let of_rank = [
        group(&[("wte", &[5, 2]), ("a.weight", &[3, 2]), ("mean", &[2])]),
        group(&[("norm", &[3]), ("swiglu", &[2, 2]), ("qkv", &[4, 2])]),
    ];
    let parallel = Example {
        degrees: (1, 2),
        groups: vec![of_rank.to_vec(), of_rank.to_vec()],
        info: Some(info),
        ..Example::new(1, 2, vec![])
    };
    let all = [
        Example::new(1, 2, groups()),
        Example {
            bf16: true,
            last_rank_only: true,
            ..Example::new(2, 3, groups())
        },
        Example { round_robin: true, ..Example::new(2, 2, groups()) },
        Example::new(3, 2, groups()),
        parallel,
    ];
    all.iter().map(|example| files(&saved(example).path().join("step5"))).collect()
}

/// Converts a damaged checkpoint. Whatever is wrong with it, this must return.
fn try_deepspeed(all: &[Files], dir: &Path, random: &mut Random, tally: &mut Tally) {
    let mut files = random.pick(all);
    let other = random.pick(all);
    for _ in 0..1 + random.below(3) {
        let name = random.pick(&files.keys().cloned().collect::<Vec<_>>());
        match random.one_in(8) && files.len() > 1 {
            true => mutate::folder(&mut files, &other, random),
            false => files
                .get_mut(&name)
                .into_iter()
                .for_each(|file| mutate::torch_file(file, random)),
        }
    }
    put(&files, &dir.join("in/step5"));
    let options = Options {
        input: dir.join("in/step5"),
        output: dir.join("in/universal"),
        strict: !random.one_in(3),
        inject: random.one_in(3),
        keep_temp: random.one_in(8),
        dry_run: !random.one_in(4),
        verify: random.one_in(2),
        format: random.pick(&[Format::Torch, Format::Safetensors]),
        ..options(dir)
    };
    let begin = Instant::now();
    let result: Result<Report, BadInput> = convert(&options, &()).map_err(Refusal::error);
    tally.count(&result, begin);
    let left = names(&dir.join("in"));
    match result {
        Ok(_) if !options.dry_run => {
            assert_eq!(left, ["latest_universal", "step5", "universal"].map(String::from).into())
        }
        Ok(_) => assert_eq!(left, ["step5".to_string()].into()),
        Err(BadInput { what, help }) => {
            assert_eq!(left, ["step5".to_string()].into(), "{what}");
            assert!(what.contains("step5") && !help.is_empty(), "an error names a file: {what}");
            assert!(!what.contains(|c: char| c.is_control() && c != '\n'), "{what:?}");
        }
    }
}

/// Writes the sizes and hashes of the files as they are into the manifest.
fn sign(files: &mut Files) {
    let manifest: Result<serde_json::Value, _> = serde_json::from_slice(&files["manifest.json"]);
    if let Ok(mut manifest) = manifest {
        for entry in manifest
            .get_mut("files")
            .and_then(|files| files.as_array_mut())
            .into_iter()
            .flatten()
        {
            let Some(bytes) = entry.get("name").and_then(|name| files.get(name.as_str()?)) else {
                continue;
            };
            if let Some(entry) = entry.as_object_mut() {
                entry.insert("bytes".to_string(), bytes.len().into());
                entry.insert("sha256".to_string(), shardlab::sha256::hex(bytes).into());
            }
        }
        files.insert("manifest.json".to_string(), serde_json::to_vec(&manifest).unwrap());
    }
    let sum = shardlab::sha256::hex(&files["manifest.json"]);
    files.insert("manifest.json.sha256".to_string(), format!("{sum}  manifest.json\n").into());
}

#[test]
fn a_name_in_a_rank_file_does_not_lead_outside() {
    let dir = tempfile::tempdir().unwrap();
    let (save, _) = train(dir.path());
    let mut saved = files(&save);
    let (name, shard) = saved.iter_mut().find(|(name, _)| name.ends_with(".safetensors")).unwrap();
    let name = name.clone();
    let header = 8..8 + u64::from_le_bytes(shard[..8].try_into().unwrap()) as usize;
    let text = String::from_utf8_lossy(&shard[header.clone()]).replace("wte.weight", "wte/weight");
    shard[header].copy_from_slice(text.as_bytes());
    sign(&mut saved);
    put(&saved, &dir.path().join("outside"));
    let BadInput { what, .. } =
        merge(&dir.path().join("outside"), &dir.path().join("universal")).unwrap_err();
    assert!(
        what.contains(&name) && what.contains("\"wte/weight\" cannot be a parameter's name"),
        "{what}"
    );
}

/// Merges, pictures and reads damaged checkpoints of this crate's own form. Checksums are right
/// again after most damage.
fn try_native(all: &[Files], dir: &Path, random: &mut Random, tally: &mut Tally) {
    let mut files = random.pick(all);
    let own = files.contains_key("manifest.json");
    for _ in 0..1 + random.below(2) {
        let name = random.pick(&files.keys().cloned().collect::<Vec<_>>());
        let file = files.get_mut(&name).unwrap();
        match serde_json::from_slice(file) {
            Ok(mut value) if !random.one_in(6) => {
                mutate::json(&mut value, random);
                *file = serde_json::to_vec(&value).unwrap();
            }
            _ if name.ends_with(".safetensors") && !random.one_in(4) => safetensors(file, random),
            _ => mutate::bytes(file, random),
        }
    }
    if own && !random.one_in(6) {
        sign(&mut files);
    }
    put(&files, &dir.join("in/step5"));
    let from = dir.join("in/step5");
    let to = dir.join("in/universal");
    let begin = Instant::now();
    let result = match own {
        true => slices(&from).and_then(|_| merge(&from, &to)).map(drop),
        false => Universal::open(&from).and_then(|universal| {
            universal
                .parameters()
                .keys()
                .try_for_each(|name| universal.read(name).map(drop))
        }),
    };
    tally.count(&result, begin);
    let left = names(&dir.join("in"));
    match result {
        Ok(()) => {
            assert!(left.is_subset(&["step5", "universal"].map(String::from).into()), "{left:?}")
        }
        Err(BadInput { what, .. }) => {
            assert_eq!(left, ["step5".to_string()].into(), "{what}");
            assert!(
                what.contains("step5") || what.contains("hold different"),
                "an error names a file: {what}"
            );
        }
    }
}

/// Changes the list of tensors of a file, or of what it says about fragments.
fn safetensors(file: &mut Vec<u8>, random: &mut Random) {
    let Some(size) =
        file.get(..8).map(|size| u64::from_le_bytes(size.try_into().unwrap()) as usize)
    else {
        return;
    };
    let Some(mut list) = file
        .get(8..size.saturating_add(8))
        .and_then(|list| serde_json::from_slice(list).ok())
    else {
        return;
    };
    let list: &mut serde_json::Value = &mut list;
    let inner = list
        .get("__metadata__")
        .and_then(|entries| entries.get("shard"))
        .and_then(|text| serde_json::from_str(text.as_str()?).ok());
    match inner {
        Some(mut inner) if !random.one_in(3) => {
            mutate::json(&mut inner, random);
            list["__metadata__"]["shard"] = inner.to_string().into();
        }
        _ => mutate::json(list, random),
    }
    let list = list.to_string().into_bytes();
    *file = [&(list.len() as u64).to_le_bytes()[..], &list, &file[8 + size..]].concat();
}

const EXECUTIONS: &str = "SHARDLAB_FUZZ";

/// Thousands of damaged checkpoints, in a process whose memory is limited.
/// `SHARDLAB_FUZZ=1000000 cargo test --test all -- hostile::damaged --nocapture` tries more of
/// them, and `SHARDLAB_FUZZ=1@123` only number 123.
#[cfg(target_os = "linux")]
#[test]
fn damaged_checkpoints_are_errors_whatever_is_damaged() {
    let mut child = Command::new("sh");
    child
        .arg("-c")
        .arg("ulimit -v 1500000; exec \"$0\" \"$@\"")
        .arg(std::env::current_exe().unwrap());
    child.args(["--ignored", "--exact", "--nocapture", "hostile::executions"]);
    let output = child.output().unwrap();
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    said.lines()
        .filter(|line| line.contains("executions"))
        .for_each(|line| println!("{line}"));
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "for damaged_checkpoints_are_errors_whatever_is_damaged"]
fn executions() {
    let setting = std::env::var(EXECUTIONS).unwrap_or("1000".to_string());
    let (count, first) = setting.split_once('@').unwrap_or((&setting, "0"));
    let count: u64 = count.parse().unwrap();
    let first: u64 = first.parse().unwrap();
    let native = tempfile::tempdir().unwrap();
    let (save, universal) = train(native.path());
    let deepspeed = checkpoints();
    let native = [files(&save), files(&universal)];
    let folder = tempfile::Builder::new();
    let folder = if Path::new("/dev/shm").is_dir() {
        folder.tempdir_in("/dev/shm")
    } else {
        folder.tempdir()
    }
    .unwrap();
    let mut tallies = [Tally::default(), Tally::default()];
    let begin = Instant::now();
    std::panic::set_hook(Box::new(|_| ()));
    for number in first..first + count {
        let dir = folder.path().join("all");
        let mut random = Random(number.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let tally = &mut tallies[usize::from(number % 4 == 3)];
        let attempt = AssertUnwindSafe(|| match number % 4 {
            3 => try_native(&native, &dir, &mut random, tally),
            _ => try_deepspeed(&deepspeed, &dir, &mut random, tally),
        });
        if let Err(panic) = catch_unwind(attempt) {
            let how = panic
                .downcast_ref::<String>()
                .cloned()
                .or(panic.downcast_ref::<&str>().map(|text| text.to_string()));
            drop(std::panic::take_hook());
            panic!("execution {number} ({EXECUTIONS}=1@{number}): {}", how.unwrap_or_default());
        }
        assert_eq!(
            names(folder.path()),
            ["all".to_string()].into(),
            "execution {number} wrote elsewhere"
        );
        assert_eq!(names(&dir), ["in".to_string()].into(), "execution {number} wrote elsewhere");
        std::fs::remove_dir_all(dir).unwrap();
    }
    drop(std::panic::take_hook());
    for (tally, of) in tallies.iter().zip(["DeepSpeed's files", "files of this crate"]) {
        let Tally { refused, accepted, slowest } = tally;
        println!(
            "{} executions on {of}: {refused} refused, {accepted} accepted, slowest {slowest:?}",
            refused + accepted
        );
    }
    let peak = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = peak.lines().find_map(|line| {
        line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<usize>().ok()
    });
    println!(
        "{count} executions in {:?}, peak memory {} MB",
        begin.elapsed(),
        peak.unwrap() / 1000
    );
    assert!(peak < Some(400_000), "{peak:?} kB");
}
