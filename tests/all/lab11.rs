//! lab11 as its users start it: files that describe models and clusters, its JSON, and the planner
//! beside what other labs measured. `tests/screens/lab11.txt` has what it shows.

use crate::suite::program::{ROOT, failed, has, is_narrow, lab, stderr, succeeded};
use planner::{
    Cluster, Degrees, Device, Overlap, Program, RankGroup, Stage, Strategy, TrainingJob, gathers,
    in_flight,
};
use planner::{HeldOut, Made, PlanKind, compared, errors_of, held_out, model, search};
use shapes::link::Link;
use shardlab::comm::algorithms::{Algorithm, Collective, Task};
use shardlab::parallel::pipeline::{Pipeline, Schedule, Times, simulate};
use shardlab::plan::{self, BytesEach, Family, ModelShape, Network};
use shardlab::units::{bytes_decimal, seconds};
use std::process::Output;

fn lab11(flags: &str) -> Output {
    lab("lab11", flags)
}

/// lab04's prediction for a GPT on Polaris, where nothing hides the gather of ZeRO-1 and 2, is the
/// planner's for a program that waits for it. One that hides it is as fast as DDP.
#[test]
fn labs_04_and_11_have_one_rule_for_the_gather() {
    let mut cluster = Cluster::new(Device::named("a100-40g").unwrap(), "polaris").unwrap();
    // lab04 simulates one ring, at the full speed of its links.
    cluster.network.rings = 1;
    cluster.network.efficiency = 1.0;
    let gpt = ModelShape::gpt2(32, 2560, 32, 50_257, 2048);
    let step = |program, zero: usize| {
        let job = TrainingJob {
            batch: 256,
            bytes: BytesEach::MIXED,
            program,
            ..TrainingJob::new(gpt, cluster.clone(), 64)
        };
        let strategy = Strategy { micro_batch: Some(4), ..Strategy::data(64, Stage::ALL[zero]) };
        job.time(&strategy).data
    };
    let text = std::fs::read_to_string(format!("{ROOT}/book/outputs/lab04-elsewhere.txt")).unwrap();
    let text = book::plain(&text);
    let row = text.lines().find(|line| line.contains("step, 8k")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    let printed: Vec<f64> = words
        .windows(2)
        .filter(|pair| pair[1] == "s")
        .map(|pair| pair[0].parse().unwrap())
        .collect();
    let waits = |zero: usize| step(Program::Deepspeed, zero) - step(Program::Deepspeed, 0);
    for zero in [1, 2] {
        let lab04 = printed[zero] - printed[0];
        assert!((waits(zero) / lab04 - 1.0).abs() < 0.4, "{}, {lab04}", waits(zero));
        let hidden = step(Program::Megatron, zero) - step(Program::Megatron, 0);
        assert!(hidden < 0.1 * lab04, "{hidden}, {lab04}");
    }
}

#[test]
fn a_cluster_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    std::fs::write(&file, succeeded(&lab11("--help-cluster"))).unwrap();
    let flags = format!("--model llama-3.2-1b --devices 8 --cluster {}", file.display());
    has(
        &succeeded(&lab11(&flags)),
        &["8 x your device", "how many nodes? 2, with 4 devices each"],
    );
    std::fs::write(&file, "[device]\nmemory_gb = 24\ntflops = none\n").unwrap();
    let output = lab11(&flags);
    failed(&output, 2, "");
    has(&stderr(&output), &["line 3"]);
}

/// A model with experts is counted, all parameters and a token's, on a screen and as JSON.
#[test]
fn a_model_with_experts_is_counted_and_not_planned() {
    let dir = tempfile::tempdir().unwrap();
    let mixtral = r#"{"model_type": "mixtral", "vocab_size": 32000, "hidden_size": 4096,
        "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2}"#;
    std::fs::write(dir.path().join("config.json"), mixtral).unwrap();
    let flags = format!("--config {}", dir.path().display());
    let counts = json(&flags);
    assert_eq!(counts["parameters"], 46_702_792_704_u64);
    assert_eq!(counts["active_parameters"], 12_879_925_248_u64);
    assert_eq!(counts["layers"]["attention + experts"], 32);
    let screen = succeeded(&lab11(&flags));
    is_narrow(&screen);
    has(
        &screen,
        &["46,702,792,704 parameters", "12,879,925,248 per token", "none: plans here"],
    );
}

