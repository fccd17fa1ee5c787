//! The names in the log lines.

use kit::show::{self, Screen};

/// Prints what each name in a log line is.
pub fn legend(screen: &Screen) {
    let rows = [
        ["iter", "Iteration, from 0"],
        ["loss", "Squared error summed over a rank's batch, mean over ranks"],
        [
            "sps",
            "Samples per second, all ranks (of the sources' logs, test_dist counts one rank's, wordplay batches)",
        ],
        ["dt", "Seconds per iteration, of rank 0, from its samples to the optimizer"],
        ["dtf", "Seconds of the forward pass"],
        [
            "dtb",
            "Seconds of the backward pass, all-reduce included (in the source's test_dist the optimizer, too)",
        ],
    ];
    screen.say(show::table(screen, &["abbr", "what it is"], rows));
    screen.say("");
}
