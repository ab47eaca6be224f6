//! Kinds of scales.

/// The relation between values and lengths on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleKind {
    /// Equal differences are equal lengths.
    Linear,
    /// Equal ratios are equal lengths.
    Logarithmic,
}
