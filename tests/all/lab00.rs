//! lab00 as its users start it: on a laptop, in recorded jobs, broken.

use crate::suite::program::{failed, program, succeeded};
#[cfg(unix)]
use std::ffi::OsStr;
#[cfg(unix)]
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};

const HOSTS: [&str; 2] = [
    "x3205c0s25b0n0.hsn.cm.polaris.alcf.anl.gov",
    "x3205c0s25b1n0.hsn.cm.polaris.alcf.anl.gov",
];

/// lab00 where nothing is installed and no job is around, in a folder of its own.
fn lab00(dir: &Path, flags: &str, env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program("lab00"));
    command.current_dir(dir).env_clear().env("PATH", dir).envs(env.iter().copied());
    command.args(flags.split_whitespace()).output().expect("lab00 starts")
}

#[track_caller]
fn succeeds(dir: &Path, flags: &str, env: &[(&str, &str)]) -> String {
    succeeded(&lab00(dir, flags, env))
}

#[track_caller]
fn fails(dir: &Path, flags: &str, env: &[(&str, &str)], code: i32, what: &str) -> String {
    failed(&lab00(dir, flags, env), code, what)
}

/// A file in `dir` that names the two nodes.
fn node_file(dir: &Path) -> String {
    let path = dir.join("3061463.polaris-pbs-01");
    std::fs::write(&path, HOSTS.join("\n")).unwrap();
    path.display().to_string()
}

/// The value of `NAME=` in the block that begins with `title`, continued lines put together.
#[track_caller]
fn field(text: &str, title: &str, name: &str) -> String {
    let block = text
        .split_once(&format!("{title}\n"))
        .unwrap_or_else(|| panic!("{title} is missing in\n{text}"))
        .1;
    let block = block.split("\n\n").next().unwrap();
    let fields = block
        .split('•')
        .map(|field| field.split_whitespace().collect::<Vec<_>>().join(" "));
    let value = fields
        .into_iter()
        .find_map(|field| field.strip_prefix(&format!("{name}=")).map(String::from));
    value.unwrap_or_else(|| panic!("{name} is missing in {title}:\n{text}"))
}

#[test]
fn a_laptop_is_a_job_of_one_node() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeds(dir.path(), "--info --per-node 8 --depth 2", &[]);
    let host = shardlab::launch::host_name();
    assert!(text.contains(&format!("[HOSTS]\n  • [host:0] - {host}\n")), "{text}");
    let launch = format!("{} --ranks 8", program("lab00"));
    let machine = host.split('.').next().unwrap();
    for (name, value) in [
        ("DEVICE", "cpu"),
        ("DEVICE_ID", "cpu:0"),
        ("DISTRIBUTED_BACKEND", "threads"),
        ("GPUS_PER_NODE", "8"),
        ("HOSTS", &format!("['{host}']")),
        ("HOSTFILE", "none"),
        ("HOSTNAME", &host),
        ("LOCAL_RANK", "0"),
        ("MACHINE", machine),
        ("NUM_NODES", "1"),
        ("NGPUS", "8"),
        ("NGPUS_AVAILABLE", "8"),
        ("NODE_ID", "0"),
        ("RANK", "0"),
        ("SCHEDULER", "none"),
        ("WORLD_SIZE_TOTAL", "8"),
        ("WORLD_SIZE_IN_USE", "4"),
        ("LAUNCH_CMD", &launch),
    ] {
        assert_eq!(field(&text, "[dist_info]:", name), value, "{name}");
    }
    assert_eq!(field(&text, "[DIST INFO]", "DEPTH"), "2 (--depth)");
    assert!(text.contains("\nUsing [4 / 8] available \"cpu\" devices !!\n"), "{text}");
    assert_eq!(text.matches('✓').count(), 5, "{text}");
    assert!(text.contains("the lesson's ring = the library's"), "{text}");
}

#[test]
fn a_screen_shows_the_ranks_and_the_ring_and_the_rest_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeds(dir.path(), "--ranks 3 --per-node 3", &[]);
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().position(|line| line.starts_with("  rank 0 ")).unwrap();
    let host = shardlab::launch::host_name();
    let process = lines[first].split_whitespace().nth(5).unwrap();
    for rank in 0..3 {
        let words: Vec<&str> = lines[first + rank].split_whitespace().collect();
        let rank = rank.to_string();
        assert_eq!(
            words[..5],
            ["rank", rank.as_str(), rank.as_str(), "0", host.as_str()],
            "{text}"
        );
        assert_eq!(words[5..], [process, "'rank", format!("{rank}'").as_str()], "{text}");
    }
    assert!(process.parse::<u32>().unwrap() > 0, "{text}");
    let ring = "  rank    starts with  round 1  round 2\n  ──────  ───────────  ───────  ───────\n  rank 0            0        2        \
                1\n  rank 1            1        0        2\n  rank 2            2        1        0\n";
    assert!(text.contains("\nA ring: in 2 rounds, ") && text.contains(ring), "{text}");
    assert!(!text.contains("[DIST INFO]") && text.contains("\n  More: --info, "), "{text}");
    assert!(lines.len() <= 30, "{} lines:\n{text}", lines.len());
    assert!(!succeeds(dir.path(), "--info --ranks 3", &[]).contains("round 1"));
}

