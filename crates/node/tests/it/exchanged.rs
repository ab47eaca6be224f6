//! Directories of partitions that are exchanged or missing, on a single server.
//!
//! Regression: they were opened, and every key in them was answered as never written, with one
//! warning in the log. `/health` reported the node as ready, and `verify` found no damage.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use kvorum_client::Client;

use crate::server::Site;

const KEYS: u16 = 80;
const ENGINES: [&str; 5] = ["bitcask", "leveldb", "leveled", "hanoidb", "innostore"];

fn site_of(engine: &str) -> Site {
    let mut site = Site::new();
    site.settings = vec![
        format!("storage_backend={engine}"),
        "buckets.default.allow_mult=false".to_owned(),
    ];
    site
}

/// The directories of all partitions, in the order of their names.
fn directories(site: &Site, engine: &str) -> Vec<PathBuf> {
    let root = site.path().join("data").join(engine);
    let entries = fs::read_dir(root).unwrap().map(|it| it.unwrap().path());
    let is_partition = |path: &PathBuf| !path.ends_with("lost");
    let mut found: Vec<PathBuf> = entries.filter(is_partition).collect();
    found.sort();
    found
}

fn exchange(one: &Path, other: &Path) {
    let between = one.with_extension("between");
    for (from, to) in [(one, &*between), (other, one), (&between, other)] {
        fs::rename(from, to).unwrap();
    }
}

async fn write(client: &mut Client, round: u8) {
    for number in 0..KEYS {
        let value = Bytes::from(vec![round; 100]);
        let put = client.put_value(b"b", &number.to_be_bytes(), value).await;
        put.unwrap();
    }
}

/// The number of refused keys. The others have their written values.
async fn refused(client: &mut Client, round: u8) -> usize {
    let mut refused = 0;
    for number in 0..KEYS {
        match client.get_key(b"b", &number.to_be_bytes()).await {
            Ok(reply) => {
                let found: Vec<u8> = reply.content.iter().map(|it| it.value[0]).collect();
                assert_eq!(found, [round], "{number}");
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("could not be opened"), "{text}");
                refused += 1;
            }
        }
    }
    refused
}

fn are_failed(count: usize) -> impl Fn(&[String]) -> bool {
    move |states| {
        let of = |wanted: &str| states.iter().filter(|state| *state == wanted).count();
        of("failed") == count && of("open") == 8 - count
    }
}

/// The output of `verify`; its exit code is 1.
fn verify_finds(site: &Site) -> String {
    let data = site.path().join("data");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_kvorum"))
        .arg("verify")
        .arg(data)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    text
}

fn verify_is_content(site: &Site) {
    let data = site.path().join("data");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_kvorum"))
        .arg("verify")
        .arg(data)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
}

