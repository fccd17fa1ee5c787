//! `launch` and the cluster scripts as their users start them, with stand-ins for schedulers and
//! launchers: small shell scripts that are found first on PATH.

use crate::suite::program::{ROOT, interruptible, program};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder of stand-ins. Nothing of the machine's own MPI or job is seen from inside.
struct Cluster {
    dir: tempfile::TempDir,
}

impl Cluster {
    /// With these programs, as (name, lines of sh).
    fn new(programs: &[(&str, &str)]) -> Cluster {
        let cluster = Cluster { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(cluster.path("bin")).unwrap();
        for tool in [
            "sh", "bash", "cat", "mkdir", "chmod", "install", "dirname", "ln", "rm", "sleep",
            "sed", "grep", "tr", "sort", "cp", "mv", "find", "head",
        ] {
            let find = |folder: &&str| Path::new(folder).join(tool).exists();
            let folder = ["/bin", "/usr/bin"]
                .into_iter()
                .find(find)
                .unwrap_or_else(|| panic!("{tool} is missing"));
            symlink(Path::new(folder).join(tool), cluster.path("bin").join(tool)).unwrap();
        }
        programs
            .iter()
            .for_each(|(name, body)| cluster.add(&format!("bin/{name}"), body));
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A program of sh. Written by a process of its own: were this one to write it, a process that
    /// another test starts just then would have it open for writing, too, and the program would be
    /// "busy".
    fn add(&self, name: &str, body: &str) {
        let write = ["-c", "printf '#!/bin/sh\n%s\n' \"$1\" > \"$0\" && chmod 755 \"$0\""];
        assert!(
            Command::new("/bin/sh")
                .args(write)
                .arg(self.path(name))
                .arg(body)
                .status()
                .unwrap()
                .success()
        );
    }

    fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.dir.path()).env_clear().env("PATH", self.path("bin"));
        command.env("T", self.dir.path());
        command
    }

    fn launch(&self, words: &str, env: &[(&str, &str)]) -> Output {
        self.command(program("launch"))
            .args(words.split_whitespace())
            .envs(env.iter().copied())
            .output()
            .expect("launch starts")
    }

    /// What `launch --print` prints: one line.
    #[track_caller]
    fn line(&self, words: &str, env: &[(&str, &str)]) -> String {
        let output = self.launch(&format!("--print {words}"), env);
        assert!(output.status.success(), "{}", stderr(&output));
        let line = stdout(&output);
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        line.trim_end().to_string()
    }
}

/// A launcher that says what it is, notes its arguments in $T/ran, and becomes the program it is to
/// start.
fn launcher(version: &str) -> String {
    format!(
        r#"if [ "$1" = --version ]; then echo "{version}"; exit; fi
printf '%s\n' "$*" >> "$T/ran"
while [ ! -x "$1" ] || [ -d "$1" ]; do shift; done
exec "$@""#
    )
}

const PALS: &str = "mpiexec (PALS) 1.2.12";
const OPEN_MPI: &str = "mpirun (Open MPI) 4.1.4";

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn in_a_pbs_job_the_line_is_pals() {
    let cluster = Cluster::new(&[("mpiexec", &launcher(PALS))]);
    let file = cluster.file("nodes", "x1.cm.polaris.alcf.anl.gov\nx2.cm.polaris.alcf.anl.gov\n");
    let env = [("PBS_NODEFILE", file.as_str())];
    let words = "mpiexec --verbose --envall -n";
    assert_eq!(
        cluster.line("--depth 8 lab03 --steps 5", &env),
        format!("{words} 8 -ppn 4 --hostfile {file} --cpu-bind depth -d 8 lab03 --steps 5")
    );
    assert_eq!(
        cluster.line("-n 3 --ppn 2 --depth 16 lab03 -n 7", &env),
        format!("{words} 3 -ppn 2 --hostfile {file} --cpu-bind depth -d 16 lab03 -n 7")
    );
    assert!(!cluster.path("ran").exists());
    let output = cluster.launch("-n 9 lab03", &env);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).starts_with("error: 9 ranks do not fit: 2 nodes take 8 ranks\nhelp: "),
        "{}",
        stderr(&output)
    );
}

