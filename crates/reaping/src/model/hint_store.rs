//! A member's store of hints.

use crate::hints_note::HintsNote;
use crate::model::replica::Object;
use crate::watermark::Watermark;

#[derive(Clone, Debug)]
pub(super) struct Hint {
    pub(super) place: usize,
    pub(super) key: u8,
    pub(super) object: Object,
    pub(super) is_slow: bool,
    /// The hint was in the store when the store was opened.
    is_from_before: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct HintStore {
    pub(super) hints: Vec<Hint>,
    pub(super) note: HintsNote,
}

impl HintStore {
    pub(super) fn add(&mut self, place: usize, key: u8, object: Object, is_slow: bool) {
        self.note.adds();
        self.hints.push(Hint {
            place,
            key,
            object,
            is_slow,
            is_from_before: false,
        });
    }

    /// Opens the store, or a copy of it.
    pub(super) fn opened(mut self, watermark: Option<&Watermark>) -> Self {
        self.note = HintsNote::opened(self.note.round());
        for hint in &mut self.hints {
            hint.is_from_before = true;
        }
        self.learn(watermark);
        self
    }

    pub(super) fn learn(&mut self, watermark: Option<&Watermark>) {
        if self.note.is_outdated(watermark) {
            self.hints.retain(|it| !it.is_from_before);
        }
    }
}
