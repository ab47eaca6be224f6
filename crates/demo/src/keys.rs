//! Meanings of keys. Pure.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::script::{Action, NodeNumber};

/// A command of the user, by a key or a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Press {
    Act(Action),
    Select(NodeNumber),
    /// The tour begins.
    Tour,
    /// Everything ends at once, and nothing is read back.
    Interrupt,
}

/// The keys and their effects, for display.
pub(crate) const HELP: [(&str, &str); 8] = [
    ("k", "kill"),
    ("c", "cut"),
    ("h", "heal"),
    ("a", "add"),
    ("r", "remove"),
    ("1-9", "choose"),
    ("t", "tour"),
    ("q", "end"),
];

/// The meaning of a key, if it has one.
pub(crate) fn press(key: KeyEvent) -> Option<Press> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let KeyCode::Char(letter) = key.code else {
        return (key.code == KeyCode::Esc).then_some(Press::Act(Action::End));
    };
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return matches!(letter, 'c' | 'd' | '\\').then_some(Press::Interrupt);
    }
    Some(match letter.to_ascii_lowercase() {
        'k' => Press::Act(Action::Kill(None)),
        'c' => Press::Act(Action::Cut),
        'h' => Press::Act(Action::Heal),
        'a' => Press::Act(Action::Add),
        'r' => Press::Act(Action::Remove(None)),
        'q' => Press::Act(Action::End),
        't' => Press::Tour,
        digit => match digit.to_digit(10)? {
            0 => return None,
            node => Press::Select(node),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(code: KeyCode, modifiers: KeyModifiers) -> Option<Press> {
        press(KeyEvent::new(code, modifiers))
    }

    #[test]
    fn every_key_that_is_shown_does_something() {
        for (key, does) in HELP {
            let letter = key.chars().next().unwrap();
            let press = pressed(KeyCode::Char(letter), KeyModifiers::NONE);
            let expected = match does {
                "choose" => Press::Select(1),
                "tour" => Press::Tour,
                verb => {
                    let cue = format!("0s {verb}").parse::<crate::Script>().unwrap();
                    Press::Act(cue.into_cues()[0].action)
                }
            };
            assert_eq!(press, Some(expected), "{key}");
        }
    }

    #[test]
    fn other_keys_do_nothing_and_control_c_interrupts() {
        for code in [KeyCode::Char('x'), KeyCode::Char('0'), KeyCode::Enter] {
            assert_eq!(pressed(code, KeyModifiers::NONE), None);
        }
        let interrupt = pressed(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(interrupt, Some(Press::Interrupt));
        assert_eq!(pressed(KeyCode::Char('k'), KeyModifiers::CONTROL), None);
    }
}
