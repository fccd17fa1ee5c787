//! The workbook as its readers use it: every blank, every answer, the mistakes that checks must
//! tell apart, the commands.

mod mistakes;

#[cfg(target_os = "linux")]
use crate::suite::program::soon;
use crate::suite::program::{ROOT, failed, is_narrow, program, stderr, stdout, succeeded};
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
    let lab = file.split('_').next().unwrap_or_default();
    root("labs").join(lab).join(folder).join(file)
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
    std::fs::write(my.path().join(format!("{}.rs", exercise.replace('-', "_"))), code).unwrap();
    let (document, success) = document(my.path(), &format!("check {exercise}"));
    let attempt = document.exercises.into_iter().find_map(|entry| entry.check).expect("a check");
    assert_eq!(success, attempt.outcome == Outcome::Solved);
    attempt
}

/// The solution of an exercise, with one change.
#[track_caller]
fn solution_with(exercise: &str, from: &str, to: &str) -> String {
    mistakes::edited(&text("solutions", exercise), from, to).unwrap()
}

/// The line and the column of a part of some code, as a panic names them.
fn place(code: &str, part: &str) -> String {
    let before = &code[..code.find(part).expect(part)];
    let column = before.len() - before.rfind('\n').map_or(0, |end| end + 1);
    format!("{}:{}", before.matches('\n').count() + 1, column + 1)
}

/// A reader's folder that holds all files of one of the course's folders.
fn folder_of(files: &str) -> tempfile::TempDir {
    let my = tempfile::tempdir().unwrap();
    for exercise in course().exercises() {
        std::fs::copy(of_lab(files, &exercise.file()), my.path().join(exercise.file())).unwrap();
    }
    my
}

#[test]
#[ignore = "compiles every exercise: the gate runs it; run it when you change one"]
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
#[ignore = "compiles every exercise: the gate runs it; run it when you change one"]
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

/// An exercise and its solution are one file up to its blanks, or up to the planted fault: places
/// inside a function or an `impl`. The exercise also has its task, after the first line, and the
/// solution may have further items and imports.
#[test]
fn an_exercise_is_its_solution_but_for_its_blanks() {
    for exercise in course().exercises() {
        let name = &exercise.name;
        let given = text("exercises", name);
        let solved = text("solutions", name);
        assert_eq!(given.lines().next(), solved.lines().next(), "{name}");
        let [given, solved] = [&given, &solved].map(|text| code_of(text));
        let todos = given.iter().filter(|line| line.contains("todo!(")).count();
        assert_eq!(todos > 0, !exercise.broken, "{name}");

        // What begins in the first column is an item or its end, and both files have it. Lines
        // inside of items may differ from there to the item's end.
        let mut solved = solved.iter();
        let mut places = 0;
        let mut differs = false;
        for line in &given {
            let inside = line.is_empty() || line.starts_with(' ');
            if inside && differs {
                continue;
            }
            let rest = solved.clone();
            if solved.next() == Some(line) {
                differs = false;
                continue;
            }
            solved = rest;
            if inside {
                (places, differs) = (places + 1, true);
                continue;
            }
            assert!(
                solved.any(|found| found == line),
                "{name}: given, and not in the solution: {line}"
            );
            differs = false;
        }
        assert!((1..=todos.max(1)).contains(&places), "{name}: {places} places differ");
    }
}

/// The lines of an exercise's file without its task and the standard library's imports.
fn code_of(text: &str) -> Vec<&str> {
    let code = text
        .lines()
        .skip_while(|line| line.starts_with("//!"))
        .filter(|line| !line.starts_with("use std::"));
    code.skip_while(|line| line.is_empty()).collect()
}

/// The solution of lab03-schedule with another first line in its function.
fn schedule_with(line: &str) -> String {
    let names = "let Schedule { lr, min_lr, warmup, decay_steps } = *schedule;";
    solution_with("lab03-schedule", names, &format!("{names}\n    {line}"))
}

#[test]
#[ignore = "compiles many programs: the gate runs it; run it when you change how checks are run"]
fn whatever_the_code_does_is_told() {
    let told = |line: &str, outcome: Outcome, means: &str| {
        let attempt = check("lab03-schedule", &schedule_with(line));
        assert!(
            attempt.outcome == outcome && attempt.means.contains(means),
            "{line}: {attempt:#?}"
        );
        attempt
    };
    let attempt = told("let x: usize = \"no\";", Outcome::DoesNotCompile, "first message");
    assert!(
        attempt.compiler.contains("lab03_schedule.rs:17:20\n")
            && attempt.compiler.contains("E0308"),
        "{attempt:#?}"
    );
    assert!(attempt.findings.is_empty());
    let attempt = told("fn half_typed(", Outcome::DoesNotCompile, "");
    assert!(attempt.compiler.starts_with("error: "), "{}", attempt.compiler);
    let attempt = told("let unused = 1;", Outcome::Solved, "");
    assert!(attempt.compiler.contains("unused variable: `unused`"), "{}", attempt.compiler);

    let at = "lab03_schedule.rs:17:5:\n";
    told("todo!();", Outcome::Unfinished, at);
    told("panic!(\"at the disco\");", Outcome::Panicked, &format!("{at}at the disco"));
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
    let ring = solution_with("lab01-ring", edge, &format!("assert!(rank != 2);\n{edge}"));
    let attempt = check("lab01-ring", &ring);
    let at = place(&ring, "assert!");
    assert!(
        attempt.means.contains(&format!("lab01_ring.rs:{at}, on rank 2:\n")),
        "{}",
        attempt.means
    );

    let flat = "let mut flat = tensors.concat();";
    let partition = solution_with("lab04-partition", flat, &format!("assert!(rank != 3);\n{flat}"));
    let attempt = check("lab04-partition", &partition);
    let given = "\nYour code was called with rank 3 of 4, and tensors of [6, 4] numbers.";
    assert!(
        attempt.outcome == Outcome::Panicked && attempt.means.ends_with(given),
        "{attempt:#?}"
    );
    // Rank 1's second step: when it panics, rank 0 is in its third already.
    let done = "replica.update(&gradient);";
    let late =
        "thread_local! { static CALLS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) }; }
        CALLS.set(CALLS.get() + 1);
        if comm.rank() == 1 && CALLS.get() == 2 {
            std::thread::sleep(std::time::Duration::from_millis(100));
            panic!();
        }";
    let step = solution_with("lab08-alone", done, &format!("{done}\n{late}"));
    let attempt = check("lab08-alone", &step);
    let given = "\nYour code was called with step 2 of rank 1 of 2.";
    assert!(
        attempt.means.contains(", on rank 1:\n") && attempt.means.ends_with(given),
        "{attempt:#?}"
    );

    let renamed = solution_with("lab03-schedule", "pub fn learning_rate", "pub fn rate");
    let attempt = check("lab03-schedule", &renamed);
    assert_eq!(attempt.outcome, Outcome::DoesNotFit);
    assert!(
        attempt.compiler.contains("labs/lab03/checks/lab03_schedule.rs"),
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
        let attempt = document.exercises.into_iter().find_map(|entry| entry.check).unwrap();
        assert_eq!(attempt.outcome, Outcome::Endless);
        for part in [means, given] {
            assert!(attempt.means.contains(part), "{}", attempt.means);
        }
    }
}

