//! Do all stages train one model, and do they hold and send what the formulas say?

use super::job::Job;
use super::limit::ensure_padding_is_little;
use super::measured::Measured;
use kit::Checks;
use kit::show::{Screen, explained};
use shardlab::comm::Comm;
use shardlab::difference::{largest_difference, largest_relative_difference, same_bits};
use shardlab::parallel::zero::Stage;
use shardlab::train::{Config, clip_scale};

/// Compares each stage with the first that it must equal to the bit; or, if there is none, with the
/// first of all.
pub fn compare(
    checks: &mut Checks,
    comm: &Comm,
    all: &[Measured],
    bound: f64,
    accumulates: bool,
    tiles: bool,
) {
    for (i, other) in all.iter().enumerate().skip(1) {
        // An MPI library adds in its own order, which differs between collectives.
        let may_differ = |first: &&Measured| {
            !comm.adds_in_rank_order() || may_differ(first.stage, other.stage, accumulates, tiles)
        };
        let equal = all[..i].iter().find(|first| !may_differ(first));
        let first = equal.unwrap_or(&all[0]);
        let apart = largest_difference(&first.losses, &other.losses);
        let same = first.hash == other.hash && same_bits(&first.losses, &other.losses);
        let result = match apart {
            _ if same => "bitwise equal".into(),
            0.0 => "equal losses, different parameters".into(),
            _ => format!("losses differ by {apart:.0e}"),
        };
        let sound = same || (equal.is_none() && apart < bound);
        let what = format!(
            "stage {} trains what stage {} trains",
            other.stage.number(),
            first.stage.number()
        );
        checks.check(
            sound,
            &what,
            &result,
            &format!("stage {} trained something else", other.stage.number()),
        );
    }
}

/// Checks that every rank clips by the norm of all gradients, which every rank of stage 0 has.
pub fn check_norms(checks: &mut Checks, screen: &Screen, all: &[Measured], clip: f64) {
    let expected = all[0].norms[0];
    let norms = || all.iter().flat_map(|measured| measured.norms.iter().copied());
    // Stages may add up in different orders.
    let of_all_ranks = vec![expected; all[0].norms.len()];
    let off = |one: &Measured| largest_relative_difference(&one.norms, &of_all_ranks);
    let sound = all.iter().all(|one| off(one) < 0.01);
    let result = if sound {
        format!("{expected:.4}")
    } else {
        let least = norms().fold(f64::INFINITY, f64::min);
        let most = norms().fold(0.0, f64::max);
        format!("expected {expected:.4}, found {least:.4} to {most:.4}")
    };
    checks.check(
        sound,
        "every rank clips by the same norm",
        &result,
        "ranks clipped by different norms",
    );
    if sound {
        return;
    }
    let cell =
        |norm: &f64| format!("{norm:.4}, x {:.3}", clip_scale(*norm, clip).unwrap_or(f32::NAN));
    let row = |rank: usize| {
        let mut row = vec![rank.to_string()];
        row.extend(all.iter().map(|measured| cell(&measured.norms[rank])));
        row
    };
    let mut heads = vec!["rank".to_string()];
    heads.extend(all.iter().map(|measured| format!("stage {}", measured.stage.number())));
    let words = format!(
        "Norm in the first step, and the factor by which the rank scales its gradients. Expected on every rank: {}.",
        cell(&expected)
    );
    let rows = (0..all[0].norms.len()).map(row);
    screen.say(format!("\n{}\n", explained(screen, &heads, rows, &words)));
}

/// Checks what ranks hold and send against the formulas, and against what a rank may hold, in MB.
pub fn check_memory(
    checks: &mut Checks,
    config: &Config,
    all: &[Measured],
    job: &Job,
    limit: Option<f64>,
) {
    // The formulas leave padding out, and padding counts if the model is too small for so many
    // ranks.
    if ensure_padding_is_little(config).is_ok() {
        let matching = all.iter().filter(|measured| measured.matches_formula(job));
        checks.check_all(
            matching.count(),
            all.len(),
            "memory and bytes are within 1% of the formulas",
            "a formula is off",
        );
    }
    if job.muons > 0 {
        let whole = |one: &Measured| {
            let copies = if one.stage == Stage::Ddp { job.ranks as u64 } else { 1 };
            one.owned.iter().sum::<u64>() == copies * job.muons
        };
        checks.check_all(
            all.iter().filter(|one| whole(one)).count(),
            all.len(),
            "every matrix is whole on one rank, or on all in stage 0",
            "a matrix is nobody's, or has several owners",
        );
    }
    if let Some(limit) = limit {
        let held = all.iter().map(|one| &one.held);
        let held = held.map(|held| held.parameters + held.gradients + held.optimizer);
        let most = held.max().unwrap_or(0);
        let result = format!("{:.2} of {limit} MB", most as f64 / 1e6);
        checks.check(
            most as f64 <= limit * 1e6,
            "every rank stays within its memory",
            &result,
            "a rank holds too much",
        );
    }
}

