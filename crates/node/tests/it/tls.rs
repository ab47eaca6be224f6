//! Encryption between servers: made by commands, checked before a start, switched on while serving.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kvorum_runtime::WallTime;
use kvorum_tls::{Authority, Identity, Issued, Validity};

use crate::cluster::{admin, has, is_put, json, site, until};
use crate::server::{Server, Site};

/// The output of a command with any exit.
fn said(site: &Site, words: &[&str]) -> (bool, String) {
    let output = site.run(words);
    let text = String::from_utf8([&output.stdout[..], &output.stderr[..]].concat()).unwrap();
    (output.status.success(), text)
}

fn refused(site: &Site, words: &[&str]) -> String {
    let (is_ok, text) = said(site, words);
    assert!(!is_ok, "{words:?}: {text}");
    text
}

fn name(number: usize) -> String {
    format!("node{number}@127.0.0.1")
}

/// Gives a node a certificate of the authority that the first site has made.
fn issue(first: &Site, number: usize, to: &Site, days: &str) {
    let out = to.path().join("tls");
    let words = ["tls", "issue", &name(number), "--days", days, "--out"];
    admin(first, &[&words[..], &[out.to_str().unwrap()]].concat());
}

/// Puts a new certificate in the place of the former.
fn renew(first: &Site, number: usize, to: &Site, days: &str) {
    std::fs::remove_dir_all(to.path().join("tls")).unwrap();
    issue(first, number, to, days);
}

fn set(site: &mut Site, mode: &str) {
    site.settings.retain(|it| !it.starts_with("cluster.tls="));
    site.settings.push(format!("cluster.tls={mode}"));
}

fn join(site: &Site, first: SocketAddr) -> (bool, String) {
    let first = format!("{}:{}", name(1), first.port());
    said(site, &["admin", "cluster", "join", &first])
}

/// Joins the second of two running nodes to the first, and waits until both have everything.
fn become_two(sites: &[Site], peers: &[SocketAddr]) {
    let (is_ok, text) = join(&sites[1], peers[0]);
    assert!(is_ok, "{text}");
    admin(&sites[0], &["cluster", "plan"]);
    admin(&sites[0], &["cluster", "commit"]);
    until("every key has two replicas", || {
        let ring = json(&sites[1], &["ring-status"]);
        ring["settled"] == true && ring["replicas_max"] == 2
    });
}

/// Connections with others, encrypted and not.
fn connections(site: &Site) -> (u64, u64) {
    let status = json(site, &["tls", "status"]);
    let nodes = status["connections"].as_array().unwrap().clone();
    let sum = |field: &str| nodes.iter().map(|it| it[field].as_u64().unwrap()).sum();
    (sum("encrypted"), sum("plain"))
}

fn written_here_is_read_there(sites: &[Site], key: &str) {
    for (number, site) in sites.iter().enumerate() {
        let key = format!("{key}{number}");
        until("a write is taken", || is_put(site, &key, "value"));
        assert!(sites.iter().all(|site| has(site, &key, "value")), "{key}");
    }
}

