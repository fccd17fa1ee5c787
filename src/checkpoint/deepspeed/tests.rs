//! Conversions of small checkpoints, right and wrong.

use super::example::{Example, Group};
use super::{Format, Options, Report, STATES, Watch, convert};
use crate::checkpoint::torch::{Graph, Id, TorchFile, Value};
use crate::checkpoint::universal::Universal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};

struct Silent;

impl Watch for Silent {
    fn begin(&self, _: &str, _: usize) {}
    fn advance(&self) {}
    fn end(&self) {}
}

fn group(parameters: &[(&str, &[usize])]) -> Group {
    parameters.iter().map(|(name, shape)| (name.to_string(), shape.to_vec())).collect()
}

/// Sizes that no number of ranks divides, in two groups. The last has fewer elements than some jobs have ranks.
fn groups() -> Vec<Group> {
    vec![
        group(&[("wte.weight", &[5, 7]), ("a.weight", &[3, 11]), ("b.weight", &[13, 1]), ("head.weight", &[17])]),
        group(&[("a.bias", &[3]), ("b.bias", &[7])]),
    ]
}

/// A number that no other element of a checkpoint has.
fn value(name: &str, state: usize, element: usize) -> f32 {
    let name = name.bytes().fold(7usize, |hash, byte| (hash * 31 + usize::from(byte)) % 9973);
    (name * 3 + state) as f32 * 0.37 + element as f32 * 0.013
}

fn values(_mp: usize, name: &str, state: usize, element: usize) -> f32 {
    value(name, state, element)
}

fn options(dir: &Path) -> Options {
    Options {
        input: dir.join("global_step5"),
        output: dir.join("global_step5_universal"),
        extract_workers: 3,
        merge_workers: 2,
        keep_temp: false,
        strict: true,
        inject: false,
        dry_run: false,
        verify: true,
        format: Format::Torch,
    }
}

fn run(options: &Options) -> Result<Report, String> {
    convert(options, &Silent).map_err(|error| error.what)
}

fn saved(example: &Example) -> TempDir {
    let dir = tempdir().unwrap();
    example.save(&dir.path().join("global_step5"), &values).unwrap();
    dir
}

/// The elements of a file of the result, and its shape.
fn state(output: &Path, name: &str, state: &str) -> (Vec<usize>, Vec<f32>) {
    let file = TorchFile::open(&output.join("zero").join(name).join(format!("{state}.pt"))).unwrap();
    let root = file.graph.root();
    let stored = file.tensor(root.get("param").unwrap_or(root)).unwrap().unwrap();
    let mut bytes = vec![0; stored.numel() * 4];
    stored.read(0..stored.numel(), &mut bytes).unwrap();
    (stored.shape.clone(), bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

fn ensure_right(output: &Path, groups: &[Group], flat: bool) {
    for (name, shape) in groups.iter().flatten() {
        let numel: usize = shape.iter().product();
        for (number, kind) in STATES.iter().enumerate() {
            let expected: Vec<f32> = (0..numel).map(|element| value(name, number, element)).collect();
            let shape = if flat { vec![numel] } else { shape.clone() };
            assert_eq!(state(output, name, kind), (shape, expected), "{kind} of {name}");
        }
    }
}

/// All files below a folder, with their contents.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        match entry.path().is_dir() {
            true => all.extend(contents(&entry.path())),
            false => drop(
                all.insert(entry.path().strip_prefix(folder).unwrap().into(), std::fs::read(entry.path()).unwrap()),
            ),
        }
    }
    all.into_iter().map(|(path, bytes)| (folder.file_name().map(PathBuf::from).unwrap().join(path), bytes)).collect()
}

