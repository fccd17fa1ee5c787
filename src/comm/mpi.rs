//! The MPI transport: ranks are processes, and a collective is the MPI library's own.
//!
//! Each process is one rank. MPI is initialised once and all its calls are made on one thread of known stack size (the
//! library is asked for no more than that, `Funneled`), so [`MpiWorld`] owns a thread and work is sent to it.
//! Sums are added in the order that the library chooses: with two ranks the bits are those of the in-process transport,
//! with more they may differ in the last place, and a NaN in a minimum or maximum may be lost.

mod agreement;
mod notices;
mod outbox;
mod waiting;

use super::board::What;
use super::call::{Call, Kind};
use super::element::{Element, Reduce, elements};
use super::lateness::Late;
use super::meter::Meter;
use super::pending::{Buffer, UnderWay, vector};
use super::recorder::{self, Recorder};
use super::transport::Transport;
use super::{Comm, CommError, Dtype, Options, Result};
use agreement::{Group, Question};
use half::{bf16, f16};
use mpi::collective::{CommunicatorCollectives, Root, SystemOperation};
use mpi::datatype::Equivalence;
use mpi::environment::Universe;
use mpi::point_to_point::Source;
use mpi::request::{Request, StaticScope};
use mpi::topology::{Color, Communicator, SimpleCommunicator};
use outbox::Outbox;
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use waiting::{Waiting, look_around};

thread_local! {
    /// Set on the MPI thread alone.
    static UNIVERSE: RefCell<Option<Universe>> = const { RefCell::new(None) };
}

/// This process's place in the MPI job.
pub(crate) struct MpiWorld {
    /// One thread: all MPI calls are made there.
    thread: rayon::ThreadPool,
    pub rank: usize,
    pub size: usize,
    /// Ranks on this process's host.
    pub ranks_here: usize,
    /// Of the run that is under way.
    reporter: Mutex<Option<Arc<Reporter>>>,
}

/// What a rank knows of itself, for errors.
struct Reporter {
    rank: usize,
    ranks: usize,
    late: Late,
    recorder: Recorder,
    /// The latest collective that each rank of the world is known to have come to, and when.
    seen: Mutex<Vec<Option<(Call, Instant)>>>,
    /// Messages to other ranks, and from them: by group and number in the world.
    sent: Mutex<HashMap<(u64, usize), u64>>,
    received: Mutex<HashMap<(u64, usize), u64>>,
}

impl Reporter {
    fn new(world: &MpiWorld, options: &Options) -> Reporter {
        Reporter {
            rank: world.rank,
            ranks: world.size,
            late: Late::new(options),
            recorder: Recorder::new(),
            seen: Mutex::new(vec![None; world.size]),
            sent: Mutex::default(),
            received: Mutex::default(),
        }
    }

    /// The call that the rank is in, and its number.
    fn in_words(&self, call: &Call) -> String {
        format!("{call}, its call {}", self.recorder.last().map_or(0, |entry| entry.number))
    }

    /// All of these ranks have come to `call`.
    fn see(&self, ranks: &[usize], call: &Call) {
        let (mut seen, now) = (self.seen.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        ranks.iter().for_each(|&rank| seen[rank] = Some((*call, now)));
    }

    fn seen(&self, rank: usize) -> Option<(Call, Instant)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)[rank]
    }

    fn sent(&self) -> Vec<(u64, usize, u64)> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.iter().map(|(&(group, to), &count)| (group, to, count)).collect()
    }

    fn received(&self, group: u64, from: usize) -> u64 {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.get(&(group, from)).copied().unwrap_or_default()
    }
}

/// One more.
fn count(messages: &Mutex<HashMap<(u64, usize), u64>>, group: u64, other: usize) {
    *messages.lock().unwrap_or_else(PoisonError::into_inner).entry((group, other)).or_default() += 1;
}

