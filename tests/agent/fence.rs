//! fence.
