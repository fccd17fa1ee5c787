//! The rules: what is found in a file's syntax tree, and what is put in its place.

use super::edit::Edit;
use super::{Result, Room, parts, rows};
use proc_macro2::Span;
use std::fs;
use std::path::Path;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, ImplItem, Item, Lit, Pat, Stmt, Token, Type};

/// All edits of a file, outside its tests.
pub fn edits_of(room: &'static Room, path: &Path) -> Result<Vec<Edit>> {
    let text = &fs::read_to_string(path)?;
    let file = syn::parse_file(text).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut finder = Finder { room, path, text, edits: Vec::new() };
    finder.visit_file(&file);
    Ok(finder.edits)
}

struct Finder<'a> {
    room: &'static Room,
    path: &'a Path,
    text: &'a str,
    edits: Vec<Edit>,
}

impl<'a> Finder<'a> {
    fn source(&self, span: Span) -> &'a str {
        self.text.get(span.byte_range()).unwrap_or_default()
    }

    /// At `at`, `part` becomes what the table says of such a `kind`.
    fn change(&mut self, kind: &str, at: Span, part: Span) {
        for row in rows(include_str!("rules.tsv")) {
            let [of, rule, old, new] = parts(row, '\t').expect(row);
            if of == kind && self.source(part) == old {
                self.add(rule, at, part, new);
            }
        }
    }

    /// At `at`, `part` becomes `by`.
    fn add(&mut self, rule: &'static str, at: Span, part: Span, by: &str) {
        let range = at.byte_range();
        let inner = part.byte_range();
        let before = &self.text[range.start..inner.start];
        let after = &self.text[inner.end..range.end];
        self.edits.push(Edit {
            number: 0,
            room: self.room,
            file: self.path.to_path_buf(),
            at: [part.start().line, part.start().column + 1],
            range,
            rule,
            old: self.source(at).to_string(),
            new: format!("{before}{by}{after}"),
            outcome: String::new(),
        });
    }

    /// At `at`, two neighbours of a call's arguments take each other's place.
    fn swap(&mut self, at: Span, arguments: &Punctuated<Expr, Token![,]>) {
        let simple = |expr: &Expr| matches!(expr, Expr::Path(_) | Expr::Field(_) | Expr::Index(_));
        for (a, b) in arguments.iter().zip(arguments.iter().skip(1)) {
            let first = self.source(a.span());
            let second = self.source(b.span());
            if simple(a) && simple(b) && first != second {
                let between = &self.text[a.span().byte_range().end..b.span().byte_range().start];
                let part = a.span().join(b.span()).unwrap_or(at);
                self.add("two-arguments", at, part, &format!("{second}{between}{first}"));
            }
        }
    }
}

/// Tests, and what another target or feature compiles.
fn is_conditional(attributes: &[Attribute]) -> bool {
    let mut names = attributes.iter().map(Attribute::path);
    names.any(|name| name.is_ident("cfg") || name.is_ident("test"))
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
            Item::Mod(item) => is_conditional(&item.attrs),
            Item::Impl(item) => is_conditional(&item.attrs),
            _ => false,
        };
        if !skipped {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let ImplItem::Fn(item) = item else { return };
        if item.sig.constness.is_none() && !is_conditional(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        if let Stmt::Expr(expr, Some(_)) = stmt {
            let call = match expr {
                Expr::Try(tried) => &*tried.expr,
                _ => expr,
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
                self.change("operator", at, binary.op.span());
            }
            Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
                let value: u64 = number.base10_parse().unwrap_or(0);
                let by = if value == 1 { 0 } else { value + 1 };
                self.add("constant", at, at, &format!("{by}{}", number.suffix()));
            }
            Expr::Path(_) => self.change("path", at, at),
            Expr::Index(index) if self.source(index.index.span()) == "0" => {
                let by = format!("{}.len() - 1", self.source(index.expr.span()));
                self.add("first-and-last", at, index.index.span(), &by);
            }
            Expr::Field(field) => self.change("field", at, field.member.span()),
            Expr::MethodCall(call) => {
                self.change("method", at, call.method.span());
                self.swap(at, &call.args);
            }
            Expr::Call(call) => self.swap(at, &call.args),
            _ => {}
        }
        visit::visit_expr(self, expr);
    }
}
