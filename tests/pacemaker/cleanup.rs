//! However a cluster ends, nothing of it stays.

use std::fs;
use std::panic;
use std::path::Path;
use std::sync::Mutex;

use crate::cluster::Cluster;

#[test]
fn a_cluster_whose_test_panics_leaves_no_process_and_no_link() {
    let links = || names(Path::new("/sys/class/net"));
    let before = links();
    let lived = Mutex::new(Vec::new());

    let outcome = panic::catch_unwind(|| {
        let cluster = Cluster::start(3);
        *lived.lock().unwrap() = ["n1", "n2", "n3"]
            .iter()
            .flat_map(|name| neighbours(cluster.node(name).pid()))
            .collect();
        panic::resume_unwind(Box::new("the test fails here"));
    });

    assert!(outcome.is_err());
    let lived = lived.into_inner().unwrap();
    assert!(
        lived.len() > 3 * 8,
        "corosync and Pacemaker's daemons on three nodes: {lived:?}"
    );
    let left: Vec<_> = lived
        .iter()
        .filter(|(pid, born)| birth(pid).as_ref() == Some(born))
        .collect();
    assert!(left.is_empty(), "still there: {left:?}");
    assert_eq!(links(), before);
}

/// All processes in the PID namespace of `pid`, each with its time of birth: a process id alone
/// may be another process's by the time it is looked at again.
fn neighbours(pid: u32) -> Vec<(String, String)> {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let wanted = namespace(&pid.to_string());
    assert!(wanted.is_some(), "process {pid} is alive");
    names(Path::new("/proc"))
        .into_iter()
        .filter(|name| namespace(name) == wanted)
        .filter_map(|name| Some((birth(&name)?, name)))
        .map(|(born, pid)| (pid, born))
        .collect()
}

/// A process's start, in clock ticks since the machine's.
fn birth(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name, in parentheses, may hold spaces; the start is the 20th field after it.
    stat.rsplit_once(") ")?
        .1
        .split(' ')
        .nth(19)
        .map(str::to_owned)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
