//! Numbers and texts as a pickle spells them. Protocols 0 and 1 write them as Python's own literals.

use super::value::Value;

/// An integer of any length: little-endian, two's complement.
pub(super) fn integer(bytes: &[u8]) -> Value {
    if bytes.len() > 8 {
        return Value::Long(bytes.into());
    }
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut array = [if negative { 0xff } else { 0 }; 8];
    array[..bytes.len()].copy_from_slice(bytes);
    Value::Int(i64::from_le_bytes(array))
}

/// An integer in decimal digits. `00` and `01` are Python's `False` and `True`, and a long integer ends with `L`.
pub(super) fn decimal(line: &str) -> Result<Value, String> {
    match line {
        "00" => return Ok(Value::Bool(false)),
        "01" => return Ok(Value::Bool(true)),
        _ => {}
    }
    let digits = line.strip_suffix('L').unwrap_or(line);
    if let Ok(value) = digits.parse() {
        return Ok(Value::Int(value));
    }
    let (negative, digits) = digits
        .strip_prefix('-')
        .map_or((false, digits), |digits| (true, digits));
    if digits.is_empty()
        || digits.len() > 200
        || !digits.bytes().all(|digit| digit.is_ascii_digit())
    {
        return Err(format!(
            "{:?} is no number",
            line.chars().take(30).collect::<String>()
        ));
    }
    let mut bytes: Vec<u8> = Vec::new();
    for digit in digits.bytes() {
        let mut carry = u32::from(digit - b'0');
        for byte in &mut bytes {
            carry += u32::from(*byte) * 10;
            *byte = carry as u8;
            carry >>= 8;
        }
        if carry > 0 {
            bytes.push(carry as u8);
        }
    }
    bytes.push(0);
    if negative {
        let mut carry = true;
        for byte in &mut bytes {
            (*byte, carry) = (!*byte).overflowing_add(carry.into());
        }
    }
    Ok(Value::Long(bytes.into()))
}

pub(super) fn float(line: &str) -> Result<Value, String> {
    line.parse()
        .map(Value::Float)
        .map_err(|_| "a number is broken".to_string())
}

/// A string between quotation marks, with Python's escapes. Python 2 wrote names in this way.
pub(super) fn quoted(line: &str) -> Result<Vec<u8>, String> {
    let inner = ['\'', '"']
        .iter()
        .find_map(|mark| line.strip_prefix(*mark)?.strip_suffix(*mark));
    let text = escaped(inner.ok_or("a text has no quotation marks")?, true)?;
    // Its characters are bytes.
    text.chars()
        .map(|byte| u8::try_from(byte).map_err(|_| "a text has no bytes".to_string()))
        .collect()
}

/// A text without quotation marks, where only `\u` and `\U` escape a character.
pub(super) fn raw(line: &str) -> Result<String, String> {
    escaped(line, false)
}

fn escaped(text: &str, all: bool) -> Result<String, String> {
    let broken = || "a text has a broken escape".to_string();
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        result.push_str(&rest[..at]);
        let escape = rest[at + 1..].chars().next().ok_or_else(broken)?;
        let after = &rest[at + 1 + escape.len_utf8()..];
        let digits = match escape {
            'x' if all => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        rest = after.get(digits..).ok_or_else(broken)?;
        if digits > 0 {
            let code = u32::from_str_radix(&after[..digits], 16).map_err(|_| broken())?;
            result.push(char::from_u32(code).ok_or_else(broken)?);
            continue;
        }
        match (escape, all) {
            ('n', true) => result.push('\n'),
            ('r', true) => result.push('\r'),
            ('t', true) => result.push('\t'),
            ('\\' | '\'' | '"', true) => result.push(escape),
            _ => result.extend(['\\', escape]),
        }
    }
    result.push_str(rest);
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_any_length() {
        assert_eq!(integer(b""), Value::Int(0));
        assert_eq!(integer(b"\xff"), Value::Int(-1));
        assert_eq!(integer(b"\xff\x00"), Value::Int(255));
        assert_eq!(integer(&[1; 9]), Value::Long([1; 9].into()));
        assert_eq!(decimal("-12L"), Ok(Value::Int(-12)));
        assert_eq!(decimal("01"), Ok(Value::Bool(true)));
        // 2 to the power of 64, and its negative.
        assert_eq!(
            decimal("18446744073709551616"),
            Ok(Value::Long([0, 0, 0, 0, 0, 0, 0, 0, 1, 0].into()))
        );
        assert_eq!(
            decimal("-18446744073709551616"),
            Ok(Value::Long([0, 0, 0, 0, 0, 0, 0, 0, 255, 255].into()))
        );
        assert!(decimal("").is_err() && decimal("1e5").is_err() && decimal("-").is_err());
    }

    #[test]
    fn texts_with_escapes() {
        assert_eq!(raw(r"a\u00e9\U0001f600\n"), Ok("aé😀\\n".to_string()));
        assert_eq!(quoted(r"'it\'s\x41\n'"), Ok(b"it'sA\n".to_vec()));
        for broken in [r"\u00", r"\ud800", r"\uzzzz", r"\u00é", "\\"] {
            assert!(raw(broken).is_err(), "{broken}");
        }
        assert!(quoted("a").is_err() && quoted("'").is_err());
    }
}
