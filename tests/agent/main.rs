//! The agent through the built binary, as Pacemaker and people run it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod actions;
mod audit;
mod directories;
mod env;
mod faults;
mod fence;
mod input;
mod properties;
mod response;