impl MpiWorld {
    /// Initialises MPI, the first time, and returns this process's place.
    pub fn start(stack_bytes: usize) -> std::result::Result<&'static MpiWorld, String> {
        static WORLD: OnceLock<std::result::Result<MpiWorld, String>> = OnceLock::new();
        let world = WORLD.get_or_init(|| {
            let thread = rayon::ThreadPoolBuilder::new().num_threads(1).stack_size(stack_bytes);
            let thread = thread.thread_name(|_| "mpi".to_string()).build().map_err(|error| error.to_string())?;
            let place = thread.install(|| {
                let (universe, _) = mpi::initialize_with_threading(mpi::Threading::Funneled)?;
                let world = universe.world();
                let place = (world.rank() as usize, world.size() as usize, world.split_shared(0).size() as usize);
                notices::start(&world);
                UNIVERSE.set(Some(universe));
                Some(place)
            });
            let (rank, size, ranks_here) = place.ok_or("MPI is already initialised by other code")?;
            Ok(MpiWorld { thread, rank, size, ranks_here, reporter: Mutex::default() })
        });
        world.as_ref().map_err(String::clone)
    }

    /// Runs `body` on the MPI thread with the handle on all ranks.
    pub fn run<R: Send>(&self, options: &Options, body: impl FnOnce(Comm) -> R + Send) -> R {
        self.thread.install(|| {
            let world = with_universe(|universe| universe.world());
            let reporter = Arc::new(Reporter::new(self, options));
            *self.reporter.lock().unwrap_or_else(PoisonError::into_inner) = Some(reporter.clone());
            notices::begin_run();
            agreement::begin_run();
            let members = (0..self.size).collect();
            let group = (!options.no_check).then(|| Group::new(&world, 0, members, reporter.clone()));
            body(Comm::new(Arc::new(Mpi::new(world, group, reporter, Arc::default()))))
        })
    }

    /// To be called when this process's part of a run is over and has succeeded: waits for the others'.
    pub fn leave(&self) {
        if !self.thread.install(|| notices::leave(agreement::calls())) {
            self.await_abort();
        }
    }

    /// A rank that has failed ends the job: one abort is enough. On several, or while others say goodbye to MPI, Open MPI's mpirun
    /// has been seen to crash or hang.
    fn await_abort(&self) -> ! {
        std::thread::sleep(Duration::from_secs(10));
        self.abort(1)
    }

    /// To be called when this process's part of a run has failed. All ranks that can still say what they were doing do so; then
    /// the job ends.
    pub fn fail(&self, options: &Options, error: &anyhow::Error) -> ! {
        let text = format!("{error:#}");
        let first_line = text.lines().next().unwrap_or_default();
        // Whether a lower rank has failed too, and whether one says the same.
        let (ends_the_job, others_say_more) = self.thread.install(|| {
            if options.no_check {
                return (true, false);
            }
            notices::fail(&text);
            notices::look(|board| {
                let lower: Vec<_> = board.failures().into_iter().filter(|(rank, _)| *rank < self.rank).collect();
                (lower.is_empty(), lower.iter().any(|(_, why)| why.starts_with(first_line)))
            })
        });
        let cause = error.downcast_ref::<CommError>();
        let mut report = match cause {
            Some(CommError::Stopped { .. }) => first_line.to_string(),
            _ if others_say_more => format!("rank {} failed: {first_line}", self.rank),
            _ => format!("rank {} failed: {text}", self.rank),
        };
        let reporter = self.reporter.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(reporter), Some(file), Some(_)) = (reporter, &options.flight_file, cause) {
            let of = |rank: &str| file.with_file_name(format!("flight-rank{rank}.jsonl"));
            let saved = recorder::save(&of(&self.rank.to_string()), [(self.rank, &reporter.recorder)]);
            if report.contains('\n') || saved.is_err() {
                report += &recorder::in_words(saved, &of("*"));
            }
        }
        crate::show::complain(&format!("error: {report}"));
        if ends_the_job { self.abort(1) } else { self.await_abort() }
    }

    /// Ends every process of the job.
    pub fn abort(&self, code: i32) -> ! {
        // The launcher reads what this process prints through a pipe, and stops reading when it hears of the end: MPICH's
        // has been seen to lose the message that says why.
        std::thread::sleep(Duration::from_millis(200));
        self.thread.install(|| with_universe(|universe| universe.world().abort(code)))
    }

    /// Says goodbye to the other processes, which must do so too; nothing can be sent afterwards.
    pub fn finalize(&self) {
        self.thread.install(|| {
            notices::stop();
            drop(UNIVERSE.take())
        });
    }
}

