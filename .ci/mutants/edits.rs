//! The rules: what is found in a file's syntax tree, and what is put in its place.

use super::Result;
use proc_macro2::Span;
use std::ops::Range;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ImplItem, Item, Lit, Pat, Stmt, Type};

/// One edit: `old`, at a place, becomes `new`.
#[derive(Clone)]
pub struct Edit {
    pub file: PathBuf,
    /// Line and column, from 1.
    pub at: [usize; 2],
    /// The place's bytes in the file: an expression, or a statement.
    pub range: Range<usize>,
    pub rule: &'static str,
    /// On one line, as the list shows them.
    pub old: String,
    pub new: String,
    whole: [String; 2],
}

impl Edit {
    pub fn place(&self) -> String {
        format!("{}:{}:{}", self.file.display(), self.at[0], self.at[1])
    }

    /// The edit in the list.
    pub fn key(&self) -> String {
        format!("{}\t{}\t{}\t{}", self.place(), self.rule, self.old, self.new)
    }

    pub fn overlaps(&self, other: &Edit) -> bool {
        self.file == other.file
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }

    /// What the copy has there.
    pub fn switched(&self, number: usize) -> String {
        let [old, new] = &self.whole;
        if self.rule == "dropped-call" {
            return format!("if !crate::mutant({number}) {{ {old} }}");
        }
        format!("(if crate::mutant({number}) {{ {new} }} else {{ {old} }})")
    }
}

/// All edits of a file, outside its tests.
pub fn edits_of(path: &Path, text: &str) -> Result<Vec<Edit>> {
    let file = syn::parse_file(text).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut finder = Finder { path, text, edits: Vec::new() };
    finder.visit_file(&file);
    Ok(finder.edits)
}

struct Finder<'a> {
    path: &'a Path,
    text: &'a str,
    edits: Vec<Edit>,
}

/// In each line, the first word is the rule, and then every second word becomes the next one.
const OPERATORS: &str = "
comparison < <= <= < > >= >= > == != != == && || || &&
arithmetic + - - + * / / * % / += -= -= += *= /=
";
const PATHS: &str = "
group Axis::Data Axis::Tensor Axis::Tensor Axis::Data
group Axis::Pipeline Axis::Data Axis::Data Axis::Pipeline
group Reduce::Sum Reduce::Max Reduce::Max Reduce::Sum
group Reduce::Mean Reduce::Sum Reduce::Sum Reduce::Mean
group Write::Add Write::Replace Write::Replace Write::Add
group Precision::F32 Precision::Bf16 Precision::Bf16 Precision::F32
group true false false true f64::INFINITY 0.0
";
const METHODS: &str = "
first-and-last first last last first min max max min any all all any
group rank size size rank tensor context context tensor
arithmetic saturating_sub saturating_add saturating_add saturating_sub
constant div_ceil div_euclid div_euclid div_ceil
";
const FIELDS: &str = "first-and-last start end end start";

impl Finder<'_> {
    fn source(&self, span: Span) -> &str {
        self.text.get(span.byte_range()).unwrap_or_default()
    }

    /// At `at`, `part` becomes what a table says.
    fn change(&mut self, table: &'static str, at: Span, part: Span) {
        for line in table.trim().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            for pair in words[1..].chunks_exact(2) {
                if self.source(part) == pair[0] {
                    self.add(words[0], at, part, pair[1]);
                }
            }
        }
    }

    /// At `at`, `part` becomes `by`.
    fn add(&mut self, rule: &'static str, at: Span, part: Span, by: &str) {
        let range = at.byte_range();
        let inner = part.byte_range();
        let old = self.text[range.clone()].to_string();
        let mut new = old.clone();
        new.replace_range(inner.start - range.start..inner.end - range.start, by);
        // What is long is shown by its beginning.
        let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown = |text: &str| line(text).chars().take(160).collect();
        self.edits.push(Edit {
            file: self.path.to_path_buf(),
            at: [part.start().line, part.start().column + 1],
            range,
            rule,
            old: shown(&old),
            new: shown(&new),
            whole: [old, new],
        });
    }

    fn swapped(&mut self, at: Span, arguments: &syn::punctuated::Punctuated<Expr, syn::Token![,]>) {
        let simple = |expr: &Expr| matches!(expr, Expr::Path(_) | Expr::Field(_) | Expr::Index(_));
        for (a, b) in arguments.iter().zip(arguments.iter().skip(1)) {
            if simple(a) && simple(b) && self.source(a.span()) != self.source(b.span()) {
                let (first, second) = (a.span().byte_range(), b.span().byte_range());
                let between = &self.text[first.end..second.start];
                let by = format!("{}{between}{}", self.source(b.span()), self.source(a.span()));
                let part = a.span().join(b.span()).unwrap_or(at);
                self.add("two-arguments", at, part, &by);
            }
        }
    }
}

/// Tests, and what another target or feature compiles.
fn is_conditional(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .any(|one| one.path().is_ident("cfg") || one.path().is_ident("test"))
}

fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let skipped = match item {
            Item::Const(_) | Item::Static(_) | Item::Macro(_) => true,
            Item::Fn(item) => item.sig.constness.is_some() || is_conditional(&item.attrs),
            Item::Mod(syn::ItemMod { attrs, .. }) => is_conditional(attrs),
            Item::Impl(syn::ItemImpl { attrs, .. }) => is_conditional(attrs),
            _ => false,
        };
        if !skipped {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if let ImplItem::Fn(item) = item
            && item.sig.constness.is_none()
            && !is_conditional(&item.attrs)
        {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        if let Stmt::Expr(expr, Some(_)) = stmt {
            let call = if let Expr::Try(tried) = expr {
                &*tried.expr
            } else {
                expr
            };
            if matches!(call, Expr::Call(_) | Expr::MethodCall(_)) {
                self.add("dropped-call", stmt.span(), stmt.span(), "");
            }
        }
        visit::visit_stmt(self, stmt);
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        let at = expr.span();
        match expr {
            Expr::Const(_) => return,
            Expr::Repeat(repeat) => return self.visit_expr(&repeat.expr),
            Expr::Binary(binary) if !has_let(expr) => {
                self.change(OPERATORS, at, binary.op.span());
            }
            Expr::Lit(literal) => {
                if let Lit::Int(number) = &literal.lit {
                    let value: u64 = number.base10_parse().unwrap_or(0);
                    let by = if value == 1 { 0 } else { value + 1 };
                    self.add("constant", at, at, &format!("{by}{}", number.suffix()));
                }
            }
            Expr::Path(_) => self.change(PATHS, at, at),
            Expr::Index(index) if self.source(index.index.span()) == "0" => {
                let by = format!("{}.len() - 1", self.source(index.expr.span()));
                self.add("first-and-last", at, index.index.span(), &by);
            }
            Expr::Field(field) => self.change(FIELDS, at, field.member.span()),
            Expr::MethodCall(call) => {
                self.change(METHODS, at, call.method.span());
                self.swapped(at, &call.args);
            }
            Expr::Call(call) => self.swapped(at, &call.args),
            _ => {}
        }
        visit::visit_expr(self, expr);
    }
}
