//! What a rank does when.

/// Something that a rank can be doing. Its glyph, and its letter on an ASCII screen, are the same
/// in every picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    pub name: &'static str,
    pub glyph: char,
    pub letter: char,
}

impl Activity {
    const fn new(name: &'static str, glyph: char, letter: char) -> Activity {
        Activity { name, glyph, letter }
    }

    pub const DATA: Activity = Activity::new("data", '▚', 'd');
    pub const FORWARD: Activity = Activity::new("forward", '▓', 'F');
    pub const BACKWARD: Activity = Activity::new("backward", '▒', 'B');
    pub const ALL_REDUCE: Activity = Activity::new("all-reduce", '╳', 'x');
    pub const GATHER: Activity = Activity::new("gather", '▲', 'g');
    pub const REDUCE_SCATTER: Activity = Activity::new("reduce-scatter", '▼', 'r');
    /// The weights' half of a divided backward pass.
    pub const WEIGHTS: Activity = Activity::new("weights", '▄', 'W');
    pub const OPTIMIZER: Activity = Activity::new("optimizer", '≡', 'O');
    pub const WAITING: Activity = Activity::new("waiting", '·', '.');

    /// In the order of a legend.
    pub const ALL: [Activity; 9] = [
        Activity::DATA,
        Activity::GATHER,
        Activity::FORWARD,
        Activity::BACKWARD,
        Activity::ALL_REDUCE,
        Activity::REDUCE_SCATTER,
        Activity::OPTIMIZER,
        Activity::WAITING,
        Activity::WEIGHTS,
    ];
}

/// A time, in seconds, in which a row did one thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub activity: Activity,
    pub start: f64,
    pub end: f64,
}
