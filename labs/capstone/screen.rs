//! The story on a screen.

use crate::parts::{Part, Whose};
use crate::plan::COMPARED;
use crate::story::{Beside, Kind, PartStory, Story};
use kit::show::{Plot, Screen, Series, bytes_decimal, table, thousands};

/// Everything, from top to bottom.
pub fn text(story: &Story, screen: &Screen) -> String {
    let mut lines = vec![format!("\n{}\n", beside(story, screen))];
    lines.push(format!("{}\n", picture(story, screen)));
    lines.push(losses(story, screen));
    lines.push(format!("\n{}", incidents(story, screen)));
    if let Some(text) = &story.text {
        lines.push(format!("\n{}", screen.title("What it writes", 2)));
        lines.push(screen.quote(&format!("{}{text}", story.prompt), 4));
    }
    lines.push(format!("\n{}", used(story, screen)));
    lines.push(String::new());
    for check in &story.checks {
        lines.push(screen.check(check.passed, &check.claim, &check.found));
    }
    lines.join("\n")
}

/// Whether the training is the library's.
fn beside(story: &Story, screen: &Screen) -> String {
    match &story.beside {
        Some(beside) => verdict(beside, screen),
        None if story.figures.steps > COMPARED => screen.row(
            "beside",
            "not compared with the library's: in so many steps, rounding by itself makes another training",
        ),
        None => screen.row("beside", "all parts are the library's"),
    }
}

