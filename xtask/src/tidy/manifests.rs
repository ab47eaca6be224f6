//! Every crate uses the workspace's lints, so that a rule has one place.

use crate::tidy::tree::Tree;

/// The manifests of crates without `workspace = true` below `[lints]`.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    tree.files
        .iter()
        .filter(|file| file.path.ends_with("/Cargo.toml"))
        .filter_map(|file| {
            let manifest: toml::Table = match toml::from_str(&file.text()) {
                Ok(manifest) => manifest,
                Err(error) => return Some(format!("{}: {error}", file.path)),
            };
            let follows = manifest
                .get("lints")
                .and_then(|lints| lints.get("workspace"))
                .and_then(toml::Value::as_bool);
            (follows != Some(true))
                .then(|| format!("{}: lacks `workspace = true` below [lints]", file.path))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_without_the_workspaces_lints_is_a_violation() {
        let tree = Tree::planted(&[
            ("Cargo.toml", "[workspace]\n"),
            ("crates/good/Cargo.toml", "[lints]\nworkspace = true\n"),
            ("crates/none/Cargo.toml", "[package]\nname = 'none'\n"),
            (
                "crates/own/Cargo.toml",
                "[lints.rust]\nunsafe_code = 'allow'\n",
            ),
            ("crates/broken/Cargo.toml", "[lints\n"),
        ]);
        let violations = check(&tree);
        assert_eq!(violations.len(), 3, "{violations:?}");
    }
}
