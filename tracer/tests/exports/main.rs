//! What is exported, read by other people's programs: every kept recording, and
//! one made by an enemy.
//!
//! Needs `tshark` and Chromium, and Mermaid as `cargo xtask setup --exports` leaves it.
//! What is missing fails a test with the reason.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod browser;
mod collector;
mod command;
mod samples;
mod schema;
mod server;
mod wireshark;
