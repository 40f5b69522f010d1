//! The store's scripts in tests: with a counter in each branch, and beside a table while time passes.

#[cfg(feature = "conformance")]
mod lockstep;
pub(super) mod paths;
