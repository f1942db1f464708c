//! `fence_recorder check`: looks for what would keep this node, or its cluster, from fencing.

mod cib;
mod cluster;
mod device;
mod node;
mod report;
mod responder;
mod selinux;
mod timeouts;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgMatches;

use super::options::{
    flag, log_dir, log_dir_of, request_dir, request_dir_of, response_dir, response_dir_of, value,
};
use super::view::{failed, json_option, print};
use crate::commands::CHECK;
use crate::responder::config::DEFAULT_PATH;
use crate::spool::{Spool, directory::Trust};
use cluster::Cluster;
use report::Report;

/// The options, from which parser, help and manual are made.
#[must_use]
pub fn command() -> clap::Command {
    CHECK
        .command()
        .arg(json_option())
        .arg(flag("quiet", "Print only what is not as it should be").short('q'))
        .arg(
            value("config", "FILE", "The responder's configuration")
                .value_parser(clap::value_parser!(PathBuf))
                .default_value(DEFAULT_PATH),
        )
        .arg(request_dir())
        .arg(response_dir())
        .arg(log_dir())
}

/// What is looked at.
#[derive(Debug)]
struct Place {
    request_dir: PathBuf,
    response_dir: PathBuf,
    log_dir: PathBuf,
    config: PathBuf,
}

impl Place {
    fn of(matches: &ArgMatches) -> Self {
        let config = matches.get_one::<PathBuf>("config");
        Self {
            request_dir: request_dir_of(matches),
            response_dir: response_dir_of(matches),
            log_dir: log_dir_of(matches),
            config: config.cloned().unwrap_or_default(),
        }
    }
}

/// Checks, and says what it found. Exit 1 if anything is a FAIL.
#[must_use]
pub fn main(matches: &ArgMatches) -> ExitCode {
    let report = look(&Place::of(matches));
    let view = report.view(matches.get_flag("quiet"));
    match print(&view, matches.get_flag("json")) {
        Ok(()) if report.has_failed() => ExitCode::FAILURE,
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => failed(&fault),
    }
}

fn look(place: &Place) -> Report {
    let mut report = Report::default();
    let cluster = Cluster::read(&mut report);
    let devices = cluster.as_ref().map(|cluster| cluster.devices(&mut report));
    let devices = devices.unwrap_or_default();
    let spool = Spool::open(&place.request_dir, &place.response_dir, Trust::Checked);
    let is_needed = cluster.as_ref().is_none_or(|cluster| {
        devices.is_empty() || devices.iter().any(|device| cluster.runs_here(device))
    });
    node::agent(&mut report);
    let responder = match &spool {
        Ok(spool) => {
            node::spool(&mut report, spool);
            let responder = responder::look(&mut report, spool, place);
            selinux::look(&mut report, spool);
            responder
        }
        Err(fault) => {
            node::without_spool(&mut report, fault, place, is_needed);
            responder::Found::default()
        }
    };
    node::inotify(&mut report);
    node::logs(&mut report, &place.log_dir);
    if let Some(cluster) = &cluster {
        cluster.look(&mut report, &devices);
        for device in &devices {
            device.look(&mut report, cluster, &responder, place);
        }
    }
    report
}

/// A path as words of a line for people.
fn shown(path: &Path) -> String {
    crate::text::one_line(&path.to_string_lossy())
}
