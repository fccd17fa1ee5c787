//! Job discovery and launch lines on environments that were recorded or made up, none of them this
//! machine's.

use kit::place::seats;
use labs::lab00::job::hosts::{Form, host_file, slurm_counts, slurm_hosts};
use labs::lab00::job::line::{Launcher, quote, recognise};
use labs::lab00::job::{Cpus, Environment, Job, JobFlags, Scheduler};
use proptest::prelude::*;
use shardlab::error::BadInput;
use std::io;
use std::path::Path;

/// Nodes of Polaris: 32 cores, 64 hardware threads.
const POLARIS: Cpus = Cpus { cores: 32, threads: 64 };

/// The host file of the recorded job, as PBS names it, and its text.
const NODE_FILE: &str = "/var/spool/pbs/aux/3061463.polaris-pbs-01.hsn.cm.polaris.alcf.anl.gov";
const NODES: &str =
    "x3205c0s25b0n0.hsn.cm.polaris.alcf.anl.gov\nx3205c0s25b1n0.hsn.cm.polaris.alcf.anl.gov\n";

/// A made-up machine to look for a job on.
#[derive(Default)]
struct World<'a> {
    env: &'a [(&'a str, &'a str)],
    files: &'a [(&'a str, &'a str)],
    host: &'a str,
    flags: JobFlags,
    cpus: Option<Cpus>,
    /// What `flux hostlist local` prints.
    flux: &'a str,
}

impl World<'_> {
    fn discover(&self) -> Result<Job, BadInput> {
        let find = |list: &[(&str, &str)], key: &str| {
            list.iter().find(|(name, _)| *name == key).map(|(_, value)| value.to_string())
        };
        let read = |path: &Path| {
            find(self.files, path.to_str().unwrap()).ok_or(io::ErrorKind::NotFound.into())
        };
        Job::discover(
            &self.flags,
            &Environment {
                env: &|name| find(self.env, name),
                read: &read,
                flux_hosts: &|| Some(self.flux.to_string()).filter(|list| !list.is_empty()),
                host: if self.host.is_empty() {
                    "laptop".into()
                } else {
                    self.host.into()
                },
                cpus: self.cpus.unwrap_or(Cpus { cores: 8, threads: 16 }),
            },
        )
    }

    #[track_caller]
    fn job(&self) -> Job {
        self.discover().unwrap_or_else(|error| panic!("{error}"))
    }

    /// What is wrong with it; the help must say something, too.
    #[track_caller]
    fn refused(&self) -> String {
        let error = self.discover().expect_err("no error");
        assert!(!error.help.is_empty());
        error.what
    }
}

fn polaris() -> World<'static> {
    World {
        env: &[
            ("PBS_JOBID", "3061463.polaris-pbs-01.hsn.cm.polaris.alcf.anl.gov"),
            ("PBS_NODEFILE", NODE_FILE),
            ("PBS_O_HOST", "polaris-login-01.hsn.cm.polaris.alcf.anl.gov"),
        ],
        files: &[(NODE_FILE, NODES)],
        host: "x3205c0s25b0n0",
        cpus: Some(POLARIS),
        ..World::default()
    }
}

/// A PBS job with this host file, elsewhere than on a machine we know.
fn pbs(text: &str) -> Result<Job, BadInput> {
    World {
        env: &[("PBS_NODEFILE", "f")],
        files: &[("f", text)],
        ..World::default()
    }
    .discover()
}

fn slots(job: &Job) -> Vec<(&str, usize)> {
    job.hosts.iter().map(|host| (host.name.as_str(), host.slots)).collect()
}

#[test]
fn polaris_is_recognised_and_filled() {
    let job = polaris().job();
    assert_eq!((job.scheduler, job.machine.as_str()), (Some(Scheduler::Pbs), "Polaris"));
    let host = |n: usize| format!("x3205c0s25b{n}n0.hsn.cm.polaris.alcf.anl.gov");
    assert_eq!(slots(&job), [(host(0).as_str(), 4), (host(1).as_str(), 4)]);
    assert_eq!((job.per_node, job.depth, job.room()), (4, 8, 8));
    assert_eq!(job.depth_from, "32 cores (not 64 hardware threads) / 4 ranks");
    assert_eq!(job.host_file, Some((NODE_FILE.into(), Form::Lines)));
    // The seed's line, to the letter.
    let line = Launcher::Pals.line(&job, 8).unwrap();
    assert_eq!(
        line.to_string(),
        "mpiexec --verbose --envall -n 8 -ppn 4 --hostfile \
         /var/spool/pbs/aux/3061463.polaris-pbs-01.hsn.cm.polaris.alcf.anl.gov --cpu-bind depth -d 8"
    );
}

#[test]
fn machines_are_known_by_any_of_their_names() {
    let job = |lines: &'static str, host: &'static str, submitted: &'static str| {
        let env = [("PBS_NODEFILE", "f"), ("PBS_O_HOST", submitted)];
        let job = World { env: &env, files: &[("f", lines)], host, ..World::default() }.job();
        (job.machine, job.per_node)
    };
    let aurora = ("Aurora".to_string(), 12);
    assert_eq!(
        job("x4102c5s2b0n0.hostmgmt2102.cm.aurora.alcf.anl.gov", "x4102c5s2b0n0", ""),
        aurora
    );
    assert_eq!(job("x4102c5s2b0n0", "x4102c5s2b0n0", "aurora-uan-0010"), aurora);
    assert_eq!(job("x1", "x1.polaris", ""), ("Polaris".to_string(), 4));
    assert_eq!(job("x1", "x1", "polaris-login-01.hsn.cm.polaris.alcf.anl.gov").1, 4);
    assert_eq!(job("n1.example.org", "n1", ""), ("n1".to_string(), 8));
    assert_eq!(job("polaris-login", "polaris-login", "").1, 8);
    assert_eq!(job("notaurora.example.org", "myaurora1", "aurora2").1, 8);
    let slurm = World {
        env: &[("SLURM_JOB_NODELIST", "x1.cm.polaris.org")],
        ..World::default()
    };
    assert_eq!((slurm.job().machine.as_str(), slurm.job().per_node), ("x1", 8));
    // A laptop of that name, without a job.
    let laptop = World { host: "aurora", ..World::default() }.job();
    assert_eq!((laptop.per_node, laptop.is_local()), (8, true));
}

#[test]
fn without_a_scheduler_there_is_this_node() {
    let job = World::default().job();
    assert_eq!((job.scheduler, slots(&job), job.depth), (None, vec![("laptop", 8)], 1));
    assert_eq!(job.host_file, None);
    let flags = JobFlags { per_node: Some(3), ..JobFlags::default() };
    let job = World { flags, ..World::default() }.job();
    assert_eq!(
        (job.room(), job.depth, job.depth_from.as_str()),
        (3, 2, "8 cores (not 16 hardware threads) / 3 ranks")
    );
    // Schedulers leave empty variables behind.
    assert_eq!(
        World {
            env: &[("PBS_NODEFILE", ""), ("PBS_JOBID", " ")],
            ..World::default()
        }
        .job()
        .scheduler,
        None
    );
}

#[test]
fn pbs_elsewhere_writes_one_line_a_rank() {
    let job = pbs("n1\nn1\n\n# comment\nn2 \nn2\n").unwrap();
    assert_eq!(slots(&job), [("n1", 2), ("n2", 2)]);
    assert_eq!((job.depth, job.per_node_from.as_str()), (4, "lines of the host file"));
    let uneven = pbs("n1\nn2\nn1\nn1").unwrap();
    assert_eq!(slots(&uneven), [("n1", 3), ("n2", 1)]);
    assert_eq!(
        (uneven.per_node, uneven.room(), uneven.is_uneven(), uneven.depth),
        (3, 4, true, 2)
    );
    // One line for each node leaves it open.
    assert_eq!(slots(&pbs("n1\nn2").unwrap()), [("n1", 8), ("n2", 8)]);
}

