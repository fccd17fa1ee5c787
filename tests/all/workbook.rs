//! The workbook as its readers use it: every blank, every answer, the mistakes that checks must
//! tell apart, the commands.

mod authors;
mod mistakes;
#[cfg(unix)]
mod serving;

#[cfg(target_os = "linux")]
use crate::suite::program::soon;
use crate::suite::program::{ROOT, failed, is_narrow, program, stderr, stdout, succeeded};
use kit::show::Screen;
use kit::{Course, Exercise};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use workbook::{Attempt, Document, Entry, Outcome, Readers, Record};

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

/// Whether the gate tries this exercise: SHARDLAB_EXERCISES="lab03-batches lab05" names those whose
/// names begin so, and without it all are tried.
fn is_chosen(exercise: &Exercise) -> bool {
    let chosen = std::env::var("SHARDLAB_EXERCISES").unwrap_or_default();
    chosen.is_empty() || chosen.split_whitespace().any(|name| exercise.name.starts_with(name))
}

/// The chosen exercises, checked with the files of one of the course's folders.
fn checked(files: &str) -> Vec<(Exercise, Entry)> {
    let my = folder_of(files);
    let course = course();
    let chosen: Vec<Exercise> = course.exercises().filter(|one| is_chosen(one)).cloned().collect();
    let mut entries = if chosen.len() == course.exercises().count() {
        document(my.path(), "check all").0.exercises
    } else {
        let one = |exercise: &Exercise| document(my.path(), &format!("check {}", exercise.name)).0;
        let all = chosen.iter().flat_map(|exercise| one(exercise).exercises);
        all.filter(|entry| entry.check.is_some()).collect()
    };
    let entry = |exercise: Exercise| {
        let at = entries.iter().position(|entry| entry.name == exercise.name);
        let entry = entries.remove(at.unwrap_or_else(|| panic!("no {}", exercise.name)));
        (exercise, entry)
    };
    chosen.into_iter().map(entry).collect()
}

