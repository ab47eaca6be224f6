//! Golden scripts: input and replies as text, the same for every engine.
//!
//! A script is a file in `scripts`, in the form of [`kvorum_golden`]; a line `needs FACET ...` may
//! follow its first sentence. Engines may differ in numbers of batches and resume points, for
//! example; these are printed in a form that is the same for all.
//!
//! Commands (keys are `bucket/key`):
//!
//! | command | replies |
//! |---|---|
//! | `put KEY [head= body= segment= modified= expiry= tag= index=FIELD:TERM,...]`, `remove KEY` | the number of the batch; writes of one batch are separated by `;`, and `grouped` or `default` in front waits for that promise |
//! | `get KEY`, `head KEY` | the entry, read from memory first, and then from the device |
//! | `keys`, `heads`, `entries`, `buckets` `[from= after= to= before= bucket= by= segments= modified=FIRST..LAST of=SNAPSHOT]` | the shown entries, in pages of `by` entries |
//! | `index BUCKET FIELD [from= after= to= before= by=]`, `counts` | index entries; counts of their changes |
//! | `snapshot NAME [until=TIME]`, `release NAME`, `sequence NAME` | the last batch that a snapshot sees |
//! | `at TIME` | none; the time by which expiry and leases are judged |
//! | `sync`, `durable`, `empty`, `status`, `identity` | the answer of the store |
//! | `maintain` | does all upkeep that is due |
//! | `erase`, `close`, `reopen`, `kill`, `crash` | errors only; `kill` opens the files of a killed process, `crash` those after a power cut |
//! | `backup NAME`, `open NAME` | makes a copy; closes the store and opens the copy in its place |

mod fold_words;
mod print;
mod script_file;
mod stage;
mod words;

use kvorum_golden::Script;

use crate::EngineUnderTest;

use self::stage::Stage;

/// Results of the scripts on one engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoldenRun {
    /// The scripts that were played, by name.
    pub played: Vec<String>,
    /// Scripts that were skipped, with the facet that the engine lacks.
    pub skipped: Vec<(String, String)>,
}

/// Uses of an engine's replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// They are compared with those of the scripts.
    Compare,
    /// The replies of the engine's first variation replace those of the scripts.
    Renew,
}

impl Replies {
    /// The use that the caller of the tests has chosen, by an environment variable.
    pub fn chosen() -> Self {
        match kvorum_golden::is_renewing() {
            true => Self::Renew,
            false => Self::Compare,
        }
    }
}

/// Plays every script on every variation of an engine.
///
/// # Errors
/// Script, line and engine, with the expected and the actual reply.
pub fn play_golden_scripts(
    engine: &dyn EngineUnderTest,
    replies: Replies,
) -> Result<GoldenRun, String> {
    let mut run = GoldenRun::default();
    for mut file in script_file::read_all()? {
        let missing = file.missing(engine.capabilities());
        let name = file.script.name().to_owned();
        if !missing.is_empty() {
            run.skipped.push((name, missing.join(" ")));
            continue;
        }
        if replies == Replies::Renew {
            let printed = play(engine, 0, &file.script)?;
            file.script.renew(printed)?;
        }
        for variation in 0..engine.variations().max(1) {
            let player = format!(", engine {}, variation {variation}", engine.name());
            let printed = play(engine, variation, &file.script)?;
            file.script.compare(&printed, &player)?;
        }
        run.played.push(name);
    }
    Ok(run)
}

/// The lines of a script with the engine's replies.
fn play(
    engine: &dyn EngineUnderTest,
    variation: u32,
    script: &Script,
) -> Result<Vec<String>, String> {
    let opened = Stage::open(engine, variation);
    let mut stage = opened.map_err(|error| format!("{}: {error}", script.name()))?;
    script.play(&mut stage)
}