#[test]
fn ranks_per_node_follow_the_order_of_who_knows_best() {
    let files: &[(&str, &str)] = &[
        ("f", "p1.polaris\np1.polaris\np2.polaris\np2.polaris"),
        ("one", "p1.polaris\np2.polaris"),
    ];
    let env: &[(&str, &str)] = &[("PBS_NODEFILE", "f"), ("PBS_NUM_PPN", "6")];
    let flag = JobFlags { per_node: Some(5), ..JobFlags::default() };
    let per_node = |env, flags| World { env, files, flags, ..World::default() }.job().per_node;
    assert_eq!(per_node(env, flag), 5);
    // Its lines were granted, and PBS_NUM_PPN was asked for.
    assert_eq!(per_node(env, JobFlags::default()), 2);
    assert_eq!(per_node(&env[..1], JobFlags::default()), 2);
    assert_eq!(
        per_node(&[("PBS_NODEFILE", "one"), ("PBS_NUM_PPN", "6")], JobFlags::default()),
        6
    );
    assert_eq!(per_node(&[("PBS_NODEFILE", "one")], JobFlags::default()), 4);
}

#[test]
fn depth_follows_the_order_of_who_knows_best() {
    let env: &[(&str, &str)] = &[
        ("SLURM_JOB_NODELIST", "n1"),
        ("SLURM_NTASKS_PER_NODE", "4"),
        ("SLURM_CPUS_ON_NODE", "128"),
        ("SLURM_CPUS_PER_TASK", "7"),
    ];
    let depth = |env, flags| World { env, flags, ..World::default() }.job().depth;
    assert_eq!(depth(env, JobFlags { depth: Some(3), ..JobFlags::default() }), 3);
    assert_eq!(depth(env, JobFlags::default()), 7);
    assert_eq!(depth(&env[..3], JobFlags::default()), 32);
    assert_eq!(depth(&env[..2], JobFlags::default()), 2);
    // The node with the fewest CPUs for a rank, of those that are used.
    let cpus = ("SLURM_JOB_CPUS_PER_NODE", "9,6(x2)");
    let uneven: &[(&str, &str)] =
        &[("SLURM_JOB_NODELIST", "n[1-3]"), ("SLURM_CPUS_ON_NODE", "9"), cpus];
    let three = JobFlags { per_node: Some(3), ..JobFlags::default() };
    assert_eq!(depth(uneven, three.clone()), 2);
    let files = &[("first", "n1"), ("other", "n1\nn4")];
    let of = |file: &str| {
        let flags = JobFlags { host_file: Some(file.into()), ..three.clone() };
        World { env: uneven, files, flags, ..World::default() }.job().depth
    };
    assert_eq!((of("first"), of("other")), (3, 3));
    // A step under --hint=nomultithread counts threads, and its job cores.
    let hint = [
        ("SLURM_JOB_NODELIST", "n1"),
        ("SLURM_STEP_NODELIST", "n1"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_STEP_TASKS_PER_NODE", "4"),
        ("SLURM_JOB_CPUS_PER_NODE", "4"),
        ("SLURM_CPUS_ON_NODE", "8"),
    ];
    assert_eq!(depth(&hint, JobFlags::default()), 1);
    // More ranks than cores have one CPU each, in turns.
    assert_eq!(depth(&env[..1], JobFlags { per_node: Some(9), ..JobFlags::default() }), 1);
    // PBS's are those of a whole chunk.
    let env = &[("PBS_NODEFILE", NODE_FILE), ("NCPUS", "64"), ("OMP_NUM_THREADS", "64")];
    assert_eq!(World { env, ..polaris() }.job().depth, 8);
}

#[test]
fn slurm_jobs_are_found() {
    let env: &[(&str, &str)] = &[
        ("SLURM_JOB_ID", "7"),
        ("SLURM_JOB_NODELIST", "x[001-002,007]"),
        ("SLURM_JOB_NUM_NODES", "3"),
        ("SLURM_TASKS_PER_NODE", "4(x2),3"),
        ("SLURM_CLUSTER_NAME", "perlmutter"),
        // As its plugin for old scripts sets it.
        ("PBS_NODEFILE", "/missing"),
    ];
    let job = World { env, ..World::default() }.job();
    assert_eq!((job.scheduler, job.machine.as_str()), (Some(Scheduler::Slurm), "perlmutter"));
    assert_eq!(slots(&job), [("x001", 4), ("x002", 4), ("x007", 3)]);
    assert_eq!((job.room(), job.is_uneven(), job.host_file), (11, true, None));
    // Names from before 2013.
    let old = World {
        env: &[("SLURM_NODELIST", "a,b"), ("SLURM_NNODES", "2")],
        ..World::default()
    }
    .job();
    assert_eq!(slots(&old), [("a", 8), ("b", 8)]);
    // The user's nodes, each with as many ranks as the scheduler gave it.
    let flags = JobFlags { host_file: Some("mine".into()), ..JobFlags::default() };
    let job = World {
        env,
        files: &[("mine", "x007\nx001")],
        flags,
        ..World::default()
    }
    .job();
    assert_eq!((slots(&job), job.hosts_given), (vec![("x007", 3), ("x001", 4)], true));
}

#[test]
fn a_host_file_of_the_users_beats_the_scheduler() {
    let flags = JobFlags { host_file: Some("mine".into()), ..JobFlags::default() };
    let files: &[(&str, &str)] =
        &[("mine", "a slots=2\nb slots=3 max_slots=9"), (NODE_FILE, NODES)];
    let env: &[(&str, &str)] = &[("PBS_NODEFILE", NODE_FILE), ("PBS_NUM_PPN", "6")];
    let job = World { env, files, flags, ..World::default() }.job();
    assert_eq!(slots(&job), [("a", 2), ("b", 3)]);
    assert_eq!(job.host_file, Some(("mine".into(), Form::Slots)));
    assert_eq!(job.per_node_from, "the host file's counts");
}

#[test]
fn wrong_jobs_are_refused_in_words() {
    let refused = |env: &[(&str, &str)], files: &[(&str, &str)]| {
        World { env, files, ..World::default() }.refused()
    };
    for (env, what) in [
        (&[("PBS_NODEFILE", "gone")][..], "cannot read host file gone: entity not found"),
        (
            &[("PBS_JOBID", "7")],
            "this is a PBS job (PBS_JOBID is set), but PBS_NODEFILE is not set",
        ),
        (
            &[("SLURM_JOB_ID", "7")],
            "this is a Slurm job (SLURM_JOB_ID is set), but SLURM_JOB_NODELIST is not set",
        ),
        (
            &[("PBS_NODEFILE", "f"), ("PBS_NUM_NODES", "3")],
            "f has 2 nodes, and PBS_NUM_NODES=3 contradicts it",
        ),
        (
            &[("PBS_NODEFILE", "f"), ("PBS_NUM_PPN", "0")],
            "PBS_NUM_PPN=0 is no number from 1 to 1048576",
        ),
        (
            &[("SLURM_JOB_NODELIST", "a"), ("SLURM_JOB_NUM_NODES", "2")],
            "SLURM_JOB_NODELIST has 1 nodes, and SLURM_JOB_NUM_NODES=2 contradicts it",
        ),
        (
            &[("SLURM_JOB_NODELIST", "a,b"), ("SLURM_TASKS_PER_NODE", "4")],
            "SLURM_TASKS_PER_NODE=4 is for 1 nodes, and the job has 2",
        ),
        (
            &[("SLURM_JOB_NODELIST", "a"), ("SLURM_CPUS_PER_TASK", "many")],
            "SLURM_CPUS_PER_TASK=many is no number from 1",
        ),
    ] {
        let error = refused(env, &[("f", "a\nb")]);
        assert!(error.starts_with(what), "{error}");
    }
    for (text, what) in [
        ("", "f names no host"),
        ("\n# nothing\n", "f names no host"),
        ("a b", "f cannot be read as a host file, line 1: \"a b\""),
        ("a slots=0", "f cannot be read"),
        ("a slots=-1", "f cannot be read"),
        ("a:", "f cannot be read"),
        (":4", "f cannot be read"),
        ("a:4 slots=4", "f cannot be read"),
        ("a slots=2\na slots=4", "f contradicts itself: it has two counts for a, 2 and 4"),
        ("a:2\n\nb", "f contradicts itself: line 3 counts ranks in a different way"),
        ("{\"hosts\": 3}", "f cannot be read"),
        (
            "a\n\u{1b}]0;x\u{7} slots=2",
            "f has no host's name in line 2: \"\\u{1b}]0;x\\u{7}\"",
        ),
        ("a\0\0", "f has no host's name in line 1: \"a\\0\\0\""),
        ("h\u{202e}ost", "f has no host's name in line 1: "),
        ("$(true)", "f has no host's name in line 1: "),
        (
            "a\nu@b slots=2",
            "f has no host's name in line 2: \"u@b\": '@' is foreign in a name",
        ),
        ("a%4", "f has no host's name in line 1: \"a%4\": '%' is foreign in a name"),
        ("a:4:2", "f has no host's name in line 1: \"a:4:2\": ':' is foreign in a name"),
        ("::", "f has no host's name in line 1: \"::\": :: is the address of no host"),
        (
            "[::]:4",
            "f has no host's name in line 1: \"[::]\": :: is the address of no host",
        ),
        (
            "0.0.0.0",
            "f has no host's name in line 1: \"0.0.0.0\": 0.0.0.0 is the address of no",
        ),
        (
            "[fe80::1]:4:2",
            "f cannot be read as a host file, line 1: \"[fe80::1]:4:2\": \":4:2\"",
        ),
        (
            "a:22 slots=8",
            "f cannot be read as a host file, line 1: \"a:22 slots=8\": \":22\" is a second",
        ),
        ("fe80::[1-2]", "f has no host's name in line 1: \"fe80::[1-2]\": "),
        (
            "fe80::1%",
            "f has no host's name in line 1: \"fe80::1%\": ':' is foreign in a name",
        ),
        ("a,b", "f has no host's name in line 1: \"a,b\": ',' is foreign in a name"),
        ("-x:4", "f has no host's name in line 1: \"-x\": a name does not begin with '-'"),
        ("a/0*4", "f has no host's name in line 1: \"a/0*4\": '/' is foreign in a name"),
        (
            "a[01-",
            "f has no host's name in line 1: \"a[01-\": \"a[01-\" is no list of hosts",
        ),
        ("[a]:4", "f has no host's name in line 1: \"[a]\": \"[a]\" is no list of hosts"),
        (
            "a slots=4\na lots=8",
            "f cannot be read as a host file, line 2: \"a lots=8\": \"lots=8\"",
        ),
        (
            "a:4 ifname=ib0",
            "f cannot be read as a host file, line 1: \"a:4 ifname=ib0\": \"ifname",
        ),
        (
            "1.2.3.4 a",
            "f cannot be read as a host file, line 1: \"1.2.3.4 a\": \"a\" is foreign",
        ),
        (
            "a 4 all.q",
            "f cannot be read as a host file, line 1: \"a 4 all.q\": \"4\" is foreign",
        ),
        (
            "a slots=",
            "f cannot be read as a host file, line 1: \"a slots=\": \"slots=\" has no number",
        ),
        (
            "a slots = 4 cpu=4",
            "f cannot be read as a host file, line 1: \"a slots = 4 cpu=4\": \"cpu=4\"",
        ),
    ] {
        let error = pbs(text).unwrap_err().what;
        assert!(error.starts_with(what), "{text:?}: {error}");
    }
    for (letters, fits) in [(253, true), (254, false), (1_000_000, false)] {
        let read = host_file(&"a".repeat(letters), Path::new("f"));
        assert_eq!(read.is_ok(), fits, "{letters}");
        assert!(read.err().is_none_or(|error| error.what.len() < 200));
    }
    let flags = JobFlags { host_file: Some("typo".into()), ..JobFlags::default() };
    assert!(World { flags, ..polaris() }.refused().starts_with("cannot read host file typo"));
}

#[test]
fn host_files_have_three_forms() {
    let read = |text: &str| {
        let file = host_file(text, Path::new("f")).unwrap();
        (
            file.hosts
                .iter()
                .map(|host| (host.name.clone(), host.slots))
                .collect::<Vec<_>>(),
            file.form,
            file.counts,
        )
    };
    let ab = |a, b| vec![("a".to_string(), a), ("b".to_string(), b)];
    assert_eq!(read("a\nb"), (ab(1, 1), Form::Lines, false));
    assert_eq!(read("a\r\na\r\nb"), (ab(2, 1), Form::Lines, true));
    assert_eq!(read("a slots=1 # one\nb  slots=1"), (ab(1, 1), Form::Slots, true));
    assert_eq!(read("a:4\nb:3"), (ab(4, 3), Form::Colon, true));
    assert_eq!(read("a slots = 4\nb slots= 3 max_slots=9"), (ab(4, 3), Form::Slots, true));
    assert_eq!(read("a cpu=4\nb count=3"), (ab(4, 3), Form::Slots, true));
    assert_eq!(read("a \t\r\nb  \r\n"), (ab(1, 1), Form::Lines, false));
    let address = |name: &str, slots| vec![(name.to_string(), slots)];
    assert_eq!(read("fe80::1"), (address("fe80::1", 1), Form::Lines, false));
    assert_eq!(read("fe80::1 slots=4"), (address("fe80::1", 4), Form::Slots, true));
    assert_eq!(read("[fe80::1]:4"), (address("fe80::1", 4), Form::Colon, true));
    assert_eq!(read("fe80::1%eth0"), (address("fe80::1%eth0", 1), Form::Lines, false));
    // Slurm's short form, which no launcher reads in a file.
    let cn = |slots| (1..=4).map(|n| (format!("cn{n:02}"), slots)).collect::<Vec<_>>();
    assert_eq!(read("cn[01-04]"), (cn(1), Form::Short, false));
    assert_eq!(read("cn[01-03]\ncn[04]"), (cn(1), Form::Short, false));
    assert_eq!(read("cn[01-03],cn04 slots=2"), (cn(2), Form::Short, true));
    assert_eq!(read("cn[01-04]:3"), (cn(3), Form::Short, true));
    assert_eq!(read("cn[01-04]\ncn[01-04]"), (cn(2), Form::Short, true));
}

/// Ranks per node, where they come from, and what is said beside them.
fn found_room(env: &[(&str, &str)], files: &[(&str, &str)]) -> (Vec<usize>, String, String) {
    let job = World { env, files, ..World::default() }.job();
    let slots = job.hosts.iter().map(|host| host.slots).collect();
    (slots, job.per_node_from.clone(), job.said.join("\n"))
}

/// An environment, the ranks of its nodes, whence these are, and what is said of it.
type Granted<'a> = (&'a [(&'a str, &'a str)], &'a [usize], &'a str, &'a str);

#[test]
fn what_pbs_granted_goes_before_what_was_asked_for() {
    let files = &[
        ("nf", "a\nb\nb\nb\nb"),
        ("uneven", "a\na\na\na\nb\nb\nc\nc"),
        ("packed", "a\na\na\na\na\na\na\na"),
        ("two", "a\nb"),
        ("one", "a"),
    ];
    let cases: [Granted; 13] = [
        (
            &[
                ("PBS_NODEFILE", "nf"),
                ("PBS_NUM_NODES", "2"),
                ("PBS_NUM_PPN", "1"),
                ("PBS_NP", "5"),
            ],
            &[1, 4],
            "lines of the host file",
            "PBS_NODEFILE has 5 lines for 2 nodes, and goes before PBS_NUM_PPN=1",
        ),
        (
            &[("PBS_NODEFILE", "uneven"), ("PBS_NUM_NODES", "3"), ("PBS_NUM_PPN", "4")],
            &[4, 2, 2],
            "lines of the host file",
            "PBS_NODEFILE has 8 lines for 3 nodes, and goes before PBS_NUM_PPN=4",
        ),
        (
            &[
                ("PBS_NODEFILE", "packed"),
                ("PBS_NUM_NODES", "2"),
                ("PBS_NUM_PPN", "4"),
                ("PBS_NP", "8"),
            ],
            &[8],
            "lines of the host file",
            "PBS_NODEFILE has 8 lines for 1 node, and goes before PBS_NUM_NODES=2",
        ),
        (
            &[("PBS_NODEFILE", "packed"), ("PBS_NP", "6")],
            &[8],
            "lines of the host file",
            "PBS_NODEFILE has 8 lines for 1 node, and goes before PBS_NP=6",
        ),
        // As many lines as ranks: one on each node.
        (
            &[("PBS_NODEFILE", "two"), ("PBS_NP", "2")],
            &[1, 1],
            "lines of the host file",
            "",
        ),
        (
            &[("PBS_NODEFILE", "two"), ("PBS_NP", "2"), ("PBS_NUM_PPN", "6")],
            &[1, 1],
            "lines of the host file",
            "PBS_NODEFILE has 2 lines for 2 nodes, and goes before PBS_NUM_PPN=6",
        ),
        // A file that names each node once: the numbers of the job.
        (
            &[("PBS_NODEFILE", "two"), ("PBS_NUM_PPN", "3"), ("PBS_NP", "6")],
            &[3, 3],
            "PBS_NUM_PPN",
            "",
        ),
        (&[("PBS_NODEFILE", "two"), ("PBS_NP", "6")], &[3, 3], "PBS_NP=6 on 2 nodes", ""),
        (
            &[("PBS_NODEFILE", "two"), ("PBS_NUM_PPN", "4"), ("PBS_NP", "7")],
            &[4, 3],
            "PBS_NP=7 on 2 nodes",
            "PBS_NP=7 is for all nodes, and goes before PBS_NUM_PPN=4",
        ),
        (
            &[("PBS_NODEFILE", "one"), ("PBS_NUM_PPN", "4"), ("PBS_NP", "8")],
            &[8],
            "PBS_NP=8 on 1 node",
            "PBS_NP=8 is for all nodes, and goes before PBS_NUM_PPN=4",
        ),
        (
            &[("PBS_NODEFILE", "two"), ("PBS_NUM_PPN", "4"), ("PBS_NP", "1")],
            &[4, 4],
            "PBS_NUM_PPN",
            "PBS_NODEFILE has 2 nodes, and goes before PBS_NP=1",
        ),
        (&[("PBS_NODEFILE", "two")], &[8, 8], "one for each core of this node", ""),
        (&[("PBS_NODEFILE", "uneven")], &[4, 2, 2], "lines of the host file", ""),
    ];
    for (env, slots, from, said) in cases {
        assert_eq!(found_room(env, files), (slots.to_vec(), from.into(), said.into()), "{env:?}");
    }
    // A file that names each node once leaves the number to the machine.
    let env = [("PBS_NODEFILE", NODE_FILE), ("PBS_NP", "128")];
    let (slots, _, said) = found_room(&env, &[(NODE_FILE, NODES)]);
    assert_eq!(slots, [4, 4]);
    assert!(said.ends_with("of a Polaris node, whatever PBS_NP=128 says"), "{said}");
}

#[test]
fn what_slurm_granted_goes_before_what_was_asked_for() {
    let list = ("SLURM_JOB_NODELIST", "n[1-3]");
    let total = |number| ("SLURM_NTASKS", number);
    let most = |number| ("SLURM_NTASKS_PER_NODE", number);
    let counts = ("SLURM_TASKS_PER_NODE", "4(x2),2");
    let cases: [Granted; 9] = [
        (&[list, counts, total("10"), most("4")], &[4, 4, 2], "SLURM_TASKS_PER_NODE", ""),
        (
            &[list, counts, total("4"), most("2")],
            &[2, 1, 1],
            "SLURM_NTASKS=4 on 3 nodes",
            "SLURM_NTASKS=4 on 3 nodes, of which SLURM_TASKS_PER_NODE=4(x2),2 has room for 10 ranks",
        ),
        (
            &[list, counts, total("11"), most("2")],
            &[4, 4, 2],
            "SLURM_TASKS_PER_NODE",
            "SLURM_TASKS_PER_NODE=4(x2),2 has 10 ranks, and goes before SLURM_NTASKS=11 and SLURM_NTASKS_PER_NODE=2",
        ),
        (&[list, total("10")], &[4, 3, 3], "SLURM_NTASKS=10 on 3 nodes", ""),
        (
            &[list, total("10"), most("4")],
            &[4, 3, 3],
            "SLURM_NTASKS=10 on 3 nodes, at most SLURM_NTASKS_PER_NODE=4",
            "",
        ),
        (&[list, total("12"), most("4")], &[4, 4, 4], "SLURM_NTASKS_PER_NODE", ""),
        (
            &[list, total("12"), most("2")],
            &[4, 4, 4],
            "SLURM_NTASKS=12 on 3 nodes",
            "SLURM_NTASKS=12 is for all nodes, and goes before SLURM_NTASKS_PER_NODE=2",
        ),
        (
            &[list, total("1")],
            &[8, 8, 8],
            "one for each core of this node",
            "SLURM_JOB_NODELIST has 3 nodes, and goes before SLURM_NTASKS=1",
        ),
        (&[list, most("4")], &[4, 4, 4], "SLURM_NTASKS_PER_NODE", ""),
    ];
    for (env, slots, from, said) in cases {
        assert_eq!(found_room(env, &[]), (slots.to_vec(), from.into(), said.into()), "{env:?}");
    }
}

/// A step overwrites numbers of the job that have no JOB in their names.
#[test]
fn a_step_is_read_by_its_names_and_a_job_by_the_jobs() {
    let step = [
        ("SLURM_JOB_NODELIST", "gpu[011-014]"),
        ("SLURM_JOB_NUM_NODES", "4"),
        ("SLURM_NNODES", "1"),
        ("SLURM_NTASKS", "1"),
        ("SLURM_TASKS_PER_NODE", "1"),
        ("SLURM_NTASKS_PER_NODE", "4"),
        ("SLURM_STEP_NUM_NODES", "1"),
        ("SLURM_STEP_NUM_TASKS", "1"),
        ("SLURM_STEP_NODELIST", "gpu013"),
        ("SLURM_STEP_TASKS_PER_NODE", "1"),
        ("SLURM_STEP_ID", "3"),
    ];
    let job = |env: &[(&str, &str)]| World { env, ..World::default() }.job();
    let found = job(&step);
    assert_eq!((slots(&found), found.is_step), (vec![("gpu013", 1)], true));
    let said = "these are the nodes of step 3, by SLURM_STEP_NODELIST; for the job's, in SLURM_JOB_NODELIST:  unset SLURM_STEP_ID";
    assert_eq!(found.said, [said]);
    let inside = Launcher::Srun { mpi: None, overlap: true };
    let expected = "srun -N 1 -n 1 --ntasks-per-node 1 -c 8 --overlap -w gpu013";
    assert_eq!(line(inside, &found, 1), expected);
    // Its total alone; a total of two nodes; and no number, where the job's request is the best.
    let changed = |name: &str, value: &'static str| {
        let mut env = step.to_vec();
        env.retain(|(n, _)| *n != "SLURM_STEP_TASKS_PER_NODE");
        env.iter_mut().find(|(n, _)| *n == name).unwrap().1 = value;
        env
    };
    let total = changed("SLURM_STEP_NUM_TASKS", "3");
    assert_eq!(slots(&job(&total)), [("gpu013", 3)]);
    assert_eq!(job(&total).said, [said]);
    let mut two = total.clone();
    two.retain(|(name, _)| *name != "SLURM_STEP_NUM_NODES");
    two.iter_mut().find(|(n, _)| *n == "SLURM_STEP_NODELIST").unwrap().1 = "gpu[012-013]";
    assert_eq!(slots(&job(&two)), [("gpu012", 2), ("gpu013", 1)]);
    two.retain(|(name, _)| *name != "SLURM_STEP_NUM_TASKS");
    assert_eq!(slots(&job(&two)), [("gpu012", 4), ("gpu013", 4)]);
    // What the sentence says to type: the job, without the step's numbers.
    let typed = job(&step[..10]);
    let names = ["gpu011", "gpu012", "gpu013", "gpu014"];
    assert_eq!(slots(&typed), names.map(|name| (name, 4)));
    let said = "these are the nodes of the job, by SLURM_JOB_NODELIST; SLURM_TASKS_PER_NODE and SLURM_NTASKS are a step's, and do not count";
    assert_eq!(typed.said, [said]);
    // salloc's shell is a step of one task, and keeps the job's total.
    let mut shell = step.to_vec();
    shell[3].1 = "16";
    shell[10].1 = "4294967290";
    let found = job(&shell);
    assert_eq!((slots(&found), found.is_step), (names.map(|name| (name, 4)).to_vec(), false));
    // On one node as well: the step's one task is not the job.
    let alone = [
        ("SLURM_JOB_NODELIST", "gpu013"),
        ("SLURM_TASKS_PER_NODE", "1"),
        ("SLURM_NTASKS", "16"),
        ("SLURM_STEP_ID", "4294967290"),
    ];
    assert_eq!(slots(&job(&alone)), [("gpu013", 16)]);
    // A step on all nodes of the job is no news.
    let mut all = step.to_vec();
    all[0].1 = "gpu013";
    assert_eq!(job(&all).said, [""; 0]);
}

