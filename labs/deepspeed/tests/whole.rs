//! Right checkpoints, converted as they are.

use super::*;

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
                assert_eq!(
                    (report.stage, report.ranks, report.step),
                    (stage, (ranks, 1, 1), Some(5.0))
                );
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
    let options = options(dir.path());
    run(&options).unwrap();
    let common = TorchFile::open(&options.output.join("zero/optimizer_state.pt")).unwrap();
    let numbers = |key: &str| -> Vec<_> {
        common.graph.root().get(key).unwrap().items().map(|item| item.int()).collect()
    };
    assert_eq!(numbers("group_paddings"), [Some(0); 3]);
    assert_eq!(numbers("partition_count"), [Some(4); 3]);
    assert!(
        common.graph.root().get("param_groups").is_some()
            && common.graph.root().get("base_optimizer_state").is_none()
    );
    assert_eq!(state(&options.output, "a.bias", "step"), (vec![], vec![5.0]));
    let param = TorchFile::open(&options.output.join("zero/a.weight/fp32.pt")).unwrap();
    assert_eq!(param.graph.root().get("cat_dim").unwrap().int(), Some(0));
    let model = "mp_rank_00_model_states.pt";
    assert_eq!(
        std::fs::read(options.input.join(model)).unwrap(),
        std::fs::read(options.output.join(model)).unwrap()
    );
}

#[test]
fn a_dry_run_writes_nothing() {
    let dir = saved(&Example::new(1, 2, groups()));
    let report = run(&Options { dry_run: true, ..options(dir.path()) }).unwrap();
    assert_eq!((report.parameters.len(), report.compared), (6, (6, 6)));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn an_interrupted_conversion_can_be_run_again() {
    let dir = saved(&Example::new(1, 2, groups()));
    let options = options(dir.path());
    let partial = dir.path().join(".global_step5_universal.partial");
    std::fs::create_dir_all(partial.join("zero/ghost")).unwrap();
    run(&options).unwrap();
    assert!(!partial.exists() && !options.output.join("zero/ghost").exists());
    ensure_right(&options.output, &groups(), false);
}

/// Before the optimizer's first step there are no moments.
#[test]
fn a_checkpoint_of_step_0_has_values_alone() {
    for stage in 1..=3 {
        let dir = saved(&Example { step: 0.0, ..Example::new(stage, 3, groups()) });
        change_each(&folder(&dir), "optim", |contents| {
            let states = states_of(contents);
            *contents.graph.value_mut(states) = Value::Dict(vec![]);
        });
        let torch = options(dir.path());
        let report = run(&torch).unwrap();
        assert_eq!((report.parameters.len(), report.verified, report.step), (6, Some(6), None));
        let expected: Vec<f32> = (0..35).map(|element| value("wte.weight", 0, element)).collect();
        assert_eq!(state(&torch.output, "wte.weight", "fp32").1, expected);
        let files = std::fs::read_dir(torch.output.join("zero/wte.weight")).unwrap().flatten();
        assert_eq!(files.map(|file| file.file_name()).collect::<Vec<_>>(), ["fp32.pt"]);
    }
}
