//! The machine that a pickle is a program for. It builds values, and notes calls instead of
//! making them. It knows the instructions of protocol 2, which `torch.save` writes unless it is
//! told otherwise, and those that later protocols add for plain values.

use super::program::Program;
use super::stack::Stack;
use super::value::{Graph, Id, Value};

/// Instructions of a pickle. Each adds at most one value, one mark and one entry of the memo, so
/// that memory is bounded, too. The file of a model with 10,000 parameters has half a million.
const INSTRUCTIONS: usize = 1 << 23;

/// The protocol that `torch.save` writes.
const OF_TORCH: u8 = 2;

/// The newest protocol, which `pickle.dump` may write.
const NEWEST: u8 = 5;

/// Runs a pickle that `torch.save` wrote. Errors describe the file: "its pickle …".
pub(super) fn read(bytes: &[u8]) -> Result<Graph, String> {
    run(bytes, OF_TORCH)
}

/// Reads the plain values of a pickle that is a file of its own, of protocol 2 to 5: a flight
/// recorder's dump, the metadata of PyTorch's distributed checkpoint. Nothing that it asks for
/// is called.
///
/// # Errors
/// What is wrong with the file, which the caller names: "its pickle …".
pub fn read_pickle(bytes: &[u8]) -> Result<Graph, String> {
    run(bytes, NEWEST)
}

fn run(bytes: &[u8], newest: u8) -> Result<Graph, String> {
    let mut machine = Machine {
        program: Program::new(bytes),
        stack: Stack::default(),
        newest,
    };
    let mut begin = 0;
    let root = machine
        .run(&mut begin)
        .map_err(|how| format!("its pickle is broken at byte {begin}: {how}"))?;
    let mut graph = machine.stack.graph;
    graph.root = root;
    graph.ensure_tree()?;
    Ok(graph)
}

struct Machine<'a> {
    program: Program<'a>,
    stack: Stack,
    /// The newest protocol whose instructions it runs.
    newest: u8,
}

impl Machine<'_> {
    fn run(&mut self, begin: &mut usize) -> Result<Id, String> {
        for _ in 0..INSTRUCTIONS {
            *begin = self.program.at;
            let code = self.program.take(1)?[0];
            if code == b'.' {
                return self.stack.pop();
            }
            match self.value(code)? {
                Some(value) => self.stack.push(value),
                None => self.instruction(code)?,
            }
        }
        Err("it has more than 8 million instructions".to_string())
    }

    /// The value that an instruction puts on the stack, if that is all it does.
    fn value(&mut self, code: u8) -> Result<Option<Value>, String> {
        let program = &mut self.program;
        Ok(Some(match code {
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'K' => Value::Int(program.take(1)?[0].into()),
            b'M' => Value::Int(u16::from_le_bytes(program.array()?).into()),
            b'J' => Value::Int(i32::from_le_bytes(program.array()?).into()),
            0x8a => integer(program.counted(1)?),
            0x8b => integer(program.counted(4)?),
            b'G' => Value::Float(f64::from_be_bytes(program.array()?)),
            b'X' => text(program.counted(4)?)?,
            0x8c if self.newest > OF_TORCH => text(program.counted(1)?)?,
            0x8d if self.newest > OF_TORCH => text(program.counted(8)?)?,
            b']' => Value::List(Vec::new()),
            b')' => Value::Tuple(Vec::new()),
            b'}' => Value::Dict(Vec::new()),
            b'c' => {
                let module = program.line()?;
                let name = program.line()?;
                Value::Class(Box::new((module.to_string(), name.to_string())))
            }
            b't' => Value::Tuple(self.stack.since_mark()?),
            0x85..=0x87 => Value::Tuple(self.stack.last(usize::from(code - 0x84))?),
            b'Q' => Value::Persistent(self.stack.pop()?),
            _ => return Ok(None),
        }))
    }

    fn instruction(&mut self, code: u8) -> Result<(), String> {
        let program = &mut self.program;
        let stack = &mut self.stack;
        match code {
            b'(' => stack.mark(),
            b'0' => drop(stack.pop()?),
            b'1' => drop(stack.since_mark()?),
            b'a' => {
                let item = stack.pop()?;
                stack.extend(vec![item])?;
            }
            b'e' => {
                let items = stack.since_mark()?;
                stack.extend(items)?;
            }
            b's' => {
                let value = stack.pop()?;
                let key = stack.pop()?;
                stack.insert(vec![(key, value)])?;
            }
            b'u' => {
                let pairs = stack.pairs_since_mark()?;
                stack.insert(pairs)?;
            }
            b'R' | 0x81 => {
                let args = stack.pop()?;
                let class = stack.pop()?;
                stack.call(class, args, code == 0x81)?;
            }
            b'b' => stack.build()?,
            b'q' => stack.remember(program.length(1)? as u32)?,
            b'r' => stack.remember(program.length(4)? as u32)?,
            b'h' => stack.recall(program.length(1)? as u32)?,
            b'j' => stack.recall(program.length(4)? as u32)?,
            0x93 if self.newest > OF_TORCH => stack.class()?,
            0x94 if self.newest > OF_TORCH => stack.remember_next()?,
            // A frame: how many bytes Python should read at once.
            0x95 if self.newest > OF_TORCH => drop(program.take(8)?),
            0x80 => {
                let version = program.take(1)?[0];
                if !(OF_TORCH..=self.newest).contains(&version) {
                    return Err(format!(
                        "it is of protocol {version}, and torch.save writes 2 unless it is told otherwise"
                    ));
                }
            }
            _ => {
                return Err(format!(
                    "instruction 0x{code:02x} is none of protocol 2, which torch.save writes"
                ));
            }
        }
        Ok(())
    }
}

