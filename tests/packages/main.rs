//! The packages, as they are built and as they are on a machine that had nothing of this before.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../pacemaker/audit.rs"]
// the rest of all these is for the cluster's tests
#[allow(dead_code)]
mod audit;
#[path = "../pacemaker/cluster.rs"]
#[allow(dead_code)]
mod cluster;
#[path = "../pacemaker/command.rs"]
#[allow(dead_code)]
mod command;
#[path = "../pacemaker/configuration.rs"]
mod configuration;
#[path = "../pacemaker/log.rs"]
#[allow(dead_code)]
mod log;
#[path = "../pacemaker/node.rs"]
#[allow(dead_code)]
mod node;
#[path = "../pacemaker/switch.rs"]
mod switch;
#[path = "../pacemaker/tether.rs"]
mod tether;
#[path = "../pacemaker/tools.rs"]
mod tools;
#[path = "../pacemaker/wait.rs"]
#[allow(dead_code)]
mod wait;

mod built;
mod deb;
mod logrotate;
mod root;
mod rpm;
