//! Output of commands.

use std::io::{self, ErrorKind, Write as _};
use std::process::{self, ExitCode};

/// Prints what the user asked for. One who reads no more of it, as `head` does, has what was wanted.
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

/// What a command ends with by what it found.
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
