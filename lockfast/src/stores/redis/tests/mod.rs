//! Tests of the scripts: with a counter in each block, and compared with a table while time passes.

pub(super) mod coverage;
#[cfg(feature = "conformance")]
mod lockstep;
