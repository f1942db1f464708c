//! A simulated spool: its directories and files as plain values, and what each system call does.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fence_recorder::spool::calls::{DirectoryCalls, FileCalls};
use fence_recorder::spool::directory::{Directory, Role, Trust};
use jiff::Timestamp;
use nix::errno::Errno;
use nix::sys::stat::{FileStat, Mode};

use crate::explore::Replay;

/// A directory: request_dir, response_dir, or one below them.
pub type Place = &'static str;

pub const REQUESTS: Place = "requests";
pub const RESPONSES: Place = "responses";
const BELOW: &[(Place, &str, Place)] = &[
    (REQUESTS, ".claimed", "requests/.claimed"),
    (REQUESTS, ".rejected", "requests/.rejected"),
];

/// How far the deadline is, by every process's clock: all that the protocol asks of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Time {
    /// There is enough of it.
    Early,
    /// The deadline has passed.
    Late,
    /// So long ago that a sweep takes what is left.
    Dead,
}

/// A file, by who made it and which of his it is: the same in every order of calls.
pub type Inode = (usize, usize);

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct File {
    pub bytes: Vec<u8>,
    made: Option<Time>,
}

/// Everything that outlives a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    places: BTreeMap<Place, BTreeMap<String, Inode>>,
    pub files: BTreeMap<Inode, File>,
    pub locked_by: Option<usize>,
    pub time: Time,
    pub file_system: FileSystem,
}

/// What the file system under the spool can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileSystem {
    /// All.
    Local,
    /// No rename that replaces nothing; and a rename may be done and reported as ENOENT (NFS).
    Network,
}

/// What a process asks for: a system call, or something that the exploration decides.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Call {
    OpenBelow(Place, String),
    MakeBelow(Place, String),
    Create(Place, String),
    Write(Inode, Vec<u8>),
    Open(Place, String),
    Rename(Place, String, Place, String),
    RenameNew(Place, String, Place, String),
    Link(Place, String, Place, String),
    Remove(Place, String),
    Entry(Place, String),
    Names(Place),
    /// Takes the responder's lock.
    Lock,
    /// The clock.
    Now,
    /// One of so many ways to go on.
    Choose(usize),
    /// Sleeps until this name is there, or the time is not early any more.
    WaitFor(Place, String),
    /// The node is being fenced from here on.
    Begin,
    /// It was, or was not.
    End(bool),
    /// A person has seen for himself that the node is off.
    Vouch,
    /// The agent's withdrawal came to its end; whether nobody had claimed the request.
    Withdrew {
        while_waiting: bool,
    },
    /// A sweep took the request.
    Swept,
}

/// What it gets back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Seen {
    Done,
    /// errno.
    Fault(i32),
    Place(Place),
    Inode(Inode),
    File(Inode, File),
    Names(Vec<String>),
    Time(Time),
    Chosen(usize),
    Yes(bool),
}

impl World {
    pub fn new(file_system: FileSystem) -> Self {
        let places = [(REQUESTS, BTreeMap::new()), (RESPONSES, BTreeMap::new())];
        Self {
            places: places.into(),
            files: BTreeMap::new(),
            locked_by: None,
            time: Time::Early,
            file_system,
        }
    }

    pub fn holds(&self, place: Place, name: &str) -> bool {
        self.inode(place, name).is_some()
    }

