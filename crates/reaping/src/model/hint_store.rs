//! A member's store of hints.

use crate::model::replica::Object;
use crate::note::are_hints_outdated;
use crate::watermark::{RoundName, Watermark};

#[derive(Clone, Debug)]
pub(super) struct Hint {
    pub(super) place: usize,
    pub(super) key: u8,
    pub(super) object: Object,
    /// It was there when the store was opened.
    is_from_before: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct HintStore {
    pub(super) hints: Vec<Hint>,
    pub(super) noted: Option<RoundName>,
}

impl HintStore {
    pub(super) fn add(&mut self, place: usize, key: u8, object: Object) {
        self.hints.push(Hint {
            place,
            key,
            object,
            is_from_before: false,
        });
    }

    /// Opens the store, or a copy of it.
    pub(super) fn opened(mut self, watermark: Option<&Watermark>) -> Self {
        for hint in &mut self.hints {
            hint.is_from_before = true;
        }
        self.learn(watermark);
        self
    }

    pub(super) fn learn(&mut self, watermark: Option<&Watermark>) {
        if are_hints_outdated(self.noted, watermark) {
            self.hints.retain(|it| !it.is_from_before);
        }
    }
}
