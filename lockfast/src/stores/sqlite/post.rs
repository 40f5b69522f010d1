//! Datagrams between processes: after a transaction, one for each process that has messages to receive.
//!
//! A lost datagram costs time, never safety: every waiter asks again before its lease ends.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::claim::{ClientId, Ticket};
use crate::name::Name;
use crate::store::Change;

use super::home::{Home, Life, Residence};
use super::ledger::Letter;
use super::pack::{Packing, Unpacking};

/// The first byte of every datagram.
const FORMAT: u8 = 1;
/// A datagram of this many bytes takes no further message; with the longest name it stays well below what a socket
/// takes.
const ENOUGH: usize = 16 * 1024;
const LARGEST: usize = 64 * 1024;
/// How many datagrams are kept for receivers whose socket buffer is full; beyond, the oldest is dropped.
const KEPT: usize = 1024;

/// One message of a datagram.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) client: ClientId,
    pub(super) letter: Letter,
}

/// Sends datagrams, and keeps those that could not be sent yet.
#[derive(Debug, Default)]
pub(super) struct Post {
    /// Datagrams whose receiver's socket buffer was full.
    kept: Mutex<VecDeque<(Home, Vec<u8>)>>,
}

impl Post {
    /// Sends the messages. Returns the processes whose socket is missing or refuses.
    pub(super) fn send(&self, from: &Residence, letters: &[(Home, ClientId, Letter)]) -> Vec<Home> {
        let mut bundles: BTreeMap<Home, Vec<Packing>> = BTreeMap::new();
        for (home, client, letter) in letters {
            let bundle = bundles.entry(*home).or_default();
            if bundle.last().is_none_or(|last| last.0.len() >= ENOUGH) {
                bundle.push(Packing(vec![FORMAT]));
            }
            if let Some(last) = bundle.last_mut() {
                write(last, *client, letter);
            }
        }
        let mut unreached = Vec::new();
        for (home, datagrams) in bundles {
            for Packing(datagram) in datagrams {
                match from.socket.send_to(&datagram, from.street.address_of(home)) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.keep(home, datagram);
                    }
                    Err(error)
                        if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
                    {
                        unreached.push(home);
                    }
                    // Counts as lost.
                    Err(_) => {}
                }
            }
        }
        unreached
    }

    /// Whether datagrams are left to send again.
    pub(super) fn is_waiting(&self) -> bool {
        !self.kept().is_empty()
    }

    /// Sends the kept datagrams again, and returns whether one of them left the list. A stopped receiver may continue
    /// some day; for one that is not seen alive the datagram is dropped.
    pub(super) fn try_again(&self, from: &Residence) -> bool {
        let mut moved = false;
        let kept = std::mem::take(&mut *self.kept());
        for (home, datagram) in kept {
            match from.socket.send_to(&datagram, from.street.address_of(home)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if matches!(from.street.look_at(home), Life::Alive(_)) {
                        self.keep(home, datagram);
                    }
                }
                _ => moved = true,
            }
        }
        moved
    }

    fn keep(&self, home: Home, datagram: Vec<u8>) {
        let mut kept = self.kept();
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back((home, datagram));
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<(Home, Vec<u8>)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All messages that have arrived from trusted users.
pub(super) fn receive(at: &Residence) -> Vec<Heard> {
    let mut heard = Vec::new();
    let mut datagram = vec![0; LARGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut datagram)];
        let Ok(received) = rustix::net::recvmsg(&at.socket, &mut parts, &mut control, RecvFlags::DONTWAIT) else {
            return heard;
        };
        let sender = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.uid.as_raw()),
            _ => None,
        });
        if sender.is_some_and(|user| at.street.trusts(user)) {
            read(&datagram[..received.bytes], &mut heard);
        }
    }
}

fn write(to: &mut Packing, client: ClientId, letter: &Letter) {
    to.number(client.0);
    match letter {
        Letter::Change(Change::Held(owner, ticket)) => to.byte(1).hash(*owner).number(ticket.0),
        Letter::Change(Change::Gone(owner)) => to.byte(2).hash(*owner),
        Letter::Change(Change::Resource(name)) => to.byte(3).text(name.as_str()),
        Letter::LookAgain(owner) => to.byte(4).hash(*owner),
        Letter::Change(Change::Resync) => to.byte(5),
        Letter::Change(Change::Recheck(owner, span)) => to.byte(6).hash(*owner).number(span.as_millis() as u64),
    };
}

fn read(datagram: &[u8], heard: &mut Vec<Heard>) {
    let mut bytes = Unpacking(datagram);
    if bytes.byte() != Some(FORMAT) {
        return;
    }
    let mut next = || {
        let client = ClientId(bytes.number()?);
        let letter = match bytes.byte()? {
            1 => Letter::Change(Change::Held(bytes.hash()?, Ticket(bytes.number()?))),
            2 => Letter::Change(Change::Gone(bytes.hash()?)),
            3 => Letter::Change(Change::Resource(Name::stored(bytes.text()?))),
            4 => Letter::LookAgain(bytes.hash()?),
            5 => Letter::Change(Change::Resync),
            6 => Letter::Change(Change::Recheck(bytes.hash()?, Duration::from_millis(bytes.number()?))),
            _ => return None,
        };
        Some(Heard { client, letter })
    };
    while let Some(letter) = next() {
        heard.push(letter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::ClaimHash;

    #[test]
    fn letters_arrive_as_they_were_written_and_a_torn_one_is_not_read() {
        let owner = ClaimHash([7; 16]);
        let letters = [
            Letter::Change(Change::Held(owner, Ticket(u64::MAX))),
            Letter::Change(Change::Gone(owner)),
            Letter::Change(Change::Resource(Name::new("a\0{b}").unwrap())),
            Letter::LookAgain(owner),
            Letter::Change(Change::Resync),
            Letter::Change(Change::Recheck(owner, Duration::from_millis(2_500))),
        ];
        let mut datagram = Packing(vec![FORMAT]);
        letters.iter().for_each(|letter| write(&mut datagram, ClientId(9), letter));
        let mut heard = Vec::new();
        read(&datagram.0, &mut heard);
        assert_eq!(heard.iter().map(|heard| heard.letter.clone()).collect::<Vec<_>>(), letters);
        for length in 0..datagram.0.len() {
            let mut some = Vec::new();
            read(&datagram.0[..length], &mut some);
            assert!(some.len() < letters.len() && some.iter().zip(&heard).all(|(one, other)| one == other));
        }
    }
}
