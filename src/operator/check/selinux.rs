//! Whether SELinux lets the cluster's daemons write to the spool: the kernel's own answer.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;

use super::report::Report;
use super::shown;
use crate::spool::Spool;
use crate::spool::calls::DirectoryCalls;
use crate::spool::directory::Directory;
use crate::spool::presence::processes;

const SELINUX: &str = "/sys/fs/selinux";

/// The domain of Pacemaker's daemons, where none runs.
const CLUSTER: &str = "system_u:system_r:cluster_t:s0";

/// The name of the process that runs fence agents, as the kernel cuts it.
const FENCER: &str = "pacemaker-fence";

/// The attribute that holds a file's context.
const ATTRIBUTE: &str = "security.selinux";

/// In the flags of an answer: the domain is permissive (libselinux: SELINUX_AVD_FLAGS_PERMISSIVE).
const PERMISSIVE: u32 = 1;

/// Looks where SELinux enforces.
pub fn look(report: &mut Report, spool: &Spool) {
    let is_enforcing =
        fs::read_to_string(format!("{SELINUX}/enforce")).is_ok_and(|text| text.trim() == "1");
    if !is_enforcing {
        return;
    }
    let domain = domain_of_the_cluster();
    let requests = (
        &spool.requests,
        &["search", "write", "add_name", "remove_name"][..],
    );
    let responses = (&spool.responses, &["search", "read", "open"][..]);
    for (directory, permissions) in [requests, responses] {
        judge(report, directory, &domain, permissions);
    }
}

fn judge(report: &mut Report, directory: &Directory, domain: &str, permissions: &[&str]) {
    const NAME: &str = "selinux";
    let path = shown(directory.path());
    let missing = missing(directory, domain, permissions);
    let remedy = format!(
        "semanage fcontext -a -t cluster_var_run_t '{path}(/.*)?' && restorecon -Rv {path}"
    );
    match missing {
        None => report.warn(
            NAME,
            &path,
            "SELinux enforces, but doesn't say what it allows here",
            &remedy,
        ),
        Some(missing) if missing.is_empty() => {
            report.ok(NAME, &path, &format!("SELinux lets {domain} use it"));
        }
        Some(missing) => {
            let missing = missing.join(", ");
            report.warn(
                NAME,
                &path,
                &format!("SELinux denies {domain}: {missing}"),
                &remedy,
            );
        }
    }
}

fn domain_of_the_cluster() -> String {
    let is_fencer = |path: &std::path::Path| {
        fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == FENCER)
    };
    let fencer = processes().find(|(_, path)| is_fencer(path));
    let domain = fencer.and_then(|(_, path)| fs::read_to_string(path.join("attr/current")).ok());
    let domain = domain.map(|domain| domain.trim_matches(['\0', '\n']).to_owned());
    domain
        .filter(|domain| domain.contains(':'))
        .unwrap_or_else(|| CLUSTER.to_owned())
}

/// Which of the permissions the policy denies; none if it doesn't say.
fn missing<'a>(
    directory: &Directory,
    domain: &str,
    permissions: &[&'a str],
) -> Option<Vec<&'a str>> {
    let number = |path: &str| {
        let text = fs::read_to_string(format!("{SELINUX}/class/dir/{path}")).ok()?;
        text.trim().parse::<u32>().ok()
    };
    let mut context = [0; 4096];
    let length = rustix::fs::fgetxattr(directory.as_fd(), ATTRIBUTE, &mut context[..]).ok()?;
    let context = std::str::from_utf8(&context[..length])
        .ok()?
        .trim_end_matches('\0');
    let answer = ask(&format!("{domain} {context} {}", number("index")?)).ok()?;
    let mut words = answer.trim_matches(['\0', '\n']).split(' ');
    let allowed = u32::from_str_radix(words.next()?, 16).ok()?;
    let flags = words
        .nth(4)
        .map_or(Some(0), |flags| u32::from_str_radix(flags, 16).ok())?;
    if flags & PERMISSIVE != 0 {
        return Some(Vec::new());
    }
    let mut missing = Vec::new();
    for permission in permissions {
        let bit = number(&format!("perms/{permission}"))?.checked_sub(1)?;
        if allowed & 1u32.checked_shl(bit)? == 0 {
            missing.push(*permission);
        }
    }
    Some(missing)
}

/// One question to the policy, in the form of security_compute_av(3): its answer is read from the
/// descriptor that was written to.
fn ask(question: &str) -> std::io::Result<String> {
    let mut access = File::options()
        .read(true)
        .write(true)
        .open(format!("{SELINUX}/access"))?;
    access.write_all(question.as_bytes())?;
    let mut answer = [0; 4096];
    let length = access.read(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}
