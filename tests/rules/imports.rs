//! Which paths a Rust file takes, read from its tokens: for the rules about rooms and siblings.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::iter::Peekable;

/// The paths of a source, outside its tests.
#[derive(Default)]
pub struct Paths {
    /// All, in declarations and in code.
    pub all: Vec<String>,
    /// Those of `use`, and of `pub use`.
    pub uses: Vec<String>,
    pub exports: Vec<String>,
}

impl Paths {
    pub fn of(source: &str) -> Paths {
        let mut paths = Paths::default();
        let tokens = source.parse().unwrap_or_else(|e| panic!("{e}: {source}"));
        paths.walk(tokens, None);
        paths
    }

    /// Those that begin with `root`, such as `crate::comm::` or `super::`, without it.
    pub fn below(&self, root: &str) -> Vec<String> {
        let rest = self.all.iter().filter_map(|path| path.strip_prefix(root));
        rest.filter(|rest| !rest.starts_with("super::")).map(String::from).collect()
    }

    /// Collects the paths among tokens. Within a `use` each stands behind `before`: what is before
    /// its brace.
    fn walk(&mut self, tokens: TokenStream, before: Option<&str>) {
        let mut tokens = tokens.into_iter().peekable();
        let mut is_public = false;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => skip_tests(&mut tokens),
                TokenTree::Ident(name) if name == "use" => {
                    let first = self.all.len();
                    let declared = tokens.by_ref().take_while(|token| token.to_string() != ";");
                    let declared: TokenStream = declared.collect();
                    self.walk(declared, Some(""));
                    self.uses.extend_from_slice(&self.all[first..]);
                    if is_public {
                        self.exports.extend_from_slice(&self.all[first..]);
                    }
                }
                // The new name of what is used.
                TokenTree::Ident(name) if name == "as" && before.is_some() => {
                    tokens.next();
                }
                TokenTree::Ident(name) => {
                    is_public = name == "pub";
                    self.path(format!("{}{name}", before.unwrap_or_default()), &mut tokens);
                    continue;
                }
                TokenTree::Group(group) => self.walk(group.stream(), before),
                _ => {}
            }
            is_public = false;
        }
    }

    /// Goes on with a path whose first name has been read.
    fn path(&mut self, mut path: String, tokens: &mut Peekable<impl Iterator<Item = TokenTree>>) {
        while tokens.next_if(is_colon).is_some() {
            if tokens.next_if(is_colon).is_none() {
                break;
            }
            match tokens.peek() {
                Some(TokenTree::Ident(name)) => path += &format!("::{name}"),
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    let below = group.stream();
                    tokens.next();
                    return self.walk(below, Some(&format!("{path}::")));
                }
                _ => break,
            }
            tokens.next();
        }
        // `a::{self}` is `a`.
        self.all.push(path.strip_suffix("::self").map_or(path.clone(), String::from));
    }
}

fn is_colon(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(mark) if mark.as_char() == ':')
}

/// After the `#` of an attribute: if it is `[cfg(test)]`, or has it among others, skips the module
/// that follows.
fn skip_tests(tokens: &mut Peekable<impl Iterator<Item = TokenTree>>) {
    let Some(TokenTree::Group(attribute)) = tokens.peek() else {
        return;
    };
    let attribute = attribute.stream().to_string().replace(' ', "");
    if !attribute.starts_with("cfg(test)") && !attribute.starts_with("cfg(all(test") {
        return;
    }
    tokens.next();
    // Up to its body, or to the end of its declaration.
    for token in tokens {
        let ends = match &token {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            token => token.to_string() == ";",
        };
        if ends {
            return;
        }
    }
}

#[test]
fn paths_are_found_in_every_form() {
    let below = |source: &str, root: &str| Paths::of(source).below(root);
    assert_eq!(below("use crate::{a::{b, c::D}, e};", "crate::"), ["a::b", "a::c::D", "e"]);
    assert_eq!(below("use crate::a::{self, b as c};", "crate::"), ["a", "a::b"]);
    assert_eq!(Paths::of("use a::b as c;\nfn f() { 1 as u8 }").uses, ["a::b"]);
    assert_eq!(
        below("fn f() -> Vec<super::A> { super::b::c::<u8>(1) }", "super::"),
        ["A", "b::c"]
    );
    assert_eq!(below("m!(\"{}\", crate::x::y());", "crate::"), ["x::y"]);
    assert_eq!(below("// crate::a\nconst A: &str = \"https://crate::b\";", "crate::"), [""; 0]);
    assert_eq!(below("use super::super::a;", "super::"), [""; 0]);
    let tests = "#[cfg(test)]\nmod tests { use crate::a; }\n#[cfg(test)]\nmod more;\nuse crate::b;";
    assert_eq!(below(tests, "crate::"), ["b"]);
    let paths = Paths::of("use a::b;\npub use c::{d, e};\npub(crate) use f::g;\nfn h() { i::j() }");
    assert_eq!(paths.uses, ["a::b", "c::d", "c::e", "f::g"]);
    assert_eq!(paths.exports, ["c::d", "c::e"]);
}