/// The answer of `--json`.
fn json(flags: &str) -> serde_json::Value {
    // A plan that is given is the only one.
    let top = if flags.contains("--plan") { "" } else { "--top 3" };
    serde_json::from_str(&succeeded(&lab11(&format!("{flags} --json {top}")))).unwrap()
}

/// A file of the hub, and numbers alone.
#[test]
fn a_model_of_ones_own() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.json");
    let text = r#"{
        "model_type": "mistral", "architectures": ["MistralForCausalLM"],
        "num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "intermediate_size": 14336, "vocab_size": 131072, "max_position_embeddings": 131072,
        "sliding_window": 4096, "torch_dtype": "bfloat16"
    }"#;
    std::fs::write(&file, text).unwrap();
    let flags = format!("--devices 16 --config {}", file.display());
    let whole = json(&flags);
    assert_eq!(
        (&whole["parameters"], &whole["length"]),
        (&12_247_782_400.0.into(), &8192.into())
    );
    assert_eq!(json(&format!("{flags} --seq 4096"))["length"], 4096);
    // Llama 2 13B and a 70B by their numbers.
    let own = json("--layers 40 --embd 5120 --heads 40 --devices 16 --seq 2048");
    assert_eq!((&own["model"], &own["length"]), (&"your model".into(), &2048.into()));
    assert_eq!(own["parameters"], 13_015_864_320.0);
    let own = json("--layers 80 --embd 8192 --heads 64 --kv-heads 8 --ffn 28672 --devices 64");
    assert_eq!(own["parameters"], 68_976_648_192.0);
    // Gemma 7B's heads are wider than the model, and its head is the token table: the flags that a
    // refusal shows of an unknown family's file, which are its way to a plan.
    let unknown = dir.path().join("unknown.json");
    let gemma = r#"{"model_type": "unknown", "num_hidden_layers": 28, "hidden_size": 3072,
        "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256,
        "intermediate_size": 24576, "vocab_size": 256000, "tie_word_embeddings": true}"#;
    std::fs::write(&unknown, gemma).unwrap();
    let output = lab11(&format!("--config {}", unknown.display()));
    let error = String::from_utf8_lossy(&output.stderr);
    let shown = error.split("of its widths: ").nth(1).and_then(|flags| flags.split(';').next());
    let own = json(&format!("{} --devices 16", shown.unwrap()));
    assert_eq!(own["parameters"], 8_537_680_896.0, "{shown:?}");
    // Layers with windows are said.
    has(
        &succeeded(&lab11(&flags)),
        &["40 of 40 layers see the last 4,096 tokens at most"],
    );
}

