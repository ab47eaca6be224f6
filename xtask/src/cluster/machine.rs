//! One node as a machine: its namespace, its disk, its clock, and its server.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::cluster::network;
use crate::process::backend::Setting;
use crate::process::mount::Mount;
use crate::server::{Binary, Server, Site, Surroundings};

/// The shared parts of all machines of a run.
#[derive(Debug)]
pub(super) struct Workshop {
    pub(super) binary: Binary,
    /// The parent of the machines' directories.
    pub(super) directory: PathBuf,
    /// The program that cuts a file system's power.
    pub(super) cutter: PathBuf,
    /// The library through which a server reads the clock and syncs.
    pub(super) shim: PathBuf,
}

/// A machine with a server, which may be off.
pub(super) struct Machine {
    pub(super) number: usize,
    /// Declared before the mount, so that it is dropped first.
    server: Option<Server>,
    mount: Mount,
    control: File,
    site: Site,
    settings: Vec<Setting>,
}

impl Machine {
    /// A machine with an empty disk, switched off; its namespace exists.
    pub(super) fn new(
        workshop: &Workshop,
        number: usize,
        settings: &[Setting],
    ) -> anyhow::Result<Machine> {
        let directory = workshop.directory.join(format!("node{}", number + 1));
        fs::create_dir_all(&directory).context("creating a machine's directory")?;
        let mount = Mount::fresh(&directory, &workshop.cutter)?;
        let controls = directory.join("control");
        let control = File::create(&controls).context("creating a machine's controls")?;
        control
            .set_len(4096)
            .context("sizing a machine's controls")?;
        let host = network::address(number);
        let surroundings = Surroundings {
            launcher: network::launcher(number)
                .into_iter()
                .map(Into::into)
                .collect(),
            environment: vec![
                ("LD_PRELOAD".to_owned(), workshop.shim.clone().into()),
                ("KVORUM_TEST_CONTROL".to_owned(), controls.into()),
            ],
        };
        let data = mount.point().join("data");
        let site = Site::elsewhere(&workshop.binary, &directory, &data, host, surroundings);
        let machine = Machine {
            number,
            mount,
            control,
            site,
            settings: settings.to_vec(),
            server: None,
        };
        machine.configure()?;
        Ok(machine)
    }

    fn configure(&self) -> anyhow::Result<()> {
        let name = name(self.number);
        let peer = format!("{}:8099", network::address(self.number));
        let mut all = vec![
            ("nodename", name.as_str()),
            ("listener.peer.internal", &peer),
        ];
        all.extend_from_slice(&self.settings);
        self.site.configure(&all)
    }

    /// Changes a setting, for its next start.
    pub(super) fn set(&mut self, setting: Setting) -> anyhow::Result<()> {
        self.settings.retain(|(key, _)| *key != setting.0);
        self.settings.push(setting);
        self.configure()
    }

    /// Checks the configuration.
    pub(super) fn check_configuration(&self) -> anyhow::Result<()> {
        self.site.run(&["chkconfig"]).map(drop)
    }

