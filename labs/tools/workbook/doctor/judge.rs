//! What the doctor has found, and what it means. Plain values go in, so that every illness can be
//! tried.

use super::{Sign, State};
use kit::show::{bytes_binary, significant};

/// Bytes that a check needs in the folder for temporary files, at the most.
const OF_A_CHECK: u64 = 200 << 20;
/// Bytes of all files that a reader writes, and of those that labs write.
const OF_A_READER: u64 = 20 << 20;
const OF_THE_LABS: u64 = 200 << 20;
/// Bytes of a target folder with all programs and tests.
const OF_A_TARGET: u64 = 3 << 30;
/// Memory that most labs take, and that the largest takes. A check may take as much as that.
const OF_A_LAB: u64 = 512 << 20;
const OF_ALL: u64 = 2 << 30;
/// Seconds by which a disk's clock may differ from this machine's.
const APART: f64 = 2.0;

fn good(what: &'static str, found: impl Into<String>) -> Sign {
    Sign {
        what,
        state: State::Good,
        found: found.into(),
        without: String::new(),
        help: String::new(),
    }
}

impl Sign {
    fn otherwise(self, state: State, without: &str, help: impl Into<String>) -> Sign {
        Sign { state, without: without.into(), help: help.into(), ..self }
    }

    fn bad(self, without: &str, help: impl Into<String>) -> Sign {
        self.otherwise(State::Bad, without, help)
    }

    fn remark(self, without: &str, help: impl Into<String>) -> Sign {
        self.otherwise(State::Remark, without, help)
    }
}

const NO_CHECKS: &str = "exercises cannot be checked; labs run";

/// `said`: what `rustc --version` has said, or why it has said nothing.
pub(super) fn rustc(built_by: &str, said: Result<String, String>, from: &str) -> Sign {
    let help = format!("use {built_by}: put it on PATH, or export RUSTC=its path");
    match said {
        Ok(version) if version == built_by => {
            good("rustc", format!("{}, {from}", version.trim_start_matches("rustc ")))
        }
        Ok(version) => {
            let found = format!("{version}, {from}; the build is by {built_by}");
            good("rustc", found).bad(NO_CHECKS, help + ", or build with this one")
        }
        Err(why) => good("rustc", why).bad(NO_CHECKS, help),
    }
}

/// `linked`: the seconds that it took to compile, link and run a program of one line, or why that
/// failed and what to do.
pub(super) fn linker(by: &str, linked: Result<f64, [String; 2]>) -> Sign {
    match linked {
        Ok(seconds) => good(
            "linker",
            format!("{by} links a program, and it runs ({} s)", significant(seconds, 2)),
        ),
        Err([why, help]) => good("linker", why).bad(NO_CHECKS, help),
    }
}

/// The exercises and the library that checks are compiled with: where they are, or why they cannot
/// be used and what to do.
pub(super) fn exercises(found: Result<String, [String; 2]>) -> Sign {
    match found {
        Ok(found) => good("tasks", found),
        Err([why, help]) => good("tasks", why).bad(NO_CHECKS, help),
    }
}

/// A folder that must be written, and its free bytes.
pub(super) struct Folder {
    pub what: &'static str,
    /// As people read it.
    pub path: String,
    pub written: Result<(), String>,
    pub free: Option<u64>,
}

impl Folder {
    fn judge(self, least: u64, without: &str, help: &str) -> Sign {
        let free = self.free.map_or("free space unknown".to_string(), |free| {
            format!("{} free", bytes_binary(free as f64))
        });
        match self.written {
            Err(why) => good(self.what, format!("{}: {why}", self.path)).bad(without, help),
            Ok(()) if self.free.is_some_and(|free| free < least) => {
                let least = bytes_binary(least as f64);
                let found = format!("{}: {free}, {least} may be needed", self.path);
                good(self.what, found).bad(without, help)
            }
            Ok(()) => good(self.what, format!("{}: {free}", self.path)),
        }
    }
}