fn with_universe<R>(f: impl FnOnce(&Universe) -> R) -> R {
    UNIVERSE.with_borrow(|universe| f(universe.as_ref().expect("MpiWorld exists only while MPI is initialised")))
}

/// One rank's place in one MPI communicator.
struct Mpi {
    comm: ManuallyDrop<SimpleCommunicator>,
    /// None: nobody asks whether all mean the same call.
    group: Option<Group>,
    thread: ThreadId,
    meter: Arc<Meter>,
    /// The most elements, or bytes, of one MPI call, whose counts are C integers.
    most: usize,
    reporter: Arc<Reporter>,
    sends: Mutex<Outbox>,
    /// Vectors that earlier non-blocking calls have left, for the next one of the same length.
    spare: Mutex<Vec<Box<dyn Any + Send>>>,
}

// SAFETY: the communicator and the requests are raw handles of the MPI library, which must not be used from two threads at
// once. Every method first checks that it runs on the MPI thread, and `Drop` frees nothing elsewhere.
unsafe impl Send for Mpi {}
// SAFETY: as above.
unsafe impl Sync for Mpi {}

impl Mpi {
    fn new(comm: SimpleCommunicator, group: Option<Group>, reporter: Arc<Reporter>, meter: Arc<Meter>) -> Mpi {
        // Tests make it small; a C integer is what it must fit into.
        let most = std::env::var("SHARDLAB_MPI_CHUNK").ok().and_then(|text| text.parse().ok());
        Mpi {
            comm: ManuallyDrop::new(comm),
            group,
            reporter,
            thread: std::thread::current().id(),
            meter,
            most: most.filter(|&most| most > 0).unwrap_or(1 << 30),
            sends: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    fn check_thread(&self, call: &Call) -> Result<()> {
        if std::thread::current().id() == self.thread {
            return Ok(());
        }
        Err(CommError::Invalid(format!(
            "{call}: a Comm over MPI works only on the thread that it was handed to; move the call there"
        )))
    }

    /// To be called first in every collective.
    fn enter(&self, call: &Call) -> Result<()> {
        self.check_thread(call)?;
        self.group.as_ref().map_or(Ok(()), |group| group.agree(&mut group.ask(call)))
    }

    /// Waits until a message from member `from` is here; an error if it cannot come.
    fn await_message(&self, group: &Group, call: &Call, from: usize) -> Result<()> {
        let is_here = || self.root(from).immediate_probe().is_some();
        if is_here() {
            return Ok(());
        }
        let sender = group.members[from];
        let what = What::Message { group: group.id, from: sender, received: self.reporter.received(group.id, sender) };
        let mut waiting = Waiting::start(group, *call, what);
        while !is_here() {
            if let Err(error) = look_around(group, call, |board| board.has_ended(sender).then_some(sender)) {
                // What was sent before the sender ended may still be on its way, by another communicator.
                std::thread::sleep(Duration::from_millis(200));
                return if is_here() { Ok(()) } else { Err(error) };
            }
            waiting.look()?;
            std::thread::yield_now();
        }
        waiting.over();
        Ok(())
    }

    fn root(&self, root: usize) -> mpi::topology::Process<'_> {
        self.comm.process_at_rank(root as i32)
    }

    /// `0..len` in stretches that one MPI call can take.
    fn stretches(&self, len: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let most = self.most;
        (0..len.div_ceil(most)).map(move |i| i * most..len.min((i + 1) * most))
    }

    /// Reduces `input` (one part, or for a reduce-scatter one for each rank) into `output`, in the wide type.
    fn reduce_any(&self, call: &Call, how: Reducing, input: &[u8], output: &mut [u8]) {
        match call.dtype {
            Dtype::I32 => self.reduce_typed::<i32>(call, how, input, output),
            Dtype::I64 => self.reduce_typed::<i64>(call, how, input, output),
            Dtype::U64 => self.reduce_typed::<u64>(call, how, input, output),
            Dtype::U8 => self.reduce_typed::<u8>(call, how, input, output),
            Dtype::F16 => self.reduce_typed::<f16>(call, how, input, output),
            Dtype::Bf16 => self.reduce_typed::<bf16>(call, how, input, output),
            Dtype::F32 => self.reduce_typed::<f32>(call, how, input, output),
            Dtype::F64 => self.reduce_typed::<f64>(call, how, input, output),
        }
    }

    fn reduce_typed<T: Element>(&self, call: &Call, how: Reducing, input: &[u8], output: &mut [u8])
    where
        T::Wide: Equivalence,
    {
        let wide: Vec<T::Wide> = elements::<T>(input).map(T::widen).collect();
        let op = call.op.expect("a reducing call names its reduction");
        let mpi_op = in_mpi(op);
        let mut result = wide[..call.len].to_vec();
        for stretch in self.stretches(call.len) {
            let send = columns(&wide, call.len, &stretch);
            let result = &mut result[stretch];
            match how {
                Reducing::All => self.comm.all_reduce_into(&send[..], result, mpi_op),
                Reducing::Scatter => self.comm.reduce_scatter_block_into(&send[..], result, mpi_op),
                Reducing::Root(root) if root == self.rank() => {
                    self.root(root).reduce_into_root(&send[..], result, mpi_op);
                }
                Reducing::Root(root) => self.root(root).reduce_into(&send[..], mpi_op),
            }
        }
        if matches!(how, Reducing::Root(root) if root != self.rank()) {
            return;
        }
        for (out, &x) in output.chunks_exact_mut(size_of::<T>()).zip(&result) {
            let x = if op == Reduce::Mean { T::divide(x, self.size()) } else { x };
            out.copy_from_slice(bytemuck::bytes_of(&T::narrow(x)));
        }
    }

    /// A vector of `len` elements: one that an earlier call has left, or a new one. Its values are any.
    fn take_spare<W: bytemuck::Pod>(&self, len: usize) -> Vec<W> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |vector: &Box<dyn Any + Send>| vector.downcast_ref::<Vec<W>>().is_some_and(|v| v.len() == len);
        match spare.iter().position(fits) {
            Some(i) => *spare.swap_remove(i).downcast().expect("of the type that was looked for"),
            None => vec![W::zeroed(); len],
        }
    }