#[test]
fn launch_says_what_the_screen_says() {
    let cluster = Cluster::new(&[]);
    let output = cluster.launch("--print lab03", &[("OAR_NODEFILE", "/var/oar")]);
    let said = stderr(&output);
    assert!(said.contains("note: this is a job of OAR, whose nodes are not read"), "{said}");
    assert!(said.contains("--hostfile $OAR_NODEFILE"), "{said}");
}

#[test]
fn in_a_slurm_job_the_line_is_srun() {
    let srun =
        r#"case $1 in --version) echo slurm 23.02.7;; --mpi=list) echo "pmi2 pmix" >&2;; esac"#;
    let cluster = Cluster::new(&[("srun", srun)]);
    let env = [
        ("SLURM_JOB_NODELIST", "n[1-2]"),
        ("SLURM_TASKS_PER_NODE", "4(x2)"),
        ("SLURM_CPUS_PER_TASK", "8"),
    ];
    assert_eq!(cluster.line("lab03", &env), "srun -N 2 -n 8 --ntasks-per-node 4 -c 8 lab03");
    cluster.add("bin/mpirun", &launcher(OPEN_MPI));
    assert_eq!(
        cluster.line("lab03", &env),
        "srun -N 2 -n 8 --ntasks-per-node 4 -c 8 --mpi=pmix lab03"
    );
}

#[test]
fn without_a_job_the_line_is_local() {
    let cluster = Cluster::new(&[("mpirun", &launcher(OPEN_MPI))]);
    let cores = labs::lab00::job::Cpus::here().cores;
    assert_eq!(cluster.line("-n 1 lab03", &[]), "mpirun -n 1 lab03");
    let more = cores + 1;
    assert_eq!(
        cluster.line(&format!("-n {more} lab03"), &[]),
        format!("mpirun --oversubscribe -n {more} lab03")
    );
    assert_eq!(cluster.line("lab03", &[]), format!("mpirun -n {cores} lab03"));
    assert_eq!(cluster.line("--threads -n 3 lab03 --steps 5", &[]), "lab03 --steps 5 --ranks 3");
    cluster.add("bin/id", "echo 0");
    assert_eq!(cluster.line("-n 1 lab03", &[]), "mpirun --allow-run-as-root -n 1 lab03");
    let file = cluster.file("mine", "a slots=2\nb slots=2\n");
    let expected =
        format!("mpirun --allow-run-as-root -n 4 --map-by ppr:2:node:PE=3 --hostfile {file} lab03");
    assert_eq!(cluster.line(&format!("--depth 3 --hostfile {file} lab03"), &[]), expected);
}

#[test]
fn without_mpi_ranks_are_threads_and_it_says_so() {
    let cluster = Cluster::new(&[]);
    let output =
        cluster.launch(&format!("-n 3 {lab00} --info --ascii", lab00 = program("lab00")), &[]);
    assert!(output.status.success());
    assert_eq!(
        stderr(&output),
        format!(
            "launch: found no MPI to start processes with; ranks are threads\nlaunch: {lab00} --info --ascii --ranks 3\n",
            lab00 = program("lab00")
        )
    );
    assert!(stdout(&output).contains("'rank 2'"), "{}", stdout(&output));
    let file = cluster.file("nodes", "n1\nn1\nn2\nn2\n");
    let output = cluster.launch(
        &format!("{lab00} --info --ascii", lab00 = program("lab00")),
        &[("PBS_NODEFILE", &file)],
    );
    assert!(
        stderr(&output).contains("threads, on this one of 2 nodes\n"),
        "{}",
        stderr(&output)
    );
    assert!(stdout(&output).contains("Using [2 / 4]"), "{}", stdout(&output));
}

#[test]
fn the_jobs_exit_code_is_launchs() {
    let cluster = Cluster::new(&[("mpirun", &launcher(OPEN_MPI))]);
    cluster.add("job", "exit $1");
    let job = cluster.path("job").display().to_string();
    for code in [0, 1, 7, 141] {
        assert_eq!(cluster.launch(&format!("-n 2 {job} {code}"), &[]).status.code(), Some(code));
    }
    assert_eq!(
        std::fs::read_to_string(cluster.path("ran")).unwrap().lines().next(),
        Some(&*format!("-n 2 {job} 0"))
    )
}