/// Whether two stages add up in different orders, and so may differ in the last bits.
fn may_differ(a: Stage, b: Stage, accumulates: bool, tiles: bool) -> bool {
    // Stages 2 and 3 average in every micro-step, and then add up. Stage 3 alone has tiles.
    (accumulates && (a < Stage::Two) != (b < Stage::Two))
        || (tiles && (a == Stage::Three) != (b == Stage::Three))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::difference::damaged;
    use shardlab::parallel::zero::MemoryUsage;

    fn measured(losses: Vec<f64>, norms: Vec<f64>, hash: u64) -> Measured {
        let stage = Stage::One;
        let held = MemoryUsage::default();
        let (owned, update) = (vec![0], 0.0);
        Measured {
            stage,
            losses,
            hash,
            norms,
            held,
            sent: 0.0,
            formula: 0.0,
            owned,
            update,
        }
    }

    fn failures(check: impl FnOnce(&mut Checks, &Screen)) -> usize {
        let screen = Screen::plain();
        let mut checks = Checks::new(&screen);
        check(&mut checks, &screen);
        checks.failed().len()
    }

    #[test]
    fn a_stage_without_a_loss_or_a_norm_is_not_the_same_as_a_good_one() {
        let losses = [3.0, 2.0];
        let norms = [0.5, 0.5, 0.5];
        // Micro-steps: stages 1 and 2 may add in different orders, so that losses decide.
        let compared = |first: Measured, mut other: Measured, accumulates: bool| {
            other.stage = Stage::Two;
            let all = [first, other];
            failures(|checks, _| compare(checks, &Comm::alone(), &all, 1e-5, accumulates, false))
        };
        let with = |losses: &[f64]| measured(losses.to_vec(), norms.to_vec(), 7);
        assert_eq!(compared(with(&losses), with(&losses), false), 0);
        assert_eq!(
            compared(with(&losses), measured(vec![3.0, 2.000001], norms.to_vec(), 8), true),
            0
        );
        for accumulates in [false, true] {
            for bad in damaged(&losses) {
                assert_eq!(compared(with(&losses), with(&bad), accumulates), 1, "{bad:?}");
                assert_eq!(compared(with(&bad), with(&losses), accumulates), 1, "{bad:?}");
                assert_eq!(
                    compared(with(&bad), with(&bad), accumulates),
                    usize::from(bad.len() != 1),
                    "{bad:?}"
                );
            }
        }
        let checked = |bad: &[f64]| {
            let all = [with(&losses), measured(losses.to_vec(), bad.to_vec(), 7)];
            failures(|checks, screen| check_norms(checks, screen, &all, 1.0))
        };
        assert_eq!(checked(&norms), 0);
        // A table of the norms needs as many as there are ranks.
        for bad in damaged(&norms).into_iter().filter(|bad| bad.len() == norms.len()) {
            assert_eq!(checked(&bad), 1, "{bad:?}");
        }
    }

    /// What is sent or held against the formulas, and against what a rank may hold.
    #[test]
    fn bytes_that_are_no_number_or_too_few_are_not_the_formulas() {
        let config = Config::small(2, &shardlab::data::Corpus::embedded().unwrap());
        let job = Job::of(&config, &config.zero(Stage::One));
        let failed = |change: fn(&mut Measured), limit: Option<f64>| {
            let mut one = measured(vec![1.0], vec![1.0], 7);
            let each = one.beside_formula(&job).map(|(_, _, bytes)| bytes as usize);
            let held = &mut one.held;
            [held.parameters, held.gradients, held.optimizer] = each;
            (one.sent, one.formula) = (1e6, 1e6);
            change(&mut one);
            failures(|checks, _| check_memory(checks, &config, &[one], &job, limit))
        };
        assert_eq!(failed(|_| (), Some(1e3)), 0);
        assert_eq!(failed(|one| one.sent = f64::NAN, None), 1);
        assert_eq!(failed(|one| one.sent = 0.9e6, None), 1);
        assert_eq!(failed(|one| one.formula = f64::NAN, None), 1);
        assert_eq!(failed(|one| one.held.optimizer = 0, None), 1);
        assert_eq!(failed(|_| (), Some(1e-3)), 1);
    }
}
