//! lab03 as its users start it: files, parity with a serial program, exit codes.

use crate::suite::program::{ROOT, failed, lab_in, passes, program, stderr, stdout, succeeded};
use kit::show::profile::of_rank;
use kit::show::{Activity, Screen, Timeline};
use std::path::Path;
use std::process::Command;

/// Flags of a run that takes a second.
const TINY: &str = "--layers 1 --heads 2 --embd 16 --block 16 --batch 2 --eval-interval 4 --eval-iters 2 --log-interval 2 --warmup 2";

#[track_caller]
fn succeeds(dir: &Path, flags: &str) -> String {
    succeeded(&lab_in(dir, "lab03", flags))
}

#[track_caller]
fn fails(dir: &Path, flags: &str, code: i32, what: &str) -> String {
    failed(&lab_in(dir, "lab03", flags), code, what)
}

#[cfg(target_os = "linux")]
#[test]
fn a_limit_of_memory_is_an_error_and_no_abort() {
    for (program, flags) in
        [(program("lab02"), ""), (program("lab03"), ""), (program("lab04"), "--steps 1")]
    {
        let script = format!("ulimit -v 300000; exec {program} {flags}");
        let output = Command::new("sh")
            .args(["-c", &script])
            .env_remove("SHARDLAB_CORPUS")
            .output()
            .unwrap();
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{program}: {error}");
        assert!(
            error.contains(" are free (`ulimit -v` limits this process to 307 MB)\nhelp: "),
            "{program}: {error}"
        );
    }
}

/// Overfitting, and a run of two steps, are no faults of a lab: only a loss that rose on what was
/// trained on is one.
#[test]
fn a_run_on_the_readers_own_text_says_what_became_of_it() {
    let dir = tempfile::tempdir().unwrap();
    // Letters of a generator: nothing but their frequencies is the same in both splits.
    let mut state: u32 = 1;
    let mut letter = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + (state >> 24) as u8 % 26)
    };
    let text: String = (0..400).map(&mut letter).collect();
    std::fs::write(dir.path().join("letters"), text).unwrap();
    let own = "--data letters --layers 1 --heads 2 --embd 32 --block 16 --batch 8 --eval-iters 4";
    let flat = |screen: String| screen.split_whitespace().collect::<Vec<_>>().join(" ");

    let screen = flat(succeeds(dir.path(), &format!("{own} --steps 150 --lr 0.01 --out heart")));
    assert!(screen.contains("note learned by heart: the training loss fell, "), "{screen}");
    assert!(screen.contains(" on 40 characters; a longer text"), "{screen}");
    let notes = screen.matches("note validation is 40 characters of letters").count();
    assert_eq!(notes, 1, "{screen}");
    assert!(dir.path().join("heart/model.safetensors").is_file());

    let screen = flat(succeeds(dir.path(), &format!("{own} --steps 2 --lr 1e-9 --out few")));
    assert!(screen.contains("note too few steps to tell: "), "{screen}");
    assert!(dir.path().join("few/model.safetensors").is_file());

    let what = "the training loss rose: lower --lr";
    fails(dir.path(), &format!("{own} --steps 40 --lr 9 --warmup 1 --out rose"), 1, what);
    assert!(!dir.path().join("rose/model.safetensors").exists());

    // What a run began with has the lower validation loss, and stays.
    let weights = |folder: &str| std::fs::read(dir.path().join(folder).join("model.safetensors"));
    let before = weights("few").unwrap();
    let on = "--data letters --batch 8 --eval-iters 4 --init-from few --steps 150 --lr 0.01";
    let screen = flat(succeeds(dir.path(), &format!("{on} --out few")));
    assert!(screen.contains("note learned by heart"), "{screen}");
    assert!(weights("few").unwrap() == before);
    let one = "--data letters --batch 8 --eval-iters 4 --init-from few --steps 1 --lr 1e-9";
    let screen = succeeds(dir.path(), &format!("{one} --out few"));
    assert!(screen.contains("loss fell") || weights("few").unwrap() == before, "{screen}");
    succeeds(dir.path(), &format!("{on} --out other"));
    assert!(weights("other").is_ok());

    let what = "the validation loss did not fall";
    fails(dir.path(), &format!("{TINY} --steps 1 --lr 1e-9 --out play"), 1, what);
}