    /// The files of a place under names that readers look at.
    pub fn visible(&self, place: Place) -> impl Iterator<Item = (&String, &File)> {
        let names = self.places.get(place).into_iter().flatten();
        names
            .filter(|(name, _)| !name.starts_with('.'))
            .map(|(name, inode)| (name, &self.files[inode]))
    }

    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.places.keys().copied()
    }

    fn inode(&self, place: Place, name: &str) -> Option<Inode> {
        self.places.get(place)?.get(name).copied()
    }

    fn entries(&mut self, place: Place) -> &mut BTreeMap<String, Inode> {
        self.places
            .get_mut(place)
            .expect("a directory that was opened")
    }

    /// What the call does, for the process `who` that made `made` files so far: every way it can end.
    /// None while it sleeps.
    pub fn call(&self, call: &Call, who: usize, made: usize) -> Vec<(Self, Seen)> {
        let mut after = self.clone();
        let seen = match call {
            Call::Choose(ways) => {
                return (0..*ways)
                    .map(|way| (self.clone(), Seen::Chosen(way)))
                    .collect();
            }
            Call::WaitFor(place, name) => {
                let is_there = self.holds(place, name);
                if !is_there && self.time == Time::Early {
                    return Vec::new();
                }
                Seen::Yes(is_there)
            }
            Call::RenameNew(..) if self.file_system == FileSystem::Network => {
                Seen::Fault(Errno::EINVAL as i32)
            }
            Call::Rename(from, name, to, new) => {
                let seen = after.rename(from, name, to, new);
                if seen == Seen::Done && self.file_system == FileSystem::Network {
                    let lie = (after.clone(), Seen::Fault(Errno::ENOENT as i32));
                    return vec![lie, (after, seen)];
                }
                seen
            }
            Call::RenameNew(from, name, to, new) => {
                if self.holds(from, name) && self.holds(to, new) {
                    Seen::Fault(Errno::EEXIST as i32)
                } else {
                    after.rename(from, name, to, new)
                }
            }
            Call::Link(from, name, to, new) => match self.inode(from, name) {
                None => Seen::Fault(Errno::ENOENT as i32),
                Some(_) if self.holds(to, new) => Seen::Fault(Errno::EEXIST as i32),
                Some(inode) => {
                    after.entries(to).insert(new.clone(), inode);
                    Seen::Done
                }
            },
            Call::Remove(place, name) => {
                let removed = after.entries(place).remove(name);
                after.forget_nameless();
                removed.map_or(Seen::Fault(Errno::ENOENT as i32), |_| Seen::Done)
            }
            Call::Create(..) | Call::Write(..) | Call::MakeBelow(..) => {
                after.make(call, (who, made))
            }
            Call::Lock => {
                let is_free = self.locked_by.is_none();
                if is_free {
                    after.locked_by = Some(who);
                }
                Seen::Yes(is_free)
            }
            look => self.look(look),
        };
        vec![(after, seen)]
    }

    fn rename(&mut self, from: Place, name: &str, to: Place, new: &str) -> Seen {
        let Some(inode) = self.entries(from).remove(name) else {
            return Seen::Fault(Errno::ENOENT as i32);
        };
        self.entries(to).insert(new.to_owned(), inode);
        self.forget_nameless();
        Seen::Done
    }

    /// Files without a name are not there for anybody else.
    fn forget_nameless(&mut self) {
        let named: Vec<Inode> = self
            .places
            .values()
            .flat_map(BTreeMap::values)
            .copied()
            .collect();
        self.files.retain(|inode, _| named.contains(inode));
    }

    fn make(&mut self, call: &Call, inode: Inode) -> Seen {
        match call {
            Call::Create(place, name) => {
                if self.holds(place, name) {
                    return Seen::Fault(Errno::EEXIST as i32);
                }
                self.entries(place).insert(name.clone(), inode);
                let made = Some(self.time);
                let bytes = Vec::new();
                self.files.insert(inode, File { bytes, made });
                Seen::Inode(inode)
            }
            Call::Write(inode, bytes) => {
                // nothing to see where it has no name any more
                if let Some(file) = self.files.get_mut(inode) {
                    file.bytes.extend_from_slice(bytes);
                }
                Seen::Done
            }
            Call::MakeBelow(place, name) => {
                let below = below(place, name);
                if self.places.contains_key(below) {
                    return Seen::Fault(Errno::EEXIST as i32);
                }
                self.places.insert(below, BTreeMap::new());
                Seen::Done
            }
            other => unreachable!("{other:?} makes nothing"),
        }
    }

    fn look(&self, call: &Call) -> Seen {
        match call {
            Call::OpenBelow(place, name) => {
                let below = below(place, name);
                let is_there = self.places.contains_key(below);
                if is_there {
                    Seen::Place(below)
                } else {
                    Seen::Fault(Errno::ENOENT as i32)
                }
            }
            Call::Open(place, name) | Call::Entry(place, name) => self
                .inode(place, name)
                .map_or(Seen::Fault(Errno::ENOENT as i32), |inode| {
                    Seen::File(inode, self.files[&inode].clone())
                }),
            Call::Names(place) => Seen::Names(self.places[place].keys().cloned().collect()),
            Call::Now => Seen::Time(self.time),
            _ => Seen::Done,
        }
    }
}

fn below(place: Place, name: &str) -> Place {
    let found = BELOW
        .iter()
        .find(|(above, own, _)| *above == place && *own == name);
    found.expect("a directory of the protocol").2
}

/// A simulated directory as one process has it open.
pub struct Simulated<'a> {
    place: Place,
    replay: &'a Replay,
    status: FileStat,
    path: PathBuf,
}

/// An open file of it.
pub struct SimulatedFile<'a> {
    inode: Inode,
    replay: &'a Replay,
    file: File,
    read: std::cell::Cell<bool>,
    status: FileStat,
}

impl<'a> Simulated<'a> {
    pub fn new(place: Place, replay: &'a Replay) -> Self {
        let path = PathBuf::from("/simulated").join(place);
        let status = directory_status();
        Self {
            place,
            replay,
            status,
            path,
        }
    }

    fn done(&self, call: Call) -> nix::Result<()> {
        match self.replay.call(call) {
            Seen::Fault(error) => Err(Errno::from_raw(error)),
            _ => Ok(()),
        }
    }
}

impl<'a> DirectoryCalls for Simulated<'a> {
    type File = SimulatedFile<'a>;

    fn path(&self) -> &Path {
        &self.path
    }

    fn status(&self) -> &FileStat {
        &self.status
    }

    fn open_below(&self, name: &str) -> nix::Result<Self> {
        match self
            .replay
            .call(Call::OpenBelow(self.place, name.to_owned()))
        {
            Seen::Place(place) => Ok(Self::new(place, self.replay)),
            Seen::Fault(error) => Err(Errno::from_raw(error)),
            other => unreachable!("{other:?}"),
        }
    }

