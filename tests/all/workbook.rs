//! The workbook as its readers use it: every blank, every answer, the mistakes that checks must tell apart, the commands.

#[cfg(target_os = "linux")]
use crate::suite::program::soon;
use crate::suite::program::{ROOT, failed, program, stderr, stdout, succeeded};
use kit::Course;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use workbook::{Attempt, Document, Outcome};

fn root(path: &str) -> PathBuf {
    Path::new(ROOT).join(path)
}

/// A file of an exercise in its lab's folder.
fn of_lab(folder: &str, file: &str) -> PathBuf {
    root("labs").join(&file[..5]).join(folder).join(file)
}

fn course() -> Course {
    Course::read().unwrap()
}

/// The workbook of a reader whose folder is `my`, from the checkout's root.
fn command(my: &Path, flags: &str) -> Command {
    let mut command = Command::new(program("workbook"));
    command
        .current_dir(ROOT)
        .env("SHARDLAB_MY", my)
        .env("NO_COLOR", "1")
        .env("USER", "reader");
    command.args(flags.split_whitespace());
    command
}

fn workbook(my: &Path, flags: &str) -> Output {
    command(my, flags).output().expect("the workbook starts")
}

/// The document of a `--json` run, and whether it succeeded.
#[track_caller]
fn document(my: &Path, flags: &str) -> (Document, bool) {
    let output = workbook(my, &format!("{flags} --json"));
    let document = serde_json::from_str(&stdout(&output))
        .unwrap_or_else(|e| panic!("{e}\n{}", stderr(&output)));
    assert_eq!(stderr(&output), "");
    (document, output.status.success())
}

