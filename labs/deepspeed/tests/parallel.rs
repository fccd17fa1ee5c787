//! Parts of tensor and pipeline parallelism.

use super::*;

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

/// Two stages of a pipeline, each divided between two ranks of tensor parallelism. The second has a
/// copy of the first stage's embeddings.
fn parallel() -> Example {
    let first =
        group(&[("wte", &[3, 2]), ("column", &[2, 3]), ("norm", &[3]), ("swiglu", &[2, 2])]);
    let second = group(&[("row.1", &[3, 2]), ("mean", &[4]), ("wte", &[3, 2])]);
    let groups = [first.clone(), first, second.clone(), second].map(|group| vec![group]).to_vec();
    Example { degrees: (2, 2), groups, ..Example::new(1, 3, vec![]) }
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
    parallel().save(&folder(&dir), &part).unwrap();
    record(&folder(&dir), info);
    let options = options(dir.path());
    let report = run(&options).unwrap();
    assert_eq!((report.ranks, report.compared), ((3, 2, 2), (12, 12)));
    for (number, kind) in STATES.iter().enumerate() {
        let whole = |name: &str, numel: usize, add: f32| -> Vec<f32> {
            (0..numel).map(|element| value(name, number, element) + add).collect()
        };
        for (name, shape) in [
            ("wte", &[5, 2][..]),
            ("column", &[4, 3]),
            ("norm", &[3]),
            ("row.1", &[3, 4]),
            ("swiglu", &[4, 2]),
        ] {
            assert_eq!(
                state(&options.output, name, kind),
                (shape.to_vec(), whole(name, shape.iter().product(), 0.0)),
                "{name}"
            );
        }
        let (_, mean) = state(&options.output, "mean", kind);
        assert!(
            mean.iter()
                .zip(whole("mean", 4, 0.5))
                .all(|(found, expected)| (found - expected).abs() < 1e-4)
        );
    }
    let file = |name: &str| {
        TorchFile::open(&options.output.join("zero").join(name).join("fp32.pt"))
            .unwrap()
            .graph
    };
    assert_eq!(file("row.1").root().get("cat_dim").unwrap().int(), Some(1));
    assert_eq!(file("swiglu").root().get("param_n_sub_params").unwrap().int(), Some(2));
    assert!(
        file("wte").root().get("vocab_tensor").is_some()
            && file("norm").root().get("cat_dim").is_none()
    );
}

/// Replicas that differ, a pattern that two rules have, and one that nothing matches.
#[test]
fn parts_that_contradict_a_rule_are_refused() {
    let dir = tempdir().unwrap();
    let different = |mp: usize, name: &str, state: usize, element: usize| {
        part(mp, name, state, element)
            + if (mp, name, state, element) == (1, "norm", 1, 2) {
                1.0
            } else {
                0.0
            }
    };
    parallel().save(&folder(&dir), &different).unwrap();
    record(&folder(&dir), info);
    let error = run(&options(dir.path())).unwrap_err();
    assert!(
        error.contains(
            "exp_avg of norm: it is replicated, but tp ranks 0 and 1 differ at element 2"
        ),
        "{error}"
    );
    let unused = Example { groups: vec![groups()], degrees: (1, 1), ..parallel() };
    let dir = saved(&unused);
    record(&folder(&dir), info);
    let error = run(&options(dir.path())).unwrap_err();
    assert!(
        error.contains(r"no parameter matches the recorded patterns norm, mean, row\.\d+"),
        "{error}"
    );
    let report = run(&Options { strict: false, ..options(dir.path()) }).unwrap();
    assert!(report.notes[0].contains("no parameter matches"));
}

/// The rules of DeepSpeed 0.19.8's AutoTP for a fused layer whose shards no pattern describes: of 8
/// rows, 6 are divided 4 to 2 between two ranks, and both have the last 2. Its map says which
/// elements of the whole a rank's part consists of.
fn fused(graph: &mut Graph) -> Id {
    fn list(graph: &mut Graph, numbers: &[i64]) -> Id {
        let numbers = numbers.iter().map(|number| graph.push(Value::Int(*number))).collect();
        graph.push(Value::List(numbers))
    }
    fn dict(graph: &mut Graph, entries: &[(&str, Id)]) -> Id {
        let entries = entries.iter().map(|(key, value)| (graph.text(key), *value)).collect();
        graph.push(Value::Dict(entries))
    }
    fn view(graph: &mut Graph, row: i64) -> Id {
        let first = graph.push(Value::Int(3 * row));
        let strides = list(graph, &[3, 1]);
        graph.push(Value::List(vec![first, strides]))
    }
    let mut ranks = Vec::new();
    // Each block: its rows, and the first of them in the whole and in the part.
    for (rank, rows, blocks) in [(0, 6, [(4, 0, 0), (2, 6, 4)]), (1, 4, [(2, 4, 0), (2, 6, 2)])] {
        let mut pieces = Vec::new();
        for (rows, from, to) in blocks {
            let shape = list(graph, &[rows, 3]);
            let source = view(graph, from);
            let dest = view(graph, to);
            let piece = [("shape", shape), ("source", source), ("dest", dest)];
            pieces.push(dict(graph, &piece));
        }
        let shape = list(graph, &[rows, 3]);
        let pieces = graph.push(Value::List(pieces));
        let of_rank = dict(graph, &[("shard_shape", shape), ("pieces", pieces)]);
        ranks.push((graph.push(Value::Int(rank)), of_rank));
    }
    let shape = list(graph, &[8, 3]);
    let ranks = graph.push(Value::Dict(ranks));
    let map = dict(graph, &[("logical_shape", shape), ("ranks", ranks)]);
    let params = dict(graph, &[("^fused$", map)]);
    let version = graph.push(Value::Int(1));
    let maps = dict(graph, &[("version", version), ("params", params)]);
    dict(graph, &[("affine_map", maps)])
}

#[test]
fn a_fused_layer_is_joined_by_its_map() {
    let groups = [6, 4].map(|rows| vec![group(&[("fused", &[rows, 3])])]);
    let example = Example {
        degrees: (1, 2),
        groups: groups.to_vec(),
        ..Example::new(1, 3, vec![])
    };
    let part = |mp: usize, name: &str, state: usize, element: usize| {
        let whole = match mp {
            0 if element < 12 => element,
            0 => element + 6,
            _ => element + 12,
        };
        value(name, state, whole)
    };
    let dir = tempdir().unwrap();
    example.save(&folder(&dir), &part).unwrap();
    record(&folder(&dir), fused);
    let options = options(dir.path());
    run(&options).unwrap();
    for (number, kind) in STATES.iter().enumerate() {
        let whole = (0..24).map(|element| value("fused", number, element)).collect();
        assert_eq!(state(&options.output, "fused", kind), (vec![8, 3], whole));
    }
}
