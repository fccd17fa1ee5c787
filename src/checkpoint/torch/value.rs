//! The values that a pickle describes, as data: numbers, texts, containers, and objects whose classes are only names.
//!
//! Values refer to each other by number, because a pickle can use one value in several containers.

use std::collections::HashMap;

/// The number of a value in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub(super) u32);

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits: little-endian, two's complement.
    Long(Box<[u8]>),
    Float(f64),
    Text(Box<str>),
    Bytes(Box<[u8]>),
    List(Vec<Id>),
    Tuple(Vec<Id>),
    Set(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// A class or function, by module and name. It is never looked up.
    Class(Box<(String, String)>),
    Object(Box<Object>),
    /// A reference to something outside the pickle: the numbers of a tensor.
    Persistent(Id),
}

/// The result of a call that was not made.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    pub class: Id,
    pub args: Id,
    /// Whether `class` makes an object without calling its `__init__`.
    pub new: bool,
    pub items: Vec<Id>,
    pub pairs: Vec<(Id, Id)>,
    pub state: Option<Id>,
}

/// Values, and the one that the file is about.
#[derive(Clone, Debug)]
pub struct Graph {
    values: Vec<Value>,
    pub root: Id,
}

/// Bytes of a value whose parts are copied wherever they are used.
const UNFOLDED: u64 = 512 << 20;

/// Containers inside containers. Real checkpoints have about ten levels.
pub(super) const DEPTH: u32 = 200;

impl Default for Graph {
    fn default() -> Graph {
        Graph { values: vec![Value::None], root: Id(0) }
    }
}

impl Graph {
    pub fn push(&mut self, value: Value) -> Id {
        self.values.push(value);
        Id(self.values.len() as u32 - 1)
    }

    pub fn text(&mut self, text: &str) -> Id {
        self.push(Value::Text(text.into()))
    }

    pub fn class(&mut self, module: &str, name: &str) -> Id {
        self.push(Value::Class(Box::new((module.to_string(), name.to_string()))))
    }

    /// The result of a call of `class` with `args`.
    pub fn call(&mut self, class: Id, args: Vec<Id>) -> Id {
        let args = self.push(Value::Tuple(args));
        self.push(Value::Object(Box::new(Object {
            class,
            args,
            new: false,
            items: vec![],
            pairs: vec![],
            state: None,
        })))
    }

    /// Gives an object its attributes.
    pub fn set_state(&mut self, object: Id, state: Id) {
        if let Value::Object(object) = self.value_mut(object) {
            object.state = Some(state);
        }
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// A graph always has its root.
    pub fn is_empty(&self) -> bool {
        false
    }

    pub fn value(&self, id: Id) -> &Value {
        &self.values[id.0 as usize]
    }

    pub(super) fn value_mut(&mut self, id: Id) -> &mut Value {
        &mut self.values[id.0 as usize]
    }

    pub fn node(&self, id: Id) -> Node<'_> {
        Node { graph: self, id }
    }

    pub fn root(&self) -> Node<'_> {
        self.node(self.root)
    }

    /// Calls `each` with every value that `id` refers to directly.
    pub(super) fn children(&self, id: Id, each: &mut dyn FnMut(Id)) {
        let pairs = |pairs: &[(Id, Id)], each: &mut dyn FnMut(Id)| {
            for (key, value) in pairs {
                each(*key);
                each(*value);
            }
        };
        match self.value(id) {
            Value::List(items) | Value::Tuple(items) | Value::Set(items) => items.iter().for_each(|item| each(*item)),
            Value::Dict(entries) => pairs(entries, each),
            Value::Persistent(reference) => each(*reference),
            Value::Object(object) => {
                each(object.class);
                each(object.args);
                object.items.iter().for_each(|item| each(*item));
                pairs(&object.pairs, each);
                object.state.iter().for_each(|state| each(*state));
            }
            _ => {}
        }
    }

    /// Refuses values that contain themselves, or are nested too deep: whatever walks through them would not end.
    pub(super) fn ensure_tree(&self) -> Result<(), String> {
        const NEW: u32 = 0;
        const OPEN: u32 = u32::MAX;
        // The levels below each value, once they are known.
        let mut levels = vec![NEW; self.len()];
        let mut stack = vec![(self.root, false)];
        while let Some((id, left)) = stack.pop() {
            let at = id.0 as usize;
            if left {
                let mut deepest = 0;
                self.children(id, &mut |child| deepest = deepest.max(levels[child.0 as usize]));
                if deepest >= DEPTH {
                    return Err(format!("its pickle nests containers more than {DEPTH} levels deep"));
                }
                levels[at] = deepest + 1;
            } else if levels[at] == NEW {
                levels[at] = OPEN;
                stack.push((id, true));
                let mut cyclic = false;
                self.children(id, &mut |child| match levels[child.0 as usize] {
                    NEW => stack.push((child, false)),
                    OPEN => cyclic = true,
                    _ => {}
                });
                if cyclic {
                    return Err("a container in its pickle contains itself".to_string());
                }
            }
        }
        Ok(())
    }

    /// Bytes that a value takes if each of its parts is copied wherever it is used. A value that uses one part many times,
    /// which does the same with its own parts, takes more than any memory.
    fn unfolded(&self, id: Id) -> u64 {
        let mut sizes: HashMap<Id, u64> = HashMap::new();
        let mut stack = vec![(id, false)];
        while let Some((id, left)) = stack.pop() {
            if sizes.contains_key(&id) {
                continue;
            }
            if left {
                let mut size = 32
                    + match self.value(id) {
                        Value::Text(text) => text.len() as u64,
                        Value::Bytes(bytes) | Value::Long(bytes) => bytes.len() as u64,
                        _ => 0,
                    };
                self.children(id, &mut |child| size = size.saturating_add(sizes[&child]));
                sizes.insert(id, size);
            } else {
                stack.push((id, true));
                self.children(id, &mut |child| stack.push((child, false)));
            }
        }
        sizes[&id]
    }
}

