//! Golden scripts of engines, with the facets that they need.

use std::path::Path;

use kvorum_backend::Capabilities;
use kvorum_golden::{Script, read_scripts};

/// The folder of the scripts.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts");

/// One script.
pub(super) struct ScriptFile {
    pub(super) script: Script,
    needs: Vec<String>,
}

/// All scripts, by name.
pub(super) fn read_all() -> Result<Vec<ScriptFile>, String> {
    let scripts = read_scripts(Path::new(FOLDER))?.into_iter();
    Ok(scripts.map(ScriptFile::of).collect())
}

impl ScriptFile {
    fn of(script: Script) -> Self {
        let lines = script.introduction().iter();
        let needs = lines
            .filter_map(|line| line.strip_prefix("needs "))
            .flat_map(str::split_whitespace)
            .map(str::to_owned)
            .collect();
        Self { script, needs }
    }

    /// Facets that the script needs and the engine lacks.
    pub(super) fn missing(&self, capabilities: Capabilities) -> Vec<String> {
        let needs = self.needs.iter();
        needs
            .filter(|need| !has(capabilities, need))
            .cloned()
            .collect()
    }
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
