//! The work of `tracer probe`, done beside the loop on a thread of its own.

use std::io;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::cli::Failure;
use crate::connect::Prober;
use crate::netns;

/// The end of a probe's work: whether its namespace could be entered.
pub(super) type Work = oneshot::Receiver<io::Result<()>>;

/// Starts a probe's work on a thread of its own, in the pod's namespace.
pub(super) fn begin(prober: &Arc<Prober>) -> Result<Work, Failure> {
    let (done, work) = oneshot::channel();
    let prober = Arc::clone(prober);
    netns::spawn_in(Arc::clone(prober.netns()), "probe", move |entered| {
        if entered.is_ok() {
            prober.run();
        }
        // Nobody listens any more when the run was interrupted.
        let _ = done.send(entered);
    })
    .map_err(|e| Failure::new(format!("cannot start a thread: {e}")))?;
    Ok(work)
}

/// Waits for the end of the work, which is told once.
pub(super) async fn ended(work: &mut Option<Work>) -> Option<io::Result<()>> {
    let told = work.as_mut()?.await;
    *work = None;
    Some(told.unwrap_or_else(|_| Err(io::Error::other("the probe's thread died"))))
}