#[test]
fn ranks_that_wait_for_each_other_are_told_at_once() {
    let reduce = "sum(gradients)?;";
    // Rank 0 has the smallest gradients.
    let alone = format!("if gradients[0] < 20.0 {{\n{reduce}\n}}");
    let attempt = check("lab02-average", &solution_with("lab02-average", reduce, &alone));
    assert_eq!(
        (attempt.outcome, attempt.stuck_at()),
        (Outcome::Failed, "4 ranks, 1 micro-batch: the mean over ranks")
    );
    for part in ["never entered all_reduce", "lab02_average.rs:", "rank 0  waits in", "help: "] {
        assert!(attempt.means.contains(part), "{part:?} is missing in\n{}", attempt.means);
    }
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
            && map.contains("next     lab00-send"),
        "{map}"
    );
    assert!(!my.exists(), "looking changes nothing");

    std::fs::create_dir_all(my).unwrap();
    for (name, next) in [("lab00-send", "lab00-token"), ("lab00-token", "lab01-")] {
        let file = my.join(format!("{}.rs", name.replace('-', "_")));
        std::fs::write(file, text("solutions", name)).unwrap();
        let solved = succeeded(&workbook(my, "check lab00"));
        assert!(solved.contains(&format!("next     {next}")), "{solved}");
    }

    // Optional, and left out of the main path; next all the same once it is begun.
    let first = workbook(my, "check lab00-hostfile");
    assert_eq!(first.status.code(), Some(1));
    let file = my.join("lab00_hostfile.rs");
    let blank = std::fs::read_to_string(&file).expect("a copy of the blank");
    assert_eq!(blank, text("exercises", "lab00-hostfile"));
    let todo = format!("lab00_hostfile.rs:{}", place(&blank, "todo!"));
    for part in ["✗", "Write your code here", &todo, "then     so do MPICH's", "there are 4"] {
        assert!(stdout(&first).contains(part), "{part:?} is missing in\n{}", stdout(&first));
    }

    let hint = succeeded(&workbook(my, "hint"));
    assert!(hint.contains("hint 1 of 4") && !hint.contains("The idea"), "{hint}");
    // The newest hint comes first, and the older ones after what to type next.
    let second = succeeded(&workbook(my, "hint lab00"));
    let at = |part: &str| second.find(part).unwrap_or_else(|| panic!("{second}"));
    assert!(at("\n  2 ") < at("\n  more ") && at("\n  more ") < at("\n  1 "), "{second}");

    let wrong = solution_with("lab00-hostfile", "let local_rank =", "let local_rank = 1 +");
    std::fs::write(&file, wrong).unwrap();
    let text_of_check = stdout(&workbook(my, "check lab00"));
    let row = "  rank 1, on nid7  node 0, local rank 1  node 0, local rank 2 ✗\n";
    assert!(text_of_check.contains(row), "{text_of_check}");
    // The same version again is not another try.
    workbook(my, "check lab00");
    std::fs::write(&file, text("solutions", "lab00-hostfile")).unwrap();
    let solved = succeeded(&workbook(my, "check lab00_hostfile.rs"));
    assert!(solved.contains("solved   after 2 tries, with 2 hints"), "{solved}");
    // Versions that are checked after the exercise was solved are no tries, either.
    let solution = text("solutions", "lab00-hostfile");
    for later in [format!("{solution}// later\n"), solution] {
        std::fs::write(&file, later).unwrap();
        let solved = succeeded(&workbook(my, "check lab00-hostfile"));
        assert!(solved.contains("solved   after 2 tries"), "{solved}");
    }
    let fourth = course().exercises().nth(3).unwrap().name.clone();
    assert!(solved.contains(&format!("next     {fourth}")), "{solved}");
    let map = succeeded(&workbook(my, ""));
    assert!(
        map.contains(&format!("3 of {all} exercises solved"))
            && map.contains(&format!("next     {fourth}")),
        "{map}"
    );

    let reset = succeeded(&workbook(my, "reset lab00-hostfile"));
    assert!(reset.contains("old/lab00_hostfile.rs"), "{reset}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), blank);
    assert_eq!(
        std::fs::read_to_string(my.join("old/lab00_hostfile.rs")).unwrap(),
        text("solutions", "lab00-hostfile")
    );
    assert!(succeeded(&workbook(my, "")).contains(&format!("2 of {all} exercises solved")));
}

