//! The places where lines can be kept. Each passes the suite of the cargo feature `conformance`.

mod mailbox;
mod memory;

pub use memory::Memory;