    /// Switches on the machine and waits until its server answers.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        self.launch()?;
        self.await_answer()
    }

    /// Switches on the machine without waiting.
    pub(super) fn launch(&mut self) -> anyhow::Result<()> {
        let server = self.site.launch();
        self.server = Some(server.with_context(|| format!("starting node {}", self.number + 1))?);
        Ok(())
    }

    /// Waits until its server answers.
    pub(super) fn await_answer(&mut self) -> anyhow::Result<()> {
        let server = self.server.as_mut().context("the machine is off")?;
        let answers = server.wait_until_ready();
        answers.with_context(|| format!("starting node {}", self.number + 1))
    }

    /// The output of an admin verb.
    pub(super) fn admin(&self, words: &[&str]) -> anyhow::Result<String> {
        self.site.run(&[&["admin"], words].concat())
    }

    /// # Errors
    /// If its server has ended by itself.
    pub(super) fn require_alive(&mut self) -> anyhow::Result<()> {
        let number = self.number + 1;
        let server = self.server.as_mut();
        let server = server.with_context(|| format!("node {number} is off"))?;
        let alive = server.require_alive();
        alive.with_context(|| format!("node {number}"))
    }

    /// Its address for clients.
    pub(super) fn protobuf(&self) -> std::net::SocketAddr {
        self.site.protobuf
    }

    /// The directory of its certificate, by the settings' defaults.
    pub(super) fn tls_directory(&self) -> PathBuf {
        self.site.directory().join("tls")
    }

    /// Its server's output.
    pub(super) fn log(&self) -> PathBuf {
        self.site.log()
    }

    /// Waits until its server has ended, as it was ordered to.
    pub(super) fn await_end(&mut self) -> anyhow::Result<()> {
        let server = self.server.take().context("the machine is off")?;
        let ended = server.await_end();
        ended.with_context(|| format!("node {}", self.number + 1))
    }

    /// Stops its server, as `kvorum stop` does, and waits until it has ended successfully.
    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        let server = self.server.take().context("the machine is off")?;
        let stopped = server.stop().map(drop);
        stopped.with_context(|| format!("stopping node {}", self.number + 1))
    }

    /// Waits until its server serves, as an operator would do.
    pub(super) fn wait_for_service(&self) -> anyhow::Result<()> {
        let name = name(self.number);
        self.admin(&["wait-for-service", "riak_kv", &name])
            .map(drop)
    }

    /// Removes all data of its server, which must be off.
    pub(super) fn wipe(&self) -> anyhow::Result<()> {
        ensure!(self.server.is_none(), "the machine is on");
        fs::remove_dir_all(self.site.data()).context("wiping a machine")
    }

    /// Kills its server with `kill -9`.
    pub(super) fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
    }

    /// Pauses or continues its server, with `SIGSTOP` or `SIGCONT`.
    pub(super) fn pause(&self, is_paused: bool) -> anyhow::Result<()> {
        self.server
            .as_ref()
            .map_or(Ok(()), |server| server.pause(is_paused))
    }

    /// Cuts its power: unsynced data is lost. The server is stopped first, since a machine without
    /// power answers no request. The disk is mounted again, and the machine stays off.
    pub(super) fn cut_power(&mut self) -> anyhow::Result<()> {
        let cutter = self.mount.cutter()?;
        self.pause(true)?;
        cutter.cut()?;
        self.kill();
        self.mount.power_up()
    }

    /// Sets the number of seconds that its wall clock is ahead.
    pub(super) fn set_clock(&self, ahead_s: i64) -> anyhow::Result<()> {
        let ahead_ns = ahead_s.saturating_mul(1_000_000_000);
        let done = self.control.write_all_at(&ahead_ns.to_ne_bytes(), 0);
        done.context("stepping a clock")
    }

    /// Makes every sync fail, or succeed again.
    pub(super) fn fail_syncs(&self, fails: bool) -> anyhow::Result<()> {
        let done = self
            .control
            .write_all_at(&i32::from(fails).to_ne_bytes(), 8);
        done.context("letting syncs fail")
    }

    /// Leaves no room on its disk.
    pub(super) fn fill_disk(&self) -> anyhow::Result<()> {
        self.mount.fill()
    }

    /// Frees the room again.
    pub(super) fn make_room(&self) -> anyhow::Result<()> {
        self.mount.make_room()
    }
}

/// The name of a node in the cluster.
pub(super) fn name(number: usize) -> String {
    format!("node{}@{}", number + 1, network::address(number))
}

/// Compiles the library through which a server reads the clock and syncs.
pub(super) fn compile_shim(source: &Path, directory: &Path) -> anyhow::Result<PathBuf> {
    let shim = directory.join("faults_shim.so");
    let mut compiler = std::process::Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .arg(&shim)
        .arg(source);
    crate::command::capture(&mut compiler)?;
    Ok(shim)
}
