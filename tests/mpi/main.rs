//! The suite over MPI. Started plainly, this program is the driver: it starts itself, and lab03,
//! under mpirun with several numbers of ranks. Started by mpirun, it is one rank of the suite.
//!
//! `CARGO_TARGET_DIR=target-mpi cargo test --features mpi --test mpi`

use suite::program::program;
#[path = "../suite/mod.rs"]
mod suite;

use anyhow::{Context, Result, bail, ensure};
use kit::{Course, UnderMpi};
use shardlab::comm::{Comm, CommError, Options, Reduce};
use shardlab::difference::largest_difference;
use shardlab::launch;
use shardlab::parallel::zero::Stage;
use shardlab::plan::{Experts, Family};
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The checkout.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The programs that these tests start, for cargo.
const PROGRAMS: &[&str] = &["--bin", "lab*", "--bin", "launch"];

/// How a rank of the suite is to fail, for the tests of failures.
const FAIL: &str = "SHARDLAB_TEST_FAIL";
/// Of these: it stops its launcher, which then cannot end the job.
const LAUNCHER: &str = "launcher";

/// Set where only the algorithms are to be tested.
const ALGORITHMS: &str = "SHARDLAB_TEST_ALGORITHMS";

/// Set where only the pretrained model is to be tested.
const STORY: &str = "SHARDLAB_TEST_STORY";

fn main() -> ExitCode {
    if launch::launched(|name| std::env::var(name).ok()).is_some() {
        return launch::main(one_rank_of_the_suite);
    }
    let Some(mpirun) = Mpirun::find() else {
        eprintln!(
            "error: there is no mpirun\nhelp: install one with your MPI library: on Debian, openmpi-bin"
        );
        return ExitCode::FAILURE;
    };
    drive(&mpirun)
}

fn one_rank_of_the_suite() -> Result<()> {
    let ranks = launch::ranks(None, 1)?;
    let last = launch::launched(|name| std::env::var(name).ok())
        .is_some_and(|launched| launched.rank == ranks - 1);
    if last && std::env::var(FAIL).is_ok_and(|how| how == "file") {
        bail!("the text is missing here");
    }
    if std::env::var_os(ALGORITHMS).is_some() {
        launch::run(ranks, |comm| algorithms(&comm))?;
        if last {
            println!("the algorithms hold on {ranks} ranks");
        }
        return Ok(());
    }
    if std::env::var_os(STORY).is_some() {
        launch::run(ranks, |comm| suite::llama::the_story_is_told(&comm))?;
        if last {
            println!("the story is told on {ranks} ranks");
        }
        return Ok(());
    }
    match std::env::var(FAIL).as_deref() {
        Err(_) => launch::run(ranks, suite).map(drop),
        Ok("absent") => {
            // The last rank works alone for longer than the others wait for it to come to the
            // second run.
            launch::run(ranks, |comm| Ok(comm.barrier()?))?;
            if last {
                std::thread::sleep(Duration::from_secs(3));
            }
            let options = Options { deadline: Duration::from_secs(1), ..Options::default() };
            launch::run_with(ranks, &options, |comm| {
                variant_told(comm.labelled("meeting").barrier().map_err(Into::into))
            })
            .map(drop)
        }
        Ok(how) if how.starts_with("start ") => {
            let options = Options { deadline: Duration::from_secs(20), ..Options::default() };
            launch::run_with(ranks, &options, |comm| {
                variant_told(start_differently(&comm, how, comm.rank() == ranks - 1))
            })
            .map(drop)
        }
        Ok(
            how @ ("missing" | "named" | "unreceived" | "exit" | "length" | "reduction" | "order"
            | "early" | "message" | "started" | "started_before" | "deadlock" | "late"
            | "slow"),
        ) => {
            // Only what late ranks cause takes until the deadline.
            let deadline = Duration::from_secs(if matches!(how, "late" | "slow") { 1 } else { 20 });
            let options = Options { deadline, ..Options::default() };
            launch::run_with(ranks, &options, |comm| {
                variant_told(disagree(&comm, how, comm.rank() == ranks - 1))
            })
            .map(drop)
        }
        Ok(how) => launch::run(ranks, |comm| {
            if comm.rank() == ranks - 1 {
                match how {
                    "error" => bail!("the disk is full"),
                    LAUNCHER => {
                        let launcher = std::os::unix::process::parent_id().to_string();
                        Command::new("kill").args(["-STOP", &launcher]).status()?;
                        bail!("its launcher is stopped");
                    }
                    _ => panic!("index 7 is out of bounds"),
                }
            }
            Ok(comm.barrier()?)
        })
        .map(drop),
    }
}

/// Prints which variant an error is, and of what.
fn variant_told(result: Result<()>) -> Result<()> {
    let Some(error) = result.as_ref().err().and_then(|e| e.downcast_ref()) else {
        return result;
    };
    let stopped = matches!(error, CommError::Stopped { .. });
    let variant = match error.reason() {
        CommError::CallsDiffer { calls, .. } => {
            format!("{:?} differs from {:?}", calls[0].kind, calls[1].kind)
        }
        CommError::RankEnded { rank, call, .. } => format!("{:?} needs rank {rank}", call.kind),
        CommError::DeadlinePassed { missing, call, .. } => {
            format!("{:?} is without {missing:?}", call.kind)
        }
        CommError::Deadlock { .. } => "deadlock".to_string(),
        CommError::RankFailed { rank, why, .. } => {
            format!("rank {rank}: {}", why.lines().next().unwrap_or_default())
        }
        other => format!("{other:?}"),
    };
    let prefix = if stopped { "stopped, " } else { "" };
    eprintln!("variant: {prefix}{variant}");
    result
}

