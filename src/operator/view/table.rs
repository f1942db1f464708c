//! A table for people: columns as wide as they must be, lines no longer than the terminal's.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::terminal::{Style, Tone};
use crate::text::one_line;

/// Between two columns.
const GAP: &str = "  ";
/// What stands for text that was cut off.
const ELLIPSIS: char = '…';
/// A column that must give way stays this wide.
const NARROWEST: usize = 8;

/// A piece of a table; text from outside is made harmless.
#[derive(Debug, Clone)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// In the colour of `tone`.
    #[must_use]
    pub fn toned(text: &str, tone: Tone) -> Self {
        Self {
            text: one_line(text),
            tone,
        }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(text.as_ref(), Tone::Plain)
    }
}

/// Rows under a header, each with what is to be said below it.
#[derive(Debug)]
pub struct Table {
    header: Vec<Cell>,
    rows: Vec<(Vec<Cell>, String)>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(header: &[&str]) -> Self {
        Self {
            header: header
                .iter()
                .map(|word| Cell::toned(word, Tone::Faint))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// One more row, of as many cells as the header.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.row_with(cells, "");
    }

    /// One more row, and text under it, indented, in as many lines as it takes.
    pub fn row_with(&mut self, cells: Vec<Cell>, text: &str) {
        self.rows.push((cells, one_line(text)));
    }

    /// Its lines; `nothing` if it has no rows.
    #[must_use]
    pub fn render(&self, style: &Style, nothing: &str) -> String {
        if self.rows.is_empty() {
            return format!("{nothing}\n");
        }
        let widths = self.widths(style);
        let mut lines = line(&self.header, &widths, style);
        for (row, text) in &self.rows {
            lines.push_str(&line(row, &widths, style));
            lines.push_str(&indented(text, "    ", style));
        }
        lines
    }

    /// How wide each column is; the widest give way until a line fits.
    fn widths(&self, style: &Style) -> Vec<usize> {
        let cells = self.rows.iter().map(|(row, _)| row);
        let mut widths = vec![0; self.header.len()];
        for row in std::iter::once(&self.header).chain(cells) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.width());
            }
        }
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        while let Some(most) = style.width()
            && widths.iter().sum::<usize>() + gaps > most
            && let Some(widest) = widths.iter_mut().max_by_key(|width| **width)
            && *widest > NARROWEST
        {
            *widest -= 1;
        }
        widths
    }
}

fn line(cells: &[Cell], widths: &[usize], style: &Style) -> String {
    let mut line = String::new();
    for (number, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let text = cut(&cell.text, *width);
        line.push_str(&style.paint(cell.tone, &text));
        if number + 1 < cells.len() {
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(text.width())));
            line.push_str(GAP);
        }
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

/// `text` in at most `width` columns.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let fits = |c: &char| {
        let enough = c.width().unwrap_or(0);
        let does = enough <= left;
        left = left.saturating_sub(enough);
        does
    };
    let mut short: String = text.chars().take_while(fits).collect();
    short.push(ELLIPSIS);
    short
}

/// `text` in lines that start with `indent`, broken between words; nothing for nothing.
#[must_use]
pub fn indented(text: &str, indent: &str, style: &Style) -> String {
    let width = style.width().unwrap_or(usize::MAX);
    let width = width.saturating_sub(indent.len());
    let mut lines = String::new();
    let mut used = 0;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if used > 0 && used + 1 + word.width() <= width {
            lines.push(' ');
            used += 1;
        } else {
            if used > 0 {
                lines.push('\n');
            }
            lines.push_str(indent);
            used = 0;
        }
        lines.push_str(word);
        used += word.width();
    }
    if !lines.is_empty() {
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::terminal::Size;
    use super::*;

    const NARROW: Style = Style {
        size: Some(Size {
            columns: 24,
            rows: 10,
        }),
        is_coloured: false,
    };

    #[test]
    fn the_widest_column_gives_way_and_no_line_is_too_long() {
        let mut table = Table::new(&["NODE", "MESSAGE"]);
        table.row(vec![
            "compute-1".into(),
            "a message that is too long".into(),
        ]);
        table.row_with(
            vec!["zwölf\n".into(), "箱箱箱箱箱箱箱箱箱".into()],
            "and why, in several words",
        );
        let text = table.render(&NARROW, "");
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.iter().all(|line| line.width() <= 24), "{text}");
        assert_eq!(lines[1], "compute-1  a message th…");
        assert_eq!(lines[2], "zwölf\\n    箱箱箱箱箱箱…");
        assert_eq!(lines[3..], ["    and why, in several", "    words"]);
    }

    #[test]
    fn nothing_is_cut_where_no_terminal_is() {
        let style = Style {
            size: None,
            is_coloured: false,
        };
        let mut table = Table::new(&["A", "B"]);
        table.row(vec!["x".repeat(200).into(), "y".into()]);
        assert!(table.render(&style, "").ends_with("x  y\n"));
        assert_eq!(Table::new(&["A"]).render(&style, "none"), "none\n");
    }
}
