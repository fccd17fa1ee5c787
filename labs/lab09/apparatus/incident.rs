//! The conversion that failed, with real files: the source's job on 768 ranks and its control on
//! 48, written and converted.
//!
//! The parameters are the source's: 6 per layer and 3 more, in two groups. The norms have their
//! real size, because the failure is theirs. The matrices are small here: 1,536 elements each, so
//! that their group needs no padding, as in the source.

use super::Recorded;
use deepspeed::example::{Example, Group, value};
use deepspeed::torch::{Node, TorchFile};
use deepspeed::{Options, Report, STATES, Watch, convert};
use kit::Checks;
use kit::show::{Screen, counted, table, thousands};
use shardlab::checkpoint::files;
use shardlab::error::BadInput;
use shardlab::parallel::partition::Flat;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A job of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incident {
    pub layers: usize,
    pub ranks: usize,
    pub stage: usize,
    pub recorded: Recorded,
}

/// The job that could not be converted: 64 nodes of 12 ranks.
pub const FAILED: Incident = Incident {
    layers: 32,
    ranks: 768,
    stage: 1,
    recorded: Recorded::OnTheLast,
};
/// The job that was converted: 4 nodes of 12 ranks.
pub const CONTROL: Incident = Incident { layers: 1, ranks: 48, ..FAILED };

/// A rank's slice of one group, as the rank's file has it.
pub struct Slice {
    pub numel: usize,
    /// Its padding, as it is recorded.
    pub padding: usize,
    /// The end of its last fragment.
    pub end: usize,
}

/// A job's files, and what a converter without stripping made of them.
pub struct Converted {
    /// By rank, then by group.
    pub slices: Vec<Vec<Slice>>,
    /// Files of ranks, and parameters, that the converter has finished.
    pub done: [usize; 2],
    pub report: Report,
    folder: PathBuf,
}

impl Incident {
    /// Names and shapes of the parameters: matrices, which decay, and norms.
    pub fn groups(self) -> [Group; 2] {
        let matrix = |name: String| (name, vec![24, 64]);
        let norm = |name: String| (name, vec![4096]);
        let layers = || 0..self.layers;
        let matrices = ["attention.qkv", "attention.out", "mlp.up", "mlp.down"];
        let matrices =
            layers().flat_map(|layer| matrices.map(|name| format!("layers.{layer}.{name}.weight")));
        let ends = ["embedding.weight", "head.weight"].map(String::from);
        let norms = layers().flat_map(|layer| {
            ["norm1", "norm2"].map(|name| format!("layers.{layer}.{name}.weight"))
        });
        let last = ["final_norm.weight".to_string()];
        [
            matrices.chain(ends).map(matrix).collect(),
            norms.chain(last).map(norm).collect(),
        ]
    }

    /// The padding of each group, by the right rule.
    fn flats(self) -> [Flat; 2] {
        let numel =
            |group: &Group| group.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
        self.groups().map(|group| Flat { numel: numel(&group), ranks: self.ranks })
    }

    /// Writes the files of all ranks below `dir`, reads them, and converts them.
    pub fn run(self, dir: &Path) -> Result<Converted, BadInput> {
        let last_rank_only = self.recorded == Recorded::OnTheLast;
        let rule = if last_rank_only { "last" } else { "each" };
        let job = dir.join(format!("ws{}_stage{}_{rule}", self.ranks, self.stage));
        let input = job.join("global_step95600");
        let example = Example {
            last_rank_only,
            step: 95_600.0,
            ..Example::new(self.stage, self.ranks, self.groups().into())
        };
        example.save(&input, &|_, name, state, element| value(name, state, element))?;
        // DeepSpeed names the newest save in the first of these files, Megatron-LM its step in the
        // second. The source's shell reads the step there.
        files::write(&input.with_file_name("latest"), b"global_step95600")?;
        files::write(&input.with_file_name("latest_checkpointed_iteration.txt"), b"95600")?;
        let file = |rank| input.join(format!("zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"));
        let slices = (0..self.ranks).map(|rank| slices(&file(rank))).collect::<Result<_, _>>()?;
        // The source's own command line can still write its folder, global_step95600_universal.
        let folder = input.with_file_name("converted");
        let count = Count::default();
        let report = convert(&Options::new(input, &folder), &count)?;
        let done = count.0.into_inner().unwrap_or_default();
        Ok(Converted { slices, done: [done[0], done[1]], report, folder })
    }
}

