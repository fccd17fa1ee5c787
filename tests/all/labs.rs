//! The labs' list, `labs/labs.toml`, against everything that repeats it.

use crate::suite::program::{ROOT, lab, stderr, succeeded};
use kit::{Course, Exercise, Lab, TwoDays};
use std::path::Path;
use workbook::dev::{BLOCKS, stale};

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

pub fn labs() -> Vec<Lab> {
    Course::read().expect("labs.toml").labs
}

fn exercises() -> Vec<Exercise> {
    by_folder().into_iter().flat_map(|of| of.1).collect()
}

/// The folders in `labs/` that have exercises, and these.
fn by_folder() -> Vec<(String, Vec<Exercise>)> {
    let course = Course::read().expect("labs.toml");
    let of_lab = |lab: Lab| (lab.name, lab.exercises);
    let mut all: Vec<_> = course.labs.into_iter().map(of_lab).collect();
    all.push(("ladder".into(), course.ladder.exercises));
    all
}

#[test]
fn every_lab_is_a_package_with_its_lesson() {
    for lab in labs() {
        let cargo: toml::Table =
            toml::from_str(&text(&format!("labs/{}/Cargo.toml", lab.name))).unwrap();
        let bins = cargo["bin"].as_array().unwrap();
        assert_eq!(bins.len(), 1, "{}", lab.name);
        assert_eq!(bins[0]["name"].as_str(), Some(&*lab.name));
        assert_eq!(lab.file, format!("labs/{}/lesson.rs", lab.name));
        let program = bins[0]["path"].as_str().unwrap();
        if program != "lesson.rs" {
            assert_eq!(program, "main.rs", "{}", lab.name);
            assert_eq!(cargo["lib"]["path"].as_str(), Some("lib.rs"), "{}", lab.name);
            let library = text(&format!("labs/{}/lib.rs", lab.name));
            assert!(library.contains("\npub mod lesson;\n"), "{}: its lesson", lab.name);
        }
    }
}

#[test]
fn labs_are_in_order_and_say_what_they_are() {
    let labs = labs();
    assert!(labs.windows(2).all(|w| w[0].number < w[1].number));
    for (i, lab) in labs.iter().enumerate() {
        assert!(
            i == 0 || !lab.needs.is_empty(),
            "{}: labs.toml does not say which labs it needs",
            lab.name
        );
        for needed in &lab.needs {
            assert!(
                labs[..i].iter().any(|earlier| earlier.name == *needed),
                "{} needs {needed}, no lab before it",
                lab.name
            );
        }
    }
    for lab in labs {
        assert_eq!(lab.name, format!("lab{:02}", lab.number));
        let source = text(&lab.file);
        assert!(
            source.starts_with(&format!("//! {} · {}\n", lab.name, lab.title)),
            "{}: its first line",
            lab.file
        );
        assert!(source.contains(&lab.question), "{}: its question", lab.file);
    }
}

/// The question, what answers it, and the checks: together on a terminal of 45 lines and 80
/// columns. What is more is printed by flags.
#[test]
fn a_labs_screen_begins_and_ends_as_labs_toml_says() {
    let labs = labs();
    for (i, this) in labs.iter().enumerate() {
        let Lab { name, title, takes, question, takeaway, .. } = this;
        // The lab prints what stands there: `screens.rs` runs it.
        let screens = text(&format!("tests/screens/{name}.txt"));
        let first = screens.split("\n\n$ ").next().unwrap();
        let (_, screen) = first.split_once('\n').unwrap();
        let screen = format!("{screen}\n");
        let title = format!("{name} · {title}");
        let takes = format!("about {takes}");
        let gap = " ".repeat(80 - title.chars().count() - takes.len());
        assert!(screen.starts_with(&format!("{title}{gap}{takes}\n{question}\n")), "{screen}");
        let mut end = format!("  Takeaway: {takeaway}\n");
        end += &match labs.get(i + 1) {
            Some(Lab { name, announced, .. }) => {
                format!("  Next: {name}, {announced}   cargo run --bin {name}\n")
            }
            None => "  Next: the exercises   cargo run --bin workbook\n".to_string(),
        };
        // A line on more flags may be between the two.
        let is_said = |line: &&str| !line.starts_with("  More: ");
        let said: String = screen.split_inclusive('\n').filter(is_said).collect();
        assert!(said.ends_with(&end), "{name}: {end} is not the end of\n{screen}");
        let lines = screen.lines().count();
        assert!((20..=45).contains(&lines), "{name}: {lines} lines\n{screen}");
    }
}

