//! The parameters of a model that is counted and not planned.

use kit::show::Screen;
use planner::Counted;
use serde_json::json;
use shapes::error::BadInput;
use shapes::units::thousands;

/// Why such a model has no plans here.
const NO_PLANS: &str = "plans here are of dense decoders, and how experts and layers of other kinds are \
                        divided and timed is not computed";

/// The counts, on a screen.
pub fn counts(screen: &Screen, name: &str, counted: &Counted) -> String {
    let kinds: Vec<String> = counted
        .layers
        .iter()
        .map(|(kind, layers)| format!("{layers} x {kind}"))
        .collect();
    let active = counted.active as f64 / counted.parameters.max(1) as f64;
    let mut rows = vec![
        screen.row("model", name),
        screen.row("counted", &format!("{} parameters", thousands(counted.parameters))),
        screen.row(
            "active",
            &format!("{} per token ({:.1}%)", thousands(counted.active), 100.0 * active),
        ),
    ];
    rows.extend(kinds.iter().map(|kind| screen.row("layers", kind)));
    rows.extend(counted.notes.iter().map(|note| screen.row("note", note)));
    rows.push(screen.row("plans", &format!("none: {NO_PLANS}")));
    rows.join("\n")
}

/// The same for tools.
pub fn counts_json(name: &str, counted: &Counted) -> String {
    let all = json!({
        "model": name,
        "parameters": counted.parameters,
        "active_parameters": counted.active,
        "layers": counted.layers,
        "notes": counted.notes,
        "no_plans": NO_PLANS,
    });
    format!("{all:#}")
}

/// The refusal of a plan for such a model.
pub fn no_plans(name: &str) -> BadInput {
    BadInput::new(
        format!("{name}: {NO_PLANS}"),
        "without --plan and --ledger its parameters are counted",
    )
}
