//! The state of one open store in this process: the file, its endpoint in the runtime directory, and the watch thread.
//! Delivers messages, and removes the claims of dead processes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::claim::{Claim, ClaimMap, ClientId, Ticket};
use crate::store::Change;

use super::super::subscribers::Subscribers;
use super::boot_time::BootTime;
use super::datagrams::DatagramSender;
use super::deaths::DeathWatch;
use super::file::File;
use super::file_wait::{FileWait, Patience};
use super::runtime_dir::{Endpoint, Liveness, ProcessId};
use super::transaction::{Durable, TransactionResult};
use super::view::{Message, Messages, TransactionView};

/// The first pause before datagrams are sent again whose receiver's socket buffer was full. The pause doubles, up to
/// [`MAX_RETRY_PAUSE`], while no datagram gets through.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(2);
const MAX_RETRY_PAUSE: Duration = Duration::from_millis(250);

pub(super) struct OpenStore {
    /// The path of the database file.
    pub(super) path: PathBuf,
    pub(super) time: BootTime,
    pub(super) file_state: Mutex<FileState>,
    pub(super) subscribers: Mutex<Subscribers>,
    pub(super) endpoint: Endpoint,
    pub(super) death_watch: DeathWatch,
    pub(super) datagrams: DatagramSender,
    pub(super) file_wait: FileWait,
}

/// What a transaction needs exclusively.
#[derive(Debug)]
pub(super) struct FileState {
    /// `None` if the file has to be opened again.
    pub(super) file: Option<File>,
    /// The tickets of this process's claims.
    pub(super) known_tickets: ClaimMap<Ticket>,
}

impl FileState {
    /// Whether the file is open, and its path still leads to it.
    pub(super) fn is_current(&self) -> bool {
        self.file.as_ref().is_some_and(File::is_current)
    }
}

impl OpenStore {
    /// Delivers messages to local subscribers and to other processes, and then the messages that follow from that: a
    /// receiver may turn out to be dead, and the removal of its claims grants others.
    pub(super) fn deliver(self: &Arc<Self>, mut messages: Messages) {
        while !messages.is_empty() {
            let (local, remote): (Messages, Messages) =
                std::mem::take(&mut messages).into_iter().partition(|(process, ..)| *process == self.endpoint.process);
            for (_, client, message) in local {
                messages.extend(self.handle(client, message));
            }
            for process in self.datagrams.send(&self.endpoint, &remote) {
                let is_dead = matches!(self.endpoint.dir.liveness_of(process), Liveness::Dead);
                messages.extend(self.follow_up(move |store, patience| match is_dead {
                    true => store.remove_dead_process(process, patience),
                    false => store.remove_watchers_of(process, patience),
                }));
            }
            if self.datagrams.has_pending() {
                self.death_watch.wake();
            }
        }
    }

    /// Removes the claims of a dead process, then its files. Returns the messages that follow.
    pub(super) fn remove_dead_process(
        &self,
        process: ProcessId,
        patience: Patience<'_>,
    ) -> TransactionResult<Messages> {
        let ((), messages) =
            self.transaction("tidying up in", Durable::No, patience, |view| Ok(view.remove_dead_process(process)?))?;
        // Order matters: other processes see by the pipe that the process is dead. Removed first, the death would
        // become unknown while claims are left.
        self.endpoint.dir.remove_files_of(process);
        Ok(messages)
    }

    /// Removes the watcher rows of a process without a socket.
    fn remove_watchers_of(&self, process: ProcessId, patience: Patience<'_>) -> TransactionResult<Messages> {
        let remove = |view: &mut TransactionView<'_>| Ok(view.remove_watchers_of(process)?);
        self.transaction("tidying up in", Durable::No, patience, remove).map(|((), messages)| messages)
    }

    /// Handles one message for this process. Returns the messages that follow.
    pub(super) fn handle(self: &Arc<Self>, client: ClientId, message: Message) -> Messages {
        match message {
            Message::AheadChanged(owner) => self.death_watch.waiter(owner).map_or_else(Messages::new, |claim| {
                self.follow_up(move |store, patience| store.refresh_death_watch(&claim, patience))
            }),
            Message::Change(change) => {
                if let Change::Held(owner, _) | Change::Gone(owner) = &change {
                    self.death_watch.forget(*owner);
                }
                let mut to_wake = Vec::new();
                let mut subscribers = self.subscribers();
                match &change {
                    Change::Resource(name) => subscribers.push_queue_change(name, &mut to_wake),
                    other => subscribers.push_to_client(client, other, &mut to_wake),
                }
                let is_unwatched = matches!(change, Change::Resource(_)) && !subscribers.has_queue_watchers();
                drop(subscribers);
                to_wake.iter().for_each(|inbox| inbox.wake());
                // If `stop_watching` fails, the next change of a queue repeats it.
                if is_unwatched {
                    self.follow_up(|store, patience| store.stop_watching(patience))
                } else {
                    Messages::new()
                }
            }
        }
    }

