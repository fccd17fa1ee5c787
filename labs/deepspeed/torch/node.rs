//! Questions to a value: its entries, attributes and numbers, if it is what has them.

use super::value::{Graph, Id, Value};

/// A value, with the graph that it belongs to.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    pub graph: &'a Graph,
    pub id: Id,
}

impl Graph {
    /// A value of this graph, to ask it questions.
    pub fn node(&self, id: Id) -> Node<'_> {
        Node { graph: self, id }
    }

    /// The value that the file is about.
    pub fn root(&self) -> Node<'_> {
        self.node(self.root)
    }
}

impl<'a> Node<'a> {
    /// The value itself.
    pub fn value(self) -> &'a Value {
        self.graph.value(self.id)
    }

    /// The elements of a list or tuple.
    pub fn items(self) -> impl ExactSizeIterator<Item = Node<'a>> {
        let items: &[Id] = match self.value() {
            Value::List(items) | Value::Tuple(items) => items,
            Value::Object(object) => &object.items,
            _ => &[],
        };
        items.iter().map(move |id| self.graph.node(*id))
    }

    /// The entries of a dictionary of any class.
    pub fn entries(
        self,
    ) -> impl DoubleEndedIterator<Item = (Node<'a>, Node<'a>)> + ExactSizeIterator {
        let pairs: &[(Id, Id)] = match self.value() {
            Value::Dict(pairs) => pairs,
            Value::Object(object) => &object.pairs,
            _ => &[],
        };
        pairs
            .iter()
            .map(move |(key, value)| (self.graph.node(*key), self.graph.node(*value)))
    }

    /// The entry with this key. Later entries replace earlier ones.
    pub fn get(self, key: &str) -> Option<Node<'a>> {
        self.last(|name| name.text() == Some(key))
    }

    /// The entry with this number as its key.
    pub fn get_at(self, key: i64) -> Option<Node<'a>> {
        self.last(|name| name.int() == Some(key))
    }

    fn last(self, is_it: impl Fn(Node) -> bool) -> Option<Node<'a>> {
        let (_, value) = self.entries().rev().find(|(name, _)| is_it(*name))?;
        Some(value)
    }

    /// An attribute of an object.
    pub fn attribute(self, name: &str) -> Option<Node<'a>> {
        let state = self.state()?;
        // Objects with slots have two dictionaries.
        state.get(name).or_else(|| state.items().find_map(|part| part.get(name)))
    }

    /// What an object was given as its state.
    pub fn state(self) -> Option<Node<'a>> {
        match self.value() {
            Value::Object(object) => Some(self.graph.node(object.state?)),
            _ => None,
        }
    }

    /// An integer of up to 64 bits, if it is one.
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

    /// An integer that is not negative, if it is one.
    pub fn count(self) -> Option<usize> {
        usize::try_from(self.int()?).ok()
    }

    /// A number, if it is one.
    pub fn float(self) -> Option<f64> {
        match self.value() {
            Value::Float(value) => Some(*value),
            Value::Int(value) => Some(*value as f64),
            _ => None,
        }
    }

    /// A text, if it is one.
    pub fn text(self) -> Option<&'a str> {
        match self.value() {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A class's module and name.
    pub fn class(self) -> Option<(&'a str, &'a str)> {
        match self.value() {
            Value::Class(class) => Some((&class.0, &class.1)),
            _ => None,
        }
    }

    /// The class and arguments of an object.
    pub fn call(self) -> Option<((&'a str, &'a str), Node<'a>)> {
        let Value::Object(object) = self.value() else {
            return None;
        };
        Some((self.graph.node(object.class).class()?, self.graph.node(object.args)))
    }

    /// Whether it is Python's `None`.
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
        whole.items().map(Node::count).collect()
    }
}