/// The text of one of an exercise's files.
fn text(folder: &str, exercise: &str) -> String {
    let path = of_lab(folder, &format!("{}.rs", exercise.replace('-', "_")));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// How the check of an exercise goes, if this is what the reader wrote.
#[track_caller]
fn check(exercise: &str, code: &str) -> Attempt {
    let my = tempfile::tempdir().unwrap();
    std::fs::write(
        my.path().join(format!("{}.rs", exercise.replace('-', "_"))),
        code,
    )
    .unwrap();
    let (document, success) = document(my.path(), &format!("check {exercise}"));
    let attempt = document
        .exercises
        .into_iter()
        .find_map(|entry| entry.check)
        .expect("a check");
    assert_eq!(success, attempt.outcome == Outcome::Solved);
    attempt
}

/// A reader's folder that holds all files of one of the course's folders.
fn folder_of(files: &str) -> tempfile::TempDir {
    let my = tempfile::tempdir().unwrap();
    for exercise in course().exercises() {
        std::fs::copy(
            of_lab(files, &exercise.file()),
            my.path().join(exercise.file()),
        )
        .unwrap();
    }
    my
}

#[test]
fn every_solution_passes_without_warnings() {
    let my = folder_of("solutions");
    let (document, success) = document(my.path(), "check all");
    for entry in &document.exercises {
        let attempt = entry.check.as_ref().unwrap();
        assert_eq!(
            (attempt.outcome, attempt.compiler.as_str()),
            (Outcome::Solved, ""),
            "{}: {attempt:#?}",
            entry.name
        );
        for figure in &attempt.figures {
            assert!(figure.got <= figure.target, "{}: {figure:?}", entry.name);
        }
    }
    assert!(success);
}

#[test]
fn every_blank_fails_without_warnings() {
    let my = folder_of("exercises");
    let (document, success) = document(my.path(), "check all");
    for (entry, exercise) in document.exercises.iter().zip(course().exercises()) {
        let attempt = entry.check.as_ref().unwrap();
        // What is broken on purpose runs, and is wrong.
        let expected = if exercise.broken {
            Outcome::Wrong
        } else {
            Outcome::Unfinished
        };
        assert_eq!(
            (attempt.outcome, attempt.compiler.as_str()),
            (expected, ""),
            "{}: {attempt:#?}",
            entry.name
        );
        assert!(
            !entry.solved && !entry.begun && entry.record.tries == 0,
            "{}: only the blank is there",
            entry.name
        );
    }
    assert!(!success);
}

/// One mistake: in the solution, `from` becomes `to`; then this claim does not hold, and the check says this about it.
struct Mistake {
    from: &'static str,
    to: &'static str,
    claim: &'static str,
    means: &'static str,
}

const fn mistake(
    from: &'static str,
    to: &'static str,
    claim: &'static str,
    means: &'static str,
) -> Mistake {
    Mistake {
        from,
        to,
        claim,
        means,
    }
}

#[track_caller]
fn are_told_apart(exercise: &str, mistakes: &[Mistake]) {
    let solution = text("solutions", exercise);
    for Mistake {
        from,
        to,
        claim,
        means,
    } in mistakes
    {
        assert_eq!(
            solution.matches(from).count(),
            1,
            "{from:?} in the solution of {exercise}"
        );
        let attempt = check(exercise, &solution.replace(from, to));
        let at = attempt.stuck_at();
        assert!(
            at == *claim && attempt.means.contains(means),
            "{to:?} is told as {at:?}: {}",
            attempt.means
        );
        assert_eq!(attempt.outcome, Outcome::Wrong, "{to:?}: {}", attempt.means);
        let wrong = attempt
            .findings
            .iter()
            .find(|finding| finding.holds == Some(false))
            .unwrap();
        assert!(
            wrong.rows.iter().any(|row| !row.agrees),
            "{to:?}: no row says where"
        );
    }
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab00_hostfile_are_told_apart() {
    let own = "before.iter().filter(|host| **host == mine).count()";
    let node = "nodes.iter().position(|host| *host == mine).unwrap_or(0)";
    are_told_apart(
        "lab00-hostfile",
        &[
            mistake(
                "size: 1, node: 0",
                "size: 0, node: 0",
                "a process without a launcher is rank 0 of 1",
                "whole job",
            ),
            mistake(
                r#""OMPI_COMM_WORLD_RANK", "PMI_RANK""#,
                r#""PMI_RANK", "PMI_RANK""#,
                "Open MPI's variables give rank and size",
                "trains on a different rank's data",
            ),
            mistake(
                r#"RANK", "PMI_RANK""#,
                r#"RANK", "RANK""#,
                "so do MPICH's",
                "trains on a different rank's data",
            ),
            mistake(
                own,
                "before.len()",
                "nodes are numbered in the order of the file",
                "begins at 0 on every node",
            ),
            mistake(
                "    let node =",
                "    nodes.sort();\n    let node =",
                "nodes are numbered in the order of the file",
                "in which the file first names them",
            ),
            mistake(
                own,
                "before.len() % 2",
                "each node counts its own ranks",
                "equally many ranks",
            ),
            mistake(
                node,
                "rank / 2",
                "each node counts its own ranks",
                "only the file says",
            ),
            mistake(
                node,
                "nodes.len() - 1",
                "also if hosts take turns",
                "in which the file first names them",
            ),
        ],
    );
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab01_ring_are_told_apart() {
    let begin = "    // Chunk r starts on rank r. The chunk that arrives is the one before the chunk that leaves.";
    let again = "        comm.recv(&mut data[chunk(rank + n - round)], left)?;";
    let adds = "        let mut more = vec![0.0; data[chunk(rank + n - round)].len()];
        comm.recv(&mut more, left)?;
        data[chunk(rank + n - round)].iter_mut().zip(&more).for_each(|(x, y)| *x += y);";
    let second = "for round in 0..n - 1 {\n        comm.send(&data[chunk(rank + 1";
    let whole = "    if n > 1 {
        let mine = data.to_vec();
        for k in 1..n { comm.send(&mine, (rank + k) % n)?; }
        for k in 1..n {
            let mut more = vec![0.0; len];
            comm.recv(&mut more, (rank + k) % n)?;
            data.iter_mut().zip(&more).for_each(|(x, y)| *x += y);
        }
        return Ok(());
    }";
    let own = "    return comm.all_reduce(data, shardlab::comm::Reduce::Sum);";
    let two = "2 ranks, 2 numbers: one chunk each";
    let cost = "4 ranks, 4,096 numbers: the rounds and bytes of a ring";
    are_told_apart(
        "lab01-ring",
        &[
            mistake(
                begin,
                "    if n > 0 { return Ok(()); }",
                two,
                "added nothing that it received",
            ),
            mistake("*x += y", "*x = *y", two, "lacks the numbers of ranks"),
            mistake(
                second,
                "for round in 0..0 {\n        comm.send(&data[chunk(rank + 1",
                two,
                "after the first n-1 rounds",
            ),
            mistake(again, adds, two, "more than once"),
            mistake(begin, whole, cost, "send more than they have to"),
            mistake(begin, own, cost, "the library's own all-reduce"),
        ],
    );
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab01_flight_are_told_apart() {
    let last = "rank 3 leaves out an all-reduce";
    let zero = "rank 0 leaves it out";
    let fewer = "rank 1 brings fewer numbers";
    let maximum = "rank 2 asks for the maximum";
    let order = "rank 1 swaps two all-reduces";
    let left = "rank 2 has returned";
    let long = "rank 1 has returned after 118 calls";
    let same = "(&a.kind, a.len, &a.op, &a.at) == (&b.kind, b.len, &b.op, &b.at)";
    let most = "made.iter().max_by_key(|call| alike(call))?";
    let of_left = "odd.or(left)";
    let answer = "Some(Suspect { rank, expected: Call::clone(most) })";
    let leaves = "last.iter().find(|(_, last)| **last < number).map(|(rank, _)| *rank)";
    are_told_apart(
        "lab01-flight",
        &[
            mistake(
                same,
                "(a, b) == (b, a)",
                last,
                "All ranks made the same call #1",
            ),
            mistake(
                answer,
                "made.into_iter().find(|call| call.rank == rank).map(|call| Suspect { rank, expected: call.clone() })",
                last,
                "this is the call that it made",
            ),
            mistake(
                most,
                "made.iter().min_by_key(|call| alike(call))?",
                last,
                "the majority is right",
            ),
            mistake(
                most,
                "made.first().filter(|call| alike(call) > 0)?",
                zero,
                "not even rank 0",
            ),
            mistake(
                same,
                "(&a.kind, &a.op) == (&b.kind, &b.op)",
                fewer,
                "of 3 numbers on this rank",
            ),
            mistake(
                same,
                "(&a.kind, a.len) == (&b.kind, b.len)",
                maximum,
                "asks for the sum",
            ),
            mistake(
                same,
                "(&a.kind, a.len, &a.op) == (&b.kind, b.len, &b.op)",
                order,
                "their source lines differ",
            ),
            mistake(
                of_left,
                "odd.or(left.filter(|_| false))",
                left,
                "made no more calls at all",
            ),
            mistake(
                leaves,
                "last.keys().find(|rank| made.iter().all(|call| call.rank != **rank)).copied()",
                long,
                "begins one call earlier",
            ),
            mistake(
                "    None\n",
                "    calls.last().map(|call| Suspect { rank: call.rank, expected: call.clone() })\n",
                "all ranks made the same calls",
                "no rank is a suspect",
            ),
        ],
    );
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab02_average_are_told_apart() {
    let divide = "gradients.iter_mut().for_each(|g| *g /= micro_steps as f32);";
    let reduce = "comm.all_reduce(gradients, Reduce::Mean)?;";
    // Another place for it, and none after the loop.
    let after = "    }\n    // All micro-batches are in, so one all-reduce is enough for the whole step.\n    comm.all_reduce(gradients, Reduce::Mean)?;";
    let early = "        if micro == 0 { comm.all_reduce(gradients, Reduce::Mean)?; }\n    }";
    let sums = "        comm.all_reduce(gradients, Reduce::Sum)?;\n    }\n    gradients.iter_mut().for_each(|g| *g /= comm.size() as f32);";
    let kept = "let _ = (comm, Reduce::Mean);";
    let micros = "1 rank, 4 micro-batches: their mean";
    let ranks = "4 ranks, 1 micro-batch: the mean over ranks";
    let both = "4 ranks, 4 micro-batches: the mean over both";
    are_told_apart(
        "lab02-average",
        &[
            mistake(
                "gradients.fill(0.0);",
                "",
                "1 rank, 1 micro-batch: its own gradients",
                "nothing to average",
            ),
            mistake(divide, "", micros, "sum of the micro-batches"),
            mistake("Reduce::Mean", "Reduce::Sum", ranks, "a sum over the ranks"),
            mistake(reduce, kept, ranks, "kept its own"),
            mistake(
                "micro_steps as f32",
                "(micro_steps * comm.size()) as f32",
                ranks,
                "divides twice",
            ),
            // The trap: averaged before the last micro-batch is in.
            mistake(after, early, both, "after the ranks had averaged"),
            mistake(after, sums, both, "averaged again"),
        ],
    );
    // Averaging at every micro-step is right, and costs as many times as much.
    let every = "        comm.all_reduce(gradients, Reduce::Mean)?;\n    }";
    let attempt = check(
        "lab02-average",
        &text("solutions", "lab02-average").replace(after, every),
    );
    assert_eq!(
        (attempt.outcome, attempt.figures.len()),
        (Outcome::Solved, 1)
    );
    assert_eq!(
        (attempt.figures[0].got, attempt.figures[0].target),
        (4 * 6144, 6144)
    );
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab03_batches_are_told_apart() {
    let own = "every rank draws its own sequences";
    let address = "no batch repeats at a different rank, step or seed";
    let branches = ".branch(rank as u64).branch(step as u64)";
    are_told_apart(
        "lab03-batches",
        &[
            mistake(
                "0..run.batch",
                "0..run.ranks",
                "a batch has as many sequences as it should",
                "one rank at one step",
            ),
            mistake(
                "stream.below(offsets, i)",
                "stream.below(offsets, i - i)",
                "a batch has as many sequences as it should",
                "repeats one sequence",
            ),
            mistake(
                "(run.tokens - run.block)",
                "run.tokens",
                "sequences and their targets lie within the text",
                "token 32",
            ),
            mistake(
                "run.tokens - run.block",
                "run.tokens - run.block + 1",
                "sequences and their targets lie within the text",
                "token 32",
            ),
            mistake(
                "run.seed",
                "std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64",
                "drawn again, a batch is the same",
                "resumed",
            ),
            mistake(
                ".branch(step as u64)",
                "",
                "every step draws its own sequences",
                "memorize",
            ),
            // The trap.
            mistake(".branch(rank as u64)", "", own, "The same random numbers"),
            mistake(
                branches,
                ".branch((rank + step) as u64)",
                address,
                "rank + step",
            ),
            mistake(
                branches,
                ".branch((rank * 1000 + step) as u64)",
                address,
                "in a long run",
            ),
            mistake(
                branches,
                ".branch((rank * step + step) as u64)",
                "every rank draws its own sequences",
                "The same random numbers",
            ),
            mistake(
                r#"run.seed, "batches").branch(rank as u64)"#,
                r#"run.seed + rank as u64, "batches")"#,
                address,
                "adding numbers to a seed",
            ),
            mistake(
                "stream.below(offsets",
                "stream.below(offsets - 1",
                "every offset in the text is drawn",
                "never learns",
            ),
            mistake(
                "offsets, i) as usize)",
                "offsets, i) as usize).map(|start| start / 2 * 2)",
                "every offset in the text is drawn",
                "never learns",
            ),
        ],
    );
    // A different way to keep ranks apart: each draws from its own part of the text.
    let parts = "let part = run.tokens / run.ranks;
    let offsets = (part - run.block) as u64;
    let stream = Stream::new(run.seed, \"batches\").branch(step as u64);
    (0..run.batch as u64).map(|i| rank * part + stream.below(offsets, i) as usize).collect()
}";
    let solution = text("solutions", "lab03-batches");
    let body = solution.find("    // The last offset").unwrap();
    let attempt = check("lab03-batches", &format!("{}{parts}", &solution[..body]));
    assert_eq!(attempt.outcome, Outcome::Solved, "{attempt:#?}");
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab03_schedule_are_told_apart() {
    let rises = "the warm-up rises evenly, and its last step has lr";
    let ends = "the decay begins at lr and ends at min_lr";
    let cosine = "between them it is half a cosine";
    let whole = "(1.0 + (std::f64::consts::PI * progress).cos())";
    let over = "(step - warmup) as f64 / (decay_steps - warmup) as f64";
    let stop = "    if step >= decay_steps {\n        return min_lr;\n    }\n";
    are_told_apart(
        "lab03-schedule",
        &[
            mistake("(step + 1) as f64", "step as f64", rises, "learns nothing"),
            mistake(
                "/ warmup as f64",
                "/ (warmup + 1) as f64",
                rises,
                "step 99 is the hundredth",
            ),
            mistake("return min_lr;", "return 0.0;", ends, "falls to 0"),
            mistake(
                "    min_lr + 0.5 * (lr - min_lr)",
                "    0.5 * lr",
                cosine,
                "halfway between lr and min_lr",
            ),
            mistake(
                whole,
                "(1.0 + (2.0 * std::f64::consts::PI * progress).cos())",
                cosine,
                "Half a cosine",
            ),
            mistake(whole, "2.0 * (1.0 - progress)", cosine, "straight line"),
            mistake(
                over,
                "step as f64 / decay_steps as f64",
                ends,
                "begins before the warm-up is over",
            ),
            mistake(
                stop,
                "",
                "after decay_steps it stays at min_lr",
                "rises again",
            ),
            mistake(
                "step >= decay_steps",
                "step > decay_steps && warmup > 0",
                "without warm-up, step 0 has lr",
                "",
            ),
            mistake(
                "lr * (step + 1) as f64 / warmup",
                "1e-3 * (step + 1) as f64 / warmup",
                "the whole schedule, with other numbers",
                "should be a name",
            ),
        ],
    );
}

/// Repairs that are none: some hide what is wrong, some are right for one number, some give up what was sound.
#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn lucky_repairs_of_lab03_accum_are_told_apart() {
    let mean = "4 micro-steps: the log has the mean loss";
    let gradient = "4 micro-steps: the gradient of the whole batch";
    let one = "1 micro-step: trains what the whole batch trains";
    let share = "(loss / config.grad_accum as f64)?";
    let backward = "        loss.backward()?;";
    are_told_apart(
        "lab03-accum",
        &[
            // What it came with.
            mistake(
                backward,
                "(loss / self.config.grad_accum as f64)?.backward()?;",
                gradient,
                "4 times too small",
            ),
            mistake(share, "(loss * 1.0)?", mean, "The log has 4 times the loss"),
            mistake(
                "mean +=",
                "let loss = (loss * config.grad_accum as f64)?;\n            mean += 1.0 / config.grad_accum as f64 *",
                gradient,
                "4 times too large",
            ),
            mistake(
                share,
                "(loss / if config.grad_accum > 1 { 4.0 } else { 1.0 })?",
                "2 micro-steps on 3 ranks: the gradient",
                "0.500 times as large as it should be",
            ),
            mistake(share, "(loss / 4.0)?", one, "by a constant"),
            mistake(
                "schedule.at(step), scale",
                "schedule.at(step) * self.config.grad_accum as f64, scale",
                "12 steps of 4 micro-steps: the weights",
                "learning rate",
            ),
            mistake(
                "(norm, self.config.clip)",
                "(norm, 0.0)",
                one,
                "the clipping",
            ),
        ],
    );
    // Dividing in the engine instead is as right, if the log keeps its mean.
    let moved = text("solutions", "lab03-accum")
        .replace(
            backward,
            "        (loss / self.config.grad_accum as f64)?.backward()?;",
        )
        .replace(share, "(loss * 1.0)?")
        .replace(
            "mean += f64::from(loss.to_scalar::<f32>()?)",
            "mean += f64::from(loss.to_scalar::<f32>()?) / config.grad_accum as f64",
        );
    let attempt = check("lab03-accum", &moved);
    assert_eq!(attempt.outcome, Outcome::Solved, "{attempt:#?}");
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn lucky_repairs_of_lab03_eval_are_told_apart() {
    let one = "1 rank: it trains and evaluates right";
    let evaluations = "3 ranks: evaluations every 3 steps, without dropout";
    let dropout = "3 ranks: the losses of the first step";
    let whole = "3 ranks: 12 steps and 4 evaluations are right";
    let early = "    if comm.rank() != 0 {\n        return Ok(None);\n    }\n    model.eval();\n";
    let as_it_came =
        "    model.eval();\n    if comm.rank() != 0 {\n        return Ok(None);\n    }\n";
    are_told_apart(
        "lab03-eval",
        &[
            mistake(
                early,
                as_it_came,
                dropout,
                "Without dropout on rank 1 and 2",
            ),
            mistake("    model.eval();\n", "", one, "evaluated with dropout"),
            mistake(
                "if !self.training {",
                "if true {",
                one,
                "trains without dropout",
            ),
            mistake(
                "if comm.rank() != 0 {",
                "if comm.size() > 1 {",
                evaluations,
                "cannot see",
            ),
            mistake(
                "if step.is_multiple_of(EVAL_INTERVAL) {",
                "if comm.size() == 1 && step.is_multiple_of(EVAL_INTERVAL) {",
                evaluations,
                "cannot see",
            ),
            mistake(
                "ddp.finish()?;",
                "ddp.finish()?; if comm.rank() == 1 { gpt.params.zero_gradients(); }",
                "3 ranks: they hold the same model at the end",
                "no longer averaged",
            ),
        ],
    );
    let repaired = |edits: &[(&str, &str)]| {
        let code = edits
            .iter()
            .fold(text("solutions", "lab03-eval"), |code, (from, to)| {
                assert_eq!(code.matches(from).count(), 1, "{from}");
                code.replace(from, to)
            });
        check("lab03-eval", &code)
    };
    // Only the first step is right.
    let first = "if step == 0 { model.train(); }\n        let loss = model.loss(&batch, step)?;";
    let attempt = repaired(&[
        (early, as_it_came),
        ("let loss = model.loss(&batch, step)?;", first),
    ]);
    assert_eq!(
        (attempt.outcome, attempt.stuck_at()),
        (Outcome::Wrong, whole)
    );
    assert!(
        attempt
            .means
            .contains("leave behind on the ranks that do not evaluate"),
        "{}",
        attempt.means
    );
    // Other repairs that are as right: back before every step; every rank evaluates.
    let always = "model.train();\n        let loss = model.loss(&batch, step)?;";
    for edits in [
        [
            (early, as_it_came),
            ("let loss = model.loss(&batch, step)?;", always),
        ],
        [
            (early, "    let _ = comm;\n    model.eval();\n"),
            (
                "history.evaluations.extend(evaluate",
                "history.evaluations.extend(evaluate",
            ),
        ],
    ] {
        let attempt = repaired(&edits);
        assert_eq!(attempt.outcome, Outcome::Solved, "{attempt:#?}");
    }
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab03_exposed_are_told_apart() {
    let one = "1 rank: no network, nothing exposed";
    let two = "2 ranks, one bucket: all of it is exposed";
    let ring = "8 ranks, one bucket: the rounds of a ring";
    let quick = "4 buckets, a quick link: the last one is exposed";
    let slow = "4 buckets, a slow link: they queue";
    let unequal = "buckets of different sizes";
    let ready = "backward * complete / parameters";
    let rounds = "2.0 * (n - 1.0) * (job.link.latency + chunk";
    let start = "let start = link_free.max(backward * complete / parameters);
        link_free = start + seconds;
    }
    link_free - backward";
    let at_once = "link_free += seconds;\n    }\n    (link_free - backward).max(0.0 * complete)";
    are_told_apart(
        "lab03-exposed",
        &[
            mistake(
                "link_free - backward",
                "link_free",
                one,
                "counted from the beginning",
            ),
            mistake(
                rounds,
                "job.link.latency + 2.0 * (n - 1.0) * (chunk",
                one,
                "each of them pays the latency",
            ),
            mistake(
                ready,
                "0.0 * backward * complete / parameters",
                one,
                "One rank sends nothing",
            ),
            mistake(start, at_once, two, "nothing to carry"),
            mistake(
                "job.link.latency + chunk",
                "chunk",
                two,
                "The latency is missing",
            ),
            mistake(
                " as f64 / n;",
                " as f64;",
                two,
                "Each round carries a whole bucket",
            ),
            mistake("(job.gradient * bucket)", "bucket", two, "several bytes"),
            mistake(
                rounds,
                "(n - 1.0) * (job.link.latency + chunk",
                two,
                "half of the ring",
            ),
            mistake(
                rounds,
                "(2.0 * (n - 1.0)).min(2.0) * (job.link.latency + (n - 1.0) * chunk",
                ring,
                "each of them pays",
            ),
            mistake(ready, "backward", quick, "--no-overlap"),
            mistake(
                "link_free.max(backward * complete / parameters)",
                "backward * complete / parameters",
                slow,
                "still occupy the link",
            ),
            mistake("= 4.0", "= 6.0", slow, "4 operations"),
            mistake(
                "complete += bucket as f64;",
                "complete += parameters / job.buckets.len() as f64;",
                unequal,
                "are unequal",
            ),
            mistake(
                "let start =",
                "let start = seconds +",
                two,
                "Go through the buckets in order",
            ),
        ],
    );
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab03_bucket_are_told_apart() {
    let quiet = "4 ranks on 1 GB/s: the best size";
    let elsewhere = "16 ranks on 1 Gbit/s: the best is elsewhere";
    let busy = "clusters on which other programs delay steps";
    let smallest = ".fold(f64::INFINITY, f64::min)";
    are_told_apart(
        "lab03-bucket",
        &[
            mistake(
                "let mut size = parameters;",
                "let (mut size, _) = (0, &step);",
                quiet,
                "Hardly anything",
            ),
            // PyTorch's default.
            mistake(
                "    best.1\n",
                "    6_250_000\n",
                quiet,
                "Too large: 4 buckets of 6,250,000",
            ),
            mistake(
                "    best.1\n",
                "    best.1.min(200_000)\n",
                elsewhere,
                "Too small: 125 buckets",
            ),
            mistake(
                "while size > 1024",
                "while size > parameters / 4",
                quiet,
                "no smaller size than this",
            ),
            mistake(
                "let mut size = parameters;",
                "let mut size = parameters / 1000;",
                quiet,
                "no larger size than this",
            ),
            mistake("size /= 2;", "size /= 2000;", quiet, "lies between two"),
            mistake(
                "if seconds < best.0",
                "if best.0.is_infinite() || seconds > best.0",
                quiet,
                "this is the slowest",
            ),
            mistake("(0..8)", "(0..1)", busy, "was measured once"),
            mistake(smallest, ".sum::<f64>()", busy, "A mean counts every delay"),
            mistake(smallest, ".fold(0.0, f64::max)", busy, "have hidden it"),
        ],
    );
    // Also the median of enough steps is as good as undisturbed.
    let median = "{ let mut all: Vec<f64> = (0..15).map(|_| step(size)).collect(); all.sort_by(f64::total_cmp); all[7] }";
    let fastest = format!("(0..8).map(|_| step(size)){smallest}");
    let solution = text("solutions", "lab03-bucket");
    assert!(solution.contains(&fastest));
    assert_eq!(
        check("lab03-bucket", &solution.replace(&fastest, median)).outcome,
        Outcome::Solved
    );
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab04_partition_are_told_apart() {
    let order = "8 numbers on 2 ranks: equal slices, in order";
    let little = "13 numbers on 3 ranks: a little padding";
    let several = "10 numbers on 4 ranks: padding on two of them";
    let padding = "end.saturating_sub(numel).min(part)";
    let multiple = "numel.next_multiple_of(ALIGNMENT * ranks)";
    let pads = "    flat.resize(numel.next_multiple_of(ALIGNMENT * ranks), 0.0);
    let part = flat.len() / ranks;
    let start = rank * part;
    let end = (rank + 1) * part;";
    let ceil = "    flat.truncate(numel);
    let part = numel.div_ceil(ranks);
    let start = (rank * part).min(numel);
    let end = ((rank + 1) * part).min(numel);";
    let dealt = "    flat.truncate(numel);
    let start = rank * (numel / ranks) + rank.min(numel % ranks);
    let part = ranks;
    let end = start + numel / ranks + usize::from(rank < numel % ranks);";
    are_told_apart(
        "lab04-partition",
        &[
            mistake(
                "(rank * part, (rank + 1) * part)",
                "((ranks - 1 - rank) * part, (ranks - rank) * part)",
                order,
                "hold the wrong numbers",
            ),
            mistake(pads, ceil, little, "Stage 3 cuts single tensors"),
            mistake(pads, dealt, little, "goes to the first ranks"),
            mistake(
                multiple,
                "numel.next_multiple_of(ranks)",
                little,
                "Padded to a multiple of 3, the number of ranks",
            ),
            mistake(
                multiple,
                "numel / ranks * ranks",
                little,
                "The last 1 of 13 numbers are on no rank",
            ),
            mistake(
                multiple,
                "numel.next_multiple_of(4 * ranks)",
                little,
                "13 numbers become 18",
            ),
            mistake(
                "flat[start..end]",
                "flat[start.min(numel)..end.min(numel)]",
                little,
                "without padding",
            ),
            mistake(padding, "0", little, "no rank records"),
            mistake(
                padding,
                "flat.len() - numel",
                little,
                "the padding of all ranks",
            ),
            // The run that could not be converted.
            mistake(
                padding,
                "if rank + 1 == ranks { flat.len() - numel } else { 0 }",
                several,
                "recorded on the last rank: 6 of its 4",
            ),
            mistake(".min(part)", "", several, "more padding than numbers"),
            mistake(
                padding,
                "part.min((flat.len() - numel).saturating_sub(rank))",
                little,
                "the padding is wrong",
            ),
        ],
    );
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab04_zero_step_are_told_apart() {
    let one = "1 rank: it updates everything";
    let two = "2 ranks, 8 numbers: each rank updates half";
    let padding = "3 ranks, 10 numbers: slices that need padding";
    let cost = "4 ranks, 4,096 numbers: the bytes that a rank sends";
    let scatter = "comm.reduce_scatter(&padded(gradients), &mut mean, Reduce::Mean)?;";
    let mine = "[rank * part..(rank + 1) * part]";
    let before = "    let mut mean = vec![0.0; part];";
    let update = "update(&mut mine, &mean);";
    let copy = "    let mut all = padded(parameters);";
    let gather = "comm.all_gather(&mine, &mut all)?;";
    are_told_apart(
        "lab04-zero-step",
        &[
            mistake(update, "let _ = &update;", one, "never calls"),
            mistake(
                update,
                "update(&mut mine, &mean); update(&mut mine, &mean);",
                one,
                "more than once",
            ),
            mistake(
                update,
                "update(&mut mine.clone(), &mean);",
                one,
                "All parameters are as before",
            ),
            mistake(
                gather,
                "comm.all_gather(&mean, &mut all)?;",
                one,
                "have become the mean gradients",
            ),
            mistake("Reduce::Mean)?", "Reduce::Sum)?", two, "2 times too large"),
            mistake(
                update,
                "mean.iter_mut().for_each(|g| *g /= n as f32); update(&mut mine, &mean);",
                two,
                "divides the mean once more",
            ),
            mistake(
                scatter,
                "mean.copy_from_slice(&padded(gradients)[rank * part..(rank + 1) * part]);",
                two,
                "its own gradients",
            ),
            mistake(
                mine,
                "[(n - 1 - rank) * part..(n - rank) * part]",
                two,
                "has updated the wrong slice",
            ),
            mistake(
                mine,
                "[..part]",
                two,
                "Rank 1 has updated the wrong slice: the parameters from number 0 on",
            ),
            mistake(
                gather,
                "all[rank * part..(rank + 1) * part].copy_from_slice(&mine);",
                two,
                "have not gathered",
            ),
            mistake(
                gather,
                "comm.all_gather(&mine, &mut all)?; all.rotate_left(rank);",
                two,
                "they train different models",
            ),
            mistake(
                "let part = len.div_ceil(n);",
                "let part = len / n; let (parameters, len) = (&mut parameters[..n * part], n * part);",
                padding,
                "The last 1 of 10 parameters are never updated",
            ),
            mistake(
                before,
                "    if n > 0 {
        let mut mean = gradients.to_vec();
        comm.all_reduce(&mut mean, Reduce::Mean)?;
        update(parameters, &mean);
        return Ok(());
    }
    let mut mean = vec![0.0; part];",
                two,
                "an all-reduce and a whole update",
            ),
            mistake(
                copy,
                "    if n > 0 {
        let mut all = padded(gradients);
        comm.all_gather(&mean, &mut all)?;
        update(parameters, &all[..len]);
        return Ok(());
    }
    let mut all = padded(parameters);",
                two,
                "the ranks gather gradients",
            ),
            mistake(
                scatter,
                "let mut all = padded(gradients);
    comm.all_reduce(&mut all, Reduce::Mean)?;
    mean.copy_from_slice(&all[rank * part..][..part]);",
                cost,
                "An all-reduce before the all-gather",
            ),
        ],
    );
    // DeepSpeed's padding is as right.
    let twice =
        text("solutions", "lab04-zero-step").replace("len.div_ceil(n)", "2 * len.div_ceil(2 * n)");
    let attempt = check("lab04-zero-step", &twice);
    assert_eq!(attempt.outcome, Outcome::Solved, "{attempt:#?}");
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab04_norm_are_told_apart() {
    let one = "1 rank: the root of the sum of all squares";
    let four = "4 ranks: the norm of all shards";
    let padding = "3 ranks: padding is no gradient";
    let replicated = "4 ranks: replicated parameters count once";
    let nan = "NaN on rank 2 of 4: every rank skips the step";
    let infinity = "infinity on rank 2 of 4: every rank skips it, too";
    let sum = "comm.all_reduce(&mut sum, Reduce::Sum)?;";
    let root = "(sum[0] + squares(replicated)).sqrt()";
    let own = "[squares(&shard[..shard.len() - padding])]";
    let answer = "Ok(norm.is_finite().then_some(norm))";
    let no_root = "sum[0] + squares(replicated)";
    are_told_apart(
        "lab04-norm",
        &[
            mistake(root, no_root, one, "its root"),
            mistake(
                sum,
                "let _ = (comm, Reduce::Sum, &mut sum);",
                four,
                "its own shard's norm",
            ),
            mistake(
                sum,
                "sum[0] = sum[0].sqrt(); comm.all_reduce(&mut sum, Reduce::Sum)?; sum[0] *= sum[0];",
                four,
                "before the sum",
            ),
            mistake(
                sum,
                "sum[0] = sum[0].sqrt(); comm.all_reduce(&mut sum, Reduce::Mean)?; sum[0] *= sum[0];",
                four,
                "average of the ranks' norms",
            ),
            mistake("Reduce::Sum", "Reduce::Mean", four, "averaged over 4 ranks"),
            mistake("Reduce::Sum", "Reduce::Max", four, "Only the longest shard"),
            mistake(
                own,
                "[squares(shard)]; let _ = padding",
                padding,
                "The padding was counted",
            ),
            mistake(root, "sum[0].sqrt()", replicated, "are missing"),
            mistake(
                sum,
                "let twice = squares(replicated); sum[0] += twice; comm.all_reduce(&mut sum, Reduce::Sum)?; sum[0] -= twice;",
                replicated,
                "more than once",
            ),
            mistake(
                own,
                "[squares(&shard[..shard.len() - padding]) + squares(replicated)]",
                replicated,
                "more than once",
            ),
            mistake(
                "f64::from(g).powi(2)",
                "f64::from(g * g)",
                "gradients of 1e20: their squares are 1e40",
                "The largest f32",
            ),
            mistake(answer, "Ok(Some(norm))", nan, "handed on"),
            mistake(
                "f64::from(g).powi(2)).sum::<f64>()",
                "f64::from(g).powi(2)).filter(|g| !g.is_nan()).sum::<f64>()",
                nan,
                "got lost",
            ),
            mistake(
                "norm.is_finite()",
                "(!norm.is_nan())",
                infinity,
                "handed on",
            ),
            mistake(
                answer,
                "Ok(shard[..shard.len() - padding].iter().all(|g| g.is_finite()).then_some(norm))",
                nan,
                "Some ranks skip",
            ),
        ],
    );
    let solution = text("solutions", "lab04-norm");
    // The replicated squares may also come from one rank alone.
    let first = solution
        .replace(
            own,
            "[squares(&shard[..shard.len() - padding]) + if comm.rank() == 0 { squares(replicated) } else { 0.0 }]",
        )
        .replace(root, "sum[0].sqrt()");
    assert_eq!(check("lab04-norm", &first).outcome, Outcome::Solved);
    // A rank that leaves before the all-reduce is missed there.
    let early = format!("if shard.iter().any(|g| g.is_nan()) {{ return Ok(None); }}\n{sum}");
    let attempt = check("lab04-norm", &solution.replace(sum, &early));
    assert!(
        attempt.outcome == Outcome::Failed && attempt.means.contains("all_reduce"),
        "{attempt:#?}"
    );
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab04_memory_are_told_apart() {
    let one = "1.3 billion parameters on 1 GPU";
    let nothing = "7.5 billion on 1 GPU: nothing fits";
    let many = "7.5 billion on 64 GPUs";
    let few = "7.5 billion on 2 GPUs: room for a sequence";
    let recomputation = "with recomputation";
    let large = "70 billion parameters, 8,192 tokens";
    let state = "held(2, 3) + held(2, 2) + held(12, 1)";
    let each = "2 * blocks * unit + 34 * unit";
    are_told_apart(
        "lab04-memory",
        &[
            mistake(state, "held(2, 3)", one, "enough to run the model"),
            mistake(
                state,
                "held(2, 3) + held(2, 2) + held(8, 1)",
                one,
                "The master copy is missing",
            ),
            mistake(
                state,
                "held(2, 3) + held(2, 2)",
                one,
                "The optimizer is missing",
            ),
            mistake(
                state,
                "held(2, 3) + held(12, 1)",
                one,
                "The gradients are missing",
            ),
            mistake(
                state,
                "held(4, 3) + held(4, 2) + held(8, 1)",
                many,
                "training in f32",
            ),
            mistake(
                state,
                "held(2, 1) + held(2, 1) + held(12, 1)",
                many,
                "only the optimizer's 12 bytes",
            ),
            mistake(
                state,
                "held(2, 1) + held(2, 2) + held(12, 3)",
                many,
                "The order of the stages",
            ),
            mistake(
                "(bytes * parameters).div_ceil(ranks)",
                "{ let _ = ranks; bytes * parameters }",
                many,
                "a shard is 1/n",
            ),
            mistake("(0..=3)", "(0..=3).rev()", one, "the highest stage"),
            mistake(
                "(sequences > 0)",
                "(sequences < 1000)",
                few,
                "no sequence does",
            ),
            mistake(
                "memory.checked_sub(state)?",
                "(memory * ranks).checked_sub(state)?",
                many,
                "no common pool",
            ),
            mistake(
                "memory.checked_sub(state)?",
                "80_000_000_000u64.checked_sub(state.min(state + memory))?",
                "GPUs of 40 GB",
                "`job.memory`",
            ),
            mistake(
                "{ 34 * blocks * unit }",
                "{ 34 * blocks * unit / ranks }",
                many,
                "does not shard activations",
            ),
            mistake(
                "{ 34 * blocks * unit }",
                "{ 34 * unit }",
                one,
                "of one block",
            ),
            mistake(
                "{ 34 * blocks * unit }",
                "{ 68 * blocks * unit }",
                one,
                "bytes already",
            ),
            mistake(
                "if recompute {",
                "if recompute && unit == 0 {",
                recomputation,
                "2 bytes per token",
            ),
            mistake(each, "2 * blocks * unit", recomputation, "one block again"),
            mistake("/ each", "/ each + 1", one, "Round down"),
            mistake(
                "memory.checked_sub(state)? / each",
                "(memory.saturating_sub(state) / each).max(1)",
                nothing,
                "no room for one sequence",
            ),
            mistake(
                "memory.checked_sub(state)? / each",
                "(memory / each).max(state / memory / state)",
                one,
                "Memory minus state",
            ),
            mistake("(0..=3)", "(0..=2)", large, "Stage 2 is not the last one"),
        ],
    );
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab05_mlp_are_told_apart() {
    let one = "1 rank: Z = GELU(X A + a_bias) B + b_bias";
    let two = "2 ranks: each has the whole Z";
    let all = "1 rank: all five gradients";
    let slices = "2 ranks: the gradients of X and of each slice";
    let g = "&y.matmul(&b)?, Reduce::Sum)?.broadcast_add(&mlp.b_bias)?";
    let f = "all_reduce(comm, &dh.matmul(&a.t()?)?, Reduce::Sum)?";
    let h = "let h = x.matmul(&a)?.broadcast_add(&a_bias)?;";
    let gelu = "let y = h.gelu_erf()?;";
    let da = "(x.t()?.matmul(&dh)?, ";
    let db = "y.t()?.matmul(dz)?";
    let dh = "let dh = (dz.";
    let da_bias = "a_bias: dh.sum(0)?";
    let db_bias = "b_bias: dz.sum(0)?";
    let rows_first = "if comm.size() > 1 {
        let first = comm.rank() * x.dim(1)? / comm.size();
        let rows = x.dim(1)? / comm.size();
        let h = x.narrow(1, first, rows)?.matmul(&mlp.a.narrow(0, first, rows)?)?.broadcast_add(&mlp.a_bias)?;
        let z = all_reduce(comm, &h.gelu_erf()?.matmul(&mlp.b)?, Reduce::Sum)?;
        return Ok((z.broadcast_add(&mlp.b_bias)?, None));
    }
    let h = x.matmul(&a)?.broadcast_add(&a_bias)?;";
    are_told_apart(
        "lab05-mlp",
        &[
            mistake(
                g,
                "&y.matmul(&b)?.broadcast_add(&mlp.b_bias)?, Reduce::Sum)?",
                two,
                "Z has b_bias 2 times",
            ),
            mistake(
                g,
                "&y.matmul(&b)?, Reduce::Mean)?.broadcast_add(&mlp.b_bias)?",
                two,
                "the mean of the summands",
            ),
            mistake(
                g,
                "&y.matmul(&b)?.broadcast_add(&mlp.b_bias)?, Reduce::Mean)?",
                two,
                "the mean of the summands",
            ),
            mistake(g, "&y.matmul(&b)?, Reduce::Sum)?", one, "b_bias is missing"),
            mistake(
                "all_reduce(comm, &y.matmul(&b)?, Reduce::Sum)?",
                "y.matmul(&b)?",
                two,
                "Megatron's g is missing: the all-reduce",
            ),
            mistake(h, rows_first, two, "A was cut by rows"),
            mistake(
                gelu,
                "let y = all_reduce(comm, &h, Reduce::Sum)?.gelu_erf()?;",
                two,
                "before the GELU adds up",
            ),
            mistake(
                "let h = x",
                "let h = all_reduce(comm, x, Reduce::Sum)?",
                two,
                "X is 2 times too large",
            ),
            mistake(
                "let first = comm.rank() * slice;",
                "let first = 0;",
                two,
                "computes the slice of rank 0",
            ),
            mistake(gelu, "let y = h.clone();", one, "The GELU is missing"),
            mistake(gelu, "let y = h.gelu()?;", one, "an approximation by tanh"),
            mistake(h, "let h = x.matmul(&a)?;", one, "a_bias is missing"),
            mistake(
                "mlp.b.narrow(0, first,",
                "mlp.b.narrow(0, (comm.size() - 1) * slice - first,",
                two,
                "times the same rows of B",
            ),
            mistake(
                "Ok((z, Some(",
                "if comm.size() > 0 { return Ok((z, None)); }\nOk((z, Some(",
                all,
                "Z is right. Now",
            ),
            mistake(f, "dh.matmul(&a.t()?)?", slices, "Megatron's f is missing"),
            mistake(
                f,
                "all_reduce(comm, &dh.matmul(&a.t()?)?, Reduce::Mean)?",
                slices,
                "X's gradient is the mean",
            ),
            mistake(
                dh,
                "let dz = &all_reduce(comm, dz, Reduce::Sum)?;\nlet dh = (dz.",
                slices,
                "because dZ went through an all-reduce",
            ),
            mistake(
                da,
                "(all_reduce(comm, &x.t()?.matmul(&dh)?, Reduce::Sum)?, ",
                slices,
                "different slices of A.",
            ),
            mistake(
                da,
                "(all_reduce(comm, &x.t()?.matmul(&dh)?, Reduce::Mean)?, ",
                slices,
                "different slices of A.",
            ),
            mistake(
                da_bias,
                "a_bias: all_reduce(comm, &dh.sum(0)?, Reduce::Sum)?",
                slices,
                "different slices of a_bias.",
            ),
            mistake(
                db,
                "all_reduce(comm, &y.t()?.matmul(dz)?, Reduce::Mean)?",
                slices,
                "different slices of B.",
            ),
            mistake(
                db_bias,
                "b_bias: all_reduce(comm, &dz.sum(0)?, Reduce::Sum)?",
                slices,
                "b_bias's gradient is wrong by a factor of 2",
            ),
            mistake(
                db_bias,
                "b_bias: (dz.sum(0)? / comm.size() as f64)?",
                slices,
                "b_bias's gradient is wrong by a factor of 2",
            ),
            mistake(
                "a: da",
                "a: if comm.size() > 1 { mlp.a.clone() } else { da }",
                slices,
                "shape of a whole matrix",
            ),
            mistake(
                "? * gelu_slope(&h)?)",
                "? * 1.0)",
                all,
                "GELU's slope is missing",
            ),
            mistake(
                "gelu_slope(&h)",
                "gelu_slope(&y)",
                all,
                "computed at its result Y",
            ),
            mistake(db, "h.t()?.matmul(dz)?", all, "what was multiplied with B"),
            mistake(
                da_bias,
                "a_bias: dh.mean(0)?",
                all,
                "A bias has the sum over the tokens",
            ),
            mistake(
                gelu,
                "let y = h.gelu_erf()?;\nall_reduce(comm, &mlp.a, Reduce::Sum)?;",
                "4 ranks: one all-reduce per pass",
                "more is sent than two all-reduces",
            ),
        ],
    );
    // A bias that the ranks divide, or that one rank adds, is in the sum once.
    for once in [
        "(&mlp.b_bias / comm.size() as f64)?",
        "(&mlp.b_bias * f64::from(comm.rank() == 0))?",
    ] {
        let code = text("solutions", "lab05-mlp").replace(
            g,
            &format!("&y.matmul(&b)?.broadcast_add(&{once})?, Reduce::Sum)?"),
        );
        let attempt = check("lab05-mlp", &code);
        assert_eq!(attempt.outcome, Outcome::Solved, "{once}: {attempt:#?}");
    }
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab05_cross_entropy_are_told_apart() {
    let one = "1 rank: the mean loss over all positions";
    let two = "2 ranks: the same loss on both";
    let padding = "3 ranks, 10 tokens: padding is in no sum";
    let spread = "logits from -1,000 to 1,000";
    let first = "1 rank: the gradient";
    let columns = "3 ranks: each has the gradient of its columns";
    let cost = "4 ranks: a larger vocabulary costs no more bytes";
    let max = "comm.all_reduce(&mut largest, Reduce::Max)?;";
    let both = "comm.all_reduce(&mut both, Reduce::Sum)?;";
    let loss =
        "let loss = (0..n).map(|i| largest[i] + sums[i].ln() - target[i]).sum::<f64>() / n as f64;";
    let chosen = "column(targets[i]).map_or(0.0, |j| rows[i][j])";
    let exp = "|logit| (logit - largest[i]).exp()";
    let hot = "if let Some(j) = column(targets[i]) {";
    let rows = "let n = rows.len();";
    let own = "|logit| (logit - rows[i][..columns].iter().copied().fold(f64::NEG_INFINITY, f64::max)).exp()";
    let elsewhere = |column: &str| -> &'static str {
        format!("column(targets[i]).map_or(rows[i][{column}], |j| rows[i][j])").leak()
    };
    let reduced = |mine: &str, how: &str| -> &'static str {
        format!("let mut one = [{mine}];\ncomm.all_reduce(&mut one, Reduce::{how})?;\nlet loss = one[0];").leak()
    };
    let local = "(0..n).map(|i| largest[i] + sum(i).ln() - column(targets[i]).map_or(0.0, |j| rows[i][j])).sum::<f64>()";
    let mine = "{ let mine = (0..n).filter(|i| column(targets[*i]).is_some());
        mine.clone().map(|i| largest[i] + sum(i).ln() - target[i]).sum::<f64>() / mine.count() as f64 }";
    are_told_apart(
        "lab05-cross-entropy",
        &[
            mistake(max, "", two, "subtracted its own largest logit"),
            mistake(exp, own, two, "subtracted its own largest logit"),
            mistake(
                max,
                "largest.fill(0.0);",
                spread,
                "An exponential is infinite",
            ),
            mistake(
                "Reduce::Max",
                "Reduce::Sum",
                spread,
                "no sum or mean of maxima does",
            ),
            mistake(
                "Reduce::Max",
                "Reduce::Mean",
                spread,
                "no sum or mean of maxima does",
            ),
            mistake(both, "", two, "covers this rank's tokens alone"),
            mistake(
                both,
                "comm.all_reduce(&mut both[n..], Reduce::Sum)?;",
                two,
                "covers this rank's tokens alone",
            ),
            mistake(
                both,
                "comm.all_reduce(&mut both[..n], Reduce::Sum)?;",
                two,
                "only the targets that are among its own tokens",
            ),
            mistake(
                "Reduce::Sum",
                "Reduce::Mean",
                two,
                "sums of exponentials were averaged",
            ),
            mistake(
                both,
                "comm.all_reduce(&mut both[..n], Reduce::Mean)?;\ncomm.all_reduce(&mut both[n..], Reduce::Sum)?;",
                two,
                "sums of exponentials were averaged",
            ),
            mistake(
                both,
                "comm.all_reduce(&mut both[..n], Reduce::Sum)?;\ncomm.all_reduce(&mut both[n..], Reduce::Mean)?;",
                two,
                "counts only 1/2",
            ),
            mistake(chosen, elsewhere("0"), two, "a logit for every target"),
            mistake(
                chosen,
                elsewhere("targets[i].min(rows[i].len() - 1)"),
                two,
                "a logit for every target",
            ),
            mistake(
                chosen,
                "rows[i][targets[i] % rows[i].len()]",
                two,
                "a logit for every target",
            ),
            mistake(chosen, "0.0", one, "The target's logit is missing"),
            mistake(
                loss,
                reduced(&format!("{local} / n as f64"), "Mean"),
                two,
                "a loss over one rank's tokens",
            ),
            mistake(
                loss,
                reduced(mine, "Mean"),
                two,
                "a loss over one rank's tokens",
            ),
            mistake(
                loss,
                reduced(&loss[11..loss.len() - 1], "Sum"),
                two,
                "added up one and the same loss",
            ),
            mistake(
                "target[i]).sum::<f64>() / n as f64",
                "target[i]).sum::<f64>()",
                one,
                "the sum over all positions",
            ),
            mistake(
                "largest[i] + sums[i].ln() - target[i]",
                "target[i] - largest[i] - sums[i].ln()",
                one,
                "The sign",
            ),
            mistake(
                rows,
                "let n = rows.len();\nlet columns = columns.max(rows[0].len());",
                padding,
                "The padding is in the sum",
            ),
            mistake(
                "collect()))",
                "take(0).collect()))",
                first,
                "The loss is right. Now compute the gradient",
            ),
            mistake(
                "vec![0.0; rows[i].len()]",
                "vec![0.0; columns]",
                columns,
                "an entry for each logit",
            ),
            mistake(
                "row[j] -= 1.0 / n as f64;",
                "let _ = j;",
                first,
                "This is the softmax",
            ),
            mistake(
                "        row\n",
                "row.iter().map(|g| g * n as f64).collect()\n",
                first,
                "divided by their number",
            ),
            mistake(
                "        row\n",
                "row.iter().map(|g| -g).collect()\n",
                first,
                "The sign is wrong",
            ),
            mistake(
                "/ sums[i]",
                "/ sum(i)",
                columns,
                "adds up to 1 over its own tokens",
            ),
            mistake(
                hot,
                "{ let j = column(targets[i]).unwrap_or(0);",
                columns,
                "subtracted 1 in every row",
            ),
            mistake(
                "(0..columns).for_each",
                "(0..row.len()).for_each",
                columns,
                "The padding has a gradient",
            ),
            mistake(
                "        row\n",
                "comm.all_reduce(&mut row, Reduce::Sum).unwrap();\nrow\n",
                columns,
                "gradients of different tokens",
            ),
            mistake(
                "        row\n",
                "row.iter().map(|g| g / comm.size() as f64).collect()\n",
                columns,
                "wrong by a factor of 3",
            ),
            mistake(
                rows,
                "let n = rows.len();
                let mut all = vec![0.0; n * rows[0].len() * comm.size()];
                comm.all_gather(&rows.concat(), &mut all)?;",
                cost,
                "the logits were gathered",
            ),
            mistake(
                rows,
                "let n = rows.len();\ncomm.all_reduce(&mut rows[0].clone(), Reduce::Sum)?;",
                cost,
                "the bytes grow with the vocabulary",
            ),
        ],
    );
    // A rank that has only padding: its sum is 0, and not 0 times infinity.
    let rescaled = |factor: &str| {
        let sum = ".map(|logit| (logit - largest[i]).exp()).sum::<f64>();";
        let scaled = format!(".map({own}).sum::<f64>() * {factor};");
        let code = text("solutions", "lab05-cross-entropy");
        assert_eq!(code.matches(sum).count(), 1);
        check("lab05-cross-entropy", &code.replace(sum, &scaled))
    };
    let top = "rows[i][..columns].iter().copied().fold(f64::NEG_INFINITY, f64::max)";
    let attempt = rescaled(&format!("({top} - largest[i]).exp()"));
    assert_eq!(attempt.outcome, Outcome::Solved, "{attempt:#?}");
    let attempt = rescaled(&format!("({top} - largest[i] - ({top} - {top})).exp()"));
    assert_eq!(
        attempt.stuck_at(),
        "4 ranks, 5 tokens: one rank has only padding"
    );
    assert!(
        attempt
            .means
            .contains("infinity is subtracted from an infinity"),
        "{}",
        attempt.means
    );
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab06_order_are_told_apart() {
    let one = "1 rank, 3 micro-batches: each pass runs once";
    let four = "4 ranks, 8 micro-batches: each pass runs once";
    let turns = "backward passes have the order of forward passes";
    let waits = "no pass waits forever";
    let memory = "each rank keeps as few activations as it can";
    let time = "the step takes no longer than GPipe's";
    let warm_up = "(ranks - 1 - rank).min(micro_batches)";
    let forward = "order.push(Op::forward(0, next));";
    let back = "order.push(Op::backward(0, back));";
    let begin = "    for back in 0..micro_batches {";
    let end = "    order\n}";
    are_told_apart(
        "lab06-order",
        &[
            mistake(warm_up, "micro_batches", memory, "This is GPipe"),
            mistake(
                warm_up,
                "(ranks - 1 - rank).saturating_sub(1).min(micro_batches)",
                time,
                "too few forward passes",
            ),
            mistake(warm_up, "0", time, "Only one rank computes at any time"),
            mistake(
                warm_up,
                "(ranks - rank).min(micro_batches)",
                memory,
                "one forward pass too many",
            ),
            mistake(
                warm_up,
                "(ranks - 1).min(micro_batches)",
                memory,
                "All ranks run equally many",
            ),
            mistake(
                warm_up,
                "rank.min(micro_batches)",
                waits,
                "count the ranks behind this one",
            ),
            mistake(
                warm_up,
                "(2 * (ranks - 1 - rank)).min(micro_batches)",
                memory,
                "and no more",
            ),
            mistake(
                warm_up,
                "ranks - 1 - rank",
                "1 to 5 ranks, 1 to 7 micro-batches",
                "the last one is 0",
            ),
            // The pair in the opposite order, without one more forward pass in the warm-up.
            mistake(
                begin,
                "    for back in 0..micro_batches {\n        order.push(Op::backward(0, back));",
                one,
                "A pass that runs twice",
            ),
            mistake(
                end,
                "    for i in (warm_up..order.len() - warm_up).step_by(2) { order.swap(i, i + 1); }\n    order\n}",
                waits,
                "before its own",
            ),
            mistake(
                back,
                "order.push(Op::backward(0, micro_batches - 1 - back));",
                turns,
                "kept its activations",
            ),
            mistake(
                back,
                "order.push(Op::backward(0, (back + warm_up) % micro_batches));",
                turns,
                "kept its activations",
            ),
            mistake(
                begin,
                "    for back in 0..micro_batches - warm_up {",
                four,
                "still in flight",
            ),
            mistake(
                forward,
                "if next + 1 < micro_batches { order.push(Op::forward(0, next)); }",
                one,
                "are missing",
            ),
            mistake(
                back,
                "order.push(Op::backward(0, back));\norder.push(Op::weights(0, back));",
                one,
                "zero-bubble",
            ),
            mistake(
                forward,
                "order.push(Op::forward(rank, next));",
                four,
                "has one chunk here",
            ),
            mistake(
                forward,
                "order.push(Op::forward(0, next + 1));",
                one,
                "the last one is 2",
            ),
        ],
    );
    // A forward pass before each backward pass, or after it with a longer warm-up: the same order.
    let code = text("solutions", "lab06-order");
    let pair =
        "if next < micro_batches {\n            order.push(Op::forward(0, next));\n        }";
    let alone = "(ranks - rank)";
    let code = code.replace(
        &format!("        {pair}\n        {back}"),
        &format!("        {back}\n        {pair}"),
    );
    let attempt = check("lab06-order", &code.replace("(ranks - 1 - rank)", alone));
    assert_eq!(attempt.outcome, Outcome::Solved, "{attempt:#?}");
}

/// The solution of an exercise with some changes.
#[track_caller]
fn changed(exercise: &str, changes: &[(&str, &str)]) -> String {
    changes
        .iter()
        .fold(text("solutions", exercise), |code, (from, to)| {
            assert_eq!(
                code.matches(from).count(),
                1,
                "{from:?} in the solution of {exercise}"
            );
            code.replace(from, to)
        })
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab06_deadlock_are_told_apart() {
    let ends = "2 ranks, 4 micro-batches: the step ends";
    let trains = "2 ranks: the gradients of one rank";
    let memory = "4 ranks: rank r keeps 4 - r micro-batches";
    let waits = "a rank waits only if it has nothing to do";
    // The line that receives moves through the turn.
    let blank = text("exercises", "lab06-deadlock");
    let begin = "        if turn < micro_batches {\n";
    let next = "(behind..micro_batches + behind).contains(&(turn + 1))";
    let (before, rest) = blank
        .split_once(&format!("        if behind > 0 && {next} {{\n"))
        .unwrap();
    let (receive, after) = rest.split_once(begin).unwrap();
    let send = "            if behind > 0 {\n                activations.send(&y, rank + 1)?;\n            }\n        }\n";
    let moved = |here: &str, condition: &str, claim: &str, means: &str| {
        let code = format!("{before}{begin}{after}");
        assert_eq!(code.matches(here).count(), 1, "{here}");
        let receive = format!("if behind > 0 && {condition} {{\n{receive}");
        let code = code.replace(
            here,
            &if here == send {
                format!("{here}{receive}")
            } else {
                format!("{receive}{here}")
            },
        );
        let attempt = check("lab06-deadlock", &code);
        assert!(
            attempt.stuck_at() == claim && attempt.means.contains(means),
            "{here}{condition}: {attempt:#?}"
        );
        assert_eq!(
            attempt.outcome,
            if claim.is_empty() {
                Outcome::Solved
            } else {
                Outcome::Wrong
            }
        );
    };
    moved(
        begin,
        next,
        ends,
        "micro-batch 0, and has run 0 forward passes",
    );
    moved(
        "            if behind > 0 {\n                activations",
        next,
        ends,
        "that it has not sent",
    );
    moved(
        begin,
        "turn >= behind",
        waits,
        "while it has a forward pass to run",
    );
    moved(
        "            if behind > 0 {\n                activations",
        "turn >= behind",
        ends,
        "into every turn that runs a backward pass",
    );
    // As soon as the activations are sent: also for the next turn, if they belong to this one.
    moved(send, "turn >= behind", "", "");

    let no = "gradients.recv(&mut dy, rank + 1)?;";
    let dy = "stage.backward(turn - behind, &dy);";
    let in_turn = "if turn >= behind {";
    let turns = "for turn in 0..micro_batches + behind {";
    let back = "gradients.send(&dx, rank - 1)?;";
    are_told_apart(
        "lab06-deadlock",
        &[
            mistake(no, "", ends, "they do not receive all messages"),
            mistake(
                no,
                "activations.recv(&mut dy, rank + 1)?;",
                ends,
                "message of the wrong kind",
            ),
            mistake(
                no,
                "if turn > behind { gradients.recv(&mut dy, rank + 1)?; }",
                ends,
                "do not receive all messages",
            ),
            mistake(
                dy,
                "stage.backward(turn - behind, &if rank > 0 { dy.clone() } else { vec![0.0; width] });",
                trains,
                "without a gradient",
            ),
            mistake(
                dy,
                "stage.backward(if behind > 0 { micro_batches - 1 + behind - turn } else { turn }, &dy);",
                trains,
                "with the gradient of micro-batch 0",
            ),
            mistake(
                back,
                "gradients.send(&vec![1.0; width], rank - 1)?;",
                trains,
                "it begins with 1.",
            ),
            mistake(
                "if turn < micro_batches {",
                "if turn < micro_batches.max(behind) {",
                "4 ranks, 2 micro-batches",
                "needs a case for few micro-batches",
            ),
        ],
    );
    for (delay, claim, means) in [
        (
            "micro_batches",
            memory,
            "With all of them first, this is GPipe",
        ),
        ("0", waits, "The ranks behind it then run out of work"),
    ] {
        let from = |line: &str| line.replace("behind", delay);
        let changes = [turns, in_turn, dy].map(|line| (line, from(line)));
        let changes = changes
            .each_ref()
            .map(|(line, from)| (*line, from.as_str()));
        let attempt = check("lab06-deadlock", &changed("lab06-deadlock", &changes));
        assert!(
            attempt.stuck_at() == claim && attempt.means.contains(means),
            "{delay}: {attempt:#?}"
        );
    }
    // The untouched blank shows the library's message: which rank waits for what.
    let attempt = check("lab06-deadlock", &blank);
    for part in [
        "deadlock: all ranks wait for each other",
        "rank 0  waits in recv \"gradient\" (from 1, 3 f64, ",
    ] {
        assert!(attempt.printed.contains(part), "{}", attempt.printed);
    }
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab07_tied_are_told_apart() {
    let one = "1 rank: the losses are right";
    let two = "2 ranks: the losses of 1 rank";
    let one_norm = "1 rank: the norm of the gradient";
    let norm = "2 ranks: the norm on both";
    let clipped = "1 rank, with clipping: the losses";
    let sum = "comm.all_reduce(&mut stage.table.gradient, Reduce::Sum)?;";
    let table = "if comm.rank() == 0 { squares(&stage.table.gradient) } else { 0.0 }";
    let root = "sum[0].sqrt()";
    let squares = "comm.all_reduce(&mut sum, Reduce::Sum)?;";
    let update = "update(stage, (clip / norm).min(1.0));";
    are_told_apart(
        "lab07-tied",
        &[
            mistake(sum, "", two, "trained with its own part"),
            mistake(
                sum,
                "comm.all_reduce(&mut stage.table.gradient, Reduce::Mean)?;",
                two,
                "half of the table's gradient",
            ),
            mistake(
                sum,
                "comm.broadcast(&mut stage.table.gradient, 0)?;",
                two,
                "comes through the embedding. The part",
            ),
            mistake(
                sum,
                "comm.broadcast(&mut stage.table.gradient, comm.size() - 1)?;",
                two,
                "comes through the head. The part",
            ),
            mistake(
                sum,
                "for _ in 0..2 { comm.all_reduce(&mut stage.table.gradient, Reduce::Sum)?; }",
                two,
                "the table's gradient twice",
            ),
            mistake(
                sum,
                "comm.all_reduce(&mut stage.table.gradient, Reduce::Sum)?;
                 comm.all_reduce(&mut stage.layers.gradient, Reduce::Sum)?;",
                two,
                "Each rank has different layers",
            ),
            mistake(
                sum,
                "stage.table.gradient.iter_mut().for_each(|g| *g *= 2.0);",
                one,
                "On 1 rank everything was right",
            ),
            mistake(
                table,
                "squares(&stage.table.gradient)",
                norm,
                "counts the table twice",
            ),
            mistake(table, "0.0", one_norm, "leaves the table out"),
            mistake(squares, "", norm, "only its own gradients in the norm"),
            mistake(
                squares,
                "comm.all_reduce(&mut sum, Reduce::Mean)?;",
                norm,
                "average their sums of squares",
            ),
            mistake(root, "sum[0]", one_norm, "the root is missing"),
            mistake(update, "update(stage, 1.0);", clipped, "`scale` is not"),
            mistake(update, "update(stage, clip / norm);", one, "`scale` is not"),
            mistake(
                update,
                "update(stage, 1.0);\nupdate(stage, 0.0);",
                one,
                "call it once per step",
            ),
        ],
    );
    let after = |line: &str| format!("{update}\n{line}");
    for (changes, claim, means) in [
        (
            [(sum, ""), (update, &after(sum))],
            two,
            "after the optimizer's step. `update` has already used",
        ),
        (
            [
                (sum, ""),
                (
                    update,
                    &after("comm.all_reduce(&mut stage.table.values, Reduce::Mean)?;"),
                ),
            ],
            two,
            "make their copies equal after the optimizer's step",
        ),
        (
            [
                (sum, ""),
                (
                    update,
                    &after("comm.broadcast(&mut stage.table.values, 0)?;"),
                ),
            ],
            two,
            "make their copies equal after the optimizer's step",
        ),
        (
            [
                (sum, ""),
                (
                    table,
                    &format!("{{ let parts = squares(&stage.table.gradient); {sum} parts }}"),
                ),
            ],
            norm,
            "computed before the two parts",
        ),
    ] {
        let attempt = check("lab07-tied", &changed("lab07-tied", &changes));
        assert!(
            attempt.stuck_at() == claim && attempt.means.contains(means),
            "{changes:?}: {attempt:#?}"
        );
        assert_eq!(attempt.outcome, Outcome::Wrong);
    }
}

/// A check that compares vectors sees a NaN and a number too many, wherever they are.
#[test]
#[ignore = "compiles five programs: the gate runs it, and whoever changes a check should"]
fn checks_see_nan_and_numbers_too_many() {
    let adamw =
        "adamw.step(&gpt.params, config.schedule.at(step), clip_scale(norm, config.clip)?)?;";
    let update = "update(stage, (clip / norm).min(1.0));";
    let copies = "after step 0: difference of the copies";
    for (exercise, from, to, at) in [
        (
            "lab03-accum",
            "self.micro = 0;",
            "if step == 11 { self.gpt.params.values_mut()[7] = f32::NAN; }",
            "weights after 12 steps: largest difference",
        ),
        (
            "lab03-eval",
            adamw,
            "if step == 11 { gpt.params.values_mut()[7] = f32::NAN; }",
            "weights after 12 steps: largest difference",
        ),
        (
            "lab03-eval",
            adamw,
            "if step == 11 && comm.rank() == 2 { gpt.params.values_mut()[7] = f32::NAN; }",
            "rank 2: largest difference from rank 0",
        ),
        (
            "lab07-tied",
            update,
            "if comm.rank() == 1 { stage.table.values[7] = f64::NAN; }",
            copies,
        ),
        (
            "lab07-tied",
            update,
            "if comm.rank() == 1 { stage.table.values.push(0.5); }",
            copies,
        ),
    ] {
        let attempt = check(
            exercise,
            &changed(exercise, &[(from, &format!("{from}\n{to}"))]),
        );
        assert_eq!(attempt.outcome, Outcome::Wrong, "{to:?}: {attempt:#?}");
        let wrong = attempt
            .findings
            .iter()
            .find(|finding| finding.holds == Some(false))
            .unwrap();
        assert!(
            wrong.rows.iter().any(|row| !row.agrees && row.at == at),
            "{to:?}: {wrong:#?}"
        );
    }
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab08_skip_are_told_apart() {
    let pair = "2 3: steps 1 and 4 train";
    let pairs = "2 3 and 6 6: steps 1, 4, 5 and 7 train";
    let data = "each step trains on its own micro-batch";
    let accumulated = "also with 4 micro-steps of accumulation";
    let counters = "the counters, and the learning rate";
    let resumed = "resumed after step 2, in the middle of a range";
    let step = "counters.global_steps + 1;";
    let inside = "ends[0] <= step && step <= ends[1]";
    let any = "run.skip.chunks(2).any(|ends| ends[0] <= step && step <= ends[1])";
    let draws = "for _ in 0..run.accumulation {\n        trainer.draw();";
    let skipped = "counters.skipped_steps += 1;\n    counters.schedule += 1;\n    counters.global_steps += 1;\n    counters.micro_steps += run.accumulation;\n    counters.global_samples += run.samples;";
    let without =
        |line: &str| -> &'static str { Box::leak(skipped.replace(line, "").into_boxed_str()) };
    are_told_apart(
        "lab08-skip",
        &[
            mistake(any, "false", pair, "Every step trains"),
            // Which steps: counted from 0, with an exclusive end, and what pairs are.
            mistake(step, "counters.global_steps;", pair, "the next step is one more"),
            mistake(inside, "ends[0] <= step && step < ends[1]", pair, "The last step of each range trains"),
            mistake(inside, "ends[0] < step && step <= ends[1]", pair, "The first step of each range trains"),
            mistake(
                any,
                "run.skip.first().is_some_and(|first| (*first..=run.skip[1]).contains(&step))",
                pairs,
                "Only the first range",
            ),
            mistake(
                any,
                "run.skip.first().is_some_and(|first| (*first..=run.skip[run.skip.len() - 1]).contains(&step))",
                pairs,
                "between two ranges",
            ),
            mistake("chunks(2)", "windows(2)", pairs, "between two ranges"),
            mistake(skipped, without("counters.global_steps += 1;"), pair, "never leaves the range"),
            // One micro-batch for each step of the range, and no step counted.
            mistake(
                any,
                "{ if run.skip.first() == Some(&step) { for _ in 0..2 { trainer.draw(); } }; false }",
                pair,
                "its number is given to a later step",
            ),
            mistake(draws, "for _ in 0..0 {\n        trainer.draw();", data, "draws nothing"),
            // The published mistake.
            mistake(draws, "{\n        trainer.draw();", accumulated, "One published"),
            mistake(draws, "for _ in 0..2 {\n        trainer.draw();", data, "Step 2 draws 2"),
            mistake(
                draws,
                "for _ in 0..if step == 3 { 0 } else { run.accumulation * if step == 2 { 2 } else { 1 } } {
                     trainer.draw();",
                resumed,
                "Each step draws its own data only",
            ),
            mistake(skipped, without("counters.schedule += 1;"), counters, "The schedule waits"),
            mistake(skipped, without("counters.skipped_steps += 1;"), counters, "`skipped_steps` counts the steps"),
            mistake(skipped, without("counters.micro_steps += run.accumulation;"), counters, "finds its place"),
            mistake(skipped, without("counters.global_samples += run.samples;"), counters, "are consumed, too"),
        ],
    );
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab08_scaler_are_told_apart() {
    let good = "good steps: the scale doubles after every 4th";
    let bad = "overflows in a row: the second halves it";
    let between = "good steps between overflows do not help";
    let restart = "an overflow restarts the count of good steps";
    let growth = "growth restores the hysteresis";
    let minimum = "the scale never falls below its minimum";
    let refused = "a step that overflowed is not taken";
    let clipped = "gradients lose the scale before they are clipped";
    let grows = "a step after which the scale grows";
    let count = "self.good += 1;";
    let reaches = "if self.good == self.window {";
    let halves = "(self.scale / 2.0).max(self.min);";
    let refill = "self.scale *= 2.0;\n            self.remaining = self.hysteresis;";
    let taken = "if self.remaining == 0 {";
    let overflows = "if overflow {\n            self.good = 0;";
    let factor = "(clip / norm).min(1.0) / scale;";
    let norm = "global_norm(gradients) / scale;";
    let update = "self.update(!norm.is_finite());";
    let finite = "if !norm.is_finite() {";
    are_told_apart(
        "lab08-scaler",
        &[
            // DeepSpeed's growth, and a count that does not begin again.
            mistake(
                reaches,
                "if self.good > self.window {\n            self.good = 1;\n        }\n        if self.good == self.window && false {",
                good,
                "The scale never grows",
            ),
            mistake(
                count,
                "if self.good == 0 { self.good = 1; return; }",
                good,
                "The scale never grows",
            ),
            mistake(
                "        self.good += 1;\n        if self.good == self.window {\n            self.good = 0;",
                "        let counted = self.good;\n        self.good += 1;\n        if counted > 0 && counted % self.window == 0 {",
                good,
                "This is DeepSpeed's rule from 0.17.1 on",
            ),
            mistake(
                reaches,
                "if self.good >= self.window {\n            self.scale *= 2.0;\n            return;\n        }\n        if false {",
                good,
                "in every good step",
            ),
            mistake(taken, "{", bad, "The first overflow halves"),
            mistake(
                taken,
                "if self.remaining == 0 && { self.remaining = 0; self.good = 0; true } && self.hysteresis == 1 {",
                bad,
                "The first exponent that differs",
            ),
            mistake(
                "self.remaining = self.remaining.saturating_sub(1);\n            if self.remaining == 0 {",
                "if self.remaining > 0 {\n                self.remaining -= 1;\n            } else {",
                bad,
                "one overflow too late",
            ),
            mistake(
                halves,
                "(self.scale / 2.0).max(self.min);\n                self.remaining = self.hysteresis;",
                bad,
                "only every second overflow",
            ),
            mistake(
                count,
                "self.good += 1;\n        self.remaining = self.hysteresis;",
                between,
                "consecutive_hysteresis",
            ),
            mistake(
                overflows,
                "if overflow {",
                between,
                "goes on over an overflow",
            ),
            mistake(
                overflows,
                "if overflow {\n            self.good *= u64::from(self.remaining > 1);",
                restart,
                "goes on over an overflow",
            ),
            mistake(
                refill,
                "self.scale *= 2.0;",
                growth,
                "stays 0 when the scale has grown",
            ),
            mistake(halves, "self.scale / 2.0;", minimum, "falls below `min`"),
            mistake(
                finite,
                "if norm == f64::INFINITY {",
                refused,
                "A NaN is an overflow",
            ),
            mistake(
                finite,
                "if false {",
                refused,
                "The optimizer would take this step",
            ),
            mistake(
                update,
                "if norm.is_finite() { self.update(false); }",
                bad,
                "The first exponent that differs",
            ),
            mistake(
                update,
                "self.update(norm == f64::INFINITY);",
                refused,
                "still updates the scale",
            ),
            mistake(
                factor,
                "(clip / (norm * scale)).min(1.0) / scale;",
                clipped,
                "clips before it unscales",
            ),
            mistake(
                factor,
                "(clip / norm).min(1.0);",
                clipped,
                "still have the scale",
            ),
            mistake(factor, "1.0 / scale;", clipped, "nothing clips them"),
            mistake(
                "Some(norm)",
                "Some(norm * scale)",
                clipped,
                "the log's norm is not",
            ),
            mistake(
                "Some(norm)",
                "Some(norm.min(clip))",
                clipped,
                "before clipping",
            ),
            mistake(
                factor,
                "(clip / norm).min(1.0) / self.scale;",
                grows,
                "by the next step's scale",
            ),
            mistake(
                update,
                "if !norm.is_finite() { self.update(true); }",
                good,
                "The scale never grows",
            ),
            mistake(
                norm,
                "global_norm(gradients);",
                clipped,
                "clips before it unscales",
            ),
        ],
    );
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn lucky_repairs_of_lab08_alone_are_told_apart() {
    let plain = "2 ranks, no bad batch: trains";
    let ends = "a bad batch on rank 1: the run ends";
    let equal = "after every step both ranks are equal";
    let taken = "no rank takes the step with the bad batch";
    let zero = "also with the bad batch on rank 0";
    let four = "4 ranks: one loss just above the bound";
    let nan = "a loss that is NaN";
    let any = "if comm.any(!within)? {";
    let update = "replica.update(&gradient);";
    let asks = "comm.any(!within)?";
    let within = "loss <= bound;";
    let from = |rank: &str| -> &'static str {
        let code = "{ let mut of = [f64::from(u8::from(!within))]; comm.broadcast(&mut of, RANK)?; of[0] > 0.0 }";
        Box::leak(code.replace("RANK", rank).into_boxed_str())
    };
    are_told_apart(
        "lab08-alone",
        &[
            mistake(asks, "!within", ends, "A rank must not decide alone"),
            mistake(
                any,
                "if !within && comm.any(true)? {",
                ends,
                "do not make the same calls",
            ),
            mistake(
                any,
                "comm.barrier()?;\n    if !within {",
                ends,
                "do not make the same calls",
            ),
            // The calls agree, the models do not.
            mistake(
                asks,
                "comm.size() > 99",
                taken,
                "All ranks train on the bad batch now",
            ),
            mistake(asks, from("0"), taken, "Only the loss of rank 0 decides"),
            mistake(
                asks,
                from("comm.size() - 1"),
                zero,
                "Only the loss of rank 1 decides",
            ),
            mistake(
                asks,
                "{ let mut mean = [loss]; comm.all_reduce(&mut mean, Reduce::Mean)?; !(within && mean[0] <= bound) && mean[0] > bound }",
                four,
                "the good ranks hide it",
            ),
            mistake(within, "!(loss > bound);", nan, "no comparison with NaN"),
            mistake(
                any,
                "if comm.any(!within)? {\n        replica.update(&[0.0]);",
                taken,
                "by its moments",
            ),
            mistake(
                update,
                "replica.update(&gradient);\n    replica.update(&gradient);",
                plain,
                "Without a bad batch",
            ),
            mistake(
                "return Ok(false);",
                "return Ok(true);",
                taken,
                "must also return on every rank",
            ),
        ],
    );
    for (changes, claim, means) in [
        // Each rank decides after the all-reduce.
        (
            [
                (any, "if false {"),
                (
                    update,
                    "if !within { return Ok(false); }\n    replica.update(&gradient);",
                ),
            ],
            equal,
            "different models",
        ),
        (
            [
                (
                    any,
                    "if !within {\n        gradient.fill(0.0);\n    }\n    if false {",
                ),
                (update, update),
            ],
            taken,
            "with zeros",
        ),
        (
            [
                (
                    any,
                    "let mut good = [f64::from(u8::from(within))];\n    comm.all_reduce(&mut good, Reduce::Sum)?;\n    if !within {\n        gradient.fill(0.0);\n    }\n    if false {",
                ),
                (
                    update,
                    "gradient.iter_mut().for_each(|g| *g *= comm.size() as f64 / good[0]);\n    replica.update(&gradient);",
                ),
            ],
            taken,
            "good ranks only",
        ),
        (
            [
                (any, "if false {"),
                (
                    update,
                    "gradient[0] += comm.rank() as f64;\n    replica.update(&gradient);",
                ),
            ],
            plain,
            "Without a bad batch",
        ),
    ] {
        let attempt = check("lab08-alone", &changed("lab08-alone", &changes));
        assert!(
            attempt.stuck_at() == claim && attempt.means.contains(means),
            "{changes:?}: {attempt:#?}"
        );
        assert_eq!(attempt.outcome, Outcome::Wrong);
    }
    // The untouched blank shows the library's message: rank 1 has made one call less.
    let attempt = check("lab08-alone", &text("exercises", "lab08-alone"));
    for part in [
        "rank 1 ended, and never entered all_reduce",
        "rank 0  waits in all_reduce",
        "its call 12",
    ] {
        assert!(attempt.printed.contains(part), "{}", attempt.printed);
    }
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab09_gather_are_told_apart() {
    let one = "3 ranks: parameters that one rank holds";
    let two = "a parameter that two ranks share";
    let even = "one that begins and ends with a slice";
    let last = "the last one, with padding behind it";
    let five = "one on five ranks";
    let few = "10 elements, and a rank with only padding";
    let start = "sizes[..wanted].iter().sum();";
    let end = "start + sizes[wanted];";
    let part = "slices.numel();";
    let ranks = "for rank in 0..slices.ranks() {";
    let from_to = "(start.max(begin), end.min(begin + part));";
    let some = "if from < to {";
    let read = "values.extend(slices.read(rank, from - begin..to - begin));";
    let ends = "    }\n    values\n";
    are_told_apart(
        "lab09-gather",
        &[
            // More is read than the parameter.
            mistake(
                some,
                "let all = slices.read(rank, 0..part);\n        if from < to {\n            values.extend(&all[from - begin..to - begin]);\n        }\n        if false {",
                one,
                "you read all 24 elements for a parameter of 5",
            ),
            mistake(
                read,
                "let all = slices.read(rank, 0..part);\n            values.extend(&all[from - begin..to - begin]);",
                one,
                "whole slices of them",
            ),
            mistake(
                read,
                "let some = slices.read(rank, 0..to - begin);\n            values.extend(&some[from - begin..]);",
                one,
                "whole slices of them",
            ),
            mistake(
                some,
                "let to = to.max(from);\n        if begin < end {",
                one,
                "Nothing superfluous is read, but",
            ),
            mistake(
                some,
                "let to = to.max(from);\n        if from <= begin + part {",
                one,
                "Nothing superfluous is read, but",
            ),
            mistake(
                some,
                "if from < to {\n            slices.read(rank, from - begin..to - begin);",
                one,
                "more than the elements",
            ),
            // Wrong places.
            mistake(
                start,
                "sizes[..=wanted].iter().sum();",
                one,
                "begin with parameter 1",
            ),
            mistake(
                read,
                "values.extend(slices.read(rank, from..to));",
                one,
                "these are offsets in the group",
            ),
            mistake(
                read,
                "values.extend(slices.read(rank, start..end));",
                one,
                "these are offsets in the group",
            ),
            mistake(
                part,
                "sizes.iter().sum::<usize>() / slices.ranks();",
                one,
                "slices of 7 elements",
            ),
            mistake(
                part,
                "sizes.iter().sum::<usize>().div_ceil(slices.ranks());",
                few,
                "slices of 3 elements",
            ),
            // Some slices only.
            mistake(
                ranks,
                "for rank in start / part..start / part + 1 {",
                two,
                "goes on where the next slice begins",
            ),
            mistake(
                ranks,
                "for rank in start / part..(start / part + 2).min(slices.ranks()) {",
                five,
                "have read two",
            ),
            mistake(
                some,
                "let ends = [start / part, (end - 1) / part];\n        if from < to && ends.contains(&rank) {",
                five,
                "Those between them",
            ),
            mistake(
                from_to,
                "(start.max(begin), end);",
                one,
                "has nothing of this parameter",
            ),
            mistake(
                from_to,
                "(start.max(begin), if start < begin + part { end } else { 0 });",
                two,
                "The rest of the parameter is on the next rank",
            ),
            mistake(
                ranks,
                "for rank in (0..slices.ranks()).rev() {",
                two,
                "in the wrong order",
            ),
            mistake(
                read,
                "values.extend(slices.read(rank + 1, from - begin..to - begin));",
                one,
                "Compare the offsets",
            ),
            mistake(ranks, "for rank in 0..0 {", one, "Nothing was read"),
            mistake(
                end,
                "start + sizes[wanted] - 1;",
                one,
                "has 5 elements, and you return 4",
            ),
            mistake(
                end,
                "start + sizes[wanted] + 1;",
                one,
                "by elements of the next one",
            ),
            mistake(
                end,
                "if wanted + 1 == sizes.len() { part * slices.ranks() } else { start + sizes[wanted] };",
                last,
                "followed by zeros",
            ),
            mistake(
                ends,
                "    }\n    values.rotate_left(1);\n    values\n",
                one,
                "Compare the offsets",
            ),
            mistake(
                some,
                "if from < to && from > begin {",
                one,
                "Nothing was read",
            ),
            mistake(
                some,
                "if from < to && (from > begin || begin == 0) {",
                two,
                "goes on where the next slice begins",
            ),
            mistake(
                some,
                "if from < to && (from > begin || rank != 1 || wanted != 1) {",
                two,
                "goes on",
            ),
            mistake(
                some,
                "if from < to && to - from < part {",
                even,
                "Nothing was read",
            ),
        ],
    );
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn lucky_repairs_of_lab09_strip_are_told_apart() {
    let ends = "10 numbers on 4 ranks, and the real 768: no error";
    let ten = "10 numbers on 4 ranks: parameters, paddings";
    let control = "12,288 numbers on 48 ranks, nothing to strip";
    let zeros = "9 numbers, the last of them zeros";
    let own = "files with each rank's own padding";
    let push = "paddings.push(padding);";
    let kept = "shard.numbers[..numel - padding]";
    are_told_apart(
        "lab09-strip",
        &[
            // The parameters are right, and the wrong records are passed on.
            mistake(
                push,
                "paddings.push(shard.padding);",
                ten,
                "\"do not strip\"",
            ),
            mistake(
                push,
                "paddings.push(shard.padding.min(numel));",
                ten,
                "are recorded on no rank",
            ),
            mistake(
                push,
                "paddings.push(numel - padding);",
                control,
                "first version of DeepSpeed's own repair",
            ),
            mistake(
                push,
                "paddings.push(((rank + 1) * numel).saturating_sub(data));",
                ten,
                "cannot have more padding",
            ),
            mistake(
                push,
                "paddings.push(shards.len() * numel - data);",
                ten,
                "padding of all ranks together",
            ),
            mistake(push, "paddings.push(0);", ten, "No rank has padding now"),
            mistake(
                push,
                "if padding > 0 { paddings.push(padding); }",
                control,
                "one padding for each rank",
            ),
            mistake(
                push,
                "paddings.push(shard.numbers.iter().rev().take_while(|number| **number == 0.0).count());",
                zeros,
                "parameters can end with zeros",
            ),
            mistake(
                push,
                "paddings.push(if rank + 1 == shards.len() { 0 } else { padding });",
                ten,
                "behind the end",
            ),
            mistake(
                push,
                "paddings.push(if shard.padding == 2 { 0 } else { padding });",
                own,
                "These records are right, and you change them",
            ),
            // The parameters are wrong.
            mistake(
                "Ok(Converted {",
                "parameters.truncate(1);\n    Ok(Converted {",
                control,
                "has 3 parameters, and you return 1",
            ),
            mistake(
                "begin += size;",
                "begin += size / 2;",
                control,
                "the wrong numbers",
            ),
            mistake(
                "Ok(Converted {",
                "for parameter in &mut parameters {\n        while parameter.last() == Some(&0.0) { parameter.pop(); }\n    }\n    Ok(Converted {",
                zeros,
                "Zeros at the end of the last parameter",
            ),
            // An error in place of a repair.
            mistake(
                kept,
                "shard.numbers[..if shard.padding > numel { return Err(format!(\"rank {rank} is damaged\")) } else { numel - padding }]",
                ends,
                "refuses the files",
            ),
        ],
    );
    // The untouched blank fails as the source's converter did, at both sizes.
    let attempt = check("lab09-strip", &text("exercises", "lab09-strip"));
    let rows = &attempt
        .findings
        .iter()
        .find(|finding| finding.holds == Some(false))
        .unwrap()
        .rows;
    let got: Vec<&str> = rows.iter().map(|row| row.got.as_str()).collect();
    assert_eq!(
        got,
        ["4 - 6 = -2", "348 - 1024 = -676"]
            .map(|sum| format!("narrow(): length must be non-negative: {sum}"))
    );
    // Its repairs that change one line.
    for (from, to, means) in [
        (
            "numel.checked_sub(padding).ok_or_else(|| {",
            "Some(numel.saturating_sub(padding)).ok_or_else(|| {",
            "\"do not strip\"",
        ),
        (
            "numel.checked_sub(padding).ok_or_else(|| {",
            "Some(numel).ok_or_else(|| {",
            "\"do not strip\"",
        ),
        (
            "(shard.numbers.len(), shard.padding);",
            "(shard.numbers.len(), shard.padding.min(shard.numbers.len()));",
            "on no rank",
        ),
    ] {
        let attempt = check(
            "lab09-strip",
            &text("exercises", "lab09-strip").replace(from, to),
        );
        assert!(
            attempt.stuck_at() == ten && attempt.means.contains(means),
            "{to}: {attempt:#?}"
        );
    }
}

/// The solution of lab03-schedule with another first line in its function.
fn schedule_with(line: &str) -> String {
    let names = "let Schedule { lr, min_lr, warmup, decay_steps } = *schedule;";
    text("solutions", "lab03-schedule").replace(names, &format!("{names}\n    {line}"))
}

#[test]
fn whatever_the_code_does_is_told() {
    let told = |line: &str, outcome: Outcome, means: &str| {
        let attempt = check("lab03-schedule", &schedule_with(line));
        assert!(
            attempt.outcome == outcome && attempt.means.contains(means),
            "{line}: {attempt:#?}"
        );
        attempt
    };
    let attempt = told(
        "let x: usize = \"no\";",
        Outcome::DoesNotCompile,
        "first message",
    );
    assert!(
        attempt.compiler.contains("lab03_schedule.rs:17:20\n")
            && attempt.compiler.contains("E0308"),
        "{attempt:#?}"
    );
    assert!(attempt.findings.is_empty());
    let attempt = told("fn half_typed(", Outcome::DoesNotCompile, "");
    assert!(
        attempt.compiler.starts_with("error: "),
        "{}",
        attempt.compiler
    );
    let attempt = told("let unused = 1;", Outcome::Solved, "");
    assert!(
        attempt.compiler.contains("unused variable: `unused`"),
        "{}",
        attempt.compiler
    );

    let at = "lab03_schedule.rs:17:5:\n";
    told("todo!();", Outcome::Unfinished, at);
    told(
        "panic!(\"at the disco\");",
        Outcome::Panicked,
        &format!("{at}at the disco"),
    );
    told(
        "let none: [f64; 0] = []; let _ = none[warmup];",
        Outcome::Panicked,
        "index out of bounds",
    );
    // The input with which it happened.
    let given = "\nYour code was called with step 300, warmup 100, decay_steps 500.";
    told("assert!(step != 300);", Outcome::Panicked, given);
    let attempt = told(
        "println!(\"step {step}\"); std::process::exit(0);",
        Outcome::Ended,
        "exit status: 0",
    );
    assert_eq!(
        (attempt.printed.as_str(), attempt.stuck_at()),
        ("step 0\n", attempt.findings[0].claim.as_str())
    );
    // In the second claim.
    let attempt = told(
        "if step > 99 { std::process::abort() }",
        Outcome::Ended,
        "called with step 100, ",
    );
    assert_eq!(
        attempt.findings.iter().map(|f| f.holds).collect::<Vec<_>>()[..3],
        [Some(true), Some(false), None]
    );

    let edge = "let mut incoming";
    let ring =
        text("solutions", "lab01-ring").replacen(edge, &format!("assert!(rank != 2);\n{edge}"), 1);
    let attempt = check("lab01-ring", &ring);
    assert!(
        attempt.means.contains("lab01_ring.rs:16:9, on rank 2:\n"),
        "{}",
        attempt.means
    );

    let flat = "let mut flat = tensors.concat();";
    let partition =
        text("solutions", "lab04-partition").replace(flat, &format!("assert!(rank != 3);\n{flat}"));
    let attempt = check("lab04-partition", &partition);
    let given = "\nYour code was called with rank 3 of 4, and tensors of [6, 4] numbers.";
    assert!(
        attempt.outcome == Outcome::Panicked && attempt.means.ends_with(given),
        "{attempt:#?}"
    );
    // Rank 1's second step: when it panics rank 0 is in its third already, and rank 2 comes there afterwards.
    let done = "parameters.copy_from_slice(&all[..len]);";
    let late = "static CALLS: std::sync::Mutex<usize> = std::sync::Mutex::new(0);
        if n == 3 {
            std::thread::sleep(std::time::Duration::from_millis(50 * rank as u64));
            let mut calls = CALLS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            *calls += usize::from(rank == 1);
            assert!(rank != 1 || *calls < 2);
        }";
    let step = text("solutions", "lab04-zero-step").replace(done, &format!("{done}\n{late}"));
    let attempt = check("lab04-zero-step", &step);
    let given = "\nYour code was called with rank 1 of 3, and 10 parameters, at step 1.";
    assert!(
        attempt.means.contains(", on rank 1:\n") && attempt.means.ends_with(given),
        "{attempt:#?}"
    );

    let renamed =
        text("solutions", "lab03-schedule").replace("pub fn learning_rate", "pub fn rate");
    let attempt = check("lab03-schedule", &renamed);
    assert_eq!(attempt.outcome, Outcome::DoesNotFit);
    assert!(
        attempt
            .compiler
            .contains("labs/lab03/checks/lab03_schedule.rs"),
        "{}",
        attempt.compiler
    );
}

#[test]
fn what_never_ends_is_ended() {
    for (line, means, given) in [
        ("loop {}", "It was still computing", "called with step 0, "),
        (
            "loop { std::thread::park() }",
            "what does your code wait for",
            "called with step 0, ",
        ),
        (
            "{ #[allow(long_running_const_eval)] const N: f64 = loop {}; N }",
            "The compiler was still computing after 5 s",
            "does a constant loop",
        ),
    ] {
        let my = tempfile::tempdir().unwrap();
        std::fs::write(my.path().join("lab03_schedule.rs"), schedule_with(line)).unwrap();
        let start = Instant::now();
        let mut command = command(my.path(), "check lab03-schedule --json");
        let output = command.env("SHARDLAB_CHECK_SECONDS", "1").output().unwrap();
        // Only a hang reaches this bound.
        assert!(start.elapsed() < Duration::from_secs(600));
        assert_eq!(output.status.code(), Some(1));
        let document: Document = serde_json::from_str(&stdout(&output)).unwrap();
        let attempt = document
            .exercises
            .into_iter()
            .find_map(|entry| entry.check)
            .unwrap();
        assert_eq!(attempt.outcome, Outcome::Endless);
        for part in [means, given] {
            assert!(attempt.means.contains(part), "{}", attempt.means);
        }
    }
}

#[test]
fn ranks_that_wait_for_each_other_are_told_at_once() {
    let solution = text("solutions", "lab02-average");
    let reduce = "    comm.all_reduce(gradients, Reduce::Mean)?;";
    let attempt = check(
        "lab02-average",
        &solution.replace(reduce, &format!("if comm.rank() == 0 {{\n{reduce}\n}}")),
    );
    assert_eq!(
        (attempt.outcome, attempt.stuck_at()),
        (
            Outcome::Failed,
            "4 ranks, 1 micro-batch: the mean over ranks"
        )
    );
    for part in [
        "never entered all_reduce",
        "lab02_average.rs:",
        "rank 0  waits in",
        "help: ",
    ] {
        assert!(
            attempt.means.contains(part),
            "{part:?} is missing in\n{}",
            attempt.means
        );
    }
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab10_intensity_are_told_apart() {
    let prefill = "a prefill";
    let decode = "a decode step";
    let flops = "2 * parameters * batch * new,";
    let weights = "bytes: 2 * parameters +";
    let cached = "batch * (earlier + new) * cache";
    are_told_apart(
        "lab10-intensity",
        &[
            mistake(
                flops,
                "6 * parameters * batch * new,",
                prefill,
                "a training step",
            ),
            mistake(flops, "parameters * batch * new,", prefill, "are 2 FLOPs"),
            mistake(
                flops,
                "2 * parameters * new,",
                prefill,
                "FLOPs of one sequence",
            ),
            mistake(
                flops,
                "2 * parameters * batch,",
                prefill,
                "one token per sequence",
            ),
            mistake(
                flops,
                "2 * parameters * batch * (new + earlier),",
                decode,
                "computed once more",
            ),
            mistake(
                weights,
                "bytes: batch * 2 * parameters +",
                prefill,
                "once per sequence here",
            ),
            mistake(
                weights,
                "bytes: batch * new * 2 * parameters +",
                prefill,
                "once per token here",
            ),
            mistake(
                weights,
                "bytes: 4 * parameters +",
                prefill,
                "2 bytes here, not 4",
            ),
            mistake(weights, "bytes: parameters +", prefill, "2 bytes, not 1"),
            mistake(
                cached,
                "0 * (batch + earlier + new + cache)",
                prefill,
                "of the new tokens is missing",
            ),
            mistake(
                cached,
                "(earlier + new) * cache",
                prefill,
                "each has its own cache",
            ),
            mistake(
                cached,
                "batch * earlier * cache",
                prefill,
                "of the new tokens is missing",
            ),
            mistake(
                cached,
                "batch * new * cache",
                decode,
                "read for all earlier ones",
            ),
        ],
    );
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab10_heads_are_told_apart() {
    let first = "the query heads of each rank";
    let second = "the key and value heads that they read";
    let copies = "more ranks than key and value heads";
    let cached = "the cache of a rank";
    let copied = "the cache of ranks that hold copies";
    let queries = "let queries = rank * each..(rank + 1) * each;";
    let keys = "queries.start / group..(queries.end - 1) / group + 1";
    let count = "keys.len() * width";
    let bytes = "2 * 2 * tokens * layers *";
    are_told_apart(
        "lab10-heads",
        &[
            mistake(
                queries,
                "let queries = rank * 0 * each..heads;",
                first,
                "nothing is divided",
            ),
            mistake(
                "heads / ranks, heads",
                "kv_heads / ranks, heads",
                first,
                "divides the key and value heads",
            ),
            mistake(
                queries,
                "let queries = rank..rank + each;",
                first,
                "next heads / ranks",
            ),
            mistake(
                keys,
                "queries.start..queries.end + 0 * group",
                second,
                "multi-head attention",
            ),
            mistake(keys, "0 * group..kv_heads", second, "Every rank holds all"),
            mistake(
                keys,
                "queries.start / group..queries.start / group + 1",
                second,
                "lacks a key and value head",
            ),
            mistake(
                keys,
                "queries.start / group..queries.end / group + 1",
                second,
                "and no more",
            ),
            mistake(
                keys,
                "queries.start / group..queries.end / group",
                copies,
                "nothing to read",
            ),
            mistake(
                keys,
                "if ranks > kv_heads { rank % kv_heads..rank % kv_heads + 1 } else { \
                 queries.start / group..queries.end / group }",
                copies,
                "of the same group",
            ),
            mistake(bytes, "2 * tokens * layers *", cached, "Half the bytes"),
            mistake(
                bytes,
                "2 * 2 * tokens * 1.min(layers) *",
                cached,
                "one layer's cache",
            ),
            mistake(count, "queries.len() * width", cached, "all query heads"),
            mistake(count, "kv_heads * width", cached, "on every rank"),
            mistake(count, "kv_heads * width / ranks", copied, "part of a head"),
            mistake(
                count,
                "(kv_heads / ranks) * width",
                copied,
                "as many bytes as a head",
            ),
        ],
    );
}

/// What a reader sees from the first command to the last.
#[test]
fn a_reader_goes_through_an_exercise() {
    let my = tempfile::tempdir().unwrap();
    let my = &my.path().join("made/when/needed");
    let all = course().exercises().count();
    let map = succeeded(&workbook(my, ""));
    assert!(
        map.contains(&format!("0 of {all} exercises solved"))
            && map.contains("next     lab01-ring"),
        "{map}"
    );
    assert!(!my.exists(), "looking changes nothing");

    // Optional, and left out of the main path; next all the same once it is begun.
    let first = workbook(my, "check lab00");
    assert_eq!(first.status.code(), Some(1));
    let file = my.join("lab00_hostfile.rs");
    let blank = std::fs::read_to_string(&file).expect("a copy of the blank");
    assert_eq!(blank, text("exercises", "lab00-hostfile"));
    for part in [
        "✗",
        "Write your code here",
        "lab00_hostfile.rs:30:5",
        "then     so do MPICH's",
        "there are 4",
    ] {
        assert!(
            stdout(&first).contains(part),
            "{part:?} is missing in\n{}",
            stdout(&first)
        );
    }

    let hint = succeeded(&workbook(my, "hint"));
    assert!(
        hint.contains("hint 1 of 4") && !hint.contains("The idea"),
        "{hint}"
    );
    succeeded(&workbook(my, "hint lab00"));

    let wrong =
        text("solutions", "lab00-hostfile").replace("let local_rank =", "let local_rank = 1 +");
    std::fs::write(&file, wrong).unwrap();
    let text_of_check = stdout(&workbook(my, "check lab00"));
    let row = "  rank 1, on nid7  node 0, local rank 1  node 0, local rank 2 ✗\n";
    assert!(text_of_check.contains(row), "{text_of_check}");
    // The same version again is not another try.
    workbook(my, "check lab00");
    std::fs::write(&file, text("solutions", "lab00-hostfile")).unwrap();
    let solved = succeeded(&workbook(my, "check lab00_hostfile.rs"));
    assert!(
        solved.contains("solved   after 2 tries, with 2 hints"),
        "{solved}"
    );
    let second = course().exercises().nth(1).unwrap().name.clone();
    assert!(solved.contains(&format!("next     {second}")), "{solved}");
    let map = succeeded(&workbook(my, ""));
    assert!(
        map.contains(&format!("1 of {all} exercises solved"))
            && map.contains(&format!("next     {second}")),
        "{map}"
    );

    let reset = succeeded(&workbook(my, "reset lab00"));
    assert!(reset.contains("old/lab00_hostfile.rs"), "{reset}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), blank);
    assert_eq!(
        std::fs::read_to_string(my.join("old/lab00_hostfile.rs")).unwrap(),
        text("solutions", "lab00-hostfile")
    );
    assert!(succeeded(&workbook(my, "")).contains(&format!("0 of {all} exercises solved")));
}

#[test]
fn the_map_keeps_the_best_figures() {
    let my = folder_of("solutions");
    let solution = text("solutions", "lab02-average");
    let file = my.path().join("lab02_average.rs");
    let twice = "comm.all_reduce(gradients, Reduce::Mean)?;";
    std::fs::write(&file, solution.replace(twice, &twice.repeat(2))).unwrap();
    let told = succeeded(&workbook(my.path(), "check lab02-average"));
    assert!(
        told.contains("yours 12,288, target 6,144\n")
            && told.contains("a smaller figure is possible")
            && !told.contains("no_sync"),
        "{told}"
    );
    assert!(stdout(&workbook(my.path(), "")).contains("best 12,288, target 6,144\n"));
    for version in [solution.clone(), solution.replace(twice, &twice.repeat(3))] {
        std::fs::write(&file, version).unwrap();
        succeeded(&workbook(my.path(), "check lab02-average"));
    }
    let map = stdout(&workbook(my.path(), ""));
    assert!(map.contains("best 6,144, target 6,144 ✓\n"), "{map}");
    std::fs::write(&file, "half typed").unwrap();
    let map = stdout(&workbook(my.path(), ""));
    assert!(
        map.contains("solved, changed since") && map.contains("1 of"),
        "{map}"
    );
}

/// However long a title is, what is told at the end of its line stays apart from it.
#[test]
fn the_maps_columns_do_not_run_together() {
    let my = tempfile::tempdir().unwrap();
    let file = my.path().join("lab03_accum.rs");
    std::fs::write(&file, text("solutions", "lab03-accum")).unwrap();
    succeeded(&workbook(my.path(), "check lab03-accum"));
    std::fs::write(&file, "half typed").unwrap();
    let map = stdout(&workbook(my.path(), ""));
    assert!(map.contains("…  solved, changed since\n"), "{map}");
    assert!(map.lines().all(|line| line.chars().count() <= 80), "{map}");
}

/// What is broken on purpose shows what people saw; its cause comes with the first change.
#[test]
fn a_symptom_comes_before_its_cause() {
    let my = tempfile::tempdir().unwrap();
    let untouched = stdout(&workbook(my.path(), "check lab03-accum"));
    assert!(
        untouched.contains("This is the symptom") && untouched.contains("grad_norm"),
        "{untouched}"
    );
    assert!(!untouched.contains("times too small"), "{untouched}");
    let blank = text("exercises", "lab03-accum");
    std::fs::write(
        my.path().join("lab03_accum.rs"),
        blank + "\n// I have looked at it.\n",
    )
    .unwrap();
    let changed = stdout(&workbook(my.path(), "check lab03-accum"));
    assert!(
        changed.contains("4 times too small") && !changed.contains("This is the symptom"),
        "{changed}"
    );
}

#[test]
fn a_solution_comes_after_the_hints_or_with_the_readers_own() {
    let my = tempfile::tempdir().unwrap();
    let ours = text("solutions", "lab02-average");
    failed(
        &workbook(my.path(), "solution lab02"),
        2,
        "the solution of lab02-average comes after its hints: 4 are left",
    );
    (0..3).for_each(|_| drop(succeeded(&workbook(my.path(), "hint lab02-average"))));
    failed(
        &workbook(my.path(), "solution lab02"),
        2,
        "the solution of lab02-average comes after its hints: 1 is left",
    );
    let last = succeeded(&workbook(my.path(), "hint lab02-average"));
    assert!(
        last.contains("workbook solution lab02-average") || last.contains("solution lab02-average"),
        "{last}"
    );
    let shown = succeeded(&workbook(my.path(), "solution lab02"));
    assert!(
        shown.contains("labs/lab02/solutions/lab02_average.rs") && shown.contains(ours.trim_end()),
        "{shown}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&succeeded(&workbook(my.path(), "solution lab02 --json"))).unwrap();
    assert!(json["solution"].as_str().unwrap().contains(ours.trim_end()));

    std::fs::write(my.path().join("lab02_average.rs"), &ours).unwrap();
    succeeded(&workbook(my.path(), "reset lab02-average"));
    std::fs::write(my.path().join("lab02_average.rs"), &ours).unwrap();
    let solved = succeeded(&workbook(my.path(), "check lab02-average"));
    assert!(
        solved.contains("no_sync") && solved.contains("solution lab02-average"),
        "{solved}"
    );
    succeeded(&workbook(my.path(), "solution lab02-average"));
}

/// `lab02` alone is what comes next there.
#[test]
fn a_labs_name_is_its_next_exercise() {
    let my = tempfile::tempdir().unwrap();
    let first = course()
        .labs
        .iter()
        .find(|lab| lab.name == "lab03")
        .unwrap()
        .exercises[0]
        .clone();
    let begun = stdout(&workbook(my.path(), "check lab03"));
    assert!(begun.starts_with(&format!("{} ", first.name)), "{begun}");
    std::fs::copy(
        of_lab("solutions", &first.file()),
        my.path().join(first.file()),
    )
    .unwrap();
    succeeded(&workbook(my.path(), "check lab03"));
    let next = succeeded(&workbook(my.path(), "hint lab03"));
    assert!(
        next.starts_with("lab03-") && !next.starts_with(&first.name),
        "{next}"
    );
}

#[test]
fn bad_input_is_refused() {
    let my = tempfile::tempdir().unwrap();
    let my = my.path();
    failed(
        &workbook(my, "check lab99"),
        2,
        "no exercise is named \"lab99\"\nhelp: the exercises are lab00-hostfile",
    );
    failed(
        &workbook(my, "reset lab03"),
        2,
        &format!("{} exercises begin with \"lab03\"", count_of("lab03")),
    );
    failed(
        &workbook(my, "watch --json"),
        2,
        "--json prints one document, and watch goes on",
    );
    failed(
        &workbook(my, "report no/such/folder"),
        2,
        "no reports in no/such/folder",
    );
    failed(
        &workbook(my, &format!("report {}", my.display())),
        2,
        "no reports in",
    );
    let seconds = command(my, "check lab00")
        .env("SHARDLAB_CHECK_SECONDS", "0")
        .output()
        .unwrap();
    failed(
        &seconds,
        2,
        "SHARDLAB_CHECK_SECONDS=0 is not a number of seconds",
    );
    let rustc = command(my, "check lab00")
        .env("RUSTC", "no-such-compiler")
        .output()
        .unwrap();
    failed(&rustc, 2, "cannot start no-such-compiler");
    // A folder that cannot be written, whoever asks.
    std::fs::write(my.join("file"), "").unwrap();
    for (flags, what) in [("check lab00-h", "cannot write"), ("", "cannot read")] {
        let output = workbook(&my.join("file"), flags);
        failed(&output, 2, what);
        assert!(
            stderr(&output)
                .contains("help: choose a folder for your exercises:  export SHARDLAB_MY=")
        );
    }
    std::fs::write(my.join("progress.json"), "{").unwrap();
    failed(
        &workbook(my, ""),
        2,
        &format!(
            "{} is not what the workbook wrote",
            my.join("progress.json").display()
        ),
    );
}

fn count_of(lab: &str) -> usize {
    course()
        .exercises()
        .filter(|exercise| exercise.name.starts_with(lab))
        .count()
}

/// Another checkout with the same exercises, without anything compiled: `folder` in it.
#[test]
fn the_checkout_around_the_reader_is_the_one_that_counts() {
    let checkout = tempfile::tempdir().unwrap();
    let copy = |file: PathBuf| {
        let to = checkout.path().join(file.strip_prefix(ROOT).unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(file, to).unwrap();
    };
    std::fs::create_dir_all(checkout.path().join("src/comm")).unwrap();
    copy(root("labs/labs.toml"));
    for exercise in course().exercises() {
        copy(of_lab("exercises", &exercise.file()));
        copy(of_lab("checks", &exercise.file()));
    }
    let mut command = Command::new(program("workbook"));
    command
        .args(["check", "lab03-schedule"])
        .current_dir(checkout.path().join("src/comm"))
        .env_remove("SHARDLAB_MY");
    let output = command.output().unwrap();
    let text = stdout(&output);
    assert!(
        text.contains("../../my/lab03_schedule.rs:24:5:"),
        "{text}\n{}",
        stderr(&output)
    );
    assert!(checkout.path().join("my/lab03_schedule.rs").is_file());
    // A program far from what it was compiled with cannot check.
    let far = checkout.path().join("workbook");
    std::fs::copy(program("workbook"), &far).unwrap();
    let output = Command::new(far)
        .args(["check", "lab03-schedule"])
        .current_dir(checkout.path())
        .output()
        .unwrap();
    failed(&output, 2, "the compiled library is not near");
}

#[test]
fn screens_stay_within_80_columns_and_ascii_means_ascii() {
    let blanks = folder_of("exercises");
    let solutions = folder_of("solutions");
    for (my, flags) in [
        (&blanks, "check all --ascii"),
        (&blanks, "--ascii"),
        (&blanks, "hint lab02-average --ascii"),
        (&blanks, "hint lab02-average"),
        (&solutions, "check all"),
        (&solutions, ""),
    ] {
        // Paths are as long as the reader's own.
        let text =
            stdout(&workbook(my.path(), flags)).replace(&my.path().display().to_string(), "my");
        assert!(!text.contains('\x1b') && text.lines().count() > 3);
        for line in text.lines().filter(|line| !line.contains("workbook ")) {
            assert!(line.chars().count() <= 80, "wider than 80: {line}");
        }
        if flags.contains("--ascii") {
            assert!(
                text.is_ascii(),
                "{:?}",
                text.lines().find(|line| !line.is_ascii())
            );
        }
    }
}

#[test]
fn a_host_sees_who_is_stuck_where() {
    let reports = tempfile::tempdir().unwrap();
    let report = |name: &str, user: &str, my: &Path| {
        let output = command(my, "--json").env("USER", user).output().unwrap();
        std::fs::write(reports.path().join(format!("{name}.json")), output.stdout).unwrap();
    };
    let ada = folder_of("solutions");
    let grace = folder_of("solutions");
    let nobody = tempfile::tempdir().unwrap();
    for (my, exercise) in [(&ada, "lab00-h"), (&ada, "lab03-s"), (&grace, "lab00-h")] {
        succeeded(&workbook(my.path(), &format!("check {exercise}")));
    }
    let one_seed = text("solutions", "lab03-batches").replace(".branch(rank as u64)", "");
    std::fs::write(grace.path().join("lab03_batches.rs"), one_seed).unwrap();
    workbook(grace.path(), "check lab03-batches");
    workbook(grace.path(), "hint lab03-batches");
    // As where the shell knows no $USER.
    report("", "ada", ada.path());
    report("2", "grace", grace.path());
    // Two people who are the same user to the system are told apart by their files.
    report("seat-3", "root", nobody.path());
    report("seat-4", "root", nobody.path());
    std::fs::write(reports.path().join("broken.json"), "{").unwrap();
    std::fs::write(reports.path().join("notes.txt"), "no report").unwrap();

    let all = course().exercises().count();
    let text = succeeded(&workbook(
        reports.path(),
        &format!("report {}", reports.path().display()),
    ));
    let line = |who: &str| {
        text.lines()
            .find(|line| line.trim_start().starts_with(who))
            .unwrap_or_default()
            .to_string()
    };
    let second = course().exercises().nth(1).unwrap().name.clone();
    assert!(
        line("ada ").contains(&format!("2 of {all}  {second:<14}  not checked yet")),
        "{text}"
    );
    let grace = line("grace ");
    assert!(
        grace.contains(&format!("1 of {all}  lab03-batches")) && grace.ends_with("1      1  0 min"),
        "{text}"
    );
    assert!(
        text.contains("every rank draws") && line("lab03-batches").contains("1: every rank draws"),
        "{text}"
    );
    assert!(
        line("lab00-hostfile")
            .split_whitespace()
            .take(2)
            .eq(["lab00-hostfile", "2"]),
        "{text}"
    );
    assert!(
        line("seat-3").contains("not checked yet") && !line("seat-4").is_empty(),
        "{text}"
    );
    let order = ["seat-3", "grace", "ada"].map(|who| text.find(who).unwrap());
    assert!(order.is_sorted(), "those who need help first:\n{text}");
    assert!(
        text.contains("not read") && text.contains("broken.json"),
        "{text}"
    );
    assert!(
        text.lines()
            .all(|line| line.chars().count() <= 80 || line.contains(".json")),
        "{text}"
    );
    assert!(
        text.contains("broken.json") && !text.contains("pipe"),
        "{text}"
    );
    let json = succeeded(&workbook(
        reports.path(),
        &format!("report {} --json", reports.path().display()),
    ));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json["documents"]["grace"]["exercises"]
            .as_array()
            .unwrap()
            .len(),
        all
    );
}

/// Everyone may write into the folder of reports: what they write reaches the host's terminal as text, and hangs nothing.
#[cfg(target_os = "linux")]
#[test]
fn a_hostile_report_does_nothing_to_the_host() {
    let reports = tempfile::tempdir().unwrap();
    let my = tempfile::tempdir().unwrap();
    let at = |name: &str| reports.path().join(name);
    let bad = "bob\u{1b}]0;OWNED\u{7}\u{1b}[2J\r\u{9b}\u{202e}\nx";
    let output = command(my.path(), "--json")
        .env("USER", bad)
        .output()
        .unwrap();
    let mut document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (i, key) in [(0, "name"), (1, "stuck_at")] {
        document["exercises"][i][key] = bad.into();
        document["exercises"][1]["outcome"] = "wrong".into();
        document["exercises"][1]["when"] = 1.into();
    }
    std::fs::write(at(&format!("{bad}.json")), document.to_string()).unwrap();
    document["version"] = bad.into();
    std::fs::write(at(&format!("not {bad}.json")), document.to_string()).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(at("pipe.json"))
            .status()
            .unwrap()
            .success()
    );
    std::os::unix::fs::symlink("/dev/zero", at("zero.json")).unwrap();
    std::fs::File::create(at("large.json"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();

    let mut report = command(my.path(), &format!("report {}", reports.path().display()));
    let text = succeeded(&soon(&mut report));
    let harmful = |c: &char| *c != '\n' && (c.is_control() || *c == '\u{202e}');
    assert_eq!(text.chars().find(harmful), None, "{text:?}");
    let joined: String = text.split_whitespace().collect();
    assert!(
        joined.contains("bob\\u{1b}]0;OWNED\\u{7}\\u{1b}[2J\\r\\u{9b}\\u{202e}\\nx"),
        "{text}"
    );
    for why in [
        "no regular file but a pipe",
        "no regular file but a device",
        "at most 67108864 are expected",
    ] {
        assert!(
            text.split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .contains(why),
            "{why}: {text}"
        );
    }
}

/// What an exercise has started ends with its check, also where Ctrl-C ends the workbook.
#[cfg(target_os = "linux")]
#[test]
fn an_exercises_processes_end_with_its_check() {
    let asleep = |seconds: &str| {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let words =
            processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        words
            .filter(|words| *words == format!("sleep\0{seconds}\0").as_bytes())
            .count()
    };
    let start = |seconds: &str| {
        format!(
            "if step == 0 {{
                for program in [\"exec\", \"exec setsid\"] {{
                    let line = format!(\"{{program}} sleep {seconds} >/dev/null 2>&1\");
                    std::process::Command::new(\"sh\").args([\"-c\", &line]).spawn().unwrap();
                }}
                std::thread::sleep(std::time::Duration::from_millis(500));
            }}"
        )
    };
    let attempt = check("lab03-schedule", &schedule_with(&start("72221")));
    assert_eq!(
        (attempt.outcome, asleep("72221")),
        (Outcome::Solved, 0),
        "{attempt:#?}"
    );

    let my = tempfile::tempdir().unwrap();
    let endless = format!("{} loop {{}}", start("72222"));
    std::fs::write(my.path().join("lab03_schedule.rs"), schedule_with(&endless)).unwrap();
    let mut checks =
        crate::suite::program::interruptible(&mut command(my.path(), "check lab03-schedule"))
            .spawn()
            .unwrap();
    let begun = Instant::now();
    while asleep("72222") < 2 {
        assert!(
            begun.elapsed().as_secs() < 60 && checks.try_wait().unwrap().is_none(),
            "they have not begun"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(
        Command::new("kill")
            .args(["-INT", &checks.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let status = checks.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(2),
        "{status}"
    );
    assert_eq!(asleep("72222"), 0);
}

/// A panic's message is text.
#[test]
fn a_message_does_nothing_to_the_terminal() {
    let bad = "panic!(\"\\u{1b}]0;owned\\u{7}\\u{9b}\\u{202e}\");";
    let attempt = check("lab03-schedule", &schedule_with(bad));
    assert_eq!(attempt.outcome, Outcome::Panicked);
    assert!(
        attempt
            .means
            .contains("\\u{1b}]0;owned\\u{7}\\u{9b}\\u{202e}"),
        "{}",
        attempt.means
    );
    let my = tempfile::tempdir().unwrap();
    std::fs::write(my.path().join("lab03_schedule.rs"), schedule_with(bad)).unwrap();
    let output = workbook(my.path(), "check lab03-schedule");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("owned") && !text.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']),
        "{text:?}"
    );
}

#[test]
fn watching_checks_what_is_saved() {
    use std::io::{BufRead, BufReader};
    let my = tempfile::tempdir().unwrap();
    /// Ends with the test, whatever its end.
    struct Running(std::process::Child);
    impl Drop for Running {
        fn drop(&mut self) {
            self.0
                .kill()
                .and_then(|()| self.0.wait())
                .expect("it was running");
        }
    }
    let mut command = command(my.path(), "watch lab03-schedule");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = Running(command.spawn().unwrap());
    let (send, lines) = std::sync::mpsc::channel();
    let out = BufReader::new(child.0.stdout.take().unwrap());
    std::thread::spawn(move || {
        out.lines()
            .map_while(Result::ok)
            .try_for_each(|line| send.send(line))
    });
    // Only a hang reaches this bound.
    let wait_for = |what: &str| {
        while !lines
            .recv_timeout(Duration::from_secs(60))
            .unwrap_or_else(|_| panic!("no {what:?}"))
            .contains(what)
        {}
    };
    wait_for("Write your code here");
    wait_for("watching: save a file");
    let write = |name: &str, text: &str| std::fs::write(my.path().join(name), text).unwrap();
    write("lab03_schedule.rs", &schedule_with("half typed"));
    wait_for("error: ");
    wait_for("watching: save a file");
    // Editors that write another file and rename it.
    write("lab03_schedule.rs~", &schedule_with(""));
    std::fs::rename(
        my.path().join("lab03_schedule.rs~"),
        my.path().join("lab03_schedule.rs"),
    )
    .unwrap();
    wait_for("solved   after 2 tries");
    wait_for("now edit");
    wait_for("watching: save a file");
    assert!(
        my.path().join("lab01_ring.rs").is_file(),
        "the next one lies ready"
    );
    write("lab02_average.rs", &text("solutions", "lab02-average"));
    wait_for("lab02-average · ");
    wait_for("solved   after 1 try");
}

/// Whatever stands in the reader's folder: git does not see it, and no target of the package is made from it.
#[test]
fn the_readers_folder_is_the_readers_own() {
    let my = root("my");
    let cargo = std::env::var_os("CARGO").unwrap();
    let words = [
        "metadata",
        "--no-deps",
        "--offline",
        "--format-version",
        "1",
    ];
    let output = Command::new(cargo)
        .args(words)
        .current_dir(ROOT)
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_str(&succeeded(&output)).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let targets: Vec<_> = packages
        .iter()
        .flat_map(|package| package["targets"].as_array().unwrap())
        .collect();
    assert!(targets.len() > 30, "{}", targets.len());
    for target in targets {
        let source = Path::new(target["src_path"].as_str().unwrap());
        assert!(!source.starts_with(&my), "{}", source.display());
    }
    if root(".git").exists() {
        let ignored = Command::new("git")
            .args(["check-ignore", "my/lab03_batches.rs"])
            .current_dir(ROOT)
            .output()
            .unwrap();
        assert_eq!(stdout(&ignored), "my/lab03_batches.rs\n");
    }
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn mistakes_in_lab11_memory_are_told_apart() {
    let one = "1.3 billion parameters on one rank";
    let axes = "tensor and pipeline ranks divide them";
    let zero = "ZeRO's stages on 8 data ranks";
    let three = "ZeRO-1 in three dimensions";
    let held = "parameters / (tensor * pipeline)";
    let shares = "share(3), 4.0 * held / share(2), 12.0 * held / share(1)";
    let flying = "pipeline.min(micro_batches)";
    let share = "zero >= from { data }";
    are_told_apart(
        "lab11-memory",
        &[
            mistake(held, "parameters", axes, "holds the whole model"),
            mistake(
                held,
                "parameters / (tensor * pipeline * data)",
                axes,
                "divides by all devices",
            ),
            mistake(
                share,
                "zero >= from { data * tensor * pipeline }",
                three,
                "divides by all devices",
            ),
            mistake(
                share,
                "zero > 9 + from { data }",
                zero,
                "ZeRO changes nothing",
            ),
            mistake(
                shares,
                "share(1), 4.0 * held / share(1), 12.0 * held / share(1)",
                zero,
                "12 bytes alone",
            ),
            mistake(
                shares,
                "share(1), 4.0 * held / share(2), 12.0 * held / share(3)",
                zero,
                "The order is different",
            ),
            mistake("4.0 * held", "2.0 * held", one, "16 bytes"),
            mistake(flying, "1.0", axes, "One micro-batch is counted"),
            mistake(flying, "micro_batches", one, "this is GPipe"),
            mistake(
                flying,
                "pipeline",
                "fewer micro-batches than stages",
                "more micro-batches in flight",
            ),
            mistake(
                "in_flight * layers / pipeline * layer",
                "in_flight * layers * layer",
                axes,
                "only its own layers",
            ),
            mistake(
                "tokens * width / tensor;",
                "tokens * width;",
                axes,
                "divide the activations, too",
            ),
            mistake(
                "if recompute { 2.0 } else { 34.0 }",
                "34.0",
                "with recomputation",
                "its input alone",
            ),
        ],
    );
}

#[test]
#[ignore = "compiles some fifty programs: the gate runs it, and whoever changes a check should"]
fn weak_plans_of_lab11_choose_are_told_apart() {
    let first = "team 1: 8 billion parameters on one node";
    let second = "team 2: 70 billion on slow links";
    let third = "team 3: 175 billion on 1,024 devices";
    let one = "\"dp=8,zero=3\"";
    let two = "\"dp=4,tp=4,pp=4,zero=1,sp\"";
    let three = "\"dp=16,tp=4,pp=16,chunks=3,zero=1,sp\"";
    are_told_apart(
        "lab11-choose",
        &[
            mistake(one, "\"dp=8\"", first, "It does not fit"),
            mistake(one, "\"dp=4,zero=3\"", first, "dp=8 uses all 8 devices"),
            mistake(
                one,
                "\"dp=8,zero=3,recompute=full\"",
                first,
                "Every layer is computed again",
            ),
            mistake(
                one,
                "\"tp=8,sp\"",
                first,
                "Ranks wait for tensor parallelism",
            ),
            mistake(one, "\"dp=eight\"", first, "no whole number"),
            mistake(
                two,
                "\"dp=64,zero=3,recompute=full\"",
                second,
                "Ranks wait for parameters",
            ),
            mistake(
                three,
                "\"dp=8,tp=4,pp=32,zero=1,sp\"",
                third,
                "The pipeline waits",
            ),
            mistake(
                three,
                "\"dp=8,tp=16,pp=8,zero=1,sp\"",
                third,
                "leave their node",
            ),
        ],
    );
}
