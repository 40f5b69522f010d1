//! What a client of a place is told.

use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Claim, Ticket};
use crate::store::{Change, Standing};

use super::executor::within;
use super::place::Client;

/// A push that takes longer than this is lost.
const PUSHED_WITHIN: Duration = Duration::from_secs(10);

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
        let next = within(PUSHED_WITHIN, pushes.recv()).await;
        next.expect("a push within ten seconds").expect("the listener lives as long as its client")
    }

    /// The claim is told that it holds, with this ticket; or told to ask, asks, and holds. Nothing else comes before that.
    pub async fn told_held(&self, claim: &Arc<Claim>, ticket: Ticket) {
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

    /// The claim is told that a lease ahead ends after `span`; or told to ask, and asks. Nothing else comes before that.
    pub async fn told_recheck(&self, claim: &Arc<Claim>, span: Duration) {
        match self.any_push().await {
            Change::Resync => {}
            Change::Recheck(owner, told) => {
                assert_eq!(owner, claim.id.hash());
                assert!(told <= span && told + Duration::from_millis(500) >= span, "{told:?} instead of {span:?}");
            }
            change => panic!("told {change:?}"),
        }
    }

    /// The claim is told that it is gone; or told to ask, asks, and is gone. Nothing else comes before that.
    pub async fn told_gone(&self, claim: &Arc<Claim>) {
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
