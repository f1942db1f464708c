//! The directories of a spool and its lock: removed, made again, unsafe, full, somebody else's.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fence_recorder::spool::directory::{Directory, Role, Trust};
use fence_recorder::spool::lock::{LOCK, Lock};

use crate::env::{AGENT, Ended, wait_for};
use crate::scene::{Scene, name_of, reason_of, request, serving, uuid};

/// Longer than the pause between two looks of the responder.
const A_LOOK: Duration = Duration::from_millis(2500);

fn is_locked(scene: &Scene) -> bool {
    let path = scene.path("requests");
    let requests = Directory::open(&path, Role::Requests, Trust::Waived).unwrap();
    Lock::is_held(&requests, LOCK)
}

fn until_it_is_served_anew(scene: &Scene) {
    wait_for(
        &format!("the new spool to be served\n{}", scene.log()),
        || (scene.json("requests/.responder.json")?["pid"] == scene.pid().as_raw()).then_some(()),
    );
    assert!(is_locked(scene));
}

#[test]
fn a_spool_that_was_removed_and_made_again_is_locked_and_served() {
    let scene = Scene::new(&serving("/bin/true"));
    scene.still_serves();
    fs::remove_dir_all(scene.path("requests")).unwrap();
    fs::create_dir(scene.path("requests")).unwrap();
    until_it_is_served_anew(&scene);
    scene.still_serves();
}

#[test]
fn a_spool_that_was_moved_away_is_served_no_more() {
    let scene = Scene::new(&serving("/bin/true"));
    fs::rename(scene.path("requests"), scene.path("old")).unwrap();
    fs::create_dir(scene.path("requests")).unwrap();
    until_it_is_served_anew(&scene);
    let id = uuid();
    let name = name_of("n1", &id);
    crate::scene::publish(&scene.path("old"), &name, &request(&id, "off", "n1", 60.0));
    scene.still_serves();
    assert!(scene.path("old").join(name).exists());
    assert!(!Lock::is_held(
        &Directory::open(&scene.path("old"), Role::Requests, Trust::Waived).unwrap(),
        LOCK
    ));
}

#[test]
fn answers_go_to_the_response_dir_that_was_made_again() {
    let scene = Scene::new(&serving("/bin/true"));
    fs::remove_dir(scene.path("responses")).unwrap();
    scene.wait_for_log(&["waiting for it to be mended"]);
    let id = scene.request("off", "n1", 60.0);
    fs::create_dir(scene.path("responses")).unwrap();
    assert_eq!(scene.answer("n1", &id)["success"], true);
}

#[test]
fn directories_of_the_responder_that_were_removed_are_made_again() {
    let scene = Scene::new(&serving("/bin/true"));
    for name in [".claimed", ".answers"] {
        let path = scene.path("requests").join(name);
        fs::remove_dir(&path).unwrap();
        wait_for("it to be made again", || path.exists().then_some(()));
        scene.still_serves();
    }
    let log = scene.log();
    assert!(!log.contains("another responder"), "{log}");
}

#[test]
fn the_lock_file_that_was_removed_is_made_and_locked_again() {
    let scene = Scene::new(&serving("/bin/true"));
    fs::remove_file(scene.path("requests/.responder.lock")).unwrap();
    let lock = scene.path("requests/.responder.lock");
    wait_for("the lock to be made again", || lock.exists().then_some(()));
    scene.still_serves();
    assert!(is_locked(&scene));
}

#[test]
fn a_spool_that_others_can_write_to_is_not_served_until_it_is_mended() {
    let scene = Scene::new(&serving("/bin/true"));
    scene.env.chmod("requests", 0o777);
    scene.wait_for_log(&["writable by others", "chmod go-w"]);
    let id = scene.request("off", "n1", 60.0);
    // nothing can be seen of what isn't done
    std::thread::sleep(A_LOOK);
    assert!(scene.path("requests").join(name_of("n1", &id)).exists());
    scene.env.chmod("requests", 0o755);
    assert_eq!(scene.answer("n1", &id)["success"], true);
    let complaints = scene.log().matches("chmod go-w").count();
    assert_eq!(complaints, 1, "{}", scene.log());
}

/// Lays so many answers there; links, because they are made faster than files.
fn fill(responses: &Path, count: usize) {
    let id = uuid();
    let path = |number| responses.join(format!("n1-{number:08x}{}.json", &id[8..]));
    for number in 0..count {
        // a file has at most 65,000 names
        match number % 50_000 {
            0 => fs::write(path(number), "{}").unwrap(),
            named => fs::hard_link(path(number - named), path(number)).unwrap(),
        }
    }
}

#[test]
fn memory_does_not_grow_with_the_number_of_old_answers() {
    let peak = |scene: &mut Scene| {
        scene.start();
        scene.still_serves();
        scene.status("VmHWM")
    };
    let empty = peak(&mut Scene::without_responder(&serving("/bin/true")));
    let mut scene = Scene::without_responder(&serving("/bin/true"));
    fill(&scene.path("responses"), 100_000);
    let full = peak(&mut scene);
    // in kB; a name alone takes 48 bytes
    assert!(
        full < empty + 1024,
        "{empty} kB, with the answers {full} kB"
    );
}