/// The folder with the reader's exercises.
pub(super) fn my(folder: Folder) -> Sign {
    folder.judge(
        OF_A_READER,
        "exercises cannot be begun; labs run",
        "choose a folder of your own:  export SHARDLAB_MY=DIR",
    )
}

/// The current folder, in which labs make `runs`.
pub(super) fn runs(folder: Folder) -> Sign {
    folder.judge(
        OF_THE_LABS,
        "labs that keep files, such as lab03 and lab08, stop",
        "go to a folder that you can write, with room",
    )
}

/// The folder for temporary files.
pub(super) fn temporary(folder: Folder) -> Sign {
    folder.judge(
        OF_A_CHECK,
        NO_CHECKS,
        "choose a different folder for temporary files:  export TMPDIR=DIR",
    )
}

/// The folder in which Cargo builds, where there is a checkout.
pub(super) fn target(path: &str, free: Option<u64>) -> Sign {
    let folder = Folder {
        what: "target",
        path: path.to_string(),
        written: Ok(()),
        free,
    };
    let sign = folder.judge(OF_A_TARGET, "", "");
    match sign.state {
        State::Good => sign,
        _ => sign.remark(
            "a build from the beginning may not end",
            "free some space, or choose a different disk:  export CARGO_TARGET_DIR=DIR",
        ),
    }
}

/// `load`: how many programs have wanted a core in the last minute.
pub(super) fn cores(cores: usize, load: Option<f64>) -> Sign {
    let load_in_words = load.map_or(String::new(), |load| format!(", load {load:.1}"));
    let sign = good("cores", format!("{cores}{load_in_words}"));
    if load.is_some_and(|load| load > cores as f64 + 0.5) {
        return sign.remark(
            "times and speeds say little",
            "other programs run: wait for them, or use a different machine",
        );
    }
    sign
}

pub(super) fn memory(free: Option<u64>, total: Option<u64>) -> Sign {
    let words = |bytes: u64| bytes_binary(bytes as f64);
    let Some(free) = free else {
        return good("memory", "this system does not say");
    };
    let of = total.map_or(String::new(), |total| format!(" of {}", words(total)));
    let sign = good("memory", format!("{} free{of}", words(free)));
    let help = "end other programs, or ask for more memory";
    match free {
        0..OF_A_LAB => sign.bad("most labs and checks do not fit", help),
        OF_A_LAB..OF_ALL => sign.remark("lab10 and large flags may not fit", help),
        _ => sign,
    }
}

/// `flops`: of one core in a matrix product.
pub(super) fn matmul(flops: f64, instructions: &str) -> Sign {
    good(
        "matmul",
        format!("{} GFLOP/s a core, with {instructions}", significant(flops / 1e9, 3)),
    )
}

/// `launcher`: a program that starts MPI's ranks, and its version. `labs`: for a build with MPI,
/// whether its labs start, or why they do not.
pub(super) fn mpi(
    launcher: Option<&str>,
    compiler: Option<&str>,
    labs: Option<Result<(), String>>,
) -> Sign {
    let launcher_in_words = launcher.unwrap_or("no mpiexec or mpirun on PATH");
    match (launcher, labs) {
        (_, Some(Err(why))) => good("MPI", format!("this build's labs do not start: {why}"))
            .bad("labs with MPI do not run", "load the modules with which they were built"),
        (Some(launcher), Some(Ok(()))) => {
            good("MPI", format!("{launcher}; this build's labs are linked with MPI"))
        }
        (None, Some(Ok(()))) => {
            good("MPI", format!("{launcher_in_words}; this build's labs are linked with MPI"))
                .remark("no ranks on several nodes", "load the MPI's module, or go on with threads")
        }
        (_, None) => {
            let compiler = compiler.map_or(String::new(), |compiler| format!(", {compiler}"));
            good("MPI", format!("{launcher_in_words}{compiler}; ranks of this build are threads"))
                .remark("", "")
        }
    }
}

