//! Whether ranks that share experts train the model of one rank, and send what follows from their
//! choices.

use super::bytes::{bytes_of_counts, ways};
use super::job::expert_layers;
use super::load::{LAST, largest_share, relative};
use super::routed::ENOUGH;
use super::{Job, Measured, OneRank, Taken};
use anyhow::Result;
use kit::Checks;
use kit::parity::{self, rounding, rounds, worst};
use kit::show::{bytes_decimal, significant, thousands};
use kit::steady::{self, TIMES};
use shardlab::difference::same_bits;
use shardlab::parallel::Strategy;
use shardlab::parallel::strategy::Recompute;
use shardlab::parallel::zero::Stage;
use shardlab::tensor::Precision;
use shardlab::train::Config;

/// The most copies of an expert at the end of the training, as a multiple of the mean.
pub const UNEVEN: f64 = 2.0;

/// What the ranks found.
pub struct Found {
    /// The first step, by each number of ranks that can share the experts.
    pub measured: Vec<Measured>,
    /// The first step, with blocks that are computed again.
    pub again: Option<Measured>,
    /// Parameters that a job has not got back from its checkpoint.
    pub lost: usize,
}

/// Checks the first step.
pub fn check(checks: &mut Checks, config: &Config, one: &OneRank, found: &Found) {
    if !drops(config) {
        check_parity(checks, config, one, &found.measured);
    }
    let all = &found.measured;
    let mut first = all.iter().chain(&found.again).map(|one| (&one.strategy, &one.taken));
    let right = first.all(|(strategy, taken)| sends_as_expected(config, strategy, taken));
    let shown: Vec<String> =
        all.iter().map(|one| bytes_decimal(one.taken.all_sent as f64)).collect();
    checks.check(
        right,
        &format!("bytes with ep={}, as counted", by(all)),
        &shown.join(", "),
        "ranks sent other bytes than averages, copies and counts have",
    );
    let counted = found.again.iter().chain(all).map(|one| one.taken.counted[0]);
    check_counted(checks, config, counted);
    check_unseen(
        checks,
        "parameters that a resumed job has lost",
        [0, found.lost as u64],
        "a resumed job has other experts than those that were saved",
    );
}

/// Checks that what is expected was found in a step or a job that the screen does not show: only if
/// it was not, as with a mistake, it tells of it.
fn check_unseen(checks: &mut Checks, claim: &str, [expected, found]: [u64; 2], failure: &str) {
    if found != expected {
        checks.check_equal(claim, &thousands(expected), &thousands(found), failure);
    }
}

/// Whether capacities drop copies. Which ones depends on whose tokens a rank has, so one rank
/// trains another model.
fn drops(config: &Config) -> bool {
    config.shape.experts.is_some_and(|experts| experts.selection.capacity.is_some())
}

/// Checks that the first step is one rank's.
fn check_parity(checks: &mut Checks, config: &Config, one: &OneRank, all: &[Measured]) {
    let off = |of: &dyn Fn(&Measured) -> f64, expected: f64| {
        worst(all.iter().map(|one| relative(of(one), expected)))
    };
    let rounding = rounding(&config.shape, config.tokens_per_step());
    // The first loss is of no gradients yet.
    let loss_bound = match config.precision {
        Precision::F32 => rounding,
        Precision::Bf16 => parity::loss_bound(Precision::Bf16),
    };
    let bound = parity::gradient_bound(config, rounding);
    let within = |bound| format!("within {}", significant(bound, 2));
    let loss = off(&|one| one.taken.loss, one.losses[0]);
    let balancing = off(&|one| one.taken.balancing, one.balancing[0]);
    checks.check(
        loss < loss_bound && balancing < loss_bound,
        &format!("both losses are one rank's, {}", within(loss_bound)),
        &apart(worst([loss, balancing])),
        if loss < loss_bound {
            "the balancing loss is not one rank's"
        } else {
            "the forward pass differs from one rank's"
        },
    );
    let gradients = worst(all.iter().map(|one| one.gradients));
    let farthest = all.iter().max_by(|a, b| a.gradients.total_cmp(&b.gradients));
    checks.check(
        gradients < bound,
        &format!("every gradient is, with ep={}, {}", by(all), within(bound)),
        &apart(gradients),
        &format!(
            "gradients differ from one rank's, most that of {}",
            farthest.map_or("", |one| &one.farthest)
        ),
    );
    let norm = off(&|one| one.taken.norm, one.norms[0]);
    let last = all.last().map_or(0.0, |last| last.taken.norm / one.norms[0]);
    checks.check(
        norm < bound,
        &format!("the norm of all gradients is, {}", within(bound)),
        &apart(norm),
        &format!("the norm of all gradients is {} of one rank's", significant(last, 5)),
    );
}