#[test]
fn groups_of_a_heterogeneous_job_are_named() {
    let groups = [
        ("SLURM_JOB_NODELIST_HET_GROUP_0", "n[1-2]"),
        ("SLURM_JOB_NODELIST_HET_GROUP_1", "g1"),
    ];
    let env = [&[("SLURM_JOB_ID", "7")][..], &groups].concat();
    let error = World { env: &env, ..World::default() }.discover().unwrap_err();
    assert!(error.what.starts_with("this is a heterogeneous job of Slurm"), "{error}");
    assert!(error.help.contains("scontrol show hostnames"), "{error}");
    let env = [&[("SLURM_JOB_NODELIST", "n[1-2]")][..], &groups].concat();
    let job = World { env: &env, ..World::default() }.job();
    assert_eq!(job.hosts.len(), 2);
    assert!(job.said[0].contains("has the nodes of one group"), "{:?}", job.said);
}

#[test]
fn other_schedulers_are_named_with_their_nodes() {
    for (env, name, where_to) in [
        (
            &[("LSB_JOBID", "881"), ("LSB_MCPU_HOSTS", "a 1 b 42")][..],
            "LSF",
            "$LSB_DJOB_HOSTFILE",
        ),
        (&[("PE_HOSTFILE", "/spool/pe"), ("NSLOTS", "8")], "Grid Engine", "$PE_HOSTFILE"),
        (&[("OAR_NODEFILE", "/var/oar")], "OAR", "--hostfile $OAR_NODEFILE"),
        (&[("COBALT_NODEFILE", "/var/cobalt")], "Cobalt", "--hostfile $COBALT_NODEFILE"),
        (&[("PJM_O_NODEINF", "/var/pjm")], "PJM", "--hostfile $PJM_O_NODEINF"),
        (&[("LOADL_HOSTFILE", "/var/ll")], "LoadLeveler", "--hostfile $LOADL_HOSTFILE"),
        (&[("FLUX_JOB_NNODES", "2")], "Flux", "flux hostlist -ed '\\n' local > hosts"),
        (&[("_CONDOR_PROCNO", "0"), ("_CONDOR_NPROCS", "2")], "HTCondor", "openmpiscript"),
        (&[("_CONDOR_SLOT", "slot1_1")], "HTCondor", "ranks are on this node alone"),
    ] {
        let job = World { env, ..World::default() }.job();
        assert_eq!((job.unread, job.hosts.len(), job.scheduler), (Some(name), 1, None));
        let said = job.said.join("\n");
        assert!(said.starts_with(&format!("this is a job of {name}, ")), "{said}");
        assert!(said.contains(where_to), "{said}");
        // The user has given them.
        let flags = JobFlags { host_file: Some("mine".into()), ..JobFlags::default() };
        let given = World { env, flags, files: &[("mine", "a\nb")], ..World::default() }.job();
        assert_eq!((given.said.len(), given.hosts.len(), given.unread), (0, 2, None));
    }
}

