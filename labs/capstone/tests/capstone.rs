//! The trainer's promises: it learns, a kill costs nothing, and a wrong part is named.

use capstone::culprit::Search;
use capstone::parts::mlp::SequenceMlp;
use capstone::parts::scaler::Scaler;
use capstone::parts::{
    Counters, Files, Whose, batches, load, mlp, norm, order, ring, scaler, schedule, skip,
};
use capstone::plan::COMPARED;
use capstone::run::Setting;
use capstone::{Part, Parts, Plan, Story, screen};
use kit::show::Screen;
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Corpus;
use shardlab::tensor::Tensor;
use std::path::Path;

/// Trains with some parts exchanged.
fn story(plan: &Plan, yours: &Parts, have: &[Part], out: &Path) -> Story {
    let corpus = Corpus::embedded().unwrap();
    let setting = Setting {
        plan,
        text: &corpus.train,
        yours,
        child: None,
        each: &|_, _| (),
    };
    let versions = Part::ALL.map(|part| match have.contains(&part) {
        true => Whose::Yours,
        false => Whose::Library,
    });
    Story::live(&setting, &versions, &corpus, out, &|_| ())
}

fn quick() -> Plan {
    Plan::quick(&Corpus::embedded().unwrap())
}

/// Rounds elsewhere than the library: the exact gelu's other formula, and a clip factor with
/// PyTorch's small number.
fn rounding() -> Parts {
    fn step(scaler: &mut Scaler, gradients: &mut [f32], clip: f64) -> Option<f64> {
        scaler::library(scaler, gradients, clip * (1.0 - 1e-6))
    }
    fn forward(
        comm: &Comm,
        a: &Tensor,
        b: &Tensor,
        x: &Tensor,
    ) -> shardlab::Result<(Tensor, Vec<Tensor>)> {
        let (z, kept) = (mlp::LIBRARY.forward)(comm, a, b, x)?;
        // Another order of additions: by halves of the hidden layer.
        let h = kept[1].gelu_erf()?;
        let half = h.dim(1)? / 2;
        let part = |at| {
            h.narrow(1, at, half)?
                .contiguous()?
                .matmul(&b.narrow(0, at, half)?.contiguous()?)
        };
        let summands = (part(0)? + part(half)?)?;
        let mut mine = vec![0.0; z.elem_count()];
        comm.reduce_scatter(&summands.flatten_all()?.to_vec1::<f32>()?, &mut mine, Reduce::Sum)?;
        Ok((Tensor::from_vec(mine, z.shape(), z.device())?, kept))
    }
    Parts {
        scaler: step,
        mlp: SequenceMlp { forward, ..mlp::LIBRARY },
        ..Parts::library()
    }
}

/// Parts that are right in small tests, and wrong in this run.
mod wrong {
    use super::*;

    /// In long vectors the last number is not added.
    pub fn ring(comm: &Comm, data: &mut [f32]) -> shardlab::comm::Result<()> {
        let long = data.len() > 1000;
        let last = data.last().copied();
        ring::library(comm, data)?;
        if let (true, Some(last), [.., end]) = (long, last, data) {
            *end = last;
        }
        Ok(())
    }

    /// The cosine begins anew.
    pub fn schedule(schedule: &schedule::Schedule, step: usize) -> f64 {
        schedule::library(schedule, if step > 5 { step - 5 } else { step })
    }

    pub fn panics(schedule: &schedule::Schedule, step: usize) -> f64 {
        assert!(step < 11, "no such rate");
        schedule::library(schedule, step)
    }

    /// Counts padding.
    pub fn norm(
        comm: &Comm,
        shard: &[f32],
        _padding: usize,
        replicated: &[f32],
    ) -> shardlab::comm::Result<Option<f64>> {
        norm::library(comm, shard, 0, replicated)
    }

