//! Interruption by SIGINT and SIGTERM.

/// Waits for SIGINT or SIGTERM and returns which one it was. Both are handled from the call on, not from the first poll: a
/// signal in between must not end the process before it has cleaned up.
#[cfg(unix)]
pub(crate) fn interrupted() -> impl Future<Output = u8> {
    use tokio::signal::unix::{SignalKind, signal};
    let both = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = both else {
            // Without a handler, the signal ends the process by default.
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
