//! Checkpoints and folders that are refused.

use super::*;

#[test]
fn folders_that_exist_are_not_replaced() {
    let dir = saved(&Example::new(1, 2, groups()));
    let there = dir.path().join("photos");
    std::fs::create_dir(&there).unwrap();
    std::fs::write(there.join("a.jpg"), "a").unwrap();
    let input = options(dir.path()).input;
    for output in [there.clone(), there.join("a.jpg"), input, dir.path().to_path_buf()] {
        let error = run(&Options { output, ..options(dir.path()) }).unwrap_err();
        assert!(error.contains("cannot be the output folder: it exists"), "{error}");
    }
    assert_eq!(std::fs::read_to_string(there.join("a.jpg")).unwrap(), "a");
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    run(&Options { output: empty.clone(), ..options(dir.path()) }).unwrap();
    ensure_right(&empty, &groups(), false);
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
            std::fs::copy(from.path().join("global_step5").join(&name), folder.join(&name))
                .unwrap();
        }
    };
    let error = refused(&example, &|folder| std::fs::remove_file(folder.join(shard(1))).unwrap());
    assert!(error.contains("rank 1 (mp rank 0) is missing"), "{error}");
    let error = refused(&example, &with(Example { step: 6.0, ..example.clone() }, shard(2)));
    assert!(
        error.contains(&shard(2))
            && error
                .contains("group 0 of rank 2 is float32, float32, float32 at step 6, and that of"),
        "{error}"
    );
    let error = refused(&example, &with(Example::new(2, 4, groups()), shard(2)));
    assert!(
        error.contains("it is one of 4 slices, and the folder has files of 3 ranks"),
        "{error}"
    );
    let error = refused(&example, &with(Example::new(1, 3, groups()), shard(0)));
    assert!(error.contains("it is of stage 2") && error.contains("of stage 1"), "{error}");
    let mut longer = groups();
    longer[0][1].1 = vec![3, 12];
    let error = refused(
        &example,
        &with(Example::new(2, 3, longer), "mp_rank_00_model_states.pt".to_string()),
    );
    assert!(
        error.contains("a.weight has shape [3, 12] there, and fragments of 33 elements"),
        "{error}"
    );
    let mut fewer = groups();
    fewer[0].pop();
    let error = refused(
        &example,
        &with(Example::new(2, 3, fewer), "mp_rank_00_model_states.pt".to_string()),
    );
    assert!(error.contains("head.weight") && error.contains("does not list"), "{error}");
    let error = refused(&example, &|folder| {
        let path = folder.join(shard(2));
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes
            .windows(4)
            .position(|bytes| bytes == value("b.weight", 0, 0).to_le_bytes())
            .unwrap();
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    });
    assert!(
        error.contains(&shard(2)) && error.contains("at least one bit differs"),
        "{error}"
    );
}

/// Names come from the file, and become names of folders.
#[test]
fn nothing_is_written_outside_the_output_folder() {
    for name in [
        "../evil",
        "/evil",
        "..",
        "a/b",
        "a\\b",
        ".hidden",
        "",
        "a\0b",
        "optimizer_state.pt",
    ] {
        let dir = saved(&Example::new(1, 2, vec![group(&[(name, &[4])])]));
        let error = run(&options(dir.path())).unwrap_err();
        assert!(error.contains("cannot be the name of a folder"), "{name}: {error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

/// Two ranks have saved over four, under the same tag.
#[test]
fn files_of_an_earlier_save_are_named() {
    for stage in [1, 2, 3] {
        let dir = saved(&Example::new(stage, 4, groups()));
        let folder = dir.path().join("global_step5");
        Example::new(stage, 2, groups()).save(&folder, &values).unwrap();
        let error = convert(&options(dir.path()), &()).unwrap_err();
        assert!(
            error
                .what
                .contains("it is one of 2 slices, and the folder has files of 4 ranks")
        );
        let help = "if an earlier save has left the files of ranks 2 to 3, delete them: zero_pp_rank_2_… and higher";
        assert_eq!(error.help, help);
        for rank in 2..4 {
            let of_rank = |kind: &str| {
                folder.join(format!("zero_pp_rank_{rank}_mp_rank_00_{kind}_states.pt"))
            };
            std::fs::remove_file(of_rank("optim")).unwrap();
            std::fs::remove_file(of_rank("model")).ok();
        }
        run(&options(dir.path())).unwrap();
        ensure_right(&options(dir.path()).output, &groups(), stage == 3);
    }
}
