//! The story on a screen.

use crate::parts::{Part, Whose};
use crate::plan::Plan;
use crate::run::Run;
use crate::story::{Beside, Story};
use kit::show::{Plot, Screen, Series, table, thousands};
use shardlab::error::is_hidden;
use time::Date;

/// Everything, from top to bottom.
pub fn text(story: &Story, plan: &Plan, screen: &Screen) -> String {
    let beside = match &story.beside {
        Some(beside) => verdict(beside, screen),
        None if !plan.is_compared() => screen.row(
            "beside",
            "not compared with the library's: in so many steps, rounding by itself makes another training",
        ),
        None => screen.row("beside", "all parts are the library's"),
    };
    let mut lines = vec![format!("\n{beside}\n")];
    lines.push(format!("{}\n", picture(story, plan, screen)));
    lines.push(losses(story, screen));
    lines.push(format!("\n{}", incidents(&story.run, plan, screen)));
    if let Some(text) = &story.text {
        lines.push(format!("\n{}", screen.title("What it writes", 2)));
        lines.push(screen.quote(text, 4));
    }
    let speed = |run: &Run| thousands(run.tokens_per_second(plan) as u64);
    let mut line = format!("{} tokens per second", speed(&story.run));
    if let Some(beside) = &story.beside {
        line += &format!("; {} with the library's parts", speed(&beside.run));
    }
    lines.push(format!("\n{}\n", screen.row("speed", &line)));
    for check in &story.checks {
        lines.push(screen.check(check.passed, &check.claim, &check.found));
    }
    lines.join("\n")
}

/// The first lines of what people take home: whose trainer it is, the day, and what made it.
pub fn signed(screen: &Screen, name: &str, day: Date) -> String {
    let name: String = name.chars().filter(|&c| !is_hidden(c)).collect();
    let whose = if name.is_empty() { "someone" } else { &name };
    let made = format!("shardlab {} · {day}", env!("CARGO_PKG_VERSION"));
    screen.heading(&format!("A distributed trainer by {whose}"), &made)
}

/// The trainer's two lives, and whose each part is.
fn picture(story: &Story, plan: &Plan, screen: &Screen) -> String {
    let [yours, library, without] = if screen.ascii {
        ["#", "o", "x"]
    } else {
        ["●", "○", "✗"]
    };
    let mark = |part: Part| match story.versions[part as usize] {
        Whose::Yours => yours,
        Whose::Library => library,
        Whose::Without => without,
    };
    let named = |parts: &[Part]| -> String {
        let named = parts.iter().map(|&part| format!("{} {}", mark(part), part.name()));
        named.collect::<Vec<_>>().join("  ")
    };
    use Part::*;
    let saved = plan.saved();
    let left = [
        format!("life 1: steps 1 to {}, killed", plan.killed_after),
        "2 data ranks, sharded blocks".to_string(),
        named(&[Batches, Schedule, Skip]),
        named(&[Gather, Average, Ring]),
        named(&[Norm, Scaler]),
    ];
    let right = [
        format!("life 2: steps {} to {}", saved + 1, plan.config.steps),
        "4 ranks: 2 stages x 2 tensor ranks".to_string(),
        named(&[Batches, Schedule, Skip]),
        named(&[Mesh, Order, Mlp]),
        named(&[Ring, Norm, Scaler]),
    ];
    let [corner, end, below, beneath, line, wall, arrow] = if screen.ascii {
        ["+", "+", "+", "+", "-", "|", "->"]
    } else {
        ["┌", "┐", "└", "┘", "─", "│", "─▶"]
    };
    // Together they fill 80 columns; life 2 has the longer words.
    let border = |left: &str, right: &str| {
        let of = |wide| format!("{left}{}{right}", line.repeat(wide));
        format!("  {}    {}", of(34), of(36))
    };
    let mut lines = vec![border(corner, end)];
    for (i, (left, right)) in left.iter().zip(&right).enumerate() {
        let between = if i == 2 { arrow } else { "" };
        lines.push(format!("  {wall} {left:<33}{wall} {between:<2} {wall} {right:<35}{wall}"));
    }
    lines.push(border(below, beneath));
    let files = format!("  the files of step {saved} pass between them: {}", named(&[Load]));
    let count = |whose| story.versions.iter().filter(|&&of| of == whose).count();
    let [mine, theirs, none] = [Whose::Yours, Whose::Library, Whose::Without].map(count);
    lines.push(files);
    lines.push(format!(
        "  {yours} yours: {mine}   {library} the library's: {theirs}   {without} left out: {none}"
    ));
    lines.join("\n")
}

