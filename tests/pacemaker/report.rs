//! Figures that are shown whether or not the test runner captures output.

use std::io::Write;

/// Prints one measured figure.
pub fn figure(text: &str) {
    // The runner only captures what the print macros write.
    writeln!(std::io::stderr(), "figure: {text}").expect("stderr takes a line");
}
