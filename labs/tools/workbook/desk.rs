//! The folders of an exercise's files: those of the workbook, and the reader's own.
//!
//! Blanks, solutions and checks lie below `labs/` and never change. The reader works in a separate
//! folder, `my/` at the checkout's root. Git ignores it, and Cargo does not read it. A shared build
//! is nobody's own and cannot be written, so its readers work in `shardlab-my` in their home,
//! wherever they start the workbook.

use super::command::command;
use kit::Exercise;
use kit::reader::Folders;
use shardlab::error::BadInput;
use shardlab::files;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What an assistant should know who helps the reader: the checkout has it at its top, and the
/// reader's folder gets a copy, because assistants look for it where they are asked.
const FOR_ASSISTANTS: (&str, &str) = ("AGENTS.md", include_str!("../../../AGENTS.md"));

/// What labs keep in the reader's folder, and may have made it for: the predictions.
const OF_LABS: &str = "predictions.json";

/// The folders.
#[derive(Clone, Debug)]
pub struct Desk {
    /// The checkout, or what a shared build has of it.
    pub root: PathBuf,
    /// The reader's own.
    pub my: PathBuf,
    /// The reader's current folder.
    here: PathBuf,
}

impl Desk {
    /// Finds the folders, as the labs find them.
    pub fn find() -> Result<Desk, BadInput> {
        let here = std::env::current_dir().unwrap_or_default();
        let Folders { root, my } = Folders::find().map_err(|built_from| {
            let what = format!(
                "there is no labs/labs.toml around {}, nor in {}",
                here.display(),
                built_from.display()
            );
            let help = "run the workbook inside a checkout of shardlab, or start the one that labs/cluster/build.sh has installed";
            BadInput::new(what, help)
        })?;
        Ok(Desk { root, my, here })
    }

    /// A file of the exercise in its lab's folder.
    fn of_lab(&self, folder: &str, exercise: &Exercise) -> PathBuf {
        self.root.join("labs").join(exercise.lab()).join(folder).join(exercise.file())
    }

    /// The file with which the exercise begins.
    pub fn blank(&self, exercise: &Exercise) -> PathBuf {
        self.of_lab("exercises", exercise)
    }

    /// Our solution.
    pub fn solution(&self, exercise: &Exercise) -> PathBuf {
        self.of_lab("solutions", exercise)
    }

    /// The program that checks it.
    pub fn check(&self, exercise: &Exercise) -> PathBuf {
        self.of_lab("checks", exercise)
    }

    /// The reader's own file.
    pub fn mine(&self, exercise: &Exercise) -> PathBuf {
        self.my.join(exercise.file())
    }

    /// Puts a copy of the blank on the desk, unless there is one. Returns whether it did.
    pub fn begin(&self, exercise: &Exercise) -> Result<bool, BadInput> {
        let mine = self.mine(exercise);
        if mine.exists() {
            return Ok(false);
        }
        self.write(&mine, read(&self.blank(exercise))?.as_bytes())?;
        Ok(true)
    }

    /// Refuses what is no file that can be read under the name of the reader's file. Without a file
    /// the exercise is not begun, and nothing is wrong.
    pub(super) fn ensure_nothing_else(&self, exercise: &Exercise) -> Result<(), BadInput> {
        let mine = self.mine(exercise);
        let Err(error) = files::read(&mine, files::LIST) else {
            return Ok(());
        };
        let shown = self.shown(&mine).display().to_string();
        let what = match error.kind() {
            ErrorKind::NotFound => return Ok(()),
            _ if mine.is_dir() => format!("{shown} is a folder, and your file belongs there"),
            _ => format!("cannot read {shown}: {error}"),
        };
        let reset = format!("{} reset {}", command(), exercise.name);
        Err(BadInput::new(
            what,
            format!("move it away, or let the workbook do that:  {reset}"),
        ))
    }

    /// Begins again. Moves the reader's old file to `old/`, and returns its path.
    pub fn reset(&self, exercise: &Exercise) -> Result<Option<PathBuf>, BadInput> {
        let mine = self.mine(exercise);
        let mut kept = None;
        if mine.exists() {
            // A file takes the place of an earlier one, but not of a folder, nor a folder of it.
            let mut old = self.my.join("old").join(exercise.file());
            while old.exists() && !(old.is_file() && mine.is_file()) {
                old = old.with_added_extension("old");
            }
            let moved = std::fs::create_dir_all(self.my.join("old"))
                .and_then(|()| std::fs::rename(&mine, &old));
            moved.map_err(|error| refusal("write", &old, &error))?;
            kept = Some(old);
        }
        self.begin(exercise)?;
        Ok(kept)
    }