#[test]
fn the_map_keeps_the_best_figures() {
    let my = folder_of("solutions");
    let file = my.path().join("lab01_ring.rs");
    // Long arrays whose first chunk is longer by some numbers, and the second shorter: some rank
    // sends more than the others.
    let longer = |by: usize| {
        let even = "i % n * len / n..(i % n + 1) * len / n";
        let cut = format!(
            "let at = |i: usize| i * len / n + if i == 1 && len > 100 {{ {by} }} else {{ 0 }};"
        );
        solution_with("lab01-ring", even, &format!("{cut} at(i % n)..at(i % n + 1)"))
    };
    std::fs::write(&file, longer(1)).unwrap();
    let told = succeeded(&workbook(my.path(), "check lab01-ring"));
    assert!(
        told.contains("yours 24,580, target 24,576\n")
            && told.contains("Correct, but fewer bytes sent per rank")
            && !told.contains("NCCL"),
        "{told}"
    );
    assert!(stdout(&workbook(my.path(), "")).contains("best 24,580, target 24,576\n"));
    for by in [0, 2] {
        std::fs::write(&file, longer(by)).unwrap();
        succeeded(&workbook(my.path(), "check lab01-ring"));
    }
    let map = stdout(&workbook(my.path(), ""));
    assert!(map.contains("best 24,576, target 24,576 ✓\n"), "{map}");
    std::fs::write(&file, "half typed").unwrap();
    let map = stdout(&workbook(my.path(), ""));
    assert!(map.contains("solved, changed since") && map.contains("1 of"), "{map}");
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

/// What is broken on purpose shows what people saw. The check says more once something that runs
/// has changed.
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
    let check = |code: String| {
        std::fs::write(my.path().join("lab03_accum.rs"), code).unwrap();
        stdout(&workbook(my.path(), "check lab03-accum"))
    };
    let commented = check(blank.clone() + "\n// I have looked at it.\n");
    assert!(
        commented.contains("This is the symptom") && !commented.contains("times too small"),
        "{commented}"
    );
    let changed = check(blank + "\nconst _LOOKED_AT: bool = true;\n");
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
        &workbook(my.path(), "solution lab02-average"),
        2,
        "the solution of lab02-average comes after its hints: 4 are left",
    );
    (0..3).for_each(|_| drop(succeeded(&workbook(my.path(), "hint lab02-average"))));
    failed(
        &workbook(my.path(), "solution lab02-average"),
        2,
        "the solution of lab02-average comes after its hints: 1 is left",
    );
    let last = succeeded(&workbook(my.path(), "hint lab02-average"));
    assert!(
        last.contains("workbook solution lab02-average") || last.contains("solution lab02-average"),
        "{last}"
    );
    let shown = succeeded(&workbook(my.path(), "solution lab02-average"));
    assert!(
        shown.contains("labs/lab02/solutions/lab02_average.rs") && shown.contains(ours.trim_end()),
        "{shown}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&succeeded(&workbook(my.path(), "solution lab02-average --json")))
            .unwrap();
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

#[test]
fn all_solutions_are_for_those_who_teach() {
    let my = tempfile::tempdir().unwrap();
    let refused = workbook(my.path(), "solutions");
    failed(&refused, 2, "all solutions at once are for those who teach");
    assert!(stderr(&refused).contains("solutions --for-instructors FILE"));

    let shown = succeeded(&workbook(my.path(), "solutions --for-instructors"));
    for exercise in course().exercises() {
        let heading = format!("\n### {} · {}\n", exercise.name, exercise.title);
        let sheet = shown.split(&heading).nth(1).unwrap_or_else(|| panic!("{heading}"));
        let sheet = sheet.split("\n### ").next().unwrap();
        for part in exercise.hints.iter().chain([&exercise.task, &exercise.debrief]) {
            assert!(sheet.contains(part), "{}: {part}", exercise.name);
        }
        let given = text("exercises", &exercise.name);
        assert_eq!(sheet.contains("```text"), given.contains("//! ```text"), "{}", exercise.name);
        assert_eq!(sheet.contains("```diff"), exercise.broken, "{}", exercise.name);
        assert!(sheet.contains("What the check says"), "{}", exercise.name);
        assert!(!sheet.contains("todo!("), "{}", exercise.name);
    }
    // Few of the sentences are told in part, because their checks put them together from several.
    let sentences = || shown.lines().filter(|line| line.starts_with("  - "));
    let in_part = sentences().filter(|line| line.starts_with("  - … ") && line.ends_with(" …"));
    assert!(10 * in_part.count() <= sentences().count(), "{shown}");
    let file = my.path().join("handout.md");
    let written =
        succeeded(&workbook(my.path(), &format!("solutions --for-instructors {}", file.display())));
    assert!(
        written.contains(&format!("{} exercises, ", course().exercises().count())),
        "{written}"
    );
    assert_eq!(std::fs::read_to_string(file).unwrap(), shown);
    let json = succeeded(&workbook(my.path(), "solutions --for-instructors --json"));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json["labs"][0]["exercises"][0]["name"],
        course().exercises().next().unwrap().name
    );
    let nowhere = workbook(my.path(), "solutions --for-instructors no/such/folder/file.md");
    failed(&nowhere, 2, "cannot write no/such/folder/file.md");
}

