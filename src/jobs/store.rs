//! Keeps the records of jobs, one file each, and takes away those that are old.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nix::fcntl::AtFlags;
use nix::sys::stat::{Mode, fstatat};
use thiserror::Error;

use super::record::Record;
use crate::spool::claim::open_or_make;
use crate::spool::directory::{Directory, DirectoryFault, Role, Trust};
use crate::spool::file::{FileFault, read_regular};
use crate::spool::json::{pretty, read_object};
use crate::spool::lock::Lock;
use crate::spool::publish::{PublishFault, replace};
use crate::spool::system::with_advice;
use crate::spool::time::from_file_time;

const JOBS: &str = "jobs";
const LOCK: &str = ".lock";

/// The most bytes of a record.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The most ended jobs that are kept, whatever their age, so that no disk fills up.
pub const MAX_KEPT: usize = 10_000;

/// The mode of a record: messages of tasks are for the administrator.
const MODE: Mode = Mode::from_bits_truncate(0o640);

/// The directory of the records, open.
#[derive(Debug)]
pub struct Store {
    jobs: Directory,
}

/// Why the records can't be used.
#[derive(Debug, Error)]
pub enum StoreFault {
    /// It can't be made.
    #[error("state_dir {} can't be made: {error}", path.display())]
    Make {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It can't be used.
    #[error("state_dir {0}")]
    Directory(#[from] DirectoryFault),
    /// Something in it can't.
    #[error("state_dir {}: {}", path.display(), with_advice(*.error))]
    System {
        /// Which.
        path: PathBuf,
        /// How.
        error: nix::errno::Errno,
    },
    /// Another responder keeps its jobs there.
    #[error("state_dir {} is another responder's: name one for each", .0.display())]
    Locked(PathBuf),
}

impl Store {
    /// Opens the records in `state_dir` for reading.
    ///
    /// # Errors
    /// When they are not there, or others could change them.
    pub fn open(state_dir: &Path) -> Result<Self, StoreFault> {
        let directory = Directory::open(state_dir, Role::Requests, Trust::Checked)?;
        Self::jobs_in(&directory, |name| directory.open_below(name))
    }

    /// Opens, and makes, `state_dir` for the one responder that writes there; nobody else does while
    /// the lock is held.
    ///
    /// # Errors
    /// When it can't be made, others could change it, or another responder has it.
    pub fn own(state_dir: &Path) -> Result<(Self, Lock), StoreFault> {
        if !state_dir.is_absolute() {
            return Err(DirectoryFault::Relative(state_dir.to_owned()).into());
        }
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o755).create(state_dir);
        made.map_err(|error| StoreFault::Make {
            path: state_dir.to_owned(),
            error,
        })?;
        let directory = Directory::open(state_dir, Role::Requests, Trust::Checked)?;
        let lock = Lock::take(&directory, LOCK)
            .map_err(|error| StoreFault::System {
                path: state_dir.join(LOCK),
                error,
            })?
            .ok_or_else(|| StoreFault::Locked(state_dir.to_owned()))?;
        let store = Self::jobs_in(&directory, |name| open_or_make(&directory, name))?;
        Ok((store, lock))
    }

    fn jobs_in(
        directory: &Directory,
        open: impl Fn(&str) -> nix::Result<Directory>,
    ) -> Result<Self, StoreFault> {
        let jobs = open(JOBS).map_err(|error| StoreFault::System {
            path: directory.path().join(JOBS),
            error,
        })?;
        Ok(Self { jobs })
    }

    /// Writes a record in place of its last version, whole and durable.
    ///
    /// # Errors
    /// See [`replace`].
    pub fn save(&self, record: &Record) -> Result<(), PublishFault> {
        let name = file_name(&record.request.request_id);
        replace(&self.jobs, &name, &pretty(record), MODE)
    }

    /// The record of the job that was made for the request `id`.
    ///
    /// # Errors
    /// Why there is none that can be read.
    pub fn read(&self, id: &str) -> Result<Record, RecordFault> {
        let file = read_regular(&self.jobs, &file_name(id), MAX_BYTES, true)?;
        Ok(read_object(&file.bytes)?)
    }

    /// Calls `visit` with each record, or with the name and fault of one that can't be read.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub fn for_each(
        &self,
        mut visit: impl FnMut(&str, Result<Record, RecordFault>),
    ) -> nix::Result<()> {
        self.jobs.for_each_name(|name| {
            if let Some(id) = name.to_str().and_then(id_of) {
                visit(id, self.read(id));
            }
            true
        })
    }

    /// Removes records last written more than `keep` ago, and the oldest beyond [`MAX_KEPT`], but
    /// none that `is_active` says yes to.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub fn prune(&self, keep: Duration, is_active: impl Fn(&str) -> bool) -> nix::Result<()> {
        let mut files = Vec::new();
        self.jobs.for_each_name(|name| {
            let id = name.to_str().and_then(id_of);
            if let Some(id) = id.filter(|id| !is_active(id))
                && let Ok(status) = fstatat(&self.jobs, name, AtFlags::AT_SYMLINK_NOFOLLOW)
            {
                files.push((from_file_time(&status), id.to_owned()));
            }
            true
        })?;
        files.sort_unstable_by(|one, other| other.cmp(one));
        let keep = SignedDuration::try_from(keep).unwrap_or(SignedDuration::MAX);
        let limit = Timestamp::now().checked_sub(keep).unwrap_or(Timestamp::MIN);
        for (number, (written, id)) in files.iter().enumerate() {
            if number >= MAX_KEPT || *written < limit {
                let _ = self.jobs.remove(&file_name(id));
            }
        }
        Ok(())
    }
}

/// Why a job has no record that can be read.
#[derive(Debug, Error)]
pub enum RecordFault {
    /// The file.
    #[error(transparent)]
    File(#[from] FileFault),
    /// What is in it.
    #[error("holds no job: {0}")]
    Json(#[from] serde_json::Error),
}

fn file_name(id: &str) -> String {
    format!("{id}.json")
}

fn id_of(name: &str) -> Option<&str> {
    let id = name.strip_suffix(".json")?;
    (!id.starts_with('.')).then_some(id)
}