fn ended(mut command: Command) -> Ended {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.output().unwrap().into()
}

#[test]
fn a_second_responder_waits_a_little_and_refuses() {
    let scene = Scene::new(&serving("/bin/true"));
    let start = Instant::now();
    let second = ended(scene.command());
    second.failed_with(&["another responder serves", "one spool has one responder"]);
    assert!(
        start.elapsed() >= Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
    scene.still_serves();
    until_it_is_served_anew(&scene);
}

#[test]
fn a_second_responder_takes_over_when_the_first_one_ends() {
    let mut scene = Scene::new(&serving("/bin/true"));
    let second = scene.command().spawn().unwrap();
    wait_for("the second one to wait", || {
        let call = fs::read_to_string(format!("/proc/{}/syscall", second.id())).ok()?;
        let sleep = format!("{} ", nix::libc::SYS_clock_nanosleep);
        call.starts_with(&sleep).then_some(())
    });
    assert_eq!(scene.stop(), Some(0));
    scene.responder = Some(second);
    until_it_is_served_anew(&scene);
    scene.still_serves();
}

#[test]
fn a_state_dir_belongs_to_one_responder() {
    let first = Scene::new(&serving("/bin/true"));
    let other = Scene::without_responder(&serving("/bin/true"));
    let text = fs::read_to_string(other.path("responder.toml")).unwrap();
    let state = |scene: &Scene| scene.path("state").display().to_string();
    let text = text.replace(&state(&other), &state(&first));
    fs::write(other.path("responder.toml"), text).unwrap();
    ended(other.command()).failed_with(&["state_dir", "is another responder's: name one for each"]);
    assert!(!is_locked(&other));
    first.still_serves();
}

#[test]
fn without_a_spool_no_responder_starts_and_none_is_made() {
    let scene = Scene::without_responder(&serving("/bin/true"));
    fs::remove_dir(scene.path("responses")).unwrap();
    ended(scene.command()).failed_with(&["response_dir", "does not exist", "install -d"]);
    assert!(!scene.path("responses").exists());
    let mut command = scene.env.command(AGENT);
    command.args(["responder", "--config", "/nonexistent/responder.toml"]);
    ended(command).failed_with(&["/nonexistent/responder.toml"]);
}

#[test]
fn what_runs_goes_on_while_a_directory_beside_it_is_made_again() {
    let scene = Scene::gated("");
    let id = scene.request("off", "n1", 60.0);
    scene.ran(1);
    let answers = scene.path("requests/.answers");
    fs::remove_dir(&answers).unwrap();
    wait_for("it to be made again", || answers.exists().then_some(()));
    scene.let_go(&id);
    assert_eq!(scene.answer("n1", &id)["success"], true);
    assert_eq!(reason_of(&scene.ended_job(&id)), "Completed");
    assert_eq!(scene.lines("ran").len(), 1);
}

#[test]
fn what_ran_while_the_spool_was_unsafe_is_answered_once_that_is_mended() {
    let scene = Scene::gated("");
    let id = scene.request("off", "n1", 60.0);
    scene.ran(1);
    scene.env.chmod("requests", 0o777);
    scene.wait_for_log(&["writable by others"]);
    scene.let_go(&id);
    assert_eq!(reason_of(&scene.ended_job(&id)), "Cancelled");
    assert!(scene.answered("n1", &id).is_none());
    scene.env.chmod("requests", 0o755);
    assert_eq!(scene.answer("n1", &id)["success"], true);
    assert_eq!(reason_of(&scene.ended_job(&id)), "Completed");
    assert_eq!(
        scene.lines("ran").len(),
        1,
        "what was done is not done again"
    );
}

#[test]
fn without_inotify_the_responder_looks_by_itself() {
    let mut scene = Scene::gated_without_responder("max_jobs = 1\n");
    let inner = scene.command();
    // a user namespace has a limit of its own
    let limit = "echo 0 >/proc/sys/user/max_inotify_instances && exec \"$@\"";
    let mut command = Command::new("/usr/bin/unshare");
    command.args(["--user", "--map-root-user", "/bin/sh", "-c", limit, "sh"]);
    command.arg(inner.get_program()).args(inner.get_args());
    command.stderr(
        fs::File::options()
            .append(true)
            .open(scene.path("log.txt"))
            .unwrap(),
    );
    scene.start_as(command);
    scene.wait_for_log(&["no inotify watch on the spool", "looking every 2s"]);
    let running = scene.request("off", "n1", 60.0);
    scene.ran(1);
    let withdrawn = scene.request("off", "n2", 60.0);
    scene.job_at(&withdrawn, "Queued");
    scene.withdraw("n2", &withdrawn);
    assert_eq!(reason_of(&scene.ended_job(&withdrawn)), "Cancelled");
    scene.let_go(&running);
    assert_eq!(scene.answer("n1", &running)["success"], true);
}