/// Buckets of 4 layers: right, and neither the rung's own target nor another one is met.
#[test]
fn a_rung_names_every_missed_target_and_draws_the_step() {
    let my = tempfile::tempdir().unwrap();
    let larger =
        solution_with("ladder-buckets", "const BUCKET: usize = 2;", "const BUCKET: usize = 4;");
    std::fs::write(my.path().join("ladder_buckets.rs"), larger).unwrap();
    let shown = succeeded(&workbook(my.path(), "check ladder-buckets"));
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let missed = "fewer microseconds per step on a slow link are possible, which this rung is about, and fewer peak bytes per rank";
    for part in [missed, "Your step has 2 all-reduces", "rank 0 in one step"] {
        assert!(words.contains(part), "{part:?} is missing in\n{shown}");
    }
    let row = |name: &str| {
        let is_it = |line: &&str| line.trim_start().starts_with(&format!("{name} │"));
        shown.lines().find(is_it).map(str::to_string)
    };
    assert!(row("yours").is_some() && row("yours") != row("ours"), "{shown}");
}

/// Without a terminal the quiz is a page.
#[test]
fn a_quiz_without_a_terminal_is_a_list() {
    let my = tempfile::tempdir().unwrap();
    let list = succeeded(&workbook(my.path(), "quiz --list"));
    let mut piped = command(my.path(), "quiz");
    assert_eq!(succeeded(&piped.stdin(Stdio::null()).output().unwrap()), list);
    assert!(list.starts_with("15 questions") && !list.contains("  answer "), "{list}");
    let answers = succeeded(&workbook(my.path(), "quiz --answers"));
    assert_eq!(answers.matches("\n  answer ").count(), 15, "{answers}");
    let questions = |flags: &str| {
        let json = succeeded(&workbook(my.path(), flags));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        json["questions"].as_array().unwrap().clone()
    };
    assert!(questions("quiz --json").iter().all(|one| one.get("answer").is_none()));
    let answered = questions("quiz --answers --json");
    assert!(answered.len() == 15 && answered.iter().all(|one| one["answer"].is_string()));
    for flags in ["quiz --ascii", "quiz --answers"] {
        fits_the_screen(my.path(), flags);
    }
}

/// `lab02` alone is what comes next there.
#[test]
fn a_labs_name_is_its_next_exercise() {
    let my = tempfile::tempdir().unwrap();
    let first = course().labs.iter().find(|lab| lab.name == "lab03").unwrap().exercises[0].clone();
    let begun = stdout(&workbook(my.path(), "check lab03"));
    assert!(begun.starts_with(&format!("{} ", first.name)), "{begun}");
    std::fs::copy(of_lab("solutions", &first.file()), my.path().join(first.file())).unwrap();
    succeeded(&workbook(my.path(), "check lab03"));
    let next = succeeded(&workbook(my.path(), "hint lab03"));
    assert!(next.starts_with("lab03-") && !next.starts_with(&first.name), "{next}");
}

#[test]
fn bad_input_is_refused() {
    let my = tempfile::tempdir().unwrap();
    let my = my.path();
    failed(
        &workbook(my, "check lab99"),
        2,
        "no exercise is named \"lab99\"\nhelp: the exercises are lab00-send",
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
    failed(&workbook(my, "report no/such/folder"), 2, "no reports in no/such/folder");
    failed(&workbook(my, &format!("report {}", my.display())), 2, "no reports in");
    let seconds = command(my, "check lab00").env("SHARDLAB_CHECK_SECONDS", "0").output().unwrap();
    failed(&seconds, 2, "SHARDLAB_CHECK_SECONDS=0 is not a number of seconds");
    let rustc = command(my, "check lab00").env("RUSTC", "no-such-compiler").output().unwrap();
    failed(&rustc, 2, "cannot start no-such-compiler");
    // A folder that not even root can write.
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
        &format!("{} is not what the workbook wrote", my.join("progress.json").display()),
    );
}

/// A record that the reader's own code has damaged goes on as it was, and does not cost the
/// verdict.
#[test]
fn code_that_damages_the_record_gets_its_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let my = folder.path();
    let damage = "std::fs::write(std::env::var(\"SHARDLAB_MY\").unwrap() + \"/progress.json\", \"x\").unwrap();";
    let code = solution_with(
        "lab03-schedule",
        "    if step < warmup {",
        &format!("    {damage}\n    if step < warmup {{"),
    );
    std::fs::write(my.join("lab03_schedule.rs"), code).unwrap();
    workbook(my, "hint lab03-schedule");
    let output = workbook(my, "check lab03-schedule");
    assert!(succeeded(&output).contains('✓'), "{}", stdout(&output));
    let (document, _) = document(my, "");
    let mut entries = document.exercises.iter();
    let entry = entries.find(|entry| entry.name == "lab03-schedule");
    let entry = entry.unwrap();
    assert!(entry.solved);
    assert_eq!((entry.record.tries, entry.record.hints), (1, 1));
}

fn count_of(lab: &str) -> usize {
    course().exercises().filter(|exercise| exercise.name.starts_with(lab)).count()
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
    let mine = std::fs::read_to_string(checkout.path().join("my/lab03_schedule.rs")).unwrap();
    let todo = format!("../../my/lab03_schedule.rs:{}:", place(&mine, "todo!"));
    assert!(text.contains(&todo), "{text}\n{}", stderr(&output));
    // A program far from what it was compiled with cannot check.
    let far = checkout.path().join("workbook");
    // Another process copies it: of this one, programs that other tests start just then would hold
    // the file open for writing.
    let mut copy = Command::new("cp");
    copy.arg(program("workbook")).arg(&far);
    assert!(copy.status().unwrap().success());
    let output = Command::new(far)
        .args(["check", "lab03-schedule"])
        .current_dir(checkout.path())
        .output()
        .unwrap();
    failed(&output, 2, "the compiled library is not near");
}

/// Every line of what the workbook answers to `flags` fits 80 columns, and is ASCII where that was
/// asked for.
#[track_caller]
fn fits_the_screen(my: &Path, flags: &str) {
    // Paths are as long as the reader's own.
    let text = stdout(&workbook(my, flags)).replace(&my.display().to_string(), "my");
    assert!(!text.contains('\x1b') && text.lines().count() > 3);
    for line in text.lines().filter(|line| !line.contains("workbook ")) {
        is_narrow(line);
    }
    if flags.contains("--ascii") {
        let other = text.lines().find(|line| !line.is_ascii());
        assert!(text.is_ascii(), "{other:?}");
    }
}