    fn keep_spare<W: Send + 'static>(&self, vector: Vec<W>) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        // As many as a training step has buckets; a program with other lengths every time does not fill the memory.
        if !vector.is_empty() && spare.len() < 256 {
            spare.push(Box::new(vector));
        }
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.sends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// MPI's reduction; a mean is a sum there, and divided here.
fn in_mpi(op: Reduce) -> SystemOperation {
    match op {
        Reduce::Sum | Reduce::Mean => SystemOperation::sum(),
        Reduce::Min => SystemOperation::min(),
        Reduce::Max => SystemOperation::max(),
        Reduce::Prod => SystemOperation::product(),
    }
}

/// Where the result of a reduction goes.
#[derive(Clone, Copy)]
enum Reducing {
    All,
    Root(usize),
    Scatter,
}

/// The same stretch of each of the equal parts of `all`, side by side; parts have `len` elements.
fn columns<T: Copy>(all: &[T], len: usize, stretch: &Range<usize>) -> Vec<T> {
    all.chunks_exact(len.max(1)).flat_map(|part| &part[stretch.clone()]).copied().collect()
}

/// Puts back what [`columns`] took.
fn put_columns(all: &mut [u8], len: usize, stretch: &Range<usize>, columns: &[u8]) {
    let parts = all.chunks_exact_mut(len.max(1)).zip(columns.chunks_exact(stretch.len()));
    parts.for_each(|(part, column)| part[stretch.clone()].copy_from_slice(column));
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.comm.rank() as usize
    }

