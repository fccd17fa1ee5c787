//! Looks at this machine, and tries what can be tried.

use super::Sign;
use super::judge::{self, Folder};
use crate::child::{self, End, Limits};
use crate::compile::Library;
use crate::desk::Desk;
use crate::room::Room;
use crate::toolchain::{self, BUILT_BY, Toolchain, on_path};
use crate::{Document, disk};
use kit::Course;
use kit::show::Screen;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::tensor::matmul;
use std::io::IsTerminal;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

/// Limits of the programs that are tried.
const LIMITS: Limits = Limits {
    computing: Duration::from_secs(20),
    idle: Duration::from_secs(20),
    running: Duration::from_secs(60),
    memory: 2 << 30,
    output: 64 << 10,
};

/// All signs, in the order of the screen.
pub(super) fn all(screen: &Screen) -> Vec<Sign> {
    let toolchain = Toolchain::find();
    let desk = Desk::find();
    let here = std::env::current_dir().unwrap_or_default();
    let mut signs = vec![
        judge::rustc(BUILT_BY, version(&toolchain), toolchain.from),
        judge::linker(toolchain.linker, link(&toolchain)),
        judge::exercises(exercises(desk.as_ref())),
        judge::temporary(folder("TMPDIR", &std::env::temp_dir(), None)),
        judge::runs(folder("runs", &here, None)),
    ];
    let my = desk.as_ref().map(|desk| desk.my.as_path());
    signs.extend(my.ok().map(|my| judge::my(folder("my", my, Some(existing(my))))));
    signs.extend(target(desk.as_ref().ok()));
    let [free, total] = [launch::free_memory(1), launch::machine_memory().map(|(_, total)| total)];
    signs.extend([
        judge::cores(launch::cores(), load()),
        judge::memory(free, total),
        judge::matmul(matmul::measured_peak(), instructions()),
        mpi(),
        judge::clock(since_built(), my.ok().and_then(|my| disk::write_to(existing(my)).ok())),
        terminal(screen),
        judge::name(&Document::name()),
    ]);
    signs
}

/// What `rustc --version` says.
fn version(toolchain: &Toolchain) -> Result<String, String> {
    let mut rustc = Command::new(&toolchain.rustc);
    let (end, said) = child::run(rustc.arg("--version"), LIMITS)
        .map_err(|error| toolchain.cannot_start(&error).what)?;
    let first = said.lines().next().unwrap_or_default().trim().to_string();
    match end {
        End::Exit(status) if status.success() => Ok(first),
        End::Exit(status) => Err(format!("rustc --version fails ({status}): {first}")),
        _ => Err("rustc --version does not end".to_string()),
    }
}

/// Compiles, links and runs a program of one line, as a check does. Returns the seconds that it
/// took, or why it failed and what to do.
fn link(toolchain: &Toolchain) -> Result<f64, [String; 2]> {
    let start = Instant::now();
    let temporary = |what: &str| {
        let help = "choose a different folder for temporary files:  export TMPDIR=DIR";
        [what.to_string(), help.to_string()]
    };
    // Errors of a check end with the advice to ask the doctor. The linker may have printed hundreds
    // of lines.
    let refused = |error: BadInput| {
        let help = error.help.rsplit_once("; ").map_or("", |(help, _)| help);
        let first = error.what.lines().next().unwrap_or_default();
        [first.to_string(), help.to_string()]
    };
    let folder = tempfile::tempdir().map_err(|error| temporary(&error.to_string()))?;
    let [code, program] = ["one.rs", "one"].map(|name| folder.path().join(name));
    std::fs::write(&code, "fn main() {}").map_err(|error| temporary(&error.to_string()))?;
    let mut rustc = toolchain.command();
    rustc.args(["--edition", "2024", "--color", "never", "-o"]);
    rustc.arg(&program).arg(&code);
    let (end, said) =
        child::run(&mut rustc, LIMITS).map_err(|error| refused(toolchain.cannot_start(&error)))?;
    let End::Exit(status) = end else {
        return Err(["rustc does not end".to_string(), "is this machine busy?".to_string()]);
    };
    if let Some(failure) = toolchain::failure(status, &said, "no reader's file") {
        return Err(refused(failure));
    }
    match child::run(&mut Command::new(&program), LIMITS) {
        Ok((End::Exit(status), _)) if status.success() => Ok(start.elapsed().as_secs_f64()),
        Ok((end, said)) => {
            Err(temporary(&format!("a program that was linked there fails: {end:?} {said}")))
        }
        Err(error) => Err(temporary(&format!(
            "a program that was linked in {} does not start: {error}",
            folder.path().display()
        ))),
    }
}

