//! One build for all participants: what `labs/cluster/build.sh` puts beside the programs, so that
//! participants need nothing else.
//!
//! ```text
//! bin/, bin-mpi/   the programs; the ranks of those in bin-mpi/ are MPI processes under a launcher
//! share/labs/      what the workbook reads: exercises, checks, solutions
//! share/book/      the built book, with the labs that run on its pages
//! lib/             the library and all that it uses, compiled
//! toolchain/       the rustc that has compiled them; link/ links where there is no C compiler
//! ```

use std::path::{Path, PathBuf};

/// The folder that has all of these.
#[derive(Clone, Debug)]
pub(super) struct SharedBuild(PathBuf);

impl SharedBuild {
    /// The shared build that this program belongs to, if it belongs to one.
    pub fn of_this_program() -> Option<SharedBuild> {
        SharedBuild::of(&std::env::current_exe().ok()?)
    }

    fn of(program: &Path) -> Option<SharedBuild> {
        kit::reader::shared_build(program).map(SharedBuild)
    }

    /// The folder of the book, which may not have been built.
    pub fn book(&self) -> PathBuf {
        self.0.join("share/book")
    }

    pub fn library(&self) -> PathBuf {
        self.0.join("lib")
    }

    /// The compiler, if one was brought.
    pub fn rustc(&self) -> Option<PathBuf> {
        let name = Path::new("rustc").with_extension(std::env::consts::EXE_EXTENSION);
        Some(self.0.join("toolchain/bin").join(name)).filter(|path| path.is_file())
    }

    /// Arguments with which rustc links without a C compiler: none if that was not brought. Their
    /// file names the toolchain's folder by a word, because a build can be copied.
    pub fn linking(&self) -> Vec<String> {
        let toolchain = self.0.join("toolchain");
        let arguments = std::fs::read_to_string(toolchain.join("link/arguments"));
        let place = toolchain.to_string_lossy();
        let arguments = arguments.unwrap_or_default().replace("{toolchain}", &place);
        arguments.lines().map(String::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_build_is_found_from_its_programs() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("bin-mpi/workbook");
        assert!(SharedBuild::of(&program).is_none());
        std::fs::create_dir_all(folder.path().join("share/labs")).unwrap();
        std::fs::write(folder.path().join("share/labs/labs.toml"), "").unwrap();
        let shared = SharedBuild::of(&program).unwrap();
        assert!(shared.linking().is_empty());
        std::fs::create_dir_all(folder.path().join("toolchain/link")).unwrap();
        let arguments = "-Clinker={toolchain}/lld\n-Clink-arg=-L{toolchain}/link\n";
        std::fs::write(folder.path().join("toolchain/link/arguments"), arguments).unwrap();
        let toolchain = folder.path().join("toolchain");
        let toolchain = toolchain.display();
        let expected =
            [format!("-Clinker={toolchain}/lld"), format!("-Clink-arg=-L{toolchain}/link")];
        assert_eq!(shared.linking(), expected);
        assert_eq!(shared.library(), folder.path().join("lib"));
        assert_eq!(shared.rustc(), None);
        assert!(SharedBuild::of(folder.path()).is_none());
    }
}
