//! This process in the MPI job: how it begins, runs, fails and ends.

use super::agreement::{self, Agreement};
use super::reporter::Reporter;
use super::{Mpi, notices, outbox};
use crate::comm::meter::lock;
use crate::comm::transport::Membership;
use crate::comm::{Comm, CommError, Options, recorder};
use crate::notice::complain;
use crate::{sha256, units};
use mpi::collective::CommunicatorCollectives;
use mpi::environment::Universe;
use mpi::topology::{Communicator, SimpleCommunicator};
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

thread_local! {
    /// MPI itself; of the MPI thread. Without a destructor: a rank that ends the process must not
    /// finalize MPI in the middle of the others' work.
    static UNIVERSE: RefCell<Option<ManuallyDrop<Universe>>> = const { RefCell::new(None) };
}

/// What MPI says of this process.
pub(crate) struct Place {
    pub rank: usize,
    pub size: usize,
    /// Ranks on this process's host.
    pub ranks_here: usize,
    /// The settings of all ranks, or nothing if all have the same.
    pub different: Vec<String>,
    /// The MPI library and its version, in its own words.
    pub library: String,
}

/// A job with many nodes needs seconds to start, so a shorter deadline does not count here, and no
/// earlier notice.
const LEAST: Duration = Duration::from_secs(30);
const NOTICE: Duration = Duration::from_secs(10);

/// This process in the MPI job.
pub(crate) struct MpiWorld {
    /// A pool of one thread, which makes all MPI calls.
    thread: rayon::ThreadPool,
    pub place: Place,
    /// The reporter of the current run.
    reporter: Mutex<Option<Arc<Reporter>>>,
}

