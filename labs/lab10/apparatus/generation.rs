//! A text from ranks that share a model, printed token by token.

use super::benchmark::{builder, on_ranks};
use super::cache::KvCache;
use super::config::DsConfig;
use super::continuation::{Continuation, Continued, Generated, generate};
use super::inference::ZeroInference;
use super::pretrained::{Stream, Text};
use super::reference::reference;
use super::sampling::Likely;
use super::strategies::{Candidate, LeftOut, all, not_timed, turns};
use super::text::{Job, same_tokens};
use anyhow::Result;
use kit::Checks;
use kit::show::{Screen, bar, percent, significant};
use shardlab::comm::{Comm, Options};
use shardlab::error::is_hidden;
use shardlab::launch;
use shardlab::mesh::{Axis, Mesh};
use shardlab::model::Llama;
use shardlab::parallel::TensorParallel;
use shardlab::parallel::zero::{Stage, Wrap};
use shardlab::plan::ModelShape;
use std::io::Write;

/// Generates the text on the rank that is `comm`'s, with the strategy of `config`. The first rank
/// prints it on `screen`.
fn one_rank(
    screen: Option<&Screen>,
    comm: &Comm,
    config: &DsConfig,
    job: Job,
) -> Result<Continued> {
    let Job { model, how, dtype } = job;
    let weights = model.pretrained()?;
    let text = weights.text()?;
    let mesh = Mesh::new(comm, config.mesh(comm.size())?)?;
    let tensor = TensorParallel::new(mesh.group(Axis::Tensor).clone());
    let layers = config.layers(&model.shape)?[mesh.at.pipeline].clone();
    let llama = Llama::stage(&model.shape, layers, builder(&tensor))?;
    let prompt = text.tokens(how.prompt.as_deref().unwrap_or_default())?;
    let likeliest = if how.show_next { 5 } else { 0 };
    let continuation = Continuation {
        count: how.tokens,
        sampling: how.sampling(),
        likeliest,
        ends: weights.ends.clone(),
    };
    let capacity = model.shape.block.min(prompt.len() + how.tokens);
    let cache = KvCache::new(&llama, capacity, builder(&tensor));
    let mut stream = Stream::default();
    let screen = screen.filter(|_| comm.rank() == 0);
    let width = screen.map_or(0, |screen| screen.width);
    let mut lines = Lines { width, ..Lines::default() };
    if let Some(screen) = screen.filter(|_| how.show_next) {
        screen.say(screen.dim(format!("  {:?}", how.prompt.as_deref().unwrap_or_default())));
    }
    // The text begins with the prompt; a token that only begins a text has none.
    for &token in &prompt {
        let more = stream.push(&text, token);
        if screen.is_some() && !how.show_next {
            print(&lines.push(&more));
        }
    }
    let mut run = || {
        generate(
            &llama,
            &cache,
            Some(mesh.group(Axis::Pipeline)),
            &prompt,
            &continuation,
            |one| {
                let more = stream.push(&text, one.token);
                match screen {
                    Some(screen) if how.show_next => screen.say(next(screen, &text, one)),
                    Some(_) => print(&lines.push(&more)),
                    None => {}
                }
                Ok(())
            },
        )
    };
    let data = mesh.group(Axis::Data);
    let done = if config.zero_stage == Stage::Three {
        let zero = weights.begin(data, |begin| {
            ZeroInference::new(&llama.params, data, Wrap::Blocks, dtype, begin)
        })?;
        zero.passes(&mut run)?
    } else {
        weights.load(&llama.params, dtype)?;
        run()?
    };
    if let Some(screen) = screen {
        print(&if how.show_next { String::new() } else { lines.push("\n") });
        if let Some(turns) = turns(comm.size()) {
            screen.say(format!("\n{}", screen.row("speed", &format!("not measured: {turns}"))));
            return Ok(done);
        }
        let seconds = done.prefill.as_secs_f64();
        let decode = done.tokens_per_second().map_or_else(String::new, |rate| {
            format!("{}decode {} tokens/s", screen.separator(), significant(rate, 3))
        });
        let rates = format!(
            "prefill {} for {} tokens ({} tokens/s){decode}",
            screen.seconds(seconds),
            prompt.len(),
            significant(prompt.len() as f64 / seconds, 3),
        );
        screen.say(format!("\n{}", screen.row("speed", &rates)));
    }
    Ok(done)
}

