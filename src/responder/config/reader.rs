//! Reads TOML tables key by key, and collects every fault with its line and column.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use jiff::{Span, SpanRelativeTo};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::text::one_line;

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// What, and what to do.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

/// Everything that was found wrong in a file.
#[derive(Debug)]
pub struct Faults<'a> {
    text: &'a str,
    found: RefCell<Vec<Fault>>,
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its bytes in the file.
    pub span: Range<usize>,
}

impl<'a> Faults<'a> {
    /// None yet, in `text`.
    #[must_use]
    pub fn in_text(text: &'a str) -> Self {
        Self {
            text,
            found: RefCell::new(Vec::new()),
        }
    }

    /// Notes a fault of what stands at `span`.
    pub fn add(&self, span: &Range<usize>, message: impl fmt::Display) {
        let start = span.start.min(self.text.len());
        let before = self.text.get(..start).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        self.found.borrow_mut().push(Fault {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: one_line(&message.to_string()),
        });
    }

    /// All of them, in the order of the file.
    #[must_use]
    pub fn into_sorted(self) -> Vec<Fault> {
        let mut found = self.found.into_inner();
        found.sort();
        found.dedup();
        found
    }
}

/// A table that is being read; what of it nobody asked for is a fault.
#[derive(Debug)]
pub struct Table<'a> {
    /// Where to complain.
    pub faults: &'a Faults<'a>,
    /// Where it stands.
    pub span: Range<usize>,
    keys: &'a DeTable<'a>,
    known: RefCell<HashSet<&'static str>>,
}

impl<'a> Table<'a> {
    /// Starts to read `table`.
    #[must_use]
    pub fn new(table: &'a DeTable<'a>, span: Range<usize>, faults: &'a Faults<'a>) -> Self {
        Self {
            faults,
            span,
            keys: table,
            known: RefCell::default(),
        }
    }

    fn get(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.borrow_mut().insert(key);
        self.keys.get(key)
    }

    /// Whether `key` is there, without reading it.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    /// A string.
    #[must_use]
    pub fn text(&self, key: &'static str) -> Option<At<&'a str>> {
        let value = self.get(key)?;
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.wants(key, "a string", value);
        }
        text.map(|text| At {
            value: text,
            span: value.span(),
        })
    }

    /// A string that one of `choices` names.
    #[must_use]
    pub fn choice<T: Copy>(&self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text(key)?;
        let chosen = choices.iter().find(|(name, _)| *name == text.value);
        if chosen.is_none() {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
            self.faults.add(
                &text.span,
                format!("{key} is one of {names}, not \"{}\"", text.value),
            );
        }
        chosen.map(|(_, value)| *value)
    }

    /// A list of strings; at least one.
    #[must_use]
    pub fn texts(&self, key: &'static str) -> Option<Vec<At<&'a str>>> {
        let value = self.get(key)?;
        let Some(values) = value.get_ref().as_array().filter(|list| !list.is_empty()) else {
            self.wants(key, "a list of strings with at least one in it", value);
            return None;
        };
        let texts = values.iter().filter_map(|one| {
            let text = one.get_ref().as_str();
            if text.is_none() {
                self.wants(key, "a list of strings only", one);
            }
            text.map(|text| At {
                value: text,
                span: one.span(),
            })
        });
        Some(texts.collect())
    }

    /// True or false.
    #[must_use]
    pub fn flag(&self, key: &'static str) -> Option<bool> {
        let value = self.get(key)?;
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            self.wants(key, "true or false", value);
        }
        flag
    }

    /// A whole number in `range`.
    #[must_use]
    pub fn number(&self, key: &'static str, range: RangeInclusive<usize>) -> Option<usize> {
        let value = self.get(key)?;
        let number = value
            .get_ref()
            .as_integer()
            .and_then(|integer| usize::from_str_radix(integer.as_str(), integer.radix()).ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let (from, to) = range.into_inner();
            self.wants(key, &format!("a whole number from {from} to {to}"), value);
        }
        number
    }

