//! The values that a pickle describes, as data: numbers, texts, containers, and objects whose
//! classes are only names.
//!
//! Values refer to each other by number, because a pickle can use one value in several containers.

use std::collections::HashMap;

/// The number of a value in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub(super) u32);

/// One value. Containers have the numbers of their values.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits: little-endian, two's complement.
    Long(Box<[u8]>),
    Float(f64),
    Text(Box<str>),
    List(Vec<Id>),
    Tuple(Vec<Id>),
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

/// Containers inside containers. Real checkpoints have about ten levels.
pub(super) const DEPTH: u32 = 200;

impl Default for Graph {
    fn default() -> Graph {
        Graph { values: vec![Value::None], root: Id(0) }
    }
}

impl Graph {
    /// Adds a value.
    pub fn push(&mut self, value: Value) -> Id {
        self.values.push(value);
        Id(self.values.len() as u32 - 1)
    }

    /// Adds a text.
    pub fn text(&mut self, text: &str) -> Id {
        self.push(Value::Text(text.into()))
    }

    /// Adds a class or function, by its name.
    pub fn class(&mut self, module: &str, name: &str) -> Id {
        self.push(Value::Class(Box::new((module.to_string(), name.to_string()))))
    }

    /// Adds the result of a call of `class` with `args`.
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

    /// How many values there are, whether the root uses them or not.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// A graph always has its root.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// A value by its number, which is one of this graph's.
    pub fn value(&self, id: Id) -> &Value {
        &self.values[id.0 as usize]
    }

    pub(super) fn value_mut(&mut self, id: Id) -> &mut Value {
        &mut self.values[id.0 as usize]
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
            Value::List(items) | Value::Tuple(items) => {
                for item in items {
                    each(*item);
                }
            }
            Value::Dict(entries) => pairs(entries, each),
            Value::Persistent(reference) => each(*reference),
            Value::Object(object) => {
                each(object.class);
                each(object.args);
                for item in &object.items {
                    each(*item);
                }
                pairs(&object.pairs, each);
                if let Some(state) = object.state {
                    each(state);
                }
            }
            _ => {}
        }
    }

    /// Refuses values that contain themselves, or are nested too deep: whatever walks through them
    /// would not end.
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
                    return Err(format!(
                        "its pickle nests containers more than {DEPTH} levels deep"
                    ));
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

    /// Bytes that a value takes if each of its parts is copied wherever it is used. A value that
    /// uses one part many times, which does the same with its own parts, takes more than any
    /// memory.
    pub(super) fn unfolded(&self, id: Id) -> u64 {
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
                        Value::Long(bytes) => bytes.len() as u64,
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
