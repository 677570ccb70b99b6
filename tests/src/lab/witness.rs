//! What the servers saw: one line per request in `/run/tracer-lab/log/NAME.log`.
//!
//! Tests compare a trace with these lines, which the tracer has no part in writing.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::state;

/// Where the logs are kept.
pub fn dir() -> PathBuf {
    Path::new(state::DIR).join("log")
}

/// One request, datagram or closed connection as the server saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// When it was over, in nanoseconds since the Unix epoch.
    pub at: u64,
    /// `tcp` or `udp`.
    pub proto: String,
    /// Who asked, as the server's socket saw it.
    pub peer: SocketAddr,
    /// What was asked: a request line, a DNS question, or `closed` for the end of a connection.
    pub request: String,
    /// Bytes read; over the whole connection for `closed`.
    pub received: u64,
    /// Bytes written; over the whole connection for `closed`.
    pub sent: u64,
}

/// The log of one server.
#[derive(Debug)]
pub struct Log(File);

impl Log {
    /// Opens the log of the server of that name.
    pub fn open(name: &str) -> Result<Self> {
        let path = dir().join(format!("{name}.log"));
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .map(Self)
            .with_context(|| format!("opening {}", path.display()))
    }

    /// Writes one line; a server goes on serving when its log cannot be written.
    pub fn write(&self, proto: &str, peer: SocketAddr, request: &str, received: u64, sent: u64) {
        let access = Access {
            at: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_nanos() as u64,
            proto: proto.to_owned(),
            peer,
            request: request.to_owned(),
            received,
            sent,
        };
        let written = serde_json::to_string(&access)
            .map_err(std::io::Error::from)
            .and_then(|line| (&self.0).write_all(format!("{line}\n").as_bytes()));
        if let Err(error) = written {
            eprintln!("access log: {error}");
        }
    }
}

/// Everything the server of that name has logged since the laboratory went up.
pub fn read(name: &str) -> Result<Vec<Access>> {
    let path = dir().join(format!("{name}.log"));
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    text.lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("in {}", path.display())))
        .collect()
}
