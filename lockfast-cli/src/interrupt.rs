//! Interruption by SIGINT and SIGTERM.

const SIGINT: u8 = 2;
#[cfg(unix)]
const SIGTERM: u8 = 15;

/// Waits for SIGINT or SIGTERM and returns the signal's number. Both are handled from the call on, not from the first poll: a
/// signal in between must not end the process before it has cleaned up.
#[cfg(unix)]
pub(crate) fn interruption() -> impl Future<Output = u8> {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
            // Without a handler, the signal ends the process by default.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => SIGINT,
            _ = terminate.recv() => SIGTERM,
        }
    }
}

#[cfg(not(unix))]
pub(crate) async fn interruption() -> u8 {
    match tokio::signal::ctrl_c().await {
        Ok(()) => SIGINT,
        Err(_) => std::future::pending().await,
    }
}
