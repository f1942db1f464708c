//! What this node has: the agent, the spool's directories, inotify, the logs.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use jiff::Timestamp;
use rustix::fs::{StatVfs, fstatfs, fstatvfs};

use super::report::Report;
use super::{Place, shown};
use crate::audit::{DETAILED, EVENTS};
use crate::clock::{since, span};
use crate::spool::answer::ANSWERS;
use crate::spool::calls::DirectoryCalls;
use crate::spool::claim::REJECTED;
use crate::spool::directory::Directory;
use crate::spool::presence::{inotify_use, processes};
use crate::spool::request::Request;
use crate::spool::waiting::{Where, waiting};
use crate::spool::withdraw::CLAIMED;
use crate::spool::{Spool, SpoolFault};

/// Where Pacemaker looks for fence agents.
const INSTALLED: &str = "/usr/sbin/fence_recorder";

/// Less free space than this is as good as none: a log may take it at any moment.
const LITTLE_SPACE: u64 = 16 * 1024 * 1024;
const FEW_INODES: u64 = 1000;

/// The agent that Pacemaker runs, against this program.
pub fn agent(report: &mut Report) {
    const NAME: &str = "agent";
    let this = fs::read("/proc/self/exe");
    match (fs::read(INSTALLED), this) {
        (Err(error), _) => report.fail(
            NAME,
            INSTALLED,
            &format!("Pacemaker finds no agent: {error}"),
            &format!("install -m 0755 \"$(command -v fence_recorder)\" {INSTALLED}"),
        ),
        (Ok(installed), Ok(this)) if installed != this => {
            let output = Command::new(INSTALLED).arg("--version").output();
            let version =
                output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
            let version = version.unwrap_or_else(|error| error.to_string());
            let own = env!("CARGO_PKG_VERSION");
            report.warn(
                NAME,
                INSTALLED,
                &format!("Pacemaker runs another build than this: {version}; this is {own}"),
                &format!("install -m 0755 \"$(readlink -f /proc/self/exe)\" {INSTALLED}"),
            );
        }
        _ => report.ok(
            NAME,
            INSTALLED,
            &format!("version {}, the same as this", env!("CARGO_PKG_VERSION")),
        ),
    }
}

/// No spool that can be used.
pub fn without_spool(report: &mut Report, fault: &SpoolFault, place: &Place, is_needed: bool) {
    const NAME: &str = "spool";
    let is_missing = matches!(
        fault,
        SpoolFault::Requests(crate::spool::directory::DirectoryFault::Missing(_))
    );
    if is_missing && !is_needed {
        let message = "not on this node, and no device that needs it may run here";
        return report.ok(NAME, &shown(&place.request_dir), message);
    }
    let (requests, responses) = (shown(&place.request_dir), shown(&place.response_dir));
    report.fail(
        NAME,
        "spool",
        &format!("{fault}; on a node that has none, ban the devices instead (pcs constraint location DEVICE avoids NODE)"),
        &format!("install -d -o root -g root -m 0755 {requests} {responses}"),
    );
}

/// The spool's directories, the file system they are on, and what is left of it.
pub fn spool(report: &mut Report, spool: &Spool) {
    let paths = format!(
        "{} and {}",
        shown(spool.requests.path()),
        shown(spool.responses.path())
    );
    report.ok(
        "spool",
        &paths,
        "there, and no other user can write to them",
    );
    let (requests, responses) = (
        spool.requests.status().st_dev,
        spool.responses.status().st_dev,
    );
    if requests != responses {
        report.warn(
            "two-file-systems",
            &paths,
            "on two file systems: one can be full or gone while the other is there",
            &format!("umount {}", shown(spool.responses.path())),
        );
    }
    for name in [CLAIMED, ANSWERS, REJECTED] {
        below(report, &spool.requests, name);
    }
    for directory in [&spool.requests, &spool.responses] {
        file_system(report, directory);
        room(report, directory);
        if requests == responses {
            break;
        }
    }
    stale(report, spool);
}

/// A directory that requests are renamed into must be on their file system.
fn below(report: &mut Report, requests: &Directory, name: &str) {
    if let Ok(below) = requests.open_below(name)
        && below.status().st_dev != requests.status().st_dev
    {
        let path = requests.path_of(name);
        report.fail(
            "claims-elsewhere",
            &path,
            "on another file system than request_dir: no request can be claimed",
            &format!("umount {path}"),
        );
    }
}