    /// Ends notifications about queues, unless a local subscriber has come in the meantime.
    fn stop_watching(&self, patience: Patience<'_>) -> TransactionResult<Messages> {
        let stop = |view: &mut TransactionView<'_>| {
            if !self.subscribers().has_queue_watchers() {
                view.remove_watchers_of(self.endpoint.process)?;
            }
            Ok(())
        };
        self.transaction("watching", Durable::No, patience, stop).map(|((), messages)| messages)
    }

    /// Determines again which deaths a waiter has to watch for, and watches them. Returns the messages that follow. If
    /// it fails, the lease of the claim ahead ends that claim.
    fn refresh_death_watch(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        patience: Patience<'_>,
    ) -> TransactionResult<Messages> {
        let (dead, mut messages) = self.transaction("reading", Durable::No, patience, |view| {
            Ok(match view.living_entry_of(claim)? {
                Some(entry) if !entry.holds() => self.watch_processes_ahead(view, claim)?,
                _ => {
                    self.death_watch.forget(claim.id.hash());
                    Vec::new()
                }
            })
        })?;
        messages.extend(self.remove_dead_processes_ahead(claim, dead));
        Ok(messages)
    }

    /// Watches the processes whose death matters to a waiter. Returns the processes that are dead already.
    ///
    /// Order matters: this runs inside the transaction, while no other process can change the queue. After the
    /// transaction, `AheadChanged` could arrive before the death watch knows the claim, and would be ignored.
    pub(super) fn watch_processes_ahead(
        &self,
        view: &mut TransactionView<'_>,
        claim: &Arc<Claim>,
    ) -> rusqlite::Result<Vec<ProcessId>> {
        let processes = view.processes_to_watch_for(claim)?;
        Ok(self.death_watch.watch(claim, processes, &self.endpoint.dir))
    }

    /// Removes the claims of these dead processes ahead of a waiter. Returns the messages that follow.
    pub(super) fn remove_dead_processes_ahead(self: &Arc<Self>, claim: &Arc<Claim>, dead: Vec<ProcessId>) -> Messages {
        let mut messages = Messages::new();
        for process in dead {
            let (client, owner) = (claim.client, claim.id.hash());
            messages.extend(self.follow_up(move |store, patience| {
                // Order matters: only a removal that succeeded leads to another check. A process that cannot be removed
                // would be found dead and checked again for ever.
                let mut follow_ups = store.remove_dead_process(process, patience)?;
                // Other claims may be ahead now.
                follow_ups.push((store.endpoint.process, client, Message::AheadChanged(owner)));
                Ok(follow_ups)
            }));
        }
        messages
    }

    /// The loop of the watch thread.
    pub(super) fn watch_loop(self: &Arc<Self>) {
        let mut pause = FIRST_RETRY_PAUSE;
        while let Some(wakeup) = self.death_watch.next(&self.endpoint, self.datagrams.has_pending().then_some(pause)) {
            for received in wakeup.received {
                let messages = self.handle(received.client, received.message);
                self.deliver(messages);
            }
            for (process, claims) in wakeup.deaths {
                let mut messages = self.follow_up(move |store, patience| store.remove_dead_process(process, patience));
                for claim in claims {
                    let client = claim.client;
                    messages.extend(self.follow_up(move |store, patience| store.refresh_death_watch(&claim, patience)));
                    // The process may have died after it handed a lock off and before it sent the message, so its
                    // waiters poll.
                    messages.push((self.endpoint.process, client, Message::Change(Change::Resync)));
                }
                self.deliver(messages);
            }
            // Only a failed retry lengthens the pause.
            let has_failed = self.datagrams.has_pending() && !self.datagrams.retry_pending(&self.endpoint);
            pause = if has_failed { (pause * 2).min(MAX_RETRY_PAUSE) } else { FIRST_RETRY_PAUSE };
        }
    }

    /// Whether this process knows of claims of its own in the file.
    pub(super) fn has_claims(&self) -> bool {
        !self.file_state().known_tickets.is_empty()
    }

    pub(super) fn file_state(&self) -> MutexGuard<'_, FileState> {
        self.file_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscribers(&self) -> MutexGuard<'_, Subscribers> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
