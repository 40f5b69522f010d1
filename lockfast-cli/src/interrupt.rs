//! Being asked to stop.

/// Until somebody asks this process to stop, by Ctrl-C or `kill`; which signal it was. Counts from the call on, not from when
/// it is first waited for: a signal in between must not end the process with something left undone.
#[cfg(unix)]
pub(crate) fn interrupted() -> impl Future<Output = u8> {
    use tokio::signal::unix::{SignalKind, signal};
    let both = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = both else {
            // Without a way to be told, the signal ends the process as it always does.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => 2,
            _ = terminate.recv() => 15,
        }
    }
}

#[cfg(not(unix))]
pub(crate) async fn interrupted() -> u8 {
    match tokio::signal::ctrl_c().await {
        Ok(()) => 2,
        Err(_) => std::future::pending().await,
    }
}
