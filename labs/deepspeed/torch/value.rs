//! The values that a pickle describes, as data: numbers, texts, containers, and objects whose
//! classes are only names.
//!
//! Values refer to each other by number, because a pickle can use one value in several containers.

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

impl Object {
    pub(super) fn new(class: Id, args: Id, new: bool) -> Object {
        Object { class, args, new, items: vec![], pairs: vec![], state: None }
    }
}

/// Values, and the one that the file is about.
#[derive(Clone, Debug)]
pub struct Graph {
    values: Vec<Value>,
    pub root: Id,
}

/// Containers inside containers. Real checkpoints have about ten levels.
const DEPTH: u32 = 200;

/// Bytes of a file's values, each copied wherever it is used. Real ones take some megabytes.
const UNFOLDED: u64 = 512 << 20;

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
        self.push(Value::Object(Box::new(Object::new(class, args, false))))
    }

    /// Adds an object that is made without calling its class, with these attributes.
    pub fn object(&mut self, class: Id, attributes: &[(&str, Id)]) -> Id {
        let args = self.push(Value::Tuple(Vec::new()));
        let object = self.push(Value::Object(Box::new(Object::new(class, args, true))));
        if !attributes.is_empty() {
            let pairs = attributes.iter().map(|(key, value)| (self.text(key), *value)).collect();
            let state = self.push(Value::Dict(pairs));
            self.set_state(object, state);
        }
        object
    }

    /// Adds a tuple of whole numbers.
    pub fn sizes(&mut self, sizes: &[usize]) -> Id {
        let sizes = sizes.iter().map(|size| self.push(Value::Int(*size as i64))).collect();
        self.push(Value::Tuple(sizes))
    }

    /// Gives an object its attributes.
    pub fn set_state(&mut self, object: Id, state: Id) {
        if let Value::Object(object) = self.value_mut(object) {
            object.state = Some(state);
        }
    }

    /// A value by its number, which is one of this graph's.
    pub fn value(&self, id: Id) -> &Value {
        &self.values[id.0 as usize]
    }

    pub(crate) fn value_mut(&mut self, id: Id) -> &mut Value {
        &mut self.values[id.0 as usize]
    }

    /// Every value that `id` refers to directly.
    fn children(&self, id: Id) -> Vec<Id> {
        let both =
            |pairs: &[(Id, Id)]| pairs.iter().flat_map(|(key, value)| [*key, *value]).collect();
        match self.value(id) {
            Value::List(items) | Value::Tuple(items) => items.clone(),
            Value::Dict(pairs) => both(pairs),
            Value::Persistent(reference) => vec![*reference],
            Value::Object(object) => {
                let mut children: Vec<Id> = both(&object.pairs);
                children.extend([object.class, object.args]);
                children.extend(object.items.iter().chain(&object.state));
                children
            }
            _ => Vec::new(),
        }
    }

    /// Refuses values that contain themselves, are nested too deep, or would take absurdly many
    /// bytes if each was copied wherever it is used: whatever walks through them would not end.
    pub(super) fn ensure_tree(&self) -> Result<(), String> {
        let mut known = vec![Known::Nothing; self.values.len()];
        let mut stack = vec![(self.root, false)];
        while let Some((id, left)) = stack.pop() {
            let at = id.0 as usize;
            if left {
                let mut deepest = 0;
                let mut size = match self.value(id) {
                    Value::Text(text) => 32 + text.len() as u64,
                    Value::Long(bytes) => 32 + bytes.len() as u64,
                    _ => 32,
                };
                for child in self.children(id) {
                    if let Known::Tree { levels, bytes } = known[child.0 as usize] {
                        deepest = deepest.max(levels);
                        size = size.saturating_add(bytes);
                    }
                }
                if deepest >= DEPTH {
                    return Err(format!(
                        "its pickle nests containers more than {DEPTH} levels deep"
                    ));
                }
                if size > UNFOLDED {
                    return Err(format!(
                        "its pickle uses the same values so often that they would take {size} bytes"
                    ));
                }
                known[at] = Known::Tree { levels: deepest + 1, bytes: size };
            } else if known[at] == Known::Nothing {
                known[at] = Known::Open;
                stack.push((id, true));
                for child in self.children(id) {
                    match known[child.0 as usize] {
                        Known::Nothing => stack.push((child, false)),
                        Known::Open => {
                            return Err("a container in its pickle contains itself".to_string());
                        }
                        Known::Tree { .. } => {}
                    }
                }
            }
        }
        Ok(())
    }
}

/// What a walk through a graph knows of a value.
#[derive(Clone, Copy, PartialEq)]
enum Known {
    Nothing,
    /// The walk is inside it.
    Open,
    /// Levels of containers, and bytes if each value is copied wherever it is used.
    Tree {
        levels: u32,
        bytes: u64,
    },
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

    /// Fifteen levels of ten: some hundred bytes of a file, and more than any memory if each use of
    /// a value is a copy.
    #[test]
    fn values_that_repeat_without_end_are_refused() {
        let mut graph = Graph::default();
        for _ in 0..15 {
            graph.root = graph.push(Value::List(vec![graph.root; 10]));
        }
        assert!(graph.ensure_tree().unwrap_err().contains("uses the same values so often"));
    }
}
