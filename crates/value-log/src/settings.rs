//! Settings of the log.

/// How the value log is laid out.
#[derive(Clone, Copy, Debug)]
pub struct ValueLogSettings {
    /// A segment is closed before it grows beyond this; a larger batch gets a segment of its own. Smaller
    /// segments mean less copying at once, but more files. On a small disk segments are shorter. Bytes.
    pub segment_bytes: u64,
    /// How much of all segments may be dead before one is collected. Lower: less space, more copying.
    /// 100 for never. Percent.
    pub dead_percent_max: u8,
}
