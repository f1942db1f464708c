//! directories.
