//! Text as a pretrained model's tokens, and back.

use super::{read, unreadable};
use serde_json::Value;
use shardlab::error::BadInput;
use shardlab::files;
use std::fmt::Display;
use std::path::Path;
use tokenizers::Tokenizer;

/// Bytes of a tokenizer.json. Gemma's, with 256,000 tokens, has 34 million.
const MOST: u64 = 512 << 20;

/// The tokenizer of a tokenizer.json.
pub struct Text {
    tokenizer: Tokenizer,
}

impl Text {
    /// Reads `dir`'s tokenizer.json. Refuses one with tokens that the model does not have.
    pub(super) fn open(dir: &Path, vocabulary: usize) -> Result<Text, BadInput> {
        let path = dir.join("tokenizer.json");
        let help =
            "a model's folder has its tokenizer.json: fetch it from where the weights are from";
        let bad = |why: &dyn Display| unreadable(&path, why, help);
        let text = files::read(&path, MOST).map_err(|error| bad(&error))?;
        let tokenizer = Tokenizer::from_bytes(text).map_err(|error| bad(&error))?;
        let last = tokenizer.get_vocab(true).into_values().max();
        let most = last.map_or(0, |token| token as usize + 1);
        if most > vocabulary {
            let why = "they do not belong together";
            return Err(bad(&format!("it has {most} tokens, and the model {vocabulary}: {why}")));
        }
        Ok(Text { tokenizer })
    }

    /// The tokens of a prompt, with those that the post-processor adds, such as the one that begins
    /// a text.
    pub fn tokens(&self, text: &str) -> Result<Vec<u32>, BadInput> {
        let encoding = self.tokenizer.encode(text, true);
        let encoding = encoding.map_err(|error| {
            BadInput::new(format!("cannot encode the prompt: {error}"), "shorten it")
        })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of tokens. Tokens that only begin or end a text have none.
    pub fn text(&self, tokens: &[u32]) -> String {
        self.tokenizer.decode(tokens, true).unwrap_or_default()
    }

    /// A token of the vocabulary, and the number of a text that is one.
    pub(super) fn piece(&self, token: u32) -> Option<String> {
        self.tokenizer.id_to_token(token)
    }

    pub(super) fn number(&self, piece: &str) -> Option<u32> {
        self.tokenizer.token_to_id(piece)
    }

    /// Whether a token was added to the vocabulary, as those are that begin or end a text.
    pub(super) fn is_added(&self, token: u32) -> bool {
        self.tokenizer.get_added_tokens_decoder().contains_key(&token)
    }

    /// One token as the vocabulary has it: `▁little`, `<0x0A>`.
    pub fn token(&self, token: u32) -> String {
        self.tokenizer.id_to_token(token).unwrap_or_else(|| format!("#{token}"))
    }
}

/// Text that appears token by token.
#[derive(Default)]
pub struct Stream {
    tokens: Vec<u32>,
    /// Tokens before this one have been printed, and serve only as context.
    context: usize,
    printed: usize,
}

impl Stream {
    /// The text that one more token adds. It is empty until a character with several tokens is
    /// complete.
    pub fn push(&mut self, text: &Text, token: u32) -> String {
        self.tokens.push(token);
        // A decoder may treat the first token in a special way, so both texts begin with the same
        // one.
        let before = text.text(&self.tokens[self.context..self.printed]);
        let after = text.text(&self.tokens[self.context..]);
        if after.len() <= before.len() || after.ends_with('\u{fffd}') {
            return String::new();
        }
        self.context = self.printed;
        self.printed = self.tokens.len();
        after.get(before.len()..).unwrap_or_default().to_string()
    }
}

/// The tokens that end a text, from generation_config.json, or else from config.json.
pub(super) fn ends(dir: &Path, config: Option<&str>) -> Vec<u32> {
    let of = |json: &str| -> Option<Vec<u32>> {
        let json = shapes::config_json::json(json).ok()?;
        let token = |value: &Value| value.as_u64().and_then(|token| u32::try_from(token).ok());
        match json.get("eos_token_id")? {
            Value::Array(tokens) => Some(tokens.iter().filter_map(token).collect()),
            one => token(one).map(|token| vec![token]),
        }
    };
    let generation = read(&dir.join("generation_config.json")).ok();
    [generation.as_deref(), config]
        .into_iter()
        .flatten()
        .find_map(of)
        .unwrap_or_default()
}
