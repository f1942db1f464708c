//! README.md and docs/ are true: configurations, links, commands, parameters, messages.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fence_recorder::agent::parameters::Parameter;
use fence_recorder::commands;

/// What `--check-config` says of README's configuration `number`, with these texts in place of what is
/// the reader's own.
fn told(number: usize, own: &[(&str, &str)]) -> String {
    let readme = include_str!("../../README.md");
    let block = readme.split("```toml\n").nth(number).unwrap();
    let mut text = block.split("```").next().unwrap().to_owned();
    for (from, to) in own {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("responder.toml");
    fs::write(&file, text).unwrap();
    let checked = Command::new(env!("CARGO_BIN_EXE_fence_recorder"))
        .args(["responder", "--check-config", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&checked.stderr), "");
    String::from_utf8(checked.stdout).unwrap()
}

#[test]
fn the_configuration_is_right_but_for_the_programs_that_are_the_readers_to_write() {
    let said = told(
        1,
        &[
            ("/usr/local/sbin/detach", "/bin/true"),
            ("/usr/local/sbin/page-oncall", "/bin/true"),
        ],
    );
    assert!(said.contains("fence_ipmilan action=off"), "{said}");
    assert!(said.contains("waits for a person"), "{said}");
}

#[test]
fn the_configuration_of_bmcs_is_right_but_for_the_authority_that_is_the_readers_own() {
    let said = told(2, &[("ca_file = \"/etc/pki/bmc-ca.pem\"\n", "")]);
    assert!(said.contains("boot once from pxe (UEFI)"), "{said}");
}

fn root(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Every page for people, with its text.
fn pages() -> Vec<(PathBuf, String)> {
    let mut pages = vec![
        root("README.md"),
        root("packaging/README.md"),
        root("packaging/examples/README.md"),
    ];
    pages.push(root("packaging/examples/kubernetes/README.md"));
    let docs = fs::read_dir(root("docs")).unwrap();
    pages.extend(docs.map(|page| page.unwrap().path()));
    let read = |page: PathBuf| {
        let text = fs::read_to_string(&page).unwrap();
        (page, text)
    };
    pages.into_iter().map(read).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut links = 0;
    for (page, text) in pages() {
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(path)
            };
            assert!(target.exists(), "{link} in {}", page.display());
            if !heading.is_empty() {
                let text = fs::read_to_string(&target).unwrap().to_lowercase();
                let wanted = format!("# {}", heading.replace('-', " "));
                assert!(text.contains(&wanted), "{link} in {}", page.display());
            }
            links += 1;
        }
    }
    assert!(links > 20);
}

#[test]
fn every_page_for_people_is_linked() {
    let index = fs::read_to_string(root("docs/README.md")).unwrap();
    for entry in fs::read_dir(root("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            name == "README.md" || index.contains(&format!("({name})")),
            "{name}"
        );
    }
}

/// The words after `start` in code, to the end of its line; lines that go on are one.
fn calls<'a>(text: &'a str, start: &'a str) -> impl Iterator<Item = String> + 'a {
    let text = text.replace("\\\n", " ");
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.into_iter().filter_map(move |line| {
        let (before, after) = line.split_once(start)?;
        let is_code = line.starts_with("    ") || before.ends_with('`');
        let after = after.split(['`', '#']).next().unwrap();
        is_code.then(|| after.trim().to_owned())
    })
}

#[test]
fn every_command_exists() {
    let mut seen = 0;
    for (page, text) in pages() {
        for call in calls(&text, "fence_recorder ") {
            let word = call.split_whitespace().next().unwrap_or_default();
            let is_word = word.chars().all(|c| c.is_ascii_lowercase()) && !word.is_empty();
            // a device, or the agent's own options
            if !is_word || text.contains(&format!("create {word}")) {
                continue;
            }
            let is_command = commands::ALL.iter().any(|command| command.name == word);
            let is_agent = ["as", "is", "in", "params"].contains(&word);
            assert!(is_command || is_agent, "{word} in {}", page.display());
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn every_parameter_of_a_device_is_one() {
    let mut seen = 0;
    for (page, text) in pages() {
        for call in calls(&text, "create recorder fence_recorder") {
            let parameters = call
                .split(" op ")
                .next()
                .unwrap()
                .split(" meta ")
                .next()
                .unwrap()
                .to_owned();
            let names = parameters
                .split_whitespace()
                .filter_map(|word| word.split_once('='));
            for (name, _) in names {
                let is_known = Parameter::find(name).is_some() || name.starts_with("pcmk_");
                assert!(is_known, "{name} in {}", page.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "{seen}");
}

/// The text of every file below `folder`.
fn sources_in(folder: &str) -> String {
    let mut sources = String::new();
    let mut folders = vec![root(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                sources.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    sources
}

#[test]
fn every_test_that_the_security_model_names_exists() {
    let tests = sources_in("tests");
    let text = fs::read_to_string(root("docs/security.md")).unwrap();
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| ") && line.matches(" | ").count() == 2);
    let named = rows.filter_map(|row| row.split(" | ").nth(2));
    let mut seen = 0;
    for name in named.flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
        assert!(tests.contains(&format!("fn {name}()")), "{name}");
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}

/// What the first column of the table quotes of ours is really said.
#[test]
fn the_messages_in_troubleshooting_are_those_of_the_program() {
    let sources = sources_in("src");
    let text = fs::read_to_string(root("docs/troubleshooting.md")).unwrap();
    // these are Pacemaker's
    let others = [
        "timed out after",
        "exit-reason",
        "Resource agent did not",
        "No such device",
        "No route",
    ];
    let mut seen = 0;
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let cell = row.split('|').nth(1).unwrap();
        for quoted in cell.split('`').skip(1).step_by(2) {
            if others.iter().any(|other| quoted.starts_with(other)) {
                continue;
            }
            for piece in quoted
                .split('…')
                .map(|piece| piece.trim_matches([' ', ':', ',', ')']))
            {
                if piece.len() > 8 {
                    assert!(sources.contains(piece), "{piece}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 12, "{seen}");
}