#[test]
fn an_authority_and_certificates_are_made_and_never_overwritten() {
    let (first, _) = site(1);
    let made = admin(&first, &["tls", "init"]);
    assert!(made.contains("node1@127.0.0.1"), "{made}");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let tls = first.path().join("tls");
    assert_eq!(mode(&tls), 0o700);
    assert_eq!(mode(&tls.join("ca.key")), 0o600);
    assert_eq!(mode(&tls.join("node.key")), 0o600);
    let before = std::fs::read(tls.join("ca.key")).unwrap();
    for words in [&["tls", "init"][..], &["tls", "init", "--authority-only"]] {
        let again = refused(&first, &[&["admin"], words].concat());
        assert!(again.contains("there already"), "{again}");
    }
    assert_eq!(std::fs::read(tls.join("ca.key")).unwrap(), before);
    admin(&first, &["tls", "issue", "node2@127.0.0.1"]);
    let of_second = tls.join("node2@127.0.0.1");
    for file in ["node.crt", "node.key", "ca.crt"] {
        assert!(of_second.join(file).exists(), "{file}");
    }
    assert_eq!(mode(&of_second.join("node.key")), 0o600);
    let again = refused(&first, &["admin", "tls", "issue", "node2@127.0.0.1"]);
    assert!(again.contains("there already"), "{again}");
    let nobody = refused(&first, &["admin", "tls", "issue", "node2"]);
    assert!(nobody.contains("name@host"), "{nobody}");
    let nowhere = refused(&first, &["admin", "tls", "issue", "a@b", "--dir", "none"]);
    assert!(nowhere.contains("none/ca.crt"), "{nowhere}");
    // Away from the nodes.
    admin(
        &first,
        &["tls", "init", "--dir", "away", "--authority-only"],
    );
    assert!(!first.path().join("away/node.key").exists());
}

#[test]
fn files_that_cannot_be_used_are_named_before_a_start() {
    let (mut first, _) = site(1);
    let checked = |site: &Site| refused(site, &["chkconfig"]);
    assert!(said(&first, &["chkconfig"]).0);
    set(&mut first, "on");
    let missing = checked(&first);
    for key in ["certfile", "keyfile", "cacertfile"] {
        let place = first.path().join("tls").display().to_string();
        assert!(
            missing.contains(&format!("cluster.tls.{key} = {place}/")),
            "{missing}"
        );
    }
    assert!(missing.contains("kvorum admin tls init"), "{missing}");
    admin(&first, &["tls", "init"]);
    assert!(said(&first, &["chkconfig"]).0);
    let tls = first.path().join("tls");
    admin(&first, &["tls", "issue", "node2@127.0.0.1"]);
    admin(
        &first,
        &["tls", "init", "--dir", "away", "--authority-only"],
    );
    let with = |from: &str, to: &str| {
        let (from, to) = (first.path().join(from), tls.join(to));
        let kept = std::fs::read(&to).unwrap();
        std::fs::copy(from, &to).unwrap();
        let problem = checked(&first);
        std::fs::write(&to, kept).unwrap();
        problem
    };
    let other_key = with("tls/node2@127.0.0.1/node.key", "node.key");
    let wrong = "tls/node.key: the private key does not";
    assert!(other_key.contains("cluster.tls.keyfile = ") && other_key.contains(wrong));
    let other_authority = with("away/ca.crt", "ca.crt");
    let wrong = "tls/ca.crt: the certificate was";
    let named = "cluster.tls.cacertfile = ";
    assert!(other_authority.contains(named) && other_authority.contains(wrong));
    assert!(with("tls/ca.key", "node.crt").contains("no certificate in PEM form"));
    renamed_and_ended(&mut first);
}

/// A certificate that the authority in a directory issued ten days ago for one day.
fn issued_long_ago(directory: &Path, node: &str) -> Issued {
    let read = |file| std::fs::read_to_string(directory.join(file)).unwrap();
    let authority = Authority::read(&read("ca.crt"), &read("ca.key")).unwrap();
    let day = Duration::from_secs(24 * 60 * 60);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let validity = Validity {
        made: WallTime::from_seconds((now - 10 * day).as_secs()),
        lasts: day,
    };
    let identity = Identity {
        cluster: "kvorum".into(),
        node: node.into(),
    };
    authority.issue(&[identity], validity).unwrap()
}

