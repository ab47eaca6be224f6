//! Bytes as text: a line for each field of a drawing, with its offset and its name.

use std::panic::Location;

use crate::golden_file::{is_renewing, path_beside, renewal, settle};

/// The most bytes in a line.
const LINE_BYTES: usize = 16;

/// Compares bytes with the golden file `name` beside the source file of the caller.
///
/// `drawing` has the fields in the order of the encoder's drawing, each with its size in bytes.
///
/// # Panics
/// When the sizes of the fields do not add up to the bytes, or the bytes differ from the file.
#[track_caller]
#[expect(clippy::panic, reason = "a failed comparison fails the test")]
pub fn assert_bytes(name: &str, drawing: &[(&str, usize)], bytes: &[u8]) {
    let caller = Location::caller();
    if let Err(difference) = compare(caller, name, (drawing, bytes), is_renewing()) {
        panic!("{difference}");
    }
}

fn compare(
    caller: &Location<'_>,
    name: &str,
    (drawing, bytes): (&[(&str, usize)], &[u8]),
    is_renewing: bool,
) -> Result<(), String> {
    let printed = print(drawing, bytes);
    let drawn: usize = drawing.iter().map(|(_, size)| size).sum();
    if drawn != bytes.len() {
        let len = bytes.len();
        return Err(format!(
            "{name}: the drawing has {drawn} bytes, the encoder wrote {len}\n{printed}"
        ));
    }
    let settled = settle(&path_beside(caller, name), &printed, is_renewing);
    settled.map_err(|difference| {
        let command = renewal(caller);
        format!("{difference}\nif the format is to change: {command}")
    })
}

fn print(drawing: &[(&str, usize)], bytes: &[u8]) -> String {
    let mut text = line("offset", "bytes", "text", "field");
    let mut rest = bytes;
    for (field, size) in drawing {
        let at = bytes.len() - rest.len();
        let (covered, behind) = rest.split_at(rest.len().min(*size));
        print_field(&mut text, at, field, covered);
        rest = behind;
    }
    if !rest.is_empty() {
        print_field(&mut text, bytes.len() - rest.len(), "(not drawn)", rest);
    }
    text + &line(&bytes.len().to_string(), "", "", "end")
}

/// Lines equal to the previous one are printed as a star, as in other dumps.
fn print_field(text: &mut String, at: usize, field: &str, bytes: &[u8]) {
    if bytes.is_empty() {
        text.push_str(&line(&at.to_string(), "", "", field));
    }
    let mut before = None;
    let mut is_in_run = false;
    for (index, chunk) in bytes.chunks(LINE_BYTES).enumerate() {
        let is_same = before.replace(chunk) == Some(chunk);
        if is_same && !is_in_run {
            text.push_str(&line("*", "", "", ""));
        }
        is_in_run = is_same;
        if !is_same {
            let field = if index == 0 { field } else { "" };
            let offset = (at + index * LINE_BYTES).to_string();
            text.push_str(&line(
                &offset,
                &hexadecimal(chunk),
                &printable(chunk),
                field,
            ));
        }
    }
}

fn line(offset: &str, bytes: &str, text: &str, field: &str) -> String {
    let line = format!("{offset:>6}  {bytes:<47}  {text:<16}  {field}");
    format!("{}\n", line.trim_end())
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.join(" ")
}

fn printable(bytes: &[u8]) -> String {
    let letter = |byte: &u8| match byte {
        b'!'..=b'~' => char::from(*byte),
        _ => '.',
    };
    bytes.iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_their_lines_long_ones_several_and_runs_a_star() {
        let mut bytes = b"magic\x07".to_vec();
        bytes.resize(60, 0);
        bytes.extend_from_slice(b"abcdefghijklmnopqr");
        let drawing = [("magic", 5), ("version", 1), ("none", 0), ("zero", 54)];
        let text = print(&drawing, &bytes);
        let lines: Vec<String> = text.lines().map(words).collect();
        assert_eq!(
            lines,
            [
                "offset bytes text field",
                "0 6d 61 67 69 63 magic magic",
                "5 07 . version",
                "6 none",
                "6 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 ................ zero",
                "*",
                "54 00 00 00 00 00 00 ......",
                "60 61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e 6f 70 abcdefghijklmnop (not drawn)",
                "76 71 72 qr",
                "78 end",
            ]
        );
    }

    fn words(line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.join(" ")
    }

    const DRAWING: [(&str, usize); 2] = [("first", 2), ("second", 2)];

    #[test]
    fn bytes_are_compared_with_the_file_beside_their_test() {
        assert_bytes("bytes.hex", &DRAWING, &[1, 2, 3, 4]);
    }

    #[test]
    fn a_byte_that_differs_is_shown_with_its_field_and_the_command() {
        let compared = |bytes: &[u8]| {
            let name = "bytes.hex";
            compare(Location::caller(), name, (&DRAWING, bytes), false)
        };
        let differs = compared(&[1, 2, 3, 5]).unwrap_err();
        assert!(differs.contains("bytes.hex, line 3\n"), "{differs}");
        assert!(differs.contains("-p kvorum-golden bytes::tests::a_byte_that"));
        let undrawn = compared(&[1, 2, 3, 4, 5]).unwrap_err();
        let sizes = "the drawing has 4 bytes, the encoder wrote 5\n";
        assert!(undrawn.contains(sizes), "{undrawn}");
    }
}