/// What a file says that is not counted, or counted otherwise than usual, is a note on stderr: the
/// plan is the same.
#[test]
fn notes_say_what_a_file_is() {
    let dir = tempfile::tempdir().unwrap();
    let mistral = r#""model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "vocab_size": 32000, "x": null"#;
    let length = r#""max_position_embeddings": 4096"#;
    let head = 4096 * 32_000u64;
    let whole = 7_241_732_096;
    for (more, flags, parameters, note) in [
        (length, "", whole, None),
        (
            r#""architectures": ["MistralModel"], "max_position_embeddings": 4096"#,
            "",
            whole - head,
            Some("note: MistralModel has no head over the vocabulary, and none is counted"),
        ),
        (
            r#""quantization_config": {"quant_method": "gptq"}, "max_position_embeddings": 4096"#,
            "",
            whole,
            Some("note: this model is quantised by gptq (quantization_config)"),
        ),
        (
            r#""y": [Infinity, NaN], "max_position_embeddings": 4096"#,
            "",
            whole,
            Some("note: config.json has keys that are not known here and were not read: y"),
        ),
        (
            r#""y": null"#,
            "",
            whole,
            Some("note: config.json has no max_position_embeddings: its longest sequence is taken"),
        ),
        (r#""y": null"#, "--seq 2048", whole, None),
        (length, "--seq 4096", whole, None),
        (
            length,
            "--seq 4097",
            whole,
            Some("note: --seq 4097 is more than config.json's max_position_embeddings, 4096"),
        ),
    ] {
        std::fs::write(dir.path().join("config.json"), format!("{{{mistral}, {more}}}")).unwrap();
        // The folder stands for its file.
        let flags = format!("--devices 16 --config {} {flags}", dir.path().display());
        let output = lab11(&format!("{flags} --json --top 1"));
        let found: serde_json::Value = serde_json::from_str(&succeeded(&output)).unwrap();
        assert_eq!(found["parameters"].as_f64(), Some(parameters as f64), "{more}");
        let said = stderr(&output);
        assert_eq!(said.lines().count(), usize::from(note.is_some()), "{said}");
        assert!(said.starts_with(note.unwrap_or_default()), "{said}");
    }
    // Without a head there are no logits either: less memory, and less time.
    let plan = |architecture: &str| {
        let more = format!(r#""architectures": ["{architecture}"], {length}"#);
        std::fs::write(dir.path().join("config.json"), format!("{{{mistral}, {more}}}")).unwrap();
        let flags = format!("--devices 16 --config {}", dir.path().display());
        let plan = json(&format!("{flags} --plan dp=16,zero=1"))["plans"][0].clone();
        let step = plan["step"].as_f64().unwrap();
        [plan["memory"]["activations"].as_f64().unwrap(), step]
    };
    let [with, without] = ["MistralForCausalLM", "MistralModel"].map(plan);
    assert_eq!(with[0] - without[0], 4.0 * 4096.0 * 32_000.0, "{with:?} {without:?}");
    assert!(without[1] < with[1], "{with:?} {without:?}");
}

#[test]
fn json_for_tools() {
    let found = json("--devices 64 --model llama-3-8b");
    assert_eq!(found["plans"].as_array().unwrap().len(), 3);
    let best = &found["plans"][0];
    let strategy: Strategy = best["plan"].as_str().unwrap().parse().unwrap();
    assert_eq!(strategy.ranks(), 64);
    assert!(best["trainings"]["longer"][1].as_f64() > best["benchmarks"]["longer"][1].as_f64());
    let one = json("--plan dp=64,tp=8,mb=2,zero=2,sp");
    assert_eq!(one["plans"].as_array().unwrap().len(), 1);
    assert!((one["plans"][0]["step"].as_f64().unwrap() / 7.89 - 1.0).abs() < 1e-3);
}

/// The planner's formula for activations in flight is what the schedules of lab06 give.
#[test]
fn in_flight_is_what_the_schedules_give() {
    for (ranks, chunks, micro_batches) in
        [(4, 1, 8), (4, 1, 3), (8, 1, 16), (4, 2, 8), (4, 4, 8), (8, 2, 16), (2, 3, 4)]
    {
        let pipeline = Pipeline { ranks, chunks, micro_batches };
        let schedule = if chunks == 1 {
            Schedule::OneForwardOneBackward
        } else {
            Schedule::depth_first(&pipeline)
        };
        let orders = schedule.orders(&pipeline).unwrap();
        let times = Times { forward: 1.0, backward: 2.0, weights: 0.0, message: 0.0 };
        let simulated = simulate(&pipeline, &orders, &times).unwrap();
        let strategy = Strategy { pipeline: ranks, chunks, ..Strategy::SINGLE };
        let planned: Vec<f64> = (0..ranks)
            .map(|stage| in_flight(&strategy, stage, micro_batches) * chunks as f64)
            .collect();
        let peaks: Vec<f64> = simulated.peaks.iter().map(|&peak| peak as f64).collect();
        assert_eq!(planned, peaks, "{pipeline:?}");
        // Its bubble is the simulator's, too.
        let bubble = (ranks - 1) as f64 / (chunks * micro_batches) as f64;
        if micro_batches % ranks == 0 {
            assert!((simulated.bubble_to_work() - bubble).abs() < 1e-12, "{pipeline:?}");
        }
    }
}

/// On links of one kind both ways are the textbook's, which lab01 simulates: the best of them
/// for few and for many bytes.
#[test]
fn the_best_way_is_the_simulators() {
    let network = Network {
        pipelined: false,
        ..Network::uniform(Link { latency: 3e-6, bandwidth: 8e9 })
    };
    for ranks in [2, 8, 64, 1024] {
        for elements in [1, 1000, 1_000_000] {
            let simulated = |algorithm| {
                let task = Task::new(Collective::AllGather, algorithm, ranks, elements, 4, 0);
                plan::simulate(&task.unwrap(), 4, &network)
            };
            let best = simulated(Algorithm::Ring).min(simulated(Algorithm::RecursiveDoubling));
            let bytes = 4.0 * (elements * ranks) as f64;
            let group = RankGroup::of(&network, ranks, ranks, 1);
            let is = gathers(&network, group, bytes, 1.0, true);
            assert!((is / best - 1.0).abs() < 1e-9, "{ranks} ranks, {elements}: {is}, {best}");
            let rings = gathers(&network, group, bytes, 1.0, false);
            assert!((rings / simulated(Algorithm::Ring) - 1.0).abs() < 1e-9);
        }
    }
}

fn here(shape: ModelShape, dropout: bool, batch: usize, devices: usize) -> TrainingJob {
    let cluster = Cluster::new(Device::named("laptop").unwrap(), "ethernet").unwrap();
    TrainingJob {
        batch,
        bytes: BytesEach::F32,
        dropout,
        overlap: Overlap::None,
        program: Program::Shardlab,
        ..TrainingJob::new(shape, cluster, devices)
    }
}

/// A figure such as `9.59 MB` of a book's output, in bytes: number `n` of the line that begins with
/// `label`.
fn printed(file: &str, label: &str, n: usize) -> f64 {
    let path = format!("{ROOT}/book/outputs/{file}");
    let text = book::plain(&std::fs::read_to_string(&path).unwrap());
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with(label))
        .unwrap_or_else(|| panic!("{label}: {text}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut figures = words.windows(2).filter_map(|pair| {
        let unit = match pair[1] {
            "B" => 1.0,
            "kB" => 1e3,
            "MB" => 1e6,
            _ => return None,
        };
        pair[0].parse::<f64>().ok().map(|number| number * unit)
    });
    figures.nth(n).unwrap_or_else(|| panic!("{label}, {n}: {line}"))
}

#[track_caller]
fn close(planned: f64, measured: f64, what: &str) {
    assert!(
        (planned / measured - 1.0).abs() < 0.05,
        "{what}: planned {planned}, measured {measured}"
    );
}

/// The bytes that ranks send in a step: what labs 04, 05 and 07 print as measured, within 5% of the
/// plan. What ranks hold is measured anew in tests/alone/planned.rs.
#[test]
fn ranks_send_what_the_labs_measured() {
    // lab04: 12 thin blocks on 4 ranks, one stage of ZeRO after the other.
    let thin = ModelShape {
        vocabulary: 65,
        block: 64,
        layers: 12,
        heads: 4,
        embd: 64,
        family: Family::Gpt,
        experts: None,
    };
    let job = here(thin, false, 48, 4);
    for zero in 0..4 {
        let strategy = Strategy { micro_batch: Some(12), ..Strategy::data(4, Stage::ALL[zero]) };
        let [.., data] = job.traffic(&strategy);
        close(data.bytes, printed("lab04-compared.txt", "sends", zero), "lab04");
    }
    // lab05: the baby model with dropout on 2 tensor ranks, and with sequence parallelism.
    let baby = ModelShape {
        vocabulary: 65,
        block: 64,
        layers: 4,
        heads: 4,
        embd: 128,
        family: Family::Gpt,
        experts: None,
    };
    for (n, sequence) in [(1, false), (2, true)] {
        let strategy = Strategy {
            tensor: 2,
            sequence,
            micro_batch: Some(12),
            ..Strategy::SINGLE
        };
        let [tensor, ..] = here(baby, true, 12, 2).traffic(&strategy);
        close(tensor.bytes, printed("lab05-compared.txt", "sends", n), "lab05");
    }
    // lab07: 2 x 2 x 2 ranks; what they send along the tensor and the data axis.
    let job = here(baby, false, 16, 8);
    let strategy = Strategy {
        data: 2,
        tensor: 2,
        pipeline: 2,
        micro_batch: Some(2),
        zero: Stage::One,
        ..Strategy::SINGLE
    };
    let [tensor, _, data] = job.traffic(&strategy);
    close(tensor.bytes, printed("lab07-axes.txt", "tensor", 1), "lab07, tensor axis");
    close(data.bytes, printed("lab07-axes.txt", "data", 1), "lab07, data axis");
}

/// A figure of a page, in the digits that it shows there.
#[track_caller]
fn figure(page: &str, says: String) {
    assert!(page.contains(&says), "book/src/lab11.md lacks {says:?}");
}

/// The job of lab11's default screen, and others on the networks that devices usually have.
fn asked(name: &str, devices: usize, device: &str) -> TrainingJob {
    let device = Device::named(device).unwrap();
    let network = device.network;
    let cluster = Cluster::new(device, network).unwrap();
    TrainingJob::new(model(name).unwrap(), cluster, devices)
}

/// The chapter's arithmetic: each figure of "One plan, by hand" from the formula beside it, all of
/// them together the planner's.
#[test]
fn the_plan_that_the_chapter_computes_by_hand_is_the_planners() {
    let page = chapter();
    let job = asked("llama-3-70b", 512, "h100-80g");
    let strategy: Strategy = "dp=64,tp=8,mb=2,zero=2,sp".parse().unwrap();
    let device = &job.cluster.device;
    let network = &job.cluster.network;
    let shape = &job.model;
    let [layers, h, s, rows] = [shape.layers, shape.embd, shape.block, shape.vocabulary];
    let [layers, h, s, rows] = [layers, h, s, rows].map(|n| n as f64);
    let [k, f] = [shape.kv_width() as f64, shape.ffn() as f64];
    let (d, t, m) = (64.0, 8.0, 4.0);
    assert_eq!(strategy.micro_batches_of(job.batch), 4);
    assert_eq!((layers, h, s, rows, k, f), (80.0, 8192.0, 8192.0, 128_256.0, 1024.0, 28_672.0));
    let gb = |bytes: f64| format!("| {} |", bytes_decimal(bytes));
    let cell = |time: f64| format!("| {} |", seconds(time));
    let same = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} is not {b}");

    // Bytes.
    let matrices = 2.0 * h * h + 2.0 * h * k + 3.0 * h * f;
    let held = layers * (matrices / t + 2.0 * h) + 2.0 * rows * h / t + h;
    figure(&page, format!("{:.1} million", matrices / 1e6));
    figure(&page, format!("{:.3} billion", held / 1e9));
    let load = job.load(&strategy);
    for (bytes, is) in [
        (2.0 * held, load.weights),
        (4.0 * held / d, load.gradients),
        (12.0 * held / d, load.optimizer),
    ] {
        same(bytes, is);
        figure(&page, gb(bytes));
    }
    let tokens = 2.0 * s;
    let kept = (8.0 * h + 2.0 * (2.0 * h + 2.0 * k + 3.0 * f)) / t;
    same(kept, job.keeps(&strategy));
    figure(&page, bytes_decimal(kept * tokens));
    figure(&page, gb(layers * kept * tokens));
    let logits = tokens * rows / t;
    let head = 4.0 * logits + 4.0 * tokens * h / t;
    figure(&page, gb(4.0 * logits));
    figure(&page, gb(4.0 * tokens * h / t));
    same(layers * kept * tokens + head, load.activations);
    same(2.0 * logits, load.working);
    figure(&page, gb(2.0 * logits));
    figure(&page, gb(load.total()));

    // A layer.
    let side = h / t;
    let rate = |side: f64| 0.675 * 989e12 * side / (side + 32.0);
    let flops = tokens * (2.0 * matrices + 4.0 * s * h) / t;
    same(flops / rate(side), device.computes(flops, side));
    figure(&page, format!("{:.2} TFLOP at {:.0} TFLOP/s", flops / 1e12, rate(side) / 1e12));
    let products = flops / rate(side);
    let moves = device.streams(2.0 * kept * tokens);
    let forward = products + moves;
    figure(&page, cell(products));
    figure(&page, cell(moves));
    figure(&page, cell(2.0 * forward));
    let within = network.efficiency * network.within.bandwidth;
    let sum = 2.0 * (7.0 * network.within.latency + 7.0 / 8.0 * 2.0 * tokens * h / within);
    figure(&page, cell(sum));
    figure(&page, cell(3.0 * sum));
    same(m * (layers * 5.0 + 2.0) * sum, job.traffic(&strategy)[0].seconds);

    // The step.
    let time = job.time(&strategy);
    let head = tokens * 2.0 * rows * h / t;
    let head = head / rate(h) + device.streams(4.0 * logits);
    figure(&page, seconds(head));
    same(m * (layers * 3.0 * forward + 3.0 * head), time.compute);
    same(m * (layers * 3.0 * sum + 2.0 * sum), time.tensor);
    let card = network.efficiency * network.between.bandwidth;
    let scatter = |bytes: f64| 6.0 * network.between.latency + 63.0 / 64.0 * bytes / layers / card;
    let [reduce, gather] = [4.0 * held, 2.0 * held].map(scatter);
    same(m * layers * reduce + layers * gather, job.traffic(&strategy)[2].seconds);
    // Hidden but for a layer's.
    let backward = layers * 2.0 * forward + 2.0 * head;
    assert!(layers * reduce < backward && layers * gather < layers * forward + head);
    same(m * reduce + gather, time.data);
    figure(&page, format!("m \\cdot {:.1} + {:.2}", 1e3 * reduce, 1e3 * gather));
    for time in [layers * reduce, backward] {
        figure(&page, seconds(time));
    }
    let [tensor, _, data] = job.traffic(&strategy);
    same(m * (5.0 * layers + 2.0) * 2.0 * 7.0 / 8.0 * 2.0 * tokens * h, tensor.bytes);
    same(63.0 / 64.0 * (4.0 * m + 2.0) * held, data.bytes);
    same(device.streams(30.0 * held / d), time.optimizer);
    for time in [time.compute, time.tensor, time.data, time.optimizer, time.total()] {
        figure(&page, cell(time));
    }
    let cost = job.cost(time.total(), 1.0);
    figure(&page, format!("an MFU of {:.1}%", 100.0 * cost.mfu));
}