/// Checks that every copy was counted once.
fn check_counted(checks: &mut Checks, config: &Config, mut steps: impl Iterator<Item = u64>) {
    let each = config.shape.top_k() * expert_layers(&config.shape);
    let expected = (each * config.tokens_per_step()) as u64;
    let found = steps.find(|&counted| counted != expected).unwrap_or(expected);
    check_unseen(
        checks,
        "each copy counts once, in recomputed blocks too",
        [expected, found],
        "loads were counted more than once, or not all",
    );
}

/// A training, as all ranks know it.
pub struct Trained<'a> {
    pub strategy: &'a Strategy,
    pub steps: &'a [Taken],
    /// After as many steps as one rank has taken.
    pub biases: &'a [f32],
}

/// Checks a training: its losses beside one rank's first ones, and whom its routers choose at the
/// end. `alone`: no first step was checked, so norms, bytes and counts are.
///
/// # Errors
/// If routers choose unevenly, and one rank cannot be trained to its end to see whether its do.
pub fn check_training(
    checks: &mut Checks,
    job: &Job,
    one: &OneRank,
    Trained { strategy, steps, biases }: &Trained,
    alone: bool,
) -> Result<()> {
    let config = job.config;
    let bound = parity::loss_bound(rounds(config));
    // What a norm is off by is a part of every gradient's.
    let norms_bound = 10.0 * bound;
    let all_steps = one.losses.len();
    let compared = steady(one, bound, norms_bound);
    let off = |of: fn(&Taken) -> f64, expected: &[f64]| {
        let missing = steps.len() < expected.len() || expected.is_empty();
        let pairs = steps.iter().zip(expected).take(compared);
        let apart = worst(pairs.map(|(step, one)| relative(of(step), *one)));
        if missing { f64::NAN } else { apart }
    };
    let losses = off(|step| step.loss, &one.losses);
    if drops(config) {
        check_dropped(checks, steps);
    } else {
        checks.check(
            losses < bound,
            &format!(
                "{strategy}: {compared} {} within {}",
                if compared == 1 { "loss" } else { "losses" },
                significant(bound, 2)
            ),
            &apart(losses),
            "the strategy trained a different model",
        );
    }
    if rounds(config) == Precision::Bf16 && !drops(config) {
        let choices = config.shape.top_k() * expert_layers(&config.shape);
        let all = (choices * config.tokens_per_step() * compared) as u64;
        let others = steps.iter().take(compared).map(|step| step.others).sum::<u64>();
        // A few trainings without another choice do not say that the next one has none.
        let measured: u64 = one.drift.iter().take(compared).map(|drift| drift.others).sum();
        let most = TIMES as u64 * measured.max(1);
        checks.check(
            others <= most,
            &format!("roundings change at most {} choices", thousands(most)),
            &format!("{} of {}", thousands(others), thousands(all)),
            "routers would choose other experts than one rank's",
        );
    }
    if compared < all_steps && !drops(config) {
        checks.note(&format!(
            "compared: {compared} of {all_steps} steps. At this rate roundings grow: one rank's own \
             loss is off by {} at step {all_steps} if its gradients are by {}",
            one.drift.last().map_or(String::new(), |drift| significant(drift.loss, 2)),
            significant(parity::gradient_bound(config, 0.0), 2),
        ));
    }
    if !one.biases.is_empty() && !drops(config) {
        checks.check(
            same_bits(biases, &one.biases),
            &format!("biases after {all_steps} steps are one rank's"),
            &format!("{} of {} differ", differing(biases, &one.biases), one.biases.len()),
            "biases have moved otherwise than one rank's",
        );
    }
    if alone && !drops(config) {
        let balancing = off(|step| step.balancing, &one.balancing);
        let norms = worst([off(|step| step.norm, &one.norms), balancing]);
        checks.check(
            norms < norms_bound,
            &format!("norms and balancing losses within {}", significant(norms_bound, 2)),
            &apart(norms),
            "norms or balancing losses are not one rank's",
        );
    }
    if alone {
        check_counted(checks, config, steps.iter().map(|step| step.counted[0]));
    }
    if let Some(last) = steps.last().filter(|_| alone) {
        checks.check(
            sends_as_expected(config, strategy, last),
            "bytes to experts and back: copies that leave, counts",
            &bytes_decimal(last.sent as f64),
            "ranks sent other bytes than copies and counts have",
        );
    }
    if steps.len() >= ENOUGH {
        check_shares(checks, job, last_share(steps), compared < all_steps)?;
    }
    Ok(())
}

