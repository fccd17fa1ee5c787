//! The machine that a pickle is a program for. It builds values, and notes calls instead of making them.

use super::value::{Graph, Id, Object, Value};
use std::collections::HashMap;

/// Instructions of a pickle. Each adds at most one value, one mark and one entry of the memo, so that memory is bounded, too.
/// The file of a model with 10,000 parameters has half a million.
const INSTRUCTIONS: usize = 1 << 23;

/// Bytes of a class's name. A name is copied whenever it is used.
const NAME: usize = 1000;

/// Runs a pickle. Errors describe the file: "its pickle …".
pub(super) fn read(bytes: &[u8]) -> Result<Graph, String> {
    let mut machine =
        Machine { bytes, at: 0, graph: Graph::default(), stack: Vec::new(), marks: Vec::new(), memo: HashMap::new() };
    let mut begin = 0;
    let root = machine.run(&mut begin).map_err(|how| format!("its pickle is broken at byte {begin}: {how}"))?;
    let mut graph = machine.graph;
    graph.root = root;
    graph.ensure_tree()?;
    Ok(graph)
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    graph: Graph,
    stack: Vec<Id>,
    /// The stack's length at each mark.
    marks: Vec<usize>,
    /// Values that the program uses again, by the number that it gave them.
    memo: HashMap<u32, Id>,
}

impl<'a> Machine<'a> {
    fn run(&mut self, begin: &mut usize) -> Result<Id, String> {
        for _ in 0..INSTRUCTIONS {
            *begin = self.at;
            let code = self.take(1)?[0];
            if code == b'.' {
                return self.pop();
            }
            self.step(code)?;
        }
        Err("it has more than 8 million instructions".to_string())
    }

    fn step(&mut self, code: u8) -> Result<(), String> {
        match code {
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.since_mark()?),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            b'N' => self.push(Value::None),
            0x88 => self.push(Value::Bool(true)),
            0x89 => self.push(Value::Bool(false)),
            b'K' => {
                let value = self.take(1)?[0];
                self.push(Value::Int(value.into()));
            }
            b'M' => {
                let value = u16::from_le_bytes(self.array()?);
                self.push(Value::Int(value.into()));
            }
            b'J' => {
                let value = i32::from_le_bytes(self.array()?);
                self.push(Value::Int(value.into()));
            }
            0x8a | 0x8b => {
                let size = self.length(if code == 0x8a { 1 } else { 4 })?;
                let value = integer(self.take(size)?);
                self.push(value);
            }
            b'G' => {
                let value = f64::from_be_bytes(self.array()?);
                self.push(Value::Float(value));
            }
            b'X' | 0x8c | 0x8d => {
                let size = self.length(match code {
                    b'X' => 4,
                    0x8c => 1,
                    _ => 8,
                })?;
                let text = std::str::from_utf8(self.take(size)?).map_err(|_| "a text is not UTF-8".to_string())?;
                self.push(Value::Text(text.into()));
            }
            b'U' | b'T' | b'C' | b'B' | 0x8e | 0x96 => {
                let size = self.length(match code {
                    b'U' | b'C' => 1,
                    b'T' | b'B' => 4,
                    _ => 8,
                })?;
                let bytes = self.take(size)?.into();
                self.push(Value::Bytes(bytes));
            }
            b']' => self.push(Value::List(Vec::new())),
            b')' => self.push(Value::Tuple(Vec::new())),
            b'}' => self.push(Value::Dict(Vec::new())),
            0x8f => self.push(Value::Set(Vec::new())),
            b't' | b'l' | 0x91 => {
                let items = self.since_mark()?;
                self.push(match code {
                    b't' => Value::Tuple(items),
                    b'l' => Value::List(items),
                    _ => Value::Set(items),
                });
            }
            b'd' => {
                let items = self.since_mark()?;
                let pairs = pairs(&items)?;
                self.push(Value::Dict(pairs));
            }
            0x85..=0x87 => {
                let first = self.stack.len().checked_sub(usize::from(code - 0x84)).ok_or_else(empty)?;
                self.above_mark(first)?;
                let items = self.stack.split_off(first);
                self.push(Value::Tuple(items));
            }
            b'a' => {
                let item = self.pop()?;
                self.extend(vec![item])?;
            }
            b'e' | 0x90 => {
                let items = self.since_mark()?;
                self.extend(items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.insert(vec![(key, value)])?;
            }
            b'u' => {
                let items = self.since_mark()?;
                self.insert(pairs(&items)?)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push(Value::Class(Box::new((module, name))));
            }
            0x93 => {
                let (name, module) = (self.pop_text()?, self.pop_text()?);
                self.push(Value::Class(Box::new((module, name))));
            }
            b'R' | 0x81 => {
                let (args, class) = (self.pop()?, self.pop()?);
                self.call(class, args, code == 0x81)?;
            }
            0x92 => {
                let (named, args, class) = (self.pop()?, self.pop()?, self.pop()?);
                if !matches!(self.graph.value(named), Value::Dict(named) if named.is_empty()) {
                    return Err("an object is made with named arguments, which cannot be kept".to_string());
                }
                self.call(class, args, true)?;
            }
            b'b' => {
                let (state, at) = (self.pop()?, self.top()?);
                match self.graph.value_mut(at) {
                    Value::Object(object) => object.state = Some(state),
                    _ => return Err("it sets the state of what is no object".to_string()),
                }
            }
            b'Q' => {
                let reference = self.pop()?;
                self.push(Value::Persistent(reference));
            }
            b'q' | b'r' => {
                let number = self.length(if code == b'q' { 1 } else { 4 })?;
                let top = self.top()?;
                self.memo.insert(number as u32, top);
            }
            0x94 => {
                let (number, top) = (self.memo.len() as u32, self.top()?);
                self.memo.insert(number, top);
            }
            b'h' | b'j' => {
                let number = self.length(if code == b'h' { 1 } else { 4 })?;
                let value =
                    *self.memo.get(&(number as u32)).ok_or_else(|| format!("it uses value {number} too early"))?;
                self.stack.push(value);
            }
            0x80 => {
                let version = self.take(1)?[0];
                if version > 5 {
                    return Err(format!("it is of protocol {version}; known are 2 to 5"));
                }
            }
            // How many bytes follow together; they are all here.
            0x95 => drop(self.take(8)?),
            _ => return Err(format!("instruction 0x{code:02x} is unknown (known are those of protocols 2 to 5)")),
        }
        Ok(())
    }

