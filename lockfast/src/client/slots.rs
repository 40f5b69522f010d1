//! The parties of one client, each under a key that is never confused with a later one; and the wheel that says when each
//! wants to be looked at.
//!
//! 1. A party is on the wheel at most once, and `Slot::spoke` says where.
//! 2. Keys carry a generation: the key of a party that left finds nothing.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::clock::Moment;

use super::slot::Slot;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

/// Where on the wheel a party is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spoke {
    at: NonZeroU64,
    index: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// In pages, since a vector of them all would be copied, with everybody waiting, each time it grows.
    pages: Vec<Box<[Cell; PAGE]>>,
    /// How many cells have ever been used.
    used: u32,
    free: Vec<u32>,
    wheel: BTreeMap<NonZeroU64, Vec<Key>>,
    len: usize,
}

#[derive(Debug, Default)]
struct Cell {
    generation: u32,
    slot: Option<Slot>,
}

const PAGE: usize = 64;

/// The grain of deadlines: about a millisecond, rounded up, so that nothing is looked at before its time.
const FINE: u64 = 1 << 20;

impl Slots {
    pub(crate) fn insert(&mut self, slot: Slot) -> Key {
        self.len += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            if self.used as usize == self.pages.len() * PAGE {
                self.pages.push(Box::new(std::array::from_fn(|_| Cell::default())));
            }
            self.used = self.used.checked_add(1).expect("four billion parties do not fit into memory");
            self.used - 1
        });
        let cell = self.cell_mut(index);
        cell.slot = Some(slot);
        Key { index, generation: cell.generation }
    }

    fn cell_mut(&mut self, index: u32) -> &mut Cell {
        &mut self.pages[index as usize / PAGE][index as usize % PAGE]
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Slot> {
        let cell = &self.pages[key.index as usize / PAGE][key.index as usize % PAGE];
        cell.slot.as_ref().filter(|_| cell.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Slot> {
        let cell = self.cell_mut(key.index);
        cell.slot.as_mut().filter(|_| cell.generation == key.generation)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Slot> {
        self.unschedule(key);
        self.get(key)?;
        self.free.push(key.index);
        self.len -= 1;
        let cell = self.cell_mut(key.index);
        cell.generation = cell.generation.wrapping_add(1);
        cell.slot.take()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (Key, &Slot)> {
        self.pages.iter().flat_map(|page| &**page).enumerate().filter_map(|(index, cell)| {
            let key = Key { index: index as u32, generation: cell.generation };
            cell.slot.as_ref().map(|slot| (key, slot))
        })
    }

    /// Looks at the party up to a thirtieth of `period` before `at`, together with others: for what comes round with that
    /// period.
    pub(crate) fn schedule_roughly(&mut self, key: Key, at: Moment, period: Duration) {
        let grain = (period.as_nanos() as u64 / 32).next_power_of_two() >> 1;
        self.schedule_at(key, at.as_nanos() & !(grain.max(1) - 1));
    }

    /// Looks at the party at `at`, or within the millisecond after it: for deadlines.
    pub(crate) fn schedule(&mut self, key: Key, at: Moment) {
        self.schedule_at(key, at.as_nanos().saturating_add(FINE - 1) & !(FINE - 1));
    }

    /// Looks at the party when the keeper wakes up next, without waiting for the clock to move.
    pub(crate) fn schedule_now(&mut self, key: Key) {
        self.schedule_at(key, Moment::START.as_nanos());
    }

    fn schedule_at(&mut self, key: Key, at: u64) {
        let at = NonZeroU64::new(at).unwrap_or(NonZeroU64::MIN);
        let Some(slot) = self.get(key) else { return };
        if slot.spoke.is_some_and(|spoke| spoke.at == at) {
            return;
        }
        self.unschedule(key);
        let parties = self.wheel.entry(at).or_default();
        let spoke = Spoke { at, index: parties.len() as u32 };
        parties.push(key);
        if let Some(slot) = self.get_mut(key) {
            slot.spoke = Some(spoke);
        }
    }

    pub(crate) fn unschedule(&mut self, key: Key) {
        let Some(spoke) = self.get_mut(key).and_then(|slot| slot.spoke.take()) else { return };
        let parties = self.wheel.get_mut(&spoke.at).expect("by 1, the party is there");
        parties.swap_remove(spoke.index as usize);
        match parties.get(spoke.index as usize).copied() {
            Some(moved) => {
                let slot = self.get_mut(moved).expect("by 1, who is on the wheel is here");
                slot.spoke = Some(spoke);
            }
            None if parties.is_empty() => drop(self.wheel.remove(&spoke.at)),
            None => {}
        }
    }

    /// When this party wants to be looked at, if it does.
    pub(crate) fn due_at(&self, key: Key) -> Option<Moment> {
        self.get(key)?.spoke.map(|spoke| Moment::from_nanos(spoke.at.get()))
    }

    /// When somebody wants to be looked at.
    pub(crate) fn next_at(&self) -> Moment {
        self.wheel.first_key_value().map_or(Moment::NEVER, |(at, _)| Moment::from_nanos(at.get()))
    }

    /// Those who want to be looked at by now, taken off the wheel.
    pub(crate) fn take_due(&mut self, now: Moment) -> Vec<Key> {
        let mut due = Vec::new();
        while let Some(first) = self.wheel.first_entry().filter(|first| first.key().get() <= now.as_nanos()) {
            let parties = first.remove();
            for key in &parties {
                if let Some(slot) = self.get_mut(*key) {
                    slot.spoke = None;
                }
            }
            if due.is_empty() { due = parties } else { due.extend(parties) }
        }
        due
    }
}