#[test]
fn screens_stay_within_80_columns_and_ascii_means_ascii() {
    let blanks = folder_of("exercises");
    for flags in [
        "check lab02-average --ascii",
        "--ascii",
        "",
        "hint lab02-average --ascii",
        "hint lab02-average",
    ] {
        fits_the_screen(blanks.path(), flags);
    }
}

#[test]
#[ignore = "compiles every exercise: the gate runs it; run it when you change one"]
fn screens_of_all_exercises_stay_within_80_columns() {
    fits_the_screen(folder_of("exercises").path(), "check all --ascii");
    let solutions = folder_of("solutions");
    fits_the_screen(solutions.path(), "check all");
    fits_the_screen(solutions.path(), "");
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
    let one_seed = solution_with("lab03-batches", ".branch(rank as u64)", "");
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
    let text =
        succeeded(&workbook(reports.path(), &format!("report {}", reports.path().display())));
    let line = |who: &str| {
        text.lines()
            .find(|line| line.trim_start().starts_with(who))
            .unwrap_or_default()
            .to_string()
    };
    let next = course().exercises().next().unwrap().name.clone();
    assert!(
        line("ada ").contains(&format!("2 of {all}  {next:<13}  not checked yet")),
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
        line("lab00-hostfile").split_whitespace().take(2).eq(["lab00-hostfile", "2"]),
        "{text}"
    );
    assert!(
        line("seat-3").contains("not checked yet") && !line("seat-4").is_empty(),
        "{text}"
    );
    let order = ["seat-3", "grace", "ada"].map(|who| text.find(who).unwrap());
    assert!(order.is_sorted(), "those who need help first:\n{text}");
    assert!(text.contains("not read") && text.contains("broken.json"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80 || line.contains(".json")),
        "{text}"
    );
    assert!(text.contains("broken.json") && !text.contains("pipe.json"), "{text}");
    let json = succeeded(&workbook(
        reports.path(),
        &format!("report {} --json", reports.path().display()),
    ));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["documents"]["grace"]["exercises"].as_array().unwrap().len(), all);
}

#[test]
fn a_room_sees_its_scores_on_the_ladder() {
    let my = tempfile::tempdir().unwrap();
    let (document, _) = document(my.path(), "");
    let reports = tempfile::tempdir().unwrap();
    let flags = format!("report {}", reports.path().display());
    for (who, got) in [("ada", 4096), ("grace", 4096), ("alan", 8192)] {
        let mut document = document.clone();
        let mut rung = document.exercises[0].clone();
        rung.name = "ladder-each".into();
        rung.solved = true;
        rung.record.figures = vec![kit::check::Figure {
            what: "bytes sent per rank and step".into(),
            got,
            target: 4096,
        }];
        document.who = who.into();
        document.exercises.push(rung);
        let text = serde_json::to_string(&document).unwrap();
        std::fs::write(reports.path().join(format!("{who}.json")), text).unwrap();
    }
    let text = succeeded(&workbook(my.path(), &flags));
    let mut chart = text.lines().skip_while(|line| !line.starts_with("The ladder"));
    assert!(
        chart.any(|line| line.trim_start().starts_with("each") && line.contains("3 of 3 ")),
        "{text}"
    );
    assert!(
        chart.any(|line| line.contains("4,096 │2···") && line.ends_with("···1│ 8,192")),
        "{text}"
    );
    fits_the_screen(my.path(), &format!("{flags} --ascii"));
}

