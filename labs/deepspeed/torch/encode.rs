//! Values as a pickle of protocol 2, for Python to read.

use super::node::Node;
use super::tensor::Dtype;
use super::value::{Graph, Id, Value};
use std::collections::{BTreeSet, HashMap};

/// A pickle, and the storages that it refers to. A value that is used twice is written once, and
/// remembered.
pub(crate) fn encode(graph: &Graph) -> (Vec<u8>, BTreeSet<String>) {
    let mut encoder = Encoder {
        graph,
        memo: HashMap::new(),
        out: b"\x80\x02".to_vec(),
        storages: BTreeSet::new(),
    };
    encoder.value(graph.root);
    encoder.out.push(b'.');
    (encoder.out, encoder.storages)
}

/// The strides of a shape whose elements lie row by row.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at] * shape[at].max(1);
    }
    strides
}

impl Graph {
    /// A tensor of `shape`, whose elements are the storage `key`.
    pub fn tensor(&mut self, dtype: Dtype, shape: &[usize], key: &str) -> Id {
        let numel: usize = shape.iter().product();
        let strides = strides(shape);
        let kind = self.text("storage");
        let class = self.class("torch", dtype.storage());
        let key = self.text(key);
        let device = self.text("cpu");
        let count = self.push(Value::Int(numel as i64));
        let reference = self.push(Value::Tuple(vec![kind, class, key, device, count]));
        let storage = self.push(Value::Persistent(reference));
        let offset = self.push(Value::Int(0));
        let shape = self.sizes(shape);
        let strides = self.sizes(&strides);
        let grad = self.push(Value::Bool(false));
        let hooks = self.class("collections", "OrderedDict");
        let hooks = self.call(hooks, vec![]);
        let rebuild = self.class("torch._utils", "_rebuild_tensor_v2");
        self.call(rebuild, vec![storage, offset, shape, strides, grad, hooks])
    }
}

struct Encoder<'a> {
    graph: &'a Graph,
    memo: HashMap<Id, u32>,
    out: Vec<u8>,
    storages: BTreeSet<String>,
}

impl Encoder<'_> {
    fn value(&mut self, id: Id) {
        if let Some(number) = self.memo.get(&id).copied() {
            return self.sized(b'j', &number.to_le_bytes());
        }
        let graph = self.graph;
        match graph.value(id) {
            Value::None => self.out.push(b'N'),
            Value::Bool(value) => self.out.push(if *value { 0x88 } else { 0x89 }),
            Value::Int(value) => match i32::try_from(*value) {
                Ok(value) => self.sized(b'J', &value.to_le_bytes()),
                Err(_) => {
                    self.out.extend([0x8a, 8]);
                    self.out.extend(value.to_le_bytes());
                }
            },
            Value::Long(bytes) => {
                self.out.push(0x8b);
                self.counted(bytes);
                self.remember(id);
            }
            Value::Float(value) => self.sized(b'G', &value.to_be_bytes()),
            Value::Text(text) => {
                self.out.push(b'X');
                self.counted(text.as_bytes());
                self.remember(id);
            }
            Value::Tuple(items) => {
                self.out.push(b'(');
                for item in items {
                    self.value(*item);
                }
                self.out.push(b't');
                self.remember(id);
            }
            Value::List(items) => {
                self.out.push(b']');
                self.remember(id);
                self.items(items);
            }
            Value::Dict(pairs) => {
                self.out.push(b'}');
                self.remember(id);
                self.pairs(pairs);
            }
            Value::Class(class) => {
                self.out.extend(format!("c{}\n{}\n", class.0, class.1).into_bytes());
                self.remember(id);
            }
            Value::Object(object) => {
                self.value(object.class);
                self.value(object.args);
                self.out.push(if object.new { 0x81 } else { b'R' });
                self.remember(id);
                self.items(&object.items);
                self.pairs(&object.pairs);
                if let Some(state) = object.state {
                    self.value(state);
                    self.out.push(b'b');
                }
            }
            Value::Persistent(reference) => {
                let key = graph.node(*reference).items().nth(2).and_then(Node::text);
                self.storages.extend(key.map(String::from));
                self.value(*reference);
                self.out.push(b'Q');
                self.remember(id);
            }
        }
    }

    fn sized(&mut self, code: u8, bytes: &[u8]) {
        self.out.push(code);
        self.out.extend(bytes);
    }

    fn counted(&mut self, bytes: &[u8]) {
        self.out.extend((bytes.len() as u32).to_le_bytes());
        self.out.extend(bytes);
    }

    fn items(&mut self, items: &[Id]) {
        if !items.is_empty() {
            self.out.push(b'(');
            for item in items {
                self.value(*item);
            }
            self.out.push(b'e');
        }
    }

    fn pairs(&mut self, pairs: &[(Id, Id)]) {
        if !pairs.is_empty() {
            self.out.push(b'(');
            for (key, value) in pairs {
                self.value(*key);
                self.value(*value);
            }
            self.out.push(b'u');
        }
    }

    fn remember(&mut self, id: Id) {
        let number = self.memo.len() as u32;
        self.memo.insert(id, number);
        self.sized(b'r', &number.to_le_bytes());
    }
}
