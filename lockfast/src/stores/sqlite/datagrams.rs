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

use super::encoding::{Decoder, Encoder};
use super::runtime_dir::{Endpoint, Liveness, ProcessId};
use super::view::Message;

/// The first byte of every datagram. Datagrams with another one are ignored.
const FORMAT_VERSION: u8 = 1;
/// A datagram of this many bytes gets no further message. So it stays below [`MAX_DATAGRAM_BYTES`], whatever the length
/// of its last message.
const FULL_AT_BYTES: usize = 16 * 1024;
/// The size of the receive buffer.
const MAX_DATAGRAM_BYTES: usize = 64 * 1024;
/// At most this many datagrams are kept for receivers whose socket buffer is full; then the oldest is dropped.
const MAX_PENDING: usize = 1024;

/// One message of a datagram.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReceivedMessage {
    pub(super) client: ClientId,
    pub(super) message: Message,
}

/// Sends datagrams, and keeps datagrams that could not be sent yet.
#[derive(Debug, Default)]
pub(super) struct DatagramSender {
    /// Datagrams whose receiver's socket buffer was full.
    pending: Mutex<VecDeque<(ProcessId, Vec<u8>)>>,
}

impl DatagramSender {
    /// Sends the messages. Returns the processes whose socket is missing or refuses.
    pub(super) fn send(&self, from: &Endpoint, messages: &[(ProcessId, ClientId, Message)]) -> Vec<ProcessId> {
        let mut by_process: BTreeMap<ProcessId, Vec<Encoder>> = BTreeMap::new();
        for (process, client, message) in messages {
            let datagrams = by_process.entry(*process).or_default();
            if datagrams.last().is_none_or(|last| last.0.len() >= FULL_AT_BYTES) {
                datagrams.push(Encoder(vec![FORMAT_VERSION]));
            }
            if let Some(last) = datagrams.last_mut() {
                encode(last, *client, message);
            }
        }
        let mut unreachable = Vec::new();
        for (process, datagrams) in by_process {
            for Encoder(datagram) in datagrams {
                match from.socket.send_to(&datagram, from.dir.address_of(process)) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.defer(process, datagram);
                    }
                    Err(error)
                        if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
                    {
                        unreachable.push(process);
                    }
                    // Counts as lost.
                    Err(_) => {}
                }
            }
        }
        unreachable
    }

    /// Whether datagrams are left to send again.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending().is_empty()
    }

    /// Sends the kept datagrams again, and returns whether one of them left the list. A stopped receiver may continue
    /// some day; for one that is not seen alive the datagram is dropped.
    pub(super) fn retry_pending(&self, from: &Endpoint) -> bool {
        let mut has_progress = false;
        let pending = std::mem::take(&mut *self.pending());
        for (process, datagram) in pending {
            match from.socket.send_to(&datagram, from.dir.address_of(process)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if matches!(from.dir.liveness_of(process), Liveness::Alive(_)) {
                        self.defer(process, datagram);
                    }
                }
                _ => has_progress = true,
            }
        }
        has_progress
    }

    fn defer(&self, process: ProcessId, datagram: Vec<u8>) {
        let mut pending = self.pending();
        if pending.len() >= MAX_PENDING {
            pending.pop_front();
        }
        pending.push_back((process, datagram));
    }

    fn pending(&self) -> MutexGuard<'_, VecDeque<(ProcessId, Vec<u8>)>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All messages that have arrived from trusted users.
pub(super) fn receive(at: &Endpoint) -> Vec<ReceivedMessage> {
    let mut received = Vec::new();
    let mut datagram = vec![0; MAX_DATAGRAM_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut datagram)];
        let Ok(read) = rustix::net::recvmsg(&at.socket, &mut parts, &mut control, RecvFlags::DONTWAIT) else {
            return received;
        };
        let sender = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.uid.as_raw()),
            _ => None,
        });
        if sender.is_some_and(|user| at.dir.trusts(user)) {
            decode(&datagram[..read.bytes], &mut received);
        }
    }
}

/// Appends one message: client id, tag byte, fields. Part of the format, as are the tags in `decode`.
fn encode(to: &mut Encoder, client: ClientId, message: &Message) {
    to.number(client.0);
    match message {
        Message::Change(Change::Held(owner, ticket)) => to.byte(1).hash(*owner).number(ticket.0),
        Message::Change(Change::Gone(owner)) => to.byte(2).hash(*owner),
        Message::Change(Change::Resource(name)) => to.byte(3).text(name.as_str()),
        Message::AheadChanged(owner) => to.byte(4).hash(*owner),
        Message::Change(Change::Resync) => to.byte(5),
        Message::Change(Change::Recheck(owner, span)) => to.byte(6).hash(*owner).number(span.as_millis() as u64),
    };
}

fn decode(datagram: &[u8], received: &mut Vec<ReceivedMessage>) {
    let mut bytes = Decoder(datagram);
    if bytes.byte() != Some(FORMAT_VERSION) {
        return;
    }
    let mut next = || {
        let client = ClientId(bytes.number()?);
        let message = match bytes.byte()? {
            1 => Message::Change(Change::Held(bytes.hash()?, Ticket(bytes.number()?))),
            2 => Message::Change(Change::Gone(bytes.hash()?)),
            3 => Message::Change(Change::Resource(Name::stored(bytes.text()?))),
            4 => Message::AheadChanged(bytes.hash()?),
            5 => Message::Change(Change::Resync),
            6 => Message::Change(Change::Recheck(bytes.hash()?, Duration::from_millis(bytes.number()?))),
            _ => return None,
        };
        Some(ReceivedMessage { client, message })
    };
    while let Some(message) = next() {
        received.push(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::ClaimHash;

    #[test]
    fn messages_survive_encoding_and_a_torn_one_is_dropped() {
        let owner = ClaimHash([7; 16]);
        let messages = [
            Message::Change(Change::Held(owner, Ticket(u64::MAX))),
            Message::Change(Change::Gone(owner)),
            Message::Change(Change::Resource(Name::new("a\0{b}").unwrap())),
            Message::AheadChanged(owner),
            Message::Change(Change::Resync),
            Message::Change(Change::Recheck(owner, Duration::from_millis(2_500))),
        ];
        let mut datagram = Encoder(vec![FORMAT_VERSION]);
        messages.iter().for_each(|message| encode(&mut datagram, ClientId(9), message));
        let mut received = Vec::new();
        decode(&datagram.0, &mut received);
        assert_eq!(received.iter().map(|received| received.message.clone()).collect::<Vec<_>>(), messages);
        for length in 0..datagram.0.len() {
            let mut decoded = Vec::new();
            decode(&datagram.0[..length], &mut decoded);
            assert!(decoded.len() < messages.len() && decoded.iter().zip(&received).all(|(one, other)| one == other));
        }
    }
}
