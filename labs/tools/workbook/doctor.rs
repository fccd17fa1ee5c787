//! Does this machine have what labs and exercises need? For people before a workshop, and for those
//! who help them.
//!
//! What can be tried is tried: a program is really compiled and linked, a file really written.

use super::child::{self, End, Limits};
use super::compile::{self, Library};
use super::desk::Desk;
use super::toolchain::{BUILT_BY, Toolchain, on_path};
use kit::Course;
use kit::show::{Screen, bytes_binary};
use shardlab::error::BadInput;
use shardlab::launch;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Bytes that a check needs in the folder for temporary files, at the most.
const OF_A_CHECK: u64 = 200 << 20;
/// Bytes of all files that labs write.
const OF_THE_LABS: u64 = 200 << 20;
/// Bytes of all files that a reader writes.
const OF_A_READER: u64 = 20 << 20;
/// Bytes of memory that most labs take.
const OF_A_LAB: u64 = 512 << 20;

/// Limits of the programs that are tried.
const LIMITS: Limits = Limits {
    computing: Duration::from_secs(20),
    idle: Duration::from_secs(20),
    memory: 2 << 30,
};

/// What was looked at, and what was found there: or what is wrong, and what to do.
pub struct Health(Vec<(&'static str, Result<String, BadInput>)>);

impl Health {
    /// Looks at this machine, for about a second. With `mpi`, also for what a build with MPI needs.
    pub fn of_this_machine(mpi: bool) -> Health {
        let toolchain = Toolchain::find();
        let temporary = "choose a different folder for temporary files:  export TMPDIR=DIR";
        let runs = "labs keep files in the current folder: go to one that you can write, with room";
        let here = std::env::current_dir().unwrap_or_default();
        let mut signs = vec![
            ("rustc", version(&toolchain)),
            ("linker", link(&toolchain)),
            ("tasks", exercises()),
            ("TMPDIR", folder(&std::env::temp_dir(), OF_A_CHECK, temporary)),
            ("runs", folder(&here, OF_THE_LABS, runs)),
        ];
        if let Ok(desk) = Desk::find() {
            let my = "choose a folder for your exercises:  export SHARDLAB_MY=DIR";
            // It is made when it is needed.
            let existing = desk.my.ancestors().find(|folder| folder.is_dir());
            signs.push(("my", folder(existing.unwrap_or(&desk.my), OF_A_READER, my)));
        }
        let cores = launch::cores();
        signs.push(("cores", Ok(format!("{cores}: more ranks than that take turns"))));
        signs.push(("memory", memory()));
        signs.push(("MPI", launcher()));
        if mpi {
            signs.push(("mpicc", mpicc()));
            signs.push(("libclang", libclang()));
        }
        Health(signs)
    }

    /// Whether labs and exercises work here.
    pub fn is_good(&self) -> bool {
        self.0.iter().all(|(_, sign)| sign.is_ok())
    }

    /// One line for each sign, and below those that are not good what to do.
    pub fn render(&self, screen: &Screen) -> String {
        let mut lines = vec![screen.heading("workbook doctor", &launch::host_name())];
        for (what, sign) in &self.0 {
            match sign {
                Ok(found) => lines.push(screen.mark(&screen.tick(), what, found)),
                Err(error) => {
                    lines.push(screen.mark(&screen.cross(), what, &error.what));
                    lines.push(screen.mark("", "", &error.help));
                }
            }
        }
        let bad = self.0.iter().filter(|(_, sign)| sign.is_err());
        let bad: Vec<&str> = bad.map(|(what, _)| *what).collect();
        lines.push(if bad.is_empty() {
            "Labs and exercises work here.".to_string()
        } else {
            format!("Not ready: {}.", bad.join(", "))
        });
        lines.join("\n")
    }
}

/// Exercises need the compiler that has compiled the library.
fn version(toolchain: &Toolchain) -> Result<String, BadInput> {
    let mut rustc = toolchain.command();
    let (_, said) = child::run(rustc.arg("--version"), LIMITS)
        .map_err(|error| toolchain.cannot_start(&error))?;
    let said = said.lines().next().unwrap_or_default().trim();
    if said == BUILT_BY {
        return Ok(said.to_string());
    }
    Err(BadInput::new(
        format!("{said}; the build is by {BUILT_BY}"),
        "put that one on PATH, or export RUSTC=its path; or build the workbook with this one",
    ))
}

/// Compiles, links and runs a program of one line, as a check does.
fn link(toolchain: &Toolchain) -> Result<String, BadInput> {
    let refuse = |what: String| {
        BadInput::new(what, "choose a different folder for temporary files:  export TMPDIR=DIR")
    };
    let folder = tempfile::tempdir().map_err(|error| refuse(error.to_string()))?;
    let [code, program] = ["one.rs", "one"].map(|name| folder.path().join(name));
    std::fs::write(&code, "fn main() {}").map_err(|error| refuse(error.to_string()))?;
    let mut rustc = toolchain.command();
    rustc
        .args(["--edition", "2024", "--color", "never", "-o"])
        .arg(&program)
        .arg(&code);
    compile::run(toolchain, rustc, Path::new("no reader's file"), LIMITS)?;
    let ran = child::run(&mut Command::new(&program), LIMITS);
    if let Ok((End::Exit(status), _)) = &ran
        && status.success()
    {
        return Ok("it links a program, and that runs".into());
    }
    Err(refuse(format!(
        "a program linked in {} fails: {ran:?}",
        folder.path().display()
    )))
}

/// The exercises and the library that they are compiled with.
fn exercises() -> Result<String, BadInput> {
    let desk = Desk::find()?;
    let exercises = Course::read()?.exercises().count();
    Library::find()?;
    Ok(format!(
        "{exercises} exercises in {}",
        desk.shown(&desk.root.join("labs")).display()
    ))
}

/// A folder that must be writable and have `least` free bytes.
fn folder(path: &Path, least: u64, help: &str) -> Result<String, BadInput> {
    let refuse = |why: String| BadInput::new(format!("{}: {why}", path.display()), help);
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(path)?;
        std::io::Write::write_all(&mut file, &[b'x'; 4096])?;
        file.as_file().sync_all()
    };
    write().map_err(|error| refuse(error.to_string()))?;
    let Some(free) = free(path) else {
        return Ok(path.display().to_string());
    };
    let [has, needs] = [free, least].map(|bytes| bytes_binary(bytes as f64));
    if free < least {
        return Err(refuse(format!("{has} free, {needs} may be needed")));
    }
    Ok(format!("{}: {has} free", path.display()))
}

/// Bytes that this user may still write to the disk of a path that exists. None if the system does
/// not say. Quotas are not counted.
#[cfg(unix)]
// The fields' types differ between systems.
#[allow(clippy::unnecessary_cast)]
fn free(path: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: all bytes zero is a valid `statvfs`, which the call fills; the path ends with a zero.
    let about = unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &mut about) == 0).then_some(about)?
    };
    Some(about.f_bavail as u64 * about.f_frsize as u64)
}

