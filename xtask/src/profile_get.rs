//! `cargo xtask profile-get`: the use of the server's time for gets of cached objects.
//!
//! The claim is that the kernel's network path takes most of the time. A server is started and
//! filled with 10,000 objects of 1,000 bytes. Gets of all or of the first objects arrive over 64
//! connections while `perf` samples the server. The innermost frame of a stack selects the part of
//! a sample; kernel time counts for its system call.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};

use crate::command;
use crate::console;
use crate::prerequisite::{self, PERF};
use crate::server::{Binary, Server, Site, settings_of};
use crate::workspace::Workspace;

/// Samples for each second: a prime number, so that no periodic work of the server coincides with it.
const SAMPLES_PER_SECOND: &str = "1999";
/// The time for which the load runs before and after the sampling.
const MARGIN: Duration = Duration::from_secs(1);
/// The number of our own functions that are listed.
const FUNCTIONS_SHOWN: usize = 20;

/// Options of `cargo xtask profile-get`.
#[derive(Debug, Args)]
pub(crate) struct ProfileOptions {
    /// The engine.
    #[arg(long, value_enum, default_value_t = Engine::Bitcask)]
    backend: Engine,
    /// Seconds in which samples are taken.
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Number of objects, of the 10,000, that gets read. It decides how much of them the processor's
    /// caches hold.
    #[arg(long, default_value_t = 10_000)]
    objects: u32,
    /// A finished build of the server, in place of a release build.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Another setting of the server, as KEY=VALUE; may be repeated.
    #[arg(long = "set")]
    settings: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Engine {
    Bitcask,
    Memory,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Self::Bitcask => "bitcask",
            Self::Memory => "memory",
        }
    }
}

/// The part of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Network,
    PageCache,
    RestOfKernel,
    OwnCode,
    CLibraryAndClock,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Network => "kernel, network",
            Self::PageCache => "kernel, page cache",
            Self::RestOfKernel => "kernel, the rest",
            Self::OwnCode => "own code",
            Self::CLibraryAndClock => "C library and clock",
        }
    }
}

/// Samples by part, and by function outside of the kernel.
#[derive(Debug, Default)]
struct Profile {
    parts: BTreeMap<Part, u64>,
    functions: BTreeMap<String, u64>,
    samples: u64,
}

/// Makes a release build of the server, runs it under load and prints the shares of its time.
pub(crate) fn run(workspace: &Workspace, options: &ProfileOptions) -> anyhow::Result<bool> {
    prerequisite::require(&[PERF])?;
    let binary = Binary::at_or_released(options.binary.as_deref(), workspace)?;
    let backend = options.backend.name();
    let directory = workspace.clean_scratch(&format!("profile-get/{backend}"))?;
    let mut settings = vec![("storage_backend", backend), ("durability", "none")];
    settings.extend(settings_of(&options.settings)?);
    let site = Site::new(&binary, &directory, &settings)?;
    let server = site.start()?;
    let samples = directory.join("perf.data");
    let configs = workspace.root().join("bench/configs");
    console::headline(&format!("gets of cached objects on {backend}"));
    command::capture(&mut bench(&site, &binary, &configs, "cached-get-preload"))?;
    let load = under_load(&site, &server, &binary, &configs, options, &samples)?;
    server.stop()?;
    let measured = |line: &&str| line.contains("server  CPU") || line.trim().starts_with("get ");
    for line in load.lines().filter(measured) {
        console::line(line.trim());
    }
    let profile = read(&samples, binary.path())?;
    ensure!(
        profile.samples > 0,
        "perf took no samples; kernel.perf_event_paranoid may forbid it"
    );
    profile.print();
    Ok(true)
}

fn bench(site: &Site, binary: &Binary, configs: &Path, name: &str) -> Command {
    let mut command = Command::new(binary.path());
    command
        .args(["bench", "run"])
        .arg(configs.join(format!("{name}.config")))
        .arg("--set")
        .arg(format!("riakc_pb_port={}", site.protobuf.port()))
        .arg("--out")
        .arg(site.data().with_file_name("bench"));
    command
}

