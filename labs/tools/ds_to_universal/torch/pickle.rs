//! The machine that a pickle is a program for. It builds values, and notes calls instead of making them.

use super::literal::{decimal, float, integer, quoted, raw};
use super::program::Program;
use super::stack::Stack;
use super::value::{Graph, Id, Value};

/// Instructions of a pickle. Each adds at most one value, one mark and one entry of the memo, so that memory is bounded, too.
/// The file of a model with 10,000 parameters has half a million.
const INSTRUCTIONS: usize = 1 << 23;

/// Runs a pickle. Errors describe the file: "its pickle …".
pub(super) fn read(bytes: &[u8]) -> Result<Graph, String> {
    read_first(bytes).map(|(graph, _)| graph)
}

/// Runs the pickle that begins here. Returns how many bytes it has, too.
pub(super) fn read_first(bytes: &[u8]) -> Result<(Graph, usize), String> {
    let mut machine = Machine {
        program: Program::new(bytes),
        stack: Stack::default(),
    };
    let mut begin = 0;
    let root = machine
        .run(&mut begin)
        .map_err(|how| format!("its pickle is broken at byte {begin}: {how}"))?;
    let mut graph = machine.stack.graph;
    graph.root = root;
    graph.ensure_tree()?;
    Ok((graph, machine.program.at))
}

struct Machine<'a> {
    program: Program<'a>,
    stack: Stack,
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
            b'I' | b'L' => decimal(program.line()?)?,
            b'G' => Value::Float(f64::from_be_bytes(program.array()?)),
            b'F' => float(program.line()?)?,
            b'S' => text_or_bytes(&quoted(program.line()?)?),
            b'V' => Value::Text(raw(program.line()?)?.into()),
            b'X' => text(program.counted(4)?)?,
            0x8c => text(program.counted(1)?)?,
            0x8d => text(program.counted(8)?)?,
            // Python 2 has one type for texts and bytes.
            b'U' => text_or_bytes(program.counted(1)?),
            b'T' => text_or_bytes(program.counted(4)?),
            b'C' => Value::Bytes(program.counted(1)?.into()),
            b'B' => Value::Bytes(program.counted(4)?.into()),
            0x8e | 0x96 => Value::Bytes(program.counted(8)?.into()),
            b']' => Value::List(Vec::new()),
            b')' => Value::Tuple(Vec::new()),
            b'}' => Value::Dict(Vec::new()),
            0x8f => Value::Set(Vec::new()),
            b'c' => {
                let module = program.line()?;
                let name = program.line()?;
                Value::Class(Box::new((module.to_string(), name.to_string())))
            }
            b't' => Value::Tuple(self.stack.since_mark()?),
            b'l' => Value::List(self.stack.since_mark()?),
            0x91 => Value::Set(self.stack.since_mark()?),
            b'd' => Value::Dict(self.stack.pairs_since_mark()?),
            0x85..=0x87 => Value::Tuple(self.stack.last(usize::from(code - 0x84))?),
            0x93 => {
                let name = self.stack.pop_text()?;
                let module = self.stack.pop_text()?;
                Value::Class(Box::new((module, name)))
            }
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
            b'2' => {
                let top = stack.top()?;
                stack.again(top);
            }
            b'a' => {
                let item = stack.pop()?;
                stack.extend(vec![item])?;
            }
            b'e' | 0x90 => {
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
            0x92 => {
                let named = stack.pop()?;
                let args = stack.pop()?;
                let class = stack.pop()?;
                if !matches!(stack.graph.value(named), Value::Dict(named) if named.is_empty()) {
                    return Err(
                        "an object is made with named arguments, which cannot be kept".to_string(),
                    );
                }
                stack.call(class, args, true)?;
            }
            b'b' => stack.build()?,
            b'q' | b'r' | b'p' => {
                let number = number(program, code, b"qrp")?;
                stack.remember(Some(number))?;
            }
            0x94 => stack.remember(None)?,
            b'h' | b'j' | b'g' => {
                let number = number(program, code, b"hjg")?;
                stack.recall(number)?;
            }
            0x80 => {
                let version = program.take(1)?[0];
                if version > 5 {
                    return Err(format!("it is of protocol {version}; known are 0 to 5"));
                }
            }
            // How many bytes follow together; they are all here.
            0x95 => drop(program.take(8)?),
            b'P' => {
                return Err(
                    "it refers to tensors as protocol 0 does, which torch cannot read, either"
                        .to_string(),
                );
            }
            _ => {
                return Err(format!(
                    "instruction 0x{code:02x} is unknown (known are those of protocols 0 to 5)"
                ));
            }
        }
        Ok(())
    }
}