/// The trainer's two lives, and whose each part is.
pub fn picture(story: &Story, screen: &Screen) -> String {
    let [yours, library, without] = if screen.ascii {
        ["#", "o", "x"]
    } else {
        ["●", "○", "✗"]
    };
    let mark = |part: Part| match story.whose(part) {
        Whose::Yours => yours,
        Whose::Library => library,
        Whose::Without => without,
    };
    let named = |parts: &[Part]| -> String {
        let named = parts.iter().map(|&part| format!("{} {}", mark(part), part.word()));
        named.collect::<Vec<_>>().join("  ")
    };
    let figures = &story.figures;
    use Part::*;
    let left = [
        format!("life 1: steps 1 to {}, killed", figures.killed_after),
        "2 data ranks, sharded blocks".to_string(),
        named(&[Batches, Schedule, Skip]),
        named(&[Gather, Average, Ring]),
        named(&[Norm, Scaler]),
    ];
    let right = [
        format!("life 2: steps {} to {}", figures.saved + 1, figures.steps),
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
    let wide = [34, 36];
    let gap = 4;
    let border =
        |wide: usize, left: &str, right: &str| format!("{left}{}{right}", line.repeat(wide));
    let pad = |wide: usize, text: &str| {
        format!(
            "{wall} {text}{}{wall}",
            " ".repeat((wide - 1).saturating_sub(text.chars().count()))
        )
    };
    let mut lines = vec![format!(
        "  {}{}{}",
        border(wide[0], corner, end),
        " ".repeat(gap),
        border(wide[1], corner, end)
    )];
    for (i, (left, right)) in left.iter().zip(&right).enumerate() {
        let between = if i == 2 { format!(" {arrow} ") } else { " ".repeat(gap) };
        lines.push(format!("  {}{between}{}", pad(wide[0], left), pad(wide[1], right)));
    }
    lines.push(format!(
        "  {}{}{}",
        border(wide[0], below, beneath),
        " ".repeat(gap),
        border(wide[1], below, beneath)
    ));
    lines.push(format!(
        "  the files of step {} pass between them: {}",
        figures.saved,
        named(&[Load])
    ));
    let count = |whose| story.parts.iter().filter(|part| part.whose == whose).count();
    lines.push(format!(
        "  {yours} yours: {}   {library} the library's: {}   {without} left out: {}",
        count(Whose::Yours),
        count(Whose::Library),
        count(Whose::Without)
    ));
    lines.join("\n")
}

fn losses(story: &Story, screen: &Screen) -> String {
    let of = |life: usize| {
        let points = story.steps.iter().filter(move |point| point.life == life);
        points.filter_map(|point| Some((point.step as f64, point.loss?)))
    };
    let mut plot = Plot::new("loss", "step").height(9);
    if let Some(beside) = &story.beside {
        let right = beside.steps.iter();
        plot = plot.series(Series::line(
            "the library's",
            right.filter_map(|point| Some((point.step as f64, point.loss?))),
        ));
    }
    plot = plot.series(Series::line("life 1", of(1)));
    plot.series(Series::line("life 2", of(2))).render(screen)
}

fn incidents(story: &Story, screen: &Screen) -> String {
    let of = |incident: &&crate::story::Incident| {
        incident.kind != Kind::Saved || incident.step == story.figures.saved
    };
    let row = |incident: &crate::story::Incident| {
        let what = match incident.kind {
            Kind::Saved => "saved",
            Kind::Poisoned => "poisoned",
            Kind::Killed => "killed",
            Kind::Resumed => "resumed",
            Kind::Skipped => "skipped",
            Kind::Refused => "refused",
            Kind::Failed => "FAILED",
        };
        let life = format!("life {}", incident.life);
        vec![life, incident.step.to_string(), what.to_string(), incident.what.clone()]
    };
    let rows: Vec<Vec<String>> = story.incidents.iter().filter(of).map(row).collect();
    table(screen, &["", "step", "", "what happened"], &rows)
}

/// What each part used.
fn used(story: &Story, screen: &Screen) -> String {
    let row = |part: &PartStory| {
        let whose = match part.whose {
            Whose::Yours => "yours",
            Whose::Library => "library",
            Whose::Without => "left out",
        };
        let library = part.library.filter(|_| part.whose == Whose::Yours);
        vec![
            part.part.word().to_string(),
            whose.to_string(),
            thousands(part.used.calls as u64),
            screen.seconds(part.used.seconds),
            bytes(part.used.bytes),
            library.map_or(String::new(), |library| {
                let ratio = compared_time(part.used.seconds, library.seconds);
                match story.busy {
                    Some(_) if !ratio.is_empty() => "busy".to_string(),
                    _ => ratio,
                }
            }),
            library.map_or(String::new(), |library| compared_bytes(part.used.bytes, library.bytes)),
        ]
    };
    let rows: Vec<Vec<String>> = story.parts.iter().map(row).collect();
    let mut header = vec!["part", "whose", "calls", "time", "sends"];
    let mut notes =
        "Time: of the rank that waits least, as if all steps were the median one.".to_string();
    if story.parts.iter().any(|part| part.whose == Whose::Yours) {
        header.extend(["time ratio", "bytes ratio"]);
        notes += " Ratios: your part to the library's.";
    }
    let speed = |tokens: f64| thousands(tokens as u64);
    let mut line = format!("{} tokens per second", speed(story.tokens_per_second));
    if let Some(beside) = &story.beside {
        line += &format!("; {} with the library's parts", speed(beside.tokens_per_second));
    }
    let mut lines = vec![
        table(screen, &header, &rows),
        screen.row("", &notes),
        screen.row("speed", &line),
    ];
    if let Some(busy) = &story.busy {
        let words = format!("{busy}: it made these times longer");
        lines.push(screen.row("busy", &words));
    }
    lines.join("\n")
}

fn bytes(bytes: f64) -> String {
    if bytes == 0.0 {
        String::new()
    } else {
        bytes_decimal(bytes)
    }
}

/// Short times say nothing.
fn compared_time(mine: f64, library: f64) -> String {
    match mine.max(library) < 1e-2 {
        true => String::new(),
        false => format!("{:.1}", mine / library.max(1e-9)),
    }
}

fn compared_bytes(mine: f64, library: f64) -> String {
    if mine == library {
        return if mine == 0.0 { "" } else { "equal" }.to_string();
    }
    format!("{:.2}", mine / library)
}

/// How far the runs are apart, and which parts make it so.
fn verdict(beside: &Beside, screen: &Screen) -> String {
    let apart = &beside.apart;
    let mut lines = Vec::new();
    for (life, losses) in (1..).zip(&apart.lives) {
        let words = match losses.equal {
            _ if losses.steps == 0 => continue,
            true => "the same bits as with the library's parts".to_string(),
            false => format!("at most {:.0e} from those with the library's", losses.most),
        };
        let words = format!("{} losses, {words}", losses.steps);
        lines.push(screen.row(&format!("life {life}"), &words));
    }
    if let Some(weight) = apart.weight {
        let words = match apart.weights_equal {
            true => "the same bits at the end".to_string(),
            false => format!("at most {weight:.0e} from the library's at the end"),
        };
        lines.push(screen.row("weights", &words));
    }
    if let Some(difference) = &beside.difference {
        let at = format!("life {}, step {}: {}", difference.life, difference.step, difference.what);
        lines.push(screen.row("differs", &at));
    }
    for culprit in beside.search.iter().flat_map(|search| &search.culprits) {
        let shows = &culprit.shows;
        let exercise = culprit.part.exercise();
        let what = format!(
            "{exercise} ({}) is wrong. With this part alone, step {} of life {} differs: {}",
            culprit.part.word(),
            shows.step,
            shows.life,
            shows.what
        );
        lines.push(screen.mark(&screen.cross(), "part", &what));
    }
    if let Some(unexplained) = beside.search.as_ref().and_then(|search| search.unexplained.as_ref())
    {
        let what =
            format!("no part alone makes step {} differ: {}", unexplained.step, unexplained.what);
        lines.push(screen.row("search", &what));
    }
    lines.join("\n")
}