/// What file systems mean for the watch: magic numbers of statfs(2), names, whether other hosts may
/// write there.
const FILE_SYSTEMS: &[(i128, &str, bool)] = &[
    (0x6969, "NFS", true),
    (0x0116_1970, "GFS2", true),
    (0x7461_636f, "OCFS2", true),
    (0x00c3_6400, "Ceph", true),
    (0x0bd0_0bd0, "Lustre", true),
    (0x4750_4653, "GPFS", true),
    (0xff53_4d42, "CIFS", true),
    (0xfe53_4d42, "SMB", true),
    (0x6573_5546, "FUSE", true),
    (0x0102_1997, "9p", true),
    (0x0102_1994, "tmpfs", false),
    (0xef53, "ext4", false),
    (0x5846_5342, "XFS", false),
    (0x9123_683e, "btrfs", false),
    (0x794c_7630, "overlayfs", false),
    (0x2fc1_2fc1, "ZFS", false),
];

fn file_system(report: &mut Report, directory: &Directory) {
    const NAME: &str = "file-system";
    let path = shown(directory.path());
    let Ok(status) = fstatfs(directory.as_fd()) else {
        return;
    };
    // the field's type differs between platforms; the magic numbers have 32 bits
    let magic = i128::from(status.f_type) & 0xffff_ffff;
    match FILE_SYSTEMS.iter().find(|(known, ..)| *known == magic) {
        Some((_, name, true)) => report.warn(
            NAME,
            &path,
            &format!(
                "{name}: what other hosts write raises no event, so answers are found by polling alone, and a hang of \
                 its server is a hang of fencing"
            ),
            "pcs stonith update DEVICE poll_interval=0.2    # or a spool on a local file system",
        ),
        Some((_, "tmpfs", _)) => report.ok(NAME, &path, "tmpfs: empty after a boot, so whatever starts the responder makes it"),
        Some((_, name, _)) => report.ok(NAME, &path, &format!("{name}: answers are seen at once")),
        None => report.ok(NAME, &path, &format!("file system {magic:#x}")),
    }
}

fn room(report: &mut Report, directory: &Directory) {
    const NAME: &str = "space";
    let path = shown(directory.path());
    let Ok(status) = fstatvfs(directory.as_fd()) else {
        return;
    };
    let StatVfs {
        f_frsize,
        f_bavail,
        f_files,
        f_favail,
        ..
    } = status;
    let free = f_frsize.saturating_mul(f_bavail);
    // a file system without a limit of inodes counts none
    let has_inodes = f_files == 0 || f_favail >= FEW_INODES;
    let mebibytes = free / (1024 * 1024);
    let remedy = format!(
        "df -h {path}; df -i {path}    # then remove old responses: fence_recorder unfence NODE"
    );
    if free == 0 || (f_files > 0 && f_favail == 0) {
        report.fail(NAME, &path, "full: no request can be written", &remedy);
    } else if free < LITTLE_SPACE || !has_inodes {
        let message = format!("nearly full: {mebibytes} MiB and {f_favail} inodes are free");
        report.warn(NAME, &path, &message, &remedy);
    } else {
        report.ok(NAME, &path, &format!("{mebibytes} MiB free"));
    }
}

/// Requests past their deadline: nobody answers, or no monitor sweeps.
fn stale(report: &mut Report, spool: &Spool) {
    const NAME: &str = "stale-requests";
    let subject = shown(spool.requests.path());
    let now = Timestamp::now();
    let names = match waiting(&spool.requests, |_| true) {
        Ok(names) => names,
        Err(fault) => {
            let remedy = format!("ls -la {subject} {}", spool.requests.path_of(CLAIMED));
            return report.fail(NAME, &subject, &fault.to_string(), &remedy);
        }
    };
    let claimed = spool.requests.open_below(CLAIMED).ok();
    let ended = names.iter().filter_map(|(name, place)| {
        let directory = match (place, &claimed) {
            (Where::Claimed, Some(claimed)) => claimed,
            _ => &spool.requests,
        };
        let (request, written) = Request::read(directory, name).ok()?;
        Some(request.deadline(written)).filter(|deadline| *deadline < now)
    });
    let ended: Vec<_> = ended.collect();
    match ended.iter().min() {
        None => report.ok(NAME, &subject, "no request is past its deadline"),
        Some(oldest) => {
            let (count, age) = (ended.len(), span(since(*oldest, now)));
            let message = format!(
                "{count} past the deadline, the oldest by {age}: nobody answered, and no monitor has swept them"
            );
            let remedy = "fence_recorder --action monitor    # sweeps; and give the device op monitor interval=60s";
            report.warn(NAME, &subject, &message, remedy);
        }
    }
}

