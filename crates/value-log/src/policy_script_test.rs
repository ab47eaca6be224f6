//! Collections of the value log as golden scripts (`collection_scripts/`): segments by their bytes,
//! and the ones that are collected.
//!
//! | command | meaning |
//! |---|---|
//! | `segment N BYTES live=BYTES [settle=BYTES] [passing] [open]` | a segment; `passing`: a store will need less of it soon; `open`: it is written to |
//! | `bound PERCENT`, `room BYTES` | the share of garbage that is allowed; the bytes that copies may take |
//! | `collect` | collects the segment that is chosen: its live bytes go to the open one |
//! | `settle` | collects until none is chosen |
//! | `backlog`, `garbage` | the approximate remaining work; the share of garbage |

use kvorum_golden::{Stage, play_scripts};

use super::*;

#[test]
fn segments_are_collected_as_the_scripts_say() {
    play_scripts("collection_scripts", || Log {
        segments: Vec::new(),
        garbage_percent_max: 30,
        room_bytes: u64::MAX,
    });
}

struct Log {
    segments: Vec<SegmentFacts>,
    garbage_percent_max: u8,
    room_bytes: u64,
}

impl Stage for Log {
    fn take(&mut self, line: &str) -> Result<Vec<String>, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["segment", segment, bytes, ref facts @ ..] => {
                self.segments.push(segment_of(segment, bytes, facts)?);
            }
            ["bound", percent] => self.garbage_percent_max = number(percent)?,
            ["room", bytes] => self.room_bytes = number(bytes)?,
            ["collect"] => return Ok(vec![self.collect().unwrap_or("nothing".to_owned())]),
            ["settle"] => return Ok(std::iter::from_fn(|| self.collect()).collect()),
            ["backlog"] => {
                let backlog = backlog_bytes(&self.segments, self.garbage_percent_max);
                return Ok(vec![format!("{backlog} bytes")]);
            }
            ["garbage"] => {
                let (bytes, garbage) = totals(&self.segments);
                return Ok(vec![format!("{garbage} of {bytes} bytes")]);
            }
            _ => return Err(format!("no command is called {line}")),
        }
        Ok(Vec::new())
    }
}

impl Log {
    fn collect(&mut self) -> Option<String> {
        let chosen = choose(&self.segments, self.garbage_percent_max, self.room_bytes)?;
        let at = self.segments.iter().position(|it| it.number == chosen)?;
        let collected = self.segments.remove(at);
        let copied = collected.live_bytes;
        if let Some(open) = self.segments.iter_mut().find(|it| !it.is_closed) {
            open.bytes += copied;
            open.live_bytes += copied;
        }
        Some(match collected.has_to_be_read() {
            true => format!("segment {chosen}, {copied} bytes are copied"),
            false => format!("segment {chosen}, which is not read"),
        })
    }
}

fn segment_of(segment: &str, bytes: &str, facts: &[&str]) -> Result<SegmentFacts, String> {
    let mut made = SegmentFacts {
        number: number(segment)?,
        bytes: number(bytes)?,
        live_bytes: 0,
        settle_bytes: 0,
        is_passing: false,
        is_closed: true,
    };
    for fact in facts {
        match fact.split_once('=') {
            Some(("live", bytes)) => made.live_bytes = number(bytes)?,
            Some(("settle", bytes)) => made.settle_bytes = number(bytes)?,
            None if *fact == "passing" => made.is_passing = true,
            None if *fact == "open" => made.is_closed = false,
            _ => return Err(format!("a segment has no {fact}")),
        }
    }
    Ok(made)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}