#[test]
fn a_run_writes_its_figures_and_its_weights() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("m.jsonl"), "from an earlier run").unwrap();
    succeeds(dir.path(), &format!("{TINY} --steps 6 --metrics m.jsonl --out o --all"));
    let metrics = std::fs::read_to_string(dir.path().join("m.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> =
        metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines.iter().map(|l| l["step"].as_u64().unwrap()).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6]
    );
    for line in &lines {
        let evaluated = [4, 6].contains(&line["step"].as_u64().unwrap());
        let number = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name} in {line}"));
        for name in ["loss", "dt", "dtf", "dtb", "mfu", "grad_norm", "lr"] {
            assert!(number(name) > 0.0, "{name} in {line}");
        }
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{line}");
        near(number("sps"), 4.0 / number("dt"));
        near(number("tps"), 16.0 * number("sps"));
        near(number("sps_per_gpu"), number("sps") / 2.0);
        near(number("tps_per_gpu"), number("tps") / 2.0);
        assert!(number("dtf") + number("dtb") <= number("dt"));
        for name in ["train_loss", "val_loss"] {
            assert_eq!(line[name].is_number(), evaluated, "{name} in {line}");
        }
    }
    assert_eq!(lines[0].as_object().unwrap().len(), 14);
    let left: Vec<_> = std::fs::read_dir(dir.path().join("o"))
        .unwrap()
        .map(|f| f.unwrap().file_name())
        .collect();
    assert_eq!(left, ["model.safetensors"]);
}

/// The bytes that are counted are those of the rounds that lab01 draws, and the checks compare the
/// model with one rank's.
#[test]
fn every_all_reduce_of_lab01_trains() {
    for algorithm in "naive ring recursive-doubling rabenseifner flat tree chain".split(' ') {
        passes("lab03", &[&format!("{TINY} --steps 8 --ranks 3 --all-reduce {algorithm}")]);
    }
}

#[test]
fn other_jobs_pass_the_checks() {
    let ranks = shardlab::launch::cores() + 1;
    for flags in [
        "--grad-accum 3 --dropout 0.2 --sampler seeds",
        "--no-overlap --all",
        "--link 100us,1GB/s",
        "--dtype bf16 --reduce-dtype bf16 --ranks 3",
        "--optimizer muon --ranks 3 --grad-accum 2",
        &format!("--log-all-ranks --ranks {ranks}"),
    ] {
        passes("lab03", &[&format!("{TINY} --steps 8 {flags}")]);
    }
}

/// The hash of a model says whether its weights have the same bits.
#[test]
fn runs_can_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let hash = || {
        let text = succeeds(dir.path(), &format!("{TINY} --steps 8 --ranks 3"));
        let mut lines = text.lines();
        lines.find(|line| line.contains("hold the same")).expect("a hash").to_string()
    };
    assert_eq!(hash(), hash());
}

/// Products in bf16 have the same bits with the processor's instruction, with fused multiply-adds
/// and without both, so the weights do. (Tiles have others.)
#[test]
fn a_run_in_bf16_needs_no_instruction() {
    let model = |simd: &str| {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(program("lab03"));
        command.current_dir(dir.path()).env("SHARDLAB_SIMD", simd);
        let flags = "--dtype bf16 --layers 1 --heads 2 --embd 48 --block 24 --batch 2 --steps 6 \
                     --eval-iters 1";
        let text = succeeded(&command.args(flags.split_whitespace()).output().unwrap());
        let line = text.lines().find(|line| line.contains("hold the same model"));
        line.expect("the model's hash").to_string()
    };
    assert_eq!(model("vectors"), model("portable"));
}