/// Everyone may write into the folder of reports: what they write reaches the host's terminal as
/// text, and hangs nothing.
#[cfg(target_os = "linux")]
#[test]
fn a_hostile_report_does_nothing_to_the_host() {
    let reports = tempfile::tempdir().unwrap();
    let my = tempfile::tempdir().unwrap();
    let at = |name: &str| reports.path().join(name);
    let bad = "bob\u{1b}]0;OWNED\u{7}\u{1b}[2J\r\u{9b}\u{202e}\nx";
    let output = command(my.path(), "--json").env("USER", bad).output().unwrap();
    let mut document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (i, key) in [(0, "name"), (1, "stuck_at")] {
        document["exercises"][i][key] = bad.into();
        document["exercises"][1]["outcome"] = "wrong".into();
        document["exercises"][1]["when"] = 1.into();
    }
    std::fs::write(at(&format!("{bad}.json")), document.to_string()).unwrap();
    document["version"] = bad.into();
    std::fs::write(at(&format!("not {bad}.json")), document.to_string()).unwrap();
    assert!(Command::new("mkfifo").arg(at("pipe.json")).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", at("zero.json")).unwrap();
    std::fs::File::create(at("large.json")).unwrap().set_len(1 << 40).unwrap();

    let mut report = command(my.path(), &format!("report {}", reports.path().display()));
    let text = succeeded(&soon(&mut report));
    let harmful = |c: &char| *c != '\n' && (c.is_control() || *c == '\u{202e}');
    assert_eq!(text.chars().find(harmful), None, "{text:?}");
    let joined: String = text.split_whitespace().collect();
    assert!(
        joined.contains("bob\\u{1b}]0;OWNED\\u{7}\\u{1b}[2J\\r\\u{9b}\\u{202e}\\nx"),
        "{text}"
    );
    for why in ["no regular file", "no regular file", "at most 67108864 are expected"] {
        assert!(
            text.split_whitespace().collect::<Vec<_>>().join(" ").contains(why),
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
        words.filter(|words| *words == format!("sleep\0{seconds}\0").as_bytes()).count()
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
    assert_eq!((attempt.outcome, asleep("72221")), (Outcome::Solved, 0), "{attempt:#?}");

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
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(2), "{status}");
    assert_eq!(asleep("72222"), 0);
}

/// A panic's message is text.
#[test]
fn a_message_does_nothing_to_the_terminal() {
    let bad = "panic!(\"\\u{1b}]0;owned\\u{7}\\u{9b}\\u{202e}\");";
    let attempt = check("lab03-schedule", &schedule_with(bad));
    assert_eq!(attempt.outcome, Outcome::Panicked);
    assert!(
        attempt.means.contains("\\u{1b}]0;owned\\u{7}\\u{9b}\\u{202e}"),
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

/// A program that goes on until the test ends, whatever its end, and the lines that it prints.
struct Watched {
    child: std::process::Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Watched {
    fn start(mut command: Command) -> Watched {
        use std::io::{BufRead, BufReader};
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (send, lines) = std::sync::mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        Watched { child, lines }
    }

    /// Waits for a line with this text. Only a hang reaches the bound.
    #[track_caller]
    fn wait_for(&self, what: &str) {
        while !self
            .lines
            .recv_timeout(Duration::from_secs(60))
            .unwrap_or_else(|_| panic!("no {what:?}"))
            .contains(what)
        {}
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it was running");
    }
}

/// The rustc behind rustup's.
fn rustc() -> PathBuf {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
    Path::new(stdout(&sysroot).trim()).join("bin/rustc")
}

/// A program of sh. A process of its own writes it: were this one to write it, a process that
/// another test starts just then would have it open for writing, too, and it would be "busy".
#[cfg(unix)]
fn script(path: &Path, body: &str) {
    let write =
        "mkdir -p \"${0%/*}\" && printf '#!/bin/sh\n%s\n' \"$1\" > \"$0\" && chmod 755 \"$0\"";
    let mut sh = Command::new("sh");
    let status = sh.args(["-c", write]).arg(path).arg(body).status();
    assert!(status.unwrap().success());
}

/// On a machine that cannot compile, link or start a check, the reader's file is not to blame, and
/// nothing counts as a try.
#[cfg(unix)]
#[test]
fn what_the_machine_lacks_is_not_the_readers_mistake() {
    let my = folder_of("solutions");
    let nothing = tempfile::tempdir().unwrap();
    let refused = |rustc: &Path, path: &Path, what: &str| {
        let mut check = command(my.path(), "check lab00-hostfile");
        check.env("RUSTC", rustc).env("PATH", path);
        let output = check.output().unwrap();
        failed(&output, 2, what);
        let text = stderr(&output);
        assert!(text.contains("doctor` looks at this machine"), "{text}");
    };
    refused(Path::new("no-rustc"), nothing.path(), "cannot start no-rustc: ");
    refused(
        &rustc(),
        nothing.path(),
        "rustc cannot link a program here: linker `cc` not found",
    );
    let path = std::env::var_os("PATH").unwrap();
    let compiler = nothing.path().join("compiler");
    for (body, what) in [
        (
            "echo 'rustc: error while loading shared libraries: libLLVM.so: cannot open' >&2; exit 127",
            "rustc ended without an answer (exit status: 127): rustc: error while loading",
        ),
        ("kill -9 $$", "rustc ended without an answer (signal: 9 (SIGKILL))"),
        (
            "echo \"error: toolchain '1.95.0' is not installed\" >&2; exit 1",
            "rustc ended without an answer (exit status: 1): error: toolchain",
        ),
        (
            "echo 'error: failed to write libexercise.rlib: No space left on device (os error 28)' >&2; exit 1",
            "the compiler has no room to write: error: failed to write",
        ),
        (
            // It compiles everything to a program that cannot be loaded.
            "while [ $# -gt 0 ]; do if [ \"$1\" = --out-dir ]; then out=$2; fi; shift; done
printf '#!/bin/sh\necho error while loading shared libraries; exit 127\n' > \"$out/check\"; chmod 755 \"$out/check\"",
            "the check did not begin: error while loading shared libraries",
        ),
    ] {
        script(&compiler, body);
        refused(&compiler, Path::new(&path), what);
    }
    let json: serde_json::Value =
        serde_json::from_str(&succeeded(&workbook(my.path(), "--json"))).unwrap();
    let exercise = &json["exercises"][0];
    assert_eq!(exercise["tries"], 0, "{exercise}");
    assert_eq!(exercise["outcome"], serde_json::Value::Null, "{exercise}");
}

/// A healthy machine, and four that are not: no compiler, a different one, no linker, and no room
/// for temporary files.
#[cfg(unix)]
#[test]
fn the_doctor_tells_what_is_missing() {
    let my = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let real = rustc();
    let path = std::env::var_os("PATH").unwrap();
    let mut places = vec![other.path().to_path_buf()];
    places.extend(std::env::split_paths(&path));
    let with_other = std::env::join_paths(places).unwrap();
    let doctor = |variables: &[(&str, &std::ffi::OsStr)], flags: &str| {
        let mut doctor = command(my.path(), &format!("doctor {flags}"));
        doctor.env_remove("RUSTC").envs(variables.iter().copied());
        doctor.output().unwrap()
    };
    let healthy = succeeded(&doctor(&[], ""));
    let version = stdout(&Command::new(&real).arg("--version").output().unwrap());
    let version = version.trim().trim_start_matches("rustc ");
    let exercises = course().exercises().count();
    for part in [
        format!("✓ rustc    {version}, on PATH").as_str(),
        format!("✓ tasks    {exercises} exercises in labs").as_str(),
        "✓ linker   cc links a program",
        "✓ TMPDIR ",
        "✓ my ",
        "✓ matmul ",
        "GFLOP/s a core",
        "MPI ",
        "clock ",
        "✓ name     results are submitted as \"reader\"",
        "Labs and exercises work here.",
    ] {
        assert!(healthy.contains(part), "{part:?} is missing in\n{healthy}");
    }
    assert!(healthy.lines().count() <= 26, "{healthy}");
    for line in healthy.lines().filter(|line| !line.contains('/')) {
        assert!(line.chars().count() <= 80, "{line}");
    }

    script(
        &other.path().join("rustc"),
        &format!(
            "[ \"$1\" != --version ] || {{ echo 'rustc 1.2.3 (abc 2015-08-03)'; exit; }}\nexec {} \"$@\"",
            real.display()
        ),
    );
    let no_room = other.path().join("no-room");
    script(&no_room, "echo 'error: could not write: Disk quota exceeded' >&2; exit 1");
    let nowhere = other.path().join("nowhere");
    type Variables<'a> = &'a [(&'a str, &'a std::ffi::OsStr)];
    let cases: [(Variables, &[&str], &str); 5] = [
        (
            &[("RUSTC", std::ffi::OsStr::new("no-rustc"))],
            &["rustc", "linker"],
            "cannot start no-rustc: ",
        ),
        (
            &[("PATH", with_other.as_os_str())],
            &["rustc"],
            "rustc 1.2.3 (abc 2015-08-03), on PATH; the build is by rustc ",
        ),
        (
            &[("RUSTC", real.as_os_str()), ("PATH", nowhere.as_os_str())],
            &["linker"],
            "rustc cannot link a program here: linker `cc` not found",
        ),
        (
            &[("RUSTC", no_room.as_os_str())],
            &["rustc", "linker"],
            "the compiler has no room to write: error: could not write: Disk quota exceeded",
        ),
        (
            &[("TMPDIR", nowhere.as_os_str())],
            &["linker", "TMPDIR"],
            "choose a different folder for temporary files: export TMPDIR=",
        ),
    ];
    for (variables, bad, said) in cases {
        let output = doctor(variables, "");
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        let ending = format!("\nNot ready: {}.\n", bad.join(", "));
        assert!(text.ends_with(&ending), "{ending:?}: {text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&said) && words.contains("without: "), "{said:?}: {text}");
        let json = stdout(&doctor(variables, "--json"));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let signs = json["signs"].as_array().unwrap();
        let worst = signs.iter().filter(|sign| sign["state"] == "bad");
        let worst: Vec<&str> = worst.map(|f| f["what"].as_str().unwrap()).collect();
        assert_eq!((&json["healthy"], worst.as_slice()), (&false.into(), bad));
    }
    // Far from what it was compiled with, and with folders that nobody can write.
    let far = my.path().join("workbook");
    assert!(
        Command::new("cp")
            .arg(program("workbook"))
            .arg(&far)
            .status()
            .unwrap()
            .success()
    );
    let output = Command::new(far)
        .args(["doctor", "--ascii"])
        .current_dir("/proc")
        .env("SHARDLAB_MY", "/proc/my")
        .output()
        .unwrap();
    let text = stdout(&output);
    assert!(text.ends_with("\nNot ready: tasks, runs, my.\n") && text.is_ascii(), "{text}");
}

/// A build as `labs/cluster/build.sh` installs it, for people who have no Cargo and cannot write
/// there.
#[cfg(unix)]
#[test]
fn a_rooms_build_is_all_that_a_participant_needs() {
    use std::os::unix::fs::symlink;
    let room = tempfile::tempdir().unwrap();
    let at = |name: &str| room.path().join(name);
    for folder in ["bin", "home", "share/labs", "toolchain/bin"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    for name in ["workbook", "lab00"] {
        let mut cp = Command::new("cp");
        assert!(cp.arg(program(name)).arg(at("bin")).status().unwrap().success());
    }
    std::fs::copy(root("labs/labs.toml"), at("share/labs/labs.toml")).unwrap();
    let names = course().labs.into_iter().map(|lab| lab.name);
    for name in names.chain(["ladder".into(), "capstone".into()]) {
        symlink(root("labs").join(&name), at("share/labs").join(&name)).unwrap();
    }
    let deps = Path::new(program("workbook")).with_file_name("deps");
    symlink(deps, at("lib")).unwrap();
    let brought = at("toolchain/bin/rustc");
    let line =
        format!("echo $1 >> {}/ran\nexec {} \"$@\"", room.path().display(), rustc().display());
    script(&brought, &line);
    let start = |program: &str, flags: &str| {
        let mut command = Command::new(at("bin").join(program));
        command.args(flags.split_whitespace()).current_dir(at("home"));
        for variable in ["CARGO", "RUSTC", "SHARDLAB_MY"] {
            command.env_remove(variable);
        }
        command.env("HOME", at("home")).env("SHARDLAB_BIN", at("bin"));
        command.output().unwrap()
    };
    let map = succeeded(&start("workbook", ""));
    for part in [
        "run its lab:  $SHARDLAB_BIN/lab00\n",
        "$SHARDLAB_BIN/workbook watch\n",
        "edit shardlab-my/lab00_send.rs: saving it checks it",
    ] {
        assert!(map.contains(part), "{part:?} is missing in\n{map}");
    }
    let my = at("home/shardlab-my");
    assert!(!my.exists(), "looking changes nothing");
    std::fs::create_dir(&my).unwrap();
    std::fs::copy(of_lab("solutions", "lab00_hostfile.rs"), my.join("lab00_hostfile.rs")).unwrap();
    let solved = succeeded(&start("workbook", "check lab00-hostfile"));
    assert!(solved.contains("ours     $SHARDLAB_BIN/workbook solution"), "{solved}");
    let ran = std::fs::read_to_string(at("ran")).unwrap();
    assert_eq!(ran.lines().count(), 2, "the compiler beside the build: {ran}");
    // From a different folder it is the same participant.
    let mut elsewhere = Command::new(at("bin/workbook"));
    elsewhere.current_dir("/").env("HOME", at("home")).env_remove("SHARDLAB_MY");
    assert!(succeeded(&elsewhere.output().unwrap()).contains("1 of "));
    let hint = succeeded(&start("workbook", "hint lab01-ring"));
    let words = hint.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Run `$SHARDLAB_BIN/lab01 --rounds`"), "{hint}");
    let handout = succeeded(&start("workbook", "solutions --for-instructors"));
    assert!(handout.contains("\n### lab01-ring · "), "{handout}");
    let doctor = succeeded(&start("workbook", "doctor"));
    assert!(doctor.contains(", beside the build\n"), "{doctor}");
    let lab = succeeded(&start("lab00", ""));
    assert!(lab.ends_with("   $SHARDLAB_BIN/lab01\n"), "{lab}");
    // Errors name commands, too.
    std::fs::remove_file(at("lib")).unwrap();
    failed(&start("workbook", ""), 2, "the compiled library is not in ");
    std::fs::remove_file(brought).unwrap();
}

/// Whatever the workbook and the labs write can be read by whom the user's umask allows.
#[cfg(unix)]
#[test]
fn files_have_the_permissions_of_the_umask() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let my = folder.path().join("my");
    let start = |program: &str, flags: &str| {
        let line = format!("umask 027; exec {program} {flags}");
        let mut sh = Command::new("sh");
        sh.args(["-c", &line]).current_dir(folder.path());
        sh.env("SHARDLAB_MY", &my).output().unwrap()
    };
    succeeded(&start(program("workbook"), "hint lab01-ring"));
    start(program("workbook"), "check lab03-schedule");
    std::fs::create_dir(folder.path().join("shared")).unwrap();
    succeeded(&start(program("workbook"), "submit shared"));
    start(program("lab03"), "--steps 1 --ranks 1 --block 8 --batch 1 --metrics m.jsonl");
    let submitted = std::fs::read_dir(folder.path().join("shared")).unwrap();
    let submitted = submitted.map(|entry| entry.unwrap().path()).next().unwrap();
    for file in [
        my.join("progress.json"),
        my.join("lab03_schedule.rs"),
        submitted,
        folder.path().join("runs/lab03/model.safetensors"),
        folder.path().join("m.jsonl"),
    ] {
        let permissions = std::fs::metadata(&file).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o777, 0o640, "{}", file.display());
    }
}

/// Where all have one user name, as on a hub, each still has one file: the newest of each.
#[test]
fn submitted_results_do_not_collide_and_the_table_follows() {
    let room = tempfile::tempdir().unwrap();
    let people = [0, 1, 2].map(|_| tempfile::tempdir().unwrap());
    let submit = |person: usize, name: Option<&str>| {
        let mut command =
            command(people[person].path(), &format!("submit {}", room.path().display()));
        command.env("USER", "jovyan").env_remove("SHARDLAB_NAME");
        if let Some(name) = name {
            command.env("SHARDLAB_NAME", name);
        }
        succeeded(&command.output().unwrap())
    };
    let files = || {
        let entries = std::fs::read_dir(room.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let watched = Watched::start(command(
        people[0].path(),
        &format!("report --watch {}", room.path().display()),
    ));
    watched.wait_for("no reports in");
    watched.wait_for("watching: the table changes");
    submit(0, None);
    watched.wait_for("jovyan");
    submit(1, None);
    assert!(submit(1, None).contains("submitted"));
    assert_eq!(files().len(), 2, "{:?}", files());
    watched.wait_for("jovyan-");
    submit(2, Some("Ada L./../x"));
    watched.wait_for("Ada L./../x");
    let names = files();
    let host: String =
        shardlab::launch::host_name().replace(|c: char| !c.is_alphanumeric() && c != '_', "-");
    assert!(names[0].starts_with(&format!("Ada-L-----x-{host}-")), "{names:?}");
    assert_eq!(names.len(), 3, "{names:?}");
    submit(2, Some("Ada"));
    let names = files();
    assert!(names[0].starts_with(&format!("Ada-{host}-")), "{names:?}");
    assert_eq!(names.len(), 3, "one file, whatever the name: {names:?}");

    std::fs::remove_file(people[1].path().join(".participant")).unwrap();
    submit(1, None);
    assert_eq!(files().len(), 4, "another folder is another participant");
    failed(
        &workbook(people[0].path(), "submit no/such/folder"),
        2,
        "cannot write no/such/folder/",
    );
}

#[test]
fn watching_checks_what_is_saved() {
    let my = tempfile::tempdir().unwrap();
    let watched = Watched::start(command(my.path(), "watch lab03-schedule"));
    let wait_for = |what: &str| watched.wait_for(what);
    wait_for("Write your code here");
    wait_for("watching: save a file");
    let write = |name: &str, text: &str| std::fs::write(my.path().join(name), text).unwrap();
    write("lab03_schedule.rs", &schedule_with("half typed"));
    wait_for("error: ");
    wait_for("watching: save a file");
    // Editors that write another file and rename it.
    write("lab03_schedule.rs~", &schedule_with(""));
    std::fs::rename(my.path().join("lab03_schedule.rs~"), my.path().join("lab03_schedule.rs"))
        .unwrap();
    wait_for("solved   after 2 tries");
    wait_for("now edit");
    wait_for("watching: save a file");
    assert!(my.path().join("lab00_send.rs").is_file(), "the next one lies ready");
    write("lab02_average.rs", &text("solutions", "lab02-average"));
    wait_for("lab02-average · ");
    wait_for("solved   after 1 try");
}

/// Whatever lies in the reader's folder: git does not see it, and no target of the package is made
/// from it.
#[test]
fn the_readers_folder_is_the_readers_own() {
    let my = root("my");
    let cargo = std::env::var_os("CARGO").unwrap();
    let words = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(cargo).args(words).current_dir(ROOT).output().unwrap();
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
