//! Running other programs, with their output shown, and read if necessary.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::console;

/// Runs a program with its output shown; true if it succeeded.
pub(crate) fn succeeds(command: &mut Command) -> anyhow::Result<bool> {
    let text = describe(command);
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("running {text}"))?;
    Ok(status.success())
}

/// Runs a program whose output matters only if it fails.
///
/// # Errors
/// If the program cannot be started or fails; the text has its output.
pub(crate) fn capture(command: &mut Command) -> anyhow::Result<String> {
    let text = describe(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("running {text}"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{text} ended with {}:\n{printed}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(printed)
}

/// Runs a program with its output shown, and also passes each line of its standard output to
/// `read`; true if it succeeded.
pub(crate) fn read_lines(command: &mut Command, read: impl FnMut(&str)) -> anyhow::Result<bool> {
    read_shown_lines(command, str::to_owned, read)
}

/// Like [`read_lines`], with a name before each line, since other programs print meanwhile.
pub(crate) fn read_named_lines(
    command: &mut Command,
    name: &str,
    read: impl FnMut(&str),
) -> anyhow::Result<bool> {
    read_shown_lines(command, |line| format!("{name}: {line}"), read)
}

fn read_shown_lines(
    command: &mut Command,
    shown: impl Fn(&str) -> String,
    mut read: impl FnMut(&str),
) -> anyhow::Result<bool> {
    let text = describe(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("running {text}"))?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.with_context(|| format!("reading from {text}"))?;
            let line = String::from_utf8_lossy(&line);
            console::line(&shown(&line));
            read(&line);
        }
    }
    let status = child
        .wait()
        .with_context(|| format!("waiting for {text}"))?;
    Ok(status.success())
}

/// A command for the cargo that runs this program, in the workspace's root.
pub(crate) fn cargo(root: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root);
    command
}

fn describe(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_the_end_is_reported() {
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two; exit 3"]);
        let ended_well = read_lines(&mut command, |line| lines.push(line.to_owned())).unwrap();
        assert!(!ended_well);
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    fn a_failure_has_what_was_printed() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo the reason >&2; exit 1"]);
        let error = capture(&mut command).unwrap_err().to_string();
        assert!(error.contains("the reason"), "{error}");
    }
}
