//! What a training lab prints about its run, before and after.

use super::{Config, LEGEND, StepTimes};
use crate::data::{Corpus, FETCH_COMMAND};
use crate::launch;
use crate::parallel::zero::{Held, Stage, Volumes, Zero};
use crate::show::{self, Screen, thousands};
use crate::tensor::Precision;

fn count(n: impl TryInto<u64>) -> String {
    thousands(n.try_into().unwrap_or(u64::MAX))
}

/// Which text speaks: length, vocabulary, splits, and where to get the real one.
pub fn data(screen: &Screen, corpus: &Corpus) {
    let dot = screen.separator();
    let (chars, distinct) = (count(corpus.chars()), count(corpus.vocabulary.size()));
    let splits = format!("train\u{a0}{}{dot}val\u{a0}{}", count(corpus.train.len()), count(corpus.validation.len()));
    screen.say(
        screen
            .row("text", &format!("{}{dot}{chars}\u{a0}chars{dot}{distinct}\u{a0}distinct{dot}{splits}", corpus.name)),
    );
    if corpus.embedded {
        screen.say(screen.row("", "written for this workbook; to train on the real Shakespeare instead:"));
        // One line, however long: it is there to be copied.
        screen.say(FETCH_COMMAND);
    }
}

/// How many ranks, and what they are.
pub fn ranks(screen: &Screen, ranks: usize) {
    screen.say(screen.row("ranks", &launch::in_words(ranks)));
}

/// The model, the batch, and what the optimizer does with which parameters.
pub fn run(screen: &Screen, config: &Config) {
    let dot = screen.separator();
    let shape = &config.shape;
    self::ranks(screen, config.ranks);
    let model = format!(
        "{}\u{a0}layers{dot}{}\u{a0}heads{dot}{}\u{a0}wide{dot}block\u{a0}{}{dot}num_params={} ({}\u{a0}with\u{a0}positions)",
        shape.layers,
        shape.heads,
        shape.embd,
        shape.block,
        count(shape.num_params()),
        count(shape.parameters())
    );
    screen.say(screen.row("model", &model));
    let ((decayed, elements), (plain, plain_elements)) = (shape.decayed(), shape.not_decayed());
    let decay = format!(
        "decayed: {decayed} tensors, {} parameters{dot}not: {plain} tensors, {}",
        count(elements),
        count(plain_elements)
    );
    screen.say(screen.row("", &decay));
    let accum = if config.grad_accum > 1 { format!(" x {} micro-steps", config.grad_accum) } else { String::new() };
    let batch = format!(
        "{} sequences x {} {}{accum} x {} tokens = {} tokens per iteration",
        config.batch,
        config.ranks,
        if config.ranks == 1 { "rank" } else { "ranks" },
        shape.block,
        count(config.tokens_per_step())
    );
    screen.say(screen.row("batch", &batch));
    let schedule = &config.schedule;
    let (b1, b2) = (config.adamw.beta1, config.adamw.beta2);
    let optimizer = format!(
        "AdamW lr {} to {}, warm-up {}, betas {b1} {b2}, decay {}, clip {}, dropout {}",
        schedule.lr, schedule.min_lr, schedule.warmup, config.adamw.weight_decay, config.clip, config.dropout
    );
    screen.say(screen.row("steps", &format!("{}{dot}{optimizer}", count(config.steps))));
}