/// The slices of a rank's file.
fn slices(path: &Path) -> Result<Vec<Slice>, BadInput> {
    let file = TorchFile::open(path)?;
    let lacks = |what: &str| file.error(&format!("it has no {what}"));
    let state = file
        .graph
        .root()
        .get("optimizer_state_dict")
        .ok_or_else(|| lacks("optimizer_state_dict"))?;
    let list = |key: &'static str| state.get(key).into_iter().flat_map(Node::items);
    let states = state.get("base_optimizer_state").and_then(|base| base.get("state"));
    let size = |node: Option<Node>| {
        node.and_then(Node::int)
            .and_then(|size| usize::try_from(size).ok())
            .unwrap_or(0)
    };
    let mut slices = Vec::new();
    for (group, (padding, mapping)) in
        list("group_paddings").zip(list("param_slice_mappings")).enumerate()
    {
        let moment = states
            .and_then(|states| states.get_at(group as i64))
            .and_then(|state| state.get(STATES[1]));
        let moment = match moment {
            Some(moment) => file.tensor(moment)?,
            None => None,
        };
        let moment = moment.ok_or_else(|| lacks(STATES[1]))?;
        let end =
            |fragment: Node| size(fragment.attribute("start")) + size(fragment.attribute("numel"));
        let end = mapping.entries().map(|(_, fragment)| end(fragment)).max().unwrap_or(0);
        slices.push(Slice { numel: moment.numel(), padding: size(Some(padding)), end });
    }
    Ok(slices)
}

/// Counts the tasks that are done in each phase of a conversion.
#[derive(Default)]
struct Count(Mutex<Vec<usize>>);

impl Watch for Count {
    fn begin(&self, _: &str, _: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(0);
    }

    fn advance(&self) {
        let mut phases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(done) = phases.last_mut() {
            *done += 1;
        }
    }

    fn end(&self) {}
}

impl Converted {
    /// The first rank, and its group, whose slice is shorter than the padding that is recorded: a
    /// converter that strips it ends there.
    pub fn stops(&self) -> Option<(usize, usize)> {
        let too_long =
            |groups: &Vec<Slice>| groups.iter().position(|slice| slice.padding > slice.numel);
        let mut ranks = self.slices.iter().enumerate();
        ranks.find_map(|(rank, groups)| Some((rank, too_long(groups)?)))
    }

    /// How a converter that strips ends, in the words of PyTorch.
    fn stripped(&self) -> (usize, String) {
        match self.stops() {
            None => (self.slices.len(), "no error".to_string()),
            Some((rank, group)) => {
                let Slice { numel, padding, .. } = self.slices[rank][group];
                let left = numel as isize - padding as isize;
                (rank, format!("{}: {numel} - {} = {left}", STATES[1], thousands(padding as u64)))
            }
        }
    }

    /// Files whose fragments end where the right padding begins.
    fn clear(&self, job: Incident) -> usize {
        let flats = job.flats();
        let clear =
            |rank: usize, slice: &Slice, flat: &Flat| slice.end + flat.padding(rank) == slice.numel;
        let all = |(rank, groups): &(usize, &Vec<Slice>)| {
            groups.iter().zip(&flats).all(|(s, flat)| clear(*rank, s, flat))
        };
        self.slices.iter().enumerate().filter(all).count()
    }

    /// Ranks whose file records a padding that is not theirs.
    fn wrong(&self, job: Incident) -> Vec<usize> {
        let flats = job.flats();
        let wrong = |rank: &usize| {
            let mut groups = self.slices[*rank].iter().zip(&flats);
            groups.any(|(slice, flat)| slice.padding != flat.padding(*rank))
        };
        (0..self.slices.len()).filter(wrong).collect()
    }

    /// Files of parameters that have the same bytes as those of `other`, and all files.
    fn same_files(&self, other: &Converted) -> (usize, usize) {
        let name =
            |name: &String, state: &str| Path::new("zero").join(name).join(format!("{state}.pt"));
        let names =
            self.report.parameters.iter().flat_map(|of| STATES.map(|state| name(of, state)));
        let same = |name: &PathBuf| {
            let read = |folder: &Path| std::fs::read(folder.join(name)).ok();
            read(&self.folder).is_some_and(|bytes| read(&other.folder) == Some(bytes))
        };
        let names: Vec<PathBuf> = names.collect();
        (names.iter().filter(|name| same(name)).count(), names.len())
    }
}

fn of(part: usize, all: usize) -> String {
    format!("{} of {}", thousands(part as u64), thousands(all as u64))
}

