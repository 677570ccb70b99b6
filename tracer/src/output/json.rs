//! `-o json`: the whole trace as one object.

use std::io::{self, Write};

use crate::trace::Trace;

/// Writes the trace, and a line end.
pub fn write(out: &mut dyn Write, trace: &Trace) -> io::Result<()> {
    serde_json::to_writer(&mut *out, trace)?;
    out.write_all(b"\n")?;
    out.flush()
}
