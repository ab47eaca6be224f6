//! Defects that transfers can be told to have, so that their tests are tested too.
//!
//! With the feature `planted-defects` off, none can be chosen, and every question is answered "no" at
//! compile time.

/// One way of being wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedDefect {
    /// What was sent and what was stored are not compared.
    DigestNotCompared,
    /// A source sends before it has learned of the move.
    EpochRuleSkippedOnSender,
    /// A receiver takes pages that were read before their source had learned of the move.
    EpochRuleSkippedOnReceiver,
    /// Reads are sent to a receiver that has only begun to fill.
    FillingCountedAsComplete,
    /// How far a transfer has come is noted before that is durable.
    CursorBeforeDurable,
}

/// The defect that was chosen, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Defects {
    #[cfg(feature = "planted-defects")]
    pub(crate) planted: Option<PlantedDefect>,
}

impl Defects {
    #[cfg(feature = "planted-defects")]
    pub(crate) fn has(self, defect: PlantedDefect) -> bool {
        self.planted == Some(defect)
    }

    #[cfg(not(feature = "planted-defects"))]
    #[expect(
        clippy::unused_self,
        reason = "the same call with and without the feature"
    )]
    pub(crate) fn has(self, _defect: PlantedDefect) -> bool {
        false
    }
}
