//! Wakers of waiting futures, by request. They are in pages, allocated when the first request of a page waits: most locks never wait.

use std::task::Waker;

use crate::engine::Key;

const PAGE: usize = 64;

#[derive(Default)]
pub(super) struct Wakers(Vec<Option<Box<[Option<Waker>; PAGE]>>>);

impl Wakers {
    /// Returns the waker that was there before.
    pub(super) fn put(&mut self, key: Key, waker: Waker) -> Option<Waker> {
        let (page, index) = (key.index() / PAGE, key.index() % PAGE);
        if page >= self.0.len() {
            self.0.resize_with(page + 1, || None);
        }
        let page = self.0[page].get_or_insert_with(|| Box::new([const { None }; PAGE]));
        page[index].replace(waker)
    }

    pub(super) fn take(&mut self, key: Key) -> Option<Waker> {
        let page = self.0.get_mut(key.index() / PAGE)?.as_mut()?;
        page[key.index() % PAGE].take()
    }
}