#[cfg(not(unix))]
fn free(_: &Path) -> Option<u64> {
    None
}

fn memory() -> Result<String, BadInput> {
    let Some(free) = launch::free_memory(1) else {
        return Ok("this system does not say how much is free".into());
    };
    let has = format!("{} free", bytes_binary(free as f64));
    if free < OF_A_LAB {
        let least = bytes_binary(OF_A_LAB as f64);
        let what = format!("{has}, and most labs take up to {least}");
        return Err(BadInput::new(what, "end other programs, or ask for more memory"));
    }
    Ok(has)
}

/// What starts MPI's ranks, if labs are to run on several nodes. In a room's folder for that they
/// need the MPI that they are linked with.
fn launcher() -> Result<String, BadInput> {
    let program = std::env::current_exe().unwrap_or_default();
    let folder = program.parent().filter(|folder| folder.ends_with("bin-mpi"));
    if let Some(folder) = folder {
        let refuse = |why: &str| {
            let help = "load the modules with which this build was made, or use its folder bin";
            BadInput::new(format!("labs with MPI do not start: {why}"), help)
        };
        let mut lab = Command::new(folder.join("lab00"));
        let (end, said) =
            child::run(lab.arg("--help"), LIMITS).map_err(|error| refuse(&error.to_string()))?;
        if !matches!(end, End::Exit(status) if status.success()) {
            return Err(refuse(said.lines().next().unwrap_or_default()));
        }
    }
    let launcher = ["mpiexec", "mpirun", "srun"].into_iter().find_map(on_path);
    Ok(match launcher {
        Some(path) => path.display().to_string(),
        None => "no mpiexec, mpirun or srun on PATH: ranks are threads, which is enough".into(),
    })
}

