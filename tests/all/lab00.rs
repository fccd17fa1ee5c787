//! lab00 as its users start it: on a laptop, and in a job.

use crate::suite::program::{failed, passes, program, succeeded};
#[cfg(unix)]
use std::ffi::OsStr;
#[cfg(unix)]
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

const HOSTS: [&str; 2] = [
    "x3205c0s25b0n0.hsn.cm.polaris.alcf.anl.gov",
    "x3205c0s25b1n0.hsn.cm.polaris.alcf.anl.gov",
];

/// What lab00 prints where nothing is installed and no job is around, in a folder of its own.
#[track_caller]
fn lab00(dir: &Path, flags: &str, env: &[(&str, &str)]) -> String {
    let mut command = Command::new(program("lab00"));
    command.current_dir(dir).env_clear().env("PATH", dir).envs(env.iter().copied());
    succeeded(&command.args(flags.split_whitespace()).output().expect("lab00 starts"))
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

/// Where its screen names this machine and this program, they are named right.
#[test]
fn a_laptop_is_a_job_of_one_node() {
    let dir = tempfile::tempdir().unwrap();
    let text = lab00(dir.path(), "--info --per-node 8", &[]);
    let host = shardlab::launch::host_name();
    let launch = format!("{} --ranks 8", program("lab00"));
    let machine = host.split('.').next().unwrap();
    for (name, value) in [
        ("HOSTS", &*format!("['{host}']")),
        ("HOSTNAME", &host),
        ("MACHINE", machine),
        ("LAUNCH_CMD", &launch),
    ] {
        assert_eq!(field(&text, "[dist_info]:", name), value, "{name}");
    }
}

/// What the environment contradicts, or does not let us read, is said on both screens.
#[test]
fn both_screens_say_which_variable_won_and_what_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("nf"), "a\nb\nb\nb\nb\n").unwrap();
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let pbs = [("PBS_NODEFILE", "nf"), ("PBS_NUM_PPN", "1"), ("PBS_NP", "5")];
    let won = "PBS_NODEFILE has 5 lines for 2 nodes, and goes before PBS_NUM_PPN=1";
    let lsf = [("LSB_JOBID", "881"), ("LSB_MCPU_HOSTS", "batch3 1 c05n14 42")];
    let unread = "this is a job of LSF, whose nodes are not read";
    for (env, said) in [(&pbs[..], won), (&lsf, unread)] {
        let info = words(lab00(dir.path(), "--info", env));
        assert!(info.contains(&format!("note: {said}")), "{info}");
        let screen = words(lab00(dir.path(), "", env));
        assert!(screen.contains(&format!(" note {said}")), "{screen}");
    }
    let info = lab00(dir.path(), "--info", &lsf);
    let scheduler = field(&info, "[dist_info]:", "SCHEDULER");
    assert_eq!(scheduler, "LSF (its nodes are not read)");
    // A good job gets no note.
    let info = lab00(dir.path(), "--info", &[("PBS_NODEFILE", "nf"), ("PBS_NP", "5")]);
    assert!(!info.contains("note"), "{info}");
}

/// A step of one task is one process, also where it has a rank for PMIx; and PyTorch's variables
/// alone prove no launcher.
#[test]
fn one_process_starts_its_ranks_as_threads() {
    let dir = tempfile::tempdir().unwrap();
    for env in [
        &[("SLURM_STEP_NUM_TASKS", "1"), ("PMIX_RANK", "0"), ("SLURM_PROCID", "0")][..],
        &[("PALS_LOCAL_SIZE", "1"), ("PALS_RANKID", "0")],
        &[("JSM_NAMESPACE_SIZE", "1"), ("PMIX_RANK", "0")],
        &[("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")],
    ] {
        let text = lab00(dir.path(), "", env);
        assert!(text.contains("4 threads of this process"), "{env:?}\n{text}");
    }
    let start = |env: &[(&str, &str)]| {
        let mut command = Command::new(program("lab00"));
        command.current_dir(dir.path()).env_clear().env("PATH", dir.path());
        command.envs(env.iter().copied()).output().unwrap()
    };
    let output = start(&[("RANK", "1"), ("WORLD_SIZE", "4")]);
    let said = succeeded(&output) + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("4 threads of this process"), "{said}");
    assert_eq!(said.matches("note: RANK=1 and WORLD_SIZE=4 are set, ").count(), 1, "{said}");
    assert!(said.contains("unset RANK WORLD_SIZE"), "{said}");
}

/// A rank that slurmstepd itself has started leaves the sentence to the first rank.
#[test]
#[cfg(target_os = "linux")]
fn where_a_launcher_started_a_rank_the_first_one_speaks() {
    let dir = tempfile::tempdir().unwrap();
    let stepd = dir.path().join("slurmstepd");
    std::os::unix::fs::symlink("/bin/sh", &stepd).unwrap();
    let start = |rank: &str| {
        let mut command = Command::new(&stepd);
        command.args(["-c", "\"$0\"; exit $?", program("lab00")]).env_clear();
        command.env("SLURM_STEP_NUM_TASKS", "8").env("SLURM_PROCID", rank);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(start("3"), "");
    assert!(start("0").starts_with("error: srun started 8 processes"), "{}", start("0"));
}

/// The variables of a step's job contradict each other. The other shell has what the step has.
#[test]
fn another_shell_finds_the_step_as_a_job() {
    let dir = tempfile::tempdir().unwrap();
    let env = [
        ("SLURM_JOB_ID", "2001"),
        ("SLURM_JOB_NODELIST", "gpu[011-014]"),
        ("SLURM_JOB_NUM_NODES", "4"),
        ("SLURM_NNODES", "1"),
        ("SLURM_NTASKS", "1"),
        ("SLURM_TASKS_PER_NODE", "1"),
        ("SLURM_STEP_ID", "3"),
        ("SLURM_STEP_NODELIST", "gpu013"),
        ("SLURM_STEP_TASKS_PER_NODE", "1"),
    ];
    lab00(dir.path(), "--jobenv jobenv", &env);
    let saved = std::fs::read_to_string(dir.path().join("jobenv")).unwrap();
    let variables = saved.lines().filter_map(|line| line.strip_prefix("export ")?.split_once('='));
    let read: Vec<(&str, &str)> = variables.collect();
    assert!(read.contains(&("SLURM_JOB_NODELIST", "gpu013")), "{saved}");
    let text = lab00(dir.path(), "--info", &read);
    let found = |name| field(&text, "[dist_info]:", name);
    assert_eq!((found("HOSTS"), found("NGPUS")), ("['gpu013']".into(), "1".into()));
    assert!(!text.contains("note: "), "{text}");
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
    let text = lab00(dir.path(), "--info --jobenv jobenv", &env);
    let info = |name| field(&text, "[dist_info]:", name);
    assert_eq!(info("HOSTS"), format!("['{}', '{}']", HOSTS[0], HOSTS[1]));
    assert_eq!((info("SCHEDULER"), info("WORLD_SIZE_TOTAL")), ("PBS".into(), "8".into()));
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
    lab00(dir.path(), "--jobenv given --hostfile 3061463.polaris-pbs-01", &env);
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

    let output = Command::new(program("lab00"))
        .args(["--jobenv", "no/such/jobenv"])
        .envs(env)
        .output()
        .unwrap();
    failed(&output, 2, "cannot write --jobenv no/such/jobenv: ");
}

#[test]
fn jobs_of_other_sizes_pass_the_checks() {
    passes("lab00", &["--ranks 1 --info", "--ranks 3", "--ascii --ranks 40 --per-node 1"]);
}