/// More than ten ranks: as text, rank 10 would come before rank 2.
#[test]
fn every_stage_from_any_number_of_ranks() {
    for stage in 1..=3 {
        for ranks in [1, 2, 3, 4, 5, 12] {
            for bf16 in [false, true] {
                let dir = saved(&Example { bf16, ..Example::new(stage, ranks, groups()) });
                let options = options(dir.path());
                let report = run(&options).unwrap();
                ensure_right(&options.output, &groups(), stage == 3);
                assert_eq!((report.stage, report.ranks, report.step), (stage, (ranks, 1, 1), Some(5.0)));
                assert_eq!((report.parameters.len(), report.verified), (6, Some(18)));
                assert_eq!(report.compared, (if stage == 3 { 0 } else { 6 }, 6));
                assert_eq!(report.notes, [""; 0]);
                let latest = std::fs::read_to_string(dir.path().join("latest_universal")).unwrap();
                assert_eq!(latest, "global_step5_universal");
            }
        }
    }
}

#[test]
fn what_all_ranks_share() {
    // The first rank's slice of the last group is one element and one of padding.
    let mut groups = groups();
    groups.push(group(&[("scale", &[1])]));
    let dir = saved(&Example::new(2, 4, groups));
    let options = Options { keep_temp: true, ..options(dir.path()) };
    run(&options).unwrap();
    let common = TorchFile::open(&options.output.join("zero/optimizer_state.pt")).unwrap();
    let numbers =
        |key: &str| -> Vec<_> { common.graph.root().get(key).unwrap().items().map(|item| item.int()).collect() };
    assert_eq!(numbers("group_paddings"), [Some(0); 3]);
    assert_eq!(numbers("partition_count"), [Some(4); 3]);
    assert!(
        common.graph.root().get("param_groups").is_some() && common.graph.root().get("base_optimizer_state").is_none()
    );
    assert_eq!(state(&options.output, "a.bias", "step"), (vec![], vec![5.0]));
    let param = TorchFile::open(&options.output.join("zero/a.weight/fp32.pt")).unwrap();
    assert_eq!(param.graph.root().get("cat_dim").unwrap().int(), Some(0));
    let model = "mp_rank_00_model_states.pt";
    assert_eq!(std::fs::read(options.input.join(model)).unwrap(), std::fs::read(options.output.join(model)).unwrap());
    // The fragments of b.bias: three elements on the first rank, four on the second.
    let fragment =
        |rank: usize| TorchFile::open(&options.output.join(format!("tmp/b.bias/0/exp_avg.{rank:02}"))).unwrap();
    let numel = |file: TorchFile| file.tensor(file.graph.root()).unwrap().unwrap().numel();
    assert_eq!([numel(fragment(1)), numel(fragment(2))], [4, 2]);
}

/// The file of parameters that a different record of paddings gives has the same bytes.
#[test]
fn paddings_recorded_on_the_last_rank_are_reported_and_harmless() {
    let right = saved(&Example::new(1, 4, groups()));
    let wrong = saved(&Example { last_rank_only: true, ..Example::new(1, 4, groups()) });
    assert_eq!(run(&options(right.path())).unwrap().notes, [""; 0]);
    let report = run(&options(wrong.path())).unwrap();
    let [note] = &report.notes[..] else { panic!("{:?}", report.notes) };
    assert!(note.contains("group 1: rank 3 records a padding of 6, and its slice has 4 elements, 4 of them padding"));
    let [right, wrong] = [right, wrong].map(|dir| contents(&options(dir.path()).output));
    assert!(right == wrong);
}

/// The source's own failure: 768 ranks, and a group of 65 vectors of 4,096 elements.
#[test]
fn the_group_that_stopped_the_converter_at_768_ranks() {
    let vectors: Vec<String> = (0..65).map(|layer| format!("layer.{layer}.norm.weight")).collect();
    let group: Group = vectors.into_iter().map(|name| (name, vec![4096])).collect();
    let dir = saved(&Example { last_rank_only: true, ..Example::new(1, 768, vec![group.clone()]) });
    let options = options(dir.path());
    let report = run(&options).unwrap();
    assert!(report.notes[0].contains("rank 767 records a padding of 1024, and its slice has 348 elements"));
    assert_eq!((report.parameters.len(), report.compared), (65, (65, 65)));
    ensure_right(&options.output, &[group], false);
}