/// `since_built`: seconds since this program was built. `disk_ahead`: how far the clock of the
/// reader's disk is ahead.
pub(super) fn clock(since_built: Option<f64>, disk_ahead: Option<f64>) -> Sign {
    let side = |seconds: f64, [above, below]: [&'static str; 2]| {
        let amount = span(seconds.abs() as u64);
        format!("{amount} {}", if seconds > 0.0 { above } else { below })
    };
    let now = since_built.map_or("this program's age is unknown".to_string(), |seconds| {
        side(seconds, ["after this program was built", "before this program was built"])
    });
    let apart = disk_ahead.filter(|seconds| seconds.abs() > APART);
    let found = match apart {
        None => now,
        Some(seconds) => {
            format!("{now}; the disk's clock is {}", side(seconds, ["ahead", "behind"]))
        }
    };
    let sign = good("clock", found);
    if apart.is_some() || since_built.is_some_and(|seconds| seconds < -APART) {
        return sign.remark(
            "Cargo may build too much or too little; a report's times are wrong",
            "set the clock, or tell who looks after the machine and its disks",
        );
    }
    sign
}

/// A time span, roughly.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// `columns`: of a terminal, if the output is one. `no_colour`: what switches colours off, if
/// anything does.
pub(super) fn screen(columns: Option<usize>, utf8: bool, no_colour: Option<&str>) -> Sign {
    let width = match columns {
        Some(columns) => format!("{columns} columns"),
        None => "no terminal, so 80 columns".to_string(),
    };
    let colour = match (columns, no_colour) {
        (Some(_), None) => "colours".to_string(),
        (None, None) => "no colours".to_string(),
        (_, Some(why)) => format!("no colours ({why})"),
    };
    let letters = if utf8 { "UTF-8" } else { "no UTF-8 in LANG" };
    let sign = good("screen", format!("{width}, {colour}, {letters}"));
    if columns.is_some_and(|columns| columns < 80) {
        sign.remark("tables and charts wrap", "make the window 80 columns wide")
    } else if utf8 {
        sign
    } else {
        sign.remark(
            "charts may show as question marks",
            "export LANG=C.UTF-8, or give labs --ascii",
        )
    }
}