/// Two ranks with two micro-steps each, dropout and clipping, against one rank that takes each
/// step's sequences as one batch: what the lab's own loop does, from batches to the optimizer.
#[test]
fn every_step_is_the_one_that_a_serial_program_takes() {
    use shardlab::comm::Comm;
    use shardlab::data::{Batch, Corpus};
    use shardlab::model::Gpt;
    use shardlab::train::{self, AdamW};
    let flags = format!("{TINY} --steps 6 --grad-accum 2 --dropout 0.1 --clip 0.05 --seed 7");
    let dir = tempfile::tempdir().unwrap();
    succeeds(dir.path(), &format!("{flags} --metrics m.jsonl"));
    let metrics = std::fs::read_to_string(dir.path().join("m.jsonl")).unwrap();

    let corpus = Corpus::embedded().unwrap();
    let (config, eval) = super::ddp::resolved(&flags.replace("--log-interval 2", ""), 2, &corpus);
    let gpt = Gpt::new(&config.shape).unwrap();
    gpt.params.allocate(config.seed);
    let mut adamw = AdamW::new(config.adamw, &gpt.params);
    assert_eq!(metrics.lines().count(), 6);
    for (step, line) in metrics.lines().enumerate() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let near = |name: &str, expected: f64, bound: f64| {
            let got = line[name].as_f64().unwrap_or(f64::NAN);
            assert!(
                (got - expected).abs() < bound,
                "step {}: {name} is {got}, not {expected}",
                step + 1
            );
        };
        let parts = (0..2).flat_map(|micro| (0..2).map(move |rank| (micro, rank)));
        let parts: Vec<Batch> = parts
            .map(|(micro, rank)| config.sampler(rank).batch(&corpus.train, step, micro))
            .collect();
        let batch = Batch::concat(&parts);
        gpt.params.zero_gradients();
        let loss = gpt.loss(&batch, &config.pass(step, &batch.sequences)).unwrap();
        loss.backward().unwrap();
        near("loss", f64::from(loss.to_scalar::<f32>().unwrap()), 1e-5);
        let norm = train::global_norm(&gpt.params.gradients());
        near("grad_norm", norm, 1e-4 * norm);
        near("lr", config.schedule.at(step), 1e-15);
        adamw
            .step(
                &gpt.params,
                config.schedule.at(step),
                train::clip_scale(norm, config.clip).unwrap(),
            )
            .unwrap();
        if eval.due.after(step + 1) {
            let evaluate = |text| {
                train::evaluate(&gpt, &Comm::alone(), &config.sampler(0), text, eval.batches)
                    .unwrap()
            };
            near("train_loss", evaluate(&corpus.train), 1e-5);
            near("val_loss", evaluate(&corpus.validation), 1e-5);
        }
        // FLOPs a second over the peak, which is the same in every line.
        let peak = line["tps"].as_f64().unwrap() / line["mfu"].as_f64().unwrap();
        let first: serde_json::Value =
            serde_json::from_str(metrics.lines().next().unwrap()).unwrap();
        let first = first["tps"].as_f64().unwrap() / first["mfu"].as_f64().unwrap();
        assert!((peak / first - 1.0).abs() < 1e-9);
        assert!((0.01..150.0).contains(&line["mfu"].as_f64().unwrap()), "{line}");
    }
}

/// Weights are saved when they are better than all before, those of the start included; and never
/// by a broken run. What the five lines of Python on lab03's page rely on: PyTorch's names
/// (`benches/peers/gpt_torch.py`), shape and vocabulary.
#[test]
fn saved_weights_have_the_names_that_pytorch_gives() {
    let dir = tempfile::tempdir().unwrap();
    succeeds(dir.path(), &format!("{TINY} --steps 2 --out o"));
    let file = std::fs::read(dir.path().join("o/model.safetensors")).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&file).unwrap();
    let mut names: Vec<String> = header.tensors().into_keys().collect();
    names.sort();
    let block = ["fc", "ln1", "ln2", "out", "proj", "qkv"];
    let mut expected: Vec<String> = block.map(|layer| format!("blocks.0.{layer}.weight")).to_vec();
    expected.extend(["lnf.weight", "wpe.weight", "wte.weight"].map(String::from));
    assert_eq!(names, expected);
    let peer = std::fs::read_to_string(format!("{ROOT}/benches/peers/gpt_torch.py")).unwrap();
    for layer in block.into_iter().chain(["lnf", "wpe", "wte"]) {
        assert!(peer.contains(&format!("self.{layer}")), "gpt_torch.py has no {layer}");
    }
    let entries = header.metadata().clone().unwrap();
    let description: serde_json::Value = serde_json::from_str(&entries["description"]).unwrap();
    let shape = &description["shape"];
    for (name, size) in [("block", 16), ("layers", 1), ("heads", 2), ("embd", 16)] {
        assert_eq!(shape[name], size, "{name}");
    }
    let vocabulary = description["vocabulary"].as_str().unwrap();
    assert_eq!(shape["vocabulary"], vocabulary.chars().count());
}

