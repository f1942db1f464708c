//! The person at the terminal: who it is, and whether they agree.

use std::io::{self, BufRead, IsTerminal, Write};

use nix::unistd::{Uid, User, getuid};

/// Who acts: behind sudo the person, not root.
#[must_use]
pub fn name() -> String {
    let behind_sudo = std::env::var("SUDO_USER")
        .ok()
        .filter(|name| !name.is_empty());
    let own = || {
        let user = User::from_uid(getuid()).ok().flatten();
        user.map_or_else(|| format!("user {}", Uid::current()), |user| user.name)
    };
    behind_sudo.unwrap_or_else(own)
}

/// What a person said to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// Yes.
    Yes,
    /// Anything else.
    No,
    /// There is no terminal to ask on.
    Nobody,
}

/// Asks on the terminal; only the whole word counts.
///
/// # Errors
/// When the terminal can't be written or read.
pub fn ask(question: &str) -> io::Result<Said> {
    if !io::stdin().is_terminal() {
        return Ok(Said::Nobody);
    }
    write!(io::stderr(), "{question}\nType yes to go on: ")?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(if line.trim() == "yes" {
        Said::Yes
    } else {
        Said::No
    })
}