impl MpiWorld {
    /// Initialises MPI the first time. Returns this process in the job, where it has number `rank`
    /// as the launcher says. `settings` should be the same on all ranks; this process waits until
    /// the `deadline` for the others.
    pub fn start(
        stack_bytes: usize,
        rank: usize,
        settings: String,
        deadline: Duration,
    ) -> std::result::Result<&'static MpiWorld, String> {
        static WORLD: OnceLock<std::result::Result<MpiWorld, String>> = OnceLock::new();
        let world = WORLD.get_or_init(|| {
            let thread = rayon::ThreadPoolBuilder::new().num_threads(1).stack_size(stack_bytes);
            let thread = thread
                .thread_name(|_| "mpi".to_string())
                .build()
                .map_err(|error| error.to_string())?;
            // MPI's first calls wait for all processes, without a limit. So this thread waits for
            // them, with one.
            let (send, connected) = channel();
            thread.spawn(move || {
                send.send(connect(&settings)).ok();
            });
            let connected = await_start(&connected, rank, deadline)?;
            let place = connected.ok_or("MPI is already initialised by other code")?;
            Ok(MpiWorld { thread, place, reporter: Mutex::default() })
        });
        world.as_ref().map_err(String::clone)
    }

    /// Runs `body` on the MPI thread with the handle on all ranks.
    pub fn run<R: Send>(&self, options: &Options, body: impl FnOnce(Comm) -> R + Send) -> R {
        let Place { rank, size, .. } = self.place;
        self.thread.install(|| {
            let world = with_universe(|universe| universe.world());
            let reporter = Arc::new(Reporter::new(rank, size, options));
            *lock(&self.reporter) = Some(reporter.clone());
            notices::begin_run();
            let membership = Membership::of_world(rank, size, reporter.recorder.clone(), size <= 2);
            let agreement = || Agreement::of_world(membership.members.clone(), reporter.clone());
            let group = (!options.no_check).then(agreement);
            body(Comm::new(Arc::new(Mpi::new(world, membership, group, reporter))))
        })
    }

    /// Ends this process's part of a run, after its success: waits for the other processes' parts.
    /// Returns an error if a message was not received.
    pub fn leave(&self) -> std::result::Result<(), CommError> {
        let reporter = lock(&self.reporter).clone();
        let (failed, messages) = self.thread.install(|| {
            notices::leave(reporter.map(|reporter| reporter.ending()).unwrap_or_default());
            notices::look(|board| (!board.failures().is_empty(), board.unreceived()))
        });
        // All ranks know of the same messages, so only rank 0 reports them.
        if failed || (!messages.is_empty() && self.place.rank > 0) {
            self.await_abort();
        }
        if !messages.is_empty() {
            return Err(CommError::NotReceived { messages });
        }
        self.thread.install(|| outbox::with(|outbox| outbox.clear(true)));
        Ok(())
    }

    /// Waits for the abort by a different rank: one abort is enough. On several aborts, or an abort
    /// while others finalize MPI, Open MPI's mpirun has been seen to crash or hang.
    fn await_abort(&self) -> ! {
        std::thread::sleep(Duration::from_secs(10));
        self.abort(1)
    }

    /// Ends the job after this process's part of a run has failed. Ranks print what they were doing
    /// before, if they still can.
    pub fn fail(&self, error: &anyhow::Error) -> ! {
        let rank = self.place.rank;
        let reporter = lock(&self.reporter).take();
        let options =
            reporter.as_ref().map(|reporter| reporter.options.clone()).unwrap_or_default();

        let failure = CommError::of_rank(rank, error);
        let text = format!("{error:#}");
        let first_line = text.lines().next().unwrap_or_default();
        // Whether no lower rank has failed, and whether a lower rank prints the same error.
        let (ends_the_job, others_say_more) = self.thread.install(|| {
            if options.no_check {
                return (true, false);
            }
            notices::fail(failure.clone());
            notices::look(|board| {
                let lowest = board.failures().first().is_none_or(|(other, _)| *other >= rank);
                (lowest, board.lower_rank_reports(rank, &failure))
            })
        });
        let cause = error.downcast_ref::<CommError>();
        let mut report = match cause {
            Some(CommError::Stopped { .. }) => first_line.to_string(),
            _ if others_say_more => format!("rank {rank} failed: {first_line}"),
            _ => format!("rank {rank} failed: {text}"),
        };
        if let (Some(reporter), Some(file), Some(_)) = (reporter, &options.flight_file, cause) {
            let of = |rank: &str| file.with_file_name(format!("flight-rank{rank}.jsonl"));
            let mut saved = recorder::save(&of(&rank.to_string()), [(rank, &reporter.recorder)]);
            if report.contains('\n') || saved.error.is_some() {
                saved.path = of("*");
                report += &saved.to_string();
            }
        }
        complain(&format!("error: {report}"));
        if ends_the_job {
            self.abort(1)
        } else {
            self.await_abort()
        }
    }

    /// Ends every process of the job.
    pub fn abort(&self, code: i32) -> ! {
        // The launcher reads this process's output through a pipe, and stops reading at the abort.
        // MPICH's launcher has been seen to lose the error message.
        std::thread::sleep(Duration::from_millis(200));
        // MPI waits for its launcher to end this process. Open MPI's has been seen not to.
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(5));
            // SAFETY: ends the process at once. MPI's own thread is in the middle of its abort.
            unsafe { libc::_exit(code) }
        });
        self.thread.install(|| with_universe(|universe| universe.world().abort(code)))
    }

    /// Finalizes MPI, which all processes must do. No message can be sent afterwards.
    pub fn finalize(&self) {
        self.thread.install(|| {
            notices::stop();
            drop(UNIVERSE.take().map(ManuallyDrop::into_inner))
        });
    }
}

/// Initialises MPI, on its thread. None if other code has done it.
fn connect(settings: &str) -> Option<Place> {
    let (universe, _) = mpi::initialize_with_threading(mpi::Threading::Funneled)?;
    let world = universe.world();
    let place = Place {
        rank: world.rank() as usize,
        size: world.size() as usize,
        ranks_here: world.split_shared(0).size() as usize,
        different: different_texts(&world, settings),
        library: library(),
    };
    notices::start(&world);
    agreement::start(&world);
    UNIVERSE.set(Some(ManuallyDrop::new(universe)));
    Some(place)
}

