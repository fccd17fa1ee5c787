//! HSDP: groups of ranks that shard, beside one group of all ranks.

use super::grouped::Grouped;
use super::groups_shown::show;
use super::lab::Lab;
use super::measured::{Measured, agree, hash};
use super::tree::{OneRank, one_rank};
use crate::flags::Break;
use anyhow::Result;
use kit::{Checks, parity, progress};
use shardlab::comm::{Comm, Reduce};
use shardlab::difference::largest_difference;
use shardlab::launch;
use shardlab::parallel::zero::Mistake;
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::tensor::Precision;
use shardlab::train::Setup;

/// One rank's part: the trainings, what they held and sent, and the checks.
pub fn compare_groups(lab: &Lab, comm: &Comm, checks: &mut Checks) -> Result<()> {
    let Lab { config, strategy, run, .. } = lab;
    let one = if comm.rank() == 0 {
        progress(comm, || "one rank that adds as groups do".into());
        Some(one_rank(config, strategy, &lab.corpus.train)?)
    } else {
        None
    };
    let whole = Strategy { replicas: 1, ..*strategy };
    let all = [
        train(lab, comm, &whole, None)?,
        train(lab, comm, strategy, mistake(lab.args.broken))?,
    ];
    if let Some(one) = one {
        show(lab, &all);
        run.screen.say("");
        check(lab, &all, one, checks)?;
        checks.end_with("More: --grad-accum 2, --break norm-over-all, --link-between 1ms,50MB/s");
    }
    Ok(())
}

fn train(lab: &Lab, comm: &Comm, strategy: &Strategy, mistake: Option<Mistake>) -> Result<Grouped> {
    let Lab { config, zero, .. } = lab;
    let overlap = zero.overlap && mistake.is_none();
    let mut training = Setup::new(config, strategy)
        .zero(ZeroConfig { mistake, overlap, ..zero.clone() })
        .init_from(lab.args.train.model.init_from.as_deref())
        .begin(comm)?;
    let [mut losses, mut norms, mut seconds] = [const { Vec::new() }; 3];
    let mut sent = [0; 2];
    for step in 0..config.steps {
        progress(comm, || format!("{strategy}: step {} of {}", step + 1, config.steps));
        let replicas = training.replicas.clone();
        let read = || {
            [Some(replicas.of(false)), replicas.between()]
                .map(|group| group.map_or(0, |group| group.traffic().bytes))
        };
        let before = read();
        let taken = training.step(&lab.corpus.train, step)?;
        let after = read();
        sent = [0, 1].map(|i| after[i] - before[i]);
        losses.push(taken.loss);
        norms.push(taken.grad_norm);
        let times = taken.computed.times;
        seconds.push((times.updated - times.begun).as_secs_f64());
    }
    comm.all_reduce(&mut seconds, Reduce::Max)?;
    seconds.drain(..1.min(seconds.len() - 1));
    seconds.sort_by(f64::total_cmp);
    let mut means = sent.map(|bytes| bytes as f64);
    comm.all_reduce(&mut means, Reduce::Mean)?;
    let stage = strategy.zero;
    let sent = sent.iter().sum();
    let measured = Measured::look(comm, stage, &mut training.zero, losses, norms[0], sent)?;
    let between_formula = training.zero.bytes_between();
    Ok(Grouped {
        strategy: *strategy,
        inside: means[0],
        between: means[1],
        inside_formula: measured.formula - between_formula,
        between_formula,
        seconds: seconds[seconds.len() / 2],
        hashes: comm.gathered(&[measured.hash])?,
        measured,
    })
}

/// Do groups train what one rank trains, by one norm, and do they hold and send what the formulas
/// say?
fn check(
    lab: &Lab,
    [whole, grouped]: &[Grouped; 2],
    mut one: OneRank,
    checks: &mut Checks,
) -> Result<()> {
    let Lab { config, strategy, .. } = lab;
    let groups = strategy.replicas;
    let in_rank_order = !launch::is_mpi();
    let bound = parity::loss_bound(parity::rounds(config));
    let apart = |of: &Grouped| largest_difference(&of.measured.losses, &one.losses);
    // Two ranks add in one order over every transport. What is rounded to bf16 on its way, one rank
    // rounds elsewhere.
    let bits = config.reduce == Precision::F32
        && (in_rank_order || strategy.shard_ranks().max(groups) <= 2);
    let [off, of_whole] = [grouped, whole].map(apart);
    let same = grouped.measured.hash == hash(&mut one.training.zero)?;
    let result = match same {
        true => "bitwise equal".to_string(),
        false if off == 0.0 => "equal losses, different parameters".into(),
        false => format!("losses differ by {off:.0e}"),
    };
    checks.check(
        (same || !bits) && off < bound,
        &format!("{groups} groups train what one rank trains"),
        &result,
        "groups trained something else",
    );
    checks.check(
        of_whole < bound,
        "one group of all ranks trains the same",
        &match of_whole {
            0.0 => "equal losses".to_string(),
            off => format!("losses within {off:.0e}"),
        },
        "one group trained something else",
    );
    let expected = one.norms[0];
    let norms = &grouped.measured.norms;
    let other = norms.iter().find(|&norm| !agree(*norm, expected));
    let result = match other {
        None => format!("{expected:.4}"),
        Some(norm) => format!("expected {expected:.4}, found {norm:.4}"),
    };
    checks.check(
        other.is_none(),
        "every rank clips by one replica's norm",
        &result,
        "ranks clipped by another norm",
    );
    let hashes: Vec<String> = grouped.hashes.iter().map(|hash| format!("{hash:016x}")).collect();
    checks.one_model(&hashes);
    let matching = [whole, grouped].into_iter().filter(|of| {
        let [holds, predicted] = of.holds(lab);
        let sent = (of.inside, of.inside_formula);
        agree(holds, predicted) && agree(sent.0, sent.1) && agree(of.between, of.between_formula)
    });
    checks.check_all(
        matching.count(),
        2,
        "memory and bytes are within 1% of the formulas",
        "a formula is off",
    );
    Ok(())
}

/// The mistakes that only groups can make.
fn mistake(broken: Option<Break>) -> Option<Mistake> {
    match broken {
        Some(Break::NormOverAll) => Some(Mistake::NormOverAll),
        Some(Break::AccumulateLate) => Some(Mistake::AccumulateLate),
        _ => None,
    }
}