    fn size(&self) -> usize {
        self.comm.size() as usize
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn recorder(&self) -> &Recorder {
        &self.reporter.recorder
    }

    fn barrier(&self, call: &Call) -> Result<()> {
        self.enter(call)?;
        self.comm.barrier();
        Ok(())
    }

    fn send(&self, call: &Call, data: &[u8], to: usize) -> Result<()> {
        self.check_thread(call)?;
        let (mut outbox, receiver) = (self.outbox(), self.root(to));
        outbox.clear(false);
        // A heading first, so that a receiver who expects something else can say so.
        outbox.send(&receiver, 0, bytemuck::cast_slice(&[call.len as u64, call.dtype as u64]));
        self.stretches(data.len()).for_each(|stretch| outbox.send(&receiver, 0, &data[stretch]));
        if let Some(group) = &self.group {
            count(&self.reporter.sent, group.id, group.members[to]);
        }
        Ok(())
    }

    fn recv(&self, call: &Call, data: &mut [u8], from: usize) -> Result<()> {
        self.check_thread(call)?;
        if let Some(group) = &self.group {
            self.await_message(group, call, from)?;
            count(&self.reporter.received, group.id, group.members[from]);
        }
        let mut heading = [0u64; 2];
        self.root(from).receive_into(bytemuck::bytes_of_mut(&mut heading));
        if heading != [call.len as u64, call.dtype as u64] {
            return Err(CommError::Broken(format!(
                "the message does not fit: rank {from} sent {} elements that {call} did not expect\n\
                 help: send and receive slices of the same length and type",
                heading[0]
            )));
        }
        for stretch in self.stretches(data.len()) {
            self.root(from).receive_into(&mut data[stretch]);
        }
        Ok(())
    }

    fn all_reduce(&self, call: &Call, data: &mut [u8]) -> Result<()> {
        self.enter(call)?;
        let input = data.to_vec();
        self.reduce_any(call, Reducing::All, &input, data);
        Ok(())
    }

    fn start(self: Arc<Self>, call: &Call, data: Box<dyn Buffer>) -> Result<Box<dyn UnderWay>> {
        self.check_thread(call)?;
        if call.kind == Kind::StartAllGather {
            return Ok(Box::new(Started::gather(self, call, data)));
        }
        Ok(match call.dtype {
            Dtype::I32 => Box::new(Started::<i32>::new(self, call, data)),
            Dtype::I64 => Box::new(Started::<i64>::new(self, call, data)),
            Dtype::U64 => Box::new(Started::<u64>::new(self, call, data)),
            Dtype::U8 => Box::new(Started::<u8>::new(self, call, data)),
            Dtype::F16 => Box::new(Started::<f16>::new(self, call, data)),
            Dtype::Bf16 => Box::new(Started::<bf16>::new(self, call, data)),
            Dtype::F32 => Box::new(Started::<f32>::new(self, call, data)),
            Dtype::F64 => Box::new(Started::<f64>::new(self, call, data)),
        })
    }

    fn reduce(&self, call: &Call, data: &mut [u8], root: usize) -> Result<()> {
        self.enter(call)?;
        let input = data.to_vec();
        self.reduce_any(call, Reducing::Root(root), &input, data);
        Ok(())
    }

    fn broadcast(&self, call: &Call, data: &mut [u8], root: usize) -> Result<()> {
        self.enter(call)?;
        for stretch in self.stretches(data.len()) {
            self.root(root).broadcast_into(&mut data[stretch]);
        }
        Ok(())
    }

    fn all_gather(&self, call: &Call, mine: &[u8], all: &mut [u8]) -> Result<()> {
        self.enter(call)?;
        for stretch in self.stretches(mine.len()) {
            let mut part = vec![0; stretch.len() * self.size()];
            self.comm.all_gather_into(&mine[stretch.clone()], &mut part[..]);
            put_columns(all, mine.len(), &stretch, &part);
        }
        Ok(())
    }

    fn reduce_scatter(&self, call: &Call, all: &[u8], mine: &mut [u8]) -> Result<()> {
        self.enter(call)?;
        self.reduce_any(call, Reducing::Scatter, all, mine);
        Ok(())
    }

    fn scatter(&self, call: &Call, all: &[u8], mine: &mut [u8], root: usize) -> Result<()> {
        self.enter(call)?;
        for stretch in self.stretches(mine.len()) {
            if self.rank() == root {
                let part = columns(all, mine.len(), &stretch);
                self.root(root).scatter_into_root(&part[..], &mut mine[stretch]);
            } else {
                self.root(root).scatter_into(&mut mine[stretch]);
            }
        }
        Ok(())
    }

    fn gather(&self, call: &Call, mine: &[u8], all: &mut [u8], root: usize) -> Result<()> {
        self.enter(call)?;
        for stretch in self.stretches(mine.len()) {
            if self.rank() == root {
                let mut part = vec![0; stretch.len() * self.size()];
                self.root(root).gather_into_root(&mine[stretch.clone()], &mut part[..]);
                put_columns(all, mine.len(), &stretch, &part);
            } else {
                self.root(root).gather_into(&mine[stretch]);
            }
        }
        Ok(())
    }

    fn all_to_all(&self, call: &Call, send: &[u8], recv: &mut [u8]) -> Result<()> {
        self.enter(call)?;
        let len = send.len() / self.size();
        for stretch in self.stretches(len) {
            let part = columns(send, len, &stretch);
            let mut received = vec![0; part.len()];
            self.comm.all_to_all_into(&part[..], &mut received[..]);
            put_columns(recv, len, &stretch, &received);
        }
        Ok(())
    }

    fn split(&self, call: &Call, color: u64, key: i64) -> Result<Arc<dyn Transport>> {
        // MPI's colors and keys are C integers: colors are replaced by the first rank that gave them, keys by their order.
        let mut wishes = vec![[0u64; 2]; self.size()];
        let wish = [color, key as u64];
        self.all_gather(call, bytemuck::bytes_of(&wish), bytemuck::cast_slice_mut(&mut wishes))?;
        let mut chosen: Vec<usize> = (0..wishes.len()).filter(|&r| wishes[r][0] == color).collect();
        let first = chosen[0];
        chosen.sort_by_key(|&r| (wishes[r][1] as i64, r));
        let place = chosen.iter().position(|&r| r == self.rank()).unwrap_or_default();
        let comm = self.comm.split_by_color_with_key(Color::with_value(first as i32), place as i32);
        let comm = comm.expect("MPI gives a communicator to every rank that names a color");
        let group = self.group.as_ref().map(|group| {
            let members = chosen.iter().map(|&r| group.members[r]).collect();
            Group::new(&comm, group.id_of_part(first), members, self.reporter.clone())
        });
        Ok(Arc::new(Mpi::new(comm, group, self.reporter.clone(), self.meter.clone())))
    }
}

/// A non-blocking collective of this rank: one request for each stretch. An all-gather moves bytes.
struct Started<T: Element> {
    mpi: Arc<Mpi>,
    call: Call,
    /// What is sent, and nobody may change meanwhile.
    input: ManuallyDrop<Vec<T::Wide>>,
    /// Where the library writes, and nobody may look meanwhile.
    output: ManuallyDrop<Vec<T::Wide>>,
    /// What was handed over, unless it is `input` itself.
    narrow: Option<Vec<T>>,
    /// What was handed over to an all-gather.
    gathered: Option<Box<dyn Buffer>>,
    requests: Vec<Request<'static, [T::Wide], StaticScope>>,
    /// Whether all ranks mean this call.
    question: Option<Question>,
    /// When this rank has seen the last request complete.
    complete: Option<Instant>,
}

// SAFETY: as for `Mpi`: every method first checks that it runs on the MPI thread, and elsewhere `Drop` frees nothing.
unsafe impl<T: Element> Send for Started<T> {}

impl<T: Element> Started<T> {
    /// Whether all ranks are known to mean this call; an error if they do not.
    fn is_agreed(&mut self) -> Result<bool> {
        match (&self.mpi.group, &mut self.question) {
            (Some(group), Some(question)) => group.poll(question),
            _ => Ok(true),
        }
    }
}

impl<T: Element> Started<T>
where
    T::Wide: Equivalence,
{
    fn new(mpi: Arc<Mpi>, call: &Call, data: Box<dyn Buffer>) -> Started<T> {
        // Where arithmetic is done in the type itself, the vector is sent as it is.
        let (input, narrow) = match data.into_any().downcast::<Vec<T::Wide>>() {
            Ok(data) => (*data, None),
            Err(data) => {
                let data: Vec<T> = vector(data);
                let mut wide = mpi.take_spare(data.len());
                wide.iter_mut().zip(&data).for_each(|(wide, &x): (&mut T::Wide, _)| *wide = x.widen());
                (wide, Some(data))
            }
        };
        let (mut input, mut output) = (ManuallyDrop::new(input), ManuallyDrop::new(mpi.take_spare(call.len)));
        let op = in_mpi(call.op.expect("a reducing call names its reduction"));
        let scatters = call.kind == Kind::StartReduceScatter;
        let parts = if scatters { mpi.size() } else { 1 };
        if scatters && call.len > mpi.most {
            // What a request takes must lie in one piece.
            let in_order: Vec<T::Wide> =
                mpi.stretches(call.len).flat_map(|stretch| columns(&input, call.len, &stretch)).collect();
            input.copy_from_slice(&in_order);
        }
        let mut requests = Vec::new();
        for stretch in mpi.stretches(call.len) {
            // SAFETY: both vectors' memory stays where it is, and is neither read, written nor freed, until no request is
            // left: `finish` looks at them after the last one is complete, and `Drop` waits, or frees nothing.
            let (from, to) = unsafe {
                let from: *const [T::Wide] = &input[parts * stretch.start..parts * stretch.end];
                let to: *mut [T::Wide] = &mut output[stretch];
                (&*from, &mut *to)
            };
            requests.push(match call.peer {
                Some(root) if root == mpi.rank() => {
                    mpi.root(root).immediate_reduce_into_root(StaticScope, from, to, op)
                }
                Some(root) => mpi.root(root).immediate_reduce_into(StaticScope, from, op),
                None if scatters => mpi.comm.immediate_reduce_scatter_block_into(StaticScope, from, to, op),
                None => mpi.comm.immediate_all_reduce_into(StaticScope, from, to, op),
            });
        }
        let question = mpi.group.as_ref().map(|group| group.ask(call));
        Started { mpi, call: *call, input, output, narrow, gathered: None, requests, question, complete: None }
    }

    /// Lets the library work; `to_the_end`: until it is done.
    fn progress(&mut self, to_the_end: bool) {
        for request in std::mem::take(&mut self.requests) {
            if to_the_end {
                request.wait_without_status();
            } else if let Err(request) = request.test() {
                self.requests.push(request);
            }
        }
        if self.requests.is_empty() {
            self.complete.get_or_insert_with(Instant::now);
        }
    }
}

impl Started<u8> {
    fn gather(mpi: Arc<Mpi>, call: &Call, mut data: Box<dyn Buffer>) -> Started<u8> {
        let (ranks, part) = (mpi.size(), call.len * call.dtype.size());
        let mut input = ManuallyDrop::new(mpi.take_spare(part));
        input.copy_from_slice(&data.bytes_mut()[mpi.rank() * part..][..part]);
        let mut output = ManuallyDrop::new(mpi.take_spare(ranks * part));
        let mut requests = Vec::new();
        for stretch in mpi.stretches(part) {
            // SAFETY: as in `Started::new`.
            let (from, to) = unsafe {
                let from: *const [u8] = &input[stretch.clone()];
                let to: *mut [u8] = &mut output[ranks * stretch.start..ranks * stretch.end];
                (&*from, &mut *to)
            };
            requests.push(mpi.comm.immediate_all_gather_into(StaticScope, from, to));
        }
        let question = mpi.group.as_ref().map(|group| group.ask(call));
        let (call, narrow, gathered) = (*call, None, Some(data));
        Started { mpi, call, input, output, narrow, gathered, requests, question, complete: None }
    }
}

impl<T: Element> UnderWay for Started<T>
where
    T::Wide: Equivalence,
{
    fn test(&mut self) -> Result<bool> {
        self.mpi.check_thread(&self.call)?;
        if self.is_agreed()? {
            self.progress(false);
        }
        Ok(self.complete.is_some())
    }

    fn wait(&mut self) -> Result<Instant> {
        self.mpi.check_thread(&self.call)?;
        if let (Some(group), Some(question)) = (&self.mpi.group, &mut self.question) {
            group.agree(question)?;
        }
        self.progress(true);
        Ok(self.complete.unwrap_or_else(Instant::now))
    }

    fn take(mut self: Box<Self>) -> Box<dyn Any> {
        assert!(self.requests.is_empty(), "taken only when complete");
        let ranks = self.mpi.size();
        if let Some(mut data) = self.gathered.take() {
            let (part, brought) = (self.call.len * self.call.dtype.size(), bytemuck::cast_slice(&self.output));
            for stretch in self.mpi.stretches(part) {
                let columns = &brought[ranks * stretch.start..ranks * stretch.end];
                put_columns(data.bytes_mut(), part, &stretch, columns);
            }
            return data.into_any();
        }
        if self.call.peer.is_some_and(|root| root != self.mpi.rank()) {
            // This rank has no result.
            return match self.narrow.take() {
                None => Box::new(std::mem::take(&mut *self.input)),
                Some(data) => Box::new(data),
            };
        }
        if self.call.op == Some(Reduce::Mean) {
            self.output.iter_mut().for_each(|x| *x = T::divide(*x, ranks));
        }
        match self.narrow.take() {
            None => Box::new(std::mem::take(&mut *self.output)),
            Some(mut data) => {
                data.truncate(self.call.len);
                data.iter_mut().zip(&*self.output).for_each(|(x, &wide)| *x = T::narrow(wide));
                Box::new(data)
            }
        }
    }
}

impl<T: Element> Drop for Started<T> {
    fn drop(&mut self) {
        let requests = std::mem::take(&mut self.requests);
        // On a panic the job ends, and the other ranks may never come; elsewhere than on the MPI thread nothing can be
        // waited for. Requests then stay with the process, and their vectors too.
        if std::thread::panicking() || self.mpi.check_thread(&self.call).is_err() {
            std::mem::forget(requests);
            return;
        }
        if let (Some(group), Some(question)) = (&self.mpi.group, &mut self.question)
            && group.agree(question).is_err()
        {
            // The run has failed, and who fails it says why.
            return std::mem::forget(requests);
        }
        requests.into_iter().for_each(Request::wait_without_status);
        // The library is done with them.
        for vector in [std::mem::take(&mut *self.input), std::mem::take(&mut *self.output)] {
            self.mpi.keep_spare(vector);
        }
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        // Off its thread the communicator must not be freed: it stays with the process, which is all that this costs.
        if std::thread::current().id() == self.thread {
            self.outbox().clear(true);
            self.group.iter_mut().for_each(Group::free);
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.comm) };
        }
    }
}