/// Writes and converts the source's two jobs, and prints how each converter ends. With `strip`, the
/// run stands or falls with the converter that strips. Returns what the checks found wrong.
pub fn incident(screen: &Screen, dir: &Path, strip: bool) -> Result<Vec<String>, BadInput> {
    let dir = dir.join("padding");
    // An earlier run's.
    std::fs::remove_dir_all(&dir).ok();
    let failed = FAILED.run(&dir)?;
    let control = CONTROL.run(&dir)?;
    let row = |job: Incident, run: &Converted| {
        let layers = counted(job.layers, "layer", "layers");
        let name = format!("{} ranks ({} nodes of 12), {layers}", job.ranks, job.ranks / 12);
        let merged = of(run.done[1], run.report.parameters.len());
        vec![name, of(run.stripped().0, job.ranks), of(run.done[0], job.ranks), merged]
    };
    screen.say("\n  The source's two jobs, written as real files and converted");
    let heads = ["job\n", "stripping:\nfiles", "not stripping:\nfiles", "\nparameters"];
    screen.say(table(screen, &heads, &[row(FAILED, &failed), row(CONTROL, &control)]));
    screen.say("");
    let mut checks = Checks::new(screen);
    let (files, how) = failed.stripped();
    if strip {
        let otherwise = format!(
            "rank {files} of {}: narrow(): length must be non-negative: {how}",
            FAILED.ranks
        );
        checks.check_all(files, FAILED.ranks, "all files are stripped", &otherwise);
        return Ok(checks.failed());
    }
    let stops = failed.stops() == Some((767, 1));
    checks.check(
        stops,
        "as in the source, stripping ends at rank 767",
        &how,
        "stripping ends in a different way",
    );
    let padding: usize = control.slices.iter().flatten().map(|slice| slice.padding).sum();
    let what = "48 ranks: 48 divides 12,288, nothing is stripped";
    checks.check(
        padding == 0 && control.stops().is_none(),
        what,
        "padding 0",
        "the control fails",
    );
    let merged = [&failed, &control].map(|run| run.done[1]);
    let counted = format!("{} and {}", merged[0], merged[1]);
    let what = "6 x layers + 3 parameters are merged";
    checks.check(
        merged == [FAILED, CONTROL].map(|job| 6 * job.layers + 3),
        what,
        &counted,
        "parameters are missing",
    );
    // Both stages, with the right records beside the old ones.
    let second = Incident { stage: 2, ..FAILED };
    let mut clear = 0;
    let mut same = 0;
    let mut all = 0;
    let mut right = 0;
    for (job, old) in [(FAILED, &failed), (second, &second.run(&dir)?)] {
        let each = Incident { recorded: Recorded::OnEach, ..job };
        let new = each.run(&dir)?;
        let (equal, files) = old.same_files(&new);
        clear += old.clear(job);
        same += equal;
        all += files;
        if new.wrong(each).is_empty() {
            right += new.stripped().0;
        }
    }
    let files = 2 * FAILED.ranks;
    checks.check_all(
        clear,
        files,
        "stages 1 and 2: fragments end before the padding",
        "a fragment reaches into the padding",
    );
    checks.check_all(
        right,
        files,
        "each rank's own padding can be stripped",
        "a slice is shorter than its own padding",
    );
    checks.check_all(
        same,
        all,
        "parameter files, old or right record: same bytes",
        "files of parameters differ",
    );
    let record = |rank: usize| {
        let flat = FAILED.flats()[1];
        let slice = &failed.slices[rank][1];
        format!(
            "rank {rank} has {} elements of padding and records {}",
            flat.padding(rank),
            thousands(slice.padding as u64)
        )
    };
    let records: Vec<String> = failed.wrong(FAILED).into_iter().map(record).collect();
    let left = format!(
        "wrong records, in the ranks' files: {}. A program that strips by them fails again, as DeepSpeed's own converter \
         does by default.",
        records.join(", ")
    );
    screen.say(screen.row("left", &left));
    Ok(checks.failed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With dp=768 the norms' padding (1,024 elements) exceeds one slice (348).
    #[test]
    fn the_sources_groups_have_their_sizes() {
        for (job, sizes, paddings) in [(FAILED, [130, 65], [0, 1024]), (CONTROL, [6, 3], [0, 0])] {
            assert_eq!(job.groups().map(|group| group.len()), sizes);
            assert_eq!(job.flats().map(|flat| flat.padded() - flat.numel), paddings);
        }
        assert_eq!((FAILED.flats()[1].numel, CONTROL.flats()[1].numel), (266_240, 12_288));
    }

    /// The four ranks and ten elements of the tables, as files.
    #[test]
    fn wrong_records_are_found_in_files() {
        let dir = tempfile::tempdir().unwrap();
        let job = Incident { layers: 1, ranks: 80, ..FAILED };
        let old = job.run(dir.path()).unwrap();
        // 12,288 elements are padded to 12,320: 154 per rank, 32 of them padding on the last one.
        assert_eq!((old.stops(), old.wrong(job), old.clear(job)), (None, vec![], 80));
        let many = Incident { ranks: 83, ..job };
        let old = many.run(dir.path()).unwrap();
        assert_eq!((old.stops(), old.stripped().0), (Some((82, 1)), 82));
        assert_eq!((old.wrong(many), old.clear(many), old.done), (vec![81, 82], 83, [83, 9]));
        let right = Incident { recorded: Recorded::OnEach, ..many }.run(dir.path()).unwrap();
        assert_eq!((right.stops(), right.wrong(many)), (None, vec![]));
        assert_eq!(old.same_files(&right), (27, 27));
    }
}
