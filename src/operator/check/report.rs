//! What `check` has found, each with the command that mends it.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;

use crate::operator::view::View;
use crate::operator::view::table::indented;
use crate::operator::view::terminal::{Style, Tone};
use crate::text::one_line;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Fencing works, but not always, or not as well as it could.
    Warn,
    /// Fencing doesn't work, or can't be trusted.
    Fail,
}

/// Under the words that tell the levels.
const INDENT: &str = "     ";

/// One line.
#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    /// For programs; it never changes.
    name: &'static str,
    /// What it is about.
    subject: String,
    message: String,
    /// The command that mends it.
    remedy: Option<String>,
}

/// All lines, in the order of the looks.
#[derive(Debug, Default)]
pub struct Report(Vec<Finding>);

impl Report {
    /// As it should be.
    pub fn ok(&mut self, name: &'static str, subject: &str, message: &str) {
        self.add(Level::Ok, name, subject, message, None);
    }

    /// To be looked at; `remedy` is the command that mends it.
    pub fn warn(&mut self, name: &'static str, subject: &str, message: &str, remedy: &str) {
        self.add(Level::Warn, name, subject, message, Some(remedy));
    }

    /// Not as it should be; `remedy` is the command that mends it.
    pub fn fail(&mut self, name: &'static str, subject: &str, message: &str, remedy: &str) {
        self.add(Level::Fail, name, subject, message, Some(remedy));
    }

    fn add(
        &mut self,
        level: Level,
        name: &'static str,
        subject: &str,
        message: &str,
        remedy: Option<&str>,
    ) {
        self.0.push(Finding {
            level,
            name,
            subject: one_line(subject),
            message: one_line(message),
            remedy: remedy.map(one_line),
        });
    }

    /// Whether anything is a FAIL.
    pub fn has_failed(&self) -> bool {
        self.count(Level::Fail) > 0
    }

    fn count(&self, level: Level) -> usize {
        self.0
            .iter()
            .filter(|finding| finding.level == level)
            .count()
    }

    /// As it is shown; only what isn't OK if `is_quiet`.
    pub fn view(&self, is_quiet: bool) -> View {
        let style = Style::of_stdout();
        let findings = self
            .0
            .iter()
            .filter(|finding| !is_quiet || finding.level > Level::Ok);
        let mut text: String = findings
            .clone()
            .map(|finding| finding.lines(&style))
            .collect();
        if !is_quiet {
            let [ok, warn, fail] =
                [Level::Ok, Level::Warn, Level::Fail].map(|level| self.count(level));
            let _ = writeln!(text, "{ok} OK, {warn} WARN, {fail} FAIL");
        }
        View {
            json: json!(findings.collect::<Vec<_>>()),
            text,
        }
    }
}

impl Finding {
    fn lines(&self, style: &Style) -> String {
        let (word, tone) = match self.level {
            Level::Ok => ("OK  ", Tone::Good),
            Level::Warn => ("WARN", Tone::Caution),
            Level::Fail => ("FAIL", Tone::Bad),
        };
        let text = indented(
            &format!("{}: {}", self.subject, self.message),
            INDENT,
            style,
        );
        let mut lines = style.paint(tone, word) + " ";
        lines.push_str(text.trim_start());
        if let Some(remedy) = &self.remedy {
            let _ = writeln!(lines, "{INDENT}{}", style.paint(Tone::Faint, remedy));
        }
        lines
    }
}
