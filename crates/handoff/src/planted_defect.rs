//! Defects that transfers can be told to have, so that their tests are tested too.
//!
//! With the feature `planted-defects` off, none can be chosen, and every question is answered "no" at
//! compile time. What a whole node was told to have ([`kvorum_runtime::is_planted`]) counts as well.

use kvorum_runtime::{PlantedDefect as OfNode, is_planted};

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
    /// A transfer whose source is not ready waits in its turn, and repairs come last.
    WaitingTransferKeepsTurn,
    /// The sender counts a transfer that ended in a large object as under way.
    SentTransferKeepsTurn,
}

impl PlantedDefect {
    /// The same of a whole node, where that can be told to have it.
    fn of_node(self) -> Option<OfNode> {
        Some(match self {
            Self::DigestNotCompared => OfNode::TransferCompletedWithoutDigest,
            Self::EpochRuleSkippedOnSender => OfNode::EpochRuleSkippedOnSender,
            Self::EpochRuleSkippedOnReceiver => OfNode::EpochRuleSkippedOnReceiver,
            Self::FillingCountedAsComplete => OfNode::MoveClosedEarly,
            Self::SentTransferKeepsTurn => OfNode::SentTransferKeepsTurn,
            // The first takes a power cut at the very moment; a hundred simulated clusters did not show the
            // second, which the tests of transfers plant.
            Self::CursorBeforeDurable | Self::WaitingTransferKeepsTurn => return None,
        })
    }
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
        self.planted == Some(defect) || defect.of_node().is_some_and(is_planted)
    }

    #[cfg(not(feature = "planted-defects"))]
    #[expect(
        clippy::unused_self,
        reason = "the same call with and without the feature"
    )]
    pub(crate) fn has(self, defect: PlantedDefect) -> bool {
        defect.of_node().is_some_and(is_planted)
    }
}
