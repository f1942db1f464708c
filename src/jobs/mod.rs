//! What is recorded of the responder's jobs: written by the responder, read by people's commands.

pub mod record;
pub mod store;
