//! A file printed piece by piece, as a table for people or as JSON for programs.

use std::io::Write;
use std::path::Path;

use kvorum_disk::anatomy::{Check, Field, Piece};
use kvorum_disk::{Disk, EntryKind};

use crate::{InspectError, Result, open_pieces, recognise};

/// The part of a file that is printed.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShowOptions {
    /// Begin with the piece that holds this byte.
    pub from: u64,
    /// Print this many pieces at most.
    pub limit: Option<u64>,
    /// Print a line with a JSON object for each piece.
    pub is_json: bool,
    /// Leave out undamaged pieces.
    pub only_damaged: bool,
}

/// The result of printing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Pieces that were printed.
    pub pieces: u64,
    /// Damaged pieces among those.
    pub damaged: u64,
}

/// Prints a file. Memory is bounded by its largest piece, and bodies are not kept.
pub fn show(
    disk: &dyn Disk,
    path: &Path,
    options: ShowOptions,
    out: &mut dyn Write,
) -> Result<Shown> {
    if disk
        .info(path)?
        .is_some_and(|info| info.kind == EntryKind::Directory)
    {
        return Err(InspectError::IsDirectory {
            path: path.to_owned(),
        });
    }
    let kind = recognise(disk, path)?;
    let mut shown = Shown::default();
    for piece in open_pieces(disk, path, kind, options.from)? {
        let piece = piece?;
        let is_before = piece.end() <= options.from && options.from > 0;
        if is_before || (options.only_damaged && !piece.is_damaged()) {
            continue;
        }
        if options.limit.is_some_and(|limit| shown.pieces >= limit) {
            break;
        }
        shown.pieces += 1;
        shown.damaged += u64::from(piece.is_damaged());
        if options.is_json {
            writeln!(out, "{}", as_json(&piece))?;
        } else {
            print(&piece, out)?;
        }
    }
    Ok(shown)
}

fn print(piece: &Piece, out: &mut dyn Write) -> std::io::Result<()> {
    let (start, end) = (piece.offset(), piece.end());
    let mark = if piece.is_damaged() { "  DAMAGED" } else { "" };
    writeln!(
        out,
        "{} at {start}, {} bytes{mark}",
        piece.title,
        end - start
    )?;
    for field in &piece.fields {
        let verdict = verdict(field);
        writeln!(
            out,
            "{:>12} {:>8}  {:<30} {}{verdict}",
            field.offset, field.len, field.name, field.value
        )?;
    }
    Ok(())
}

fn verdict(field: &Field) -> String {
    match &field.check {
        Check::Covered => String::new(),
        Check::Good => "  good".to_owned(),
        Check::Bad { got, expected } => format!("  BAD: got {got}, expected {expected}"),
    }
}

fn as_json(piece: &Piece) -> serde_json::Value {
    let fields: Vec<_> = piece.fields.iter().map(field_as_json).collect();
    serde_json::json!({
        "piece": piece.title,
        "offset": piece.offset(),
        "length": piece.end() - piece.offset(),
        "damaged": piece.is_damaged(),
        "fields": fields,
    })
}

fn field_as_json(field: &Field) -> serde_json::Value {
    let mut value = serde_json::json!({
        "offset": field.offset,
        "length": field.len,
        "field": field.name,
        "value": field.value,
    });
    match &field.check {
        Check::Covered => {}
        Check::Good => value["checksum"] = "good".into(),
        Check::Bad { got, expected } => {
            value["checksum"] = "bad".into();
            value["got"] = got.as_str().into();
            value["expected"] = expected.as_str().into();
        }
    }
    value
}
