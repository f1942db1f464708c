//! response.
