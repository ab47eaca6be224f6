//! Essential small files and directories that are damaged or missing when a node starts. The node
//! starts, or is refused with a message that names the file and the remedy. `kvorum verify` finds
//! the damage either way.

use std::fs;
use std::path::Path;

use crate::server::Site;

/// The output of a start that is refused.
pub(crate) fn refused(site: &Site) -> String {
    let output = site.run(&["server"]);
    let (out, err) = (&output.stdout, &output.stderr);
    let said = [out, err].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let said = said.concat();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

/// The findings of `kvorum verify`; empty if there are none.
fn findings(site: &Site) -> String {
    let output = site.run_alone(&["verify", "data"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(0) => String::new(),
        _ => said,
    }
}

fn of_engine(engine: &str) -> Site {
    let mut site = Site::new();
    site.settings = vec![format!("storage_backend={engine}")];
    site
}

fn with_flip(path: &Path, at: usize, bit: usize) {
    let mut bytes = fs::read(path).unwrap();
    let at = at % bytes.len();
    bytes[at] ^= 1 << bit;
    fs::write(path, bytes).unwrap();
}

/// Regression: the advice was to set a backend, or to run a version, that does not exist.
#[test]
fn a_flipped_bit_of_the_engine_or_the_format_is_named_and_found() {
    let site = of_engine("bitcask");
    site.start().stop();
    assert_eq!(findings(&site), "");
    for (name, at) in [("engine", 7), ("engine", 90), ("format", 0), ("format", 70)] {
        let path = site.path().join("data").join(name);
        let whole = fs::read(&path).unwrap();
        with_flip(&path, at, at % 8);
        let found = findings(&site);
        assert!(found.contains(name), "{name} {at}: {found}");
        if name == "engine" {
            // The stores show their engine.
            site.start().stop();
        } else {
            let said = refused(&site);
            assert!(said.contains("data/format is damaged"), "{said}");
            fs::remove_file(&path).unwrap();
            assert!(findings(&site).contains("format: missing"));
            site.start().stop();
        }
        assert_eq!(findings(&site), "");
        fs::write(&path, whole).unwrap();
    }
    // The other engine's stores would not be found.
    fs::write(site.path().join("data/engine"), "engine citcask\nhints 0\n").unwrap();
    let mut other = site;
    other.settings = vec!["storage_backend=leveldb".to_owned()];
    let said = refused(&other);
    assert!(said.contains("data/engine is damaged"), "{said}");
    assert!(
        said.contains("start with bitcask as storage_backend"),
        "{said}"
    );
    other.settings = vec!["storage_backend=bitcask".to_owned()];
    other.start().stop();
}

/// Regression: a new cluster was founded over the stores, silently.
#[test]
fn a_directory_that_is_gone_is_missed() {
    for engine in ["bitcask", "leveldb", "leveled", "hanoidb", "innostore"] {
        let site = of_engine(engine);
        site.start().stop();
        let data = site.path().join("data");
        for (gone, is_refused) in [("ring", true), ("value_log", true), ("hints", false)] {
            let (here, away) = (data.join(gone), site.path().join("away"));
            fs::rename(&here, &away).unwrap();
            let found = findings(&site);
            assert!(
                found.contains(gone) && found.contains("missing"),
                "{gone}: {found}"
            );
            if is_refused {
                let said = refused(&site);
                assert!(said.contains(&format!("data/{gone}")), "{said}");
                assert!(said.contains("restore"), "{said}");
                if here.exists() {
                    fs::remove_dir_all(&here).unwrap();
                }
                fs::rename(&away, &here).unwrap();
                assert_eq!(findings(&site), "");
            } else {
                site.start().stop();
                fs::remove_dir_all(&away).unwrap();
            }
        }
        // An early version, or a restored backup, left no file `engine`: the stores are enough.
        fs::remove_file(data.join("engine")).unwrap();
        for mark in ["agreed_log-1.end", "dot_leases"] {
            fs::remove_file(data.join(mark)).unwrap();
        }
        fs::rename(data.join("ring"), site.path().join("away")).unwrap();
        let said = refused(&site);
        assert!(said.contains("not founded over existing data"), "{said}");
    }
}

fn copied(from: &Path, to: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).unwrap();
    }
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .args([from, to])
        .status();
    assert!(copied.unwrap().success());
}

