//! Programs that the tests need and cargo cannot install.
//!
//! The programs of all stages are checked before anything is built. Missing programs are installed
//! if the user is root on Debian or a derivative; other users get one command that installs all of
//! them. No test is ever skipped for a missing program.

use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::command::succeeds;
use crate::console;

/// A required program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prerequisite {
    /// The command that shows whether it exists.
    probe: &'static [&'static str],
    /// Its purpose.
    purpose: &'static str,
    /// Debian's packages with it.
    packages: &'static [&'static str],
}

pub(crate) const GIT: Prerequisite = Prerequisite {
    probe: &["git", "--version"],
    purpose: "tidy asks git which files belong to the tree, and suites of clients come from repositories",
    packages: &["git"],
};

pub(crate) const PYTHON: Prerequisite = Prerequisite {
    probe: &["python3", "-c", "import ensurepip, venv"],
    purpose: "the Python client's test suite and schemathesis run in virtual environments",
    packages: &["python3", "python3-venv"],
};

pub(crate) const PYTHON_PLAIN: Prerequisite = Prerequisite {
    probe: &["python3", "--version"],
    purpose: "scripts in Python cut the power, play transcripts and judge suites of clients",
    packages: &["python3"],
};

pub(crate) const NODE: Prerequisite = Prerequisite {
    probe: &["node", "--version"],
    purpose: "the Node.js client and the browser are driven by scenarios",
    packages: &["nodejs", "npm"],
};

pub(crate) const NPM: Prerequisite = Prerequisite {
    probe: &["npm", "--version"],
    purpose: "it installs the Node.js client and the browser's driver",
    packages: &["nodejs", "npm"],
};

pub(crate) const GO: Prerequisite = Prerequisite {
    probe: &["go", "version"],
    purpose: "the Go client's test suite is built and run",
    packages: &["golang-go"],
};

pub(crate) const JAVAC: Prerequisite = Prerequisite {
    probe: &["javac", "-version"],
    purpose: "the Java client's test suite and YCSB's binding are compiled and run",
    packages: &["default-jdk-headless"],
};

pub(crate) const MAVEN: Prerequisite = Prerequisite {
    probe: &["mvn", "--version"],
    purpose: "it fetches what Java's clients need, and runs their tests",
    packages: &["maven", "default-jdk-headless"],
};

pub(crate) const ERLANG: Prerequisite = Prerequisite {
    probe: &["erl", "-noshell", "-eval", ERLANG_LIBRARIES],
    purpose: "the Erlang client's test suite is compiled and run",
    packages: &[
        "erlang-base",
        "erlang-dev",
        "erlang-eunit",
        "erlang-parsetools",
        "erlang-ssl",
        "erlang-syntax-tools",
        "erlang-tools",
        "erlang-xmerl",
    ],
};

/// A script that succeeds if all libraries exist.
const ERLANG_LIBRARIES: &str = "[true = is_list(code:lib_dir(It)) \
    || It <- [eunit, parsetools, ssl, syntax_tools, tools, xmerl]], halt().";

pub(crate) const RUBY: Prerequisite = Prerequisite {
    probe: &["ruby", "-e", RUBY_LIBRARIES],
    purpose: "the Ruby client's test suite is run",
    packages: &[
        "ruby",
        "ruby-activesupport",
        "ruby-beefcake",
        "ruby-i18n",
        "ruby-innertube",
        "ruby-multi-json",
        "ruby-rspec",
        "ruby-yajl",
    ],
};

/// A script that succeeds if all libraries exist.
const RUBY_LIBRARIES: &str =
    "%w[active_support beefcake i18n innertube multi_json rspec yajl].each { |it| require it }";

pub(crate) const PHP: Prerequisite = Prerequisite {
    probe: &["php", "-r", "exit(extension_loaded('curl') ? 0 : 1);"],
    purpose: "the PHP client's test suite is run, over HTTP",
    packages: &["php-cli", "php-curl"],
};

pub(crate) const PHPUNIT: Prerequisite = Prerequisite {
    probe: &["phpunit", "--version"],
    purpose: "it runs the PHP client's test suite",
    packages: &["phpunit", "php-cli", "php-xml", "php-mbstring"],
};

pub(crate) const CHROMIUM: Prerequisite = Prerequisite {
    probe: &["chromium", "--version"],
    purpose: "the pages of kvorum bench are looked at in a browser",
    packages: &["chromium"],
};

pub(crate) const MKFS: Prerequisite = Prerequisite {
    probe: &["mkfs.ext4", "-V"],
    purpose: "the power cut needs a file system of its own",
    packages: &["e2fsprogs"],
};

pub(crate) const MOUNT: Prerequisite = Prerequisite {
    probe: &["mount", "--version"],
    purpose: "the power cut mounts a file system of its own",
    packages: &["mount"],
};

pub(crate) const UNSHARE: Prerequisite = Prerequisite {
    probe: &["unshare", "--version"],
    purpose: "clusters run in namespaces of their own",
    packages: &["util-linux"],
};