    fn take(&mut self, size: usize) -> Result<&'a [u8], String> {
        let rest = &self.bytes[self.at..];
        if size > rest.len() {
            return Err(format!("it ends too early: {size} bytes are needed, {} are left", rest.len()));
        }
        self.at += size;
        Ok(&rest[..size])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// An unsigned number of `bytes` bytes.
    fn length(&mut self, bytes: usize) -> Result<usize, String> {
        let mut array = [0; 8];
        array[..bytes].copy_from_slice(self.take(bytes)?);
        usize::try_from(u64::from_le_bytes(array)).map_err(|_| "a length is absurd".to_string())
    }

    fn line(&mut self) -> Result<String, String> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or_else(|| "a name has no end".to_string())?;
        self.at += end + 1;
        String::from_utf8(rest[..end].to_vec()).map_err(|_| "a name is not UTF-8".to_string())
    }

    fn push(&mut self, value: Value) {
        let id = self.graph.push(value);
        self.stack.push(id);
    }

    fn above_mark(&self, length: usize) -> Result<(), String> {
        if self.marks.last().is_some_and(|mark| *mark > length) { Err(empty()) } else { Ok(()) }
    }

    fn pop(&mut self) -> Result<Id, String> {
        self.above_mark(self.stack.len().checked_sub(1).ok_or_else(empty)?)?;
        self.stack.pop().ok_or_else(empty)
    }

    fn pop_text(&mut self) -> Result<String, String> {
        let id = self.pop()?;
        match self.graph.value(id) {
            Value::Text(text) if text.len() <= NAME => Ok(text.to_string()),
            Value::Text(text) => Err(format!("a class's name has {} bytes", text.len())),
            _ => Err("a class's name is no text".to_string()),
        }
    }

    fn top(&self) -> Result<Id, String> {
        self.stack.last().copied().ok_or_else(empty)
    }

    fn since_mark(&mut self) -> Result<Vec<Id>, String> {
        let mark = self.marks.pop().ok_or_else(|| "a mark is missing".to_string())?;
        Ok(self.stack.split_off(mark))
    }

    fn call(&mut self, class: Id, args: Id, new: bool) -> Result<(), String> {
        if !matches!(self.graph.value(args), Value::Tuple(_)) {
            return Err("a call's arguments are no tuple".to_string());
        }
        self.push(Value::Object(Box::new(Object { class, args, new, items: vec![], pairs: vec![], state: None })));
        Ok(())
    }

    fn extend(&mut self, more: Vec<Id>) -> Result<(), String> {
        let at = self.top()?;
        match self.graph.value_mut(at) {
            Value::List(items) | Value::Set(items) => items.extend(more),
            Value::Object(object) => object.items.extend(more),
            _ => return Err("it appends to what is no list".to_string()),
        }
        Ok(())
    }

    fn insert(&mut self, more: Vec<(Id, Id)>) -> Result<(), String> {
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

fn pairs(items: &[Id]) -> Result<Vec<(Id, Id)>, String> {
    let (pairs, rest) = items.as_chunks();
    if !rest.is_empty() {
        return Err("a dictionary's key has no value".to_string());
    }
    Ok(pairs.iter().map(|[key, value]| (*key, *value)).collect())
}

/// An integer of any length: little-endian, two's complement.
fn integer(bytes: &[u8]) -> Value {
    if bytes.len() > 8 {
        return Value::Long(bytes.into());
    }
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut array = [if negative { 0xff } else { 0 }; 8];
    array[..bytes.len()].copy_from_slice(bytes);
    Value::Int(i64::from_le_bytes(array))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pickle of Python: `{"a": [1, 2.5, None, True], (): -3}`.
    #[test]
    fn plain_values_are_read() {
        let graph = read(b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01G@\x04\x00\x00\x00\x00\x00\x00N\x88e)J\xfd\xff\xff\xffu.")
            .unwrap();
        let items: Vec<_> = graph.root().get("a").unwrap().items().map(|item| item.value().clone()).collect();
        assert_eq!(items, [Value::Int(1), Value::Float(2.5), Value::None, Value::Bool(true)]);
        assert_eq!(graph.root().entries().last().unwrap().1.int(), Some(-3));
    }

    /// `os.system("true")` is a note that the file wants this call; nothing runs.
    #[test]
    fn calls_are_noted_and_not_made() {
        let graph = read(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.").unwrap();
        let (class, args) = graph.root().call().unwrap();
        assert_eq!((class, args.items().next().unwrap().text()), (("os", "system"), Some("true")));
    }

    #[test]
    fn integers_of_any_length() {
        assert_eq!(integer(b""), Value::Int(0));
        assert_eq!(integer(b"\xff"), Value::Int(-1));
        assert_eq!(integer(b"\xff\x00"), Value::Int(255));
        assert_eq!(integer(&[1; 9]), Value::Long([1; 9].into()));
    }

    /// A list that contains itself, a program that goes below its stack or mark, and one that asks for absurd lengths.
    #[test]
    fn hostile_programs_are_refused() {
        for (program, how) in [
            (&b"\x80\x02]q\x00h\x00a."[..], "contains itself"),
            (b"\x80\x02a.", "empty stack"),
            (b"\x80\x02N(\x85.", "empty stack"),
            (b"\x80\x02N(0.", "empty stack"),
            (b"\x80\x02t.", "mark is missing"),
            (b"\x80\x02(Nd.", "no value"),
            (b"\x80\x02h\x07.", "too early"),
            (b"\x80\x02\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", "ends too early"),
            (b"\x80\x02X\xff\xff\xff\xffa.", "ends too early"),
            (b"\x80\x02N", "ends too early"),
            (b"\x80\x02Ncos", "no end"),
            (b"\x80\x02\xfe.", "unknown"),
            (b"\x80\x09N.", "protocol 9"),
            (b"", "ends too early"),
        ] {
            let error = read(program).unwrap_err();
            assert!(error.contains(how), "{program:?}: {error}");
        }
    }

    /// No program crashes the machine: every prefix of a real one, and every byte changed.
    #[test]
    fn every_damaged_program_is_an_error_or_a_value() {
        let whole = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01Ne\x8a\x02\xff\x00ccollections\nOrderedDict\n)R(h\x01h\x02ubu.";
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err());
        }
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut changed = whole.to_vec();
                changed[at] = byte;
                drop(read(&changed));
            }
        }
    }
}
