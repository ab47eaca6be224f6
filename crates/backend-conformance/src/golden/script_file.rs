//! Files of golden scripts: read, compared with an engine's replies, and renewed.

use std::path::{Path, PathBuf};

use kvorum_backend::Capabilities;
use kvorum_disk::{Disk, RealDisk, read_file, replace_file};

/// The folder of the scripts.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts");
/// No script is larger.
const BYTES_MAX: u64 = 64 << 10;

/// One script.
pub(super) struct ScriptFile {
    /// The file's name.
    pub(super) name: String,
    /// Its lines.
    pub(super) lines: Vec<String>,
    /// The first line that is a command: behind the first paragraph.
    pub(super) commands_from: usize,
    needs: Vec<String>,
}

/// All scripts, by name.
pub(super) fn read_all() -> Result<Vec<ScriptFile>, String> {
    let entries = RealDisk
        .list(Path::new(FOLDER))
        .map_err(|error| error.to_string())?;
    let mut names: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
    names.retain(|name| name.ends_with(".txt"));
    names.sort();
    assert!(!names.is_empty(), "there are scripts");
    names.into_iter().map(ScriptFile::read).collect()
}

impl ScriptFile {
    fn read(name: String) -> Result<Self, String> {
        let bytes =
            read_file(&RealDisk, &path_of(&name), BYTES_MAX).map_err(|error| error.to_string())?;
        let text = String::from_utf8(bytes).map_err(|error| format!("{name}: {error}"))?;
        let lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        let commands_from = lines
            .iter()
            .position(String::is_empty)
            .ok_or_else(|| format!("{name}: no paragraph says what the script shows"))?;
        let needs = lines[..commands_from]
            .iter()
            .filter_map(|line| line.strip_prefix("needs "))
            .flat_map(str::split_whitespace)
            .map(str::to_owned)
            .collect();
        Ok(Self {
            name,
            lines,
            commands_from,
            needs,
        })
    }

    /// Facets that the script needs and the engine lacks.
    pub(super) fn missing(&self, capabilities: Capabilities) -> Vec<String> {
        let needs = self.needs.iter();
        needs
            .filter(|need| !has(capabilities, need))
            .cloned()
            .collect()
    }

    /// Replaces the script's replies by an engine's.
    pub(super) fn renew(&mut self, printed: Vec<String>) -> Result<(), String> {
        if printed == self.lines {
            return Ok(());
        }
        let mut text = printed.join("\n");
        text.push('\n');
        self.lines = printed;
        replace_file(&RealDisk, &path_of(&self.name), text.as_bytes())
            .map_err(|error| error.to_string())
    }

    /// Compares the printed replies with the script, and returns the first line that differs.
    pub(super) fn compare(
        &self,
        printed: &[String],
        engine: &str,
        variation: u32,
    ) -> Result<(), String> {
        let lines = self.lines.len().max(printed.len());
        let differs = (0..lines).find(|&number| self.lines.get(number) != printed.get(number));
        let Some(number) = differs else {
            return Ok(());
        };
        let shown = |lines: &[String]| lines.get(number).map_or("(the end)", |it| it).to_owned();
        let command = self.lines[..number.min(self.lines.len())]
            .iter()
            .rfind(|line| !line.starts_with("->"));
        Err(format!(
            "script {}, line {}, engine {engine}, variation {variation}\n  below    {}\n  \
             expected {}\n  got      {}",
            self.name,
            number + 1,
            command.map_or("(the beginning)", |line| line),
            shown(&self.lines),
            shown(printed),
        ))
    }
}

fn path_of(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

fn has(capabilities: Capabilities, need: &str) -> bool {
    match need {
        "persistent" => capabilities.persistent,
        "indexes" => capabilities.indexes,
        "backups" => capabilities.backups,
        other => panic_on(other),
    }
}

#[expect(
    clippy::panic,
    reason = "a script with a misspelt need would never be played"
)]
fn panic_on(need: &str) -> bool {
    panic!("no facet is called {need}")
}
