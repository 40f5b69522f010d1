//! The requests of one client, each under a key that is never confused with a later one; and the wheel that says when each
//! is due.
//!
//! 1. A request is on the wheel at most once, and `Request::wheel_position` says where.
//! 2. Keys carry a generation: the key of a request that left finds nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use crate::clock::Moment;

use super::request::Request;

/// One request of an engine. The key of a request that is gone finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// Its index among the requests of one client, which another request may have had before.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// `index.generation`
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

impl FromStr for Key {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (index, generation) = text.split_once('.').ok_or(())?;
        Ok(Self { index: index.parse().map_err(drop)?, generation: generation.parse().map_err(drop)? })
    }
}

/// Where on the wheel a request is.
#[derive(Clone, Copy, Debug)]
pub(super) struct WheelPosition {
    at: NonZeroU64,
    index: u32,
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    /// In pages, since a vector of them all would be copied, under the engine's mutex, each time it grows.
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
    request: Option<Request>,
}

const PAGE: usize = 64;

/// The grain of deadlines: about a millisecond, rounded up, so that nothing is looked at before its time.
const DEADLINE_GRAIN: u64 = 1 << 20;

impl Requests {
    pub(super) fn insert(&mut self, request: Request) -> Key {
        self.len += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            if self.used as usize == self.pages.len() * PAGE {
                self.pages.push(Box::new(std::array::from_fn(|_| Cell::default())));
            }
            self.used = self.used.checked_add(1).expect("four billion keys do not fit into memory");
            self.used - 1
        });
        let cell = self.cell_mut(index);
        cell.request = Some(request);
        Key { index, generation: cell.generation }
    }

    fn cell_mut(&mut self, index: u32) -> &mut Cell {
        &mut self.pages[index as usize / PAGE][index as usize % PAGE]
    }

    pub(super) fn get(&self, key: Key) -> Option<&Request> {
        let cell = &self.pages[key.index as usize / PAGE][key.index as usize % PAGE];
        cell.request.as_ref().filter(|_| cell.generation == key.generation)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Request> {
        let cell = self.cell_mut(key.index);
        cell.request.as_mut().filter(|_| cell.generation == key.generation)
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Request> {
        self.unschedule(key);
        self.get(key)?;
        self.free.push(key.index);
        self.len -= 1;
        let cell = self.cell_mut(key.index);
        cell.generation = cell.generation.wrapping_add(1);
        cell.request.take()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = (Key, &Request)> {
        self.pages.iter().flat_map(|page| &**page).enumerate().filter_map(|(index, cell)| {
            let key = Key { index: index as u32, generation: cell.generation };
            cell.request.as_ref().map(|request| (key, request))
        })
    }

    /// Looks at the request up to a thirtieth of `period` before `at`, together with others: for work that recurs with that
    /// period.
    pub(super) fn schedule_roughly(&mut self, key: Key, at: Moment, period: Duration) {
        let grain = (period.as_nanos() as u64 / 32).next_power_of_two() >> 1;
        self.schedule_at(key, at.as_nanos() & !(grain.max(1) - 1));
    }

    /// Looks at the request at `at`, or within the millisecond after it: for deadlines.
    pub(super) fn schedule(&mut self, key: Key, at: Moment) {
        self.schedule_at(key, at.as_nanos().saturating_add(DEADLINE_GRAIN - 1) & !(DEADLINE_GRAIN - 1));
    }

    /// Looks at the request when the keeper wakes up next, without waiting for the clock to move.
    pub(super) fn schedule_now(&mut self, key: Key) {
        self.schedule_at(key, Moment::START.as_nanos());
    }

    fn schedule_at(&mut self, key: Key, at: u64) {
        let at = NonZeroU64::new(at).unwrap_or(NonZeroU64::MIN);
        let Some(request) = self.get(key) else { return };
        if request.wheel_position.is_some_and(|wheel_position| wheel_position.at == at) {
            return;
        }
        self.unschedule(key);
        let keys = self.wheel.entry(at).or_default();
        let wheel_position = WheelPosition { at, index: keys.len() as u32 };
        keys.push(key);
        if let Some(request) = self.get_mut(key) {
            request.wheel_position = Some(wheel_position);
        }
    }

    pub(super) fn unschedule(&mut self, key: Key) {
        let Some(wheel_position) = self.get_mut(key).and_then(|request| request.wheel_position.take()) else { return };
        let keys = self.wheel.get_mut(&wheel_position.at).expect("by 1, the request is there");
        keys.swap_remove(wheel_position.index as usize);
        match keys.get(wheel_position.index as usize).copied() {
            Some(moved) => {
                let request = self.get_mut(moved).expect("by 1, a request on the wheel is here");
                request.wheel_position = Some(wheel_position);
            }
            None if keys.is_empty() => drop(self.wheel.remove(&wheel_position.at)),
            None => {}
        }
    }

    /// When this request wants to be looked at, if it does.
    pub(super) fn due_at(&self, key: Key) -> Option<Moment> {
        self.get(key)?.wheel_position.map(|wheel_position| Moment::from_nanos(wheel_position.at.get()))
    }

    /// When the first request is due.
    pub(super) fn next_at(&self) -> Moment {
        self.wheel.first_key_value().map_or(Moment::NEVER, |(at, _)| Moment::from_nanos(at.get()))
    }

    /// The requests that are due by now, taken off the wheel.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<Key> {
        let mut due = Vec::new();
        while let Some(first) = self.wheel.first_entry().filter(|first| first.key().get() <= now.as_nanos()) {
            let keys = first.remove();
            for key in &keys {
                if let Some(request) = self.get_mut(*key) {
                    request.wheel_position = None;
                }
            }
            if due.is_empty() { due = keys } else { due.extend(keys) }
        }
        due
    }
}