fn text(bytes: &[u8]) -> Result<Value, String> {
    std::str::from_utf8(bytes)
        .map(|text| Value::Text(text.into()))
        .map_err(|_| "a text is not UTF-8".to_string())
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
        let items: Vec<_> = graph
            .root()
            .get("a")
            .unwrap()
            .items()
            .map(|item| item.value().clone())
            .collect();
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

    /// Python's pickles of `{"a": [1, 2.5, None, True, -7, "é"]}`, by its protocols 0, 1, 4 and
    /// 2.
    #[test]
    fn other_protocols_are_refused_by_name() {
        for (program, how) in [
            (&b"(dp0\nVa\np1\n(lp2\nI1\naF2.5\naNaI01\naI-7\naV\\u00e9\np3\nas."[..], "none of protocol 2"),
            (b"}q\x00X\x01\x00\x00\x00aq\x01]q\x02(K\x01G@\x04\x00\x00\x00\x00\x00\x00NI01\nJ\xf9\xff\xff\xffX\x02\x00\x00\x00\xc3\xa9q\x03es.", "none of protocol 2"),
            (b"\x80\x04\x95\x28\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94]\x94(K\x01G@\x04\x00\x00\x00\x00\x00\x00N\x88J\xf9\xff\xff\xff\x8c\x02\xc3\xa9\x94es.", "of protocol 4"),
        ] {
            let error = read(program).unwrap_err();
            assert!(error.contains(how), "{error}");
        }
        let program = b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01]q\x02(K\x01G@\x04\x00\x00\x00\x00\x00\x00N\x88J\xf9\xff\xff\xffX\x02\x00\x00\x00\xc3\xa9q\x03es.";
        let graph = read(program).unwrap();
        let last = graph.root().get("a").unwrap().items().last().unwrap();
        assert_eq!(last.text(), Some("é"));
    }

    #[test]
    fn integers_of_any_length() {
        assert_eq!(integer(b""), Value::Int(0));
        assert_eq!(integer(b"\xff"), Value::Int(-1));
        assert_eq!(integer(b"\xff\x00"), Value::Int(255));
        assert_eq!(integer(&[1; 9]), Value::Long([1; 9].into()));
    }

    /// Python's pickles of `{"a": [1, 2.5, None, True, -7, "é"]}`, by its protocols 4 and 9.
    #[test]
    fn a_pickle_of_its_own_may_be_of_a_later_protocol() {
        let program = b"\x80\x04\x95\x28\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94]\x94(K\x01G@\x04\x00\x00\x00\x00\x00\x00N\x88J\xf9\xff\xff\xff\x8c\x02\xc3\xa9\x94es.";
        let graph = read_pickle(program).unwrap();
        let last = graph.root().get("a").unwrap().items().last().unwrap();
        assert_eq!(last.text(), Some("é"));
        assert!(read_pickle(b"\x80\x09N.").unwrap_err().contains("protocol 9"));
        assert!(read_pickle(b"\x80\x04\x94.").unwrap_err().contains("empty stack"));
    }

    /// A list that contains itself, a program that goes below its stack or mark, and one that
    /// asks for absurd lengths.
    #[test]
    fn hostile_programs_are_refused() {
        for (program, how) in [
            (&b"\x80\x02]q\x00h\x00a."[..], "contains itself"),
            (b"\x80\x02a.", "empty stack"),
            (b"\x80\x02N(\x85.", "empty stack"),
            (b"\x80\x02N(0.", "empty stack"),
            (b"\x80\x02t.", "mark is missing"),
            (b"\x80\x02}(Nu.", "no value"),
            (b"\x80\x02h\x07.", "too early"),
            (b"\x80\x02\x8b\xff\xff\xff\x7f.", "ends too early"),
            (b"\x80\x02X\xff\xff\xff\xffa.", "ends too early"),
            (b"\x80\x02N", "ends too early"),
            (b"\x80\x02Ncos", "no end"),
            (b"\x80\x02\xfe.", "none of protocol 2"),
            (b"\x80\x09N.", "protocol 9"),
            (b"ptest\n.", "broken"),
            (b"Ptest\n.", "none of protocol 2"),
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