/// The first steps in which roundings cannot have become more than the bounds. A later loss says
/// nothing of the strategy; the first is of no gradients yet.
fn steady(one: &OneRank, bound: f64, norms_bound: f64) -> usize {
    if one.drift.is_empty() {
        return one.losses.len(); // nothing is rounded to bf16
    }
    steady::steady(one.drift.iter().map(|drift| {
        let norms = worst([drift.norm, drift.balancing]);
        worst([drift.loss / bound, norms / norms_bound])
    }))
}

/// Checks that choices are even at the end. Where they are not, and nobody has made a mistake, one
/// rank takes all steps, too. Less than twice its share, or any where roundings `grow`, comes from
/// the settings: such trainings swing, of ten f32 ones with `--lr 0.1 --warmup 0` up to 1.6 times
/// as far as one rank's.
fn check_shares(checks: &mut Checks, job: &Job, share: f64, grow: bool) -> Result<()> {
    let times = significant(share, 3);
    if share >= UNEVEN && job.broken.is_none() {
        let one = OneRank::last_share(job)?;
        if grow || share < UNEVEN * one {
            checks.note(&format!(
                "at the end an expert gets {times} times its share, and with one rank {}: that \
                 comes from --lr or --aux-loss, and not from the ranks",
                significant(one, 3)
            ));
            return Ok(());
        }
    }
    checks.check(
        share < UNEVEN,
        &format!("at the end no expert has {UNEVEN} times its share"),
        &format!("at most {times}"),
        &format!("an expert gets {times} times its share of tokens"),
    );
    Ok(())
}

/// Checks that capacities dropped what is beyond them, by the loads of each rank.
fn check_dropped(checks: &mut Checks, steps: &[Taken]) {
    let dropped = steps.iter().map(|step| step.dropped[0]).sum::<u64>();
    let beyond = steps.iter().map(|step| step.dropped[1]).sum::<u64>();
    checks.check_equal(
        "dropped: what each rank has beyond capacities",
        &thousands(beyond),
        &thousands(dropped),
        "capacities dropped other copies than those beyond them",
    );
}

fn differing(a: &[f32], b: &[f32]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a.to_bits() != b.to_bits()).count() + a.len().abs_diff(b.len())
}

/// The largest share of an expert at the end of a training.
pub fn last_share(steps: &[Taken]) -> f64 {
    let last = &steps[steps.len().saturating_sub(LAST)..];
    let Some(first) = last.first() else { return 0.0 };
    let mut sums = first.copies.clone();
    for step in &last[1..] {
        for (sum, copies) in sums.iter_mut().zip(&step.copies) {
            sum.iter_mut().zip(copies).for_each(|(sum, copies)| *sum += copies);
        }
    }
    largest_share(&sums, sums[0].len())
}