/// Whether this user's processes have inotify instances and watches left.
pub fn inotify(report: &mut Report) {
    // the agent runs as root, or as this user where it is tried by hand
    let user = nix::unistd::geteuid().as_raw();
    let own = processes()
        .filter(|(_, path)| fs::metadata(path).is_ok_and(|status| status.uid() == user))
        .map(|(_, path)| inotify_use(&path));
    let (instances, watches) = own.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    for (what, used) in [("instances", instances), ("watches", watches)] {
        inotify_limit(report, user, what, used);
    }
}

fn inotify_limit(report: &mut Report, user: u32, what: &str, used: usize) {
    const NAME: &str = "inotify";
    let key = format!("max_user_{what}");
    let limit = fs::read_to_string(format!("/proc/sys/fs/inotify/{key}"));
    let limit = limit
        .ok()
        .and_then(|text| text.trim().parse::<usize>().ok());
    let Some(limit) = limit else {
        return;
    };
    let message = format!("{used} of {limit} {what} of user {user} are in use");
    if used + limit / 10 >= limit {
        let message = format!("{message}: without one, answers are found by polling alone");
        let remedy = format!("sysctl fs.inotify.{key}={}", limit.max(512) * 2);
        report.warn(NAME, "inotify", &message, &remedy);
    } else {
        report.ok(NAME, "inotify", &message);
    }
}

/// The audit: whether it can be written, and whether anything rotates it.
pub fn logs(report: &mut Report, log_dir: &Path) {
    let path = shown(log_dir);
    match fs::metadata(log_dir) {
        Ok(status) if !status.is_dir() => {
            let remedy = format!("mv {path} {path}.old && install -d -m 0755 {path}");
            return report.warn(
                "log-dir",
                &path,
                "not a directory: fences are not recorded",
                &remedy,
            );
        }
        Ok(_) if nix::unistd::access(log_dir, nix::unistd::AccessFlags::W_OK).is_err() => {
            let remedy = format!("chown root: {path} && chmod u+rwx {path}");
            return report.warn(
                "log-dir",
                &path,
                "not writable: fences are not recorded",
                &remedy,
            );
        }
        Ok(_) => report.ok("log-dir", &path, "there and writable"),
        Err(_) => report.ok("log-dir", &path, "not there yet: the first fence makes it"),
    }
    let largest = [EVENTS, DETAILED]
        .map(|name| fs::metadata(log_dir.join(name)).map_or(0, |status| status.len()));
    let largest = largest.into_iter().max().unwrap_or(0);
    if let Some(file) = rotation() {
        return report.ok("log-rotation", &path, &format!("rotated by {file}"));
    }
    let size = largest / (1024 * 1024);
    let message = format!(
        "nothing rotates the fence event logs, which will fill the disk one day ({size} MiB by now)"
    );
    let remedy =
        "install -m 0644 packaging/logrotate/fence_recorder /etc/logrotate.d/fence_recorder";
    report.warn("log-rotation", &path, &message, remedy);
}

/// The file of logrotate's that knows the fence event logs.
fn rotation() -> Option<String> {
    let entries = fs::read_dir("/etc/logrotate.d")
        .into_iter()
        .flatten()
        .flatten();
    let files = entries
        .map(|entry| entry.path())
        .chain([Path::new("/etc/logrotate.conf").to_owned()]);
    let knows =
        |path: &Path| fs::read_to_string(path).is_ok_and(|text| text.contains("fence-events"));
    files
        .into_iter()
        .find(|path| knows(path))
        .map(|path| shown(&path))
}