/// Samples the server under load; returns the load generator's output.
fn under_load(
    site: &Site,
    server: &Server,
    binary: &Binary,
    configs: &Path,
    options: &ProfileOptions,
    samples: &Path,
) -> anyhow::Result<String> {
    let seconds = Duration::from_secs(options.seconds);
    let (of_load, of_samples) = ((seconds + 2 * MARGIN).as_secs(), seconds.as_secs());
    let mut load = bench(site, binary, configs, "cached-get");
    let keys = format!(
        "key_generator={{int_to_str, {{uniform_int, 0, {}}}}}",
        options.objects
    );
    load.args(["--set", &keys, "--duration", &of_load.to_string()])
        .arg("--server-pid")
        .arg(server.id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let load = load.spawn().context("starting the load generator")?;
    thread::sleep(MARGIN);
    let mut record = Command::new("perf");
    record
        .args(["record", "-q", "-F", SAMPLES_PER_SECOND, "-g", "-p"])
        .arg(server.id().to_string())
        .arg("-o")
        .arg(samples)
        .args(["--", "sleep", &of_samples.to_string()]);
    let recorded = command::capture(&mut record);
    let output = load.wait_with_output().context("waiting for the load")?;
    recorded?;
    ensure!(
        output.status.success(),
        "the load ended with {}",
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn read(samples: &Path, binary: &Path) -> anyhow::Result<Profile> {
    let mut script = Command::new("perf")
        .args(["script", "-F", "ip,sym,dso", "--no-inline", "-i"])
        .arg(samples)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("running perf script")?;
    let output = script.stdout.take().context("the output of perf script")?;
    // The path may be a link.
    let binary = fs::canonicalize(binary).context("finding the binary")?;
    let binary = binary.to_string_lossy();
    let mut profile = Profile::default();
    let mut stack = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line.context("reading from perf script")?;
        if line.trim().is_empty() {
            profile.take(&stack, &binary);
            stack.clear();
        } else {
            stack.push(line);
        }
    }
    profile.take(&stack, &binary);
    script.wait().context("waiting for perf script")?;
    Ok(profile)
}

/// A line of a stack, `ADDRESS FUNCTION (OBJECT)`: the function and the object.
fn frame(line: &str) -> (&str, &str) {
    let line = line.trim();
    let (_, named) = line.split_once(' ').unwrap_or(("", line));
    match named.rsplit_once(" (") {
        Some((function, object)) => (function, object.trim_end_matches(')')),
        None => (named, ""),
    }
}

/// The part of a stack, innermost frame first.
fn part_of(stack: &[String], binary: &str) -> Option<Part> {
    let is_kernel = |object: &str| object.starts_with("[kernel") || object.ends_with(".ko");
    let (_, object) = frame(stack.first()?);
    if !is_kernel(object) {
        return Some(match object == binary {
            true => Part::OwnCode,
            false => Part::CLibraryAndClock,
        });
    }
    let calls = stack.iter().map(|line| frame(line));
    let mut calls = calls.take_while(|(_, object)| is_kernel(object));
    let part = calls.find_map(|(function, _)| part_of_call(function));
    Some(part.unwrap_or(Part::RestOfKernel))
}

/// The part of a kernel function and everything that it calls.
fn part_of_call(function: &str) -> Option<Part> {
    const NETWORK: [&str; 6] = [
        "sys_send",
        "sys_recv",
        "sys_epoll_",
        "do_epoll_wait",
        "sock_write_iter",
        "sock_read_iter",
    ];
    const PAGE_CACHE: [&str; 4] = ["sys_pread", "do_preadv", "do_iter_readv", "filemap_read"];
    let is_among = |names: &[&str]| names.iter().any(|name| function.contains(name));
    if is_among(&NETWORK) {
        Some(Part::Network)
    } else if is_among(&PAGE_CACHE) {
        Some(Part::PageCache)
    } else {
        None
    }
}

impl Profile {
    fn take(&mut self, stack: &[String], binary: &str) {
        let Some(part) = part_of(stack, binary) else {
            return;
        };
        self.samples += 1;
        *self.parts.entry(part).or_default() += 1;
        if let (Part::OwnCode | Part::CLibraryAndClock, Some(line)) = (part, stack.first()) {
            let (function, _) = frame(line);
            *self.functions.entry(function.to_owned()).or_default() += 1;
        }
    }

    fn print(&self) {
        let percent = |count: u64| count as f64 * 100.0 / self.samples.max(1) as f64;
        console::line(&format!(
            "\nshares of the server's CPU time, of {} samples",
            self.samples
        ));
        for (part, count) in &self.parts {
            console::line(&format!("{:6.1} %  {}", percent(*count), part.name()));
        }
        let mut functions: Vec<_> = self.functions.iter().collect();
        functions.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        console::line("\nthe largest functions outside of the kernel");
        for (function, count) in functions.into_iter().take(FUNCTIONS_SHOWN) {
            console::line(&format!("{:6.1} %  {function}", percent(*count)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINARY: &str = "/target/release/kvorum";

    fn part(lines: &[&str]) -> Option<Part> {
        let stack: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        part_of(&stack, BINARY)
    }

    #[test]
    fn a_sample_belongs_to_the_part_of_its_innermost_frame() {
        let own = "  55 kvorum::figures::of(&str) (/target/release/kvorum)";
        let copy = "  7f __memmove (/usr/lib/libc.so.6)";
        assert_eq!(part(&[own]), Some(Part::OwnCode));
        assert_eq!(part(&[copy, own]), Some(Part::CLibraryAndClock));
        assert_eq!(part(&["  7f __vdso_clock_gettime ([vdso])", own]), {
            Some(Part::CLibraryAndClock)
        });
        assert_eq!(part(&[]), None);
    }

    #[test]
    fn kernel_time_belongs_to_its_system_call() {
        let kernel = |function: &str| format!("  ff {function} ([kernel.kallsyms])");
        let own = "  55 kvorum::main (/target/release/kvorum)";
        let spent_in = |call: &str| {
            let (inner, outer) = (kernel("_copy_to_iter"), kernel(call));
            part(&[&inner, &outer, &kernel("do_syscall_64"), own])
        };
        assert_eq!(spent_in("__x64_sys_sendto"), Some(Part::Network));
        assert_eq!(spent_in("__x64_sys_recvfrom"), Some(Part::Network));
        assert_eq!(spent_in("do_epoll_wait"), Some(Part::Network));
        assert_eq!(spent_in("do_preadv"), Some(Part::PageCache));
        assert_eq!(spent_in("__x64_sys_futex"), Some(Part::RestOfKernel));
    }
}