/// Whether ranks have sent what a step's copies and counts have; and on a mesh of data ranks alone,
/// what all of it has.
fn sends_as_expected(config: &Config, strategy: &Strategy, taken: &Taken) -> bool {
    let forwards = match strategy.recompute {
        Recompute::None => 1,
        Recompute::Full => 2,
        _ => return true, // of some layers
    };
    let shape = &config.shape;
    let number = shape.experts.map_or(0, |experts| experts.count);
    let ranks = strategy.data * strategy.context;
    let groups = ranks / strategy.expert * strategy.tensor;
    let layers = (expert_layers(shape) * config.grad_accum) as u64;
    let copies = ways(forwards) * taken.routed.leaving;
    let experts = copies * (shape.embd * config.precision.bytes()) as u64
        + layers * groups as u64 * bytes_of_counts(strategy.expert, number, forwards);
    if taken.sent != experts {
        return false;
    }
    // With ZeRO-2 and 3 padding travels, too; other axes have messages of their own.
    if strategy.ranks() != strategy.data || strategy.zero > Stage::One {
        return true;
    }
    // Each layer's choices, in an all-reduce of all ranks: copies, and tokens.
    let load = match config.auxiliary.over_ranks {
        true => layers * (2 * (ranks - 1) * (number + 1) * 8) as u64,
        false => 0,
    };
    let all = taken.averages + (experts + load) as f64;
    (taken.all_sent as f64 - all).abs() < 0.5
}

/// The numbers of ranks that have shared the experts.
fn by(all: &[Measured]) -> String {
    let by: Vec<String> = all.iter().map(|one| one.strategy.expert.to_string()).collect();
    by.join(", ")
}

