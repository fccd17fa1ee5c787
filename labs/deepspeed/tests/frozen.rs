//! Frozen weights, buffers, and what else the optimizer does not have.

use super::*;
use crate::torch::{Dtype, save_value};

/// Sizes that no number of ranks divides.
fn frozen() -> Group {
    group(&[("base.weight", &[3, 7]), ("base.bias", &[1]), ("none", &[0])])
}

/// Adds tensors to the model in one file. In stage 3 no rank has a whole weight.
fn add(contents: &mut Contents, example: &Example, group: &Group, mp: usize, values: Values) {
    for (name, shape) in group {
        let here = if example.stage == 3 { vec![0] } else { shape.clone() };
        let numbers: Vec<f32> =
            (0..here.iter().product()).map(|at| values(mp, name, 0, at)).collect();
        let weight = contents.weight(example.bf16, &here, &numbers);
        insert(contents, &["module"], name, weight);
    }
}

/// Adds frozen weights, as DeepSpeed saves them: in stage 1 only the model has them, and in stage 3
/// each rank's file of model states has a part of them.
fn freeze(folder: &Path, example: &Example, frozen: &Group, values: Values) {
    let ranks = if example.stage == 3 { example.ranks } else { 1 };
    for (mp, dp) in (0..example.groups.len()).flat_map(|mp| (0..ranks).map(move |dp| (mp, dp))) {
        let name = match example.stage {
            3 => format!("zero_pp_rank_{dp}_mp_rank_{mp:02}_model_states.pt"),
            _ => format!("mp_rank_{mp:02}_model_states.pt"),
        };
        change(&folder.join(name), |contents| {
            add(contents, example, frozen, mp, values);
            let mut shapes = Vec::new();
            let mut parts = Vec::new();
            for (name, shape) in frozen {
                let numel: usize = shape.iter().product();
                let of_each = numel.div_ceil(ranks);
                let own = of_each * dp..of_each * (dp + 1);
                let number = |at| if at < numel { values(mp, name, 0, at) } else { -7.0 };
                let numbers: Vec<f32> = own.map(number).collect();
                let here = if example.stage < 3 {
                    shape.clone()
                } else {
                    vec![of_each]
                };
                shapes.push((name, contents.size(shape)));
                parts.push((name, contents.weight(example.bf16, &here, &numbers)));
            }
            if example.stage > 1 {
                let shapes = contents.dict(shapes);
                let parts = contents.dict(parts);
                insert(contents, &[], "frozen_param_shapes", shapes);
                insert(contents, &[], "frozen_param_fragments", parts);
            }
        });
    }
}

/// A checkpoint with the weights of [`frozen`].
fn saved_frozen(example: &Example) -> TempDir {
    let dir = saved(example);
    freeze(&folder(&dir), example, &frozen(), &values);
    dir
}

/// A checkpoint whose model has other tensors, which no list names.
fn saved_with(example: &Example, others: &Group) -> TempDir {
    let dir = saved(example);
    change_each(&folder(&dir), "model", |contents| add(contents, example, others, 0, &values));
    dir
}

