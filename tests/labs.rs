//! The labs' list, `labs/labs.toml`, against everything that repeats it.

use std::path::Path;

#[derive(serde::Deserialize)]
struct Labs {
    lab: Vec<Lab>,
}

#[derive(serde::Deserialize)]
struct Lab {
    number: usize,
    name: String,
    file: String,
    title: String,
    question: String,
    minutes: usize,
    ranks: usize,
}

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn labs() -> Vec<Lab> {
    toml::from_str::<Labs>(&text("labs/labs.toml")).expect("labs.toml").lab
}

#[test]
fn labs_are_binaries_of_the_package() {
    let cargo: toml::Table = toml::from_str(&text("Cargo.toml")).unwrap();
    let bins: Vec<(String, String)> = cargo["bin"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bin| (bin["name"].as_str().unwrap().to_string(), bin["path"].as_str().unwrap().to_string()))
        .filter(|(name, _)| name.starts_with("lab"))
        .collect();
    assert_eq!(bins, labs().into_iter().map(|lab| (lab.name, lab.file)).collect::<Vec<_>>());
}

#[test]
fn labs_are_in_order_and_say_what_they_are() {
    let labs = labs();
    assert!(labs.windows(2).all(|w| w[0].number < w[1].number));
    for lab in labs {
        assert_eq!(lab.name, format!("lab{:02}", lab.number));
        let source = text(&lab.file);
        assert!(source.starts_with(&format!("//! {} · {}\n", lab.name, lab.title)), "{}: its first line", lab.file);
        assert!(source.contains(&lab.question), "{}: its question", lab.file);
        let lines = source.lines().count();
        assert!(lines <= 300, "{} has {lines} lines; a lab is read in one sitting: 300 at most", lab.file);
    }
}

#[test]
fn the_readme_lists_the_labs() {
    let readme = text("README.md");
    for Lab { name, title, question, minutes, ranks, .. } in labs() {
        let row = format!("| `{name}` | {title} | {question} | {minutes} | {ranks} |");
        assert!(readme.contains(&row), "README.md lacks this row:\n{row}");
    }
}