/// The other figures of the chapter's text that no output shows.
#[test]
fn the_chapters_figures_are_the_planners() {
    let page = chapter();
    let plan = |text: &str| -> Strategy { text.parse().unwrap() };

    // Llama 3 405B on 16 stages.
    let llama = TrainingJob { batch: 2048, ..asked("llama-3.1-405b", 8192, "h100-80g") };
    let llama = TrainingJob { devices: 16_384, ..llama };
    let pytorch = TrainingJob { program: Program::Pytorch, ..llama.clone() };
    for job in [llama, pytorch] {
        let found = search(&job).plans[0].strategy;
        assert_eq!(found.words(), "TP 8 + PP 16 + ZeRO-1 128");
    }

    // Latency: 4,096 ranks, or groups of 64.
    let small = TrainingJob { batch: 4096, ..asked("llama-3-8b", 4096, "h100-80g") };
    for (text, ranks) in [("dp=4096,zero=3", 4096), ("dp=4096,zero=3,shard=64", 64)] {
        let s = plan(text);
        let [.., data] = small.traffic(&s);
        let nodes = ranks / 8;
        let hops = nodes as f64 * 14e-6 + (ranks - 1 - nodes) as f64 * 3.4e-6;
        let calls = 3.0 * small.model.layers as f64;
        let bytes = data.bytes / (0.78 * 400e9);
        assert!(((calls * hops + bytes) / data.seconds - 1.0).abs() < 1e-9, "{text}");
        let time = small.time(&s).total();
        let state = small.load(&s);
        let state = state.weights + state.gradients + state.optimizer;
        let times = [hops, calls * hops, bytes, time].map(seconds).join(" | ");
        figure(&page, format!("| {times} | {} |", bytes_decimal(state)));
    }

    let job = asked("llama-3-70b", 512, "h100-80g");
    let today = search(&job).plans[0];
    assert_eq!(today.strategy.words(), "TP 4 + ZeRO-2 128");
    // ZeRO-3 beside it, and how much longer benchmarks took.
    let gathered = search(&job);
    let gathered = gathered.best(|s| s.tensor * s.pipeline == 1).unwrap();
    let longer = 100.0 * (gathered.time.total() / today.time.total() - 1.0);
    figure(&page, format!("predicted to take {longer:.0}% longer than the best plan"));
    let most = |kind| 100.0 * errors_of(Made::Benchmark, Some(kind)).longer[1];
    let [gathered, divided] = [PlanKind::Gathered, PlanKind::Divided].map(most);
    figure(
        &page,
        format!(
            "took up to {gathered:.0}% longer than predicted, those of tensor ranks or stages up to {divided:.0}%"
        ),
    );
    let nodes = asked("mt-nlg-530b", 2240, "h100-80g");
    for text in ["dp=4,tp=16,pp=35,zero=1,sp", "dp=8,tp=8,pp=35,zero=1,sp"] {
        figure(&page, seconds(nodes.traffic(&plan(text))[0].seconds));
    }

    // The errors.
    let signed = |error: f64| match (100.0 * error).round() {
        0.0 => "0%".to_string(),
        percent => format!("{percent:+.0}%"),
    };
    for kind in PlanKind::ALL {
        let of = |made| {
            let errors = errors_of(made, Some(kind));
            format!("{} ({} runs)", signed(errors.mean), errors.runs)
        };
        let [benchmarks, trainings] = Made::ALL.map(of);
        figure(&page, format!("| {} | {benchmarks} | {trainings} |", kind.name()));
    }
    let [benchmarks, trainings] = Made::ALL.map(|made| errors_of(made, None).median);
    figure(
        &page,
        format!(
            "off by {:.0}% in the median of benchmarks, and by {:.0}% in that of trainings",
            100.0 * benchmarks,
            100.0 * trainings
        ),
    );
    let [benchmarks, trainings] = Made::ALL.map(|made| held_out(made, None));
    figure(
        &page,
        format!(
            "{} of {} benchmarks and {} of {} trainings",
            benchmarks.inside, benchmarks.runs, trainings.inside, trainings.runs
        ),
    );
    let both = |of: fn(&HeldOut) -> f64| {
        let [one, other] = [&benchmarks, &trainings].map(|found| 100.0 * of(found));
        format!("{one:.0}% and {other:.0}%")
    };
    figure(&page, format!("The ranges are {}", both(|found| found.width)));
    let negative = compared().iter().filter(|(_, error)| *error < 0.0).count();
    figure(&page, format!("**{negative} of {} errors are negative.**", compared().len()));
    let of = |source: &str| {
        let (run, _) = compared().iter().find(|(run, _)| run.source == source).unwrap();
        run.compared()
    };
    let (planned, measured) = of("S1");
    figure(&page, format!("| {measured:.3} s | {planned:.3} s |"));
    let (planned, measured) = of("S4");
    figure(&page, format!("| {measured:.2} TFLOP/s | {planned:.2} TFLOP/s |"));
}