/// A batch script of Flux has `FLUX_URI` alone; a task has the others, too.
#[test]
fn a_job_of_flux_is_read_by_its_own_program() {
    let batch: &[_] = &[("FLUX_URI", "local:///tmp/flux-Xy12Qr/local-0")];
    let task: &[_] = &[("FLUX_JOB_ID", "f2Zx9"), ("FLUX_JOB_NNODES", "2")];
    for env in [batch, task] {
        let job = World { env, flux: "tuolumne[1009-1010]\n", ..World::default() }.job();
        let names: Vec<&str> = job.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["tuolumne1009", "tuolumne1010"]);
        assert_eq!((job.scheduler, job.per_node, job.unread), (Some(Scheduler::Flux), 8, None));
        assert!(job.said[0].contains("on no machine with Flux"), "{:?}", job.said);
        // Whatever MPI is here.
        let hydra = [("mpiexec --version", "HYDRA build details:")];
        let launcher = found(&job, &[], &hydra);
        assert_eq!(launcher.line(&job, 16).unwrap().to_string(), "flux run -N 2 -n 16 -c 1");
        assert_eq!(launcher.line(&job, 3).unwrap().to_string(), "flux run -N 1 -n 3 -c 1");
        assert!(launcher.line(&job, 17).is_err());
    }
    let flags = JobFlags {
        host_file: Some("mine".into()),
        depth: Some(4),
        ..JobFlags::default()
    };
    let files: &[_] = &[("mine", "b slots=2\na slots=2"), ("uneven", "b slots=2\na slots=1")];
    let world = World { env: batch, flux: "a,b,c", flags, files, ..World::default() };
    let job = world.job();
    let line = Launcher::Flux.line(&job, 4).unwrap().to_string();
    assert_eq!(line, "flux run -N 2 -n 4 -c 4 --requires=host:b,a");
    let flags = JobFlags { host_file: Some("uneven".into()), ..JobFlags::default() };
    let uneven = World { flags, ..world }.job();
    let error = Launcher::Flux.line(&uneven, 3).unwrap_err();
    assert_eq!(
        error.what,
        "Flux puts the same number of ranks on every node; here nodes take 1 to 2"
    );
    // Slurm around Flux, and a list that is none.
    let both: &[_] = &[("FLUX_URI", "ssh://n1/local"), ("SLURM_JOB_NODELIST", "n[1-2]")];
    assert_eq!(
        World { env: both, flux: "n1", ..World::default() }.job().scheduler,
        Some(Scheduler::Slurm)
    );
    let job = World { env: batch, flux: "a[1-", ..World::default() }.job();
    assert_eq!((job.scheduler, job.unread), (None, Some("Flux")));
}

