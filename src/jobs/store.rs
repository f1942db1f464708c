//! Keeps the records of jobs, one file each, and takes away those that are old.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nix::errno::Errno;
use nix::sys::stat::Mode;
use thiserror::Error;

use super::record::Record;
use crate::spool::calls::DirectoryCalls;
use crate::spool::claim::open_or_make;
use crate::spool::directory::{Directory, DirectoryFault, Role, Trust};
use crate::spool::file::{FileFault, read_regular};
use crate::spool::json::{pretty, read_object};
use crate::spool::lock::Lock;
use crate::spool::publish::{PublishFault, replace};

/// Where records are, unless the configuration says otherwise.
pub const STATE_DIR: &str = "/var/lib/fence_recorder";

const JOBS: &str = "jobs";
const LOCK: &str = ".lock";

/// The most bytes of a record.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The most ended jobs that are kept, whatever their age, so that no disk fills up.
pub const MAX_KEPT: usize = 10_000;

/// The mode of a record: messages of tasks are for the administrator.
const MODE: Mode = Mode::from_bits_truncate(0o640);

/// The directory of the records.
#[derive(Debug)]
pub struct Store {
    state_dir: PathBuf,
    open: RwLock<Open>,
}

/// The directory as it is open now.
#[derive(Debug)]
struct Open {
    jobs: Directory,
    /// Held by the one that writes.
    lock: Option<Lock>,
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
        let jobs = jobs_in(&directory, |name| directory.open_below(name))?;
        Ok(Self::new(state_dir, Open { jobs, lock: None }))
    }

    /// Opens, and makes, `state_dir` for the one responder that writes there; nobody else does while
    /// this value lives.
    ///
    /// # Errors
    /// When it can't be made, others could change it, or another responder has it.
    pub fn own(state_dir: &Path) -> Result<Self, StoreFault> {
        Ok(Self::new(state_dir, own(state_dir)?))
    }

    fn new(state_dir: &Path, open: Open) -> Self {
        Self {
            state_dir: state_dir.to_owned(),
            open: RwLock::new(open),
        }
    }

    fn opened(&self) -> RwLockReadGuard<'_, Open> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Owns the directory that is under the path now, if the old one was removed or moved away; true
    /// if that was so.
    ///
    /// # Errors
    /// As [`Store::own`].
    pub fn keep(&self) -> Result<bool, StoreFault> {
        let is_in_place = {
            let open = self.opened();
            let now =
                Directory::open(&self.state_dir, Role::Requests, Trust::Checked).and_then(|now| {
                    now.open_below(JOBS)
                        .map_err(|error| system(&now, JOBS, error))
                });
            let is_same = match now {
                Ok(now) => now.is_same_as(&open.jobs),
                // no descriptor to be had, say: that is no other directory
                Err(DirectoryFault::System { error, .. }) => error != Errno::ENOENT,
                Err(_) => false,
            };
            is_same && open.lock.as_ref().is_none_or(Lock::is_in_place)
        };
        if is_in_place {
            return Ok(false);
        }
        let new = own(&self.state_dir)?;
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(true)
    }

    /// Writes a record in place of its last version, whole and durable.
    ///
    /// # Errors
    /// See [`replace`].
    pub fn save(&self, record: &Record) -> Result<(), PublishFault> {
        let name = file_name(&record.request.request_id);
        replace(&self.opened().jobs, &name, &pretty(record), MODE)
    }

    /// The record of the job that was made for the request `id`.
    ///
    /// # Errors
    /// Why there is none that can be read.
    pub fn read(&self, id: &str) -> Result<Record, RecordFault> {
        let file = read_regular(&self.opened().jobs, &file_name(id), MAX_BYTES, true)?;
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
        let mut ids = Vec::new();
        self.opened().jobs.for_each_name(|name| {
            ids.extend(name.to_str().and_then(id_of).map(str::to_owned));
            true
        })?;
        for id in ids {
            visit(&id, self.read(&id));
        }
        Ok(())
    }

    /// Removes records last written more than `keep` ago, and the oldest beyond [`MAX_KEPT`], but
    /// none that `is_active` says yes to.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub fn prune(&self, keep: Duration, is_active: impl Fn(&str) -> bool) -> nix::Result<()> {
        let mut files = Vec::new();
        let open = self.opened();
        open.jobs.for_each_name(|name| {
            let id = name.to_str().and_then(id_of);
            if let Some(id) = id.filter(|id| !is_active(id))
                && let Some(written) = open.jobs.written(name)
            {
                files.push((written, id.to_owned()));
            }
            true
        })?;
        files.sort_unstable_by(|one, other| other.cmp(one));
        let keep = SignedDuration::try_from(keep).unwrap_or(SignedDuration::MAX);
        let limit = Timestamp::now().checked_sub(keep).unwrap_or(Timestamp::MIN);
        for (number, (written, id)) in files.iter().enumerate() {
            if number >= MAX_KEPT || *written < limit {
                let _ = open.jobs.remove(&file_name(id));
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

impl RecordFault {
    /// Whether there is no record.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::File(FileFault::Missing))
    }
}

/// Makes, locks and opens what the one that writes needs.
fn own(state_dir: &Path) -> Result<Open, StoreFault> {
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
        .map_err(|error| system(&directory, LOCK, error))?
        .ok_or_else(|| StoreFault::Locked(state_dir.to_owned()))?;
    let jobs = jobs_in(&directory, |name| open_or_make(&directory, name))?;
    let lock = Some(lock);
    Ok(Open { jobs, lock })
}

fn jobs_in(
    directory: &Directory,
    open: impl Fn(&str) -> nix::Result<Directory>,
) -> Result<Directory, StoreFault> {
    open(JOBS).map_err(|error| system(directory, JOBS, error).into())
}

fn system(directory: &Directory, name: &str, error: Errno) -> DirectoryFault {
    let path = directory.path().join(name);
    DirectoryFault::System { path, error }
}

fn file_name(id: &str) -> String {
    format!("{id}.json")
}

fn id_of(name: &str) -> Option<&str> {
    let id = name.strip_suffix(".json")?;
    (!id.starts_with('.')).then_some(id)
}