/// The MPI library and its version. Some print a page about themselves.
fn library() -> String {
    let words = mpi::environment::library_version().unwrap_or_default();
    let first = words.lines().next().unwrap_or_default();
    let short = first.split(',').next().unwrap_or_default();
    short.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The texts of all ranks, or nothing if all ranks have the same.
fn different_texts(world: &SimpleCommunicator, text: &str) -> Vec<String> {
    let ranks = world.size() as usize;
    let mine = sha256::hex(text.as_bytes()).into_bytes();
    let mut hashes = vec![0u8; ranks * mine.len()];
    world.all_gather_into(&mine[..], &mut hashes[..]);
    if hashes.chunks_exact(mine.len()).all(|hash| hash == mine) {
        return Vec::new();
    }
    let mut lengths = vec![0u64; ranks];
    world.all_gather_into(&(text.len() as u64), &mut lengths[..]);
    // All ranks must send equally many bytes.
    let longest = lengths.iter().copied().max().unwrap_or(0) as usize;
    let mut mine = text.as_bytes().to_vec();
    mine.resize(longest, 0);
    let mut texts = vec![0u8; ranks * longest];
    world.all_gather_into(&mine[..], &mut texts[..]);
    let text = |(bytes, length): (&[u8], &u64)| {
        String::from_utf8_lossy(&bytes[..*length as usize]).into_owned()
    };
    texts.chunks_exact(longest).zip(&lengths).map(text).collect()
}

/// Waits until MPI has started here, which it does on no process before it does on all. A process
/// that never comes is named by nobody: MPI does not say who has come. At the deadline this process
/// ends, and the launcher ends the others.
fn await_start<T>(
    connected: &Receiver<T>,
    rank: usize,
    deadline: Duration,
) -> std::result::Result<T, String> {
    let options = Options { deadline: deadline.max(LEAST), ..Options::default() };
    let begun = Instant::now();
    // Any rank may be the late one. So one after the other speaks, the lowest first.
    let mut next = options.notice().max(NOTICE) * u32::try_from(rank + 1).unwrap_or(u32::MAX);
    let mut told = false;
    loop {
        let rest = next.min(options.deadline).saturating_sub(begun.elapsed());
        let arrived = connected.recv_timeout(rest);
        let waited = begun.elapsed();
        let time = units::seconds(waited.as_secs_f64());
        match arrived {
            Ok(connected) => {
                if told {
                    complain(&format!("notice: all processes have started MPI after {time}"));
                }
                return Ok(connected);
            }
            Err(RecvTimeoutError::Disconnected) => return Err("its thread has ended".into()),
            Err(RecvTimeoutError::Timeout) if waited >= options.deadline => {
                complain(&format!(
                    "error: rank {rank} has waited for {time} in MPI_Init: not all processes of the job have come\n\
                     help: is a node down, or a process stopped? `deadline` says how long to wait (here at least {} s)",
                    LEAST.as_secs()
                ));
                // MPI cannot abort before it has started. The launcher ends a job that a process
                // has left in this way. SAFETY: ends the process at once. Nothing would be tidied
                // up: MPI's own thread is in the middle of its work.
                unsafe { libc::_exit(1) }
            }
            Err(RecvTimeoutError::Timeout) => {
                told = true;
                next = Duration::MAX;
                complain(&format!(
                    "notice: rank {rank} has waited for {time} in MPI_Init: not all processes of the job have come yet"
                ));
            }
        }
    }
}

fn with_universe<R>(f: impl FnOnce(&Universe) -> R) -> R {
    UNIVERSE.with_borrow(|universe| {
        f(universe.as_ref().expect("MpiWorld exists only while MPI is initialised"))
    })
}