/// In the distribution `arbitrary` a file has a line for each rank, and Slurm counts none by node.
#[test]
fn an_arbitrary_distribution_is_that_of_its_file() {
    let job = |distribution, text| {
        let env: &[(&str, &str)] = &[
            ("SLURM_JOB_NODELIST", "n[1-3]"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_DISTRIBUTION", distribution),
            ("SLURM_HOSTFILE", "/home/me/ranks"),
        ];
        let job = World { env, files: &[("/home/me/ranks", text)], ..World::default() }.job();
        let slots: Vec<usize> = job.hosts.iter().map(|host| host.slots).collect();
        (slots, job.per_node_from)
    };
    let from_file = |slots| (slots, "SLURM_HOSTFILE".to_string());
    assert_eq!(job("arbitrary", "n1\nn2\nn2\nn3\n"), from_file(vec![1, 2, 1]));
    assert_eq!(job("arbitrary", "n3\nn1\n n2 \nn3\n"), from_file(vec![1, 1, 2]));
    // Other distributions do not read it, and one that does not name all nodes is another job's.
    let divided = (vec![2, 1, 1], "SLURM_NTASKS=4 on 3 nodes".to_string());
    assert_eq!(job("cyclic", "n1\nn2\nn2\nn3\n"), divided);
    assert_eq!(job("arbitrary", "n1\nn1\nn1\nn2\n"), divided);
}

/// NSLOTS has the slots of all nodes: those of this one are in a file. Where there is no other
/// node, nothing has to be given.
#[test]
fn this_nodes_slots_are_those_that_it_was_granted() {
    let pe = ("PE_HOSTFILE", "/spool/pe");
    let slots = ("NSLOTS", "5");
    let two = "other.site 3 all.q@other.site <NULL>\nlaptop.site 2 all.q@laptop.site <NULL>\n";
    let one = "laptop 5 all.q@laptop UNDEFINED\n";
    let renamed = "node7 3 all.q@node7 <NULL>\nnode8 2 all.q@node8 <NULL>\n";
    let lsf = |hosts| ("LSB_MCPU_HOSTS", hosts);
    for (env, text, per_node, from, sentences) in [
        (&[pe, slots][..], two, 2, "PE_HOSTFILE", 1),
        (&[pe, slots], one, 5, "PE_HOSTFILE", 0),
        (&[pe, slots], renamed, 3, "PE_HOSTFILE", 1),
        (&[pe, slots], "no number", 8, "one for each core of this node", 1),
        (&[slots], "", 5, "NSLOTS", 1),
        (&[lsf("laptop 6")], "", 6, "LSB_MCPU_HOSTS", 0),
        (&[lsf("other 4 laptop 2")], "", 2, "LSB_MCPU_HOSTS", 1),
        (&[lsf("other 4 laptop")], "", 8, "one for each core of this node", 1),
    ] {
        let job = World { env, files: &[(pe.1, text)], ..World::default() }.job();
        let found = (job.per_node, &*job.per_node_from, job.said.len());
        assert_eq!(found, (per_node, from, sentences), "{env:?}");
        assert!(job.unread.is_some() && job.hosts.len() == 1, "{env:?}");
    }
}

#[test]
fn auroras_devices_are_those_that_level_zero_shows() {
    let found = |more: &[(&str, &str)]| {
        let env = [&[("PBS_NODEFILE", "f")][..], more].concat();
        World {
            env: &env,
            files: &[("f", "x1.cm.aurora.example")],
            ..World::default()
        }
        .discover()
    };
    let hierarchy = |value| ("ZE_FLAT_DEVICE_HIERARCHY", value);
    let mask = |value| ("ZE_AFFINITY_MASK", value);
    let cases: [(&[(&str, &str)], usize); 10] = [
        (&[], 12),
        (&[hierarchy("FLAT")], 12),
        (&[hierarchy("COMBINED")], 12),
        (&[hierarchy("COMPOSITE")], 6),
        (&[mask("0,1")], 2),
        (&[mask("0, 1,1,11,12")], 3),
        (&[hierarchy("COMPOSITE"), mask("0,1,6")], 2),
        (&[hierarchy("COMPOSITE"), mask("0.0,0.1,3.1")], 2),
        // A rank's own mask is not the node's.
        (&[mask("3"), ("PALS_RANKID", "3")], 12),
        (&[mask("0.0,1"), ("NGPU_PER_HOST", "12")], 1),
    ];
    for (env, devices) in cases {
        let job = found(env).unwrap();
        assert_eq!(job.per_node, devices, "{env:?}");
        assert!(job.per_node_from.starts_with("one for each accelerator of an Aurora node"));
    }
    let stale = found(&[hierarchy("COMPOSITE"), ("NGPU_PER_HOST", "12")]).unwrap();
    assert_eq!(
        stale.said,
        [
            "each node takes 6 ranks, one for each accelerator of an Aurora node with ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE, whatever NGPU_PER_HOST=12 says"
        ]
    );
    for none in ["0.0", "12", "gpu", ","] {
        let error = found(&[mask(none)]).unwrap_err().what;
        assert!(error.contains("names none of the 12 devices of an Aurora node"), "{error}");
    }
}

#[test]
fn slurms_short_forms_are_read() {
    let hosts = |list| slurm_hosts(list).unwrap().join(" ");
    assert_eq!(hosts("x[001-003,007]"), "x001 x002 x003 x007");
    assert_eq!(hosts("login"), "login");
    assert_eq!(hosts("a[9-11],b,c[08-10]-ib"), "a9 a10 a11 b c08-ib c09-ib c10-ib");
    assert_eq!(hosts("r[1-2]n[01-02]"), "r1n01 r1n02 r2n01 r2n02");
    for (list, why) in [
        ("", "a name is missing"),
        ("a,,b", "a name is missing"),
        ("a[1-2", "a bracket is left open"),
        ("a1-2]", "a bracket is closed that was not open"),
        ("a[1[2]]", "a bracket is inside a bracket"),
        ("a[]", "brackets hold numbers"),
        ("a[x]", "brackets hold numbers"),
        ("a[+1]", "brackets hold numbers"),
        ("a[3-1]", "a range runs backwards"),
        ("a[0-99999999999]", "it has too many hosts"),
        ("a[0-9999][0-9999]", "it has too many hosts"),
        ("a\u{1b}[1-2]", "it has what is no host's name"),
        ("a,\u{7}", "it has what is no host's name"),
    ] {
        let error = slurm_hosts(list).unwrap_err().what;
        assert!(error.contains(why), "{list}: {error}");
    }
    assert_eq!(slurm_counts("4(x2),3").unwrap(), [4, 4, 3]);
    assert_eq!(slurm_counts("128").unwrap(), [128]);
    for list in ["", "4,", "0", "4(x0)", "4(x2", "4x2", "-1", "4(x99999999)"] {
        assert!(slurm_counts(list).is_err(), "{list}");
    }
}

/// One bracket or none: a prefix, ranges as (first, more, digits), and what follows.
type Part = (String, Vec<(u64, u64, usize)>, String);

proptest! {
    #[test]
    fn slurm_lists_give_back_what_was_written(parts in prop::collection::vec(
        ("[a-z][a-z0-9-]{0,5}", prop::collection::vec((0u64..2000, 0u64..20, 1usize..6), 0..4), "[a-z-]{0,3}"), 1..5
    )) {
        let parts: Vec<Part> = parts;
        let mut texts = Vec::new();
        let mut expected = Vec::new();
        for (prefix, ranges, suffix) in &parts {
            let range = |&(first, more, digits): &(u64, u64, usize)| match more {
                0 => format!("{first:0digits$}"),
                _ => format!("{first:0digits$}-{:0digits$}", first + more),
            };
            if ranges.is_empty() {
                texts.push(format!("{prefix}{suffix}"));
                expected.push(format!("{prefix}{suffix}"));
                continue;
            }
            texts.push(format!("{prefix}[{}]{suffix}", ranges.iter().map(range).collect::<Vec<_>>().join(",")));
            for &(first, more, digits) in ranges {
                expected.extend((first..=first + more).map(|n| format!("{prefix}{n:0digits$}{suffix}")));
            }
        }
        prop_assert_eq!(slurm_hosts(&texts.join(",")).unwrap(), expected);
    }

    #[test]
    fn slurm_counts_give_back_what_was_written(runs in prop::collection::vec((1usize..300, 1usize..9), 1..6)) {
        let text: Vec<String> = runs.iter().map(|&(value, times)| match times {
            1 => value.to_string(),
            _ => format!("{value}(x{times})"),
        }).collect();
        let expected: Vec<usize> = runs.iter().flat_map(|&(value, times)| vec![value; times]).collect();
        prop_assert_eq!(slurm_counts(&text.join(",")).unwrap(), expected);
    }

    #[test]
    fn no_text_makes_the_readers_panic(text in "[a-c0-9,\\[\\]()x:= #\n-]{0,24}") {
        let _ = (slurm_hosts(&text), slurm_counts(&text), host_file(&text, Path::new("f")));
    }
}

#[test]
fn launchers_are_known_by_what_they_say() {
    let open_mpi = Some(Launcher::OpenMpi { program: "mpirun", root: false });
    let hydra = Some(Launcher::Hydra { program: "mpirun" });
    for (text, expected) in [
        (
            "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n",
            open_mpi,
        ),
        ("mpiexec (OpenRTE) 4.1.4", open_mpi),
        ("prterun (PRRTE) 3.0.2", open_mpi),
        ("HYDRA build details:\n    Version:   4.0.2\n", hydra),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307", hydra),
        ("mpiexec (PALS) 1.2.12", Some(Launcher::Pals)),
        ("bash: mpirun: no such thing", None),
    ] {
        assert_eq!(recognise(text, "mpirun"), expected, "{text}");
    }
}

/// The launcher found for a job where these programs say these things.
fn found(job: &Job, env: &[(&str, &str)], programs: &[(&str, &str)]) -> Launcher {
    let find = |list: &[(&str, &str)], key: &str| {
        list.iter().find(|(name, _)| *name == key).map(|(_, value)| value.to_string())
    };
    let ask =
        |program: &str, args: &[&str]| find(programs, &format!("{program} {}", args.join(" ")));
    Launcher::find(job, &|name| find(env, name), &ask)
}

#[test]
fn the_launcher_is_the_one_that_is_there() {
    let laptop = World::default().job();
    let polaris = polaris().job();
    let slurm = World { env: &[("SLURM_JOB_NODELIST", "a")], ..World::default() }.job();
    let ompi = [
        ("mpiexec --version", "mpiexec (OpenRTE) 4.1.4"),
        ("mpirun --version", "mpirun (Open MPI) 4.1.4"),
    ];
    let srun = [
        ("srun --version", "slurm 23.02.7"),
        ("srun --mpi=list", "MPI plugin types are...\n\tpmix\n\tnone"),
    ];
    let pals = [("mpiexec --version", "PALS 1.2")];
    let open_mpi = |root| Launcher::OpenMpi { program: "mpirun", root };
    assert_eq!(found(&laptop, &[], &[]), Launcher::Threads);
    assert_eq!(found(&laptop, &[], &ompi), open_mpi(false));
    assert_eq!(
        found(&laptop, &[], &ompi[..1]),
        Launcher::OpenMpi { program: "mpiexec", root: false }
    );
    let as_root = [&ompi[..], &[("id -u", "0\n")]].concat();
    assert_eq!(found(&laptop, &[], &as_root), open_mpi(true));
    let allowed = [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")];
    assert_eq!(found(&laptop, &allowed, &as_root), open_mpi(false));
    let hydra = [
        ("mpiexec --version", "HYDRA build details:"),
        ("mpirun --version", "HYDRA build details:"),
    ];
    assert_eq!(found(&laptop, &[], &hydra), Launcher::Hydra { program: "mpiexec" });
    assert_eq!(found(&laptop, &[], &pals), Launcher::Threads);
    assert_eq!(found(&polaris, &[], &pals), Launcher::Pals);
    assert_eq!(found(&polaris, &[], &[("mpiexec --version", "version 1.3.4")]), Launcher::Pals);
    assert_eq!(found(&polaris, &[], &[]), Launcher::Threads);
    let by = |mpi| Launcher::Srun { mpi, overlap: false };
    assert_eq!(found(&slurm, &[], &srun), SRUN);
    let both = [&srun[..], &ompi[..]].concat();
    assert_eq!(found(&slurm, &[], &both), by(Some("pmix")));
    assert_eq!(found(&slurm, &[("SLURM_MPI_TYPE", "pmi2")], &both), SRUN);
    // Slurm sets it by itself in salloc's shell.
    assert_eq!(found(&slurm, &[("SLURM_MPI_TYPE", "none")], &both), by(Some("pmix")));
    assert_eq!(found(&slurm, &[], &[&srun[..1], &ompi[..]].concat()), SRUN);
    // srun sets the site's default in each step, and salloc's shell is one.
    let inside = |mpi| [("SLURM_STEP_ID", "4294967290"), ("SLURM_MPI_TYPE", mpi)];
    let of_pmi2 = [&both[..], &[("scontrol show config", "MpiDefault = pmi2\n")]].concat();
    assert_eq!(found(&slurm, &inside("pmi2"), &of_pmi2), by(Some("pmix")));
    assert_eq!(found(&slurm, &inside("cray_shasta"), &of_pmi2), SRUN);
    // Slurm that cannot start Open MPI's ranks has Open MPI do it, but in a step on other nodes.
    let no_pmix = ("srun --mpi=list", "MPI plugin types are...\n\tnone\n\tpmi2");
    let no_pmix = [&srun[..1], &[no_pmix], &ompi[..]].concat();
    assert_eq!(found(&slurm, &[], &no_pmix), open_mpi(false));
    let two = Job {
        hosts: [&slurm.hosts[..], &slurm.hosts[..]].concat(),
        ..slurm.clone()
    };
    assert_eq!(found(&two, &[], &no_pmix), open_mpi(false));
    assert_eq!(found(&Job { is_step: true, ..two }, &[], &no_pmix), Launcher::NoPmix);
    assert!(Launcher::NoPmix.line(&slurm, 1).unwrap_err().what.contains("srun --mpi=list"));
    // MPICH's descendants need a name where the site has no default, or one that is not theirs.
    let with_pmi2 = ("srun --mpi=list", "MPI plugin types are...\n\tcray_shasta\n\tpmi2\n\tnone");
    let site = |default| ("scontrol show config", default);
    for (default, mpi) in [
        (site("LogLevel = info\nMpiDefault              = none\n"), Some("pmi2")),
        (site("MpiDefault              = pmix_v4\nX = none\n"), Some("pmi2")),
        (site("MpiDefault              = cray_shasta\nX = none\n"), None),
    ] {
        let programs = [&srun[..1], &[with_pmi2, default], &hydra[..]].concat();
        assert_eq!(found(&slurm, &[], &programs), by(mpi), "{default:?}");
        let none = [("SLURM_MPI_TYPE", "none")];
        assert_eq!(found(&slurm, &none, &programs), by(Some("pmi2")), "{default:?}");
    }
    let of_pmix = ("scontrol show config", "MpiDefault = pmix\n");
    let of_pmix = [&srun[..1], &[with_pmi2, of_pmix], &hydra[..]].concat();
    assert_eq!(found(&slurm, &inside("pmix_v4"), &of_pmix), by(Some("pmi2")));
    // A step's CPUs are the shell's own; before 20.11 they were everyone's.
    let step = Job { is_step: true, ..slurm.clone() };
    let shares = [&srun[..], &[("srun --help", "  --overlap   share\n")]].concat();
    assert_eq!(found(&step, &[], &shares), Launcher::Srun { mpi: None, overlap: true });
    assert_eq!(found(&slurm, &[], &shares), SRUN);
    assert_eq!(found(&step, &[], &srun), SRUN);
    // Other launchers call srun in a job of Slurm.
    assert_eq!(found(&slurm, &[], &ompi), Launcher::NoSrun);
    let error = Launcher::NoSrun.line(&slurm, 1).unwrap_err();
    assert!(error.what.contains("srun, which starts ranks there"), "{error}");
    assert_eq!(found(&slurm, &[], &[]), Launcher::Threads);
    // srun without a job would wait in the queue for one.
    assert_eq!(found(&laptop, &[], &srun), Launcher::Threads);
}

const OPEN_MPI: Launcher = Launcher::OpenMpi { program: "mpirun", root: false };
const SRUN: Launcher = Launcher::Srun { mpi: None, overlap: false };
const HYDRA: Launcher = Launcher::Hydra { program: "mpiexec" };

#[track_caller]
fn line(launcher: Launcher, job: &Job, ranks: usize) -> String {
    launcher.line(job, ranks).unwrap().to_string()
}

#[test]
fn each_launcher_has_flags_of_its_own() {
    let even = pbs("a\na\nb\nb").unwrap();
    assert_eq!(line(OPEN_MPI, &even, 4), "mpirun -n 4 --map-by ppr:2:node:PE=4 --hostfile f");
    assert_eq!(line(HYDRA, &even, 3), "mpiexec -n 3 -ppn 2 -f f");
    assert_eq!(
        line(Launcher::Pals, &even, 4),
        "mpiexec --verbose --envall -n 4 -ppn 2 --hostfile f --cpu-bind depth -d 4"
    );
    let shallow = Job { depth: 1, ..even };
    assert_eq!(line(OPEN_MPI, &shallow, 4), "mpirun -n 4 --map-by ppr:2:node --hostfile f");

    let uneven = pbs("a\na\nb").unwrap();
    assert_eq!(line(OPEN_MPI, &uneven, 3), "mpirun -n 3 --map-by slot:PE=4 --hostfile f");
    assert_eq!(line(HYDRA, &uneven, 3), "mpiexec -n 3 -hosts a:2,b:1");
    let error = Launcher::Pals.line(&uneven, 3).unwrap_err();
    assert_eq!(
        error.what,
        "PALS puts the same number of ranks on every node; here nodes take 1 to 2"
    );
    assert_eq!(error.help, "give --per-node 1");

    // A launcher that cannot read the file's form gets the hosts themselves.
    let slots = pbs("a slots=8\nb slots=8").unwrap();
    let colons = pbs("a:8\nb:8").unwrap();
    assert_eq!(line(OPEN_MPI, &slots, 16), "mpirun -n 16 --map-by ppr:8:node --hostfile f");
    assert_eq!(line(OPEN_MPI, &colons, 16), "mpirun -n 16 --map-by ppr:8:node --host a:8,b:8");
    assert_eq!(line(HYDRA, &slots, 16), "mpiexec -n 16 -ppn 8 -hosts a:8,b:8");
    assert_eq!(line(HYDRA, &colons, 16), "mpiexec -n 16 -ppn 8 -f f");
    let short = pbs("a[1-2] slots=8").unwrap();
    assert_eq!(line(OPEN_MPI, &short, 16), "mpirun -n 16 --map-by ppr:8:node --host a1:8,a2:8");
    assert_eq!(line(HYDRA, &short, 16), "mpiexec -n 16 -ppn 8 -hosts a1:8,a2:8");
    let address = pbs("[fe80::1]:8").unwrap();
    assert_eq!(
        line(OPEN_MPI, &address, 8),
        "mpirun -n 8 --map-by ppr:8:node --host '[fe80::1]:8'"
    );
    assert_eq!(
        Launcher::Pals.line(&colons, 16).unwrap_err().what,
        "PALS cannot read host file f"
    );
}

#[test]
fn srun_is_told_nodes_ranks_and_cpus() {
    let env: &[(&str, &str)] = &[
        ("SLURM_JOB_NODELIST", "x[1-3]"),
        ("SLURM_TASKS_PER_NODE", "4(x3)"),
        ("SLURM_CPUS_PER_TASK", "16"),
    ];
    let srun = SRUN;
    let job = World { env, ..World::default() }.job();
    assert_eq!(line(srun, &job, 12), "srun -N 3 -n 12 --ntasks-per-node 4 -c 16");
    assert_eq!(line(srun, &job, 4), "srun -N 1 -n 4 --ntasks-per-node 4 -c 16");
    assert_eq!(line(srun, &job, 5), "srun -N 2 -n 5 -c 16");
    assert_eq!(
        line(Launcher::Srun { mpi: Some("pmix"), overlap: false }, &job, 2),
        "srun -N 1 -n 2 --ntasks-per-node 2 -c 16 --mpi=pmix"
    );
    assert_eq!(line(HYDRA, &job, 12), "mpiexec -n 12 -ppn 4");
    assert_eq!(line(OPEN_MPI, &job, 12), "mpirun -n 12 --map-by ppr:4:node:PE=16");
    let env = &[env[0], ("SLURM_TASKS_PER_NODE", "4(x2),3"), env[2]];
    let uneven = World { env, ..World::default() }.job();
    assert_eq!(line(srun, &uneven, 11), "srun -N 3 -n 11 -c 16");
    let flags = JobFlags {
        host_file: Some("mine".into()),
        per_node: Some(4),
        depth: None,
    };
    let given = World { env, flags, files: &[("mine", "x3\nx1")], ..World::default() }.job();
    assert_eq!(line(srun, &given, 8), "srun -N 2 -n 8 --ntasks-per-node 4 -c 16 -w x3,x1");
}

#[test]
fn without_a_job_processes_are_local() {
    let job = World::default().job();
    assert_eq!(line(OPEN_MPI, &job, 8), "mpirun -n 8");
    assert_eq!(line(OPEN_MPI, &job, 9), "mpirun --oversubscribe -n 9");
    let root = Launcher::OpenMpi { program: "mpirun", root: true };
    assert_eq!(line(root, &job, 2), "mpirun --allow-run-as-root -n 2");
    assert_eq!(line(HYDRA, &job, 9), "mpiexec -n 9");
    // --per-node is no number of cores.
    let job = World {
        flags: JobFlags { per_node: Some(9), ..JobFlags::default() },
        ..World::default()
    }
    .job();
    assert_eq!(line(OPEN_MPI, &job, 9), "mpirun --oversubscribe -n 9");
}

#[test]
fn a_job_is_not_overfilled() {
    let job = polaris().job();
    for launcher in [Launcher::Pals, OPEN_MPI, HYDRA, SRUN] {
        let error = launcher.line(&job, 9).unwrap_err();
        assert_eq!(error.what, "9 ranks do not fit: 2 nodes take 8 ranks");
        assert_eq!(launcher.line(&job, 0).unwrap_err().what, "-n 0 is out of range");
    }
}

#[test]
fn threads_are_started_by_the_program_itself() {
    let line = Launcher::Threads.line(&World::default().job(), 3).unwrap();
    let command = |words: &str| {
        line.command(&words.split(' ').map(String::from).collect::<Vec<_>>()).join(" ")
    };
    assert_eq!(command("lab03 --steps 5"), "lab03 --steps 5 --ranks 3");
    assert_eq!(command("lab03 --ranks 2"), "lab03 --ranks 2");
    assert_eq!(command("lab03 --ranks=2"), "lab03 --ranks=2");
}

#[test]
fn lines_can_be_pasted_into_a_shell() {
    let words = ["a/b", "two words", "it's", "", "$HOME", "x=1,y:2"].map(String::from);
    assert_eq!(quote(&words), r"a/b 'two words' 'it'\''s' '' '$HOME' x=1,y:2");
}

#[test]
fn ranks_are_seated_by_their_hosts() {
    let hosts = ["b", "a", "b", "a", "b"].map(String::from);
    let seats: Vec<_> = seats(&hosts)
        .iter()
        .map(|s| (s.node, s.nodes, s.local_rank, s.local_size))
        .collect();
    assert_eq!(seats, [(0, 2, 0, 3), (1, 2, 0, 2), (0, 2, 1, 3), (1, 2, 1, 2), (0, 2, 2, 3)]);
}