/// The chapter's text.
fn chapter() -> String {
    std::fs::read_to_string(format!("{ROOT}/book/src/lab11.md")).unwrap()
}

/// torchtitan's benchmarks/llama3_h100_202412_torchtitan.md, tables 2 and 6: the memory that
/// PyTorch had reserved, in GiB. Its allocator reserves more than tensors take, as many percent at
/// any number of context ranks.
#[test]
fn memory_hardly_grows_with_the_context_ranks_of_torchtitan() {
    let cluster = Cluster::new(Device::named("h100-80g").unwrap(), "dgx-h100").unwrap();
    for (name, devices, degrees, reserved) in [
        ("llama-3-8b", 8, "zero=3", [83.9, 84.2, 84.0, 84.5]),
        ("llama-3.1-405b", 512, "tp=8,pp=8,zero=1,sp", [75.3, 75.9, 77.1, 84.9]),
    ] {
        for (power, gibibytes) in reserved.into_iter().enumerate() {
            let context = 1 << power;
            let data = 8 / context;
            let shape = model(name).unwrap();
            let shape = ModelShape { block: 32_768 * context, ..shape };
            let job = TrainingJob {
                batch: if name == "llama-3-8b" { data } else { 8 * data },
                program: Program::Pytorch,
                ..TrainingJob::new(shape, cluster.clone(), devices)
            };
            let plan = format!("dp={data},cp={context},mb=1,recompute=full,{degrees}");
            let planned = job.load(&plan.parse().unwrap()).total();
            let part = planned / (gibibytes * f64::from(1 << 30));
            assert!((0.73..0.84).contains(&part), "{name} {plan}: {part}");
        }
    }
}

/// Meta's plan for 131,072 tokens (arXiv 2407.21783, table 4) is among the best, and its step is
/// within 25% of the one that 38% MFU mean.
#[test]
fn a_long_sequence_has_metas_plan() {
    let cluster = Cluster::new(Device::named("h100-80g").unwrap(), "dgx-h100").unwrap();
    let shape = ModelShape { block: 131_072, ..model("llama-3.1-405b").unwrap() };
    let job = TrainingJob { batch: 128, ..TrainingJob::new(shape, cluster, 16_384) };
    let found = search(&job);
    let best = found.by_degrees();
    let metas = |s: &Strategy| (s.data, s.tensor, s.pipeline, s.context) == (8, 8, 16, 16);
    let place = best.iter().position(|plan| metas(&plan.strategy)).unwrap();
    assert!(place < 3, "{place}");
    let mfu = job.cost(best[place].time.total(), 1.0).mfu;
    assert!((0.38 / mfu - 1.0).abs() < 0.25, "{mfu}");
}