#[test]
fn good_weights_are_not_replaced_by_worse_ones() {
    let dir = tempfile::tempdir().unwrap();
    succeeds(dir.path(), &format!("{TINY} --steps 8 --out o"));
    let weights = || std::fs::read(dir.path().join("o/model.safetensors")).unwrap();
    let good = weights();
    let worse = format!("--init-from o --out o {TINY} --steps 4 --lr 1 --min-lr 1 --clip 0");
    fails(dir.path(), &worse, 1, "the validation loss did not fall");
    assert!(weights() == good);
    fails(
        dir.path(),
        &format!("{TINY} --steps 4 --out o --break same-batches"),
        1,
        "ranks trained on the same",
    );
    assert!(weights() == good);
}

#[test]
fn the_corpus_can_come_from_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.txt");
    std::fs::write(&path, "To be\r\nor not to be, \x1b[2Jthat is the question. ".repeat(40))
        .unwrap();
    let mut lab03 = Command::new(program("lab03"));
    let output = lab03
        .current_dir(dir.path())
        .env("SHARDLAB_CORPUS", &path)
        .args(TINY.split(' '))
        .args(["--steps", "4"]);
    let text = stdout(&output.output().unwrap());
    assert!(text.contains("mine.txt") && text.contains("chars"), "{text}");
    // The default prompt has characters that this text has not: its first line is taken. Nothing
    // moves the cursor.
    assert!(text.contains("    To be"), "{text}");
    assert!(!text.contains('\r') && !text.contains('\x1b'), "{text}");
}

/// What else is refused when a run begins with weights is on lab03's screens.
#[test]
fn saved_weights_are_the_ones_that_were_evaluated() {
    let dir = tempfile::tempdir().unwrap();
    let trained = succeeds(dir.path(), &format!("{TINY} --steps 8 --out first"));
    let losses = |text: &str, step: &str| {
        let line = text.lines().find(|l| l.starts_with(&format!("{step} train_loss"))).unwrap();
        line.split("   saved").next().unwrap().split_once(' ').unwrap().1.to_string()
    };
    // The shape comes with the weights.
    let again = succeeds(dir.path(), "--init-from first --eval-only --batch 2 --eval-iters 2");
    assert_eq!(losses(&again, "step=0"), losses(&trained, "step=8"));
    std::fs::write(dir.path().join("first/model.safetensors"), "x").unwrap();
    fails(
        dir.path(),
        "--init-from first",
        2,
        "first/model.safetensors does not hold this lab's weights",
    );
}

/// The settings that the source's log prints, but for what is different here: the framework and the
/// precision.
#[test]
fn the_settings_are_the_sources_and_say_what_runs() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeds(
        dir.path(),
        "--dry-run --all --preset wordplay --ranks 4 --eval-interval 100 --out out-shakespeare-char",
    );
    let (_, json) = text.split_once("\n{\n").expect("the settings are JSON");
    let (json, _) = json.split_once("\n}\n").unwrap();
    let mut settings: serde_json::Value = serde_json::from_str(&format!("{{{json}}}")).unwrap();
    let dataset = settings["data"]["dataset"].take();
    assert_eq!(dataset, "The Tragedy of Rank Zero");
    let expected = serde_json::json!({
        "train": {
            "framework": "candle", "backend": "DDP", "device": "cpu", "seed": 1337, "ngpus": 4,
            "eval_interval": 100, "log_interval": 10, "eval_iters": 200, "eval_only": false,
            "always_save_checkpoint": false, "init_from": "scratch", "max_iters": 1000, "warmup_iters": 100,
            "dtype": "float32"
        },
        "model": {
            "n_layer": 12, "n_head": 12, "n_embd": 768, "batch_size": 64, "block_size": 1024,
            "activation": "gelu", "dropout": 0.0, "bias": false, "vocab_size": 65
        },
        "data": { "dataset": null, "out_dir": "out-shakespeare-char" },
        "optimizer": {
            "gas": 1, "name": "AdamW", "learning_rate": 0.0006, "weight_decay": 0.1, "beta1": 0.9,
            "beta2": 0.95, "grad_clip": 1.0, "decay_lr": true, "lr_decay_iters": 600000, "min_lr": 6e-5
        }
    });
    assert_eq!(settings, expected);
}

