//! The blocks of bytes that values are cut from, made when a generator first needs one.

use std::path::PathBuf;
use std::sync::OnceLock;

use bytes::Bytes;

use crate::random::{Seed, WorkerRandom};

/// Rounds of one random and one text part in the block for `semi_compressible`.
const SEMI_ROUNDS: usize = 8192;
const RANDOM_PART_BYTES: usize = 4096;
const STRING_BYTES: usize = 128;
const STRINGS_PER_PART: u64 = 32;
const STRINGS_DISTINCT: u64 = 16;

/// Size of the block that `semi_compressible` values are cut from.
pub const SEMI_COMPRESSIBLE_BLOCK_BYTES: usize = 67_108_864;

/// Settings of the blocks' content.
#[derive(Debug, Clone)]
pub struct BlockSettings {
    /// `value_generator_source_size`: size of the random block in bytes. Default 100663296.
    pub random_bytes: usize,
    /// `value_generator_blob_file`: a file that replaces both blocks.
    pub blob_file: Option<PathBuf>,
    /// Seed of the random bytes; equal seeds give equal blocks.
    pub seed: Seed,
}

/// The blocks, shared by all workers of a run.
#[derive(Debug)]
pub struct SourceBlocks {
    settings: BlockSettings,
    random: OnceLock<Bytes>,
    semi_compressible: OnceLock<Bytes>,
    blob: OnceLock<Bytes>,
}

impl SourceBlocks {
    /// Blocks that are made when they are first needed.
    pub fn new(settings: BlockSettings) -> Self {
        Self {
            settings,
            random: OnceLock::new(),
            semi_compressible: OnceLock::new(),
            blob: OnceLock::new(),
        }
    }

    /// The block of random bytes.
    pub fn random(&self) -> Result<Bytes, String> {
        if let Some(blob) = self.blob()? {
            return Ok(blob);
        }
        let block = self.random.get_or_init(|| {
            let mut bytes = vec![0; self.settings.random_bytes];
            WorkerRandom::new(self.settings.seed).fill(&mut bytes);
            Bytes::from(bytes)
        });
        Ok(block.clone())
    }

    /// The block that alternates random bytes and repetitive text.
    pub fn semi_compressible(&self) -> Result<Bytes, String> {
        if let Some(blob) = self.blob()? {
            return Ok(blob);
        }
        let block = self
            .semi_compressible
            .get_or_init(|| semi_compressible_block(&mut WorkerRandom::new(self.settings.seed)));
        Ok(block.clone())
    }

    fn blob(&self) -> Result<Option<Bytes>, String> {
        let Some(path) = &self.settings.blob_file else {
            return Ok(None);
        };
        if let Some(blob) = self.blob.get() {
            return Ok(Some(blob.clone()));
        }
        let bytes = std::fs::read(path)
            .map_err(|error| format!("cannot read value_generator_blob_file: {error}"))?;
        Ok(Some(self.blob.get_or_init(|| Bytes::from(bytes)).clone()))
    }
}

/// Repeats 4096 random bytes and 32 strings of 128 printable characters 8192 times. The string at
/// position p of a part is one of the first min(p, 16), so that a part repeats itself.
fn semi_compressible_block(random: &mut WorkerRandom) -> Bytes {
    let strings: Vec<Vec<u8>> = (0..STRINGS_DISTINCT)
        .map(|_| (0..STRING_BYTES).map(|_| random.printable()).collect())
        .collect();
    let mut block = Vec::with_capacity(SEMI_COMPRESSIBLE_BLOCK_BYTES);
    for _ in 0..SEMI_ROUNDS {
        let start = block.len();
        block.resize(start + RANDOM_PART_BYTES, 0);
        random.fill(block.get_mut(start..).unwrap_or_default());
        for position in 1..=STRINGS_PER_PART {
            let choice = random.uniform(position.min(STRINGS_DISTINCT)) - 1;
            let string = usize::try_from(choice)
                .ok()
                .and_then(|choice| strings.get(choice));
            block.extend_from_slice(string.map(Vec::as_slice).unwrap_or_default());
        }
    }
    Bytes::from(block)
}