#[test]
fn what_cannot_be_started_is_said() {
    let cluster = Cluster::new(&[]);
    for (words, what) in [
        ("no/such/lab", "cannot start no/such/lab: "),
        ("-n 0 lab00", "-n 0 is out of range"),
        ("--ppn 0 lab00", "invalid value '0' for '--per-node <P>'"),
        ("--hostfile none lab00", "cannot read host file none: "),
        ("", "the following required arguments were not provided"),
    ] {
        let output = cluster.launch(words, &[]);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(stderr(&output).contains(&format!("error: {what}")), "{}", stderr(&output));
    }
}

/// A signal to launch is one to the job, which may still tidy up and choose its exit code. It is no
/// reason for a restart.
#[test]
fn signals_reach_the_job() {
    let cluster = Cluster::new(&[("mpirun", &launcher(OPEN_MPI))]);
    // The loop ends by itself if no signal comes.
    let body = "trap 'exit 41' TERM; trap 'exit 42' INT; echo ready; n=0; while [ $n -lt 400 ]; do sleep 0.05; n=$((n+1)); done";
    cluster.add("job", body);
    let job = cluster.path("job").display().to_string();
    for (restarts, signal, code) in
        [("0", "TERM", 41), ("0", "INT", 42), ("3", "TERM", 41), ("3", "INT", 42)]
    {
        let mut command = cluster.command(program("launch"));
        command.args(["--max-restarts", restarts, "-n", "1", &job]);
        let mut child = interruptible(&mut command)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let kill = format!("kill -{signal} {}", child.id());
        assert!(Command::new("/bin/sh").args(["-c", &kill]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
    }
}

/// A job that fails as often as `$1` says, with exit code `$2`, and notes the number of its
/// restart.
const FAILS: &str = r#"echo "$SHARDLAB_RESTART_COUNT" >> "$T/attempts"
[ "${SHARDLAB_RESTART_COUNT:-0}" -ge "$1" ] || exit "$2""#;

/// stderr without its figures of time, and the restarts' numbers as the job got them.
fn attempts(cluster: &Cluster, words: &str) -> (Output, String, String) {
    std::fs::remove_file(cluster.path("attempts")).ok();
    let output = cluster.launch(words, &[]);
    let said = stderr(&output);
    let timeless = said.split(" after ").map(|part| match part.split_once(" s (") {
        Some((_, rest)) => format!("T s ({rest}"),
        None => part.to_string(),
    });
    let said = timeless.collect::<Vec<_>>().join(" after ");
    (
        output,
        said,
        std::fs::read_to_string(cluster.path("attempts"))
            .unwrap_or_default()
            .replace('\n', " "),
    )
}

#[test]
fn a_job_that_fails_is_started_again() {
    let cluster = Cluster::new(&[("mpirun", &launcher(OPEN_MPI))]);
    cluster.add("job", FAILS);
    let job = cluster.path("job").display().to_string();
    let line = format!("mpirun -n 1 -x SHARDLAB_RESTART_COUNT {job}");
    let (output, said, counts) = attempts(&cluster, &format!("--max-restarts 3 -n 1 {job} 2 137"));
    assert_eq!((output.status.code(), &*counts), (Some(0), "0 1 2 "), "{said}");
    let failed = "launch: the job failed after T s (exit code 137: SIGKILL); restart";
    let done = "launch: the job is done, after 2 restarts";
    // Once.
    let (note, said) = said.lines().partition::<Vec<_>, _>(|line| line.starts_with("note: "));
    assert!(note.len() == 1 && note[0].contains("launch cannot tell which"), "{note:?}");
    let expected = format!("launch: {line} 2 137\n{failed} 1 of 3\n{failed} 2 of 3\n{done}");
    assert_eq!(said.join("\n"), expected);

    // When restarts are used up, the last attempt's exit code is launch's.
    let (output, said, counts) = attempts(&cluster, &format!("--max-restarts 1 -n 1 {job} 9 7"));
    assert_eq!((output.status.code(), &*counts), (Some(7), "0 1 "), "{said}");
    let again = "launch: the job failed after T s (exit code 7); restart 1 of 1\n";
    let error = "error: the job failed after T s";
    assert!(said.contains(again), "{said}");
    assert!(
        said.contains(&format!(
            "{error} (exit code 7), and --max-restarts 1 allows no more\nhelp: "
        )),
        "{said}"
    );

    // Without the flag nothing is restarted, and nothing is said.
    let (output, said, counts) = attempts(&cluster, &format!("-n 1 {job} 9 7"));
    assert_eq!(
        (output.status.code(), &*counts, said.lines().count()),
        (Some(7), " ", 1),
        "{said}"
    );
}

#[test]
fn what_a_restart_cannot_help_is_not_restarted() {
    let cluster = Cluster::new(&[]);
    cluster.add("job", FAILS);
    let job = cluster.path("job").display().to_string();
    for (code, why) in [
        (2, "(exit code 2); no restart: its input is bad"),
        (130, "(exit code 130: SIGINT); no restart: Ctrl-C stopped it"),
        (141, "(exit code 141: SIGPIPE); no restart: the reader of its output is gone"),
    ] {
        let (output, said, counts) =
            attempts(&cluster, &format!("--max-restarts 3 -n 1 {job} 9 {code}"));
        assert_eq!((output.status.code(), &*counts), (Some(code), "0 "), "{said}");
        assert!(said.ends_with(&format!("launch: the job failed after T s {why}\n")), "{said}");
    }
    let (output, said, _) = attempts(&cluster, "--max-restarts 3 no/such/lab");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("error: cannot start no/such/lab: "), "{said}");
}

/// The job is a process that a signal ends, not one that reports a code.
#[test]
fn a_job_that_is_killed_is_started_again() {
    let cluster = Cluster::new(&[]);
    cluster.add("job", r#"[ "$SHARDLAB_RESTART_COUNT" -ge 1 ] || kill -9 $$"#);
    let (output, said, _) =
        attempts(&cluster, &format!("--max-restarts 1 {}", cluster.path("job").display()));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("(exit code 137: SIGKILL); restart 1 of 1\n"), "{said}");
}

/// The project's folder as a job's user has it, with lab03 only noting how it was started.
fn programs(cluster: &Cluster) -> String {
    std::fs::create_dir(cluster.path("lab")).unwrap();
    symlink(program("launch"), cluster.path("lab/launch")).unwrap();
    symlink(program("lab00"), cluster.path("lab/lab00")).unwrap();
    cluster.add("lab/lab01", "");
    cluster.add("lab/lab03", r#"echo "lab03 $@ in $PWD" >> "$T/ran""#);
    cluster.path("lab").display().to_string()
}

fn script(name: &str) -> String {
    format!("{ROOT}/labs/cluster/{name}")
}

#[test]
fn the_pbs_script_runs_as_a_job() {
    // As PBS does it: the job's variables, its first node's home folder, the script with none of
    // the user's arguments.
    let qsub = r#"for script; do :; done
printf 'x1.cm.polaris.alcf.anl.gov\nx2.cm.polaris.alcf.anl.gov\n' > "$T/nodes"
export PBS_NODEFILE="$T/nodes" PBS_JOBID=77.polaris-pbs-01 PBS_O_WORKDIR="$PWD" PBS_O_HOST=polaris-login-01
cd /
exec bash "$script""#;
    let cluster = Cluster::new(&[("qsub", qsub), ("mpiexec", &launcher(PALS))]);
    let bin = programs(&cluster);
    let mut command = cluster.command("qsub");
    command
        .args(["-A", "PROJECT", "-v", "SHARDLAB_BIN", &script("polaris.pbs")])
        .env("SHARDLAB_BIN", &bin);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}\n{}", stdout(&output), stderr(&output));
    let text = stdout(&output);
    for expected in ["• SCHEDULER=PBS\n", "• MACHINE=Polaris\n", "• NGPUS=8\n", "Using [4 / 8]"]
    {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
    let ran = std::fs::read_to_string(cluster.path("ran")).unwrap();
    let ran: Vec<&str> = ran.lines().collect();
    let nodes = cluster.path("nodes").display().to_string();
    for (line, ranks, ends) in [
        (0, "8 -ppn 4", "lab/lab00 --info"),
        (1, "2 -ppn 2", "lab/lab01 --bench --algorithm ring"),
        (2, "2 -ppn 1", "lab/lab01 --bench --algorithm ring"),
        (3, "8 -ppn 4", "--out runs/lab03-77"),
    ] {
        let start =
            format!("--verbose --envall -n {ranks} --hostfile {nodes} --cpu-bind depth -d ");
        assert!(ran[line].starts_with(&start) && ran[line].ends_with(ends), "{ran:?}");
    }
    assert_eq!(
        ran[4],
        format!("lab03 --steps 300 --out runs/lab03-77 in {}", cluster.dir.path().display())
    );
}

#[test]
fn the_slurm_script_runs_as_a_job() {
    let sbatch = r#"for script; do :; done
export SLURM_JOB_ID=78 SLURM_JOB_NODELIST=nid[001-002] SLURM_JOB_NUM_NODES=2 SLURM_SUBMIT_DIR="$PWD"
export SLURM_NTASKS_PER_NODE=$(directive ntasks-per-node "$script") SLURM_CPUS_PER_TASK=$(directive cpus-per-task "$script")
cd /
exec bash "$script""#;
    // `directive NAME FILE`: the value of a line `#SBATCH --NAME=VALUE`.
    let directive =
        r#"while read -r word flag; do [ "$word ${flag%%=*}" = "\#SBATCH --$1" ] && echo "${flag#*=}"; done < "$2"
exit 0"#
            .replace("\\#", "#");
    let srun = launcher("slurm 23.02.7");
    let cluster = Cluster::new(&[("sbatch", sbatch), ("directive", &directive), ("srun", &srun)]);
    let bin = programs(&cluster);
    let mut command = cluster.command("sbatch");
    command
        .args(["--account=PROJECT", &script("slurm.sbatch")])
        .env("SHARDLAB_BIN", &bin);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}\n{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("• SCHEDULER=Slurm\n"), "{}", stdout(&output));
    let ran = std::fs::read_to_string(cluster.path("ran")).unwrap();
    let line = "-N 2 -n 8 --ntasks-per-node 4 -c 8";
    let expected = [
        format!("{line} {bin}/lab00 --info"),
        format!("-N 1 -n 2 --ntasks-per-node 2 -c 8 {bin}/lab01 --bench --algorithm ring"),
        format!("-N 2 -n 2 --ntasks-per-node 1 -c 8 {bin}/lab01 --bench --algorithm ring"),
        format!("{line} {bin}/lab03 --steps 300 --out runs/lab03-78"),
        format!("lab03 --steps 300 --out runs/lab03-78 in {}", cluster.dir.path().display()),
    ];
    assert_eq!(ran.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_job_script_stops_at_the_first_failure() {
    let cluster = Cluster::new(&[("mpiexec", &launcher(PALS))]);
    std::fs::create_dir(cluster.path("lab")).unwrap();
    symlink(program("launch"), cluster.path("lab/launch")).unwrap();
    cluster.add("lab/lab00", "exit 3");
    let file = cluster.file("nodes", "x1.polaris\n");
    let mut command = cluster.command("bash");
    command.arg(script("polaris.pbs")).env("SHARDLAB_BIN", cluster.path("lab"));
    let job = [("PBS_NODEFILE", file.as_str()), ("PBS_JOBID", "7"), ("PBS_O_WORKDIR", "/")];
    assert_eq!(command.envs(job).output().unwrap().status.code(), Some(3));
    assert_eq!(std::fs::read_to_string(cluster.path("ran")).unwrap().lines().count(), 1);
}

#[test]
fn the_build_script_builds_once_for_a_room_without_network() {
    // A cargo that notes how it was called, leaves programs and a library behind, and names them as
    // Cargo does.
    let cargo = r#"echo "$CARGO_HOME ${CARGO_TARGET_DIR:-} ${MPICC:-} $*" >> "$T/ran"
[ "$1" = build ] || exit 0
release=$CARGO_TARGET_DIR/release
mkdir -p "$release/deps"
case "$*" in *"--bin workbook"*) names=workbook ;; *) names="launch lab00 lab03 scaling memory ds_to_universal workbook book" ;; esac
for name in $names; do
    echo "$CARGO_TARGET_DIR" > "$release/$name"
    printf '{"reason":"compiler-artifact","filenames":["%s"],"executable":"%s"}\n' "$release/$name" "$release/$name"
done
for name in libkit-1.rlib libkit-1.rmeta libderive-2.so; do
    echo "$CARGO_TARGET_DIR" > "$release/deps/$name"
    printf '{"reason":"compiler-artifact","filenames":["%s"],"executable":null}\n' "$release/deps/$name"
done"#;
    let rustc = r#"case "$*" in "--print sysroot") echo "$T/sysroot" ;; *) echo "host: some-machine" ;; esac"#;
    let cluster = Cluster::new(&[("cargo", cargo), ("rustc", rustc)]);
    for name in ["bin", "lib/rustlib/some-machine/lib", "share/doc"] {
        std::fs::create_dir_all(cluster.path("sysroot").join(name)).unwrap();
    }
    cluster.add("sysroot/bin/rustc", rustc);
    for name in [
        "lib/librustc_driver.so",
        "lib/rustlib/some-machine/lib/libstd.rlib",
        "share/doc/x",
    ] {
        cluster.file(&format!("sysroot/{name}"), "");
    }
    let root = cluster.path("shardlab").display().to_string();
    let build = |words: &[&str], env: &[(&str, &str)]| {
        // Others can read all, whatever the builder's umask is.
        let mut command = cluster.command("sh");
        command
            .args(["-c", "umask 077; exec \"$0\" \"$@\""])
            .arg(script("build.sh"))
            .args(words)
            .env("SCRATCH", cluster.dir.path())
            .envs(env.iter().copied())
            .output()
            .unwrap()
    };
    let there = |path: &str| cluster.path("shardlab").join(path).exists();
    let mode = |path: &str| {
        let data = std::fs::metadata(cluster.path("shardlab").join(path));
        data.unwrap_or_else(|error| panic!("{path}: {error}")).permissions().mode() & 0o777
    };
    let text = |path: &str| std::fs::read_to_string(cluster.path("shardlab").join(path)).unwrap();
    assert!(build(&["fetch"], &[]).status.success());
    // With MPI first: its workbook needs the library without MPI.
    let mpi = build(&["mpi"], &[("CRAYPE_VERSION", "2.7")]);
    assert!(mpi.status.success(), "{}", stderr(&mpi));
    assert!(
        stdout(&mpi)
            .starts_with(&format!("built; everyone sets:  export SHARDLAB_BIN={root}/bin-mpi\n"))
    );
    assert!(!there("bin/lab03"));
    let plain = build(&[], &[]);
    assert_eq!(
        stdout(&plain),
        format!(
            "built; everyone sets:  export SHARDLAB_BIN={root}/bin\nand looks whether all is there:  $SHARDLAB_BIN/workbook doctor\n"
        ),
        "{}",
        stderr(&plain)
    );
    // There is no mdBook here, and the rest is there without it.
    assert!(stderr(&plain).contains("note: no book: "), "{}", stderr(&plain));
    let line = "build --release --locked --offline --message-format=json-render-diagnostics";
    let containerfile = std::fs::read_to_string(script("Containerfile")).unwrap();
    let version = containerfile.lines().find_map(|line| line.strip_prefix("ARG MDBOOK=")).unwrap();
    let expected = [
        format!("{root}/cargo   fetch --locked"),
        format!(
            "{root}/cargo   install --locked --quiet --root {root}/cargo mdbook --version {version} \
            --no-default-features --features search"
        ),
        format!("{root}/cargo {root}/target-mpi cc {line} --bins --features mpi"),
        format!("{root}/cargo {root}/target cc {line} --bin workbook"),
        format!("{root}/cargo {root}/target  {line} --bins"),
    ];
    let ran = std::fs::read_to_string(cluster.path("ran")).unwrap();
    assert_eq!(ran.lines().collect::<Vec<_>>(), expected);
    for (bin, target) in [("bin", "target"), ("bin-mpi", "target-mpi")] {
        for name in ["launch", "lab00", "lab03", "scaling", "memory", "ds_to_universal"] {
            assert_eq!(mode(&format!("{bin}/{name}")), 0o755);
            assert_eq!(text(&format!("{bin}/{name}")), format!("{root}/{target}\n"));
        }
        // Exercises run on threads, also there.
        assert_eq!(text(&format!("{bin}/workbook")), format!("{root}/target\n"));
        assert!(!there(&format!("{bin}/book")));
    }
    let mut library: Vec<_> = std::fs::read_dir(cluster.path("shardlab/lib"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    library.sort();
    assert_eq!(library, ["libderive-2.so", "libkit-1.rlib"]);
    for path in ["lib/libkit-1.rlib", "share/labs/labs.toml", "share/labs/cluster/polaris.pbs"] {
        assert_eq!(mode(path), 0o644, "{path}");
    }
    for path in ["", "lib", "share/labs/lab01", "toolchain", "toolchain/lib/rustlib/some-machine"] {
        assert_eq!(mode(path), 0o755, "{path}");
    }
    for exercise in kit::Course::read().unwrap().exercises() {
        for folder in ["exercises", "checks", "solutions"] {
            let file = format!("share/labs/{}/{folder}/{}", exercise.lab(), exercise.file());
            assert!(!text(&file).contains("cargo run"), "{file}");
        }
    }
    let ring = text("share/labs/lab01/exercises/lab01_ring.rs");
    assert!(ring.contains("`$SHARDLAB_BIN/lab01 --rounds`"), "{ring}");
    assert!(there("toolchain/bin/rustc") && there("toolchain/lib/librustc_driver.so"));
    assert!(there("toolchain/lib/rustlib/some-machine/lib/libstd.rlib"));
    assert!(!there("toolchain/share") && !there("toolchain/link"));
    assert!(stderr(&mpi).contains("note: no linker could be brought"), "{}", stderr(&mpi));

    let failing = Cluster::new(&[("cargo", "echo '{\"x\":\"/y\"}'; exit 101"), ("rustc", rustc)]);
    let mut command = failing.command(&script("build.sh"));
    let output = command.env("SCRATCH", failing.dir.path()).output().unwrap();
    assert!(!output.status.success() && stdout(&output).is_empty());
    for (words, env, what) in [
        (&[][..], &[("SCRATCH", "")][..], "SCRATCH is not set"),
        (&["all"], &[], "unknown word all"),
    ] {
        let output = build(words, env);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            stderr(&output).starts_with(&format!("error: {what}\nhelp: ")),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn the_book_names_the_cluster_scripts() {
    let page = std::fs::read_to_string(format!("{ROOT}/book/src/on-a-cluster.md")).unwrap();
    for file in std::fs::read_dir(script("")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(
            page.contains(&format!("labs/cluster/{name}")),
            "book/src/on-a-cluster.md does not name {name}"
        );
    }
}

#[test]
#[cfg(target_os = "linux")]
fn where_threads_do_not_start_the_error_says_what_to_do() {
    // The stacks of 512 ranks do not fit into 3 GB of addresses.
    let script = format!("ulimit -v 3000000; exec {lab00} --ranks 512", lab00 = program("lab00"));
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(" failed: its thread did not start: "), "{error}");
    assert!(
        error.contains(
            "\nhelp: start fewer ranks, or allow more threads and memory: ulimit -u; ulimit -v ("
        ),
        "{error}"
    );
}

/// Started by hand, or before the build: the first line says what is missing, and the second what
/// to do.
#[test]
fn a_job_script_says_what_is_missing() {
    let cluster = Cluster::new(&[]);
    let folder = cluster.dir.path().display().to_string();
    let run = |name: &str, job: &[(&str, &str)]| {
        let mut command = cluster.command("/bin/bash");
        command.arg(script(name)).env_remove("SHARDLAB_BIN");
        let output = command.envs(job.iter().copied()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    let pbs = [("PBS_JOBID", "7"), ("PBS_O_WORKDIR", folder.as_str())];
    let slurm = [("SLURM_JOB_ID", "7"), ("SLURM_SUBMIT_DIR", folder.as_str())];
    for (name, submit, job) in [("polaris.pbs", "qsub", pbs), ("slurm.sbatch", "sbatch", slurm)] {
        let error = run(name, &job[1..]);
        assert!(
            error.starts_with("error: no ") && error.contains(&format!("\nhelp: {submit} ")),
            "{error}"
        );
        let error = run(name, &job);
        assert!(
            error.starts_with("error: target/release/launch is not there\nhelp: build with"),
            "{error}"
        );
    }
}
