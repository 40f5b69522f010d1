//! No function has a long name: the name of a test states a rule, and is read in one glance.

use super::Finding;
use super::source::{tokens, without_comments_and_strings};

/// In characters.
pub(super) const MAX_NAME_LEN: usize = 64;

pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let blanked = without_comments_and_strings(text);
    let tokens = tokens(&blanked);
    let functions = tokens.windows(2).filter(|pair| pair[0].text == "fn").map(|pair| pair[1]);
    let too_long = functions.filter(|name| name.text.len() > MAX_NAME_LEN);
    too_long
        .map(|name| {
            let what = format!("a name of {} characters: state the rule in at most {MAX_NAME_LEN}", name.text.len());
            Finding::new(path, name.line, what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_found_and_one_at_the_limit_is_not() {
        let function = |len: usize| format!("#[test]\nfn {}() {{}}\n", "a".repeat(len));
        assert_eq!(check("a.rs", &function(MAX_NAME_LEN)), []);
        assert_eq!(check("a.rs", &function(MAX_NAME_LEN + 1))[0].line, 2);
        assert_eq!(check("a.md", &function(MAX_NAME_LEN + 1)), []);
    }
}
