//! Settings of the log.

/// The layout of the value log.
#[derive(Clone, Copy, Debug)]
pub struct ValueLogSettings {
    /// A segment is closed before it grows beyond this; a larger batch gets a segment of its own. Smaller
    /// segments mean less copying at once, but more files. On a small disk segments are shorter. Bytes.
    pub segment_bytes: u64,
    /// The share of garbage in all segments above which one is collected. A lower share saves space
    /// and costs more copying; 100 means never. Percent.
    pub garbage_percent_max: u8,
}
