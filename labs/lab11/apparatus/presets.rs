//! The models, devices and networks that have names, with the sources of their figures.

use super::report::tokens;
use kit::show::{Screen, bytes_decimal, significant, table};
use planner::{Device, models, networks};

/// All names that --model, --device and --network know.
pub fn presets(screen: &Screen) -> String {
    let models: Vec<String> = models()
        .map(|(name, shape)| format!("{name} ({})", tokens(shape.parameters() as f64)))
        .collect();
    let devices = Device::all().map(|device| {
        vec![
            device.name.to_string(),
            bytes_decimal(device.memory),
            significant(device.peak / 1e12, 4),
            format!("{}/s", bytes_decimal(device.bandwidth)),
            device.source.to_string(),
        ]
    });
    let networks = networks().map(|network| {
        vec![network.name.to_string(), network.about.to_string(), network.source.to_string()]
    });
    let words = "memory: as PyTorch reports it. TFLOP/s: dense, in 16 bits. A layer of a large model reaches 0.43 to 0.73 of \
                 them: fitted for A100, and from the largest measured products for the others.";
    [
        screen.row("models", &models.join(", ")),
        String::new(),
        table(screen, &["device", "memory", "TFLOP/s", "bandwidth", "source"], &devices),
        screen.wrap(words, 2),
        String::new(),
        table(screen, &["network", "links, in one direction", "source"], networks),
        screen.wrap("Latencies: NCCL's cost model. Yours: --help-cluster > mine.toml, then --cluster mine.toml", 2),
    ]
    .join("\n")
}
