//! Tests of the scripts: with a counter in each branch, and compared with a table while time passes.

#[cfg(feature = "conformance")]
mod lockstep;
pub(super) mod paths;
