//! The import law of the library: which module may name which.
//!
//! ```text
//! primitives -> client -> engine -> the contract's plain data
//!                 client -> store <- stores/*        leaves: plain data, below all of them
//! ```
//!
//! It is what keeps a store from knowing about clients, a primitive from knowing about stores, and events from leaving
//! anywhere but in the client, which sends each exactly once. Code that only tests see is free.

use std::collections::BTreeMap;

use super::Finding;
use super::paths::{named_paths, reexported_paths};
use super::source::{tokens, without_comments_and_strings, without_tests};

pub(super) const LIB: &str = "lockfast/src/lib.rs";
const SOURCES: &str = "lockfast/src/";

struct Layer {
    /// A file or folder directly under `lockfast/src/`, and so the first part of a path in the crate.
    name: &'static str,
    /// The layers it may name besides itself.
    may_name: &'static [&'static str],
}

/// The law. `conformance` is in no list: it is for tests. `event` is only in the lists of the layers that send
/// events, show them, or test that.
const LAYERS: &[Layer] = &[
    Layer { name: "name", may_name: LEAVES },
    Layer { name: "claim", may_name: LEAVES },
    Layer { name: "error", may_name: LEAVES },
    Layer { name: "clock", may_name: LEAVES },
    // Rules of the table and of the engine that tests leave out.
    Layer { name: "planted", may_name: &[] },
    // The contract's answers are plain data, and these two speak in them.
    Layer { name: "table", may_name: LEAVES_AND_CONTRACT },
    Layer { name: "event", may_name: LEAVES_AND_CONTRACT },
    Layer { name: "store", may_name: LEAVES },
    Layer { name: "stores", may_name: LEAVES_AND_CONTRACT },
    // A pure state machine: what else it may not use is in `purity.rs`.
    Layer { name: "engine", may_name: &["name", "claim", "error", "clock", "store", "event", "planted"] },
    Layer { name: "client", may_name: &["name", "claim", "table", "error", "clock", "store", "event", "engine"] },
    Layer { name: "primitives", may_name: &["name", "claim", "table", "error", "clock", "store", "client"] },
    Layer { name: "blocking", may_name: &["claim", "error", "store", "client", "primitives"] },
    // The table of schemes: the one place that knows both faces and stores.
    Layer { name: "connect", may_name: &["error", "store", "stores", "primitives"] },
    Layer { name: "observe", may_name: &["name", "claim", "table", "error", "clock", "store", "event"] },
    Layer {
        name: "conformance",
        may_name: &[
            "name",
            "claim",
            "table",
            "error",
            "clock",
            "store",
            "stores",
            "client",
            "primitives",
            "blocking",
            "event",
        ],
    },
];

/// Single names that a layer may use of another one. Whether the present thread blocks is a fact about the thread, which only the
/// blocking faces know, and which decides for a store where its I/O can run.
const SINGLE_NAMES: &[(&str, &[&str])] = &[("stores", &["blocking", "wait", "is_inside_block_on"])];

const LEAVES: &[&str] = &["name", "claim", "table", "error", "clock", "planted"];
const LEAVES_AND_CONTRACT: &[&str] = &["name", "claim", "table", "error", "clock", "store", "planted"];

fn layer(name: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| layer.name == name)
}

/// Where the names that `lib.rs` re-exports come from: `crate::Locks` is as much the client as `crate::client::Locks`.
#[derive(Debug, Default)]
pub(super) struct Exports(BTreeMap<String, String>);

impl Exports {
    pub(super) fn read(lib: &str) -> Self {
        let blanked = without_comments_and_strings(lib);
        let tokens = tokens(&blanked);
        let from = |module: &[&str]| module.first().map(ToString::to_string).unwrap_or_default();
        Self(reexported_paths(&tokens).iter().map(|named| (named.local_name.to_string(), from(&named.path))).collect())
    }

    fn layer_of(&self, first: &str) -> Option<&'static Layer> {
        layer(first).or_else(|| layer(self.0.get(first)?))
    }
}

pub(super) fn check(path: &str, text: &str, exports: &Exports) -> Vec<Finding> {
    let Some(inside) = path.strip_prefix(SOURCES).and_then(|inside| inside.strip_suffix(".rs")) else {
        return Vec::new();
    };
    let mut module: Vec<&str> = inside.split('/').collect();
    if path == LIB {
        return check_reexports(text);
    }
    if module.contains(&"tests") {
        return Vec::new();
    }
    let Some(here) = layer(module[0]) else {
        let what = "belongs to no layer: move it into one, or add it to the law in xtask/src/tidy/layers.rs";
        return vec![Finding::new(path, 1, what)];
    };
    if module.last() == Some(&"mod") {
        module.pop();
    }
    let blanked = without_comments_and_strings(text);
    let tokens = without_tests(&tokens(&blanked));
    let mut findings = Vec::new();
    for named in named_paths(&tokens, &module) {
        // A name that no layer owns is a macro, or comes from a glob in lib.rs; those are leaves, see below.
        let Some(there) = named.path.first().and_then(|first| exports.layer_of(first)) else { continue };
        let is_single = SINGLE_NAMES.iter().any(|(layer, path)| *layer == here.name && named.path == *path);
        if there.name != here.name && !here.may_name.contains(&there.name) && !is_single {
            let what = format!(
                "`{}` may not name `crate::{}` (it may name: {}); move what both need into a leaf, or hand it in",
                here.name,
                named.path.join("::"),
                here.may_name.join(", "),
            );
            findings.push(Finding::new(path, named.line, what));
        }
    }
    findings
}