/// A certificate of another node, one that ends soon, and one that has ended.
fn renamed_and_ended(first: &mut Site) {
    first.settings.push("nodename=renamed@127.0.0.1".to_owned());
    let other_name = refused(first, &["chkconfig"]);
    assert!(
        other_name.contains("is for node1@127.0.0.1"),
        "{other_name}"
    );
    let both = [
        "tls",
        "issue",
        "renamed@127.0.0.1",
        "--also",
        "node1@127.0.0.1",
    ];
    admin(first, &[&both[..], &["--days", "7"]].concat());
    let issued = "./tls/renamed@127.0.0.1";
    for (key, file) in [("certfile", "node.crt"), ("keyfile", "node.key")] {
        let setting = format!("cluster.tls.{key}={issued}/{file}");
        first.settings.push(setting);
    }
    let (is_ok, soon) = said(first, &["chkconfig"]);
    assert!(is_ok && soon.contains("valid until 20"), "{soon}");
    let key = first.path().join(issued).join("node.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(said(first, &["chkconfig"]).1.contains("chmod 600"));
    let never = ["admin", "tls", "issue", "other@127.0.0.1", "--days", "0"];
    assert!(refused(first, &never).contains("--days"));
    let ended = issued_long_ago(&first.path().join("tls"), "renamed@127.0.0.1");
    let directory = first.path().join(issued);
    std::fs::write(directory.join("node.crt"), ended.certificate).unwrap();
    std::fs::write(directory.join("node.key"), ended.key).unwrap();
    assert!(refused(first, &["chkconfig"]).contains("valid no longer"));
    let not_started = refused(first, &["server"]);
    assert!(not_started.contains("valid no longer"), "{not_started}");
}

#[test]
fn servers_prove_themselves_and_refuse_those_that_cannot() {
    let (mut sites, peers): (Vec<Site>, Vec<SocketAddr>) = (1..=4).map(site).unzip();
    admin(&sites[0], &["tls", "init"]);
    issue(&sites[0], 2, &sites[1], "30");
    admin(&sites[3], &["tls", "init"]);
    for number in [0, 1, 3] {
        set(&mut sites[number], "on");
    }
    let mut servers: Vec<Server> = sites.iter().map(Site::start).collect();
    become_two(&sites[..2], &peers);
    written_here_is_read_there(&sites[..2], "encrypted");
    let (encrypted, plain) = connections(&sites[0]);
    assert!(encrypted >= 4 && plain == 0, "{encrypted} {plain}");
    let (is_ok, without) = join(&sites[2], peers[0]);
    assert!(!is_ok && without.contains("not encrypted"), "{without}");
    let (is_ok, stranger) = join(&sites[3], peers[0]);
    assert!(!is_ok && stranger.contains("authority"), "{stranger}");
    let members = json(&sites[0], &["member-status"]);
    assert_eq!(members.as_array().unwrap().len(), 2);

    let number = |site: &Site| json(site, &["tls", "status"])["certificate"]["number"].clone();
    let before = number(&sites[1]);
    renew(&sites[0], 2, &sites[1], "60");
    until("the new certificate is in use", || {
        number(&sites[1]) != before
    });
    // Both nodes connect again.
    drop(servers.remove(0));
    servers.insert(0, sites[0].start());
    written_here_is_read_there(&sites[..2], "renewed");
    let (encrypted, plain) = connections(&sites[1]);
    assert!(encrypted >= 4 && plain == 0, "{encrypted} {plain}");
    for server in servers {
        server.stop();
    }
}

#[test]
fn a_running_cluster_is_switched_over_server_by_server() {
    let (mut sites, peers): (Vec<Site>, Vec<SocketAddr>) = (1..=2).map(site).unzip();
    let mut servers: Vec<Server> = sites.iter().map(Site::start).collect();
    become_two(&sites, &peers);
    admin(&sites[0], &["tls", "init"]);
    issue(&sites[0], 2, &sites[1], "30");
    assert_eq!(connections(&sites[0]).0, 0);
    for mode in ["optional", "on"] {
        for number in [0, 1] {
            set(&mut sites[number], mode);
            servers.remove(number).stop();
            servers.insert(number, sites[number].start());
            written_here_is_read_there(&sites, &format!("{mode}{number}"));
        }
        let is_all = |site| matches!(connections(site), (1.., 0));
        until("all connections are encrypted", || sites.iter().all(is_all));
    }
    for server in servers {
        server.stop();
    }
}
