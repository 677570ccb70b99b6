//! What every form has to stand.

use super::*;
use crate::output::samples;

fn written(format: &Format, trace: &Trace) -> Vec<u8> {
    let mut out = Vec::new();
    (format.write)(&mut out, trace).unwrap();
    out
}

#[test]
fn every_form_stands_nothing_and_hostility() {
    for format in FORMATS {
        for trace in [samples::empty(), samples::hostile()] {
            let out = written(format, &trace);
            assert!(!out.is_empty(), "{}", format.name);
            if !format.binary {
                let text = String::from_utf8(out).unwrap();
                let bad = text.chars().find(|c| {
                    (c.is_control() && !matches!(c, '\n'))
                        || (*c == '\u{202e}' && !format.name.starts_with("json"))
                });
                assert_eq!(bad, None, "{}", format.name);
            }
        }
    }
}

#[test]
fn writing_twice_gives_the_same() {
    let trace = samples::recording("c26");
    for format in FORMATS {
        assert_eq!(
            written(format, &trace),
            written(format, &trace),
            "{}",
            format.name
        );
    }
}