/// One process alone, or an allocation that launches nothing, means threads. What a launcher starts
/// without the feature is among the refusals.
#[cfg(not(feature = "mpi"))]
#[test]
fn one_process_alone_runs_threads() {
    for variables in [
        &[("OMPI_COMM_WORLD_SIZE", "1")][..],
        &[("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "8")],
    ] {
        let mut command = Command::new(program("lab03"));
        let output = command.arg("--dry-run").envs(variables.iter().copied()).output().unwrap();
        assert!(
            output.status.success() && stdout(&output).contains("2 threads of this process"),
            "{}",
            stdout(&output)
        );
    }
}

/// A rank's spans in a trace, by track: start and end in microseconds.
fn spans(trace: &serde_json::Value, rank: u64, track: &str) -> Vec<(f64, f64)> {
    let events = trace["traceEvents"].as_array().unwrap().iter();
    let mine = events.filter(|event| event["pid"] == rank && event["cat"] == track);
    let times = mine.map(|event| (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap()));
    times.map(|(start, duration)| (start, start + duration)).collect()
}

fn overlaps((from, to): (f64, f64), spans: &[(f64, f64)]) -> bool {
    // Times are whole tenths of a microsecond, but for what a sum rounds.
    spans.iter().any(|&(start, end)| start + 0.05 < to && from + 0.05 < end)
}

/// Several buckets, and a link on which each takes 6 ms: with overlap, ranks compute while buckets
/// are under way.
#[test]
fn a_trace_shows_what_is_hidden() {
    let dir = tempfile::tempdir().unwrap();
    let run = "--layers 4 --heads 2 --embd 128 --block 16 --batch 2 --eval-iters 1 --steps 3 --link 3ms,1GB/s --trace t.json";
    for (flags, hides) in [("", true), ("--no-overlap", false)] {
        succeeds(dir.path(), &format!("{run} {flags}"));
        let trace = std::fs::read_to_string(dir.path().join("t.json")).unwrap();
        let trace: serde_json::Value = serde_json::from_str(&trace).unwrap();
        for rank in [0, 1] {
            let [compute, waiting, link] =
                ["compute", "waiting", "communication"].map(|track| spans(&trace, rank, track));
            assert!(
                link.len() > 6 && waiting.len() == link.len(),
                "{} buckets in 3 steps",
                link.len()
            );
            for track in [&compute, &waiting, &link] {
                assert!(
                    track.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 0.05),
                    "spans of a track overlap"
                );
            }
            assert!(
                !waiting.iter().any(|&wait| overlaps(wait, &compute)),
                "a rank waits and computes"
            );
            assert_eq!(link.iter().any(|&flight| overlaps(flight, &compute)), hides);
            // One link: the buckets of all steps are on it one after the other, 6 ms each.
            assert!(link[link.len() - 1].1 - link[0].0 >= 6_000.0 * link.len() as f64, "{link:?}");
        }
    }
}

/// The pictures of lab03-profile: of each trace what its rank or ranks computed, and their
/// all-reduces.
fn pictures() -> Vec<String> {
    let lines = |name: &str, rank: usize| {
        let trace = std::fs::read_to_string(format!("{ROOT}/labs/lab03/traces/{name}")).unwrap();
        let did = of_rank(&trace, rank).unwrap();
        let (all_reduces, computed): (Vec<_>, Vec<_>) =
            did.into_iter().partition(|did| did.activity == Activity::ALL_REDUCE);
        [(format!("rank {rank}"), computed), ("all-reduce".to_string(), all_reduces)]
    };
    let [rank, (_, buckets)] = lines("bucket.json", 0);
    let buckets = buckets.into_iter().enumerate();
    let buckets = buckets.map(|(i, one)| (format!("bucket {i}"), vec![one])).collect();
    let late = [lines("late.json", 0), lines("late.json", 1)].concat();
    let rows = [lines("exposed.json", 0).to_vec(), late, [vec![rank], buckets].concat()];
    let titles = ["A: exposed.json", "B: late.json", "C: bucket.json"];
    let marks: Vec<(f64, String)> =
        (0..10).map(|i| (0.02 * f64::from(i), (20 * i).to_string())).collect();
    let screen = Screen { width: 78, ..Screen::plain() };
    let picture = |(title, rows): (&str, _)| {
        Timeline { title: title.into(), rows, marks: marks.clone(), axis: "ms" }.render(&screen)
    };
    titles.into_iter().zip(rows).map(picture).collect()
}

/// Whoever only has the exercise, or its form, answers from them.
#[test]
fn the_exercise_on_profiles_draws_its_traces() {
    let exercise = format!("{ROOT}/labs/lab03/exercises/lab03_profile.rs");
    let exercise = std::fs::read_to_string(exercise).unwrap();
    for picture in pictures() {
        let comment: String = picture.lines().map(|line| format!("//! {line}\n")).collect();
        assert!(exercise.contains(&comment), "it does not show\n{comment}");
    }
}
