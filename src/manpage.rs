//! Manual pages in troff's man format: what all pages have in common.

use clap::Command;
use roff::{Inline, Roff, bold, italic, roman};

/// The day of this version.
const RELEASED: &str = "2026-12-01";

/// A page that is being written.
#[derive(Debug)]
pub struct Page(Roff);

impl Page {
    /// The page `name` in `section`, which is about `summary`.
    #[must_use]
    pub fn new(name: &str, section: &str, summary: &str) -> Self {
        let mut page = Self(Roff::new());
        let version = concat!("fence_recorder ", env!("CARGO_PKG_VERSION"));
        let title = name.to_uppercase();
        let header = [&title, section, RELEASED, version, "Pacemaker fence agents"];
        page.0.control("TH", header);
        // a name that is hyphenated, or spread out, can't be copied
        page.0.control("nh", []).control("ad", ["l"]);
        page.section("NAME", &[&format!("{name} - {}", lower_first(summary))]);
        page
    }

    /// The ways to call a program, one a line.
    pub fn synopsis(&mut self, calls: &[(&str, &str)]) {
        self.section("SYNOPSIS", &[]);
        for (number, (program, rest)) in calls.iter().enumerate() {
            if number > 0 {
                self.0.control("br", []);
            }
            self.0
                .text([bold(*program), roman(format!(" {rest}").trim_end())]);
        }
    }

    /// A section of paragraphs.
    pub fn section(&mut self, title: &str, paragraphs: &[&str]) {
        self.0.control("SH", [title]);
        for (number, paragraph) in paragraphs.iter().enumerate() {
            if number > 0 {
                self.0.control("PP", []);
            }
            self.0.text([roman(*paragraph)]);
        }
    }

    /// Another paragraph.
    pub fn paragraph(&mut self, text: &str) {
        self.0.control("PP", []).text([roman(text)]);
    }

    /// A term and what is to be said of it; empty paragraphs are left out.
    pub fn entry(&mut self, term: Vec<Inline>, paragraphs: &[&str]) {
        self.0.control("TP", []).text(term);
        let paragraphs = paragraphs.iter().filter(|paragraph| !paragraph.is_empty());
        for (number, paragraph) in paragraphs.enumerate() {
            if number > 0 {
                self.0.control("IP", []);
            }
            self.0.text([roman(*paragraph)]);
        }
    }

    /// The options of a command, each with what it is for.
    pub fn options(&mut self, command: &Command) {
        for argument in command.get_arguments() {
            let value = argument
                .get_value_names()
                .and_then(<[_]>::first)
                .map(ToString::to_string);
            let takes_value = argument.get_action().takes_values();
            let value = value.filter(|_| takes_value).unwrap_or_default();
            let mut term = Vec::new();
            if let Some(short) = argument.get_short() {
                term.extend([bold(format!("-{short}")), roman(", ")]);
            }
            match argument.get_long() {
                Some(long) if value.is_empty() => term.push(bold(format!("--{long}"))),
                Some(long) => term.extend([bold(format!("--{long}")), roman(" "), italic(value)]),
                None => term.push(italic(value)),
            }
            let help = argument
                .get_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            let default = argument
                .get_default_values()
                .first()
                .filter(|_| takes_value);
            let default =
                default.map(|default| format!(" Default: {}.", default.to_string_lossy()));
            self.entry(term, &[&format!("{help}.{}", default.unwrap_or_default())]);
        }
    }

    /// Lines as they stand.
    pub fn verbatim(&mut self, lines: &str) {
        self.0
            .control("PP", [])
            .control("RS", ["2"])
            .control("nf", []);
        for line in lines.lines() {
            self.0.text([roman(line)]);
        }
        self.0.control("fi", []).control("RE", []);
    }

    /// Examples, each with what it is for.
    pub fn examples(&mut self, examples: &[(&str, &str)]) {
        self.section("EXAMPLES", &[]);
        for (number, (title, lines)) in examples.iter().enumerate() {
            if number > 0 {
                self.0.control("PP", []);
            }
            self.0.text([roman(*title)]);
            self.verbatim(lines);
        }
    }

    /// The page's source.
    #[must_use]
    pub fn render(&self) -> String {
        let mut is_filled = true;
        let mut page = String::new();
        for line in self.0.render().lines() {
            is_filled = match line {
                ".nf" => false,
                ".fi" => true,
                _ => is_filled,
            };
            if is_filled && !line.starts_with('.') {
                page.push_str(&wrapped(line));
            } else {
                page.push_str(line);
            }
            page.push('\n');
        }
        page
    }
}

/// A line of text in lines that editors and mandoc's lint like; none may begin as a request does.
fn wrapped(line: &str) -> String {
    const WIDTH: usize = 80;
    let mut lines = String::new();
    let mut used = 0;
    for word in line.split(' ') {
        if used > 0 && used + 1 + word.len() <= WIDTH {
            lines.push(' ');
            used += 1;
        } else if used > 0 {
            lines.push('\n');
            used = 0;
            if word.starts_with(['.', '\'']) {
                lines.push_str("\\&");
            }
        }
        lines.push_str(word);
        used += word.len();
    }
    lines
}

fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(characters).collect()
    })
}
