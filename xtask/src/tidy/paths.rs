//! Which paths of its own crate a file names: `use crate::a::{b, c::d}`, `crate::a::b()`, `super::super::a`.

use super::source::Token;

/// A path from the crate's root, with the line that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedPath<'a> {
    /// Ends with `*` when everything of a module is meant.
    pub(super) path: Vec<&'a str>,
    /// The name by which this file refers to it: the name after `as`, or the path's last part.
    pub(super) local_name: &'a str,
    pub(super) line: usize,
}

/// Every path that begins with `crate` or `super`; `module` is where the file stands, as in `["client", "guard"]`.
pub(super) fn named_paths<'a>(tokens: &[Token<'a>], module: &[&'a str]) -> Vec<NamedPath<'a>> {
    let mut found = Vec::new();
    // The modules around the current token, and the depth of braces outside of each module that is inside this file.
    let mut around = module.to_vec();
    let mut depths_outside = Vec::new();
    let mut depth = 0_usize;
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "mod" if text(at + 2) == "{" => {
                around.push(text(at + 1));
                depths_outside.push(depth);
            }
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                if depths_outside.pop_if(|outside| *outside == depth).is_some() {
                    around.pop();
                }
            }
            "crate" if text(at + 1) == "::" => {
                collect_paths(tokens, at + 2, &[], &mut found);
            }
            // A chain of `super`s is followed from its first one.
            "super" if text(at + 1) == "::" && !(at >= 2 && text(at - 2) == "super" && text(at - 1) == "::") => {
                let mut prefix = around.clone();
                let mut next = at;
                while text(next) == "super" && text(next + 1) == "::" {
                    prefix.pop();
                    next += 2;
                }
                collect_paths(tokens, next, &prefix, &mut found);
            }
            _ => {}
        }
    }
    found
}

/// The paths that a crate's root makes public under another place: `pub use claim::{Claim, Ticket as T}`.
pub(super) fn reexported_paths<'a>(tokens: &[Token<'a>]) -> Vec<NamedPath<'a>> {
    let mut found = Vec::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        if pair[0].text == "pub" && pair[1].text == "use" {
            let begins_at_root = tokens.get(at + 2).is_some_and(|token| ["crate", "self"].contains(&token.text));
            collect_paths(tokens, if begins_at_root { at + 4 } else { at + 2 }, &[], &mut found);
        }
    }
    found
}

/// Adds the path, or the group of paths, that begins at `at` to `found`; returns where it ends.
fn collect_paths<'a>(tokens: &[Token<'a>], mut at: usize, prefix: &[&'a str], found: &mut Vec<NamedPath<'a>>) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let mut path = prefix.to_vec();
    let Some(line) = tokens.get(at).map(|token| token.line) else { return at };
    loop {
        match text(at) {
            "{" => {
                at += 1;
                while !["}", ";", ""].contains(&text(at)) {
                    at = collect_paths(tokens, at, &path, found).max(at + 1);
                    if text(at) == "," {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "self" if path.len() > prefix.len() || !prefix.is_empty() => at += 1,
            "*" => {
                path.push("*");
                at += 1;
            }
            word if word.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                path.push(word);
                at += 1;
            }
            _ => break,
        }
        if text(at) != "::" {
            break;
        }
        at += 1;
    }
    let is_renamed = text(at) == "as";
    if let Some(last) = path.last() {
        let local_name = if is_renamed { text(at + 1) } else { last };
        found.push(NamedPath { local_name, path, line });
    }
    if is_renamed { at + 2 } else { at }
}

#[cfg(test)]
mod tests {
    use super::super::source::tokens;
    use super::*;

    fn paths(text: &str, module: &[&str]) -> Vec<String> {
        let tokens = tokens(text);
        named_paths(&tokens, module).iter().map(|named| named.path.join("::")).collect()
    }

    #[test]
    fn uses_and_inline_paths_are_seen() {
        assert_eq!(
            paths("use crate::a::b; fn f() -> crate::c::D { crate::e::g::<u8>() }", &[]),
            ["a::b", "c::D", "e::g"]
        );
    }

    #[test]
    fn groups_are_taken_apart() {
        let text = "use crate::{a, b::{c, d::e}, f::*,\n g::{self, h as i},};";
        assert_eq!(paths(text, &[]), ["a", "b::c", "b::d::e", "f::*", "g", "g::h"]);
    }

    #[test]
    fn each_path_has_the_line_it_is_on() {
        let tokens = tokens("use crate::{\n    a,\n    b::c,\n};");
        let lines: Vec<usize> = named_paths(&tokens, &[]).iter().map(|named| named.line).collect();
        assert_eq!(lines, [2, 3]);
    }

    #[test]
    fn super_is_followed_from_where_the_file_stands() {
        assert_eq!(paths("use super::keeper::K;", &["client", "guard"]), ["client::keeper::K"]);
        assert_eq!(paths("use super::super::{stores, event::E};", &["client", "guard"]), ["stores", "event::E"]);
        assert_eq!(paths("use super::client::C;", &["store"]), ["client::C"]);
    }

    #[test]
    fn super_inside_an_inline_module_means_the_file() {
        let text = "mod inner { use super::A; fn f() {} } use super::b::C;";
        assert_eq!(paths(text, &["client", "guard"]), ["client::guard::A", "client::b::C"]);
    }

    #[test]
    fn visibility_is_no_path() {
        assert!(paths("pub(crate) fn f() {} pub(super) struct S;", &["client"]).is_empty());
    }

    #[test]
    fn reexports_are_known_by_the_name_they_get() {
        let tokens = tokens("mod a; pub use a::{B, c::D as E}; pub use crate::f::G; use std::fmt; pub use h::*;");
        let named = reexported_paths(&tokens);
        let seen: Vec<String> =
            named.iter().map(|named| format!("{}={}", named.local_name, named.path.join("::"))).collect();
        assert_eq!(seen, ["B=a::B", "E=a::c::D", "G=f::G", "*=h::*"]);
    }
}