fn rounded(bf16: bool, value: f32) -> f32 {
    if bf16 {
        half::bf16::from_f32(value).to_f32()
    } else {
        value
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join("zero")).unwrap().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// In stage 3 the last ranks' parts end with padding, or are padding.
#[test]
fn frozen_weights_are_whole_in_every_stage_and_said() {
    for stage in 1..=3 {
        for ranks in [1, 2, 3, 5] {
            for bf16 in [false, true] {
                let dir = saved_frozen(&Example { bf16, ..Example::new(stage, ranks, groups()) });
                let options = options(dir.path());
                let report = run(&options).unwrap();
                ensure_right(&options.output, &groups(), stage == 3);
                for (name, shape) in frozen() {
                    let numel = shape.iter().product();
                    let right: Vec<f32> =
                        (0..numel).map(|at| rounded(bf16, value(&name, 0, at))).collect();
                    assert_eq!(state(&options.output, &name, "fp32"), (shape, right), "{name}");
                    let files = std::fs::read_dir(options.output.join("zero").join(&name)).unwrap();
                    assert_eq!(files.count(), 1);
                }
                assert_eq!((report.parameters.len(), report.verified), (6, Some(21)));
                assert_eq!(report.notes, [""; 0]);
                let [(what, Some(python))] = &report.lacks[..] else {
                    panic!("{:?}", report.lacks)
                };
                let or = if stage == 1 {
                    ", or in no group of the optimizer,"
                } else {
                    ""
                };
                let begin = format!(
                    "3 frozen weights (base.bias, base.weight, none){or} of 22 numbers, whole in zero/NAME/fp32.pt"
                );
                assert!(
                    what.starts_with(&begin)
                        && what.contains(
                            "restores nothing that the optimizer does not have, in any stage"
                        ),
                    "{what}"
                );
                assert_eq!(what.contains("zero.Init"), stage == 3);
                let names = r#"for frozen in ["base.bias", "base.weight", "none"]: model.get_parameter(frozen).data.copy_("#;
                assert!(python.starts_with(names), "{python}");
                assert!(
                    python.contains(&format!("{}/zero/", options.output.display())),
                    "{python}"
                );
            }
        }
    }
}

/// A dry run says the same. A file with too few fragments is refused, and nothing is written.
#[test]
fn frozen_weights_that_are_not_whole_are_refused() {
    let example = Example::new(3, 3, groups());
    let dir = saved_frozen(&example);
    let report = run(&Options { dry_run: true, ..options(dir.path()) }).unwrap();
    assert_eq!(report.lacks.len(), 1);
    let model = "zero_pp_rank_1_mp_rank_00_model_states.pt";
    let fewer = Example { ranks: 7, ..example.clone() };
    std::fs::copy(folder(&saved_frozen(&fewer)).join(model), folder(&dir).join(model)).unwrap();
    let error = run(&options(dir.path())).unwrap_err();
    assert!(error.contains("frozen base.weight has shape [3, 7] there, and 3 fragments of 17 elements, from 3 ranks"), "{error}");
    // Ranks of one save have one type.
    let half = Example { bf16: true, ..example.clone() };
    std::fs::copy(folder(&saved_frozen(&half)).join(model), folder(&dir).join(model)).unwrap();
    let error = run(&options(dir.path())).unwrap_err();
    assert!(
        error.contains("frozen base.bias has shape [1] there, and 3 fragments"),
        "{error}"
    );
    std::fs::copy(folder(&saved(&example)).join(model), folder(&dir).join(model)).unwrap();
    let error = run(&options(dir.path())).unwrap_err();
    assert!(error.contains("it lists different parameters"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// A program that saves with `exclude_frozen_parameters` has them itself. Stage 1 has no list of
/// them, with or without it.
#[test]
fn weights_that_no_file_has_are_said() {
    for stage in [2, 3] {
        let dir = saved(&Example::new(stage, 2, groups()));
        change_each(&folder(&dir), "model", |contents| {
            let none = contents.graph.push(Value::None);
            insert(contents, &[], "frozen_param_shapes", none);
        });
        let report = run(&options(dir.path())).unwrap();
        let [(what, None)] = &report.lacks[..] else {
            panic!("{:?}", report.lacks)
        };
        assert!(
            what.starts_with("saved with exclude_frozen_parameters: frozen weights"),
            "{what}"
        );
        assert_eq!(names(&options(dir.path()).output).len(), 7);
    }
    // It requires a gradient, and the optimizer was not given it.
    let others = group(&[("forgotten.weight", &[2, 3])]);
    let dir = saved_with(&Example::new(3, 2, groups()), &others);
    let report = run(&options(dir.path())).unwrap();
    let [(what, None)] = &report.lacks[..] else {
        panic!("{:?}", report.lacks)
    };
    assert!(what.starts_with("1 weight (forgotten.weight) in no group of the optimizer: DeepSpeed saves no value in stage 3"), "{what}");
    let dir = saved_with(&Example::new(2, 2, groups()), &others);
    let report = run(&options(dir.path())).unwrap();
    let [(what, Some(_))] = &report.lacks[..] else {
        panic!("{:?}", report.lacks)
    };
    assert!(
        what.starts_with(
            "1 frozen weight (forgotten.weight), or in no group of the optimizer, of 6 numbers"
        ),
        "{what}"
    );
}

#[test]
fn buffers_stay_in_the_models_files_and_are_named() {
    let buffers = group(&[("bn.running_mean", &[5]), ("bn.running_var", &[5])]);
    for stage in 1..=3 {
        let dir = saved(&Example::new(stage, 2, groups()));
        // They are whole in every stage.
        let whole = Example::new(1, 2, vec![]);
        change_each(&folder(&dir), "model", |contents| {
            add(contents, &whole, &buffers, 0, &values);
            let names = buffers.iter().map(|(name, _)| contents.graph.text(name)).collect();
            let names = contents.list(names);
            insert(contents, &[], "buffer_names", names);
        });
        let options = options(dir.path());
        let report = run(&options).unwrap();
        let [note] = &report.notes[..] else {
            panic!("{:?}", report.notes)
        };
        let begin = "2 buffers (bn.running_mean, bn.running_var), kept under \"module\" in ";
        assert!(note.starts_with(begin) && note.contains("restores nothing"), "{note}");
        assert!(report.lacks.is_empty());
        assert_eq!(options.output.join("zero/bn.running_mean").exists(), stage < 3);
    }
}

/// Each tp rank has a part of a frozen weight, and the second has no list of second names.
#[test]
fn frozen_weights_are_joined_like_parameters() {
    fn info(graph: &mut Graph) -> Id {
        let mut list = |pattern| {
            let pattern = graph.text(pattern);
            graph.push(Value::List(vec![pattern]))
        };
        let [rows, same] = [list("row"), list("norm")];
        let rows = (graph.text("parameter_with_row_parallelism_patterns"), rows);
        let same = (graph.text("tp_replicated_parameter_patterns"), same);
        graph.push(Value::Dict(vec![rows, same]))
    }
    let part = |mp: usize, name: &str, state: usize, element: usize| match name {
        "row" => value(name, state, element / 2 * 4 + mp * 2 + element % 2),
        "norm" => value(name, state, element),
        _ => value(name, state, mp * 6 + element),
    };
    for stage in [1, 2, 3] {
        let example = Example {
            degrees: (1, 2),
            groups: vec![vec![group(&[("a.weight", &[2, 3])])]; 2],
            ..Example::new(stage, 2, vec![])
        };
        let dir = tempdir().unwrap();
        example.save(&folder(&dir), &part).unwrap();
        let frozen = group(&[("row", &[3, 2]), ("norm", &[3]), ("column", &[2, 3])]);
        freeze(&folder(&dir), &example, &frozen, &part);
        record(&folder(&dir), info);
        let options = options(dir.path());
        // Only frozen weights match the patterns.
        let report = run(&options).unwrap();
        assert!(report.lacks[0].0.contains(" of 27 numbers"), "{:?}", report.lacks);
        for (name, shape) in [("row", vec![3, 4]), ("norm", vec![3]), ("column", vec![4, 3])] {
            let numel = shape.iter().product();
            let right: Vec<f32> = (0..numel).map(|at| value(name, 0, at)).collect();
            assert_eq!(state(&options.output, name, "fp32"), (shape, right), "stage {stage}");
        }
    }
}

#[test]
fn a_third_state_is_refused_or_left_out() {
    for stage in 1..=3 {
        for third in ["max_exp_avg_sq", "mu_product"] {
            let dir = saved(&Example::new(stage, 2, groups()));
            change_each(&folder(&dir), "optim", |contents| {
                let states = contents.graph.node(states_of(contents));
                let states: Vec<Id> = states.entries().map(|(_, state)| state.id).collect();
                for state in states {
                    let second = contents.graph.node(state).get("exp_avg_sq").unwrap().id;
                    let key = contents.graph.text(third);
                    if let Value::Dict(pairs) = contents.graph.value_mut(state) {
                        pairs.push((key, second));
                    }
                }
            });
            let options = options(dir.path());
            let error = run(&options).unwrap_err();
            let also = format!(
                "zero_pp_rank_0_mp_rank_00_optim_states.pt cannot be converted: group 0 also has {third}, which a universal checkpoint has no place for"
            );
            assert!(error.contains(&also), "{error}");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
            let report = run(&Options { strict: false, ..options.clone() }).unwrap();
            assert!(
                report.notes[0].starts_with(&format!("group 0 also has {third}")),
                "{:?}",
                report.notes
            );
            assert_eq!(report.notes.len(), 2);
            ensure_right(&options.output, &groups(), stage == 3);
        }
    }
}

#[test]
fn entries_that_are_not_known_are_named_once() {
    for stage in 1..=3 {
        let dir = saved(&Example::new(stage, 3, groups()));
        for (kind, key) in [("model", "ema"), ("model", "args"), ("optim", "sketch")] {
            change_each(&folder(&dir), kind, |contents| {
                let list = contents.list(vec![]);
                insert(contents, &[], key, list);
            });
        }
        let report = run(&options(dir.path())).unwrap();
        assert_eq!(
            report.notes,
            [
                "the model's files also have entries that are not known here, and are only copied: ema",
                "the optimizer's files also have entries that are not known here, and are not converted: sketch",
            ]
        );
    }
}

/// A pipeline's layers are in files of their own. One is frozen, and the table is tied.
#[test]
fn what_a_pipelines_layers_have_besides_is_named() {
    let parameters = group(&[("tied_modules.embed.weight", &[3]), ("1.weight", &[2])]);
    let dir = saved(&Example::new(1, 2, vec![parameters]));
    let options = options(dir.path());
    let layers: [(&str, &[&str]); 3] =
        [("00", &["weight"]), ("01", &["weight"]), ("02", &["weight", "bias"])];
    let write = |layers: &[(&str, &[&str])]| {
        for (layer, keys) in layers {
            let mut graph = Graph::default();
            let pair = |key: &&str| {
                let size = if *layer == "00" { 3 } else { 2 };
                let tensor = graph.tensor(Dtype::F32, &[size], "0");
                (graph.text(key), tensor)
            };
            let pairs = keys.iter().map(pair).collect();
            graph.root = graph.push(Value::Dict(pairs));
            let path = options.input.join(format!("layer_{layer}-model_states.pt"));
            save_graph(&path, &graph, &[("0".to_string(), vec![0; 12])]).unwrap();
        }
    };
    write(&layers[..2]);
    let dry_run = Options { dry_run: true, ..options.clone() };
    assert!(run(&dry_run).unwrap().lacks.is_empty());
    write(&layers);
    let report = run(&options).unwrap();
    let [(what, None)] = &report.lacks[..] else {
        panic!("{:?}", report.lacks)
    };
    assert!(
        what.starts_with(
            "2 layers' tensors (2.bias, 2.weight) in no group of the optimizer, frozen or a buffer"
        ),
        "{what}"
    );
}

/// PyTorch saves what a module wants to keep besides its tensors under a name of its own.
#[test]
fn extra_states_are_no_weights() {
    let others = group(&[("layer._extra_state", &[2])]);
    let dir = saved_with(&Example::new(1, 2, groups()), &others);
    let report = run(&options(dir.path())).unwrap();
    assert!(report.lacks.is_empty() && report.notes.len() == 1, "{report:?}");
}

/// The parts of the last rank are in a type of eight bits that nothing here reads.
#[test]
fn weights_of_an_unknown_type_are_left_out_and_said() {
    let dir = saved_frozen(&Example::new(2, 2, groups()));
    let path = dir.path().join("global_step5/mp_rank_00_model_states.pt");
    let file = TorchFile::open(&path).unwrap();
    let mut graph = file.graph.clone();
    let strange = graph.class("torch", "Float8_e4m3fnStorage");
    let fragments = graph.root().get("frozen_param_fragments").unwrap();
    let weight = fragments.get("base.weight").unwrap().call().unwrap().1.items().next().unwrap();
    let Value::Persistent(storage) = weight.value().clone() else {
        panic!("no storage")
    };
    let Value::Tuple(mut parts) = graph.value(storage).clone() else {
        panic!("no reference")
    };
    parts[1] = strange;
    *graph.value_mut(storage) = Value::Tuple(parts);
    let changed = path.with_extension("changed");
    save_value(&changed, &file, &graph).unwrap();
    std::fs::rename(changed, path).unwrap();
    let report = run(&options(dir.path())).unwrap();
    let said: Vec<&str> = report.lacks.iter().map(|(what, _)| &what[..31]).collect();
    assert_eq!(said, ["2 frozen weights (base.bias, no", "1 tensor (base.weight) left out"]);
}
