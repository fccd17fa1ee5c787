//! One build for a room: what `labs/cluster/build.sh` puts beside the programs, so that
//! participants need nothing else.
//!
//! ```text
//! bin/, bin-mpi/   the programs; the ranks of those in bin-mpi/ are MPI processes under a launcher
//! share/labs/      what the workbook reads: exercises, checks, solutions
//! lib/             the library and all that it uses, compiled
//! toolchain/       the rustc that has compiled them; link/ links where there is no C compiler
//! ```

use std::path::{Path, PathBuf};

/// The folder that has all of these.
#[derive(Clone, Debug)]
pub(super) struct Room(PathBuf);

impl Room {
    /// The room that this program belongs to, if it belongs to one.
    pub fn of_this_program() -> Option<Room> {
        Room::of(&std::env::current_exe().ok()?)
    }

    fn of(program: &Path) -> Option<Room> {
        kit::reader::room(program).map(Room)
    }

    pub fn library(&self) -> PathBuf {
        self.0.join("lib")
    }

    /// The compiler, if one was brought.
    pub fn rustc(&self) -> Option<PathBuf> {
        let name = Path::new("rustc").with_extension(std::env::consts::EXE_EXTENSION);
        Some(self.0.join("toolchain/bin").join(name)).filter(|path| path.is_file())
    }

    /// A file of rustc's arguments with which it links without a C compiler, if they were brought.
    pub fn linking(&self) -> Option<PathBuf> {
        Some(self.0.join("toolchain/link/arguments")).filter(|path| path.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_found_from_its_programs() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("bin-mpi/workbook");
        assert!(Room::of(&program).is_none());
        std::fs::create_dir_all(folder.path().join("share/labs")).unwrap();
        std::fs::write(folder.path().join("share/labs/labs.toml"), "").unwrap();
        let room = Room::of(&program).unwrap();
        assert_eq!(room.library(), folder.path().join("lib"));
        assert_eq!((room.rustc(), room.linking()), (None, None));
        assert!(Room::of(folder.path()).is_none());
    }
}
