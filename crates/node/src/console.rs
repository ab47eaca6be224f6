//! Output of commands.

use std::io::{self, ErrorKind, Write as _};
use std::process::{self, ExitCode};

/// Prints the output of a command. A reader that closes the pipe early, as `head` does, is not an
/// error.
pub(crate) fn say(text: &str) {
    match writeln!(io::stdout(), "{}", text.trim_end()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => {
            say_error(&format!(
                "kvorum: standard output cannot be written: {error}"
            ));
            process::exit(1);
        }
    }
}

/// The exit code of a command by its finding.
pub(crate) fn exit_code(is_good: bool) -> ExitCode {
    match is_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Prints the reason for a failure.
#[expect(clippy::print_stderr, reason = "the last word of a failed command")]
pub(crate) fn say_error(text: &str) {
    eprintln!("{text}");
}