fn apart(off: f64) -> String {
    match off {
        0.0 => "bitwise".to_string(),
        _ => format!("off by {}", significant(off, 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Routed;
    use super::super::one_rank::Drift;
    use super::*;
    use kit::show::Screen;
    use shardlab::data::Corpus;
    use shardlab::plan::{Capacity, Drops, Experts};

    /// Two ranks that share two experts, one of each token.
    fn config() -> Config {
        let mut config = Config::small(2, &Corpus::embedded().unwrap());
        let experts = Experts { count: 2, top_k: 1, ..Experts::default() };
        config.shape.experts = Some(Experts { ffn: 64, ..experts });
        config
    }

    fn strategy() -> Strategy {
        Strategy { data: 2, expert: 2, ..Strategy::SINGLE }
    }

    /// What they find if all is right.
    fn right() -> (OneRank, Taken) {
        let copies = (config().shape.layers * config().tokens_per_step()) as u64;
        let leaving = copies / 2;
        let routed = Routed { tokens: copies, copies, leaving, ranks: leaving };
        let sent = 4 * leaving * 32 * 4 + 2 * bytes_of_counts(2, 2, 1);
        let half = copies / 4;
        let taken = Taken {
            loss: 4.0,
            balancing: 1.0,
            norm: 2.0,
            copies: vec![vec![half; 2]; 2],
            routed,
            dropped: [0; 2],
            counted: [copies; 2],
            others: 0,
            sent,
            all_sent: sent + 100,
            averages: 100.0,
            seconds: 1.0,
        };
        let one = OneRank {
            losses: vec![4.0],
            norms: vec![2.0],
            balancing: vec![1.0],
            ..OneRank::default()
        };
        (one, taken)
    }

    fn errors(change: impl FnOnce(&mut Found)) -> Vec<String> {
        let (one, taken) = right();
        let measured = Measured {
            strategy: strategy(),
            taken,
            gradients: 0.0,
            farthest: "a".to_string(),
        };
        let mut found = Found { measured: vec![measured], again: None, lost: 0 };
        change(&mut found);
        let screen = Screen::plain();
        let mut checks = Checks::new(&screen);
        check(&mut checks, &config(), &one, &found);
        checks.failed()
    }

    /// Each of these would be ranks that train another model, or send or count otherwise.
    #[test]
    fn each_check_sees_what_it_is_for() {
        assert_eq!(errors(|_| ()), Vec::<String>::new());
        let of = |change: fn(&mut Measured)| errors(|found| change(&mut found.measured[0]));
        for (errors, says) in [
            (of(|one| one.taken.loss = f64::NAN), "the forward pass differs"),
            (of(|one| one.taken.loss = 4.1), "the forward pass differs"),
            (of(|one| one.taken.balancing = 1.01), "the balancing loss is not"),
            (of(|one| one.taken.balancing = f64::NAN), "the balancing loss is not"),
            (of(|one| one.gradients = f64::NAN), "most that of a"),
            (of(|one| one.gradients = 1e-3), "most that of a"),
            (of(|one| one.taken.norm = 1.9), "is 0.95000 of one rank's"),
            (of(|one| one.taken.norm = f64::NAN), "the norm of all gradients"),
            (of(|one| one.taken.sent += 8), "ranks sent other bytes"),
            (of(|one| one.taken.all_sent += 8), "ranks sent other bytes"),
            (of(|one| one.taken.all_sent -= 1), "ranks sent other bytes"),
            (of(|one| one.taken.averages = f64::NAN), "ranks sent other bytes"),
            (of(|one| one.taken.routed.leaving += 1), "ranks sent other bytes"),
            (of(|one| one.taken.counted[0] *= 2), "loads were counted"),
            (errors(|found| found.lost = 3), "a resumed job has other experts"),
        ] {
            assert!(errors.len() == 1 && errors[0].contains(says), "{says}: {errors:?}");
        }
    }

    fn errors_of_training(steps: &[Taken]) -> Vec<String> {
        errors_with(&config(), &right().0, steps, &[])
    }

    fn errors_with(config: &Config, one: &OneRank, steps: &[Taken], biases: &[f32]) -> Vec<String> {
        let screen = Screen::plain();
        let mut checks = Checks::new(&screen);
        let strategy = strategy();
        let corpus = Corpus::embedded().unwrap();
        let job = Job { config, broken: None, text: &corpus.train, overlap: true };
        let trained = Trained { strategy: &strategy, steps, biases };
        check_training(&mut checks, &job, one, &trained, true).unwrap();
        checks.failed()
    }

    #[test]
    fn biases_are_compared_bit_by_bit() {
        let (one, taken) = right();
        let one = OneRank { biases: vec![1e-3, -1e-3], ..one };
        let errors =
            |biases: &[f32]| errors_with(&config(), &one, std::slice::from_ref(&taken), biases);
        assert_eq!(errors(&[1e-3, -1e-3]), Vec::<String>::new());
        for wrong in [&[2e-3, -1e-3][..], &[1e-3], &[]] {
            let errors = errors(wrong);
            assert!(errors.len() == 1 && errors[0].contains("biases have moved"), "{errors:?}");
        }
    }

    /// Where copies are dropped, nothing is beside one rank.
    #[test]
    fn capacities_drop_what_is_beyond_them() {
        let (one, taken) = right();
        let mut config = config();
        config.shape.experts.as_mut().unwrap().selection.capacity =
            Some(Capacity { factor: 1.0, drops: Drops::Position });
        let errors = |dropped| {
            let step = Taken { loss: 9.0, dropped, ..taken.clone() };
            errors_with(&config, &one, &[step], &[])
        };
        assert_eq!(errors([3, 3]), Vec::<String>::new());
        let wrong = errors([2, 3]);
        assert!(wrong.len() == 1 && wrong[0].contains("dropped other copies"), "{wrong:?}");
    }

    /// A step counts if one rank's own losses and norms stay within an eighth of the bounds, and so
    /// do all before it.
    #[test]
    fn a_step_tells_until_roundings_have_grown() {
        let calm = Drift { loss: 1e-4, norm: 1e-3, balancing: 1e-3, others: 3 };
        let of = |drift: &[Drift]| {
            let losses = vec![4.0; 3];
            steady(&OneRank { losses, drift: drift.to_vec(), ..OneRank::default() }, 1e-3, 1e-2)
        };
        assert_eq!([of(&[]), of(&[calm; 3])], [3, 3]);
        for grown in [
            Drift { loss: 1.3e-4, ..calm },
            Drift { norm: 1.3e-3, ..calm },
            Drift { balancing: 1.3e-3, ..calm },
            Drift { loss: f64::NAN, ..calm },
            Drift { norm: f64::NAN, ..calm },
            Drift::WITHOUT_END,
        ] {
            assert_eq!(of(&[calm, calm, grown]), 2);
            assert_eq!(of(&[calm, grown, calm]), 1);
            assert_eq!(of(&[grown; 3]), 1, "the first loss is of no gradients");
        }
    }

    /// In bf16 a loss is one rank's while roundings are small; later losses and choices say nothing
    /// of the ranks.
    #[test]
    fn losses_and_choices_are_compared_while_roundings_are_small() {
        let (one, taken) = right();
        let config = Config { precision: Precision::Bf16, ..config() };
        let sent = (taken.sent - 2 * bytes_of_counts(2, 2, 1)) / 2 + 2 * bytes_of_counts(2, 2, 1);
        let taken = Taken { sent, all_sent: sent + 100, ..taken };
        let errors = |drift: [Drift; 2], off: usize, change: fn(&mut Taken)| {
            let mut steps = vec![taken.clone(); 2];
            change(&mut steps[off]);
            let one = OneRank {
                losses: vec![4.0; 2],
                norms: vec![2.0; 2],
                balancing: vec![1.0; 2],
                drift: drift.to_vec(),
                ..one.clone()
            };
            errors_with(&config, &one, &steps, &[])
        };
        let calm = Drift { others: 1, ..Drift::default() };
        let grown = Drift { loss: 0.1, others: 1000, ..calm };
        type Change = fn(&mut Taken);
        let wrong: [(Change, &str); 3] = [
            (|step| step.loss = 4.1, "trained a different model"),
            (|step| step.norm = 2.1, "norms or balancing losses"),
            (|step| step.others = 17, "would choose other experts"),
        ];
        for (change, says) in wrong {
            for (drift, off) in [([calm; 2], 0), ([calm; 2], 1), ([calm, grown], 0)] {
                let errors = errors(drift, off, change);
                assert!(errors.len() == 1 && errors[0].contains(says), "{says}: {errors:?}");
            }
            assert_eq!(errors([calm, grown], 1, change), Vec::<String>::new(), "{says}");
        }
        // Eight times the most that was measured, and no more.
        assert_eq!(errors([calm; 2], 1, |step| step.others = 16), Vec::<String>::new());
    }

    #[test]
    fn a_training_is_compared_to_its_end() {
        let (_, taken) = right();
        let after = |change: fn(&mut Taken)| {
            let mut steps = vec![taken.clone(); ENOUGH];
            steps.iter_mut().for_each(change);
            errors_of_training(&steps)
        };
        assert_eq!(after(|_| ()), Vec::<String>::new());
        for (errors, says) in [
            (after(|step| step.loss = f64::NAN), "trained a different model"),
            (after(|step| step.loss = 4.001), "trained a different model"),
            (after(|step| step.norm = 2.1), "norms or balancing losses"),
            (after(|step| step.balancing = f64::NAN), "norms or balancing losses"),
            (after(|step| step.counted[0] -= 1), "loads were counted"),
            (after(|step| step.sent -= 1), "ranks sent other bytes"),
            (after(|step| step.all_sent -= 1), "ranks sent other bytes"),
            (
                after(|step| step.copies = vec![vec![0, 0, 0, 192]; 2]),
                "an expert gets 4.00 times",
            ),
        ] {
            assert!(errors.len() == 1 && errors[0].contains(says), "{says}: {errors:?}");
        }
        // One rank's own fullest expert has more than half of that.
        assert_eq!(after(|step| step.copies[1] = vec![0, 96]), Vec::<String>::new());
        assert_eq!(errors_of_training(&[]).len(), 2, "a training that took no step");
    }
}