#[test]
#[ignore = "compiles every exercise: the gate runs it; run it when you change one"]
fn every_solution_passes_without_warnings() {
    for (_, entry) in checked("solutions") {
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
}

/// A scale and its reciprocal differ in a last bit of what comes back.
#[test]
fn other_right_programs_pass() {
    let blocks = solution_with("lab08-blocks", "largest / 448.0", "448.0 / largest");
    let blocks = blocks.replace("e4m3(x / scale) * scale", "e4m3(x * scale) / scale");
    for (exercise, code) in [
        ("lab08-blocks", blocks),
        ("lab08-blocks", solution_with("lab08-blocks", "x / scale", "x * (1.0 / scale)")),
    ] {
        let attempt = check(exercise, &code);
        assert_eq!(attempt.outcome, Outcome::Solved, "{exercise}: {attempt:#?}");
    }
}

#[test]
#[ignore = "compiles every exercise: the gate runs it; run it when you change one"]
fn every_blank_fails_without_warnings() {
    for (exercise, entry) in checked("exercises") {
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
    let attempt = told("let unused = 1;", Outcome::Solved, "");
    assert!(attempt.compiler.contains("unused variable: `unused`"), "{}", attempt.compiler);

    let at = "lab03_schedule.rs:17:5:\n";
    told("todo!();", Outcome::Unfinished, at);
    told("panic!(\"at the disco\");", Outcome::Panicked, &format!("{at}at the disco"));
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
    let my = tempfile::tempdir().unwrap();
    std::fs::write(my.path().join("lab03_schedule.rs"), schedule_with("loop {}")).unwrap();
    let mut command = command(my.path(), "check lab03-schedule");
    let output = command.env("SHARDLAB_CHECK_SECONDS", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let words = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["It was still computing after 1 s", "called with step 0, "] {
        assert!(words.contains(part), "{part:?} is missing in\n{words}");
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

    // Without a name it is the exercise that comes next, and with a lab's the next one there.
    let first = workbook(my, "check");
    assert_eq!(first.status.code(), Some(1));
    let file = my.join("lab00_send.rs");
    let blank = std::fs::read_to_string(&file).expect("a copy of the blank");
    assert_eq!(blank, text("exercises", "lab00-send"));
    let todo = format!("lab00_send.rs:{}", place(&blank, "todo!"));
    for part in ["✗", "Write your code here", &todo, "there are 4"] {
        assert!(stdout(&first).contains(part), "{part:?} is missing in\n{}", stdout(&first));
    }

    let hint = succeeded(&workbook(my, "hint"));
    assert!(hint.contains("hint 1 of 4") && !hint.contains("The idea"), "{hint}");
    // The newest hint comes first, and the older ones after what to type next.
    let second = succeeded(&workbook(my, "hint lab00"));
    let at = |part: &str| second.find(part).unwrap_or_else(|| panic!("{second}"));
    assert!(at("\n  2 ") < at("\n  more ") && at("\n  more ") < at("\n  1 "), "{second}");

    std::fs::write(&file, text("solutions", "lab00-send")).unwrap();
    let solved = succeeded(&workbook(my, "check lab00_send.rs"));
    assert!(solved.contains("solved   after 1 try, with 2 hints"), "{solved}");
    assert!(solved.contains("next     lab00-token"), "{solved}");
    let next = succeeded(&workbook(my, "hint lab00"));
    assert!(next.starts_with("lab00-token "), "{next}");
    let map = succeeded(&workbook(my, ""));
    assert!(
        map.contains(&format!("1 of {all} exercises solved"))
            && map.contains("next     lab00-token"),
        "{map}"
    );

    let reset = succeeded(&workbook(my, "reset lab00-send"));
    assert!(reset.contains("old/lab00_send.rs"), "{reset}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), blank);
    assert_eq!(
        std::fs::read_to_string(my.join("old/lab00_send.rs")).unwrap(),
        text("solutions", "lab00-send")
    );
    assert!(succeeded(&workbook(my, "")).contains(&format!("0 of {all} exercises solved")));
}

/// What is broken on purpose shows what people saw. The check says more once the code has changed.
#[test]
fn a_symptom_comes_before_its_cause() {
    let my = tempfile::tempdir().unwrap();
    let untouched = stdout(&workbook(my.path(), "check lab03-accum"));
    assert!(
        untouched.contains("This is the symptom") && untouched.contains("grad_norm"),
        "{untouched}"
    );
    assert!(!untouched.contains("times too small"), "{untouched}");
    let changed = text("exercises", "lab03-accum") + "\n// I have looked at it.\n";
    std::fs::write(my.path().join("lab03_accum.rs"), changed).unwrap();
    let changed = stdout(&workbook(my.path(), "check lab03-accum"));
    assert!(
        changed.contains("4 times too small") && !changed.contains("This is the symptom"),
        "{changed}"
    );
}

#[test]
fn a_solution_comes_after_the_hints() {
    let my = tempfile::tempdir().unwrap();
    let ours = text("solutions", "lab02-average");
    for left in ["4 are", "3 are", "2 are", "1 is"] {
        failed(
            &workbook(my.path(), "solution lab02-average"),
            2,
            &format!("the solution of lab02-average comes after its hints: {left} left"),
        );
        succeeded(&workbook(my.path(), "hint lab02-average"));
    }
    let shown = succeeded(&workbook(my.path(), "solution lab02-average"));
    assert!(
        shown.contains("labs/lab02/solutions/lab02_average.rs") && shown.contains(ours.trim_end()),
        "{shown}"
    );
}

#[test]
fn all_solutions_are_for_those_who_teach() {
    let my = tempfile::tempdir().unwrap();
    let refused = workbook(my.path(), "solutions");
    failed(&refused, 2, "all solutions at once are for those who teach");
    assert!(stderr(&refused).contains("solutions --for-instructors FILE"));

    let file = my.path().join("handout.md");
    succeeded(&workbook(my.path(), &format!("solutions --for-instructors {}", file.display())));
    let shown = std::fs::read_to_string(file).unwrap();
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
}

/// Without a terminal the quiz is a page.
#[test]
fn a_quiz_without_a_terminal_is_a_list() {
    let my = tempfile::tempdir().unwrap();
    let list = succeeded(&workbook(my.path(), "quiz --list"));
    let mut piped = command(my.path(), "quiz");
    assert_eq!(succeeded(&piped.stdin(Stdio::null()).output().unwrap()), list);
    assert!(!list.contains("  answer "), "{list}");
    for lab in course().labs {
        assert!(list.contains(&format!(" {} ", lab.name)), "{}: {list}", lab.name);
    }
    let answers = succeeded(&workbook(my.path(), "quiz --answers"));
    let all = answers.matches("\n  answer ").count();
    assert!(list.starts_with(&format!("{all} questions")), "{answers}");
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
    failed(&workbook(my, "watch --json"), 2, "this command prints no JSON document");
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

fn count_of(lab: &str) -> usize {
    course().exercises().filter(|exercise| exercise.name.starts_with(lab)).count()
}

/// Another checkout with the same exercises, without anything compiled: a folder in it.
#[test]
fn the_checkout_around_the_reader_is_the_one_that_counts() {
    let checkout = tempfile::tempdir().unwrap();
    for file in ["labs/labs.toml", "labs/lab03/exercises/lab03_schedule.rs"] {
        let to = checkout.path().join(file);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(root(file), to).unwrap();
    }
    let reset = |program: &Path| {
        let mut command = Command::new(program);
        command.args(["reset", "lab03-schedule"]).env_remove("SHARDLAB_MY");
        command.current_dir(checkout.path().join("labs/lab03")).output().unwrap()
    };
    let told = succeeded(&reset(Path::new(program("workbook"))));
    assert_eq!(told, "../../my/lab03_schedule.rs is a copy of the blank\n");
    assert!(checkout.path().join("my/lab03_schedule.rs").is_file());
    // A program far from what it was compiled with cannot check.
    let far = checkout.path().join("workbook");
    copy_program("workbook", &far);
    failed(&reset(&far), 2, "the compiled library is not in ");
}

/// Another process copies it: of this one, programs that other tests start just then would hold the
/// file open for writing.
fn copy_program(name: &str, to: &Path) {
    assert!(Command::new("cp").arg(program(name)).arg(to).status().unwrap().success());
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
    // However long a title is, what is told at the end of its line has room.
    let begun = folder_of("solutions");
    let often = Record { tries: 12, ..Record::default() };
    let names = course().exercises().map(|exercise| exercise.name.clone()).collect::<Vec<_>>();
    let progress: BTreeMap<_, _> = names.into_iter().map(|name| (name, &often)).collect();
    let progress = serde_json::to_string(&progress).unwrap();
    std::fs::write(begun.path().join("progress.json"), progress).unwrap();
    assert!(stdout(&workbook(begun.path(), "")).contains(" 12 tries\n"));
    fits_the_screen(begun.path(), "");
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
    let (nobody, _) = document(reports.path(), "");
    let report = |file: &str, who: &str, records: &[(&str, &Record)]| {
        let mut document = Document { who: who.into(), ..nobody.clone() };
        for (name, record) in records {
            let mut entries = document.exercises.iter_mut();
            let entry = entries.find(|entry| entry.name == *name).unwrap();
            entry.solved = record.outcome == Some(Outcome::Solved);
            entry.record = (*record).clone();
        }
        let text = serde_json::to_string(&document).unwrap();
        std::fs::write(reports.path().join(file), text).unwrap();
    };
    let solved = Record {
        outcome: Some(Outcome::Solved),
        when: nobody.when,
        ..Record::default()
    };
    let stuck = Record {
        outcome: Some(Outcome::Wrong),
        stuck_at: "every rank draws its own".into(),
        tries: 3,
        hints: 1,
        ..solved.clone()
    };
    report("1.json", "ada", &[("lab00-hostfile", &solved), ("lab03-schedule", &solved)]);
    report("2.json", "grace", &[("lab00-hostfile", &solved), ("lab03-batches", &stuck)]);
    // Two people who are the same user to the system are told apart by their files.
    report("seat-3.json", "root", &[]);
    report("seat-4.json", "root", &[]);
    std::fs::write(reports.path().join("broken.json"), "{").unwrap();
    std::fs::write(reports.path().join("notes.txt"), "no report").unwrap();

    let flags = format!("report {}", reports.path().display());
    let text = succeeded(&workbook(reports.path(), &flags));
    let line = |who: &str| {
        let found = text.lines().find(|line| line.trim_start().starts_with(who));
        found.unwrap_or_else(|| panic!("{who}: {text}")).to_string()
    };
    let all = course().exercises().count();
    let next = course().exercises().next().unwrap().name.clone();
    assert!(
        line("ada ").contains(&format!("2 of {all}  {next:<13}  not checked yet")),
        "{text}"
    );
    let grace = line("grace ");
    assert!(grace.contains(&format!("1 of {all}  lab03-batches")), "{text}");
    assert!(
        grace.contains("every rank draws") && grace.ends_with("3      1  0 min"),
        "{text}"
    );
    assert!(line("lab03-batches").contains("1: every rank draws"), "{text}");
    assert!(
        line("lab00-hostfile").split_whitespace().take(2).eq(["lab00-hostfile", "2"]),
        "{text}"
    );
    assert!(line("root seat-3").contains("not checked yet"), "{text}");
    let order = ["root seat-4", "grace", "ada"].map(|who| text.find(who).unwrap());
    assert!(order.is_sorted(), "those who need help first:\n{text}");
    assert!(text.contains("not read") && text.contains("broken.json"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80 || line.contains(".json")),
        "{text}"
    );
    let json = succeeded(&workbook(reports.path(), &format!("{flags} --json")));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["documents"]["grace"]["exercises"].as_array().unwrap().len(), all);
}

/// Forty people and half of all exercises in a window of 120 x 40.
#[test]
fn a_room_of_forty_fits_a_window() {
    let reports = tempfile::tempdir().unwrap();
    let (nobody, _) = document(reports.path(), "");
    for person in 0..40 {
        let mut document = Document { who: format!("person{person:02}"), ..nobody.clone() };
        for (place, entry) in document.exercises.iter_mut().enumerate().take(26) {
            entry.begun = place <= person;
            entry.solved = 3 * place < person;
            if entry.begun {
                entry.record = Record {
                    outcome: Some(Outcome::Wrong),
                    stuck_at: "a claim that does not hold".into(),
                    tries: person % 5,
                    when: nobody.when,
                    ..Record::default()
                };
            }
        }
        let predicted =
            kit::predict::Predicted { said: "3".into(), right: person % 3 == 0, when: nobody.when };
        document.predictions.insert("lab00".into(), predicted);
        let text = serde_json::to_string(&document).unwrap();
        std::fs::write(reports.path().join(format!("{person}.json")), text).unwrap();
    }
    let readers = Readers::read(&course(), reports.path()).unwrap();
    for (width, height) in [(120, 38), (80, 48)] {
        let screen = Screen { width, ..Screen::plain() };
        let text = workbook::matrix(&screen, &readers, height);
        assert!(text.lines().count() <= height, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        for person in 0..40 {
            assert!(text.contains(&format!("person{person:02}")), "{person}: {text}");
        }
        // Each row has a mark for each exercise that someone has begun.
        let rows = text.lines().filter(|line| line.starts_with("person"));
        let marks = rows.flat_map(str::chars).filter(|c| "✓✗▸".contains(*c)).count();
        let begun: usize = (0..40).map(|person: usize| 26.min(person + 1)).sum();
        assert_eq!(marks, begun, "{text}");
        for words in
            ["40 people", "help first", "4 tries", "a claim that does not", "14 of 40 right"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}

/// A room's screen, of people with so many wrong tries at an exercise.
fn room(people: &[(&str, &str, usize)]) -> String {
    let reports = tempfile::tempdir().unwrap();
    let (nobody, _) = document(reports.path(), "");
    for (who, exercise, tries) in people {
        let mut document = Document { who: who.to_string(), ..nobody.clone() };
        let mut entries = document.exercises.iter_mut();
        let entry = entries.find(|entry| entry.name == *exercise).unwrap();
        entry.begun = true;
        entry.record = Record {
            outcome: Some(Outcome::Wrong),
            stuck_at: "one claim".into(),
            tries: *tries,
            when: nobody.when,
            ..Record::default()
        };
        let text = serde_json::to_string(&document).unwrap();
        std::fs::write(reports.path().join(format!("{who}.json")), text).unwrap();
    }
    let readers = Readers::read(&course(), reports.path()).unwrap();
    workbook::matrix(&Screen::plain(), &readers, 40)
}

#[test]
fn a_room_says_who_needs_help() {
    let at = "lab08-blocks";
    for (people, says) in [
        (&[("ada", at, 1)][..], "1 person · 0 exercises solved · 0 need help"),
        (&[("ada", at, 2)], "1 person · 0 exercises solved · 1 needs help"),
        (
            &[("ada", at, 2), ("bob", at, 2), ("eve", at, 2)],
            "3 people · 0 exercises solved · 3 need",
        ),
        (
            &[("ada", at, 2), ("bob", "lab03-schedule", 4), ("eve", at, 1)],
            " · 2 need help",
        ),
    ] {
        let shown = room(people);
        assert!(shown.lines().next().unwrap().contains(says), "{says}: {shown}");
        let helped = shown.lines().filter(|line| line.contains("one claim · ")).count();
        assert_eq!(
            helped.to_string(),
            says.split(" need").next().unwrap().rsplit(' ').next().unwrap()
        );
        let first = if shown.contains("schedule") { "0 3" } else { "0 8" };
        assert!(shown.contains(&format!("columns, read downwards: {first} ")), "{shown}");
    }
}

/// What nobody has written for this course is said once, and neither hides the room nor stops it.
#[test]
fn made_up_exercises_are_not_counted() {
    let reports = tempfile::tempdir().unwrap();
    let (mut document, _) = document(reports.path(), "");
    document.exercises[0].begun = true;
    let real = document.exercises.len();
    for (who, made_up) in [("ada", 0), ("bob", 200), ("eve", 12_000), ("zoe", 30_000)] {
        let mut document = Document { who: who.into(), ..document.clone() };
        for number in 0..made_up {
            let mut entry = document.exercises[0].clone();
            entry.name = format!("lab{:02}-made-up-{number}", number % 13);
            document.exercises.insert(0, entry);
        }
        let twice = document.exercises.last().unwrap().clone();
        document.exercises.push(twice);
        let text = serde_json::to_string(&document).unwrap();
        std::fs::write(reports.path().join(format!("{who}.json")), text).unwrap();
    }
    let begun = Instant::now();
    let readers = Readers::read(&course(), reports.path()).unwrap();
    let screen = Screen::plain();
    let room = workbook::matrix(&screen, &readers, 40);
    let table = readers.render(&screen);
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    for who in ["ada", "bob", "eve"] {
        assert!(
            room.contains(&format!("{who} ")) && table.contains(&format!("0 of {real} ")),
            "{room}{table}"
        );
    }
    assert!(
        room.contains("1 file not read") && room.contains("3 files with unknown"),
        "{room}"
    );
    assert!(!room.contains("too narrow") && !table.contains("made-up"), "{room}{table}");
    assert!(
        table.contains("bob.json: 201 entries that this course does not have"),
        "{table}"
    );
}

/// What lies where a reader's file belongs, and is none, is said.
#[cfg(unix)]
#[test]
fn a_folder_in_the_place_of_a_file_is_told() {
    let my = tempfile::tempdir().unwrap();
    let at = my.path().join("lab00_send.rs");
    let make: [(&str, &dyn Fn()); 4] = [
        (" is a folder, and your file belongs there", &|| {
            std::fs::create_dir(&at).unwrap()
        }),
        ("cannot read ", &|| {
            assert!(Command::new("mkfifo").arg(&at).status().unwrap().success());
        }),
        (" is a folder", &|| std::os::unix::fs::symlink(my.path(), &at).unwrap()),
        (" is a folder", &|| std::fs::create_dir_all(at.join("a/b")).unwrap()),
    ];
    for (what, make) in make {
        make();
        for flags in
            ["check lab00-send", "check lab00-send --json", "check all", "watch lab00-send"]
        {
            let told = workbook(my.path(), flags);
            assert_eq!(told.status.code(), Some(2), "{flags}: {}", stdout(&told));
            for words in [what, "reset lab00-send"] {
                assert!(stderr(&told).contains(words), "{flags}: {}", stderr(&told));
            }
        }
        succeeded(&workbook(my.path(), "reset lab00-send"));
        assert!(std::fs::symlink_metadata(&at).unwrap().is_file());
        // And a file after it.
        succeeded(&workbook(my.path(), "reset lab00-send"));
        std::fs::remove_file(&at).unwrap();
    }
}

/// A checkout that was copied has a program that was built in another one.
#[cfg(unix)]
#[test]
fn a_copied_checkout_is_its_own() {
    let copy = tempfile::tempdir().unwrap();
    let at = |name: &str| copy.path().join(name);
    for folder in ["labs", "data", "target/debug", "target/book"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    std::fs::copy(root("labs/labs.toml"), at("labs/labs.toml")).unwrap();
    std::fs::copy(root("data/play.txt"), at("data/play.txt")).unwrap();
    for name in ["workbook", "book", "lab03"] {
        copy_program(name, &at("target/debug").join(name));
    }
    let run = |name: &str, flags: &str, here: &Path| {
        let mut command = Command::new(at("target/debug").join(name));
        command.args(flags.split_whitespace()).current_dir(here);
        for variable in ["SHARDLAB_MY", "SHARDLAB_CORPUS"] {
            command.env_remove(variable);
        }
        command.output().unwrap()
    };
    for here in [copy.path(), &at("labs"), Path::new("/")] {
        let served = run("workbook", "serve --port 0", here);
        failed(&served, 2, &format!("there is no book in {}", at("target/book").display()));
        // Neither a page nor a text of the checkout where these were built.
        let pages = run("book", "outputs lab00", here);
        let asked = at("book/outputs.toml").display().to_string();
        assert!(stderr(&pages).contains(&asked), "{}", stderr(&pages));
        std::fs::write(at("data/tinyshakespeare.txt"), "not that text").unwrap();
        let trained = run("lab03", "--steps 1", here);
        let says = "data/tinyshakespeare.txt is not the tiny Shakespeare file";
        assert_eq!(trained.status.code(), Some(2), "{}", stdout(&trained));
        assert!(stderr(&trained).contains(says), "{}", stderr(&trained));
        std::fs::remove_file(at("data/tinyshakespeare.txt")).unwrap();
    }
}

#[test]
fn each_check_submits_where_the_room_says() {
    let my = tempfile::tempdir().unwrap();
    let room = tempfile::tempdir().unwrap();
    let checked = |room: &Path| {
        command(my.path(), "check lab00-send")
            .env("SHARDLAB_SUBMIT", room)
            .output()
            .unwrap()
    };
    checked(room.path());
    let there = std::fs::read_dir(room.path()).unwrap().count();
    assert_eq!(there, 1);
    let output = checked(&room.path().join("no/such/folder"));
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(complained.contains("SHARDLAB_SUBMIT: cannot write"), "{complained}");
}

/// Everyone may write into the folder of reports: what they write reaches the host's terminal as
/// text, and hangs nothing.
#[cfg(target_os = "linux")]
#[test]
fn a_hostile_report_does_nothing_to_the_host() {
    let reports = tempfile::tempdir().unwrap();
    let my = tempfile::tempdir().unwrap();
    let at = |name: &str| reports.path().join(name);
    let bad = "bob\u{1b}]0;OWNED\u{7}\u{1b}[2J\r\u{9b}\nx";
    let output = command(my.path(), "--json").env("USER", bad).output().unwrap();
    let mut document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (i, key) in [(0, "name"), (1, "stuck_at")] {
        document["exercises"][i][key] = bad.into();
        document["exercises"][1]["outcome"] = "wrong".into();
        document["exercises"][1]["when"] = 1.into();
    }
    document["exercises"][0]["begun"] = true.into();
    document["exercises"][0]["name"] = format!("{bad}\u{1b}").into();
    let predicted = serde_json::json!({ "said": bad, "right": false, "when": 1 });
    document["predictions"][bad] = predicted;
    std::fs::write(at(&format!("{bad}.json")), document.to_string()).unwrap();
    document["version"] = bad.into();
    std::fs::write(at(&format!("not {bad}.json")), document.to_string()).unwrap();
    assert!(Command::new("mkfifo").arg(at("pipe.json")).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", at("zero.json")).unwrap();
    std::fs::File::create(at("large.json")).unwrap().set_len(1 << 40).unwrap();

    let mut report = command(my.path(), &format!("report {}", reports.path().display()));
    let text = succeeded(&soon(&mut report));
    let harmful = |c: &char| *c != '\n' && c.is_control();
    assert_eq!(text.chars().find(harmful), None, "{text:?}");
    assert!(text.contains("bob\\u{1b}]"), "{text}");
    let room =
        workbook::matrix(&Screen::plain(), &Readers::read(&course(), reports.path()).unwrap(), 40);
    assert_eq!(room.chars().find(harmful), None, "{room:?}");
    assert!(room.contains("bob\\u{1b}]"), "{room}");
    for why in ["no regular file", "at most 4194304 are expected", "entries that this course"] {
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
    // By the number of seconds that they sleep.
    let asleep = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let words =
            processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        words.filter(|words| words == b"sleep\x0072222\0").count()
    };
    let endless = "let mut sleep = std::process::Command::new(\"sleep\");
        sleep.arg(\"72222\").spawn().unwrap().wait().unwrap();";
    let my = tempfile::tempdir().unwrap();
    std::fs::write(my.path().join("lab03_schedule.rs"), schedule_with(endless)).unwrap();
    let mut checks =
        crate::suite::program::interruptible(&mut command(my.path(), "check lab03-schedule"))
            .spawn()
            .unwrap();
    let begun = Instant::now();
    while asleep() == 0 {
        assert!(
            begun.elapsed().as_secs() < 60 && checks.try_wait().unwrap().is_none(),
            "it has not begun"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let interrupt = Command::new("kill").args(["-INT", &checks.id().to_string()]).status();
    assert!(interrupt.unwrap().success());
    let status = checks.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(2), "{status}");
    // A signal takes a moment.
    while asleep() > 0 {
        assert!(begun.elapsed().as_secs() < 60, "it still runs");
        std::thread::sleep(Duration::from_millis(10));
    }
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
        "rustc cannot link a program here (exit status: 1): error: linker `cc` not found",
    );
    // It compiles everything to a program that cannot be loaded.
    let compiler = nothing.path().join("compiler");
    let body = "while [ $# -gt 0 ]; do if [ \"$1\" = --out-dir ]; then out=$2; fi; shift; done
printf '#!/bin/sh\necho error while loading shared libraries; exit 127\n' > \"$out/check\"; chmod 755 \"$out/check\"";
    script(&compiler, body);
    let path = std::env::var_os("PATH").unwrap();
    refused(
        &compiler,
        Path::new(&path),
        "the check did not begin: error while loading shared libraries",
    );
    let json: serde_json::Value =
        serde_json::from_str(&succeeded(&workbook(my.path(), "--json"))).unwrap();
    let exercise = &json["exercises"][0];
    assert_eq!(exercise["tries"], 0, "{exercise}");
    assert_eq!(exercise["outcome"], serde_json::Value::Null, "{exercise}");
}

/// A healthy machine, one with a different compiler and no linker, and a program far from its
/// library in folders that nobody can write.
#[cfg(unix)]
#[test]
fn the_doctor_tells_what_is_missing() {
    let my = tempfile::tempdir().unwrap();
    let doctor = |variables: &[(&str, &Path)]| {
        let mut doctor = command(my.path(), "doctor");
        doctor.env_remove("RUSTC").envs(variables.iter().copied());
        doctor.output().unwrap()
    };
    let healthy = succeeded(&doctor(&[]));
    let version = stdout(&Command::new("rustc").arg("--version").output().unwrap());
    let exercises = course().exercises().count();
    for part in [
        format!("✓ rustc    {}", version.trim()).as_str(),
        format!("✓ tasks    {exercises} exercises in labs").as_str(),
        "✓ linker ",
        "✓ TMPDIR ",
        "✓ my ",
        "✓ memory ",
        "✓ MPI ",
        "Labs and exercises work here.",
    ] {
        assert!(healthy.contains(part), "{part:?} is missing in\n{healthy}");
    }

    let other = my.path().join("other/rustc");
    let real = rustc();
    let line = "[ \"$1\" != --version ] || { echo 'rustc 1.2.3'; exit; }";
    script(&other, &format!("{line}\nexec {} \"$@\"", real.display()));
    let output = doctor(&[("RUSTC", &other), ("PATH", Path::new("/nowhere"))]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "✗ rustc rustc 1.2.3; the build is by rustc ",
        "RUSTC=its path",
        "rustc cannot link a program here (exit status: 1): error: linker `cc` not found",
        "module load gcc",
        "Not ready: rustc, linker.",
    ] {
        assert!(words.contains(part), "{part:?} is missing in\n{text}");
    }

    // What a build with MPI needs is looked for if someone asks.
    assert!(!healthy.contains("libclang") && !healthy.contains("mpicc"), "{healthy}");
    let nowhere = my.path().join("no clang");
    let clang = my.path().join("clang");
    std::fs::create_dir(&clang).unwrap();
    std::fs::write(clang.join("libclang-cpp.so.14"), "").unwrap();
    let [good, bad] = ["mpicc", "bad-mpicc"].map(|name| my.path().join(name));
    script(&good, "exit 0");
    script(&bad, "echo 'mpi.h: No such file'; exit 1");
    for (mpicc, libclang, says) in [
        (&good, &nowhere, "no libclang is found"),
        (&good, &clang, "no libclang is found"),
        (&nowhere, &clang, "compiles no program of MPI: No such file"),
        (&bad, &clang, "compiles no program of MPI: mpi.h: No such file"),
        (&good, &clang.join("libclang.so.1"), ""),
    ] {
        if says.is_empty() {
            std::fs::write(libclang, "").unwrap();
        }
        let mut doctor = command(my.path(), "doctor --mpi");
        doctor.env_remove("RUSTC").env("MPICC", mpicc).env("LIBCLANG_PATH", libclang);
        let output = doctor.output().unwrap();
        let words = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.success(), says.is_empty(), "{words}");
        assert!(words.contains(says), "{says}: {words}");
    }

    let far = my.path().join("workbook");
    copy_program("workbook", &far);
    let mut doctor = Command::new(far);
    doctor
        .args(["doctor", "--ascii"])
        .current_dir("/proc")
        .env("SHARDLAB_MY", "/proc/my");
    let text = stdout(&doctor.output().unwrap());
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
        copy_program(name, &at("bin").join(name));
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
    succeeded(&start(program("workbook"), "reset lab03-schedule"));
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
    let people = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let submit = |person: usize, name: &str| {
        let flags = format!("submit {}", room.path().display());
        let mut command = command(people[person].path(), &flags);
        let told = succeeded(&command.env("SHARDLAB_NAME", name).output().unwrap());
        assert!(told.contains(&format!("as {name:?}, in ")), "{told}");
        std::fs::read_dir(room.path()).unwrap().count()
    };
    let watched = Watched::start(command(
        people[0].path(),
        &format!("report --watch {}", room.path().display()),
    ));
    watched.wait_for("no reports in");
    watched.wait_for("watching: the table changes");
    assert_eq!(submit(0, "jovyan"), 1);
    watched.wait_for("  jovyan ");
    assert_eq!((submit(1, "jovyan"), submit(1, "jovyan")), (2, 2));
    watched.wait_for("  jovyan ");
    assert_eq!(submit(1, "Ada L./../x"), 2, "one file, whatever the name");
    watched.wait_for("Ada L./../x");
    std::fs::remove_file(people[1].path().join(".participant")).unwrap();
    assert_eq!(submit(1, "Ada"), 3, "another folder is another participant");
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
    // Editors that write another file and rename it.
    write("lab03_schedule.rs~", &schedule_with(""));
    std::fs::rename(my.path().join("lab03_schedule.rs~"), my.path().join("lab03_schedule.rs"))
        .unwrap();
    wait_for("solved   after 1 try");
    wait_for("now edit");
    wait_for("watching: save a file");
    assert!(my.path().join("lab00_send.rs").is_file(), "the next one lies ready");
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
    assert!(targets.iter().any(|target| target["name"] == "lab03"), "{targets:?}");
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