#[test]
fn every_lab_takes_a_link_and_ascii_means_ascii() {
    for Lab { name, ranks, short, .. } in labs() {
        // lab11 computes, and sends nothing. lab01 would time the link for seconds.
        let takes = ranks > 1 && name != "lab01";
        let link = if takes { "--link 10us,1GB/s" } else { "" };
        let screen = succeeded(&lab(&name, &format!("{short} --ascii {link}")));
        assert!(screen.is_ascii(), "{name}: {screen}");
    }
}

/// What is written from labs.toml is not typed: one command writes it, lists and minutes.
#[test]
fn what_follows_from_labs_toml_is_up_to_date() {
    let course = Course::parse(&text("labs/labs.toml")).unwrap();
    for (file, should) in stale(Path::new(ROOT), &course).unwrap() {
        assert_eq!(text(&file), should, "{file}: run  cargo run --bin workbook -- dev update");
    }
}

/// A lab that only labs.toml has is found in every list.
#[test]
fn a_lab_is_declared_once() {
    let root = Path::new(ROOT);
    let mut course = Course::parse(&text("labs/labs.toml")).unwrap();
    let last = course.labs.last().unwrap().clone();
    let number = last.number + 1;
    let name = format!("lab{number}");
    let day = TwoDays {
        with: None,
        ends: "a plan".into(),
        room: "predict, run".into(),
    };
    let invented = Lab {
        number,
        name: name.clone(),
        title: "Experts".into(),
        two_days: Some(day),
        ..last
    };
    course.labs.push(invented);
    for block in BLOCKS.iter().filter(|block| block.lists_labs) {
        let file = text(block.file);
        let should = block.should(root, &course, block.is(&file).unwrap()).unwrap();
        assert!(should.contains(&name), "{} has no {name}:\n{should}", block.file);
    }
}

/// `build.sh` names an archive after Cargo.toml's, and `tests/edition.sh` asks its programs.
#[test]
fn an_edition_has_one_version() {
    let version = env!("CARGO_PKG_VERSION");
    let first = |file: &str, begins: &str, ends: char| {
        let text = text(file);
        let line = text.lines().find_map(|line| line.strip_prefix(begins)).expect(begins);
        line.split(ends).next().unwrap().to_string()
    };
    assert_eq!(first("Cargo.toml", "version = \"", '"'), version);
    assert_eq!(first("CITATION.cff", "version: ", ' '), version);
    assert_eq!(first("CHANGELOG.md", "## [", ']'), version);
    assert_eq!(first("PUBLISH.md", "git tag -a v", ' '), version);
}

/// It is what someone reads in their first five minutes.
#[test]
fn the_readme_is_short() {
    let most = 100;
    let lines = text("README.md").lines().count();
    assert!(
        lines <= most,
        "README.md has {lines} lines, more than {most}: the book has pages for the rest"
    );
}

