//! `fence_recorder`: a Pacemaker fence agent that hands fencing over through files.
//!
//! - [`spool`]: the protocol, shared by all faces
//! - [`audit`]: what happened, for people and programs
//! - [`agent`]: what Pacemaker runs
//! - [`responder`]: what answers requests by running jobs
//! - [`operator`]: the commands for people
//! - [`jobs`]: the responder's records, which commands for people read
//! - [`bmc`]: the responder's tasks through BMCs
//! - [`commands`]: the words that name the commands
//! - [`interrupt`], [`text`], [`secret`], [`clock`], [`usage`], [`manpage`]: signals as something to wait for,
//!   text from outside made harmless, secrets kept out of it, time for people, what commands and what manual pages have in
//!   common

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod agent;
pub mod audit;
pub mod bmc;
pub mod clock;
pub mod commands;
pub mod interrupt;
pub mod jobs;
pub mod manpage;
pub mod operator;
pub mod responder;
pub mod secret;
pub mod spool;
pub mod text;
pub mod usage;