#[test]
fn a_pbs_job_on_polaris_is_shown_as_the_seed_shows_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = node_file(dir.path());
    let env = [("PBS_JOBID", "3061463"), ("PBS_NODEFILE", file.as_str())];
    #[cfg(unix)]
    script(dir.path(), "mpiexec", "echo 'mpiexec (PALS) 1.2.12'");
    let text = succeeds(dir.path(), "--info --depth 8", &env);
    assert!(
        text.contains(&format!("  • [host:0] - {}\n  • [host:1] - {}\n", HOSTS[0], HOSTS[1])),
        "{text}"
    );
    let dist = |name| field(&text, "[DIST INFO]", name);
    assert_eq!(
        (dist("NGPUS"), dist("NHOSTS"), dist("HOSTFILE")),
        ("8".into(), "2".into(), file.clone())
    );
    assert_eq!(dist("NGPU_PER_HOST"), "4 (one for each accelerator of a Polaris node)");
    let info = |name| field(&text, "[dist_info]:", name);
    assert_eq!(info("HOSTS"), format!("['{}', '{}']", HOSTS[0], HOSTS[1]));
    assert_eq!(
        (info("MACHINE"), info("SCHEDULER"), info("NUM_NODES")),
        ("Polaris".into(), "PBS".into(), "2".into())
    );
    assert_eq!((info("WORLD_SIZE_TOTAL"), info("WORLD_SIZE_IN_USE")), ("8".into(), "4".into()));
    if cfg!(unix) {
        let line = format!(
            "mpiexec --verbose --envall -n 8 -ppn 4 --hostfile {file} --cpu-bind depth -d 8"
        );
        assert_eq!((dist("DIST_LAUNCH"), info("LAUNCH_CMD")), (line.clone(), line.clone()));
        assert!(text.contains(&format!("\nlaunch = {line}\n")), "{text}");
    }
    assert!(text.contains("Using [4 / 8] "), "{text}");
    fits(&text, &file);
}

/// A shell that knows nothing of the job finds it in the file, whatever the values are.
#[test]
#[cfg(unix)]
fn another_shell_finds_the_job_in_the_file_of_its_variables() {
    let dir = tempfile::tempdir().unwrap();
    let file = node_file(dir.path());
    let env = [
        ("USER", "foremans"),
        ("PBS_JOBID", "3061463.polaris-pbs-01"),
        ("PBS_NODEFILE", file.as_str()),
        ("PBS_O_WORKDIR", "/a folder's/$HOME;\nand more"),
        ("SECRET", "not the scheduler's"),
    ];
    let text = succeeds(dir.path(), "--info --jobenv jobenv", &env);
    let job = |name| field(&text, "[JOB]", name);
    assert_eq!((job("USER"), job("MACHINE")), ("foremans".into(), "Polaris".into()));
    assert_eq!(job("HOST"), shardlab::launch::host_name());
    let stamp: Vec<usize> = job("TSTAMP").split('-').take(4).map(str::len).collect();
    assert_eq!(stamp, [4, 2, 2, 6], "{text}");
    assert!(text.contains("• jobenv_file: jobenv: 3 variables of the scheduler."), "{text}");

    // What belongs to one rank would make every lab in the other shell a rank; and not every
    // variable is text.
    let mut of_a_rank = Command::new(program("lab00"));
    let output = of_a_rank
        .current_dir(dir.path())
        .env_clear()
        .env("PATH", dir.path())
        .env("NOISE", OsStr::from_bytes(b"\xff"))
        .envs([
            ("SLURM_JOB_ID", "7"),
            ("SLURM_JOB_NODELIST", "n[1-2]"),
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_ID", "1"),
        ])
        .args(["--jobenv", "slurm"])
        .output()
        .unwrap();
    succeeded(&output);
    let saved = std::fs::read_to_string(dir.path().join("slurm")).unwrap();
    let names: Vec<&str> = saved.lines().map(|line| line.split('=').next().unwrap()).collect();
    assert!(names.contains(&"export SLURM_JOB_NODELIST"), "{saved}");
    assert!(!saved.contains("PROCID") && !saved.contains("STEP"), "{saved}");
    // A file of hosts is found from another folder.
    succeeds(dir.path(), "--jobenv given --hostfile 3061463.polaris-pbs-01", &env);
    let given = std::fs::read_to_string(dir.path().join("given")).unwrap();
    assert!(given.contains(&format!("export HOSTFILE={file}\n")), "{given}");

    let saved = std::fs::read_to_string(dir.path().join("jobenv")).unwrap();
    assert!(!saved.contains("SECRET") && !saved.contains("foremans"), "{saved}");
    let script =
        format!(". ./jobenv; printf '%s' \"$PBS_O_WORKDIR\" > seen; {} --info", program("lab00"));
    let other = Command::new("/bin/sh")
        .current_dir(dir.path())
        .env_clear()
        .env("PATH", dir.path())
        .args(["-c", &script])
        .output()
        .unwrap();
    let other = succeeded(&other);
    let names = ["NGPUS", "NHOSTS", "NGPU_PER_HOST", "HOSTFILE", "DIST_LAUNCH"];
    for name in names {
        let found = field(&other, "[DIST INFO]", name);
        assert_eq!(found, field(&text, "[DIST INFO]", name), "{name}");
    }
    let seen = std::fs::read_to_string(dir.path().join("seen")).unwrap();
    assert_eq!(seen, "/a folder's/$HOME;\nand more");

    fails(
        dir.path(),
        "--jobenv jobenv",
        &[],
        2,
        "--jobenv saves a scheduler's variables, and neither PBS nor Slurm is around this program",
    );
    fails(
        dir.path(),
        "--jobenv no/such/jobenv",
        &env,
        2,
        "cannot write --jobenv no/such/jobenv: ",
    );
}

