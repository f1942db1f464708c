//! How text may look where it goes: how wide it may be, and whether in colour.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

/// What a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Characters in a line.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
}

/// How to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// The terminal's size; none where the text goes to a file or a program.
    pub size: Option<Size>,
    /// Whether colours are wanted.
    pub is_coloured: bool,
}

/// What a word means to the reader; shown as a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// To be looked at.
    Caution,
    /// Not as it should be.
    Bad,
    /// Less important.
    Faint,
}

impl Style {
    /// For standard output: colours on a terminal only, and never with NO_COLOR (no-color.org).
    #[must_use]
    pub fn of_stdout() -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let size = io::stdout().is_terminal().then(|| size_of(io::stdout()));
        Self {
            size,
            is_coloured: size.is_some() && !is_set("NO_COLOR") && !is_dumb,
        }
    }

    /// How wide a line may be.
    #[must_use]
    pub fn width(&self) -> Option<usize> {
        self.size.map(|size| size.columns)
    }

    /// `text` in the colour of `tone`.
    #[must_use]
    pub fn paint(&self, tone: Tone, text: &str) -> String {
        let code = match tone {
            _ if !self.is_coloured => "",
            Tone::Plain => "",
            Tone::Good => "32",
            Tone::Caution => "33",
            Tone::Bad => "31",
            Tone::Faint => "2",
        };
        if code.is_empty() {
            text.to_owned()
        } else {
            format!("\x1b[{code}m{text}\x1b[0m")
        }
    }
}

/// The size of a terminal; some don't say.
#[must_use]
pub fn size_of(terminal: impl AsFd) -> Size {
    match rustix::termios::tcgetwinsize(terminal) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Size {
            columns: size.ws_col.into(),
            rows: size.ws_row.into(),
        },
        _ => Size {
            columns: 80,
            rows: 24,
        },
    }
}
