//! The sources of suites: unpacked from archives, or taken from their public repositories.
//!
//! Archives are named `NAME-COMMIT.tar.gz`, with the first digits of the commit, and contain one
//! directory. Their folder is in a variable, or beside the checkout as `shared/suites`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::command::capture;
use crate::suites::description::Source;

/// The variable that names the folder of archives.
const VARIABLE: &str = "KVORUM_SUITES";

/// The folder, relative to a directory that contains the checkout.
const BESIDE: &str = "shared/suites";

/// The ending of archives.
const ENDING: &str = ".tar.gz";

/// The time limit for one repository.
const FETCH_SECONDS: &str = "120";

/// The result of a search for sources.
pub(crate) enum Sources {
    AreThere,
    AreMissing { needed: String },
}

/// Puts every source into its directory below `home`.
pub(crate) fn provide(root: &Path, sources: &[Source], home: &Path) -> anyhow::Result<Sources> {
    let archives = archives(root);
    for source in sources {
        let place = home.join(&source.folder);
        fs::create_dir_all(&place).with_context(|| format!("creating {}", place.display()))?;
        match archives.iter().find(|archive| holds(archive, source)) {
            Some(archive) => unpack(archive, &place)?,
            None => {
                if let Err(error) = fetch(source, &place) {
                    return Ok(missing(source, &error));
                }
            }
        }
    }
    Ok(Sources::AreThere)
}

/// The files in the folder of archives.
fn archives(root: &Path) -> Vec<PathBuf> {
    let named = env::var_os(VARIABLE).map(PathBuf::from);
    let beside = || {
        let mut folders = root.ancestors().skip(1).map(|it| it.join(BESIDE));
        folders.find(|folder| folder.is_dir())
    };
    let entries = named.or_else(beside).and_then(|it| fs::read_dir(it).ok());
    let entries = entries.into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// True if an archive has the name of the source and the first digits of its commit.
fn holds(archive: &Path, source: &Source) -> bool {
    let name = archive.file_name().and_then(|name| name.to_str());
    let digits = name
        .and_then(|name| name.strip_prefix(source.archive()))
        .and_then(|rest| rest.strip_prefix('-')?.strip_suffix(ENDING));
    digits.is_some_and(|digits| digits.len() >= 7 && source.commit.starts_with(digits))
}

fn unpack(archive: &Path, place: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("tar");
    command.args(["--extract", "--gzip", "--strip-components=1", "--file"]);
    command.arg(archive).arg("--directory").arg(place);
    capture(&mut command).map(drop)
}

/// Fetches one commit from a public repository.
fn fetch(source: &Source, place: &Path) -> anyhow::Result<()> {
    let address = format!("https://github.com/{}", source.repository);
    let git = |arguments: &[&str]| {
        let mut command = Command::new("timeout");
        command.args([FETCH_SECONDS, "git"]).args(arguments);
        command.env("GIT_TERMINAL_PROMPT", "0").current_dir(place);
        capture(&mut command).map(drop)
    };
    git(&["init", "--quiet"])?;
    git(&["fetch", "--quiet", "--depth", "1", &address, &source.commit])?;
    git(&["checkout", "--quiet", "FETCH_HEAD"])
}

fn missing(source: &Source, error: &anyhow::Error) -> Sources {
    let Source {
        repository, commit, ..
    } = source;
    let archive = source.archive();
    Sources::AreMissing {
        needed: format!(
            "it needs {repository} at {commit} from GitHub, or as {archive}-{}{ENDING} in the folder \
             that {VARIABLE} names: {error:#}",
            commit.get(..7).unwrap_or(commit)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        toml::from_str(
            "folder = 'f'\nrepository = 'basho/riak_pb'\narchive = 'riak_pb-nodejs'\n\
             commit = 'cb15cc4770f3748289ba56245d62b1c0d07c33f7'",
        )
        .unwrap()
    }

    #[test]
    fn an_archive_is_found_by_its_name_and_the_beginning_of_its_commit() {
        assert!(holds(
            Path::new("/a/riak_pb-nodejs-cb15cc4.tar.gz"),
            &source()
        ));
        assert!(holds(
            Path::new("riak_pb-nodejs-cb15cc4770.tar.gz"),
            &source()
        ));
        for other in [
            "riak_pb-erlang-cb15cc4.tar.gz",
            "riak_pb-nodejs-cb15cc5.tar.gz",
            "riak_pb-nodejs-cb15.tar.gz",
            "riak_pb-nodejs-cb15cc4.zip",
        ] {
            assert!(!holds(Path::new(other), &source()), "{other}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_named_with_where_it_would_be_found() {
        let error = anyhow::anyhow!("no network");
        let Sources::AreMissing { needed } = missing(&source(), &error) else {
            panic!("it is missing");
        };
        for part in [
            "basho/riak_pb",
            "riak_pb-nodejs-cb15cc4.tar.gz",
            VARIABLE,
            "no network",
        ] {
            assert!(needed.contains(part), "{needed}");
        }
    }
}
