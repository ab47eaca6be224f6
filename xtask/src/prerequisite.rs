//! Programs that the tests need and cargo cannot bring: named, with the command that installs
//! them. A missing one fails its stage; nothing is ever skipped for it.

use std::process::{Command, Stdio};

use anyhow::bail;

/// A program that has to be there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prerequisite {
    /// What is run to see whether it is there.
    probe: &'static [&'static str],
    /// What it is for.
    purpose: &'static str,
    /// The command that installs it.
    install: &'static str,
}

pub(crate) const GIT: Prerequisite = Prerequisite {
    probe: &["git", "--version"],
    purpose: "tidy asks git which files belong to the tree",
    install: "apt-get install -y git",
};

pub(crate) const PYTHON: Prerequisite = Prerequisite {
    probe: &["python3", "-c", "import ensurepip, venv"],
    purpose: "the Python client's test suite runs in a virtual environment",
    install: "apt-get install -y python3 python3-venv",
};

pub(crate) const PYTHON_PLAIN: Prerequisite = Prerequisite {
    probe: &["python3", "--version"],
    purpose: "the power is cut by a request to the file system, made from Python",
    install: "apt-get install -y python3",
};

pub(crate) const NODE: Prerequisite = Prerequisite {
    probe: &["node", "--version"],
    purpose: "the Node.js client and the browser are driven by scenarios",
    install: "apt-get install -y nodejs npm",
};

pub(crate) const NPM: Prerequisite = Prerequisite {
    probe: &["npm", "--version"],
    purpose: "it installs the Node.js client and the browser's driver",
    install: "apt-get install -y nodejs npm",
};

pub(crate) const CHROMIUM: Prerequisite = Prerequisite {
    probe: &["chromium", "--version"],
    purpose: "the pages of kvorum bench are looked at in a browser",
    install: "apt-get install -y chromium",
};

pub(crate) const MKFS: Prerequisite = Prerequisite {
    probe: &["mkfs.ext4", "-V"],
    purpose: "the power cut needs a file system of its own",
    install: "apt-get install -y e2fsprogs",
};

pub(crate) const MOUNT: Prerequisite = Prerequisite {
    probe: &["mount", "--version"],
    purpose: "the power cut mounts a file system of its own",
    install: "apt-get install -y mount",
};

pub(crate) const UNSHARE: Prerequisite = Prerequisite {
    probe: &["unshare", "--version"],
    purpose: "clusters run in namespaces of their own",
    install: "apt-get install -y util-linux",
};

pub(crate) const NSENTER: Prerequisite = Prerequisite {
    probe: &["nsenter", "--version"],
    purpose: "every node of a cluster is started in a network namespace",
    install: "apt-get install -y util-linux",
};

pub(crate) const IP: Prerequisite = Prerequisite {
    probe: &["ip", "-V"],
    purpose: "it lays the network between the nodes of a cluster",
    install: "apt-get install -y iproute2",
};

pub(crate) const NFT: Prerequisite = Prerequisite {
    probe: &["nft", "--version"],
    purpose: "it drops packets between the nodes of a cluster",
    install: "apt-get install -y nftables",
};

pub(crate) const CC: Prerequisite = Prerequisite {
    probe: &["cc", "--version"],
    purpose: "the library that steps a server's clock is compiled",
    install: "apt-get install -y gcc libc6-dev",
};

pub(crate) const STRACE: Prerequisite = Prerequisite {
    probe: &["strace", "--version"],
    purpose: "the server's syncs are counted where it makes them",
    install: "apt-get install -y strace",
};

pub(crate) const RSYNC: Prerequisite = Prerequisite {
    probe: &["rsync", "--version"],
    purpose: "a backup is carried elsewhere, and what that moves is counted",
    install: "apt-get install -y rsync",
};

pub(crate) const PERF: Prerequisite = Prerequisite {
    probe: &["perf", "--version"],
    purpose: "it samples the server",
    install: "apt-get install -y linux-perf",
};

/// Fails with the installing commands of all that are missing.
pub(crate) fn require(prerequisites: &[Prerequisite]) -> anyhow::Result<()> {
    let missing: Vec<String> = prerequisites
        .iter()
        .filter(|prerequisite| !is_present(prerequisite))
        .map(|prerequisite| {
            let name = prerequisite.probe.first().copied().unwrap_or_default();
            format!(
                "{name} is missing ({}); install it with: {}",
                prerequisite.purpose, prerequisite.install
            )
        })
        .collect();
    if !missing.is_empty() {
        bail!("{}", missing.join("\n"));
    }
    Ok(())
}

fn is_present(prerequisite: &Prerequisite) -> bool {
    let Some((program, arguments)) = prerequisite.probe.split_first() else {
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

    #[test]
    fn a_missing_program_is_told_with_the_command_that_installs_it() {
        let absent = Prerequisite {
            probe: &["no-such-program-here", "--version"],
            purpose: "it is needed",
            install: "apt-get install -y it",
        };
        let error = require(&[absent]).unwrap_err().to_string();
        assert!(error.contains("no-such-program-here"), "{error}");
        assert!(error.contains("apt-get install -y it"), "{error}");
    }

    #[test]
    fn what_is_there_is_not_asked_for() {
        let shell = Prerequisite {
            probe: &["sh", "-c", "true"],
            purpose: "",
            install: "",
        };
        assert!(require(&[shell]).is_ok());
    }
}
