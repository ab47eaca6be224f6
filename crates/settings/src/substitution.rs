//! `$(key)` in a value stands for that key's value.

use crate::name::Name;

/// Maximum length of a value. Nested references can double it at every step; no path is this long.
const BYTES_MAX: usize = 16 << 10;

/// Values for references, by name.
pub(crate) trait Values {
    /// The text that stands for this key, which may have references of its own.
    fn text(&self, name: &Name) -> Option<String>;

    /// The final value, after its references were replaced: a path with its directory.
    fn followed(&self, name: &Name, text: String) -> String;
}

/// Replaces every `$(key)` in `text` by its value in `values`, recursively.
///
/// # Errors
/// The name in the parentheses and the error in it.
pub(crate) fn expand(text: &str, values: &dyn Values) -> Result<String, (String, &'static str)> {
    expand_within(text, values, &mut Vec::new())
}

fn expand_within(
    text: &str,
    values: &dyn Values,
    open: &mut Vec<Name>,
) -> Result<String, (String, &'static str)> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("$(") {
        expanded.push_str(before);
        let Some((named, tail)) = after.split_once(')') else {
            return Err((after.to_owned(), "which is not closed"));
        };
        let problem = |why| (named.to_owned(), why);
        let name = Name::parse(named.trim()).ok_or_else(|| problem("which is no name of a key"))?;
        if open.contains(&name) {
            return Err(problem("which refers back to it"));
        }
        let value = values
            .text(&name)
            .ok_or_else(|| problem("which has no value"))?;
        open.push(name.clone());
        let value = expand_within(&value, values, open)?;
        open.pop();
        expanded.push_str(&values.followed(&name, value));
        if expanded.len() > BYTES_MAX {
            return Err(problem("which makes it longer than 16 KB"));
        }
        rest = tail;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Planted;

    impl Values for Planted {
        fn text(&self, name: &Name) -> Option<String> {
            match name.to_string().as_str() {
                "data" => Some("/var/$(name)".to_owned()),
                "relative" => Some("$(name)/x".to_owned()),
                "name" => Some("kvorum".to_owned()),
                "round" => Some("$(about)".to_owned()),
                "about" => Some("$(round)".to_owned()),
                word => {
                    // `x1` is twice `x2`, and so on.
                    let number: u32 = word.strip_prefix('x')?.parse().ok()?;
                    Some(format!("$(x{0})$(x{0})", number + 1))
                        .filter(|_| number < 300)
                        .or_else(|| Some("x".to_owned()))
                }
            }
        }

        fn followed(&self, name: &Name, text: String) -> String {
            match name.to_string().as_str() {
                "relative" => format!("/etc/{text}"),
                _ => text,
            }
        }
    }

    #[test]
    fn a_value_counts_as_it_is_when_its_own_references_were_followed() {
        let expanded = expand("$(relative)/y", &Planted);
        assert_eq!(expanded.as_deref(), Ok("/etc/kvorum/x/y"));
    }

    #[test]
    fn values_that_double_at_every_step_end() {
        let why = expand("$(x0)", &Planted).map_err(|(_, why)| why);
        assert_eq!(why, Err("which makes it longer than 16 KB"));
    }

    #[test]
    fn references_are_followed_through_other_values() {
        let expanded = expand("$(data)/a$(name)$", &Planted);
        assert_eq!(expanded.as_deref(), Ok("/var/kvorum/akvorum$"));
    }

    #[test]
    fn the_same_key_may_be_named_twice() {
        assert_eq!(
            expand("$(name)$(name)", &Planted).as_deref(),
            Ok("kvorumkvorum")
        );
    }

    #[test]
    fn what_stands_for_nothing_is_refused() {
        for (text, why) in [
            ("$(nothing)", "which has no value"),
            ("$(data", "which is not closed"),
            ("$(round)", "which refers back to it"),
            ("$()", "which is no name of a key"),
        ] {
            assert_eq!(
                expand(text, &Planted).map_err(|(_, why)| why),
                Err(why),
                "{text}"
            );
        }
    }
}
