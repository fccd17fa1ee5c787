//! Checkpoints with mistakes that are found and put right, and with doubts.

use super::*;

/// The file of parameters that a different record of paddings gives has the same bytes.
#[test]
fn paddings_recorded_on_the_last_rank_are_reported_and_harmless() {
    let right = saved(&Example::new(1, 4, groups()));
    let wrong = saved(&Example { last_rank_only: true, ..Example::new(1, 4, groups()) });
    assert_eq!(run(&options(right.path())).unwrap().notes, [""; 0]);
    let report = run(&options(wrong.path())).unwrap();
    let [note] = &report.notes[..] else {
        panic!("{:?}", report.notes)
    };
    assert!(note.contains(
        "group 1: rank 3 records a padding of 6, and its slice has 4 elements, 4 of them padding"
    ));
    let [right, wrong] = [right, wrong].map(|dir| contents(&options(dir.path()).output));
    assert!(right == wrong);
}

/// The source's own failure: 768 ranks, and a group of 65 vectors of 4,096 elements.
#[test]
fn the_group_that_stopped_the_converter_at_768_ranks() {
    let vectors: Vec<String> = (0..65).map(|layer| format!("layer.{layer}.norm.weight")).collect();
    let group: Group = vectors.into_iter().map(|name| (name, vec![4096])).collect();
    let dir = saved(&Example {
        last_rank_only: true,
        ..Example::new(1, 768, vec![group.clone()])
    });
    let options = options(dir.path());
    let report = run(&options).unwrap();
    assert!(
        report.notes[0]
            .contains("rank 767 records a padding of 1024, and its slice has 348 elements")
    );
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
        assert!(report.notes[0].contains("order of round_robin_gradients"));
    }
}

/// Weights of a different save: no order explains them.
#[test]
fn values_that_are_not_the_weights_are_refused() {
    let dir = saved(&Example::new(2, 3, groups()));
    let other = tempdir().unwrap();
    let off = |mp: usize, name: &str, state: usize, element: usize| {
        values(mp, name, state, element)
            + if name == "b.weight" && element == 9 { 1.0 } else { 0.0 }
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
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        1,
        "nothing is left, visible or not"
    );
    let report = run(&Options { strict: false, ..options.clone() }).unwrap();
    assert_eq!((report.compared, report.notes.len()), ((5, 6), 1));
    ensure_right(&options.output, &groups(), false);
}

/// Without tensor parallelism there is nothing to join.
#[test]
fn rules_that_are_missing_are_not_needed_without_tensor_parallelism() {
    let dir = saved(&Example::new(1, 2, groups()));
    run(&options(dir.path())).unwrap();
    ensure_right(&options(dir.path()).output, &groups(), false);
    let two = Example {
        degrees: (1, 2),
        groups: vec![groups(), groups()],
        ..Example::new(1, 2, vec![])
    };
    let error = run(&options(saved(&two).path())).unwrap_err();
    assert!(error.contains("has no universal_checkpoint_info"), "{error}");
}
