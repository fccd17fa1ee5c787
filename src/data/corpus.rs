//! The text that a model learns from: finding it, its characters as tokens, and the training and
//! validation splits.

use crate::error::{BadInput, printable};
use crate::{files, sha256};
use std::path::{Path, PathBuf};

/// The original play that comes with the project, so that no download is needed.
const EMBEDDED: &str = include_str!("../../data/play.txt");

/// The real corpus's path, below the current folder or beside Cargo.toml.
const FILE: &str = "data/tinyshakespeare.txt";

/// The hash of the file that all published figures are about.
const SHA256: &str = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed";

/// Its bytes.
const SHAKESPEARE: usize = 1_115_394;

/// Bytes of a text. Its tokens take four times as many, and the model has one per character.
const MOST: u64 = 1 << 30;

/// The command that fetches the real Shakespeare.
pub const FETCH_COMMAND: &str = "curl -L -o data/tinyshakespeare.txt \
     https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt";

/// A character-level vocabulary. Token i is the i-th character in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary(Vec<char>);

impl Vocabulary {
    /// The distinct characters of a text, in order.
    pub fn of(text: &str) -> Vocabulary {
        let mut chars: Vec<char> = text.chars().collect();
        chars.sort_unstable();
        chars.dedup();
        Vocabulary(chars)
    }

    /// The number of tokens.
    pub fn size(&self) -> usize {
        self.0.len()
    }

    /// Turns characters into tokens.
    ///
    /// # Errors
    /// The first character that is not in the vocabulary.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, char> {
        text.chars()
            .map(|c| self.0.binary_search(&c).map(|i| i as u32).map_err(|_| c))
            .collect()
    }

    /// Turns tokens into text. Tokens outside the vocabulary become U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        tokens
            .iter()
            .map(|&t| self.0.get(t as usize).copied().unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect()
    }

    /// All characters, in order.
    pub fn characters(&self) -> String {
        self.0.iter().collect()
    }
}

/// A text, ready to be trained on.
pub struct Corpus {
    /// Its name: the embedded play's title, or a path.
    pub name: String,
    /// Whether this is the text that comes with the project.
    pub embedded: bool,
    /// Whether this is the reader's own text, and none that the published figures are about.
    pub own: bool,
    /// What the reader should know of the text before training, if there is something.
    pub note: Option<String>,
    pub vocabulary: Vocabulary,
    /// The first nine tenths.
    pub train: Vec<u32>,
    /// The last tenth, which no run trains on.
    pub validation: Vec<u32>,
    /// The text's first non-empty line, cut after 60 characters.
    pub first_line: String,
}

impl Corpus {
    /// Finds the text to train on. The first of these wins: `given` (`--data`), the file that the
    /// variable SHARDLAB_CORPUS names, `data/tinyshakespeare.txt` here, the same file in the
    /// checkout around this folder or around this program or where it was built, the embedded play.
    ///
    /// # Errors
    /// If the file cannot be read, is not UTF-8 text, is too short, or is not the tiny Shakespeare
    /// file whose name it has.
    pub fn find(given: Option<&Path>) -> Result<Corpus, BadInput> {
        if let Some(path) = given {
            return Corpus::read(path);
        }
        if let Some(path) = std::env::var_os("SHARDLAB_CORPUS").filter(|path| !path.is_empty()) {
            return Corpus::read(Path::new(&path));
        }
        let here = std::env::current_dir().unwrap_or_default();
        let program = std::env::current_exe().unwrap_or_default();
        let built = Path::new(env!("CARGO_MANIFEST_DIR"));
        let around = here.ancestors().chain(program.ancestors()).chain([built]);
        let checkout = around.filter(|folder| folder.join("data/play.txt").exists());
        let files = checkout.take(1).map(|folder| folder.join(FILE));
        match [PathBuf::from(FILE)].into_iter().chain(files).find(|path| path.exists()) {
            Some(path) => Corpus::read_verified(&path),
            None => Corpus::embedded(),
        }
    }

    /// The play that comes with the project.
    ///
    /// # Errors
    /// Never in a sound build: the play is a text of the right form.
    pub fn embedded() -> Result<Corpus, BadInput> {
        let name = "\"The Tragedy of Rank Zero\"";
        Ok(Corpus { embedded: true, ..Corpus::new(name, EMBEDDED)? })
    }

    /// Reads the text in a file.
    ///
    /// # Errors
    /// If the file cannot be read, is not UTF-8 text, or makes no corpus ([`Corpus::new`]).
    pub fn read(path: &Path) -> Result<Corpus, BadInput> {
        Corpus::new(&printable(&path.display().to_string()), &read_text(path)?)
    }

    fn read_verified(path: &Path) -> Result<Corpus, BadInput> {
        let text = read_text(path)?;
        let sum = sha256::hex(text.as_bytes());
        if sum != SHA256 {
            let what = format!(
                "{} is not the tiny Shakespeare file: its SHA-256 is {sum}",
                path.display()
            );
            return Err(BadInput::new(
                what,
                format!(
                    "fetch it again:  {FETCH_COMMAND}\n      or name your own text with `corpus` PATH"
                ),
            ));
        }
        Corpus::new(&path.display().to_string(), &text)
    }