#[test]
fn exercises_have_names_texts_and_hints() {
    let mut names: Vec<String> = Vec::new();
    for (folder, exercises) in by_folder() {
        for Exercise { name, title, task, hints, .. } in exercises {
            assert!(name.starts_with(&format!("{folder}-")), "{name} belongs to {folder}");
            assert!(
                name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'),
                "{name}"
            );
            assert!(name.len() <= 19 && title.len() <= 42, "{name}: the map has no room for it");
            assert!(!task.contains('\n') && !task.ends_with('.'), "{name}: {task}");
            assert!(
                hints.len() >= 3 && hints.iter().all(|hint| !hint.is_empty()),
                "{name}: too few hints"
            );
            assert!(
                hints[hints.len() - 1].starts_with("The idea: "),
                "{name}: its last hint names the idea"
            );
            assert!(
                [&title, &task].into_iter().chain(&hints).all(|text| text.is_ascii()),
                "{name}: --ascii means ASCII"
            );
            assert!(!names.contains(&name), "{name} is there twice");
            names.push(name);
        }
    }
}

/// The task shows a picture of what goes in and what comes out, and a lab begins with something
/// quick.
#[test]
fn every_task_has_a_picture_and_every_lab_begins_with_two_minutes() {
    for (folder, exercises) in by_folder() {
        for exercise in &exercises {
            let task = text(&format!("labs/{folder}/exercises/{}", exercise.file()));
            let picture = task.split("//! ```text\n").nth(1);
            let picture = picture.and_then(|rest| rest.split("//! ```\n").next());
            let lines = picture.map_or(0, |picture| picture.lines().count());
            assert!((2..=24).contains(&lines), "{}: a picture of {lines} lines", exercise.name);
        }
        let first = exercises.first().map(|exercise| exercise.minutes);
        assert!(folder == "ladder" || first == Some(2), "{folder}: {first:?}");
    }
}

#[test]
fn every_exercise_has_its_files_and_every_file_its_exercise() {
    for (lab, exercises) in by_folder() {
        for folder in ["exercises", "solutions", "checks"] {
            let mut expected: Vec<String> = exercises.iter().map(Exercise::file).collect();
            if folder == "checks" {
                for exercise in &exercises {
                    expected.push(exercise.file().replace(".rs", ".mistakes.toml"));
                }
            }
            expected.sort();
            let files = std::fs::read_dir(Path::new(ROOT).join("labs").join(&lab).join(folder));
            let names = files
                .into_iter()
                .flatten()
                .map(|file| file.unwrap().file_name().into_string().unwrap());
            let mut files: Vec<String> = names.collect();
            files.sort();
            assert_eq!(files, expected, "{lab}/{folder}");
        }
    }
    for exercise in exercises() {
        let blank = text(&format!("labs/{}/exercises/{}", exercise.lab(), exercise.file()));
        let first = format!("//! {} · {}\n", exercise.name, exercise.title);
        assert!(blank.starts_with(&first), "{}: its first line", exercise.file());
        assert!(
            text(&format!("labs/{}/solutions/{}", exercise.lab(), exercise.file()))
                .starts_with(&first),
            "{}: its solution's first line",
            exercise.file()
        );
        assert_eq!(
            blank.contains("todo!("),
            !exercise.broken,
            "{}: a place to write",
            exercise.file()
        );
        assert!(blank.lines().count() <= 100, "{}: an exercise is small", exercise.file());
    }
}

/// One form for all labs: the step, what happened, what to do.
#[test]
fn a_training_that_diverges_says_at_which_step_and_what_to_do() {
    let tiny = "--layers 4 --embd 16 --heads 2 --block 8 --batch 4 --steps 4 --lr 1e30 --clip 0";
    for (name, flags) in [
        ("lab02", "--batch 2 --steps 6 --lr 1e30"),
        ("lab03", tiny),
        ("lab04", tiny),
        ("lab05", tiny),
        ("lab06", tiny),
        ("lab09", &format!("{tiny} --save-after 2")),
    ] {
        let output = lab(name, flags);
        let error = stderr(&output);
        let told = error.contains("at step 2, ")
            && error.contains(": training has diverged\nhelp: lower --lr");
        assert!(output.status.code() == Some(1) && told, "{name}: {error}");
    }
}