/// The number under which a value is remembered: one byte, four, or a line, by the place of `code` in `forms`.
fn number(program: &mut Program, code: u8, forms: &[u8; 3]) -> Result<u32, String> {
    Ok(match forms.iter().position(|form| *form == code) {
        Some(0) => program.length(1)? as u32,
        Some(1) => program.length(4)? as u32,
        _ => program
            .line()?
            .parse()
            .map_err(|_| "a value's number is broken".to_string())?,
    })
}

fn text(bytes: &[u8]) -> Result<Value, String> {
    std::str::from_utf8(bytes)
        .map(|text| Value::Text(text.into()))
        .map_err(|_| "a text is not UTF-8".to_string())
}

fn text_or_bytes(bytes: &[u8]) -> Value {
    text(bytes).unwrap_or_else(|_| Value::Bytes(bytes.into()))
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
        assert_eq!(
            items,
            [
                Value::Int(1),
                Value::Float(2.5),
                Value::None,
                Value::Bool(true)
            ]
        );
        assert_eq!(graph.root().entries().last().unwrap().1.int(), Some(-3));
    }

    /// `os.system("true")` is a note that the file wants this call; nothing runs.
    #[test]
    fn calls_are_noted_and_not_made() {
        let graph = read(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.").unwrap();
        let (class, args) = graph.root().call().unwrap();
        assert_eq!(
            (class, args.items().next().unwrap().text()),
            (("os", "system"), Some("true"))
        );
    }

    /// Python's pickles of `{"a": [1, 2.5, None, True, -7, "é"]}`, by its protocols.
    #[test]
    fn all_protocols_say_the_same() {
        for program in [
            &b"(dp0\nVa\np1\n(lp2\nI1\naF2.5\naNaI01\naI-7\naV\\u00e9\np3\nas."[..],
            b"}q\x00X\x01\x00\x00\x00aq\x01]q\x02(K\x01G@\x04\x00\x00\x00\x00\x00\x00NI01\nJ\xf9\xff\xff\xffX\x02\x00\x00\x00\xc3\xa9q\x03es.",
            b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01]q\x02(K\x01G@\x04\x00\x00\x00\x00\x00\x00N\x88J\xf9\xff\xff\xffX\x02\x00\x00\x00\xc3\xa9q\x03es.",
            b"\x80\x04\x95\x28\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94]\x94(K\x01G@\x04\x00\x00\x00\x00\x00\x00N\x88J\xf9\xff\xff\xff\x8c\x02\xc3\xa9\x94es.",
        ] {
            let graph = read(program).unwrap();
            let items: Vec<_> = graph.root().get("a").unwrap().items().map(|item| item.value().clone()).collect();
            let plain = [Value::Int(1), Value::Float(2.5), Value::None, Value::Bool(true), Value::Int(-7)];
            assert_eq!((&items[..5], &items[5]), (&plain[..], &Value::Text("é".into())));
        }
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
            (
                b"\x80\x02\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
                "ends too early",
            ),
            (b"\x80\x02X\xff\xff\xff\xffa.", "ends too early"),
            (b"\x80\x02N", "ends too early"),
            (b"\x80\x02Ncos", "no end"),
            (b"\x80\x02\xfe.", "unknown"),
            (b"\x80\x09N.", "protocol 9"),
            (b"ptest\n.", "broken"),
            (b"Ptest\n.", "protocol 0"),
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
