//! What a run would need, by arithmetic.

use super::MlpConfig;
use kit::show::{self, Screen};

/// `--dry-run`: memory, traffic and work, by arithmetic.
pub fn dry_run(screen: &Screen, config: &MlpConfig, free: Option<u64>) {
    let bytes = |bytes: u64| show::bytes_decimal(bytes as f64);
    let [parameters, gradients, optimizer, activations] = config.memory();
    let n = config.ranks as f64;
    let sent = (2.0 * (n - 1.0) / n * gradients as f64) as u64;
    let rows = [
        ["parameters", &bytes(parameters), "4 bytes each"],
        ["gradients", &bytes(gradients), "4 bytes each"],
        ["optimizer", &bytes(optimizer), "Adam's two moments, 8 bytes per parameter"],
        ["activations", &bytes(activations), "with their gradients; grows with --batch"],
        ["all ranks", &bytes(config.total_memory()), "in this process"],
        [
            "all-reduce",
            &bytes(sent),
            "sent a rank and iteration: 2(n-1)/n times the gradients",
        ],
    ];
    screen.say("");
    screen.say(show::table(screen, &["a rank", "bytes", ""], rows));
    if let Some(free) = free {
        let fits = if config.ensure_fits(free).is_ok() {
            "this run fits"
        } else {
            "this run does not fit"
        };
        screen.say(screen.row("free", &format!("{}; {fits}", bytes(free))));
    }
    let work = format!("{} GFLOP a rank and iteration", show::significant(config.flops() / 1e9, 3));
    screen.say(screen.row("work", &work));
}