/// Strategies that divide one text's model: alone and combined, on each number of ranks; and those
/// that cannot.
pub fn for_texts(shape: &ModelShape, ranks: &[usize]) -> (Vec<Candidate>, Vec<LeftOut>) {
    let replicates = |strategy: &Candidate| strategy.ranks > 1 && strategy.name.starts_with("DP");
    let mut strategies = Vec::new();
    let mut left_out = Vec::new();
    for &ranks in ranks {
        let (can, cannot) = all(shape, ranks, ranks);
        strategies.extend(can);
        left_out.extend(cannot);
    }
    strategies.retain(|strategy| !replicates(strategy));
    strategies.sort_by_key(|strategy| strategy.ranks);
    strategies.dedup_by(|a, b| a.name == b.name);
    (strategies, left_out)
}

/// Generates the text under each strategy. The first one's is printed, and the others must have the
/// same tokens.
pub fn compare(
    screen: &Screen,
    options: &Options,
    strategies: &[Candidate],
    job: Job,
) -> Result<Vec<String>> {
    let first = launch::is_first_process();
    let run = |i: usize, strategy: &Candidate| {
        let spoken = (i == 0 && first).then_some(screen);
        on_ranks(strategy.ranks, options, |comm| one_rank(spoken, &comm, &strategy.config, job))
    };
    let texts = strategies
        .iter()
        .enumerate()
        .map(|(i, one)| run(i, one))
        .collect::<Result<Vec<_>>>()?;
    let mut checks = Checks::new(screen);
    if first && strategies.len() > 1 {
        screen.say("");
        let slow: Vec<&Candidate> =
            strategies.iter().filter(|strategy| turns(strategy.ranks).is_some()).collect();
        for (strategy, text) in strategies.iter().zip(&texts).skip(1) {
            let rate = text.tokens_per_second().filter(|_| turns(strategy.ranks).is_none());
            let speed =
                rate.map_or_else(String::new, |rate| format!("{} tokens/s", significant(rate, 3)));
            same_tokens(&mut checks, &strategy.name, &texts[0].tokens, &text.tokens, speed);
        }
        if !slow.is_empty() {
            screen.say(not_timed(screen, &slow).trim_start_matches('\n'));
        }
    }
    let mut failed = checks.failed();
    failed.extend(reference(screen, job, &texts[0].tokens)?);
    Ok(failed)
}

/// A text that arrives in parts, broken into lines between words.
#[derive(Default)]
struct Lines {
    width: usize,
    column: usize,
    /// The last word, which may have more letters to come.
    word: String,
}

impl Lines {
    /// The part of the lines that is complete with `more`: up to the last word. Control characters
    /// would move the cursor.
    fn push(&mut self, more: &str) -> String {
        let mut out = String::new();
        for c in more.chars() {
            if !c.is_whitespace() {
                self.word.push(if is_hidden(c) { '·' } else { c });
                continue;
            }
            let letters = self.word.chars().count();
            if letters > 0 {
                if self.column > 0 && self.column + 1 + letters > self.width {
                    out.push('\n');
                    self.column = 0;
                }
                out += if self.column == 0 { "  " } else { " " };
                self.column += letters + if self.column == 0 { 2 } else { 1 };
                out += &std::mem::take(&mut self.word);
            }
            if c == '\n' {
                out.push('\n');
                self.column = 0;
            }
        }
        out
    }
}

/// Prints a part of a line at once.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    // Nothing is left to be done if the output has no reader any more.
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
}

/// The chosen token, and the likeliest ones with their probabilities.
fn next(screen: &Screen, text: &Text, one: &Generated) -> String {
    let mut lines = vec![format!("  {}", screen.bold(shown(text, one.token)))];
    for &Likely { token, probability } in &one.likeliest {
        let bar = bar(screen, f64::from(probability), 24);
        lines.push(format!(
            "    {bar} {:>6}  {}",
            percent(f64::from(probability)),
            shown(text, token)
        ));
    }
    lines.join("\n")
}

/// A token as the vocabulary has it, in one line.
fn shown(text: &Text, token: u32) -> String {
    format!("{:?}", text.token(token).replace('▁', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        let mut lines = Lines { width: 12, ..Lines::default() };
        let parts = ["One day", ", a", " ball rol", "led\u{7} by.\n", "The", " end", "\n"]
            .map(|part| lines.push(part));
        assert_eq!(parts.concat(), "  One day, a\n  ball\n  rolled·\n  by.\n  The end\n");
        assert_eq!([&*parts[0], &parts[1], &parts[2]], ["  One", " day,", " a\n  ball"]);
    }
}
