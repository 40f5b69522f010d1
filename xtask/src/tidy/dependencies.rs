//! One TLS stack, and one that builds everywhere with nothing but a C compiler: rustls with ring.
//!
//! A feature of some dependency can bring in another one unnoticed; it then costs every user build time, a system
//! library and a second list of advisories to follow.

use super::Finding;
use crate::invocation::Invocation;

/// Packages of other TLS stacks.
const FORBIDDEN: &[&str] = &["openssl", "openssl-sys", "native-tls", "aws-lc-rs", "aws-lc-sys"];

/// The command whose output [`check`] reads.
pub(super) fn listing() -> Invocation {
    Invocation::new("cargo tree --workspace --all-features -e normal,build --prefix none")
}

/// `listing` is the output of `cargo tree`, one package per line; `lock` is the text of Cargo.lock, in which findings have a line.
pub(super) fn check(listing: &str, lock: &str) -> Vec<Finding> {
    let is_listed = |name: &str| listing.lines().any(|line| line.split(' ').next() == Some(name));
    let finding = |name: &str| {
        let entry = format!("name = \"{name}\"");
        let line = lock.lines().position(|line| line == entry).map_or(1, |index| index + 1);
        let what = format!(
            "{name} is built in: find the dependency that needs it with `cargo tree --workspace --all-features -i {name}`, \
             and choose the rustls and ring features there"
        );
        Finding::new("Cargo.lock", line, what)
    };
    FORBIDDEN.iter().filter(|name| is_listed(name)).map(|name| finding(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_forbidden_package_is_found_where_it_is_locked() {
        for name in FORBIDDEN {
            let lock = format!("[[package]]\nname = \"{name}\"\nversion = \"1.0.0\"\n");
            let findings = check(&format!("lockfast v0.1.0 (/somewhere)\n{name} v1.0.0\n{name} v1.0.0 (*)\n"), &lock);
            assert_eq!(findings.len(), 1, "{name}");
            assert_eq!(findings[0].line, 2);
        }
    }

    #[test]
    fn packages_with_similar_names_pass() {
        assert!(check("openssl-probe v0.1.6\nrustls-native-certs v0.8.1\nring v0.17.14\n", "").is_empty());
    }
}
