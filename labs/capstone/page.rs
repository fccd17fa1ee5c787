//! A page for oneself: the story as one HTML file that needs nothing else.

use crate::parts::{Part, Whose};
use crate::story::{Beside, Kind, Story};
use kit::show::{Plot, Series, bytes_decimal, thousands};
use shardlab::units;
use std::fmt::Write;

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8886; --yours: #2f8f4e; --library: #8889; --without: #c0392b; }
body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; }
h1 { margin-bottom: 0 } h1 + p { margin-top: .2rem }
.lives { display: grid; grid-template-columns: 1fr auto 1fr; gap: .6rem; align-items: center; }
.life { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem; align-self: stretch; }
.life h3 { margin: 0 0 .4rem; font-size: 1rem }
.between { text-align: center; font-size: .85rem }
.part { display: inline-block; margin: .15rem; padding: 0 .5rem; border-radius: .6rem; border: 1px solid; }
.yours { border-color: var(--yours); background: color-mix(in srgb, var(--yours) 18%, transparent); font-weight: 600 }
.library { border-color: var(--library); border-style: dashed }
.without { border-color: var(--without); text-decoration: line-through }
table { border-collapse: collapse; width: 100%; margin: .6rem 0 }
td, th { text-align: left; padding: .15rem .6rem .15rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
pre { border-left: .25rem solid var(--yours); padding-left: .8rem; white-space: pre-wrap; overflow-wrap: anywhere }
.scroll { overflow-x: auto }
.scroll td:nth-child(n+3) { white-space: nowrap }
@media (max-width: 40rem) { .lives { grid-template-columns: 1fr } }
@media print { body { margin: 0 } }
";

/// The page.
pub fn page(story: &Story) -> String {
    let figures = &story.figures;
    let mut html = String::new();
    let mut add = |text: String| {
        html += &text;
        html.push('\n');
    };
    add(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>My trainer</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>"
    ));
    let yours = count(story, Whose::Yours);
    add(format!(
        "<h1>My trainer</h1>\n<p>A distributed trainer of {} parts, {yours} of them written by me. It has trained \
         a GPT on {} ranks and then on {}, through a crash and a poisoned batch.</p>",
        Part::ALL.len(),
        figures.ranks[0],
        figures.ranks[1]
    ));
    if let Some(beside) = &story.beside {
        add(format!("<p><strong>{}</strong></p>", same(beside)));
    }
    add("<h2>Is it right?</h2>\n<table>".into());
    for check in &story.checks {
        let mark = if check.passed { "✓" } else { "✗" };
        add(format!(
            "<tr><td>{mark}</td><td>{}</td><td>{}</td></tr>",
            escaped(&check.claim),
            escaped(&check.found)
        ));
    }
    for culprit in story.culprits() {
        add(format!(
            "<tr><td>✗</td><td>{} is wrong</td><td>life {}, step {}: {}</td></tr>",
            culprit.part.exercise(),
            culprit.shows.life,
            culprit.shows.step,
            escaped(&culprit.shows.what)
        ));
    }
    add("</table>".into());
    add("<h2>What was built</h2>".into());
    add(lives(story));
    add(parts(story));

    add("<h2>What it has trained</h2>".into());
    add(facts(story));
    add(losses(story));

    add("<h2>What it has survived</h2>\n<table>".into());
    for incident in &story.incidents {
        if incident.kind == Kind::Saved && incident.step != figures.saved {
            continue;
        }
        add(format!(
            "<tr><td>life {}</td><td>step {}</td><td>{}</td></tr>",
            incident.life,
            incident.step,
            escaped(&incident.what)
        ));
    }
    add("</table>".into());
    if let Some(text) = &story.text {
        let text = escaped(&format!("{}{text}", story.prompt));
        add(format!("<h2>What it writes</h2>\n<pre>{text}</pre>"));
    }
    add("</body>\n</html>".into());
    html
}

/// How near the training is to the library's, in one sentence.
fn same(beside: &Beside) -> String {
    let apart = &beside.apart;
    let losses: usize = apart.lives.iter().map(|losses| losses.steps).sum();
    match &beside.difference {
        Some(difference) => format!(
            "From step {} of life {} on it does not train as the library's parts do.",
            difference.step, difference.life
        ),
        None if apart.is_equal() => {
            format!(
                "{losses} losses, and all weights at the end: the same bits as with the library's parts."
            )
        }
        None => format!(
            "{losses} losses as with the library's parts, but for rounding: at most {:.0e} apart.",
            apart.loss()
        ),
    }
}

