//! What `tracer explain CODE` prints.

/// A finding's page. All text is plain, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Stable code.
    pub code: &'static str,
    /// A few words.
    pub title: &'static str,
    /// What it means for the person who asked.
    pub meaning: &'static str,
    /// What has to be seen before it is said.
    pub told: &'static str,
    /// What would rule it out.
    pub ruled_out: &'static str,
    /// What to check next; commands as they are typed.
    pub next: &'static [&'static str],
}
