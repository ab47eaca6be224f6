//! Actions on the cluster, and scripts of them: `10s kill, 20s heal, 30s remove 4`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The number of a node, from 1; one digit, since keys choose nodes by it.
pub(crate) type NodeNumber = u32;

/// An action on the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Kills this node, or the next in turn.
    Kill(Option<NodeNumber>),
    /// Cuts the network between two halves.
    Cut,
    /// Heals the network, and starts killed nodes.
    Heal,
    /// Adds a node.
    Add,
    /// Removes this node, or the last one.
    Remove(Option<NodeNumber>),
    /// Ends the load, whose writes are then read back.
    End,
}

/// An action and its time, counted from the beginning of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cue {
    pub(crate) at: Duration,
    pub(crate) action: Action,
}

/// Cues in the order of their times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    cues: Vec<Cue>,
}

/// The latest time of a cue.
const CUE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The script of the key `t`, and of a demo without a terminal.
pub(crate) const TOUR: &str = "8s kill, 20s heal, 32s cut, 47s heal, 60s add, 80s remove";

impl Script {
    /// The tour.
    pub(crate) fn tour() -> Self {
        TOUR.parse().unwrap_or_default()
    }

    /// The same script, delayed by a time.
    pub(crate) fn delayed(mut self, by: Duration) -> Self {
        for cue in &mut self.cues {
            cue.at += by;
        }
        self
    }

    /// The cues.
    pub(crate) fn into_cues(self) -> Vec<Cue> {
        self.cues
    }

    /// The time of the last cue.
    pub(crate) fn length(&self) -> Duration {
        self.cues.last().map_or(Duration::ZERO, |cue| cue.at)
    }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|it| !it.is_empty());
        let mut cues = parts.map(cue).collect::<Result<Vec<Cue>, String>>()?;
        cues.sort_by_key(|cue| cue.at);
        Ok(Self { cues })
    }
}

fn cue(text: &str) -> Result<Cue, String> {
    let mut words = text.split_whitespace();
    let at = words.next().unwrap_or_default();
    let seconds = at.strip_suffix('s').unwrap_or(at).parse::<f64>().ok();
    let at = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let at = at.filter(|at| *at <= CUE_MAX);
    let at = at.ok_or_else(|| format!("{text:?} does not begin with a time such as 10s"))?;
    let verb = words.next().unwrap_or_default();
    let node = words
        .next()
        .map(|word| match word.parse::<NodeNumber>() {
            Ok(number @ 1..=9) => Ok(number),
            _ => Err(format!("{word:?} in {text:?} is no node from 1 to 9")),
        })
        .transpose()?;
    let action = match (verb, node) {
        ("kill", node) => Action::Kill(node),
        ("remove", node) => Action::Remove(node),
        ("cut", None) => Action::Cut,
        ("heal", None) => Action::Heal,
        ("add", None) => Action::Add,
        ("end", None) => Action::End,
        _ => {
            return Err(format!(
                "{text:?} says none of kill, kill N, cut, heal, add, remove, remove N, end"
            ));
        }
    };
    match words.next() {
        None => Ok(Cue { at, action }),
        Some(word) => Err(format!("{word:?} in {text:?} is one word too many")),
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Kill(Some(node)) => write!(f, "kill {node}"),
            Action::Kill(None) => f.write_str("kill"),
            Action::Cut => f.write_str("cut"),
            Action::Heal => f.write_str("heal"),
            Action::Add => f.write_str("add"),
            Action::Remove(Some(node)) => write!(f, "remove {node}"),
            Action::Remove(None) => f.write_str("remove"),
            Action::End => f.write_str("end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<(u128, Action)>, String> {
        let cues = text.parse::<Script>()?.into_cues();
        Ok(cues
            .into_iter()
            .map(|cue| (cue.at.as_millis(), cue.action))
            .collect())
    }

    #[test]
    fn a_script_is_cues_in_the_order_of_their_times() {
        let cues = parsed("20s heal, 1.5 kill 3,30s remove , 2s cut").unwrap();
        let expected = [
            (1500, Action::Kill(Some(3))),
            (2000, Action::Cut),
            (20_000, Action::Heal),
            (30_000, Action::Remove(None)),
        ];
        assert_eq!(cues, expected);
        assert_eq!(parsed(""), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_cue_is_refused_by_name() {
        for (text, named) in [
            ("kill", "\"kill\""),
            ("-1s kill", "-1s"),
            ("1e400s kill", "time"),
            ("10s dance", "none of kill"),
            ("10s kill 10", "\"10\""),
            ("10s kill x", "\"x\""),
            ("10s cut 3", "none of kill"),
            ("10s kill 3 4", "\"4\""),
        ] {
            let refusal = parsed(text).unwrap_err();
            assert!(refusal.contains(named), "{text}: {refusal}");
        }
    }

    #[test]
    fn the_tour_shows_everything_and_reads_as_it_is_written() {
        let cues = Script::tour().into_cues();
        let texts: Vec<String> = cues
            .iter()
            .map(|cue| format!("{}s {}", cue.at.as_secs(), cue.action))
            .collect();
        assert_eq!(texts.join(", "), TOUR);
        for action in [
            Action::Kill(None),
            Action::Cut,
            Action::Heal,
            Action::Add,
            Action::Remove(None),
        ] {
            assert!(cues.iter().any(|cue| cue.action == action), "{action}");
        }
    }
}