/// A program of sh, written by a process of its own: what this process writes may be open in
/// another test's, too.
#[cfg(unix)]
fn script(dir: &Path, name: &str, body: &str) {
    let write = ["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\""];
    assert!(
        Command::new("/bin/sh")
            .args(write)
            .arg(dir.join(name))
            .arg(body)
            .status()
            .unwrap()
            .success()
    );
}

/// No line is wider than the screen, but the one to copy and words that nothing can fold.
#[track_caller]
fn fits(text: &str, word: &str) {
    for line in text.lines() {
        let one_word = line.contains(word) || line.contains(program("lab00"));
        assert!(
            line.chars().count() <= 80 || line.starts_with("launch = ") || one_word,
            "wider than 80: {line}"
        );
    }
}

#[test]
fn a_slurm_job_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let env = [
        ("SLURM_JOB_NODELIST", "nid[001-002]"),
        ("SLURM_TASKS_PER_NODE", "4,3"),
        ("SLURM_CLUSTER_NAME", "alps"),
    ];
    let text = succeeds(dir.path(), "--info --ranks 7", &env);
    let info = |name| field(&text, "[dist_info]:", name);
    assert_eq!(
        (info("SCHEDULER"), info("MACHINE"), info("NGPUS")),
        ("Slurm".into(), "alps".into(), "7".into())
    );
    assert_eq!(info("HOSTS"), "['nid001', 'nid002']");
    assert!(!text.contains("Using ["), "{text}");
    fits(&text, "\0");
}

#[test]
fn the_break_is_exposed_by_the_checks() {
    let dir = tempfile::tempdir().unwrap();
    for (ranks, found) in [(2, "found 0 0 ✗"), (5, "found 0 1 2 3 3 ✗")] {
        let flags = format!("--break duplicate-rank --ranks {ranks}");
        let text =
            fails(dir.path(), &flags, &[], 1, &format!("two ranks are rank {}; ", ranks - 2));
        // The ring brings what the library brings, and the size is still right.
        assert_eq!((text.matches('✗').count(), text.matches('✓').count()), (3, 2), "{text}");
        assert!(text.contains("each exactly once") && text.contains(found), "{text}");
        let what = format!(
            "add up to {ranks}*{}/2 = {} (by all-reduce)",
            ranks - 1,
            ranks * (ranks - 1) / 2
        );
        assert!(
            text.contains(&what)
                && text.contains(&format!("found {} ✗", ranks * (ranks - 1) / 2 - 1)),
            "{text}"
        );
    }
    fails(
        dir.path(),
        "--break duplicate-rank --ranks 1",
        &[],
        2,
        "--break needs ranks that can differ",
    );
}

#[test]
fn bad_input_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("empty"), "").unwrap();
    for (flags, what) in [
        ("--ranks 0", "--ranks 0 is out of range"),
        ("--ranks 100000", "--ranks 100000 is out of range"),
        ("--per-node 0", "invalid value '0' for '--per-node <P>'"),
        ("--depth 0", "invalid value '0' for '--depth <D>'"),
        (
            "--per-node 18446744073709551615",
            "invalid value '18446744073709551615' for '--per-node <P>'",
        ),
        ("--hostfile missing", "cannot read host file missing"),
        ("--hostfile empty", "empty names no host\nhelp: "),
        ("--break other", "invalid value 'other'"),
    ] {
        fails(dir.path(), flags, &[], 2, what);
    }
    fails(
        dir.path(),
        "",
        &[("PBS_JOBID", "7")],
        2,
        "this is a PBS job (PBS_JOBID is set), but PBS_NODEFILE is not set",
    );
}

#[test]
fn ascii_means_ascii_and_one_rank_is_a_job_too() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeds(dir.path(), "--ascii --info --ranks 1", &[]);
    assert!(
        text.is_ascii() && text.contains("  * DEVICE=cpu\n") && text.contains("\n  rank 0 "),
        "{text}"
    );
    let many = succeeds(dir.path(), "--ascii --ranks 40 --per-node 1", &[]);
    assert!(
        many.is_ascii() && many.contains("0 1 2 3 4 5 6 7 .., each exactly once"),
        "{many}"
    );
    assert!(
        many.contains("40*39/2 = 780 (by all-reduce)") && many.contains("\n  rank 39 "),
        "{many}"
    );
    fits(&many, "\0");
}