pub(crate) const NSENTER: Prerequisite = Prerequisite {
    probe: &["nsenter", "--version"],
    purpose: "every node of a cluster is started in a network namespace",
    packages: &["util-linux"],
};

pub(crate) const IP: Prerequisite = Prerequisite {
    probe: &["ip", "-V"],
    purpose: "it lays the network between the nodes of a cluster",
    packages: &["iproute2"],
};

pub(crate) const NFT: Prerequisite = Prerequisite {
    probe: &["nft", "--version"],
    purpose: "it drops packets between the nodes of a cluster",
    packages: &["nftables"],
};

pub(crate) const CC: Prerequisite = Prerequisite {
    probe: &["cc", "--version"],
    purpose: "the library that steps a server's clock is compiled",
    packages: &["gcc", "libc6-dev"],
};

pub(crate) const STRACE: Prerequisite = Prerequisite {
    probe: &["strace", "--version"],
    purpose: "the server's syncs are counted where it makes them",
    packages: &["strace"],
};

pub(crate) const RSYNC: Prerequisite = Prerequisite {
    probe: &["rsync", "--version"],
    purpose: "a backup is carried elsewhere, and what that moves is counted",
    packages: &["rsync"],
};

pub(crate) const CURL: Prerequisite = Prerequisite {
    probe: &["curl", "--version"],
    purpose: "the documents ask the server with it",
    packages: &["curl"],
};

pub(crate) const PERF: Prerequisite = Prerequisite {
    probe: &["perf", "--version"],
    purpose: "it samples the server",
    packages: &["linux-perf"],
};

/// Installs missing programs if that is possible; otherwise fails with the command that installs them.
pub(crate) fn provide(prerequisites: &[Prerequisite]) -> anyhow::Result<()> {
    let missing = missing_of(prerequisites);
    if missing.is_empty() {
        return Ok(());
    }
    let is_root = rustix::process::geteuid().is_root();
    if is_root && is_there(&["apt-get", "--version"]) {
        console::line(&explained(&missing));
        install(&packages_of(&missing)).context(command_for(&missing))?;
    }
    require(prerequisites)
}

/// Fails if any program is missing, with the command that installs all of them.
pub(crate) fn require(prerequisites: &[Prerequisite]) -> anyhow::Result<()> {
    let missing = missing_of(prerequisites);
    if !missing.is_empty() {
        bail!(
            "{}\ninstall with: {}",
            explained(&missing),
            command_for(&missing)
        );
    }
    Ok(())
}

fn install(packages: &[&str]) -> anyhow::Result<()> {
    let mut update = Command::new("apt-get");
    ensure!(
        succeeds(update.args(["update", "-q"]))?,
        "apt-get update failed"
    );
    let mut install = Command::new("apt-get");
    install
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["install", "-y", "-q", "--no-install-recommends"])
        .args(packages);
    ensure!(succeeds(&mut install)?, "apt-get install failed");
    Ok(())
}

fn missing_of(prerequisites: &[Prerequisite]) -> Vec<Prerequisite> {
    let mut missing: Vec<Prerequisite> = Vec::new();
    for prerequisite in prerequisites {
        let is_known = missing.iter().any(|it| it.probe == prerequisite.probe);
        if !is_known && !is_there(prerequisite.probe) {
            missing.push(*prerequisite);
        }
    }
    missing
}

fn explained(missing: &[Prerequisite]) -> String {
    let lines = missing.iter().map(|it| {
        let name = it.probe.first().copied().unwrap_or_default();
        format!("{name} is missing: {}", it.purpose)
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn packages_of(missing: &[Prerequisite]) -> Vec<&'static str> {
    let mut packages: Vec<_> = missing.iter().flat_map(|it| it.packages).copied().collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn command_for(missing: &[Prerequisite]) -> String {
    format!(
        "apt-get update && apt-get install -y --no-install-recommends {}",
        packages_of(missing).join(" ")
    )
}

fn is_there(probe: &[&str]) -> bool {
    let Some((program, arguments)) = probe.split_first() else {
        return false;
    };
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn absent(packages: &'static [&'static str]) -> Prerequisite {
        Prerequisite {
            probe: &["no-such-program-here", "--version"],
            purpose: "it is needed",
            packages,
        }
    }

    #[test]
    fn one_command_installs_all_that_is_missing() {
        let other = Prerequisite {
            probe: &["no-such-program-either"],
            ..absent(&["b", "a"])
        };
        let shell = Prerequisite {
            probe: &["sh", "-c", "true"],
            ..absent(&["shell"])
        };
        let error = require(&[absent(&["c", "b"]), shell, other, other]).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("no-such-program-here is missing: it is needed"),
            "{error}"
        );
        assert!(error.ends_with("--no-install-recommends a b c"), "{error}");
        assert_eq!(
            error.matches("no-such-program-either").count(),
            1,
            "{error}"
        );
    }

    #[test]
    fn what_is_there_is_not_asked_for() {
        let shell = Prerequisite {
            probe: &["sh", "-c", "true"],
            ..absent(&[])
        };
        assert!(require(&[shell]).is_ok());
        assert!(provide(&[shell]).is_ok());
    }
}