fn wait_until_open(site: &Site) {
    let is_open = || site.vnode_states().iter().all(|state| state == "open");
    let mut looks = 0;
    while !is_open() {
        looks += 1;
        assert!(looks < 600, "the stores are not opened");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[tokio::test]
async fn exchanged_directories_are_refused_found_by_verify_and_opened_when_they_are_back() {
    for engine in ENGINES {
        let site = site_of(engine);
        let server = site.start();
        write(&mut site.client().await, 1).await;
        server.stop();
        verify_is_content(&site);
        let all = directories(&site, engine);
        exchange(&all[1], &all[4]);
        let said = verify_finds(&site);
        assert!(said.matches("belongs to the store").count() > 1, "{said}");

        let server = site.start_until(are_failed(2));
        let mut client = site.client().await;
        assert!(refused(&mut client, 1).await > 0);
        let status = site.run(&["admin", "vnode-status"]);
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        assert!(status.contains("put back the directory"), "{status}");
        exchange(&all[1], &all[4]);
        wait_until_open(&site);
        assert_eq!(refused(&mut client, 1).await, 0);
        write(&mut client, 2).await;
        // A drop kills the server.
        drop(server);
        let server = site.start();
        assert_eq!(refused(&mut site.client().await, 2).await, 0);
        server.stop();
        verify_is_content(&site);
    }
}

#[tokio::test]
async fn a_missing_directory_is_refused_until_its_loss_is_accepted() {
    for engine in ENGINES {
        let site = site_of(engine);
        let server = site.start();
        write(&mut site.client().await, 1).await;
        server.stop();
        let all = directories(&site, engine);
        fs::remove_dir_all(&all[2]).unwrap();
        let said = verify_finds(&site);
        assert!(said.contains("is missing"), "{said}");

        let server = site.start_until(are_failed(1));
        assert!(refused(&mut site.client().await, 1).await > 0);
        assert!(!all[2].exists(), "nothing is made in its place");
        let index = all[2].file_name().unwrap().to_str().unwrap();
        let other = all[3].file_name().unwrap().to_str().unwrap();
        let accepted = |index| site.run(&["admin", "cluster", "accept-loss", index]);
        assert!(!accepted(other).status.success());
        let output = accepted(index);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        wait_until_open(&site);
        write(&mut site.client().await, 2).await;
        drop(server);
        let server = site.start();
        assert_eq!(refused(&mut site.client().await, 2).await, 0);
        server.stop();
        verify_is_content(&site);
    }
}

/// A copy of another partition's directory has that one's identity: if both were opened, each would
/// use the other's entries in the log.
#[tokio::test]
async fn a_copy_of_another_partitions_directory_is_refused_and_kept() {
    for engine in ENGINES {
        let site = site_of(engine);
        let server = site.start();
        write(&mut site.client().await, 1).await;
        server.stop();
        let all = directories(&site, engine);
        fs::remove_dir_all(&all[5]).unwrap();
        let copied = std::process::Command::new("cp")
            .arg("-r")
            .args([&all[0], &all[5]])
            .status();
        assert!(copied.unwrap().success());
        // Only the label shows the copy without the record.
        for name in ["stores", "stores.copy"] {
            fs::remove_file(site.path().join("data/ring").join(name)).unwrap();
        }
        let server_of_copy = site.start_until(are_failed(1));
        let mut client = site.client().await;
        assert!(refused(&mut client, 1).await > 0);
        drop(server_of_copy);
        let server = site.start_until(are_failed(1));
        let index = all[5].file_name().unwrap().to_str().unwrap();
        let accepted = site.run(&["admin", "cluster", "accept-loss", index]);
        let text = String::from_utf8_lossy(&accepted.stdout).into_owned();
        assert!(accepted.status.success(), "{text}");
        let kept = site.path().join("data").join(engine).join("lost");
        assert!(kept.join(format!("{index}.1")).exists());
        write(&mut site.client().await, 2).await;
        drop(server);
        let server = site.start();
        assert_eq!(refused(&mut site.client().await, 2).await, 0);
        server.stop();
    }
}

/// Regression: `all` also moved away whole stores that a start could not open for a moment.
#[tokio::test]
async fn all_losses_are_accepted_of_stores_that_are_refused_and_of_no_others() {
    let site = site_of("bitcask");
    let server = site.start();
    write(&mut site.client().await, 1).await;
    server.stop();
    let all = directories(&site, "bitcask");
    fs::remove_dir_all(&all[1]).unwrap();
    // Nothing can be read there for now.
    let away = site.path().join("away");
    fs::rename(&all[4], &away).unwrap();
    fs::write(&all[4], "in the way").unwrap();

    let server = site.start_until(are_failed(2));
    let output = site.run(&["admin", "cluster", "accept-loss", "all"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert_eq!(
        text.matches("goes on without the lost data").count(),
        1,
        "{text}"
    );
    assert_eq!(text.matches("Skipped: partition").count(), 1, "{text}");
    assert!(text.contains("may be whole"), "{text}");
    assert!(all[4].exists(), "{text}");
    fs::remove_file(&all[4]).unwrap();
    fs::rename(&away, &all[4]).unwrap();
    wait_until_open(&site);
    let mut client = site.client().await;
    let mut absent = 0;
    for number in 0..KEYS {
        let reply = client.get_key(b"b", &number.to_be_bytes()).await.unwrap();
        absent += u16::from(reply.content.is_empty());
    }
    assert!((1..KEYS / 2).contains(&absent), "{absent}");
    server.stop();
}

/// Regression: a node that had kept its objects in memory was killed before its first stores on
/// disk were open. It then reported the stores in memory as missing, although they never had files.
#[tokio::test]
async fn a_change_from_memory_that_is_killed_half_way_misses_no_stores() {
    let mut site = site_of("memory");
    site.start().stop();
    let root = site.path().join("data/bitcask");
    site.settings = site_of("bitcask").settings;
    // Nothing can be opened there for now.
    fs::create_dir_all(&root).unwrap();
    let names = names_of_partitions();
    for index in &names {
        fs::write(root.join(index), "in the way").unwrap();
    }
    drop(site.start_until(are_failed(8)));
    for index in &names {
        fs::remove_file(root.join(index)).unwrap();
    }
    let server = site.start();
    write(&mut site.client().await, 1).await;
    assert_eq!(refused(&mut site.client().await, 1).await, 0);
    server.stop();
}

fn names_of_partitions() -> Vec<String> {
    let size = kvorum_ring::RingSize::new(8).unwrap();
    size.partitions().map(|it| it.index_decimal(size)).collect()
}