    /// A duration as text, `"90s"` or `"1m 30s"`, in `range`.
    #[must_use]
    pub fn duration(&self, key: &'static str, range: RangeInclusive<Duration>) -> Option<Duration> {
        let value = self.get(key)?;
        let duration = value.get_ref().as_str().and_then(duration_of);
        let duration = duration.filter(|duration| range.contains(duration));
        if duration.is_none() {
            let (from, to) = range.into_inner();
            let wanted = format!(
                "a duration like \"90s\" or \"1m 30s\", from {} s to {} s",
                from.as_secs_f64(),
                to.as_secs_f64()
            );
            self.wants(key, &wanted, value);
        }
        duration
    }

    /// A table.
    #[must_use]
    pub fn table(&self, key: &'static str) -> Option<Table<'a>> {
        let value = self.get(key)?;
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.wants(key, "a table", value);
        }
        table.map(|table| Table::new(table, value.span(), self.faults))
    }

    /// Tables, as `[[key]]` makes them.
    #[must_use]
    pub fn tables(&self, key: &'static str) -> Vec<Table<'a>> {
        let Some(value) = self.get(key) else {
            return Vec::new();
        };
        let Some(values) = value.get_ref().as_array() else {
            self.wants(key, &format!("one or more [[{key}]]"), value);
            return Vec::new();
        };
        let tables = values.iter().filter_map(|one| {
            let table = one.get_ref().as_table();
            if table.is_none() {
                self.wants(key, "tables only", one);
            }
            table.map(|table| Table::new(table, one.span(), self.faults))
        });
        tables.collect()
    }

    /// All keys, each with a string or a whole number as its text; for tables whose keys are the
    /// user's.
    #[must_use]
    pub fn free_texts(&self) -> Vec<(At<&'a str>, At<&'a str>)> {
        let pairs = self.keys.iter().filter_map(|(key, value)| {
            let text = match value.get_ref() {
                DeValue::String(text) => text,
                DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
                _ => {
                    self.wants(key.get_ref(), "a string or a whole number", value);
                    return None;
                }
            };
            let (key_span, span) = (key.span(), value.span());
            Some((
                At {
                    value: &**key.get_ref(),
                    span: key_span,
                },
                At { value: text, span },
            ))
        });
        pairs.collect()
    }

    /// All keys, each with a table; for tables whose keys are the user's.
    #[must_use]
    pub fn free_tables(&self) -> Vec<(At<&'a str>, Table<'a>)> {
        let pairs = self.keys.iter().filter_map(|(key, value)| {
            let Some(table) = value.get_ref().as_table() else {
                self.wants(key.get_ref(), "a table of node = value", value);
                return None;
            };
            let key = At {
                value: &**key.get_ref(),
                span: key.span(),
            };
            Some((key, Table::new(table, value.span(), self.faults)))
        });
        pairs.collect()
    }

    /// Complains of every key that was never asked for.
    pub fn finish(self) {
        let known = self.known.borrow();
        for (key, _) in self.keys {
            if !known.contains(&**key.get_ref()) {
                let mut names: Vec<_> = known.iter().copied().collect();
                names.sort_unstable();
                let message = format!(
                    "unknown key \"{}\": here are known {}",
                    key.get_ref(),
                    names.join(", ")
                );
                self.faults.add(&key.span(), message);
            }
        }
    }

    fn wants(&self, key: &str, wanted: &str, value: &Spanned<DeValue<'_>>) {
        let message = format!("{key} must be {wanted}");
        self.faults.add(&value.span(), message);
    }
}

/// Parses TOML, and notes what the parser complains of.
#[must_use]
pub fn parse<'a>(text: &'a str, faults: &Faults<'_>) -> Spanned<DeTable<'a>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        faults.add(&error.span().unwrap_or_default(), error.message());
    }
    table
}

fn duration_of(text: &str) -> Option<Duration> {
    let span: Span = text.parse().ok()?;
    // a day of a retention time has 24 hours
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    duration.try_into().ok()
}
