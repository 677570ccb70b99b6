//! Writing a file from inside, on a thread of its own: whole under its name, or
//! not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::thread;

use super::model::Snapshot;
use crate::output::format::Format;

/// Starts it; `done` is told what came of it.
pub(super) fn begin(
    format: &'static Format,
    path: PathBuf,
    snapshot: Snapshot,
    done: &Sender<Result<String, String>>,
) {
    let result = done.clone();
    let name = path.display().to_string();
    let work = move || {
        let told = match write(format, &path, snapshot) {
            Ok(packets) => Ok(format!(
                "{packets} packets written to {} as {}",
                path.display(),
                format.name
            )),
            Err(e) => Err(format!("cannot write {}: {e}", path.display())),
        };
        // Nobody listens once the screen is left.
        let _ = result.send(told);
    };
    if let Err(e) = thread::Builder::new().name("export".into()).spawn(work) {
        let _ = done.send(Err(format!("cannot write {name}: {e}")));
    }
}

/// Writes beside the name first; a file that is there is left alone.
fn write(format: &Format, path: &Path, snapshot: Snapshot) -> io::Result<usize> {
    if path.exists() {
        return Err(io::Error::other("it exists already; choose another name"));
    }
    let trace = snapshot.into_trace();
    let mut name = path
        .file_name()
        .ok_or_else(|| io::Error::other("that is no file name"))?
        .to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&part)?;
    let written = fill(file, format, &trace)
        // A link fails where the name was taken meanwhile; a rename would not.
        .and_then(|()| fs::hard_link(&part, path));
    let _ = fs::remove_file(&part);
    written.map(|()| trace.packets.len())
}

fn fill(file: File, format: &Format, trace: &crate::trace::Trace) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    (format.write)(&mut out, trace)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::format::FORMATS;
    use crate::recording;
    use crate::tui::model::Model;
    use crate::tui::samples;

    fn snapshot() -> Snapshot {
        let trace = samples::recording("c11");
        let mut model = Model::new(trace.header.clone(), usize::MAX);
        model.load(trace);
        model.snapshot()
    }

    #[test]
    fn every_format_is_written_whole_and_nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        for format in FORMATS {
            let path = dir.path().join(format!("trace.{}", format.name));
            let packets = write(format, &path, snapshot()).unwrap();
            assert!(packets > 0);
            if format.name.starts_with("json") {
                let (trace, _) = recording::read(&path).unwrap();
                assert_eq!(trace, samples::recording("c11"), "{}", format.name);
            }
            let again = write(format, &path, snapshot()).unwrap_err();
            assert!(again.to_string().contains("exists"), "{again}");
        }
        let left = fs::read_dir(&dir).unwrap().count();
        assert_eq!(left, FORMATS.len(), "no part is left");
    }
}