fn count(story: &Story, whose: Whose) -> usize {
    let of = story.parts.iter().filter(|part| part.whose == whose);
    of.count()
}

fn class(whose: Whose) -> &'static str {
    match whose {
        Whose::Yours => "yours",
        Whose::Library => "library",
        Whose::Without => "without",
    }
}

/// Both lives as boxes, with their parts.
fn lives(story: &Story) -> String {
    let figures = &story.figures;
    let chips = |parts: &[Part]| {
        let chip = |part: &Part| {
            let class = class(story.whose(*part));
            format!("<span class=\"part {class}\">{}</span>", part.word())
        };
        parts.iter().map(chip).collect::<Vec<_>>().join(" ")
    };
    use Part::*;
    let first = [Batches, Schedule, Skip, Gather, Average, Ring, Norm, Scaler];
    let second = [Mesh, Batches, Schedule, Skip, Order, Mlp, Ring, Norm, Scaler];
    format!(
        "<div class=\"lives\">\n<div class=\"life\"><h3>Life 1: steps 1 to {}, killed</h3>\n<p>{} data ranks, sharded blocks</p>\n{}</div>\n\
         <div class=\"between\">files of step {}<br>{}<br>→</div>\n\
         <div class=\"life\"><h3>Life 2: steps {} to {}</h3>\n<p>{} ranks: pipeline stages of tensor ranks</p>\n{}</div>\n</div>\n\
         <p><span class=\"part yours\">mine: {}</span> <span class=\"part library\">the library's: {}</span> \
         <span class=\"part without\">left out: {}</span></p>",
        figures.killed_after,
        figures.ranks[0],
        chips(&first),
        figures.saved,
        chips(&[Load]),
        figures.saved + 1,
        figures.steps,
        figures.ranks[1],
        chips(&second),
        count(story, Whose::Yours),
        count(story, Whose::Library),
        count(story, Whose::Without)
    )
}

/// What each part does and what it has cost.
fn parts(story: &Story) -> String {
    let mut html = "<div class=\"scroll\"><table>\n<tr><th>part</th><th>what it does</th><th>calls</th><th>time</th><th>sends</th></tr>\n"
        .to_string();
    for part in &story.parts {
        // A `String` takes everything.
        let _ = writeln!(
            html,
            "<tr><td><span class=\"part {}\">{}</span></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            class(part.whose),
            part.part.word(),
            escaped(&part.task),
            thousands(part.used.calls as u64),
            units::seconds(part.used.seconds),
            if part.used.bytes > 0.0 {
                bytes_decimal(part.used.bytes)
            } else {
                String::new()
            }
        );
    }
    html + "</table></div>"
}

fn facts(story: &Story) -> String {
    let figures = &story.figures;
    let mut speed = format!("{} tokens per second", thousands(story.tokens_per_second as u64));
    if let Some(beside) = &story.beside {
        let library = thousands(beside.tokens_per_second as u64);
        speed += &format!(" (with the library's parts {library})");
    }
    let rows = [
        (
            "model",
            format!(
                "GPT, {} layers, {} wide, {} parameters",
                figures.layers,
                figures.width,
                thousands(figures.parameters)
            ),
        ),
        ("text", escaped(&figures.corpus)),
        (
            "steps",
            format!(
                "{}, each with {} sequences of {} tokens",
                figures.steps, figures.sequences, figures.block
            ),
        ),
        ("speed", speed),
    ];
    let row = |(name, value): &(&str, String)| format!("<tr><th>{name}</th><td>{value}</td></tr>");
    let rows: Vec<String> = rows.iter().map(row).collect();
    format!("<table>{}</table>", rows.join("\n"))
}

fn losses(story: &Story) -> String {
    let of = |life: usize| {
        let points = story.steps.iter().filter(move |point| point.life == life);
        points.filter_map(|point| Some((point.step as f64, point.loss?)))
    };
    let plot = Plot::new("loss", "step").height(14);
    let plot = plot.series(Series::line("life 1", of(1)));
    plot.series(Series::line("life 2", of(2))).svg()
}

/// A text as HTML shows it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