    fn make_below(&self, name: &str, _: Mode) -> nix::Result<()> {
        self.done(Call::MakeBelow(self.place, name.to_owned()))
    }

    // what only power cuts and other users would see is no step here
    fn set_mode(&self, _: Mode) -> nix::Result<()> {
        Ok(())
    }

    fn sync(&self) -> nix::Result<()> {
        Ok(())
    }

    fn create(&self, name: &str, _: Mode) -> nix::Result<Self::File> {
        match self.replay.call(Call::Create(self.place, name.to_owned())) {
            Seen::Inode(inode) => Ok(SimulatedFile::new(inode, File::default(), self)),
            Seen::Fault(error) => Err(Errno::from_raw(error)),
            other => unreachable!("{other:?}"),
        }
    }

    fn open_file(&self, name: &str) -> nix::Result<Self::File> {
        match self.replay.call(Call::Open(self.place, name.to_owned())) {
            Seen::File(inode, file) => Ok(SimulatedFile::new(inode, file, self)),
            Seen::Fault(error) => Err(Errno::from_raw(error)),
            other => unreachable!("{other:?}"),
        }
    }

    fn rename(&self, name: &OsStr, to: &Self, new: &OsStr) -> nix::Result<()> {
        self.done(Call::Rename(self.place, text(name), to.place, text(new)))
    }

    fn rename_new(&self, name: &OsStr, to: &Self, new: &OsStr) -> nix::Result<()> {
        self.done(Call::RenameNew(self.place, text(name), to.place, text(new)))
    }

    fn link(&self, name: &str, to: &Self, new: &str) -> nix::Result<()> {
        self.done(Call::Link(
            self.place,
            name.to_owned(),
            to.place,
            new.to_owned(),
        ))
    }

    fn remove(&self, name: &str) -> nix::Result<()> {
        self.done(Call::Remove(self.place, name.to_owned()))
    }

    fn entry(&self, name: &OsStr) -> nix::Result<FileStat> {
        match self.replay.call(Call::Entry(self.place, text(name))) {
            Seen::File(_, file) => Ok(status_of(self.status, &file)),
            Seen::Fault(error) => Err(Errno::from_raw(error)),
            other => unreachable!("{other:?}"),
        }
    }

    fn for_each_name(&self, mut visit: impl FnMut(&OsStr) -> bool) -> nix::Result<()> {
        let Seen::Names(names) = self.replay.call(Call::Names(self.place)) else {
            unreachable!("a directory that can be read")
        };
        let _ = names.iter().all(|name| visit(OsStr::new(name)));
        Ok(())
    }

    fn revalidate(&self) -> bool {
        true
    }
}

impl<'a> SimulatedFile<'a> {
    fn new(inode: Inode, file: File, directory: &Simulated<'a>) -> Self {
        Self {
            inode,
            replay: directory.replay,
            status: status_of(directory.status, &file),
            file,
            read: std::cell::Cell::new(false),
        }
    }
}

impl FileCalls for SimulatedFile<'_> {
    fn set_mode(&self, _: Mode) -> nix::Result<()> {
        Ok(())
    }

    fn write(&self, bytes: &[u8]) -> nix::Result<usize> {
        self.replay.call(Call::Write(self.inode, bytes.to_owned()));
        Ok(bytes.len())
    }

    fn sync(&self) -> nix::Result<()> {
        Ok(())
    }

    fn status(&self) -> nix::Result<FileStat> {
        Ok(self.status)
    }

    // as it was when it was opened: `explore` makes sure that nothing visible is written to
    fn read(&self, buffer: &mut [u8]) -> nix::Result<usize> {
        if self.read.replace(true) {
            return Ok(0);
        }
        let length = self.file.bytes.len();
        buffer[..length].copy_from_slice(&self.file.bytes);
        Ok(length)
    }
}

fn text(name: &OsStr) -> String {
    OsString::from(name)
        .into_string()
        .expect("names here are text")
}

/// The moment that every process's clock shows.
pub fn moment(time: Time) -> Timestamp {
    let after = match time {
        Time::Early => 0,
        Time::Late => 60,
        Time::Dead => 10_000,
    };
    Timestamp::UNIX_EPOCH + Duration::from_secs(1_000_000 + after)
}

/// `struct stat` has private parts, so real ones are changed where it counts.
fn directory_status() -> FileStat {
    thread_local! {
        static STATUS: FileStat = {
            let here = tempfile::tempdir().expect("a directory");
            let opened = Directory::open(here.path(), Role::Requests, Trust::Waived);
            *DirectoryCalls::status(&opened.expect("it was made just now"))
        };
    }
    STATUS.with(|status| *status)
}

fn status_of(mut status: FileStat, file: &File) -> FileStat {
    status.st_mode = nix::libc::S_IFREG | 0o644;
    status.st_size = file.bytes.len().try_into().expect("a small file");
    status.st_mtime = moment(file.made.unwrap_or(Time::Early)).as_second();
    status
}