    /// Writes a file of the reader's folder, either completely or not at all. A new folder gets the
    /// file for assistants first.
    pub fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), BadInput> {
        let is_new = self.is_new();
        std::fs::create_dir_all(&self.my).map_err(|error| refusal("write", path, &error))?;
        let (name, text) = FOR_ASSISTANTS;
        // A reader who interrupts this, or a second workbook, must not find half a file.
        let put = |path: &Path, bytes: &[u8]| {
            files::replace(path, bytes).map_err(|error| refusal("write", path, &error))
        };
        if is_new {
            put(&self.my.join(name), text.as_bytes())?;
        }
        put(path, bytes)
    }

    /// Whether the reader's folder is still to be made, or has only what labs keep in it. So the
    /// file for assistants is written once: a reader may change it, or delete it.
    fn is_new(&self) -> bool {
        let Ok(mut entries) = std::fs::read_dir(&self.my) else {
            return !self.my.exists();
        };
        entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == OF_LABS))
    }

    /// A path as the reader can type it in the current folder.
    pub fn shown(&self, path: &Path) -> PathBuf {
        if let Ok(below) = path.strip_prefix(&self.here) {
            return below.to_path_buf();
        }
        match (path.strip_prefix(&self.root), self.here.strip_prefix(&self.root)) {
            (Ok(below), Ok(depth)) => depth.iter().map(|_| "..").collect::<PathBuf>().join(below),
            _ => path.to_path_buf(),
        }
    }
}

pub(super) const RESTORE: &str = "this file comes with the workbook: restore it with git";

/// The files of a folder that comes with the workbook, in the order of their names.
pub(super) fn files_of(folder: &Path) -> Result<Vec<PathBuf>, BadInput> {
    let unreadable = |error: std::io::Error| {
        BadInput::new(format!("cannot read {}: {error}", folder.display()), RESTORE)
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        files.push(entry.map_err(unreadable)?.path());
    }
    files.sort();
    Ok(files)
}

/// A file that comes with the workbook.
pub(super) fn read(path: &Path) -> Result<String, BadInput> {
    files::text(path, files::LIST)
        .map_err(|error| BadInput::new(format!("cannot read {}: {error}", path.display()), RESTORE))
}

/// The reader's folder cannot be used.
pub(super) fn refusal(to: &str, path: &Path, error: &std::io::Error) -> BadInput {
    BadInput::new(
        format!("cannot {to} {}: {error}", path.display()),
        "choose a folder for your exercises:  export SHARDLAB_MY=$HOME/shardlab-my",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_folder_gets_the_checkouts_file_for_assistants_once() {
        let folder = tempfile::tempdir().unwrap();
        let my = folder.path().join("my");
        let desk = Desk { root: "/".into(), my: my.clone(), here: "/".into() };
        let write = |name: &str| desk.write(&my.join(name), b"mine").unwrap();
        let there = my.join("AGENTS.md");
        let read = || std::fs::read_to_string(&there).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap();
        let ours = std::fs::read_to_string(root.join("AGENTS.md")).unwrap();

        std::fs::create_dir(&my).unwrap();
        std::fs::write(my.join(OF_LABS), "{}").unwrap();
        write("a.rs");
        assert_eq!(read(), ours);
        std::fs::write(&there, "changed").unwrap();
        write("b.rs");
        assert_eq!(read(), "changed");
        std::fs::remove_file(&there).unwrap();
        write("c.rs");
        assert!(!there.exists(), "it came back");

        std::fs::remove_dir_all(&my).unwrap();
        write("a.rs");
        assert_eq!(read(), ours);
    }

    #[test]
    fn paths_are_shown_from_where_the_reader_stands() {
        let shown = |here: &str, path: &str| {
            let desk = Desk {
                root: "/w/shardlab".into(),
                my: "/w/shardlab/my".into(),
                here: here.into(),
            };
            desk.shown(Path::new(path)).display().to_string()
        };
        assert_eq!(shown("/w/shardlab", "/w/shardlab/my/a.rs"), "my/a.rs");
        assert_eq!(shown("/w/shardlab/labs/cluster", "/w/shardlab/my/a.rs"), "../../my/a.rs");
        assert_eq!(shown("/w/shardlab/my", "/w/shardlab/my/a.rs"), "a.rs");
        assert_eq!(shown("/tmp", "/w/shardlab/my/a.rs"), "/w/shardlab/my/a.rs");
        assert_eq!(shown("/w/shardlab", "/home/reader/a.rs"), "/home/reader/a.rs");
    }
}