/// A glob in `lib.rs` hides which layer a name comes from; that does not matter only for leaves, which all may name.
fn check_reexports(lib: &str) -> Vec<Finding> {
    let blanked = without_comments_and_strings(lib);
    let tokens = tokens(&blanked);
    let exported = reexported_paths(&tokens);
    let globs = exported.iter().filter(|named| named.local_name == "*" && !LEAVES.contains(&named.path[0]));
    let what = |module: &str| format!("`{module}::*` hides which layer a name comes from: write the names out");
    globs.map(|named| Finding::new(LIB, named.line, what(named.path[0]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines found in a file of the library.
    fn lines(path: &str, text: &str) -> Vec<usize> {
        let exports = Exports::read("mod claim;\npub use claim::*;\npub use client::{Guard, Locks as Client};\n");
        check(&format!("{SOURCES}{path}"), text, &exports).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn the_law_names_only_layers_that_exist() {
        for layer in LAYERS {
            assert!(layer.may_name.iter().all(|name| super::layer(name).is_some()), "{}", layer.name);
            assert!(!layer.may_name.contains(&"conformance"), "{}", layer.name);
        }
    }

    #[test]
    fn leaves_name_only_leaves() {
        assert!(lines("claim.rs", "use crate::error::Error;\nuse crate::{name::Name, clock};\n").is_empty());
        for other in ["store", "stores", "client", "primitives", "event", "observe", "conformance"] {
            assert_eq!(lines("claim.rs", &format!("\nuse crate::{other}::X;")), [2], "{other}");
        }
    }

    #[test]
    fn table_and_event_may_speak_in_the_words_of_the_contract() {
        assert!(lines("table.rs", "use crate::store::Admission;").is_empty());
        assert!(lines("table/queue.rs", "use super::Table;\nuse crate::store::Standing;").is_empty());
        assert!(lines("event.rs", "use crate::store::Why;").is_empty());
        assert_eq!(lines("table.rs", "use crate::event::Event;"), [1]);
    }

    #[test]
    fn the_contract_names_only_leaves() {
        assert!(lines("store.rs", "use crate::claim::Claim;\nconst A: u8 = crate::store::B;").is_empty());
        assert_eq!(lines("store.rs", "use crate::stores::memory::Memory;"), [1]);
    }

    #[test]
    fn stores_know_neither_clients_nor_primitives_nor_events() {
        assert!(lines("stores/memory.rs", "use crate::store::Store; use crate::{table::Table, error};").is_empty());
        for other in ["client", "primitives", "event", "conformance"] {
            assert_eq!(lines("stores/redis/mod.rs", &format!("fn f() {{ crate::{other}::g() }}")), [1], "{other}");
        }
    }

    #[test]
    fn stores_name_one_function_of_the_blocking_layer_alone() {
        assert!(lines("stores/redis/mod.rs", "use crate::blocking::wait::is_inside_block_on;").is_empty());
        assert!(lines("stores/redis/mod.rs", "fn f() { crate::blocking::wait::is_inside_block_on() }").is_empty());
        assert_eq!(lines("stores/redis/mod.rs", "use crate::blocking::wait::block_on;"), [1]);
        assert_eq!(lines("stores/redis/mod.rs", "use crate::blocking::Locks;"), [1]);
        assert_eq!(lines("client/mod.rs", "use crate::blocking::wait::is_inside_block_on;"), [1]);
    }

    #[test]
    fn the_client_knows_neither_primitives_nor_stores() {
        assert!(lines("client/keeper.rs", "use crate::event::Event; use crate::store::Store;").is_empty());
        assert_eq!(lines("client/mod.rs", "use crate::{\n  store::Store,\n  stores::memory,\n};"), [3]);
        assert_eq!(lines("client/admit.rs", "use crate::primitives::Mutex;"), [1]);
    }

    #[test]
    fn primitives_send_no_events_and_know_no_stores() {
        assert!(lines("primitives/mutex.rs", "use crate::client::Guard;").is_empty());
        assert_eq!(lines("primitives/mutex.rs", "use crate::event::Event;\nuse crate::stores::memory;"), [1, 2]);
    }

    #[test]
    fn the_suite_may_use_everything_it_tests() {
        assert!(lines("conformance/mod.rs", "use crate::primitives::Mutex; use crate::stores::memory;").is_empty());
    }

    #[test]
    fn a_reexported_name_counts_as_where_it_comes_from() {
        assert_eq!(lines("stores/memory.rs", "use crate::{ClaimId, Guard};\nuse crate::Client;"), [1, 2]);
        assert!(lines("primitives/mutex.rs", "use crate::Guard;").is_empty());
    }

    #[test]
    fn going_up_with_super_is_no_way_around() {
        assert_eq!(lines("stores/memory.rs", "use super::super::client::Locks;"), [1]);
        assert_eq!(lines("store.rs", "use super::client::Locks;"), [1]);
    }

    #[test]
    fn comments_and_tests_are_free() {
        let text = "/// See [`Locks`](crate::client::Locks).\n#[cfg(test)]\nmod tests { use crate::stores::memory; }\n";
        assert!(lines("client/guard.rs", text).is_empty());
        assert!(lines("table/tests.rs", "use crate::client::Locks;").is_empty());
    }

    #[test]
    fn a_file_outside_the_layers_is_asked_to_choose() {
        assert_eq!(lines("helpers.rs", ""), [1]);
        assert!(check("bench/src/helpers.rs", "use crate::client::Locks;", &Exports::default()).is_empty());
    }

    #[test]
    fn the_library_writes_out_what_it_reexports_except_from_leaves() {
        assert!(lines("lib.rs", "pub use claim::*;\npub use client::Locks;\nuse crate::event;").is_empty());
        assert_eq!(lines("lib.rs", "pub use claim::*;\npub use client::*;"), [2]);
    }
}