fn losses(story: &Story, screen: &Screen) -> String {
    let points = |run: &Run, life: usize| -> Vec<(f64, f64)> {
        let of = if life == 1 { &run.life1 } else { &run.life2 };
        of.losses().map(|(step, loss)| (step as f64, loss)).collect()
    };
    let mut plot = Plot::new("loss", "step").height(9);
    if let Some(Beside { run, .. }) = &story.beside {
        let both = [points(run, 1), points(run, 2)].concat();
        plot = plot.series(Series::line("the library's", both));
    }
    plot = plot.series(Series::line("life 1", points(&story.run, 1)));
    plot.series(Series::line("life 2", points(&story.run, 2))).render(screen)
}

/// What happened to the run, in the order of time.
fn incidents(run: &Run, plan: &Plan, screen: &Screen) -> String {
    let mut rows = Vec::new();
    let mut add = |life: usize, step: usize, kind: &str, what: String| {
        rows.push(vec![format!("life {life}"), step.to_string(), kind.to_string(), what]);
    };
    let saved = plan.saved();
    for (life, step) in run.steps() {
        let at = step.step;
        if life == 2 && at == saved + 1 {
            let what = "4 ranks resume: 2 pipeline stages x 2 tensor ranks";
            add(2, saved, "resumed", what.into());
        }
        if life == 1 && at == saved {
            add(1, at, "saved", "2 ranks save".into());
        }
        match step.trained {
            None => add(life, at, "skipped", "its sequences are left out".into()),
            Some(now) if at == plan.poison => {
                let before = run.life1.loss(at - 1).unwrap_or(f64::NAN);
                let what =
                    format!("random tokens: the loss jumps from {before:.2} to {:.2}", now.loss);
                add(life, at, "poisoned", what);
            }
            Some(now) if now.norm.is_none() => {
                add(life, at, "refused", "gradients overflow: no update".into())
            }
            Some(_) => {}
        }
        if life == 1 && run.life1.killed && at == plan.killed_after {
            add(1, at, "killed", "SIGKILL: nothing of it is left but files".into());
        }
    }
    for (number, life, first) in [(1, &run.life1, 1), (2, &run.life2, saved + 1)] {
        if let Some(what) = &life.failed {
            add(number, first + life.steps.len(), "FAILED", what.clone());
        }
    }
    table(screen, &["", "step", "", "what happened"], &rows)
}

/// How far the runs are apart, and which parts make it so.
fn verdict(beside: &Beside, screen: &Screen) -> String {
    let mut lines = Vec::new();
    for (life, losses) in (1..).zip(&beside.apart) {
        let words = match losses.equal {
            _ if losses.steps == 0 => continue,
            true => "the same bits as with the library's parts".to_string(),
            false => format!("at most {:.0e} from those with the library's", losses.most),
        };
        let words = format!("{} losses, {words}", losses.steps);
        lines.push(screen.row(&format!("life {life}"), &words));
    }
    if let Some(difference) = &beside.difference {
        let at = format!("life {}, step {}: {}", difference.life, difference.step, difference.what);
        lines.push(screen.row("differs", &at));
    }
    for culprit in &beside.search.culprits {
        let shows = &culprit.shows;
        let what = format!(
            "{} ({}) is wrong. With this part alone, step {} of life {} differs: {}",
            culprit.part.exercise(),
            culprit.part.name(),
            shows.step,
            shows.life,
            shows.what
        );
        lines.push(screen.mark(&screen.cross(), "part", &what));
    }
    if let Some(unexplained) = &beside.search.unexplained {
        let what =
            format!("no part alone makes step {} differ: {}", unexplained.step, unexplained.what);
        lines.push(screen.row("search", &what));
    }
    lines.join("\n")
}
