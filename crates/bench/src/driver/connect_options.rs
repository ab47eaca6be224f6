//! `pb_connect_options`: options of Riak's Erlang client, and the options that sessions honour.
//!
//! Most options change the measurement, TLS and passwords above all, so a run reports every option
//! that it ignores.

use kvorum_erlang_terms::Term;

use crate::configuration::{Configuration, ConfigurationError};

const KEY: &str = "pb_connect_options";
const PLAIN: &str = "connections of this driver are plain TCP, without TLS and passwords";
const RECONNECTS: &str = "a connection that was lost is made anew before the next operation";

/// Checks the form of the options, and notes those without effect.
pub(super) fn read(configuration: &Configuration) -> Result<(), ConfigurationError> {
    const EXPECTED: &str = "expected a list of options such as {auto_reconnect, true}";
    let options = configuration.convert(KEY, |term| {
        let options = term.as_list().ok_or(EXPECTED)?;
        let names = options.iter().map(|option| {
            let name = name_of(option).ok_or_else(|| format!("{EXPECTED}, not {option}"))?;
            Ok((name.to_owned(), is_on(option)))
        });
        names.collect::<Result<Vec<(String, bool)>, String>>()
    })?;
    for (name, is_on) in options.unwrap_or_default() {
        if let Some(reason) = why_without_effect(&name, is_on) {
            configuration.without_effect(KEY, &name, reason);
        }
    }
    Ok(())
}

fn name_of(option: &Term) -> Option<&str> {
    let first = option.as_tuple().and_then(<[Term]>::first);
    first.unwrap_or(option).as_atom()
}

/// True if an option is on, as it is without a value.
fn is_on(option: &Term) -> bool {
    let value = option.as_tuple().and_then(|parts| parts.get(1));
    value.is_none_or(|value| value.as_atom() == Some("true"))
}

/// The reason why an option has no effect; `None` for an option that is honoured as set.
fn why_without_effect(name: &str, is_on: bool) -> Option<&'static str> {
    match (name, is_on) {
        ("auto_reconnect", true) => None,
        // There is no queue: an operation without a connection makes one or fails.
        ("queue_if_disconnected", false) => None,
        ("keepalive", false) => None,
        ("auto_reconnect" | "queue_if_disconnected" | "queue_timeout", _) => Some(RECONNECTS),
        ("keepalive", true) => Some("the driver does not set keep-alive on its sockets"),
        ("connect_timeout", _) => {
            Some("connecting is bounded by the time-out of the operation, pb_timeout_general")
        }
        (
            "credentials"
            | "cacertfile"
            | "certfile"
            | "keyfile"
            | "keydata"
            | "password"
            | "ssl_opts"
            | "ciphers"
            | "versions"
            | "server_name_indication"
            | "use_ssl",
            _,
        ) => Some(PLAIN),
        _ => Some("the driver has no such option"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(text: &str) -> Result<Vec<String>, String> {
        let mut configuration = Configuration::default();
        configuration.add_override(text).unwrap();
        read(&configuration).map_err(|error| error.to_string())?;
        let notes = configuration.not_honoured();
        Ok(notes.into_iter().map(|note| note.what).collect())
    }

    #[test]
    fn options_that_change_nothing_are_noted_one_by_one() {
        let text = "pb_connect_options=[{auto_reconnect, true}, {keepalive, true}, \
                    {credentials, \"user\", \"secret\"}, {cacertfile, \"/ca.crt\"}, \
                    queue_if_disconnected, {nonsense, 1}]";
        let expected = [
            "keepalive",
            "credentials",
            "cacertfile",
            "queue_if_disconnected",
            "nonsense",
        ];
        let expected = expected.map(|name| format!("pb_connect_options: {name}"));
        assert_eq!(noted(text).unwrap(), expected);
        assert!(
            noted("pb_connect_options=[{auto_reconnect, true}]")
                .unwrap()
                .is_empty()
        );
        assert!(noted("pb_connect_options=[]").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_list_of_options_is_refused() {
        for text in ["pb_connect_options=tls", "pb_connect_options=[\"x\"]"] {
            let error = noted(text).unwrap_err();
            assert!(error.contains("list of options"), "{error}");
        }
    }
}