    /// Where a parameter goes on in the next file, it begins there one number too late.
    pub fn load(
        files: &mut dyn Files,
        sizes: &[usize],
        rank: usize,
        ranks: usize,
    ) -> Vec<Vec<f32>> {
        struct Late<'a>(&'a mut dyn Files);
        impl Files for Late<'_> {
            fn ranks(&self) -> usize {
                self.0.ranks()
            }
            fn numel(&self) -> usize {
                self.0.numel()
            }
            fn read(&mut self, rank: usize, range: std::ops::Range<usize>) -> Vec<f32> {
                if rank > 0 && range.start == 0 {
                    return self.0.read(rank, 1..range.end + 1);
                }
                self.0.read(rank, range)
            }
        }
        load::library(&mut Late(files), sizes, rank, ranks)
    }

    /// The last backward pass is missing, if there are more than three.
    pub fn order(rank: usize, ranks: usize, micro: usize) -> Vec<shardlab::parallel::pipeline::Op> {
        let mut order = order::library(rank, ranks, micro);
        order.truncate(2 * micro - usize::from(micro > 3));
        order
    }

    /// A skipped step counts one micro-batch too few.
    pub fn skip(run: &skip::Run, counters: &mut Counters, trainer: &mut dyn skip::Trainer) {
        let skipped = run.skip.contains(&(counters.global_steps + 1));
        skip::library(run, counters, trainer);
        counters.global_samples -= usize::from(skipped) * run.batch;
    }

    /// Counts a rank's own sequences, and finds its place by the number of steps: right until the
    /// ranks are others.
    pub fn counts(run: &skip::Run, counters: &mut Counters, trainer: &mut dyn skip::Trainer) {
        let of_rank = run.accumulation * run.batch;
        let mut seen = Counters {
            global_samples: counters.global_samples * run.ranks,
            ..*counters
        };
        let before = counters.global_samples;
        skip::library(run, &mut seen, trainer);
        *counters = Counters { global_samples: before + of_rank, ..seen };
    }

    /// From micro-batch 20 on both ranks draw the same.
    pub fn drawn(draw: &batches::Draw, rank: usize, step: usize) -> Vec<usize> {
        batches::library(draw, if step < 20 { rank } else { 0 }, step)
    }
}

/// Names the wrong parts of a trainer in which all parts are the reader's.
fn named(yours: &Parts) -> Vec<(Part, usize, usize)> {
    let out = tempfile::tempdir().unwrap();
    let story = story(&quick(), yours, &Part::ALL, out.path());
    let search = story.beside.unwrap().search;
    assert_eq!(search.unexplained, None);
    let culprits = search.culprits.into_iter();
    culprits
        .map(|culprit| (culprit.part, culprit.shows.life, culprit.shows.step))
        .collect()
}

#[test]
fn the_librarys_parts_train() {
    let out = tempfile::tempdir().unwrap();
    let story = story(&quick(), &Parts::library(), &[], out.path());
    assert!(story.checks.iter().all(|check| check.passed), "{:?}", story.checks);
    assert!(story.beside.is_none());
}

#[test]
fn right_parts_train_the_same_bits() {
    let out = tempfile::tempdir().unwrap();
    let story = story(&quick(), &Parts::library(), &Part::ALL, out.path());
    let beside = story.beside.unwrap();
    assert_eq!((beside.difference, beside.search), (None, Search::default()));
    assert!(beside.apart.iter().all(|losses| losses.steps > 0 && losses.equal));
    // Sixteen steps teach no word.
    assert_eq!(story.text, None);
}

#[test]
fn parts_that_round_elsewhere_are_right() {
    assert_eq!(named(&rounding()), []);
}

#[test]
fn a_wrong_part_is_named() {
    let plan = quick();
    let (saved, poison) = (plan.saved(), plan.poison);
    let library = Parts::library();
    let ring = Parts { ring: wrong::ring, ..library };
    assert_eq!(named(&ring), [(Part::Ring, 1, plan.save_every)]);
    let schedule = Parts { schedule: wrong::schedule, ..library };
    assert_eq!(named(&schedule), [(Part::Schedule, 1, 7)]);
    let panics = Parts { schedule: wrong::panics, ..library };
    // The rank that panics in step 12 may end the run before the others have told of step 11.
    let found = named(&panics);
    assert!(
        [11, 12].map(|step| vec![(Part::Schedule, 2, step)]).contains(&found),
        "{found:?}"
    );
    let norm = Parts { norm: wrong::norm, ..library };
    assert_eq!(named(&norm), [(Part::Norm, 1, 1)]);
    let load = Parts { load: wrong::load, ..library };
    assert_eq!(named(&load), [(Part::Load, 2, saved + 1)]);
    let order = Parts { order: wrong::order, ..library };
    assert_eq!(named(&order), [(Part::Order, 2, saved + 1)]);
    let skip = Parts { skip: wrong::skip, ..library };
    assert_eq!(named(&skip), [(Part::Skip, 2, poison + 1)]);
    // Seen only where the next life begins.
    let counts = Parts { skip: wrong::counts, ..library };
    assert_eq!(named(&counts), [(Part::Skip, 2, saved + 1)]);
    let batches = Parts { batches: wrong::drawn, ..library };
    assert_eq!(named(&batches), [(Part::Batches, 2, 11)]);
}

/// A long run writes, and is not compared: rounding alone would make it another one.
#[test]
fn a_long_run_is_not_judged_by_rounding() {
    let long = Plan::of_steps(quick().config, COMPARED + 1);
    assert!(quick().is_compared() && !long.is_compared());
    let out = tempfile::tempdir().unwrap();
    let story = story(&long, &rounding(), &Part::ALL, out.path());
    assert!(story.beside.is_none());
    assert_eq!(story.text.as_ref().unwrap().chars().count(), 8 + 320);
    let text = screen::text(&story, &long, &Screen::plain());
    assert!(text.contains("not compared with the library's"), "{text}");
}