/// A value, with the graph that it belongs to.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    pub graph: &'a Graph,
    pub id: Id,
}

impl<'a> Node<'a> {
    pub fn value(self) -> &'a Value {
        self.graph.value(self.id)
    }

    /// The elements of a list, tuple or set.
    pub fn items(self) -> impl ExactSizeIterator<Item = Node<'a>> {
        let items: &[Id] = match self.value() {
            Value::List(items) | Value::Tuple(items) | Value::Set(items) => items,
            Value::Object(object) => &object.items,
            _ => &[],
        };
        items.iter().map(move |id| self.graph.node(*id))
    }

    /// The entries of a dictionary of any class.
    pub fn entries(self) -> impl DoubleEndedIterator<Item = (Node<'a>, Node<'a>)> + ExactSizeIterator {
        let pairs: &[(Id, Id)] = match self.value() {
            Value::Dict(pairs) => pairs,
            Value::Object(object) => &object.pairs,
            _ => &[],
        };
        pairs.iter().map(move |(key, value)| (self.graph.node(*key), self.graph.node(*value)))
    }

    /// The entry with this key. Later entries replace earlier ones.
    pub fn get(self, key: &str) -> Option<Node<'a>> {
        self.entries().rev().find(|(name, _)| name.text() == Some(key)).map(|(_, value)| value)
    }

    /// The entry with this number as its key.
    pub fn get_at(self, key: i64) -> Option<Node<'a>> {
        self.entries().rev().find(|(name, _)| name.int() == Some(key)).map(|(_, value)| value)
    }

    /// An attribute of an object.
    pub fn attribute(self, name: &str) -> Option<Node<'a>> {
        let Value::Object(object) = self.value() else { return None };
        let state = self.graph.node(object.state?);
        // Objects with slots have two dictionaries.
        state.get(name).or_else(|| state.items().find_map(|part| part.get(name)))
    }

    pub fn int(self) -> Option<i64> {
        match self.value() {
            Value::Int(value) => Some(*value),
            // A member of an enumeration is a call with its number.
            Value::Object(object) => match self.graph.node(object.args).items().next()?.value() {
                Value::Int(value) if object.pairs.is_empty() => Some(*value),
                _ => None,
            },
            _ => None,
        }
    }

    pub fn float(self) -> Option<f64> {
        match self.value() {
            Value::Float(value) => Some(*value),
            value => {
                if let Value::Int(value) = value {
                    Some(*value as f64)
                } else {
                    None
                }
            }
        }
    }

    pub fn text(self) -> Option<&'a str> {
        if let Value::Text(text) = self.value() { Some(text) } else { None }
    }

    /// A class's module and name.
    pub fn class(self) -> Option<(&'a str, &'a str)> {
        if let Value::Class(class) = self.value() { Some((&class.0, &class.1)) } else { None }
    }

    /// The class and arguments of an object.
    pub fn call(self) -> Option<((&'a str, &'a str), Node<'a>)> {
        let Value::Object(object) = self.value() else { return None };
        Some((self.graph.node(object.class).class()?, self.graph.node(object.args)))
    }

    /// Refuses a value that would take absurdly many bytes if it were copied part by part. Real ones take some megabytes.
    pub fn ensure_bounded(self) -> Result<(), String> {
        match self.graph.unfolded(self.id) {
            size if size <= UNFOLDED => Ok(()),
            size => Err(format!("uses the same values so often that they would take {size} bytes")),
        }
    }

    pub fn is_none(self) -> bool {
        *self.value() == Value::None
    }

    /// Numbers of a list or tuple, or of the one argument of a call: `torch.Size` is a call.
    pub fn sizes(self) -> Option<Vec<usize>> {
        let whole = match self.call() {
            Some((_, args)) => args.items().next()?,
            None => self,
        };
        if !matches!(whole.value(), Value::List(_) | Value::Tuple(_)) {
            return None;
        }
        whole.items().map(|size| usize::try_from(size.int()?).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_may_be_used_twice_but_not_inside_itself() {
        let mut graph = Graph::default();
        let shared = graph.push(Value::List(vec![]));
        graph.root = graph.push(Value::Tuple(vec![shared, shared]));
        assert_eq!(graph.ensure_tree(), Ok(()));
        *graph.value_mut(shared) = Value::List(vec![graph.root]);
        assert!(graph.ensure_tree().unwrap_err().contains("contains itself"));
        *graph.value_mut(shared) = Value::List(vec![shared]);
        assert!(graph.ensure_tree().unwrap_err().contains("contains itself"));
    }

    #[test]
    fn depth_is_bounded() {
        let mut graph = Graph::default();
        for _ in 0..DEPTH {
            graph.root = graph.push(Value::List(vec![graph.root]));
        }
        assert!(graph.ensure_tree().unwrap_err().contains("levels deep"));
        graph.root = Id(graph.root.0 - 1);
        assert_eq!(graph.ensure_tree(), Ok(()));
    }
}
