//! Values that reports and messages do not show.

/// Replaces secret values in reports and logs.
const MASK: &str = "********";

/// True for keys whose values are secrets.
pub(crate) fn is_secret(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase();
    let words = [
        "password",
        "passwd",
        "passphrase",
        "secret",
        "cookie",
        "credential",
        "userlist",
    ];
    words.iter().any(|word| last.contains(word))
}

/// The value for reports.
pub(crate) fn shown(name: &str, value: &str) -> String {
    match is_secret(name) {
        true => MASK.to_owned(),
        false => value.to_owned(),
    }
}

/// An unreadable line for reports: without the text behind the name of a secret.
pub(crate) fn line_without_it(line: &str) -> String {
    if let Some((key, value)) = line.split_once('=') {
        return format!("{key}={}", shown(key.trim(), value));
    }
    match line.split_once(char::is_whitespace) {
        Some((key, _)) if is_secret(key) => format!("{key} {MASK}"),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_and_nothing_else_is() {
        assert_eq!(shown("riak_control.auth.user.admin.password", "pass"), MASK);
        assert_eq!(shown("distributed_cookie", "riak"), MASK);
        assert_eq!(shown("platform_data_dir", "/cookie"), "/cookie");
        let line = "riak_control.auth.user.admin.password = pa ss";
        assert!(!line_without_it(line).contains("pa ss"));
        assert!(!line_without_it("x.password pass").contains("pass "));
        assert_eq!(line_without_it("no setting"), "no setting");
    }
}
