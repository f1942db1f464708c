//! What is in the packages, and whether the tools of Debian and of RPM find fault with it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::root::target;

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program} is missing, tests/run installs it: {error}"));
    let (said, failed) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {said}{failed}"
    );
    said.into_owned()
}

pub fn deb(revision: u32) -> String {
    target(&format!(
        "packages/fence-recorder_{VERSION}-{revision}_amd64.deb"
    ))
    .display()
    .to_string()
}

pub fn rpm(release: u32) -> String {
    target(&format!(
        "packages/fence-recorder-{VERSION}-{release}.x86_64.rpm"
    ))
    .display()
    .to_string()
}

/// What both have, by its path; the pages of the manual come by themselves.
fn common() -> Vec<String> {
    let pages = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("man")).unwrap();
    let pages = pages
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .map(|page| {
            let (_, section) = page.rsplit_once('.').unwrap();
            format!("/usr/share/man/man{section}/{page}.gz")
        });
    let others = [
        "/usr/sbin/fence_recorder",
        "/etc/fence_recorder/responder.toml",
        "/etc/logrotate.d/fence_recorder",
        "/usr/lib/systemd/system/fence_recorder-responder.service",
        "/usr/share/bash-completion/completions/fence_recorder",
        "/usr/share/fish/vendor_completions.d/fence_recorder.fish",
        "/usr/share/doc/fence-recorder/README.md",
        "/usr/share/doc/fence-recorder/docs/pcs.md",
        "/usr/share/doc/fence-recorder/examples/kubernetes/responder.yaml",
        "/usr/share/doc/fence-recorder/changelog.gz",
        "/usr/share/doc/fence-recorder/crates.gz",
        "/usr/share/doc/fence-recorder/fence-request.schema.json",
        "/usr/share/doc/fence-recorder/examples/tmpfiles.conf",
    ];
    others.into_iter().map(str::to_owned).chain(pages).collect()
}

#[test]
fn the_deb_has_what_it_should_and_nothing_active_for_every_node() {
    let listed = run("dpkg-deb", &["--contents", &deb(1)]);
    let has = |mode: &str, path: &str| {
        listed
            .lines()
            .any(|line| line.starts_with(mode) && line.ends_with(&format!(" .{path}")))
    };
    for path in common() {
        let mode = if path.starts_with("/usr/sbin") {
            "-rwxr-xr-x 0/0"
        } else {
            "-rw-r--r-- 0/0"
        };
        assert!(has(mode, &path), "{path} in\n{listed}");
    }
    for path in [
        "/usr/share/doc/fence-recorder/copyright",
        "/usr/share/doc/fence-recorder/changelog.Debian.gz",
        "/usr/share/zsh/vendor-completions/_fence_recorder",
    ] {
        assert!(has("-rw-r--r--", path), "{path} in\n{listed}");
    }
    assert!(
        !listed.contains("tmpfiles.d"),
        "an active snippet would give every node a spool"
    );
    let conffiles = run("dpkg-deb", &["--info", &deb(1), "conffiles"]);
    assert_eq!(
        conffiles.trim(),
        "/etc/fence_recorder/responder.toml\n/etc/logrotate.d/fence_recorder"
    );
    let depends = run("dpkg-deb", &["--field", &deb(1), "Depends"]);
    assert_eq!(depends.trim(), "libc6 (>= 2.28)");
}

#[test]
fn lintian_finds_no_error_and_no_warning() {
    run(
        "lintian",
        &["--allow-root", "--fail-on", "error,warning", &deb(1)],
    );
}

#[test]
fn the_rpm_has_what_it_should_and_is_whole() {
    let listed = run("rpm", &["--query", "--package", "--list", &rpm(1)]);
    let has = |path: &str| listed.lines().any(|line| line == path);
    for path in common() {
        assert!(has(&path), "{path} in\n{listed}");
    }
    for path in [
        "/usr/share/licenses/fence-recorder/LICENSE-MIT",
        "/usr/share/zsh/site-functions/_fence_recorder",
    ] {
        assert!(has(path), "{path} in\n{listed}");
    }
    run("rpm", &["--checksig", &rpm(1)]);
    let configured = run(
        "rpm",
        &[
            "--query",
            "--package",
            "--queryformat",
            "[%{FILEFLAGS:fflags} %{FILENAMES}\n]",
            &rpm(1),
        ],
    );
    for path in [
        "/etc/fence_recorder/responder.toml",
        "/etc/logrotate.d/fence_recorder",
    ] {
        assert!(
            configured.contains(&format!("cn {path}")),
            "noreplace: {configured}"
        );
    }
    let modes = run(
        "rpm",
        &[
            "--query",
            "--package",
            "--queryformat",
            "[%{FILEMODES:perms} %{FILENAMES}\n]",
            &rpm(1),
        ],
    );
    assert!(
        modes.contains("-rwxr-xr-x /usr/sbin/fence_recorder"),
        "{modes}"
    );
    let requires = run("rpm", &["--query", "--package", "--requires", &rpm(1)]);
    assert!(
        requires.contains("libc.so.6(GLIBC_2.28)(64bit)"),
        "{requires}"
    );
    // zstd is not known to every rpm of RHEL 8
    let compressor = run(
        "rpm",
        &[
            "--query",
            "--package",
            "--queryformat",
            "%{PAYLOADCOMPRESSOR}",
            &rpm(1),
        ],
    );
    assert_eq!(compressor, "xz");
}

#[test]
fn the_binary_needs_no_newer_glibc_than_that_of_rhel_8_and_no_other_library() {
    let binary = target("packages/fence_recorder").display().to_string();
    let symbols = run("objdump", &["--dynamic-syms", &binary]);
    let versions: Vec<(u32, u32)> = symbols
        .split("GLIBC_")
        .skip(1)
        .map(|rest| {
            let version = rest
                .split(|c: char| c != '.' && !c.is_ascii_digit())
                .next()
                .unwrap();
            let mut numbers = version.split('.').map(|number| number.parse().unwrap());
            (numbers.next().unwrap(), numbers.next().unwrap_or(0))
        })
        .collect();
    assert!(versions.len() > 20, "{symbols}");
    assert!(
        versions.iter().all(|version| *version <= (2, 28)),
        "{versions:?}"
    );
    let headers = run("objdump", &["--private-headers", &binary]);
    let needed = headers
        .lines()
        .filter_map(|line| line.trim().strip_prefix("NEEDED"));
    for library in needed.map(str::trim) {
        let is_glibcs = [
            "libc.so.6",
            "libpthread.so.0",
            "libdl.so.2",
            "libm.so.6",
            "ld-linux-x86-64.so.2",
        ];
        assert!(is_glibcs.contains(&library), "{library}");
    }
}

#[test]
fn what_is_linked_is_told_with_its_licences() {
    let told = run(
        "zcat",
        &[&target("packages/doc/crates.gz").display().to_string()],
    );
    for crate_name in ["rustls", "serde_json", "ureq", "nix"] {
        assert!(told.contains(&format!("\n{crate_name} ")), "{crate_name}");
    }
    assert!(told.matches("Permission is hereby granted").count() > 10);
    assert!(
        !told.contains("\nproptest "),
        "what only tests use is not linked"
    );
}

#[test]
fn the_packages_are_of_this_version() {
    let changelog = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/debian/changelog");
    let first = fs::read_to_string(changelog).unwrap();
    assert!(
        first.starts_with(&format!("fence-recorder ({VERSION}-1) ")),
        "{first}"
    );
    let told = run(
        &target("packages/fence_recorder").display().to_string(),
        &["--version"],
    );
    assert!(told.contains(VERSION), "{told}");
}