/// Ranks that do not make the same calls; `odd` is the one that is to blame.
#[expect(clippy::if_same_then_else, reason = "the places differ")]
fn disagree(comm: &Comm, how: &str, odd: bool) -> Result<()> {
    // A group of its own, which has made other numbers of calls than the world.
    let part = comm.split(7, -(comm.rank() as i64))?.named("tensor");
    part.barrier()?;
    let mut x = [1f32; 8];
    let next = (comm.rank() + 1) % comm.size();
    let reduce_elsewhere = |x: &mut [f32]| comm.all_reduce(x, Reduce::Sum);
    match how {
        "order" if odd => reduce_elsewhere(&mut x)?,
        "deadlock" if odd => part.barrier()?,
        "deadlock" => {
            // The others find the deadlock before this rank takes part in it, and wait for its
            // report.
            std::thread::sleep(Duration::from_millis(if comm.rank() == 0 { 600 } else { 0 }));
            comm.recv(&mut x, next)?
        }
        "late" | "slow" => {
            let slow = Duration::from_millis(450);
            let late = Duration::from_secs(3);
            if odd {
                std::thread::sleep(if how == "slow" { slow } else { late });
            }
            comm.labelled("meeting").barrier()?;
        }
        "named" => part.labelled("root").broadcast(&mut x, usize::from(odd))?,
        "unreceived" => {
            // One that the library keeps, and one beyond its limit, which needs a receiver.
            if odd {
                comm.send(&x, 0)?;
                comm.tagged(7).send(&vec![1f32; 1 << 20], 0)?;
            }
            return Ok(());
        }
        "exit" if odd => std::process::exit(0),
        "missing" if odd => comm.barrier()?,
        "length" if odd => comm.all_reduce(&mut x[..4], Reduce::Sum)?,
        "reduction" if odd => comm.all_reduce(&mut x, Reduce::Max)?,
        "early" if odd => return Ok(()),
        "early" => part.all_reduce(&mut x, Reduce::Sum)?,
        "message" if odd => return Ok(comm.send(&x, 0)?),
        "message" if comm.rank() == 0 => {
            comm.recv(&mut x, comm.size() - 1)?;
            comm.recv(&mut x, comm.size() - 1)?;
        }
        "message" => return Ok(()),
        "started" if odd => comm.barrier()?,
        "started" => drop(comm.start_all_reduce(x.to_vec(), Reduce::Sum)?.wait()?),
        "started_before" => {
            // The first differ, and no rank waits for them before the second.
            let _first = comm.start_all_reduce(vec![1f32; if odd { 4 } else { 8 }], Reduce::Sum)?;
            comm.start_all_reduce(x.to_vec(), Reduce::Sum)?.wait()?;
        }
        _ => comm.all_reduce(&mut x, Reduce::Sum)?,
    }
    // Different places, but one label.
    let labelled = comm.labelled("weights");
    if odd {
        labelled.broadcast(&mut x, 0)?
    } else {
        labelled.broadcast(&mut x, 0)?
    }
    Ok(())
}