/// MPI's compiler, with which Rust's bindings are built: it compiles a file that uses MPI.
fn mpicc() -> Result<String, BadInput> {
    let given = std::env::var_os("MPICC").filter(|name| !name.is_empty());
    let name = given.unwrap_or_else(|| "mpicc".into());
    let shown = name.display().to_string();
    let refuse = |why: &str| {
        let what = format!("{shown} compiles no program of MPI: {why}");
        let help = "cargo build --features mpi needs it: install an MPI with its headers (Debian: apt install libopenmpi-dev), \
                    load its module, or name its compiler:  export MPICC=cc";
        BadInput::new(what, help)
    };
    let folder = tempfile::tempdir().map_err(|error| refuse(&error.to_string()))?;
    let [code, object] = ["one.c", "one.o"].map(|name| folder.path().join(name));
    let program = "#include <mpi.h>\nint main(void) { return MPI_Init(0, 0); }\n";
    std::fs::write(&code, program).map_err(|error| refuse(&error.to_string()))?;
    let mut compiler = Command::new(&name);
    compiler.arg("-c").arg(&code).arg("-o").arg(&object);
    let (end, said) =
        child::run(&mut compiler, LIMITS).map_err(|error| refuse(&error.to_string()))?;
    match end {
        End::Exit(status) if status.success() => Ok(format!("{shown} compiles a program of MPI")),
        _ => Err(refuse(said.lines().next().unwrap_or("it says nothing"))),
    }
}

/// The library that reads MPI's header for Rust, where `bindgen` looks for it.
fn libclang() -> Result<String, BadInput> {
    let listed = |name| {
        let variable = std::env::var_os(name).unwrap_or_default();
        std::env::split_paths(&variable).collect::<Vec<_>>()
    };
    // It is looked for in no other place, once that is given.
    let mut places = listed("LIBCLANG_PATH");
    if places.is_empty() {
        let config = Command::new("llvm-config").arg("--libdir").output();
        let said = config.map_or_else(|_| Vec::new(), |said| said.stdout);
        places.push(String::from_utf8_lossy(&said).trim().into());
        places.extend(listed("LD_LIBRARY_PATH"));
        let usual = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64"];
        places.extend(usual.map(PathBuf::from));
        places.push(format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH).into());
        places.push("/opt/homebrew/opt/llvm/lib".into());
        places.push("/Library/Developer/CommandLineTools/usr/lib".into());
        // Debian has a folder for each version.
        for above in ["/usr/lib", "/usr/lib64", "/usr/local"] {
            let versions = std::fs::read_dir(above).into_iter().flatten().flatten();
            let llvm =
                versions.filter(|one| one.file_name().display().to_string().starts_with("llvm"));
            places.extend(llvm.map(|one| one.path().join("lib")));
        }
    }
    for place in &places {
        let names = std::fs::read_dir(place).into_iter().flatten().flatten();
        let files = names.map(|one| one.path()).chain([place.clone()]);
        for file in files.filter(|path| path.is_file()) {
            let name = file.file_name().unwrap_or_default().display().to_string();
            let is_library = name.ends_with(".dylib") || name.contains(".so");
            if is_library
                && (name.starts_with("libclang.") || name.starts_with("libclang-"))
                && !name.starts_with("libclang-cpp")
            {
                return Ok(file.display().to_string());
            }
        }
    }
    Err(BadInput::new(
        "no libclang is found",
        "cargo build --features mpi needs it: install it (Debian: apt install libclang-dev), or name the folder that has \
         libclang.so:  export LIBCLANG_PATH=DIR",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_need_room_and_a_writer() {
        let here = std::env::temp_dir();
        assert!(folder(&here, 0, "help").unwrap().starts_with(&here.display().to_string()));
        #[cfg(unix)]
        assert!(folder(&here, u64::MAX, "help").unwrap_err().what.contains("may be needed"));
        let nowhere = here.join("no such folder");
        let error = folder(&nowhere, 0, "help").unwrap_err();
        assert!(error.what.starts_with(&nowhere.display().to_string()) && error.help == "help");
    }
}
