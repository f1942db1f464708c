//! Manual pages in troff's man format: what all pages have in common.

use roff::{Inline, Roff, bold, roman};

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

    /// Lines as they stand.
    pub fn verbatim(&mut self, lines: &str) {
        self.0
            .control("PP", [])
            .control("RS", ["4"])
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
        self.0.render()
    }
}

fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(characters).collect()
    })
}