/// Where the exercises and their library are, or what is missing and what to do.
fn exercises(desk: Result<&Desk, &BadInput>) -> Result<String, [String; 2]> {
    let refused = |error: &BadInput| [error.what.clone(), error.help.clone()];
    let desk = desk.map_err(refused)?;
    let course = Course::read().map_err(|error| refused(&error))?;
    for exercise in course.exercises() {
        for file in [desk.blank(exercise), desk.check(exercise), desk.solution(exercise)] {
            if let Err(error) = std::fs::File::open(&file) {
                let help = "restore it with git, or ask the person who built this for the room";
                return Err([format!("{}: {error}", file.display()), help.to_string()]);
            }
        }
    }
    let library = Library::find().map_err(|error| refused(&error))?;
    Ok(format!(
        "{} exercises in {}, their library in {}",
        course.exercises().count(),
        desk.shown(&desk.root.join("labs")).display(),
        desk.shown(&library.folder()).display()
    ))
}

/// A folder, or the one in which it would be made.
fn existing(folder: &Path) -> &Path {
    let mut there = folder.ancestors().filter(|folder| folder.is_dir());
    there.next().unwrap_or(folder)
}

/// `instead`: the folder that is tried in its place, because it need not exist yet.
fn folder(what: &'static str, path: &Path, instead: Option<&Path>) -> Folder {
    let tried = instead.unwrap_or(path);
    Folder {
        what,
        path: path.display().to_string(),
        written: disk::write_to(tried).map(drop).map_err(|error| error.to_string()),
        free: disk::free(tried),
    }
}

/// Cargo's folder, if this program is in one.
fn target(desk: Option<&Desk>) -> Option<Sign> {
    let is_checkout = desk?.root.join("Cargo.toml").is_file();
    if Room::of_this_program().is_some() || !is_checkout {
        return None;
    }
    let target = std::env::current_exe().ok()?.ancestors().nth(2)?.to_path_buf();
    Some(judge::target(&target.display().to_string(), disk::free(&target)))
}

/// How many programs have wanted a core in the last minute, on average.
fn load() -> Option<f64> {
    let load = sysinfo::System::load_average().ok()?.one;
    // Some systems do not say, and then it is 0 forever.
    (load > 0.0).then_some(load)
}

/// The widest vector instructions of this machine.
fn instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        return "AVX-512";
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        return "AVX2";
    }
    if cfg!(target_arch = "aarch64") {
        "NEON"
    } else {
        "no wide vector instructions"
    }
}

fn mpi() -> Sign {
    let launcher = ["mpiexec", "mpirun", "srun"]
        .into_iter()
        .find_map(|program| version_of(&on_path(program)?));
    let compiler = on_path("mpicc").map(|path| path.display().to_string());
    judge::mpi(launcher.as_deref(), compiler.as_deref(), labs_with_mpi())
}

/// A launcher's path, and the line of its words that has its version.
fn version_of(program: &Path) -> Option<String> {
    let (_, said) = child::run(Command::new(program).arg("--version"), LIMITS).ok()?;
    Some(format!("{}: {}", program.display(), version_in(&said)))
}

/// The line that has a version. Open MPI says besides what it cannot find, such as a network.
fn version_in(said: &str) -> &str {
    let is_version =
        |word: &str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    let mut lines = said.lines();
    let line = lines.find(|line| line.split_whitespace().any(is_version));
    line.unwrap_or("version unknown").trim()
}

/// For a build with MPI: whether its labs start, which needs the MPI that they are linked with.
fn labs_with_mpi() -> Option<Result<(), String>> {
    if cfg!(feature = "mpi") {
        return Some(Ok(()));
    }
    let program = std::env::current_exe().ok()?;
    let folder = program.parent().filter(|folder| folder.ends_with("bin-mpi"))?;
    Some(match child::run(Command::new(folder.join("lab00")).arg("--help"), LIMITS) {
        Ok((End::Exit(status), _)) if status.success() => Ok(()),
        Ok((_, said)) => Err(said.lines().next().unwrap_or_default().to_string()),
        Err(error) => Err(error.to_string()),
    })
}

/// Seconds since this program was built; negative if its file is newer than now.
fn since_built() -> Option<f64> {
    let built = std::env::current_exe().ok()?.metadata().ok()?.modified().ok()?;
    Some(match SystemTime::now().duration_since(built) {
        Ok(since) => since.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    })
}

fn terminal(screen: &Screen) -> Sign {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let columns = std::io::stdout().is_terminal().then_some(screen.width);
    let letters = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable);
    let letters = letters.unwrap_or_default().to_lowercase().replace('-', "");
    let no_colour = if variable("NO_COLOR").is_some() {
        Some("NO_COLOR is set")
    } else {
        variable("TERM").filter(|term| term == "dumb").map(|_| "TERM=dumb")
    };
    judge::screen(columns, letters.contains("utf8"), no_colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launchers_version_is_in_the_line_that_has_one() {
        let open =
            "[vm:03495] opal_ifinit: unable to find network interfaces.\nmpirun (Open MPI) 4.1.4\n";
        assert_eq!(version_in(open), "mpirun (Open MPI) 4.1.4");
        let mpich = "HYDRA build details:\n    Version:              4.0.2\n";
        assert_eq!(version_in(mpich), "Version:              4.0.2");
        assert_eq!(version_in("slurm 23.02.4\n"), "slurm 23.02.4");
        assert_eq!(version_in("mpirun: command 7\n"), "version unknown");
    }
}
