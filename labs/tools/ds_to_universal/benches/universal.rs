//! The converter of DeepSpeed's checkpoints, beside DeepSpeed's own and a copy of the same bytes.
//!
//! ```text
//! python3 -m venv ds && ds/bin/pip install numpy torch deepspeed     # for DeepSpeed's converter
//! cargo bench --bench universal -- --python ds/bin/python            # 3.5M of 768 ranks
//! cargo bench --bench universal -- --python ds/bin/python --large    # 98M of 16 ranks, 1.5 GB
//! ```
//!
//! All sides run in turn, and a figure is the median over rounds. Times are those of whole
//! processes. The copy is of the result, so it reads and writes as many bytes as the converter
//! writes; unlike the converter, `cp` does not wait until they are on the disk. Memory is the peak
//! of the process, the largest over rounds; DeepSpeed's workers are processes of their own and are
//! not in its figure. Prints a Markdown table. Let nothing else run meanwhile.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use deepspeed::example::{Example, Group};
use shardlab::launch;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

#[derive(Parser)]
struct Args {
    /// A Python that has DeepSpeed
    #[arg(long)]
    python: Option<PathBuf>,
    /// 98 million parameters of 16 ranks, in place of 3.5 million of 768
    #[arg(long)]
    large: bool,
    /// Each side runs so often, in turn
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    launch::main(|| drive(&Args::parse()))
}

/// The parameters of a GPT: matrices, and a group of vectors.
fn groups(vocabulary: usize, embd: usize, layers: usize) -> Vec<Group> {
    let mut matrices: Group = vec![("wte.weight".to_string(), vec![vocabulary, embd])];
    let mut vectors = Group::new();
    for layer in 0..layers {
        let name = |name: &str| format!("h.{layer}.{name}");
        for (matrix, shape) in [
            ("attn.weight", [3 * embd, embd]),
            ("proj.weight", [embd, embd]),
            ("fc.weight", [4 * embd, embd]),
            ("out.weight", [embd, 4 * embd]),
        ] {
            matrices.push((name(matrix), shape.to_vec()));
        }
        vectors.extend(
            ["ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias"]
                .map(|at| (name(at), vec![embd])),
        );
    }
    vec![matrices, vectors]
}

fn drive(args: &Args) -> Result<()> {
    let (ranks, groups, workers) = if args.large {
        (16, groups(16_384, 768, 12), ["2", "2"])
    } else {
        (768, groups(1024, 256, 4), ["4", "2"])
    };
    let parameters: usize =
        groups.iter().flatten().map(|(_, shape)| shape.iter().product::<usize>()).sum();
    let dir = tempfile::tempdir_in(".")?;
    let input = dir.path().join("global_step5");
    let value = |_: usize, name: &str, state: usize, at: usize| {
        (name.len() + 3 * state + at % 8191) as f32 * 1e-4
    };
    Example { bf16: args.large, ..Example::new(2, ranks, groups) }.save(&input, &value)?;

    let ours = dir.path().join("ours");
    let convert = |program: &Path, module: &[&str], to: &Path| {
        let mut command = Command::new(program);
        command
            .args(module)
            .arg("--input_folder")
            .arg(&input)
            .arg("--output_folder")
            .arg(to);
        command.args(["--num_extract_workers", workers[0], "--num_merge_workers", workers[1]]);
        command.envs([("DS_ACCELERATOR", "cpu"), ("OMP_NUM_THREADS", "1")]);
        command
    };
    let copy = dir.path().join("copy");
    let mut cp = Command::new("cp");
    cp.arg("-r").arg(&ours).arg(&copy);
    let program = Path::new(env!("CARGO_BIN_EXE_ds_to_universal"));
    let mut sides =
        vec![("ds_to_universal", &ours, convert(program, &[], &ours)), ("cp", &copy, cp)];
    let theirs = dir.path().join("theirs");
    if let Some(python) = &args.python {
        let module = ["-m", "deepspeed.checkpoint.ds_to_universal"];
        sides.push(("DeepSpeed", &theirs, convert(python, &module, &theirs)));
    }
    let mut seconds = vec![Vec::new(); sides.len()];
    let mut memory = vec![0; sides.len()];
    for _ in 0..args.rounds {
        for (at, (_, to, command)) in sides.iter_mut().enumerate() {
            // The copy is of the result before.
            if to.exists() {
                std::fs::remove_dir_all(to)?;
            }
            let (time, peak) = timed(command)?;
            seconds[at].push(time);
            memory[at] = peak.max(memory[at]);
        }
    }
    println!(
        "{parameters} parameters, {ranks} ranks\n\n| | seconds | of cp's | peak MB |\n|---|---:|---:|---:|"
    );
    seconds.iter_mut().for_each(|seconds| seconds.sort_by(f64::total_cmp));
    let median = |at: usize| seconds[at][args.rounds / 2];
    for (at, (side, ..)) in sides.iter().enumerate() {
        let ratio = median(at) / median(1);
        println!("| {side} | {:.3} | {ratio:.2} | {} |", median(at), memory[at] / 1_000);
    }
    Ok(())
}

/// Seconds that `command` takes, and its peak memory in kB, as Linux tells it of a living process.
fn timed(command: &mut Command) -> Result<(f64, usize)> {
    let begin = Instant::now();
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let mut peak = 0;
    let status = loop {
        let told =
            std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = told
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        peak = line.and_then(|kilobytes| kilobytes.parse().ok()).unwrap_or(0).max(peak);
        match child.try_wait()? {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    ensure!(status.success(), "{command:?} failed: run it by hand to see why");
    Ok((begin.elapsed().as_secs_f64(), peak))
}