    /// Makes a corpus of a text. The text must have at least twenty characters, two of them
    /// different, so that both splits have something to learn.
    ///
    /// # Errors
    /// If the text is shorter, or all its characters are the same.
    pub fn new(name: &str, text: &str) -> Result<Corpus, BadInput> {
        let help = "name a text file with `corpus` PATH, or leave `corpus` out to train on the text that comes with the lab";
        let vocabulary = Vocabulary::of(text);
        let tokens = vocabulary
            .encode(text)
            .map_err(|c| BadInput::new(format!("{name}: lost {c:?}"), help))?;
        if tokens.is_empty() {
            return Err(BadInput::new(format!("{name} is empty"), help));
        }
        if tokens.len() < 20 || vocabulary.size() < 2 {
            let chars = tokens.len();
            let distinct = vocabulary.size();
            let what =
                format!("{name} is too short to train on: {chars} characters, {distinct} distinct");
            return Err(BadInput::new(what, help));
        }
        let (train, validation) = tokens.split_at(tokens.len() * 9 / 10);
        let own = text != EMBEDDED && !is_shakespeare(text);
        let ends = text.matches("</html>").count() + text.matches("</HTML>").count();
        // Several pages are a text about pages, one is what a server sends.
        let page = files::page(text.as_bytes()).filter(|_| ends < 2);
        Ok(Corpus {
            name: name.to_string(),
            embedded: false,
            own,
            note: page.map(|page| format!("{name} is trained on as it is, but {page}")),
            vocabulary,
            train: train.to_vec(),
            validation: validation.to_vec(),
            first_line: beginning(text),
        })
    }

    /// The number of characters in both splits together.
    pub fn chars(&self) -> usize {
        self.train.len() + self.validation.len()
    }
}

/// The first non-empty line, or the text's first characters; at most a line of the screen.
fn beginning(text: &str) -> String {
    const MOST: usize = 60;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or(text);
    line.chars().take(MOST).collect()
}

fn is_shakespeare(text: &str) -> bool {
    text.len() == SHAKESPEARE && sha256::hex(text.as_bytes()) == SHA256
}

fn read_text(path: &Path) -> Result<String, BadInput> {
    let help = "give `corpus` the path of a text file in UTF-8";
    files::text_or_page(path, MOST)
        .map_err(|error| BadInput::new(format!("cannot read {}: {error}", path.display()), help))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every figure about a model is the same on both texts only if they have the same characters.
    #[test]
    fn the_play_uses_the_real_corpus_characters() {
        let corpus = Corpus::embedded().unwrap();
        let letters: String = ('A'..='Z').chain('a'..='z').collect();
        assert_eq!(corpus.vocabulary.characters(), format!("\n !$&',-.3:;?{letters}"));
        assert_eq!(corpus.vocabulary.size(), 65);
        assert!(corpus.chars() >= 60_000);
    }

    #[test]
    fn text_survives_tokens() {
        let corpus = Corpus::new("test", "To be, or not to be: that is the question.").unwrap();
        let tokens = corpus.vocabulary.encode("not to be").unwrap();
        assert_eq!(corpus.vocabulary.decode(&tokens), "not to be");
        assert_eq!(corpus.vocabulary.encode("to BE"), Err('B'));
    }

    #[test]
    fn nine_tenths_are_trained_on() {
        let corpus = Corpus::new("test", &"abcdefghij".repeat(11)).unwrap();
        assert_eq!((corpus.train.len(), corpus.validation.len()), (99, 11));
    }

    #[test]
    fn the_beginning_is_short_and_in_the_vocabulary() {
        for text in [
            "\n \nSpeak: \nmore\nand more",
            "\n\t\n\t\n\t\n\t\n\t\n\t\n\t\n\t\n\t\n\t\n\t",
            &"long ".repeat(99),
        ] {
            let corpus = Corpus::new("test", text).unwrap();
            let tokens = corpus.vocabulary.encode(&corpus.first_line).unwrap();
            assert!((1..=60).contains(&tokens.len()), "{text:?}");
        }
        assert_eq!(beginning("\n \nSpeak: \nmore"), "Speak:");
    }

    #[test]
    fn what_a_reader_should_know_of_a_text_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            let path = dir.path().join("text");
            std::fs::write(&path, text).unwrap();
            Corpus::read(&path).unwrap()
        };
        let long = read(&format!("\u{feff}{}", "abcdefghij ".repeat(1000)));
        assert_eq!(long.note, None);
        assert_eq!(
            (long.own, long.vocabulary.size(), &*long.first_line),
            (true, 11, "abcdefghij abcdefghij abcdefghij abcdefghij abcdefghij abcde")
        );
        let filler = "Not here. ".repeat(1200);
        let page = format!("<!DOCTYPE html><html><body>{filler}</body></html>");
        assert!(read(&page).note.unwrap().contains("it is an HTML page"));
        // Several are a text about pages.
        assert_eq!(read(&page.repeat(2)).note, None);
        assert!(!Corpus::embedded().unwrap().own);
        assert!(!Corpus::new("a copy", EMBEDDED).unwrap().own);
    }

    #[test]
    fn what_cannot_be_trained_on_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            Corpus::read(&path).err().expect("refused").what
        };
        assert!(file("empty", b"").ends_with("is empty"));
        assert!(file("short", b"short").contains("is too short to train on: 5 characters"));
        assert!(file("binary", b"abc\xff\xfe").contains("is not UTF-8 text (byte 3)"));
        assert!(Corpus::read(dir.path()).err().unwrap().what.contains("no regular file"));
        assert!(
            Corpus::read(&dir.path().join("none"))
                .err()
                .unwrap()
                .what
                .contains("cannot read")
        );
        let path = dir.path().join("tinyshakespeare.txt");
        std::fs::write(&path, "Not Shakespeare, though long enough.").unwrap();
        assert!(
            Corpus::read_verified(&path)
                .err()
                .unwrap()
                .what
                .contains("is not the tiny Shakespeare file")
        );
    }
}
