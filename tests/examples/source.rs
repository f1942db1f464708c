//! What the examples' own tools say of them.

use std::process::Command;

use crate::example::{go, path};

#[test]
fn the_shell_finds_no_fault() {
    let checked = Command::new("shellcheck")
        .arg("--severity=warning")
        .arg(path("responder.sh"))
        .output()
        .expect("shellcheck is missing: apt-get install shellcheck");
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stdout)
    );
}

#[test]
fn python_of_3_6_would_take_it() {
    let script = "import ast, sys; ast.parse(open(sys.argv[1]).read(), feature_version=(3, 6))";
    let parsed = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .arg(path("responder.py"))
        .output()
        .unwrap();
    assert!(
        parsed.status.success(),
        "{}",
        String::from_utf8_lossy(&parsed.stderr)
    );
}

#[test]
fn go_vet_finds_no_fault_and_it_is_formatted() {
    go(&["vet", "./..."]);
    let gofmt = Command::new(crate::example::tool("go"))
        .args(["env", "GOROOT"])
        .output()
        .unwrap();
    let root = String::from_utf8(gofmt.stdout).unwrap();
    let formatted = Command::new(format!("{}/bin/gofmt", root.trim()))
        .arg("-l")
        .arg(path("responder-go"))
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(formatted.stdout).unwrap(),
        "",
        "run gofmt -w"
    );
}
