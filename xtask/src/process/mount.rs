//! A separate file system in a file, whose power can be cut.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::command;

/// The size of the file, which is sparse: it takes only the written space.
const IMAGE_BYTES: u64 = 1 << 30;

/// An ext4 file system, mounted; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Mount {
    image: PathBuf,
    point: PathBuf,
    /// The program that cuts the power.
    cutter: PathBuf,
}

impl Mount {
    /// Makes a fresh file system below `directory` and mounts it.
    pub(crate) fn fresh(directory: &Path, cutter: &Path) -> anyhow::Result<Mount> {
        Self::of_size(IMAGE_BYTES, directory, cutter)
    }

    /// Makes a file system on a disk of this many bytes.
    pub(crate) fn of_size(bytes: u64, directory: &Path, cutter: &Path) -> anyhow::Result<Mount> {
        let mount = Mount {
            image: directory.join("disk.img"),
            point: directory.join("disk"),
            cutter: cutter.to_owned(),
        };
        mount.leave();
        fs::create_dir_all(&mount.point).context("creating the mount point")?;
        let image = fs::File::create(&mount.image).context("creating the disk's image")?;
        image.set_len(bytes).context("sizing the disk's image")?;
        let mut make = Command::new("mkfs.ext4");
        command::capture(make.args(["-q", "-F"]).arg(&mount.image))?;
        mount.enter("loop")?;
        Ok(mount)
    }

    /// The mount point.
    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    /// Prepares to cut the power.
    pub(crate) fn cutter(&self) -> anyhow::Result<Cutter> {
        let mut program = Command::new("python3")
            .arg("-B")
            .arg(&self.cutter)
            .arg(&self.point)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the program that cuts the power")?;
        let mut ready = [0; 1];
        let output = program
            .stdout
            .as_mut()
            .context("a program without output")?;
        let is_ready = output.read_exact(&mut ready);
        let cutter = Cutter { program };
        is_ready.context("waiting for the program that cuts the power")?;
        Ok(cutter)
    }

    /// Mounts the disk in its state at the power cut.
    pub(crate) fn power_up(&self) -> anyhow::Result<()> {
        self.unmount()?;
        self.enter("loop")
    }

    /// Mounts the disk read-only.
    pub(crate) fn make_read_only(&self) -> anyhow::Result<()> {
        self.unmount()?;
        self.enter("loop,ro")
    }

    /// Fills the remaining room, until [`Mount::make_room`].
    pub(crate) fn fill(&self) -> anyhow::Result<()> {
        let filler = fs::File::create(self.filler()).context("creating the filler")?;
        let (mut at, mut piece) = (0, IMAGE_BYTES / 2);
        while piece >= 4096 {
            match rustix::fs::fallocate(&filler, FallocateFlags::empty(), at, piece) {
                Ok(()) => at += piece,
                Err(Errno::NOSPC) => piece /= 2,
                Err(error) => return Err(error).context("filling the disk"),
            }
        }
        Ok(())
    }

    /// Frees the room that [`Mount::fill`] took, durably: a later power cut does not undo it.
    pub(crate) fn make_room(&self) -> anyhow::Result<()> {
        fs::remove_file(self.filler()).context("removing the filler")?;
        let directory = fs::File::open(&self.point).context("opening the mount point")?;
        directory.sync_all().context("syncing the mount point")
    }

    fn filler(&self) -> PathBuf {
        self.point.join("filler")
    }

    fn enter(&self, options: &str) -> anyhow::Result<()> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", options]);
        command::capture(mount.arg(&self.image).arg(&self.point))
            .map(drop)
            .context(
                "mounting a file system for the power cut needs root and loop devices; run as \
                 root: sudo -E cargo xtask test, or leave it out: cargo xtask test \
                 --without-power-cut",
            )
    }

    /// Unmounts the file system, which a killed process may still use for a moment.
    fn unmount(&self) -> anyhow::Result<()> {
        let mut attempts = 0;
        loop {
            let result = command::capture(Command::new("umount").arg(&self.point));
            if result.is_ok() || attempts == 50 {
                return result.map(drop);
            }
            attempts += 1;
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Unmounts the file system that an interrupted run left, if there is one.
    fn leave(&self) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let point = self.point.to_string_lossy();
        if mounts
            .lines()
            .any(|line| line.split(' ').nth(1) == Some(&point))
        {
            let _ = command::capture(Command::new("umount").args(["--lazy"]).arg(&self.point));
        }
    }
}

/// A process that is ready to cut the power.
#[derive(Debug)]
pub(crate) struct Cutter {
    program: Child,
}

impl Cutter {
    /// Cuts the power: from here on nothing reaches the disk, unsynced data is lost, and every
    /// further write fails. [`Mount::power_up`] mounts the rest.
    pub(crate) fn cut(mut self) -> anyhow::Result<()> {
        drop(self.program.stdin.take());
        let status = self.program.wait().context("waiting for the power cut")?;
        ensure!(status.success(), "the power cut ended with {status}");
        Ok(())
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.leave();
        let _ = fs::remove_file(&self.image);
    }
}
