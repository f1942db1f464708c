//! Makes text from outside safe to show in one line.

/// The most bytes of one foreign text that go into a line (design 4.3).
pub const MAX_TEXT_BYTES: usize = 4096;

/// `text` as one line: control characters, line and paragraph separators and characters that turn
/// the direction of writing are escaped, and what is longer than [`MAX_TEXT_BYTES`] is cut, with
/// an ellipsis in place of the rest (design 4.3).
#[must_use]
pub fn one_line(text: &str) -> String {
    escape_where(text, could_disturb_a_line)
}

/// `text` as one word: like [`one_line`], and white space is escaped too, so that a value can't
/// look like the next `KEY=` of a line.
#[must_use]
pub fn one_word(text: &str) -> String {
    escape_where(text, |c| c.is_whitespace() || could_disturb_a_line(c))
}

/// `text` as a word of a line for people: like [`one_line`], in quotation marks if it is empty or has
/// white space in it.
#[must_use]
pub fn quoted(text: &str) -> String {
    let text = one_line(text);
    if text.is_empty() || text.contains(char::is_whitespace) {
        format!("\"{text}\"")
    } else {
        text
    }
}

fn escape_where(text: &str, must_escape: impl Fn(char) -> bool) -> String {
    const ELLIPSIS: &str = "…";
    let mut line = String::with_capacity(text.len().min(MAX_TEXT_BYTES));
    for c in text.chars() {
        let before = line.len();
        if must_escape(c) {
            match c {
                '\n' | '\r' | '\t' => line.extend(c.escape_default()),
                _ => line.extend(c.escape_unicode()),
            }
        } else {
            line.push(c);
        }
        if line.len() > MAX_TEXT_BYTES - ELLIPSIS.len() {
            line.truncate(before);
            line.push_str(ELLIPSIS);
            break;
        }
    }
    line
}

fn could_disturb_a_line(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}')
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_separators_are_escaped() {
        assert_eq!(
            one_line("a\nb\r\u{1b}[31m\u{2028}\u{202e}ü"),
            "a\\nb\\r\\u{1b}[31m\\u{2028}\\u{202e}ü"
        );
    }

    #[test]
    fn a_word_keeps_no_white_space() {
        assert_eq!(
            one_word("n1 STATUS=completed\u{a0}x"),
            "n1\\u{20}STATUS=completed\\u{a0}x"
        );
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        let cut = one_line(&"ü".repeat(10_000));
        assert!(
            cut.len() <= MAX_TEXT_BYTES && cut.ends_with("ü…"),
            "{}",
            cut.len()
        );
        assert_eq!(one_line(&"x".repeat(4000)).len(), 4000);
    }
}
