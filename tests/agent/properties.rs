//! properties.
