//! Golden scripts: commands and replies as text.
//!
//! The first paragraph of a script is a sentence about the behaviour that it shows. Each later line
//! is a command, and its replies are below it on lines that begin with an arrow; empty lines
//! separate parts. A run prints the commands with the actual replies, and its text has to equal the
//! script.

use std::panic::Location;
use std::path::{Path, PathBuf};

use crate::golden_file::{
    first_difference, is_renewing, line_at, names_in, path_beside, read, renewal, write,
};

/// The object of a script: a machine, a store, a node.
pub trait Stage {
    /// Executes a command and returns its replies, one for each line.
    ///
    /// # Errors
    /// If the command does not exist or cannot be parsed.
    fn take(&mut self, command: &str) -> Result<Vec<String>, String>;
}

/// One script.
pub struct Script {
    name: String,
    path: PathBuf,
    lines: Vec<String>,
    /// The first line after the first paragraph.
    commands_from: usize,
}

/// Plays each script of the folder `name`, beside the source file of the caller, on a stage of its
/// own.
///
/// # Panics
/// When a script cannot be read, or replies differ from it.
#[track_caller]
#[expect(clippy::panic, reason = "a failed comparison fails the test")]
pub fn play_scripts<S: Stage>(name: &str, open: impl Fn() -> S) {
    let caller = Location::caller();
    let played = read_scripts(&path_beside(caller, name)).and_then(|scripts| {
        let mut scripts = scripts.into_iter();
        scripts.try_for_each(|script| script.settle(&mut open(), is_renewing()))
    });
    if let Err(difference) = played {
        panic!(
            "{difference}\nif the replies are right: {}",
            renewal(caller)
        );
    }
}

/// All scripts of a folder, by name.
///
/// # Errors
/// If the folder has no scripts, or a script cannot be read.
pub fn read_scripts(folder: &Path) -> Result<Vec<Script>, String> {
    let mut names = names_in(folder)?;
    names.retain(|name| name.ends_with(".txt"));
    if names.is_empty() {
        return Err(format!("{}: there are no scripts", folder.display()));
    }
    let scripts = names.iter().map(|name| Script::read(folder, name));
    scripts.collect()
}

impl Script {
    fn read(folder: &Path, name: &str) -> Result<Self, String> {
        let path = folder.join(name);
        let text = read(&path)?;
        let lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        let commands_from = lines
            .iter()
            .position(String::is_empty)
            .ok_or_else(|| format!("{name}: no paragraph says what the script shows"))?;
        Ok(Self {
            name: name.to_owned(),
            path,
            lines,
            commands_from,
        })
    }

    /// The name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first paragraph.
    pub fn introduction(&self) -> &[String] {
        &self.lines[..self.commands_from]
    }

    /// The script with the replies of a stage.
    ///
    /// # Errors
    /// Errors of the stage, with the line.
    pub fn play(&self, stage: &mut dyn Stage) -> Result<Vec<String>, String> {
        let mut printed = Vec::new();
        for (number, line) in self.lines.iter().enumerate() {
            if line.starts_with("->") {
                continue;
            }
            printed.push(line.clone());
            if number < self.commands_from || line.is_empty() {
                continue;
            }
            let replies = stage.take(line);
            let replies =
                replies.map_err(|error| format!("{}:{}: {error}", self.name, number + 1))?;
            let replies = replies.iter().map(|reply| format!("-> {reply}"));
            printed.extend(replies.map(|reply| reply.trim_end().to_owned()));
        }
        Ok(printed)
    }

    /// Replaces the replies of the script by printed ones.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn renew(&mut self, printed: Vec<String>) -> Result<(), String> {
        if printed == self.lines {
            return Ok(());
        }
        write(&self.path, &(printed.join("\n") + "\n"))?;
        self.lines = printed;
        Ok(())
    }

    /// Compares printed replies with the script; `player` is named in the error.
    ///
    /// # Errors
    /// The first line that differs, and the command above it.
    pub fn compare(&self, printed: &[String], player: &str) -> Result<(), String> {
        let Some(number) = first_difference(&self.lines, printed) else {
            return Ok(());
        };
        let before = &self.lines[..number.min(self.lines.len())];
        let command = before.iter().rfind(|line| !line.starts_with("->"));
        Err(format!(
            "script {}, line {}{player}\n  below    {}\n  expected {}\n  got      {}",
            self.name,
            number + 1,
            command.map_or("(the beginning)", |line| line),
            line_at(&self.lines, number),
            line_at(printed, number),
        ))
    }

    fn settle(mut self, stage: &mut dyn Stage, is_renewing: bool) -> Result<(), String> {
        let printed = self.play(stage)?;
        match is_renewing {
            true => self.renew(printed),
            false => self.compare(&printed, ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the letters of all commands.
    #[derive(Default)]
    struct Counter(usize);

    impl Stage for Counter {
        fn take(&mut self, command: &str) -> Result<Vec<String>, String> {
            if command == "unknown" {
                return Err("no command is called unknown".to_owned());
            }
            self.0 += command.len();
            Ok(vec![format!("{} letters", self.0)])
        }
    }

    fn settled(text: &str, is_renewing: bool) -> (Result<(), String>, String) {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("one.txt"), text).unwrap();
        let mut scripts = read_scripts(folder.path()).unwrap();
        let settled = scripts
            .remove(0)
            .settle(&mut Counter::default(), is_renewing);
        (settled, read(&folder.path().join("one.txt")).unwrap())
    }

    const RIGHT: &str = "It counts.\n\na\n-> 1 letters\n\nbcd\n-> 4 letters\n";

    #[test]
    fn replies_are_compared_and_the_first_that_differs_is_shown() {
        assert_eq!(settled(RIGHT, false).0, Ok(()));
        let (wrong, _) = settled(&RIGHT.replace('4', "5"), false);
        assert_eq!(
            wrong.unwrap_err(),
            "script one.txt, line 7\n  below    bcd\n  expected -> 5 letters\n  got      -> 4 letters"
        );
        let (unknown, _) = settled("It counts.\n\nunknown\n", false);
        assert_eq!(
            unknown.unwrap_err(),
            "one.txt:3: no command is called unknown"
        );
    }

    #[test]
    fn renewing_writes_the_replies_and_keeps_the_commands() {
        let (renewed, text) = settled("It counts.\n\na\n\nbcd\n-> wrong\n", true);
        assert_eq!((renewed, text.as_str()), (Ok(()), RIGHT));
    }

    #[test]
    fn a_script_without_a_first_paragraph_and_a_folder_without_scripts_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read_scripts(folder.path()).is_err());
        write(&folder.path().join("one.txt"), "a\nb\n").unwrap();
        assert!(read_scripts(folder.path()).is_err());
    }
}
