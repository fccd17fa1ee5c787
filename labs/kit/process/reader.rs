//! Someone who works through the labs: the folders, the checkout's and the reader's own, the name,
//! and the time of what was done.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the labs' files are, and where the reader's are.
pub struct Folders {
    /// The checkout, or what a shared build has of it.
    pub root: PathBuf,
    /// The reader's own.
    pub my: PathBuf,
}

impl Folders {
    /// The checkout around the current folder, or else this program's shared build, or else the
    /// checkout around this program, or else the one that it was built from: a checkout that was
    /// copied or moved has a program that knows only where it was built. The reader's folder is the
    /// one that the variable SHARDLAB_MY names, or else `my` in the checkout, or `shardlab-my` in
    /// the reader's home.
    ///
    /// # Errors
    /// Where there are no labs, the folder in which there might have been some.
    pub fn find() -> Result<Folders, PathBuf> {
        let here = std::env::current_dir().unwrap_or_default();
        let built_from = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .expect("labs/kit is below");
        let variable = |name| std::env::var_os(name).filter(|folder| !folder.is_empty());
        let has_labs = |folder: &&Path| folder.join("labs/labs.toml").is_file();
        let program = std::env::current_exe().unwrap_or_default();
        let shared = shared_build(&program);
        let (root, my) = if let Some(root) = here.ancestors().find(has_labs) {
            (root.to_path_buf(), root.join("my"))
        } else if let Some(shared) = shared {
            let home = variable("HOME").map_or_else(|| here.clone(), PathBuf::from);
            (shared.join("share"), home.join("shardlab-my"))
        } else if let Some(root) = program.ancestors().chain([built_from]).find(has_labs) {
            (root.to_path_buf(), root.join("my"))
        } else {
            return Err(built_from.to_path_buf());
        };
        let my = variable("SHARDLAB_MY").map_or(my, |folder| here.join(folder));
        Ok(Folders { root, my })
    }
}

/// The folder of the shared build to which a program belongs, if it belongs to one.
pub fn shared_build(program: &Path) -> Option<PathBuf> {
    let folder = program.ancestors().nth(2)?;
    folder.join("share/labs/labs.toml").is_file().then(|| folder.to_path_buf())
}

/// The reader's name: what SHARDLAB_NAME says, or else the user's. It may be empty.
pub fn name() -> String {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    ["SHARDLAB_NAME", "USER", "LOGNAME", "USERNAME"]
        .into_iter()
        .find_map(variable)
        .unwrap_or_default()
}

/// Seconds since 1970, as records keep them.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
