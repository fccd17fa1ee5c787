//! The models, devices and networks that have names, with the sources of their figures.

use super::planner::{MODELS, model};
use super::report::tokens;
use super::strategy::Device;
use anyhow::Result;
use kit::show::{Screen, bytes_decimal, significant, table};
use shardlab::plan::{Network, PRESETS};

/// All names that --model, --device and --network know.
pub fn presets(screen: &Screen) -> Result<String> {
    let devices = Device::all().map(|device| {
        let bandwidth = bytes_decimal(device.bandwidth);
        vec![
            device.name.clone(),
            format!(
                "{}{}",
                bytes_decimal(device.memory),
                if device.unreported() { "*" } else { "" }
            ),
            significant(device.peak / 1e12, 4),
            format!("{bandwidth}/s"),
            format!("{:.2}", device.price),
            device.source.to_string(),
        ]
    });
    let mut lines = Vec::new();
    let names = MODELS
        .iter()
        .map(|(name, _)| *name)
        .chain(PRESETS.iter().map(|(name, _)| *name));
    let models: Vec<String> = names
        .map(|name| Ok(format!("{name} ({})", tokens(model(name)?.parameters() as f64))))
        .collect::<Result<_>>()?;
    lines.push(screen.row("models", &models.join(", ")));
    let head = ["device", "memory", "TFLOP/s", "bandwidth", "$/hour", "source"];
    lines.extend([String::new(), table(screen, &head, &devices)]);
    let words = "memory: as PyTorch reports it; * from a data sheet. TFLOP/s: dense, in 16 bits. A layer of a large model reaches 0.43 to 0.73 of them: fitted for A100, and from \
                 the largest measured products for the others. Prices are assumptions.";
    lines.extend([screen.wrap(words, 2), String::new()]);
    let rows = Network::all().map(|network| {
        vec![network.name.to_string(), network.about.to_string(), network.source.to_string()]
    });
    lines.push(table(screen, &["network", "links, in one direction", "source"], &rows));
    lines.push(screen.wrap(
        "Latencies: NCCL's cost model. Yours: --help-cluster > mine.toml, then --cluster mine.toml",
        2,
    ));
    Ok(lines.join("\n"))
}
