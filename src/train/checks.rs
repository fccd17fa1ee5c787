//! The checks at a lab's end: for the reader's eyes, and for the exit code.

use crate::show::Screen;

/// Prints checks as they are made, and keeps what was found wrong.
pub struct Checks<'a> {
    screen: &'a Screen,
    failed: Vec<String>,
}

impl<'a> Checks<'a> {
    pub fn new(screen: &'a Screen) -> Checks<'a> {
        Checks { screen, failed: Vec::new() }
    }

    /// Prints one check and how it went; `otherwise` is the error that it leads to if it is not `sound`.
    pub fn hold(&mut self, sound: bool, what: &str, result: &str, otherwise: &str) {
        self.screen.say(self.screen.check(sound, what, result));
        if !sound {
            self.failed.push(otherwise.to_string());
        }
    }

    /// Whether all ranks' parameters have the same hash (hexadecimal digits).
    pub fn one_model(&mut self, hashes: &[String]) {
        let one_model = hashes.iter().all(|hash| hash == &hashes[0]);
        let ends = |hash: &String| format!("{}..{}", &hash[..4], &hash[hash.len() - 4..]);
        let short: Vec<String> = hashes.iter().take(4).map(ends).collect();
        let result = match (one_model, hashes.len()) {
            // All of them, or as many as are the same anyway.
            (true, 3..) => format!("{} x {}", hashes.len(), short[0]),
            (true, _) => short.join(" = "),
            (false, _) => short.join(", "),
        };
        self.hold(one_model, "all ranks hold the same model", &result, "the ranks hold different models");
    }

    /// Whether no two ranks drew the same data, by what each rank's [`Symptoms`](super::Symptoms) say was drawn; `what`
    /// data consists of.
    pub fn own_data(&mut self, drawn: &[u64], what: &str) {
        let own = (1..drawn.len()).all(|rank| !drawn[..rank].contains(&drawn[rank]));
        let check = format!("every rank drew {what} of its own");
        self.hold(own, &check, "", &format!("ranks trained on the same {what}"));
    }

    /// Takes in whether the comparison before training ([`parity::compare`](super::parity::compare)) held; it has printed
    /// its check already.
    pub fn parity(&mut self, held: bool, ranks: usize) {
        if !held {
            self.failed.push(format!("{ranks} ranks did not train what one rank trains"));
        }
    }

    /// What was found wrong, an error message each.
    pub fn failed(self) -> Vec<String> {
        self.failed
    }
}