#[test]
fn a_buffer_in_the_order_of_turns_is_put_right() {
    for (stage, bf16) in [(1, true), (2, false), (2, true)] {
        let dir = saved(&Example { round_robin: true, bf16, ..Example::new(stage, 3, groups()) });
        let options = options(dir.path());
        let report = run(&options).unwrap();
        ensure_right(&options.output, &groups(), false);
        assert_eq!((report.compared, report.notes.len()), ((6, 6), 1));
        assert!(report.notes[0].contains("order of round_robin_gradients") && report.notes[0].contains("3 of 4"));
    }
}

/// Weights of a different save: no order explains them.
#[test]
fn values_that_are_not_the_weights_are_refused() {
    let dir = saved(&Example::new(2, 3, groups()));
    let other = tempdir().unwrap();
    let off = |mp: usize, name: &str, state: usize, element: usize| {
        values(mp, name, state, element) + if name == "b.weight" && element == 9 { 1.0 } else { 0.0 }
    };
    Example::new(2, 3, groups()).save(other.path(), &off).unwrap();
    let options = options(dir.path());
    let model = "mp_rank_00_model_states.pt";
    std::fs::copy(other.path().join(model), options.input.join(model)).unwrap();
    let error = run(&options).unwrap_err();
    let expected = format!(
        "zero_pp_rank_2_mp_rank_00_optim_states.pt has {} as element 9 of b.weight (dp rank 2",
        value("b.weight", 0, 9)
    );
    assert!(error.contains(&expected), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left, visible or not");
    let report = run(&Options { strict: false, ..options.clone() }).unwrap();
    assert_eq!((report.compared, report.notes.len()), ((5, 6), 1));
    ensure_right(&options.output, &groups(), false);
}

#[test]
fn safetensors_are_loaded_as_any_universal_checkpoint() {
    for stage in [2, 3] {
        let dir = saved(&Example::new(stage, 3, groups()));
        let options = Options { format: Format::Safetensors, ..options(dir.path()) };
        run(&options).unwrap();
        let universal = Universal::open(&options.output).unwrap();
        assert_eq!((universal.step(), universal.optimizer_steps(), universal.parameters().len()), (5, 5, 6));
        assert_eq!(universal.parameters()["wte.weight"].shape, [5, 7]);
        let [fp32, ..] = universal.read("wte.weight").unwrap();
        assert_eq!(fp32, (0..35).map(|element| value("wte.weight", 0, element)).collect::<Vec<_>>());
    }
}

#[test]
fn a_dry_run_writes_nothing() {
    let dir = saved(&Example::new(1, 2, groups()));
    let report = run(&Options { dry_run: true, ..options(dir.path()) }).unwrap();
    assert_eq!((report.parameters.len(), report.compared), (6, (6, 6)));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// An interrupted conversion, and an earlier complete one.
#[test]
fn a_conversion_can_be_run_again() {
    let dir = saved(&Example::new(1, 2, groups()));
    let options = options(dir.path());
    let partial = dir.path().join(".global_step5_universal.partial");
    std::fs::create_dir_all(partial.join("zero/ghost")).unwrap();
    run(&options).unwrap();
    assert!(!partial.exists() && !options.output.join("zero/ghost").exists());
    std::fs::create_dir_all(options.output.join("zero/old")).unwrap();
    run(&options).unwrap();
    assert!(!options.output.join("zero/old").exists());
    ensure_right(&options.output, &groups(), false);
    let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(names, ["global_step5", "global_step5_universal", "latest_universal"]);
}

#[test]
fn folders_of_something_else_are_not_replaced() {
    let dir = saved(&Example::new(1, 2, groups()));
    let there = dir.path().join("photos");
    std::fs::create_dir(&there).unwrap();
    std::fs::write(there.join("a.jpg"), "a").unwrap();
    let error = run(&Options { output: there.clone(), ..options(dir.path()) }).unwrap_err();
    assert!(error.contains("it exists, and is no universal checkpoint"), "{error}");
    let input = options(dir.path()).input;
    assert!(run(&Options { output: input, ..options(dir.path()) }).unwrap_err().contains("it is the input folder"));
    assert!(there.join("a.jpg").exists());
}

#[test]
fn contradictions_are_refused_by_file() {
    let shard = |rank: usize| format!("zero_pp_rank_{rank}_mp_rank_00_optim_states.pt");
    let refused = |example: &Example, break_it: &dyn Fn(&Path)| {
        let dir = saved(example);
        break_it(&dir.path().join("global_step5"));
        let error = run(&options(dir.path())).unwrap_err();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is written");
        error
    };
    let example = Example::new(2, 3, groups());
    let with = |other: Example, name: String| {
        move |folder: &Path| {
            let from = saved(&other);
            std::fs::copy(from.path().join("global_step5").join(&name), folder.join(&name)).unwrap();
        }
    };
    let error = refused(&example, &|folder| std::fs::remove_file(folder.join(shard(1))).unwrap());
    assert!(error.contains("rank 1 (mp rank 0) is missing"), "{error}");
    let error = refused(&example, &with(Example { step: 6.0, ..example.clone() }, shard(2)));
    assert!(error.contains(&shard(2)) && error.contains("group 0 of rank 2 is at step 6, and rank 0 at 5"), "{error}");
    let error = refused(&example, &with(Example::new(2, 4, groups()), shard(2)));
    assert!(error.contains("it is one of 4 slices, and the folder has files of 3 ranks"), "{error}");
    let error = refused(&example, &with(Example::new(1, 3, groups()), shard(0)));
    assert!(error.contains("it is of stage 2") && error.contains("of stage 1"), "{error}");
    let mut longer = groups();
    longer[0][1].1 = vec![3, 12];
    let error = refused(&example, &with(Example::new(2, 3, longer), "mp_rank_00_model_states.pt".to_string()));
    assert!(error.contains("a.weight has shape [3, 12] there, and fragments of 33 elements"), "{error}");
    let mut fewer = groups();
    fewer[0].pop();
    let error = refused(&example, &with(Example::new(2, 3, fewer), "mp_rank_00_model_states.pt".to_string()));
    assert!(error.contains("head.weight") && error.contains("does not list"), "{error}");
    let error = refused(&example, &|folder| {
        let path = folder.join(shard(2));
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(4).position(|bytes| bytes == value("b.weight", 0, 0).to_le_bytes()).unwrap();
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    });
    assert!(error.contains(&shard(2)) && error.contains("at least one bit differs"), "{error}");
    let error = refused(&Example { info: None, ..example.clone() }, &|_| {});
    assert!(error.contains("has no universal_checkpoint_info"), "{error}");
}

/// Names come from the file, and become names of folders.
#[test]
fn nothing_is_written_outside_the_output_folder() {
    for name in ["../evil", "/evil", "..", "a/b", "a\\b", ".hidden", "", "a\0b"] {
        let dir = saved(&Example::new(1, 2, vec![group(&[(name, &[4])])]));
        let error = run(&options(dir.path())).unwrap_err();
        assert!(error.contains("cannot be the name of a folder"), "{name}: {error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

#[test]
fn rules_that_are_missing_can_be_taken_to_be_none() {
    let dir = saved(&Example { info: None, ..Example::new(1, 2, groups()) });
    let options = Options { inject: true, ..options(dir.path()) };
    run(&options).unwrap();
    ensure_right(&options.output, &groups(), false);
}

/// Rules for the parameters of `parallel`, and one for a parameter that only the last test has not.
fn info(graph: &mut Graph) -> Id {
    let mut entries = Vec::new();
    for (key, pattern) in [
        ("parameter_with_row_parallelism_patterns", r"row\.\d+"),
        ("tp_replicated_parameter_patterns", "norm"),
        ("parameter_to_average_patterns", "mean"),
        ("vocabulary_parameter_patterns", "wte"),
        ("parameter_with_2_sub_params_cat_dim_0", "swiglu"),
        ("pipeline_replicated_parameter_patterns", "wte"),
    ] {
        let pattern = graph.text(pattern);
        let list = graph.push(Value::List(vec![pattern]));
        entries.push((graph.text(key), list));
    }
    let words = graph.push(Value::Int(5));
    entries.push((graph.text("original_vocab_size"), words));
    graph.push(Value::Dict(entries))
}

/// Two stages of a pipeline, each divided between two ranks of tensor parallelism. The second has a copy of the first
/// stage's embeddings.
fn parallel() -> Example {
    let first = group(&[("wte", &[3, 2]), ("column", &[2, 3]), ("norm", &[3]), ("swiglu", &[2, 2])]);
    let second = group(&[("row.1", &[3, 2]), ("mean", &[4]), ("wte", &[3, 2])]);
    let groups = [first.clone(), first, second.clone(), second].map(|group| vec![group]).to_vec();
    Example { degrees: (2, 2), groups, info: Some(info), ..Example::new(1, 3, vec![]) }
}

/// The element of the whole parameter that a rank has.
fn part(mp: usize, name: &str, state: usize, element: usize) -> f32 {
    let tp = mp % 2;
    let whole = |element: usize| value(name, state, element);
    match name {
        "row.1" => whole(element / 2 * 4 + tp * 2 + element % 2),
        "norm" => whole(element),
        "mean" => whole(element) + tp as f32,
        "swiglu" => whole((element / 2 * 2 + tp) * 2 + element % 2),
        _ => whole(tp * 6 + element),
    }
}

#[test]
fn parts_of_tensor_and_pipeline_parallelism_are_joined() {
    let dir = tempdir().unwrap();
    parallel().save(&dir.path().join("global_step5"), &part).unwrap();
    let options = options(dir.path());
    let report = run(&options).unwrap();
    assert_eq!((report.ranks, report.compared), ((3, 2, 2), (12, 12)));
    for (number, kind) in STATES.iter().enumerate() {
        let whole = |name: &str, numel: usize, add: f32| -> Vec<f32> {
            (0..numel).map(|element| value(name, number, element) + add).collect()
        };
        for (name, shape) in
            [("wte", &[5, 2][..]), ("column", &[4, 3]), ("norm", &[3]), ("row.1", &[3, 4]), ("swiglu", &[4, 2])]
        {
            assert_eq!(
                state(&options.output, name, kind),
                (shape.to_vec(), whole(name, shape.iter().product(), 0.0)),
                "{name}"
            );
        }
        let (_, mean) = state(&options.output, "mean", kind);
        assert!(mean.iter().zip(whole("mean", 4, 0.5)).all(|(found, expected)| (found - expected).abs() < 1e-4));
    }
    let file = |name: &str| TorchFile::open(&options.output.join("zero").join(name).join("fp32.pt")).unwrap().graph;
    assert_eq!(file("row.1").root().get("cat_dim").unwrap().int(), Some(1));
    assert_eq!(file("swiglu").root().get("param_n_sub_params").unwrap().int(), Some(2));
    assert!(file("wte").root().get("vocab_tensor").is_some() && file("norm").root().get("cat_dim").is_none());
}

/// Replicas that differ, a pattern that two rules have, and one that nothing matches.
#[test]
fn parts_that_contradict_a_rule_are_refused() {
    let dir = tempdir().unwrap();
    let different = |mp: usize, name: &str, state: usize, element: usize| {
        part(mp, name, state, element) + if (mp, name, state, element) == (1, "norm", 1, 2) { 1.0 } else { 0.0 }
    };
    parallel().save(&dir.path().join("global_step5"), &different).unwrap();
    let error = run(&options(dir.path())).unwrap_err();
    assert!(error.contains("exp_avg of norm: it is replicated, but tp ranks 0 and 1 differ at element 2"), "{error}");
    let unused = Example { groups: vec![groups()], degrees: (1, 1), ..parallel() };
    let dir = saved(&unused);
    let error = run(&options(dir.path())).unwrap_err();
    assert!(error.contains(r"no parameter matches the recorded patterns norm, mean, row\.\d+"), "{error}");
    let report = run(&Options { strict: false, ..options(dir.path()) }).unwrap();
    assert!(report.notes[0].contains("no parameter matches"));
}