/// `start KIND LENGTH KIND LENGTH`: the last rank starts the second, all others the first.
fn start_differently(comm: &Comm, how: &str, odd: bool) -> Result<()> {
    let words: Vec<&str> = how.split(' ').collect();
    let (kind, len) = if odd {
        (words[3], words[4])
    } else {
        (words[1], words[2])
    };
    let len = len.parse::<usize>()?;
    let sum = Reduce::Sum;
    let one = vec![1f32; len];
    let all = vec![1f32; len * comm.size()];
    let comm = comm.labelled("started");
    let mut started = match kind {
        "all_reduce" => comm.start_all_reduce(one, sum)?,
        "reduce" => comm.start_reduce(one, sum, 0)?,
        "all_gather" => comm.start_all_gather(all)?,
        "reduce_scatter" => comm.start_reduce_scatter(all, sum)?,
        _ => bail!("there is no {kind}"),
    };
    // As a rank that computes meanwhile.
    for _ in 0..20 {
        started.test()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    started.wait()?;
    Ok(comm.barrier()?)
}

/// Everything that must hold on a transport, on all ranks of the job.
fn suite(comm: Comm) -> Result<()> {
    let ranks = comm.size();
    for len in [0, 1, 2, 5, 33, 1031] {
        for op in [Reduce::Sum, Reduce::Min, Reduce::Max, Reduce::Prod] {
            suite::collectives::all_types(&comm, len, op, (len + op as usize) % ranks)?;
            suite::collectives::started_all_types(&comm, len, op)?;
        }
        suite::collectives::started_mean(&comm, len)?;
    }
    (1..=3).try_for_each(|colors| suite::collectives::split(&comm, colors, 7))?;
    suite::collectives::extremes_of_floats(&comm)?;
    algorithms(&comm)?;
    // Large enough for the library's rendezvous, which waits for the other side: sends must not.
    let to = (comm.rank() + 1) % ranks;
    let from = (comm.rank() + ranks - 1) % ranks;
    comm.send(&vec![comm.rank() as u64; 1 << 18], to)?;
    let mut received = vec![0u64; 1 << 18];
    comm.recv(&mut received, from)?;
    assert!(received.iter().all(|&x| x == from as u64));

    let elsewhere = std::thread::scope(|scope| scope.spawn(|| comm.barrier()).join());
    let error = elsewhere.expect("no panic").expect_err("a Comm off its thread").to_string();
    assert!(error.contains("only on the thread that it was handed to"), "{error}");

    // With one or two ranks there is only one order to add in.
    suite::parity::ranks_train_what_one_rank_trains(&comm, ranks <= 2)?;
    suite::parity::linear_layers(&comm, ranks <= 2)?;
    suite::parity::only_the_last_micro_step_synchronises(&comm)?;
    suite::parity::overlap_changes_no_gradient(&comm, ranks <= 2)?;
    suite::training::a_training_takes_the_plain_step(&comm)?;
    suite::zero::stages_take_the_same_steps(&comm, ranks <= 2)?;
    suite::zero::micro_steps_add_up(&comm, ranks <= 2)?;
    suite::zero::ranks_may_hold_nothing(&comm, ranks <= 2)?;
    suite::zero::a_model_begins_as_allocated(&comm)?;
    suite::muon::owners_hold_whole_matrices(&comm)?;
    suite::muon::owners_take_one_ranks_steps(&comm, ranks <= 2)?;
    if ranks <= 2 {
        suite::muon::tensor_ranks_take_one_ranks_step(&comm)?;
    }
    if ranks > 1 {
        suite::pipeline::pipelines_train_what_one_rank_trains(&comm)?;
    }
    if ranks == 2 {
        suite::hsdp::two_ranks_take_zero_threes_steps(&comm)?;
    }
    if ranks == 4 {
        suite::hsdp::groups_train_what_one_rank_trains(&comm, 2)?;
        suite::hsdp::bytes_are_the_formulas(&comm)?;
        suite::hsdp::groups_begin_alike(&comm)?;
        suite::hsdp::mistakes_show(&comm)?;
        suite::hsdp::pytorchs_figures(&comm, 2)?;
    }
    suite::zero::state_goes_from_stage_to_stage(&comm, ranks <= 2)?;
    suite::zero::a_bad_step_moves_nothing(&comm)?;
    suite::zero::a_step_that_was_given_up_is_forgotten(&comm)?;
    bad_steps_and_checkpoints(&comm)?;
    suite::tensor::a_mesh_trains_what_one_rank_trains(
        &comm,
        if ranks.is_multiple_of(2) { 2 } else { 1 },
        ranks <= 2,
    )?;
    if ranks > 1 {
        suite::context::attention_is_one_ranks(&comm)?;
    }
    let meshes: &[&str] = match ranks {
        2 => &["cp=2,cp-comm=ring"],
        4 => &["dp=2,cp=2,zero=1,cp-comm=ulysses", "tp=2,cp=2,sp"],
        _ => &[],
    };
    for mesh in meshes {
        suite::context::a_mesh_trains_what_one_rank_trains(&comm, (Family::Gpt, None), mesh)?;
    }
    let experts = Experts { count: 4, top_k: 2, normalized: true, ..Experts::default() };
    let meshes: &[&str] = match ranks {
        2 => &["dp=2,ep=2"],
        4 => &["dp=4,ep=2,zero=2", "dp=2,cp=2,ep=4,zero=3", "dp=2,pp=2,ep=2,m=2,zero=1"],
        _ => &[],
    };
    for mesh in meshes {
        let model = (Family::Gpt, Some(Experts { ffn: 64, ..experts }));
        suite::context::a_mesh_trains_what_one_rank_trains(&comm, model, mesh)?;
    }
    suite::experts::shared_experts_compute_what_one_rank_computes(&comm)?;
    suite::experts::copies_travel_in_the_type_of_the_pass(&comm)?;
    suite::experts::a_load_over_all_ranks_is_one_ranks(&comm)?;
    if 8usize.is_multiple_of(ranks) {
        suite::experts::overlap_changes_no_bit(&comm)?;
    }
    if ranks == 2 {
        suite::experts::sums_in_one_order_have_the_same_bits(&comm)?;
    }
    llama(&comm)?;
    if ranks >= 4 {
        suite::zero::two_groups_train_side_by_side(&comm, ranks == 4)?;
    }
    comm.barrier()?;
    if comm.rank() == 0 {
        println!("the suite holds on {ranks} ranks");
    }
    Ok(())
}

/// A Llama under every strategy that so many ranks allow.
fn llama(comm: &Comm) -> Result<()> {
    for (pipeline, tensor) in [(1, 1), (2, 1), (1, 2), (2, 2)] {
        if comm.size().is_multiple_of(pipeline * tensor) {
            suite::llama::a_mesh_trains_what_one_rank_trains(comm, pipeline, tensor)?;
        }
    }
    suite::llama::sharing_changes_no_token(comm)
}

/// Steps that are not taken, and trainings that continue. Bits are compared where there is only one
/// order to add in.
fn bad_steps_and_checkpoints(comm: &Comm) -> Result<()> {
    suite::bad_steps::skipping_draws_the_same_tokens(comm)?;
    if comm.size() != 2 {
        return Ok(());
    }
    suite::bad_steps::a_bound_skips_like_ranges(comm, Stage::One)?;
    suite::bad_steps::a_loss_scale_alone_changes_no_bit(comm, Stage::Three)?;
    suite::bad_steps::in_fp16_the_first_steps_are_skipped(comm, Stage::One)?;
    let mut process = [u64::from(std::process::id())];
    comm.broadcast(&mut process, 0)?;
    let dir = std::env::temp_dir().join(format!("shardlab-checkpoints-{}", process[0]));
    if comm.rank() == 0 {
        std::fs::create_dir(&dir)?;
    }
    comm.barrier()?;
    suite::checkpoints::resumed_training_is_uninterrupted_training(comm, &dir)?;
    suite::checkpoints::rank_0_reads_for_all(comm, &dir.join("rank 0 reads"))?;
    suite::checkpoints::one_job_at_a_time_saves_to_a_folder(comm, &dir.join("claimed"))?;
    let experts = Experts { count: 4, top_k: 2, normalized: true, ..Experts::default() };
    let model = (Family::Gpt, Some(Experts { ffn: 32, ..experts }));
    let mesh = |strategy: &str, from: Option<&suite::universal::Saved>| {
        suite::universal::on_a_mesh(comm, model, strategy, from, &dir.join(strategy))
    };
    let saved = mesh("dp=2,ep=2,zero=1", None)?;
    mesh("tp=2", Some(&saved))?;
    comm.barrier()?;
    if comm.rank() == 0 {
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}

/// Messages, groups, and the collectives that are made of sends and receives.
fn algorithms(comm: &Comm) -> Result<()> {
    let ranks = comm.size();
    suite::collectives::tagged(comm)?;
    suite::collectives::started_in_two_groups(comm)?;
    suite::collectives::traffic_by_group(comm)?;
    suite::collectives::meshes(comm)?;
    suite::collectives::uneven_counts(comm)?;
    assert_eq!(comm.adds_in_rank_order(), ranks <= 2);
    for (len, op) in [
        (0, Reduce::Sum),
        (1, Reduce::Min),
        (ranks - 1, Reduce::Prod),
        (33, Reduce::Max),
        (ranks + 1, Reduce::Mean),
        (1031, Reduce::Sum),
    ] {
        suite::algorithms::all_types(comm, len, op, len % ranks)?;
    }
    suite::algorithms::same_bits(comm, 1031)?;
    suite::algorithms::exercise(comm)?;
    suite::algorithms::costs(comm, 1008, ranks / 2)
}

/// The launcher on this machine, and its flags.
struct Mpirun {
    flags: &'static [&'static str],
}

impl Mpirun {
    fn find() -> Option<Mpirun> {
        let version = Command::new("mpirun").arg("--version").output().ok()?;
        let open_mpi = String::from_utf8_lossy(&version.stdout).contains("Open MPI");
        Some(Mpirun { flags: if open_mpi { &["--oversubscribe"] } else { &[] } })
    }

    fn start(
        &self,
        ranks: usize,
        program: &Path,
        flags: &[&str],
        dir: &Path,
        variables: &[(&str, &str)],
    ) -> Result<Output> {
        // Once in some hundred jobs that a rank ends, Open MPI's mpirun crashes in its own last
        // steps, or waits there for itself (`PMIx_server_finalize`). That says nothing of ours. If
        // a signal ends a rank instead, mpirun has an exit code.
        for _ in 0..2 {
            let output = finish(self.command(ranks, program, flags, dir, variables))?;
            if output.status.code().is_some() {
                return Ok(output);
            }
        }
        finish(self.command(ranks, program, flags, dir, variables))
    }

    fn command(
        &self,
        ranks: usize,
        program: &Path,
        flags: &[&str],
        dir: &Path,
        variables: &[(&str, &str)],
    ) -> Command {
        let mut command = Command::new("mpirun");
        command
            .args(self.flags)
            .args(["-n", &ranks.to_string()])
            .arg(program)
            .args(flags)
            .current_dir(dir);
        command.envs(variables.iter().copied());
        gently(&mut command);
        command
    }
}

/// Containers run as root; more ranks than cores must not wait by spinning.
fn gently(command: &mut Command) {
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_mpi_yield_when_idle", "1").env_remove("SHARDLAB_CORPUS");
}

/// Waits for a command, for as long as only a hang takes.
fn finish(command: Command) -> Result<Output> {
    finish_after(command, |_| Ok(()))
}

/// Waits for a command, to which `meanwhile` does something; it gets the number of the process. An
/// mpirun that outlives all its ranks for long is killed: see [`Mpirun::start`].
fn finish_after(mut command: Command, meanwhile: impl FnOnce(u32) -> Result<()>) -> Result<Output> {
    let dir = tempfile::tempdir()?;
    let file = |name: &str| std::fs::File::create(dir.path().join(name));
    let read = |name: &str| std::fs::read(dir.path().join(name));
    let mut child =
        command.stdin(Stdio::null()).stdout(file("out")?).stderr(file("err")?).spawn()?;
    meanwhile(child.id())?;
    let is_mpirun = command.get_program() == "mpirun";
    let start = Instant::now();
    let mut looked = start;
    let mut had_ranks = start;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Output { status, stdout: read("out")?, stderr: read("err")? });
        }
        if looked.elapsed() > Duration::from_secs(1) {
            looked = Instant::now();
            let processes = children(child.id())?;
            if !processes.is_empty() {
                had_ranks = looked;
            }
            if is_mpirun && had_ranks.elapsed() > Duration::from_secs(20) {
                child.kill()?;
            }
            if start.elapsed() > Duration::from_secs(300) {
                child.kill()?;
                let status = child.wait()?;
                let printed = Output { status, stdout: read("out")?, stderr: read("err")? };
                bail!(
                    "it hangs: no end after 300 s\n{command:?}\nprocesses {processes:?}\n{}",
                    text(&printed)
                );
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The processes that a process has started, and that have not ended. One that has, and for which
/// it has not yet waited, is not among them: an mpirun that hangs waits for none.
fn children(process: u32) -> Result<Vec<String>> {
    let mut ps = Command::new("ps");
    ps.args(["-o", "pid=,stat=", "--ppid", &process.to_string()]);
    let found = String::from_utf8(ps.output()?.stdout)?;
    let all = found.lines().filter_map(|line| line.trim().split_once(' '));
    let live = all.filter(|(_, state)| !state.trim_start().starts_with('Z'));
    Ok(live.map(|(pid, _)| pid.to_string()).collect())
}

/// The process whose children the ranks are: mpirun itself, or the proxy of Hydra's.
fn launcher_of(mpirun: u32) -> Result<u32> {
    let started = children(mpirun)?;
    let [only] = &started[..] else {
        return Ok(mpirun);
    };
    // It may have ended since.
    let name = std::fs::read_to_string(format!("/proc/{only}/comm")).unwrap_or_default();
    Ok(if name.starts_with("hydra") {
        only.parse()?
    } else {
        mpirun
    })
}

fn ranks_of(mpirun: u32) -> Result<Vec<String>> {
    children(launcher_of(mpirun)?)
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Named tests, each an error or not.
fn drive(mpirun: &Mpirun) -> ExitCode {
    let [passed, failed] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    // `cargo test … --test mpi -- NAME` runs those with such a name.
    let wanted = std::env::args()
        .nth(1)
        .filter(|name| !name.starts_with('-'))
        .unwrap_or_default();
    let test = |name: String, run: &dyn Fn() -> Result<()>| {
        if !name.contains(&wanted) {
            return;
        }
        match run() {
            Ok(()) => {
                println!("test {name} ... ok");
                passed.fetch_add(1, Relaxed);
            }
            Err(error) => {
                println!("test {name} ... FAILED\n{error:#}");
                failed.fetch_add(1, Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        // These wait for half a minute, and compute nothing.
        scope.spawn(|| {
            test("a_process_that_does_not_start_ends_the_job".into(), &|| {
                stopped_before_mpi(mpirun)
            });
            test("ranks_end_though_their_launcher_is_stopped".into(), &|| {
                stopped_launcher(mpirun)
            });
        });
        all_others(mpirun, &test);
    });
    let [passed, failed] = [passed, failed].map(AtomicUsize::into_inner);
    println!("{passed} passed, {failed} failed");
    ExitCode::from((failed > 0) as u8)
}

/// What runs a test by its name.
type Test<'a> = &'a dyn Fn(String, &dyn Fn() -> Result<()>);

/// The tests that compute, one after the other.
fn all_others(mpirun: &Mpirun, test: Test) {
    for ranks in [1, 2, 3, 5] {
        test(format!("suite_on_{ranks}_ranks"), &|| {
            run_suite(mpirun, ranks, &[], "suite holds")
        });
    }
    for ranks in [4, 6, 7, 8, 9] {
        let run = || run_suite(mpirun, ranks, &[(ALGORITHMS, "1")], "algorithms hold");
        test(format!("algorithms_on_{ranks}_ranks"), &run);
    }
    let has_model = std::env::var_os("SHARDLAB_EXTRAS").is_some_and(|extras| !extras.is_empty());
    for ranks in [2, 4] {
        let name = format!("story_on_{ranks}_ranks");
        if has_model {
            test(name, &|| run_suite(mpirun, ranks, &[(STORY, "1")], "story is told"));
        } else {
            println!(
                "test {name} ... ignored, needs SHARDLAB_EXTRAS: a folder with models/stories260K"
            );
        }
    }
    let in_chunks = || run_suite(mpirun, 3, &[("SHARDLAB_MPI_CHUNK", "1001")], "suite holds");
    test("suite_in_small_chunks".into(), &in_chunks);
    for (how, message) in [
        ("error", "error: rank 2 failed: the disk is full"),
        ("file", "the text is missing here"),
        ("panic", "error: rank 2 failed: panicked: index 7"),
    ] {
        test(format!("{how}_ends_the_job"), &|| failing_rank(mpirun, how, message));
    }
    const SAME: &str = "\nhelp: every rank of a group must make the same calls";
    for (how, messages) in [
        (
            "missing",
            &[
                "variant: AllReduce differs from Barrier",
                "in different calls: all_reduce (sum, 8 f32",
                "\n  rank 2  waits in barrier (",
                SAME,
            ][..],
        ),
        (
            "length",
            &[
                "variant: AllReduce differs from AllReduce",
                "in different calls: all_reduce (sum, 8 f32",
                "\n  rank 2  waits in all_reduce (sum, 4 f32",
                SAME,
            ],
        ),
        (
            "reduction",
            &[
                "variant: AllReduce differs from AllReduce",
                "in different calls: all_reduce (sum, 8 f32",
                "\n  rank 2  waits in all_reduce (max, 8 f32",
                SAME,
            ],
        ),
        (
            "order",
            &[
                "variant: AllReduce differs from AllReduce",
                "in different calls: all_reduce (sum, 8 f32",
                "\nhelp: calls that differ in nothing else are compared by",
            ],
        ),
        (
            "deadlock",
            &[
                "variant: deadlock",
                "deadlock: ranks wait for each other\n",
                "\n  rank 0  waits in recv (from 1, 8 f32",
                "\nhelp: look for a receive",
            ],
        ),
        (
            "late",
            &[
                "variant: Barrier is without [2]",
                "rank 2 did not come to barrier \"meeting\" (",
                "\n  rank 2  was last seen in barrier in group tensor (",
                "\nhelp: is it still computing?",
            ],
        ),
        (
            "absent",
            &[
                "variant: Barrier is without [2]",
                "rank 2 did not come to barrier \"meeting\" (",
                "\n  rank 2  has not been seen",
                "\nhelp: is it still computing?",
            ],
        ),
        (
            "named",
            &[
                "variant: Broadcast differs from Broadcast",
                "in different calls: broadcast \"root\" in group tensor (root 1, 8 f32",
                "\n  rank 1  waits in broadcast \"root\" in group tensor (root 2 (0 in its group), 8 f32",
                SAME,
            ],
        ),
        (
            "unreceived",
            &[
                "the run is over, and messages were not received\n",
                "\n  rank 2  sent a message that rank 0 did not receive; the latest: send (to 0, 8 f32, tests/mpi/main.rs:",
                "\n  rank 2  sent a message that rank 0 did not receive; the latest: send (to 0, tag 7, 1,048,576 f32",
                "\nhelp: every send needs a receive",
            ],
        ),
        (
            "exit",
            &[
                "variant: stopped, rank 2: it ended the process instead of returning",
                "error: rank 2 failed: it ended the process instead of returning",
                "error: rank 0 stopped in all_reduce (sum, 8 f32",
                "\nhelp: return from the closure",
            ],
        ),
        (
            "early",
            &[
                "variant: AllReduce needs rank 2",
                "rank 2 ended, and never entered all_reduce in group tensor (sum, 8 f32",
                SAME,
            ],
        ),
        (
            "message",
            &[
                "variant: Recv needs rank 2",
                "rank 2 ended, and never entered recv (from 2, 8 f32",
                SAME,
            ],
        ),
        (
            "started",
            &[
                "variant: StartAllReduce differs from Barrier",
                "in different calls: start_all_reduce (sum, 8 f32",
                "\n  rank 2  waits in barrier (",
                SAME,
            ],
        ),
        (
            "started_before",
            &[
                "variant: StartAllReduce differs from StartAllReduce",
                "in different calls: start_all_reduce (sum, 8 f32",
                "\n  rank 2  waits in start_all_reduce (sum, 4 f32",
                SAME,
            ],
        ),
    ] {
        test(format!("ranks_that_disagree_are_told_{how}"), &|| {
            disagreeing(mpirun, how, messages)
        });
    }
    for kind in ["all_reduce", "reduce", "all_gather", "reduce_scatter"] {
        for (ranks, len, odd) in [
            (2, 100_000, 10),
            (2, 10, 100_000),
            (3, 100_000, 10),
            (3, 10, 100_000),
            (3, 10, 12),
        ] {
            let how = format!("start {kind} {len} {kind} {odd}");
            let run = || started_differently(mpirun, ranks, &how);
            test(format!("{}_on_{ranks}", how.replace(' ', "_")), &run);
        }
    }
    for how in [
        "start all_reduce 100000 all_gather 100000",
        "start reduce_scatter 1000 reduce 100000",
    ] {
        test(format!("{}_on_3", how.replace(' ', "_")), &|| {
            started_differently(mpirun, 3, how)
        });
    }
    test("a_slow_rank_is_named".into(), &|| slow_rank(mpirun));
    test("lab01_breaks".into(), &|| lab01_breaks(mpirun));
    test("lab03_trains_what_threads_train".into(), &|| lab03_like_threads(mpirun));
    test("every_lab_runs_on_processes".into(), &|| every_lab(mpirun));
    for ranks in [2, 3] {
        test(format!("a_job_of_{ranks}_restarts_when_a_rank_is_killed"), &|| restarts(ranks));
        test(format!("one_killed_process_ends_a_job_of_{ranks}"), &|| killed(mpirun, ranks));
    }
    test("ranks_must_be_the_jobs".into(), &|| ranks_flag(mpirun));
    test("ranks_with_different_settings_do_not_begin".into(), &|| {
        different_settings(mpirun)
    });
    test("a_simulated_link_is_refused".into(), &|| no_link(mpirun));
    test("a_launcher_without_its_mpi_is_an_error".into(), &unconnected);
    test("started_plainly_ranks_are_threads".into(), &plain);
}

fn here() -> Result<std::path::PathBuf> {
    Ok(std::env::current_exe()?)
}

fn run_suite(mpirun: &Mpirun, ranks: usize, variables: &[(&str, &str)], says: &str) -> Result<()> {
    let output = mpirun.start(ranks, &here()?, &[], Path::new("."), variables)?;
    ensure!(output.status.success(), "{}", text(&output));
    ensure!(
        text(&output).contains(&format!("the {says} on {ranks} ranks")),
        "{}",
        text(&output)
    );
    Ok(())
}

fn failing_rank(mpirun: &Mpirun, how: &str, message: &str) -> Result<()> {
    let output = mpirun.start(3, &here()?, &[], Path::new("."), &[(FAIL, how)])?;
    ensure!(!output.status.success() && text(&output).contains(message), "{}", text(&output));
    // No rank crashes because another one has failed.
    ensure!(!text(&output).contains("signal"), "{}", text(&output));
    // The rank's own message comes before anything that the launcher says about it.
    let ours = text(&output).find(message);
    let launchers = text(&output).find("MPI_ABORT");
    ensure!(launchers.is_none_or(|launchers| ours < Some(launchers)), "{}", text(&output));
    Ok(())
}

fn disagreeing(mpirun: &Mpirun, how: &str, messages: &[&str]) -> Result<()> {
    let output = mpirun.start(3, &here()?, &[], Path::new("."), &[(FAIL, how)])?;
    let text = text(&output);
    ensure!(!output.status.success(), "{text}");
    for message in messages {
        ensure!(text.contains(message), "{message:?} is missing in\n{text}");
    }
    // Each rank that can says what it was doing; who has ended, or computes, cannot. What all say
    // is said in full once.
    let silent = ["early", "message", "late", "absent", "unreceived"].contains(&how);
    let reports = text.lines().filter(|line| line.starts_with("error: rank ")).count();
    ensure!(reports >= if silent { 1 } else { 3 }, "{reports} reports in\n{text}");
    ensure!(text.matches("\nhelp: ").count() == 1, "{text}");
    Ok(())
}

/// Ranks that start different collectives: an error on all of them, and nothing that the MPI
/// library has to say about it.
fn started_differently(mpirun: &Mpirun, ranks: usize, how: &str) -> Result<()> {
    let output = mpirun.start(ranks, &here()?, &[], Path::new("."), &[(FAIL, how)])?;
    let text = text(&output);
    let reports = text.lines().filter(|line| line.starts_with("error: rank ")).count();
    ensure!(
        output.status.code() == Some(1) && reports == ranks,
        "{}, {reports} reports in\n{text}",
        output.status
    );
    let says = format!(
        "the ranks are in different calls: start_{} \"started\" (",
        how.split(' ').nth(1).unwrap_or("")
    );
    ensure!(text.contains(&says) && text.matches("\nhelp: ").count() == 1, "{text}");
    for of_the_library in ["MPI_ERR", "NBC", "corrupt", "signal"] {
        ensure!(!text.contains(of_the_library), "{of_the_library} in\n{text}");
    }
    Ok(())
}

fn slow_rank(mpirun: &Mpirun) -> Result<()> {
    let output = mpirun.start(3, &here()?, &[], Path::new("."), &[(FAIL, "slow")])?;
    let text = text(&output);
    ensure!(output.status.success(), "{text}");
    for says in [
        "rank 2 is late: rank 0 has waited for it",
        "rank 2 is a straggler: rank 0",
        "rank 2 came to barrier \"meeting\"",
    ] {
        ensure!(
            text.matches(&format!("notice: {says}")).count() == 1,
            "{says:?} is not said once in\n{text}"
        );
    }
    // After the time for which it was waited for, at least, and not after none.
    let came = text.lines().find(|line| line.contains("came to barrier")).unwrap_or_default();
    ensure!(!came.contains("µs"), "{came}");
    Ok(())
}

/// Every way to break a collective: an error on all ranks, or a slow rank that is named.
fn lab01_breaks(mpirun: &Mpirun) -> Result<()> {
    for (how, says) in [
        ("missing-rank", "waits in barrier ("),
        ("wrong-length", "waits in all_reduce (sum, 3 f32"),
        ("wrong-op", "waits in all_reduce (max, 4 f32"),
        ("wrong-order", "help: calls that differ in nothing else are compared by"),
        ("early-exit", "rank 2 ended, and never entered all_reduce (sum, 4 f32"),
    ] {
        let dir = tempfile::tempdir()?;
        let lab01 = Path::new(program("lab01"));
        let output = mpirun.start(3, lab01, &["--break", how, "--out", "o"], dir.path(), &[])?;
        let text = text(&output);
        ensure!(output.status.code() == Some(1) && text.contains(says), "{how}:\n{text}");
        ensure!(
            text.contains("the last 64 calls of every rank are in o/flight-rank*.jsonl"),
            "{how}:\n{text}"
        );
        ensure!(
            dir.path().join("o/flight-rank0.jsonl").is_file(),
            "{how}: rank 0 has written nothing"
        );
    }
    let flags = ["--break", "slow-rank", "--deadline", "5", "--out", "o"];
    let output = mpirun.start(3, Path::new(program("lab01")), &flags, Path::new("."), &[])?;
    let text = text(&output);
    ensure!(output.status.success() && text.contains("Rank 2 waited least"), "{text}");
    ensure!(text.contains("notice: rank 2 is a straggler: "), "{text}");
    Ok(())
}

fn losses(dir: &Path) -> Result<Vec<f64>> {
    let metrics =
        std::fs::read_to_string(dir.join("m.jsonl")).context("lab03 writes its metrics")?;
    let loss = |line: &str| -> Result<f64> {
        let line: serde_json::Value = serde_json::from_str(line)?;
        line["loss"].as_f64().context("a loss")
    };
    metrics.lines().map(loss).collect()
}

fn lab03_like_threads(mpirun: &Mpirun) -> Result<()> {
    let flags = "--layers 2 --embd 64 --steps 50 --eval-iters 2 --eval-interval 25 --metrics m.jsonl --out o";
    let flags: Vec<&str> = flags.split(' ').collect();
    let threads = tempfile::tempdir()?;
    let processes = tempfile::tempdir()?;
    let mut alone = Command::new(program("lab03"));
    alone
        .args(&flags)
        .args(["--ranks", "2"])
        .current_dir(threads.path())
        .env_remove("SHARDLAB_CORPUS");
    let output = finish(alone)?;
    ensure!(output.status.success(), "{}", text(&output));
    let output = mpirun.start(2, Path::new(program("lab03")), &flags, processes.path(), &[])?;
    ensure!(output.status.success(), "{}", text(&output));
    // Rank 0 alone speaks.
    ensure!(text(&output).matches("One model, many ranks").count() == 1, "{}", text(&output));
    ensure!(text(&output).contains("2 MPI processes"), "{}", text(&output));
    // Its output goes to a file here, so there is no colour in it.
    ensure!(!text(&output).contains('\x1b'), "{}", text(&output));
    let ours = losses(processes.path())?;
    let theirs = losses(threads.path())?;
    ensure!(ours.len() == 50 && theirs.len() == 50);
    let apart = largest_difference(&ours, &theirs);
    println!("lab03, 50 steps on 2 ranks: the largest difference of a loss is {apart:e}");
    ensure!(apart < 1e-4);
    Ok(())
}

/// On three ranks, where the library adds in its own order.
fn every_lab(mpirun: &Mpirun) -> Result<()> {
    let tiny = "--layers 1 --heads 2 --embd 16 --block 16 --batch 2 --warmup 2 --steps 6 --eval-iters 2 --out o";
    let course = Course::read()?;
    let mut runs: Vec<(&str, &UnderMpi)> =
        course.labs.iter().map(|lab| (&*lab.name, &lab.mpi)).collect();
    let feed = UnderMpi {
        flags: "--feed readers 2 --out o".into(),
        says: "every rank got its own batch".into(),
        breaks: None,
    };
    runs.push(("lab01", &feed));
    for (name, UnderMpi { flags, says, breaks }) in runs {
        let lab = program(name);
        let dir = tempfile::tempdir()?;
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let output = mpirun.start(3, Path::new(lab), &flags, dir.path(), &[])?;
        ensure!(
            output.status.success() && text(&output).contains(says),
            "{lab}:\n{}",
            text(&output)
        );
        ensure!(
            text(&output).matches("Takeaway").count() == 1,
            "{lab}: more than one rank speaks\n{}",
            text(&output)
        );
        if flags.contains(&"--trace") {
            let trace = std::fs::read_to_string(dir.path().join("t.json"))?;
            let trace: serde_json::Value = serde_json::from_str(&trace)?;
            let events = trace["traceEvents"].as_array().context("no events")?;
            for rank in 0..3 {
                let computes =
                    |event: &serde_json::Value| event["pid"] == rank && event["cat"] == "compute";
                ensure!(events.iter().any(computes), "{lab}: rank {rank} has no span");
            }
        }
        let Some(broken) = breaks else { continue };
        let output = mpirun.start(
            3,
            Path::new(lab),
            &[&flags[..], &["--break", broken]].concat(),
            dir.path(),
            &[],
        )?;
        ensure!(
            output.status.code() == Some(1) && text(&output).contains("error: "),
            "{lab}:\n{}",
            text(&output)
        );
    }
    // Two replicas of two tensor ranks.
    let dir = tempfile::tempdir()?;
    let flags = format!("{tiny} --tp 2 --zero 1");
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let output = mpirun.start(4, Path::new(program("lab05")), &flags, dir.path(), &[])?;
    ensure!(
        output.status.success() && text(&output).contains("2 data x 2 tensor"),
        "{}",
        text(&output)
    );
    // Four ranks save, three continue.
    let flags = "--heads 2 --embd 16 --block 8 --steps 4 --save-after 2 --from dp=4 --to dp=4 dp=3,zero=3 tp=2,pp=2 --out o";
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let output = mpirun.start(4, Path::new(program("lab09")), &flags, dir.path(), &[])?;
    ensure!(
        output.status.success() && text(&output).contains("3 of 3 jobs"),
        "{}",
        text(&output)
    );
    // Two stages of two tensor ranks, then two replicas of two stages.
    for (flags, mesh) in [
        ("--tp 2", "1 data x 2 pipeline x 2 tensor"),
        ("--tp 1", "2 data x 2 pipeline x 1 tensor"),
    ] {
        let all =
            format!("--layers 2 --heads 2 --embd 16 --block 16 --batch 2 --steps 3 --pp 2 {flags}");
        let flags: Vec<&str> = all.split_whitespace().collect();
        let output = mpirun.start(4, Path::new(program("lab07")), &flags, dir.path(), &[])?;
        ensure!(output.status.success() && text(&output).contains(mesh), "{}", text(&output));
    }
    Ok(())
}

/// A small training with checkpoints, of about a second.
const TRAIN: &str = "--layers 1 --embd 16 --block 8 --batch 1 --grad-accum 1 --warmup 2 --steps 60 --save-every 3 --out o";
const SAME: &str = "final weights: resumed = never stopped";

/// `launch` starts the job again, which compares its weights with those of a job that was never
/// stopped.
fn restarts(ranks: usize) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut command = Command::new(program("launch"));
    command.args(["--max-restarts", "1", "-n", &ranks.to_string(), program("lab08")]);
    command
        .args(TRAIN.split_whitespace())
        .args(["--kill-rank", "1", "--at-step", "32"])
        .current_dir(dir.path());
    gently(&mut command);
    let output = finish(command)?;
    let text = text(&output);
    ensure!(output.status.success(), "{text}");
    for says in [
        ": SIGKILL); restart 1 of 1", // Hydra's code of it is 9
        "resumed  after step 30, ",
        "lost     step 31: ",
        SAME,
    ] {
        ensure!(text.contains(says), "{says:?} is missing in\n{text}");
    }
    ensure!(text.matches(" ✓\n").count() == 2, "{text}");
    Ok(())
}

/// One process is killed again and again, at different moments. Each time the job ends by an error,
/// and the next job continues.
fn killed(mpirun: &Mpirun, ranks: usize) -> Result<()> {
    let dir = tempfile::tempdir()?;
    // Slower steps: it is to be killed before it is done.
    let slower = TRAIN.replace("--block 8 --batch 1", "--block 64 --batch 8");
    let flags: Vec<&str> = slower.split_whitespace().chain(["--resume", "auto"]).collect();
    let command = || mpirun.command(ranks, Path::new(program("lab08")), &flags, dir.path(), &[]);
    let progress =
        || std::fs::read_to_string(dir.path().join("o/restart/progress.jsonl")).unwrap_or_default();
    for (kill, after) in [3, 8, 13, 21, 34].into_iter().enumerate() {
        let before = progress().lines().count();
        let output = finish_after(command(), |mpirun| {
            let start = Instant::now();
            while progress().lines().count() < before + after / 2
                && start.elapsed() < Duration::from_secs(60)
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            let processes = ranks_of(mpirun)?;
            let rank = processes
                .get(kill % ranks)
                .with_context(|| format!("a process in {processes:?}"))?;
            ensure!(Command::new("kill").args(["-9", rank]).status()?.success());
            Ok(())
        })?;
        ensure!(!output.status.success(), "it ended without an error:\n{}", text(&output));
    }
    let output = finish(command())?;
    let text = text(&output);
    ensure!(
        output.status.success() && text.contains(SAME) && text.matches(" ✓\n").count() == 2,
        "{text}"
    );
    ensure!(text.contains("resumed  after step ") && !text.contains("rejected"), "{text}");
    let lines = progress().lines().count();
    println!(
        "{ranks} ranks, 5 kills: {lines} steps were trained, {} of them again",
        lines - 60
    );
    Ok(())
}

/// A launcher that is stopped cannot end its ranks. They end all the same when one has failed.
fn stopped_launcher(mpirun: &Mpirun) -> Result<()> {
    let mut command = mpirun.command(3, &here()?, &[], Path::new("."), &[]);
    command.env(FAIL, LAUNCHER);
    let mut left = Vec::new();
    let output = finish_after(command, |mpirun| {
        let start = Instant::now();
        let mut begun = false;
        while start.elapsed() < Duration::from_secs(60) {
            left = ranks_of(mpirun)?;
            if begun && left.is_empty() {
                break;
            }
            begun |= left.len() == 3;
            std::thread::sleep(Duration::from_millis(10));
        }
        ensure!(
            Command::new("kill")
                .args(["-CONT", &launcher_of(mpirun)?.to_string()])
                .status()?
                .success()
        );
        Ok(())
    })?;
    ensure!(left.is_empty(), "ranks wait for their launcher: {left:?}\n{}", text(&output));
    ensure!(!output.status.success(), "it ended without an error:\n{}", text(&output));
    Ok(())
}

fn ranks_flag(mpirun: &Mpirun) -> Result<()> {
    let output = mpirun.start(
        2,
        Path::new(program("lab03")),
        &["--ranks", "3", "--dry-run"],
        Path::new("."),
        &[],
    )?;
    let message = "error: --ranks 3 contradicts the launcher, which started 2 processes";
    ensure!(
        output.status.code() == Some(2) && text(&output).contains(message),
        "{}",
        text(&output)
    );
    let output = mpirun.start(
        2,
        Path::new(program("lab03")),
        &["--ranks", "2", "--dry-run"],
        Path::new("."),
        &[],
    )?;
    ensure!(output.status.success(), "{}", text(&output));
    Ok(())
}

/// One job, in which each rank has flags of its own.
fn each_with_its_flags(
    mpirun: &Mpirun,
    dir: &Path,
    all: &str,
    own: &[&str],
) -> Result<(Option<i32>, String, Duration)> {
    let mut command = Command::new("mpirun");
    command.args(mpirun.flags).current_dir(dir);
    for (rank, own) in own.iter().enumerate() {
        if rank > 0 {
            command.arg(":");
        }
        command.args(["-n", "1", program("lab03")]);
        command.args(all.split_whitespace().chain(own.split_whitespace()));
    }
    gently(&mut command);
    let start = Instant::now();
    let output = finish(command)?;
    Ok((output.status.code(), text(&output), start.elapsed()))
}

/// A setting that one rank has otherwise would train something else, or hang. It is found before
/// any work.
fn different_settings(mpirun: &Mpirun) -> Result<()> {
    let all = "--layers 1 --heads 2 --embd 16 --block 8 --batch 4 --steps 4";
    let dir = tempfile::tempdir()?;
    for (own, says) in [
        (
            &["", "--grad-accum 2", ""][..],
            "rank 1 was started with other settings than rank 0\n  rank 0  --grad-accum 1\n  rank 1  --grad-accum 2\n",
        ),
        (
            &["--no-check", ""],
            "rank 1 was started with other settings than rank 0\n  rank 0  --no-check\n  rank 1  no --no-check\n",
        ),
    ] {
        let (code, text, took) = each_with_its_flags(mpirun, dir.path(), all, own)?;
        ensure!(code == Some(2) && text.contains(says), "{own:?}:\n{text}");
        ensure!(!text.contains('✓'), "{own:?}: it has begun:\n{text}");
        ensure!(took < Duration::from_secs(30), "{own:?}: {took:?}");
    }
    // The names of a rank's own files are no settings.
    let own = ["--out a --metrics a.jsonl", "--out b --metrics b.jsonl"];
    let (code, text, _) = each_with_its_flags(mpirun, dir.path(), all, &own)?;
    ensure!(code == Some(0), "{text}");
    Ok(())
}

/// A process that stops before it has started MPI, and others that wait for it in MPI's own call.
fn stopped_before_mpi(mpirun: &Mpirun) -> Result<()> {
    let lab03 = program("lab03");
    let flags = "--layers 1 --heads 2 --embd 16 --block 8 --batch 4 --steps 4 --out o --deadline 5";
    let stopped = format!("kill -STOP $$; exec {lab03} {flags}");
    let dir = tempfile::tempdir()?;
    let mut command = Command::new("mpirun");
    command.args(mpirun.flags).current_dir(dir.path());
    command.args(["-n", "1", "sh", "-c", &stopped, ":", "-n", "2", lab03]);
    command.args(flags.split(' '));
    gently(&mut command);
    let output = finish(command)?;
    let text = text(&output);
    // Hydra joins the bits of all codes: of the ranks' 1, and of 9 for the one that it kills.
    ensure!(matches!(output.status.code(), Some(1 | 9)), "{text}");
    for says in [
        "notice: rank 1 has waited for 20.",
        "has waited for 30.",
        "in MPI_Init: not all processes of the job have come\nhelp: is a node down",
    ] {
        ensure!(text.contains(says), "{says:?} is not said in\n{text}");
    }
    Ok(())
}

fn no_link(mpirun: &Mpirun) -> Result<()> {
    for lab in [program("lab00"), program("lab02")] {
        let output =
            mpirun.start(2, Path::new(lab), &["--link", "1ms,1GB/s"], Path::new("."), &[])?;
        let message =
            "error: ranks are MPI processes, and no link of 1.00 GB/s, 1.00 ms is between them";
        ensure!(
            output.status.code() == Some(2) && text(&output).contains(message),
            "{}",
            text(&output)
        );
        ensure!(text(&output).matches("error: ").count() == 1, "{}", text(&output));
    }
    Ok(())
}

fn unconnected() -> Result<()> {
    let mut command = Command::new(program("lab03"));
    command
        .arg("--dry-run")
        .env("SLURM_STEP_NUM_TASKS", "4")
        .env("SLURM_PROCID", "0");
    let output = finish(command)?;
    let message =
        "error: srun started 4 processes (SLURM_STEP_NUM_TASKS is set), but MPI's own world has 1";
    ensure!(
        output.status.code() == Some(2) && text(&output).contains(message),
        "{}",
        text(&output)
    );
    for part in ["; the program runs with ", "srun --mpi=pmix"] {
        ensure!(text(&output).contains(part), "{part}: {}", text(&output));
    }
    Ok(())
}

fn plain() -> Result<()> {
    let mut command = Command::new(program("lab03"));
    command.args(["--dry-run", "--ranks", "2"]);
    let output = finish(command)?;
    ensure!(
        output.status.success() && text(&output).contains("2 threads of this process"),
        "{}",
        text(&output)
    );
    Ok(())
}
