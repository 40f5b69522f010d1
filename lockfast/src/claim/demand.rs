//! The names a claim wants, and how much of each.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::name::Name;

/// How much of one resource a claim wants.
///
/// ```
/// # use lockfast::store::{Demand, Name};
/// # use lockfast::Mode;
/// let name = Name::new("catalog")?;
/// assert_eq!(Demand::exclusive(name.clone()).mode(), Mode::Exclusive);
/// assert_eq!(Demand::shared(name.clone()).mode(), Mode::Shared);
/// assert_eq!(Demand::permits(name, 2, 5)?.mode(), Mode::Permits);
/// # Ok::<(), lockfast::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Demand {
    /// The resource.
    pub name: Name,
    /// How much of it can be held at once. The store refuses a capacity that disagrees with the claims in the queue.
    pub capacity: u32,
    /// How much is wanted.
    pub weight: u32,
}

impl Demand {
    /// Capacity of a reader-writer resource, and the weight of a writer. Part of the stored format: two processes that
    /// disagree about it are refused.
    pub const ALL: u32 = 1 << 20;

    /// All of a reader-writer resource: a writer, or a mutex.
    pub fn exclusive(name: Name) -> Self {
        Self { name, capacity: Self::ALL, weight: Self::ALL }
    }

    /// A reader's part of a reader-writer resource.
    pub fn shared(name: Name) -> Self {
        Self { name, capacity: Self::ALL, weight: 1 }
    }

    /// `weight` of `capacity` permits.
    pub fn permits(name: Name, weight: u32, capacity: u32) -> Result<Self> {
        if capacity == 0 || capacity >= Self::ALL {
            return Err(Error::invalid(format!(
                "a semaphore with {capacity} permits makes no sense; use 1 to {}",
                Self::ALL - 1
            )));
        }
        if weight == 0 || weight > capacity {
            return Err(Error::invalid(format!(
                "cannot take {weight} of the {capacity} permits; take 1 to {capacity}"
            )));
        }
        Ok(Self { name, capacity, weight })
    }

    /// Refuses a weight that could never be held: all claims behind it would wait for ever.
    pub(crate) fn check_weight(&self) -> Result<()> {
        match self.weight == 0 || self.weight > self.capacity {
            true => Err(Error::invalid(format!(
                "cannot take {} of the {} that {:?} has",
                self.weight, self.capacity, self.name
            ))),
            false => Ok(()),
        }
    }

    /// The error for a demand whose capacity differs from that of the claims in the queue.
    pub(crate) fn capacity_error(&self, capacity: u32) -> Error {
        Error::invalid(format!(
            "{:?} is in use with {}, and was asked for with {}; use the same everywhere, or wait until it is unused",
            self.name,
            capacity_in_words(capacity),
            capacity_in_words(self.capacity)
        ))
    }

    /// Which kind of lock this demand is.
    pub fn mode(&self) -> Mode {
        match (self.capacity, self.weight) {
            (Self::ALL, Self::ALL) => Mode::Exclusive,
            (Self::ALL, _) => Mode::Shared,
            _ => Mode::Permits,
        }
    }
}

fn capacity_in_words(capacity: u32) -> String {
    match capacity {
        Demand::ALL => "a mutex or reader-writer lock".to_owned(),
        permits => format!("a semaphore of {permits}"),
    }
}

/// How a resource is held.
///
/// ```
/// # use lockfast::Mode;
/// assert_eq!(Mode::Exclusive.to_string(), "exclusive");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Alone: a mutex, a writer.
    Exclusive,
    /// Together with other readers.
    Shared,
    /// Some permits of a semaphore.
    Permits,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Permits => "permits",
        })
    }
}

/// The demands of one claim, in name order, each name once. Dereferences to a slice.
///
/// ```
/// # use lockfast::store::{Demand, Demands, Name};
/// let (a, b) = (Name::new("a")?, Name::new("b")?);
/// let both = Demands::of(vec![Demand::exclusive(b), Demand::exclusive(a.clone())])?;
/// assert_eq!(both[0].name, a);
/// # Ok::<(), lockfast::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demands(Inner);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Inner {
    One(Demand),
    Many(Arc<[Demand]>),
}

impl Demands {
    /// The largest number of names in one claim.
    pub const MOST: usize = 256;

    /// Several demands as one claim: sorted, and refused when empty, too many or with a name twice.
    pub fn of(mut demands: Vec<Demand>) -> Result<Self> {
        demands.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(duplicates) = demands.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(Error::invalid(format!(
                "{:?} is asked for twice in one claim; name it once",
                duplicates[0].name
            )));
        }
        match demands.len() {
            0 => Err(Error::invalid("no names to lock together; give at least one")),
            1 => Ok(demands.remove(0).into()),
            2..=Self::MOST => Ok(Self(Inner::Many(demands.into()))),
            count => Err(Error::invalid(format!(
                "{count} names in one claim; take at most {}, or one name that stands for them all",
                Self::MOST
            ))),
        }
    }
}

impl From<Demand> for Demands {
    fn from(demand: Demand) -> Self {
        Self(Inner::One(demand))
    }
}

impl Deref for Demands {
    type Target = [Demand];

    fn deref(&self) -> &[Demand] {
        match &self.0 {
            Inner::One(demand) => std::slice::from_ref(demand),
            Inner::Many(demands) => demands,
        }
    }
}
