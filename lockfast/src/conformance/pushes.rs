//! Assertions about the pushes of a client.

use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Claim, Ticket};
use crate::store::{Change, Standing};

use super::executor::within;
use super::fixture::Client;

/// A push that takes longer than this counts as lost.
const PUSH_TIMEOUT: Duration = Duration::from_secs(10);

impl Client<'_> {
    /// The next push that is not `Resync`.
    pub async fn next_push(&self) -> Change {
        loop {
            match self.any_push().await {
                Change::Resync => {}
                change => return change,
            }
        }
    }

    async fn any_push(&self) -> Change {
        let mut pushes = self.pushes.lock().await;
        let next = within(PUSH_TIMEOUT, pushes.recv()).await;
        next.expect("a push within ten seconds").expect("the subscription lives as long as its client")
    }

    /// The next push says that the claim holds with this ticket, or is a `Resync` after which a renewal says so. No
    /// other push comes before.
    pub async fn expect_push_held(&self, claim: &Arc<Claim>, ticket: Ticket) {
        loop {
            match self.any_push().await {
                Change::Resync => {
                    if matches!(self.renew(claim).await, Standing::Held(tickets) if tickets.first == ticket) {
                        return;
                    }
                }
                change => return assert_eq!(change, Change::Held(claim.id.hash(), ticket)),
            }
        }
    }

    /// The next push says that a lease ahead ends after `span`, or is a `Resync`. No other push comes before.
    pub async fn expect_push_recheck(&self, claim: &Arc<Claim>, span: Duration) {
        match self.any_push().await {
            Change::Resync => {}
            Change::Recheck(owner, pushed) => {
                assert_eq!(owner, claim.id.hash());
                assert!(
                    pushed <= span && pushed + Duration::from_millis(500) >= span,
                    "{pushed:?} instead of {span:?}"
                );
            }
            change => panic!("pushed {change:?}"),
        }
    }

    /// The next push says that the claim is gone, or is a `Resync` after which a renewal says so. No other push comes
    /// before.
    pub async fn expect_push_gone(&self, claim: &Arc<Claim>) {
        loop {
            match self.any_push().await {
                Change::Resync => {
                    if matches!(self.renew(claim).await, Standing::Gone(_)) {
                        return;
                    }
                }
                change => return assert_eq!(change, Change::Gone(claim.id.hash())),
            }
        }
    }
}
