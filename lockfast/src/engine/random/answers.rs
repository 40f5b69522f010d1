//! Random answers of the store, and which claims may be in its queue after them.

use super::*;
use crate::error::Error;

impl Chaos {
    pub(super) fn note_acquire(&mut self, asked: &AcquireCall) {
        self.owners.push(asked.claim.id.hash());
        self.entries.insert(asked.claim.id.hash().0);
    }

    /// The claim's release was sent, or the store says that the claim is gone.
    pub(super) fn note_left(&mut self, claim: &Claim) {
        self.entries.remove(&claim.id.hash().0);
    }

    pub(super) fn note_release(&mut self, leaving: &Leaving) {
        if let Some(claim) = leaving.claim()
            && !matches!(leaving, Leaving::UnlessAlone { .. })
        {
            self.note_left(claim);
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.ticket += 100;
        Ticket(self.ticket)
    }

    fn lost_answer<T>(&mut self) -> Result<T, Error> {
        match self.chance.u8(..) {
            ..200 => Err(Error::unavailable("testing", "the answer was lost")),
            _ => Err(Error::invalid("testing")),
        }
    }

    pub(super) fn admission(&mut self, asked: &AcquireCall) -> Result<Admission, Error> {
        let answer = self.any_admission();
        let is_out = match &answer {
            Ok(answer) => matches!(answer, Admission::Gone(_) | Admission::Sealed(_)),
            Err(error) => !error.is_retryable(),
        };
        // An earlier copy that has no answer may still run.
        if is_out && !asked.unsure {
            self.note_left(&asked.claim);
        }
        answer
    }

    fn any_admission(&mut self) -> Result<Admission, Error> {
        let recheck_in = Duration::from_millis(self.chance.u64(..2_000));
        let ticket = self.ticket();
        match self.chance.u8(..10) {
            0..3 => Ok(Admission::Held(Tickets::new(ticket, self.chance.u32(1..4)))),
            3..7 => Ok(Admission::Queued { ticket, position: 1, recheck_in }),
            7 => Ok(Admission::Gone(Why::Unknown)),
            8 if self.chance.bool() => Ok(Admission::Sealed(bytes::Bytes::new())),
            _ => self.lost_answer(),
        }
    }

    pub(super) fn standing(&mut self) -> Standing {
        let ticket = self.ticket();
        match self.chance.u8(..10) {
            0..4 => Standing::Held(Tickets::new(ticket, self.chance.u32(1..4))),
            4..6 => Standing::Waiting { ticket, recheck_in: Duration::from_millis(self.chance.u64(..2_000)) },
            6 => Standing::Gone(Why::Broken),
            7 => Standing::Gone(Why::Unknown),
            8 => Standing::Gone(Why::Expired),
            _ => Standing::Gone(Why::Left),
        }
    }

    /// A claim that leaves does not wait afterwards.
    pub(super) fn farewells(&mut self, claims: &[Arc<Claim>]) -> Result<Vec<Standing>, Error> {
        let mut standings = self.standings(claims)?;
        for (standing, claim) in standings.iter_mut().zip(claims) {
            if let Standing::Waiting { .. } = standing {
                *standing = Standing::Gone(Why::Left);
                self.note_left(claim);
            }
        }
        Ok(standings)
    }

    pub(super) fn standings(&mut self, claims: &[Arc<Claim>]) -> Result<Vec<Standing>, Error> {
        // Sometimes the store leaves an answer out.
        let count = match self.chance.u8(..10) {
            0..2 => return self.lost_answer(),
            2 => claims.len() - 1,
            _ => claims.len(),
        };
        let standings: Vec<_> = (0..count).map(|_| self.standing()).collect();
        for (index, claim) in claims.iter().enumerate() {
            if matches!(standings.get(index), None | Some(Standing::Gone(_))) {
                self.note_left(claim);
            }
        }
        Ok(standings)
    }
}