/// The name under which results are submitted.
pub(super) fn name(name: &str) -> Sign {
    let sign = good("name", format!("results are submitted as {name:?}"));
    if ["", "jovyan", "root"].contains(&name) {
        return sign
            .remark("the instructor cannot tell who you are", "export SHARDLAB_NAME=your name");
    }
    sign
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::{Bad, Good, Remark};

    const BUILT: &str = "rustc 1.95.0 (59807616e 2026-04-14)";

    fn says(sign: Sign, state: State, parts: &[&str]) {
        let all = format!("{} | {} | {}", sign.found, sign.without, sign.help);
        assert_eq!(sign.state, state, "{all}");
        for part in parts {
            assert!(all.contains(part), "{part:?} is missing in {all}");
        }
        assert_eq!(state == Bad, state == Bad && !sign.help.is_empty(), "{all}");
        assert!(sign.what.len() <= 6);
    }

    #[test]
    fn the_compiler_must_be_the_builds() {
        says(rustc(BUILT, Ok(BUILT.into()), "on PATH"), Good, &["1.95.0", "on PATH"]);
        let newer = "rustc 1.96.0 (aaaaaaaaa 2026-06-01)";
        says(
            rustc(BUILT, Ok(newer.into()), "on PATH"),
            Bad,
            &[newer, BUILT, "exercises cannot be checked", "RUSTC="],
        );
        // The same number, from a different source.
        says(rustc(BUILT, Ok("rustc 1.95.0".into()), "on PATH"), Bad, &[]);
        says(rustc(BUILT, Err("cannot start rustc".into()), "on PATH"), Bad, &[BUILT]);
    }

    #[test]
    fn a_linker_is_tried() {
        says(linker("cc", Ok(0.123)), Good, &["cc links a program, and it runs (0.12 s)"]);
        let missing = ["linker `cc` not found", "module load gcc"].map(String::from);
        says(linker("cc", Err(missing)), Bad, &["module load gcc", "labs run"]);
    }

    #[test]
    fn folders_need_room_and_a_writer() {
        let folder = |written: Result<(), &str>, free| Folder {
            what: "my",
            path: "/a".to_string(),
            written: written.map_err(String::from),
            free,
        };
        let much = Some(1 << 40);
        for judge in [my, runs, temporary] {
            says(judge(folder(Ok(()), much)), Good, &["/a: 1.00 TiB free"]);
            says(judge(folder(Ok(()), None)), Good, &["unknown"]);
            says(judge(folder(Ok(()), Some(1 << 20))), Bad, &["1.00 MiB free, "]);
            says(judge(folder(Err("Permission denied"), much)), Bad, &["/a: Permission denied"]);
        }
        says(temporary(folder(Ok(()), Some(0))), Bad, &["TMPDIR="]);
        says(my(folder(Err("x"), None)), Bad, &["SHARDLAB_MY="]);
        says(target("/t", much), Good, &[]);
        says(target("/t", Some(1 << 30)), Remark, &["CARGO_TARGET_DIR="]);
    }

    #[test]
    fn fewer_cores_and_less_memory_are_told() {
        says(cores(2, Some(0.3)), Good, &["2, load 0.3"]);
        says(cores(2, None), Good, &["2"]);
        says(cores(2, Some(16.0)), Remark, &["times and speeds say little"]);
        let gib = |gib: u64| Some(gib << 30);
        says(memory(gib(8), gib(16)), Good, &["8.00 GiB free of 16.0 GiB"]);
        says(memory(gib(1), gib(16)), Remark, &["may not fit"]);
        says(memory(Some(100 << 20), gib(16)), Bad, &["do not fit"]);
        says(memory(None, None), Good, &[]);
        says(matmul(1.23e11, "AVX-512"), Good, &["123 GFLOP/s a core, with AVX-512"]);
    }

    #[test]
    fn a_missing_mpi_is_a_remark() {
        says(mpi(None, None, None), Remark, &["no mpiexec", "threads"]);
        let open = Some("mpirun (Open MPI) 4.1.4");
        says(mpi(open, Some("mpicc"), None), Remark, &["Open MPI", "mpicc", "threads"]);
        says(mpi(open, None, Some(Ok(()))), Good, &["Open MPI", "linked with MPI"]);
        says(mpi(None, None, Some(Ok(()))), Remark, &["no ranks on several nodes"]);
        let missing = "error while loading shared libraries: libmpi.so.40";
        says(mpi(open, None, Some(Err(missing.into()))), Bad, &[missing, "modules"]);
    }

    #[test]
    fn clock_screen_and_name_are_remarked() {
        says(clock(Some(100.0), Some(0.1)), Good, &["100 s after this program was built"]);
        says(clock(Some(-1.0), None), Good, &[]);
        says(clock(Some(-259_200.0), None), Remark, &["3 days before this program was built"]);
        says(clock(Some(0.0), Some(35.0)), Remark, &["the disk's clock is 35 s ahead"]);
        says(clock(None, Some(-35.0)), Remark, &["35 s behind"]);
        says(screen(Some(80), true, None), Good, &["80 columns, colours, UTF-8"]);
        says(
            screen(None, true, Some("NO_COLOR")),
            Good,
            &["no terminal, so 80 columns, no colours (NO_COLOR)"],
        );
        says(screen(Some(60), true, None), Remark, &["80 columns wide"]);
        says(screen(Some(80), false, None), Remark, &["--ascii"]);
        says(name("ada"), Good, &["ada"]);
        says(name("jovyan"), Remark, &["SHARDLAB_NAME="]);
    }
}
