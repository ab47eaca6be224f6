//! Kinds of scales: how an axis grows.

/// How an axis grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleKind {
    /// Equal differences are equal lengths.
    Linear,
    /// Equal ratios are equal lengths.
    Logarithmic,
}