/// A screen with everything on it, in 80 columns.
#[test]
fn the_screen_has_80_columns() {
    let out = tempfile::tempdir().unwrap();
    let yours = Parts { norm: wrong::norm, schedule: wrong::panics, ..rounding() };
    let story = story(&quick(), &yours, &Part::ALL, out.path());
    let plain = Screen::plain();
    for ascii in [false, true] {
        let text = screen::text(&story, &quick(), &Screen { ascii, ..plain.clone() });
        println!("{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(!ascii || text.is_ascii());
        assert!(text.contains("no such rate"));
    }
}

#[test]
fn two_wrong_parts_are_named() {
    let yours = Parts {
        load: wrong::load,
        schedule: wrong::schedule,
        ..Parts::library()
    };
    let named = named(&yours);
    assert_eq!(named[0], (Part::Schedule, 1, 7));
    assert_eq!(named[1].0, Part::Load);
    assert_eq!(named.len(), 2);
}

/// Every part can be left out: the run ends, with an answer.
#[test]
fn without_a_part_there_is_an_answer() {
    let corpus = Corpus::embedded().unwrap();
    let plan = quick();
    let setting = Setting {
        plan: &plan,
        text: &corpus.train,
        yours: &Parts::library(),
        child: None,
        each: &|_, _| (),
    };
    for part in Part::ALL {
        let out = tempfile::tempdir().unwrap();
        let mut versions = [Whose::Library; Part::ALL.len()];
        versions[part as usize] = Whose::Without;
        let story = Story::live(&setting, &versions, &corpus, out.path(), &|_| ());
        let beside = story.beside.unwrap();
        // GPipe trains what 1F1B trains.
        assert_eq!(beside.difference.is_none(), part == Part::Order, "{part:?}");
        assert_eq!(beside.search, Search::default());
    }
}

/// The program kills itself, in the middle of its first life.
#[test]
fn a_killed_process_goes_on() {
    let out = tempfile::tempdir().unwrap();
    let program = std::process::Command::new(env!("CARGO_BIN_EXE_capstone"))
        .args(["--quick", "--json", "--out"])
        .arg(out.path())
        .output()
        .unwrap();
    assert!(program.status.success(), "{}", String::from_utf8_lossy(&program.stderr));
    let story: Story = serde_json::from_slice(&program.stdout).unwrap();
    assert!(story.run.life1.killed && !story.run.life2.killed);
    assert_eq!(story.run.life1.steps.len(), quick().killed_after);
}

/// A job that is killed on a login node leaves no life behind, not even one that waits.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_trainer_leaves_no_life_behind() {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().join("yours").display().to_string();
    // The processes that save in this folder.
    let lives = || -> Vec<String> {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let is_life = |process: &std::fs::DirEntry| {
            let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).into_owned();
            words.contains("--life") && words.contains(&folder)
        };
        let lives = all.filter(is_life);
        lives.map(|process| process.file_name().into_string().unwrap()).collect()
    };
    let until = |ready: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !ready() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        ready()
    };
    let signal = |name: &str, process: &str| {
        let kill = Command::new("kill").args([name, process]).status();
        assert!(kill.unwrap().success());
    };
    let mut trainer = Command::new(env!("CARGO_BIN_EXE_capstone"))
        .args(["--quick", "--out"])
        .arg(out.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(until(&|| !lives().is_empty()), "it starts a life");
    let life = lives().swap_remove(0);
    signal("-STOP", &life);
    trainer.kill().unwrap();
    trainer.wait().unwrap();
    let is_gone = until(&|| lives().is_empty());
    if !is_gone {
        signal("-KILL", &life);
    }
    assert!(is_gone, "life {life} is still there");
}

/// How far rounding drives two right trainers apart. It prints what the bounds are about.
#[test]
#[ignore = "trains the whole story twice: a minute or two"]
fn rounding_stays_within_the_bounds() {
    let plan = Plan::story(&Corpus::embedded().unwrap());
    let out = tempfile::tempdir().unwrap();
    for have in [&[Part::Scaler][..], &[Part::Mlp]] {
        let story = story(&plan, &rounding(), have, out.path());
        let beside = story.beside.as_ref().unwrap();
        for ((life, mine), (_, right)) in story.run.steps().zip(beside.run.steps()).step_by(6) {
            let step = mine.step;
            if let (Some(mine), Some(right)) = (mine.trained, right.trained) {
                println!(
                    "life {life} step {step}: loss {:.1e}, norm {:.1e}",
                    (mine.loss - right.loss).abs(),
                    (mine.norm.unwrap() / right.norm.unwrap() - 1.0).abs()
                );
            }
        }
        println!("{:?} {:?}", beside.apart, beside.difference);
        assert_eq!(beside.difference, None);
    }
}
