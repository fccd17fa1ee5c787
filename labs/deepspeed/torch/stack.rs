//! The memory of a pickle's program: a stack of values, marks on it, and values that it uses again.

use super::value::{Graph, Id, Object, Value};
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Stack {
    pub graph: Graph,
    entries: Vec<Id>,
    /// The stack's length at each mark.
    marks: Vec<usize>,
    /// Values that the program uses again, by the number that it gave them.
    memo: HashMap<u32, Id>,
}

impl Stack {
    pub fn mark(&mut self) {
        self.marks.push(self.entries.len());
    }

    /// Remembers the top of the stack under a number.
    pub fn remember(&mut self, number: u32) -> Result<(), String> {
        let top = self.top()?;
        self.memo.insert(number, top);
        Ok(())
    }

    /// Remembers the top of the stack under the next number.
    pub fn remember_next(&mut self) -> Result<(), String> {
        self.remember(self.memo.len() as u32)
    }

    pub fn recall(&mut self, number: u32) -> Result<(), String> {
        let id = self
            .memo
            .get(&number)
            .ok_or_else(|| format!("it uses value {number} too early"))?;
        self.entries.push(*id);
        Ok(())
    }

    pub fn push(&mut self, value: Value) {
        let id = self.graph.push(value);
        self.entries.push(id);
    }

    fn above_mark(&self, length: usize) -> Result<(), String> {
        if self.marks.last().is_some_and(|mark| *mark > length) {
            Err(empty())
        } else {
            Ok(())
        }
    }

    pub fn pop(&mut self) -> Result<Id, String> {
        self.above_mark(self.entries.len().checked_sub(1).ok_or_else(empty)?)?;
        self.entries.pop().ok_or_else(empty)
    }

    pub fn top(&self) -> Result<Id, String> {
        self.entries.last().copied().ok_or_else(empty)
    }

    /// Takes the last `count` values, for a tuple.
    pub fn last(&mut self, count: usize) -> Result<Vec<Id>, String> {
        let first = self.entries.len().checked_sub(count).ok_or_else(empty)?;
        self.above_mark(first)?;
        Ok(self.entries.split_off(first))
    }

    pub fn since_mark(&mut self) -> Result<Vec<Id>, String> {
        let mark = self.marks.pop().ok_or_else(|| "a mark is missing".to_string())?;
        Ok(self.entries.split_off(mark))
    }

    pub fn pairs_since_mark(&mut self) -> Result<Vec<(Id, Id)>, String> {
        let items = self.since_mark()?;
        let (pairs, rest) = items.as_chunks();
        if !rest.is_empty() {
            return Err("a dictionary's key has no value".to_string());
        }
        Ok(pairs.iter().map(|[key, value]| (*key, *value)).collect())
    }

    /// Notes a call, instead of making it.
    pub fn call(&mut self, class: Id, args: Id, new: bool) -> Result<(), String> {
        if !matches!(self.graph.value(args), Value::Tuple(_)) {
            return Err("a call's arguments are no tuple".to_string());
        }
        self.push(Value::Object(Box::new(Object::new(class, args, new))));
        Ok(())
    }

    /// Makes a class or function of its two names.
    pub fn class(&mut self) -> Result<(), String> {
        let (name, module) = (self.pop()?, self.pop()?);
        let text = |id| match self.graph.value(id) {
            Value::Text(text) => Ok(text.to_string()),
            _ => Err("a class's name is no text".to_string()),
        };
        self.push(Value::Class(Box::new((text(module)?, text(name)?))));
        Ok(())
    }

    /// Gives the object on top its attributes.
    pub fn build(&mut self) -> Result<(), String> {
        let state = self.pop()?;
        let at = self.top()?;
        match self.graph.value_mut(at) {
            Value::Object(object) => object.state = Some(state),
            _ => return Err("it sets the state of what is no object".to_string()),
        }
        Ok(())
    }

    pub fn extend(&mut self, more: Vec<Id>) -> Result<(), String> {
        let at = self.top()?;
        match self.graph.value_mut(at) {
            Value::List(items) => items.extend(more),
            Value::Object(object) => object.items.extend(more),
            _ => return Err("it appends to what is no list".to_string()),
        }
        Ok(())
    }

    pub fn insert(&mut self, more: Vec<(Id, Id)>) -> Result<(), String> {
        let at = self.top()?;
        match self.graph.value_mut(at) {
            Value::Dict(pairs) => pairs.extend(more),
            Value::Object(object) => object.pairs.extend(more),
            _ => return Err("it inserts into what is no dictionary".to_string()),
        }
        Ok(())
    }
}

fn empty() -> String {
    "it takes a value from an empty stack".to_string()
}