/// `--dry-run`: memory and time, by arithmetic. `peak` is the matmul peak of one thread, FLOP/s.
pub fn dry_run(screen: &Screen, config: &Config, free: Option<u64>, peak: f64) {
    let (memory, for_a_moment) = config.memory_of_a_rank(config.batch);
    let (bytes, stage) = (config.zero.precision.bytes(), config.zero.stage);
    let divided = |from| if stage >= from { format!(", divided among {}", config.ranks) } else { String::new() };
    let optimizer = match config.zero.precision {
        Precision::F32 => "two moments, 8 bytes a parameter",
        Precision::Bf16 => "two moments and the master, 12 bytes a parameter",
    };
    let (one, all) = (memory.total() + for_a_moment, config.memory(config.batch));
    let sharing = if all > one * launch::ranks_here(config.ranks) as u64 {
        "at most: the first check holds one model more"
    } else {
        "that share this machine's memory"
    };
    let rows: Vec<Vec<String>> = [
        ("parameters", memory.parameters, format!("{bytes} bytes each{}", divided(Stage::Three))),
        ("gradients", memory.gradients, format!("{bytes} bytes each{}", divided(Stage::Two))),
        ("optimizer", memory.optimizer, format!("{optimizer}{}", divided(Stage::One))),
        ("activations", memory.activations, "what forward keeps for backward, grows with --batch".to_string()),
        ("gathered", for_a_moment, "all parameters, to begin with and to evaluate".to_string()),
        ("one rank", one, String::new()),
        ("ranks here", all, sharing.to_string()),
    ]
    .into_iter()
    .filter(|(_, bytes, _)| *bytes > 0)
    .map(|(what, bytes, why)| vec![what.to_string(), show::bytes_decimal(bytes as f64), why.to_string()])
    .collect();
    screen.say("");
    screen.say(show::table(screen, &["memory", "bytes", ""], &rows));
    if let Some(free) = free {
        let fits = match config.ensure_fits(free) {
            Ok(()) => "this run fits".to_string(),
            Err(refusal) => format!("this run does not fit: {}", refusal.help),
        };
        screen.say(screen.row("free", &format!("{}; {fits}", show::bytes_decimal(free as f64))));
    }
    let flops = (config.tokens_per_step() / config.ranks) as f64 * config.shape.flops_per_token() as f64;
    // Ranks beyond the cores take turns.
    let turns = config.ranks.div_ceil(launch::cores()) as f64;
    let step = flops * turns / peak;
    let text = format!(
        "at least {} a step: {} GFLOP a rank at the {:.0} GFLOP/s that a matmul reaches here; at half that speed \
         {}, and the run {}",
        show::seconds(step),
        show::significant(flops / 1e9, 3),
        peak / 1e9,
        show::seconds(2.0 * step),
        show::seconds(2.0 * step * config.steps as f64)
    );
    screen.say(screen.row("time", &text));
}

/// What ranks divide, and the type that is really used.
pub fn zero(screen: &Screen, config: &Config) {
    let zero = &config.zero;
    let divided = match zero.stage {
        Stage::Zero => "nothing divided: DDP",
        Stage::One => "optimizer divided",
        Stage::Two => "optimizer, gradients divided",
        Stage::Three => "optimizer, gradients, parameters divided",
    };
    let master = match zero.precision {
        Precision::F32 => "",
        Precision::Bf16 => ", master f32",
    };
    let dot = screen.separator();
    let files = match (&zero.offload, zero.stage) {
        (None, _) => String::new(),
        (Some(_), Stage::Three) => format!("{dot}optimizer, parameters in files"),
        (Some(_), _) => format!("{dot}optimizer in files"),
    };
    let text = format!("stage {}: {divided}{dot}{}{master}{files}", zero.stage.number(), zero.precision.name());
    screen.say(screen.row("zero", &text));
}

/// What rank 0 holds, beside the formula.
pub fn held(screen: &Screen, config: &Config, held: &Held) {
    let plan = config.memory_of_a_rank(config.batch).0;
    let rows: Vec<Vec<String>> = [
        ("parameters", held.parameters, Some(plan.parameters)),
        ("gradients", held.gradients, Some(plan.gradients)),
        ("optimizer", held.optimizer, Some(plan.optimizer)),
        ("for a moment, at most", held.peak_buffers, None),
        ("in files", held.parameters_file + held.optimizer_file, None),
    ]
    .into_iter()
    .filter(|(_, is, _)| *is > 0)
    .map(|(what, is, formula)| {
        let formula = formula.map_or(String::new(), count);
        vec![what.to_string(), count(is as u64), formula]
    })
    .collect();
    screen.say("");
    screen.say(show::table(screen, &["rank 0 holds", "bytes", "formula"], &rows));
}

/// The names in log lines and metrics.
pub fn legend(screen: &Screen) {
    let rows: Vec<Vec<&str>> = LEGEND.iter().map(|(name, text)| vec![*name, *text]).collect();
    screen.say(show::table(screen, &["abbr", "what it is"], &rows));
}

/// Where the seconds of all steps went; `communication` is part of the backward pass.
pub fn time_shares(screen: &Screen, times: &StepTimes, communication: f64) {
    let parts = [
        ("forward", times.forward),
        ("backward", (times.backward - communication).max(0.0)),
        ("all-reduce", communication),
        ("optimizer", times.optimizer),
        ("data", times.data),
    ];
    screen.say(screen.row("time", &show::shares(screen, &parts)));
}

/// What each rank sends in a step of ZeRO by the formula, in words and in bytes.
pub fn bytes_of_zero(zero: &Zero, stage: Stage) -> (String, f64) {
    let Volumes { gathered, reduced, bytes_each } = zero.volumes();
    let (gathered, reduced) = (thousands(gathered as u64), thousands(reduced as u64));
    let words = match stage {
        Stage::Zero => format!("2(n-1)/n x {bytes_each} x {reduced}"),
        _ => format!(
            "(n-1)/n x {bytes_each} x ({gathered} gathered + {reduced} reduced) + {} for the norm",
            zero.norm_bytes()
        ),
    };
    (words, zero.bytes_a_step())
}