/// Regression: the node took the other one's identity, and every partition was refused with the
/// advice to put back its directory, although all directories were right.
#[test]
fn the_ring_directory_of_another_node_is_refused() {
    let (site, other) = (of_engine("bitcask"), of_engine("bitcask"));
    for site in [&site, &other] {
        site.start().stop();
    }
    let data = site.path().join("data");
    let whole = site.path().join("whole");
    copied(&data.join("ring"), &whole);
    copied(&other.path().join("data/ring"), &data.join("ring"));
    assert!(findings(&site).contains("agreed_log-1.end"));
    let said = refused(&site);
    assert!(said.contains("data/agreed_log-1.end"), "{said}");
    assert!(
        said.contains("put back the directory that belongs here"),
        "{said}"
    );
    copied(&whole, &data.join("ring"));
    site.start().stop();
}

#[tokio::test]
async fn the_value_log_of_another_node_is_found() {
    for engine in ["bitcask", "leveldb", "leveled", "hanoidb", "innostore"] {
        let (site, other) = (of_engine(engine), of_engine(engine));
        for site in [&site, &other] {
            let server = site.start();
            let mut client = site.client().await;
            for key in 0..40_u16 {
                let value = bytes::Bytes::from(vec![b'v'; 2000]);
                let put = client.put_value(b"b", &key.to_be_bytes(), value).await;
                put.unwrap();
            }
            server.stop();
        }
        assert_eq!(findings(&site), "");
        let from = other.path().join("data/value_log");
        copied(&from, &site.path().join("data/value_log"));
        let found = findings(&site);
        assert!(
            found.contains("another value log than this one"),
            "{engine}: {found}"
        );
    }
}

/// Regression: `verify` did not report a file that had lost all its bytes.
#[test]
fn a_small_file_without_a_byte_is_found() {
    for engine in ["bitcask", "leveldb", "leveled", "hanoidb", "innostore"] {
        let site = of_engine(engine);
        site.start().stop();
        let store = match engine {
            "bitcask" => "store-1",
            "innostore" => "root-1",
            _ => "manifest-1",
        };
        let hints = format!("hints/{engine}/{store}");
        for name in [
            "format",
            "engine",
            "dot_leases",
            "agreed_log-1.end",
            "ring/card",
            "ring/stores.copy",
            "ring/generation",
            "ring/log-1/log",
            "ring/log-1/end",
            &format!("{engine}/0/{store}"),
            &hints,
        ] {
            let path = site.path().join("data").join(name);
            let whole = fs::read(&path).unwrap();
            fs::write(&path, "").unwrap();
            assert!(findings(&site).contains(name), "{engine}: {name}");
            fs::write(&path, whole).unwrap();
        }
        assert_eq!(findings(&site), "");
    }
}

/// Regression: a node did not start, and the message named no file.
#[test]
fn a_damaged_store_of_hints_stops_nothing() {
    for (engine, files) in [
        ("leveldb", ["manifest-0", "manifest-1"]),
        ("leveled", ["manifest-0", "manifest-1"]),
        ("hanoidb", ["manifest-0", "manifest-1"]),
        ("innostore", ["root-0", "root-1"]),
        ("bitcask", ["store-0", "store-1"]),
    ] {
        let site = of_engine(engine);
        site.start().stop();
        for how in ["flip", "cut", "both of them gone"] {
            for file in files {
                let path = site.path().join("data/hints").join(engine).join(file);
                let len = fs::read(&path).unwrap().len();
                match how {
                    "flip" => with_flip(&path, len / 2, 2),
                    "cut" => fs::write(&path, &fs::read(&path).unwrap()[..len / 2]).unwrap(),
                    _ => fs::remove_file(&path).unwrap(),
                }
            }
            assert!(
                findings(&site).contains("hints") || how.contains("gone"),
                "{engine} {how}"
            );
            site.start().stop();
            assert_eq!(findings(&site), "", "{engine} {how}");
        }
        let lost = site.path().join("data/hints/lost");
        if lost.exists() {
            let said = site.run_alone(&["repair", "data", "--dry-run"]);
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            assert!(said.contains("hints/lost/"), "{said}");
        }
    }
}
