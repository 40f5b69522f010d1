//! Just enough of Rust's grammar to know which modules a file names.
//!
//! Promises that words in comments, strings and test-only items are not seen, and that line numbers stay those of the
//! file. Never fails: on source that does not compile it says something, and the compiler says the rest.

/// A word or a sign of the source, with the line it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) line: usize,
}

/// The text with comments, strings and characters turned into blanks; lines stay where they are.
pub(super) fn without_comments_and_strings(text: &str) -> String {
    let mut blanked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let follows_a_word = blanked.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        match opaque_len(rest, follows_a_word) {
            Some(len) => {
                blanked.extend(rest[..len].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
                rest = &rest[len..];
            }
            None => {
                blanked.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    blanked
}

/// How many bytes at the beginning of `rest` are a comment or a literal; `None` if it begins with neither.
fn opaque_len(rest: &str, follows_a_word: bool) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(block_comment_len(rest));
    }
    if rest.starts_with('"') {
        return Some(string_len(rest));
    }
    if rest.starts_with('\'') {
        return char_len(rest);
    }
    let raw = rest.strip_prefix("br").or_else(|| rest.strip_prefix("cr")).or_else(|| rest.strip_prefix('r'));
    let raw = raw.filter(|_| !follows_a_word)?;
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    let body = raw[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let body_len = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(rest.len() - body.len() + body_len)
}

/// Block comments nest.
fn block_comment_len(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn string_len(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `None` for a lifetime, which begins like a character and does not end like one.
fn char_len(rest: &str) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next()?;
        return chars.find(|(_, c)| *c == '\'').map(|(at, _)| at + 1);
    }
    chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1)
}

/// Words, `::`, and every other sign by itself. `blanked` comes from [`without_comments_and_strings`].
pub(super) fn tokens(blanked: &str) -> Vec<Token<'_>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    for (line, mut rest) in (1..).zip(blanked.lines()) {
        while let Some(first) = rest.chars().next() {
            let len = if is_word(first) {
                rest.find(|c| !is_word(c)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            if !first.is_whitespace() {
                tokens.push(Token { text: &rest[..len], line });
            }
            rest = &rest[len..];
        }
    }
    tokens
}

/// The tokens without the items marked `#[cfg(test)]`.
pub(super) fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    const CFG_TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        let is_test_only = tokens[at..].iter().take(CFG_TEST.len()).map(|token| token.text).eq(CFG_TEST);
        if is_test_only {
            at += CFG_TEST.len();
            at += item_len(&tokens[at..]);
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// How many tokens belong to the item that begins here: up to its `;` or its closing brace.
fn item_len(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" if depth == 0 => return at,
            "}" if depth == 1 => return at + 1,
            "}" | ")" | "]" => depth -= 1,
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let blanked = without_comments_and_strings(text);
        without_tests(&tokens(&blanked)).iter().map(|token| token.text.to_string()).collect()
    }

    #[test]
    fn comments_are_not_seen() {
        assert_eq!(words("a // crate::x\n/* crate::y /* nested */ still */ b\n/// crate::z\n//! crate::w"), ["a", "b"]);
    }

    #[test]
    fn strings_and_characters_are_not_seen() {
        assert_eq!(words(r##"a "x \" y" b r#"x " y"# c br"x" d '"' e '\'' f '\u{41}' g "##).join(" "), "a b c d e f g");
    }

    #[test]
    fn lifetimes_and_raw_names_are_code() {
        assert_eq!(words("&'a str, r#type, 'static").join(" "), "& ' a str , r # type , ' static");
    }

    #[test]
    fn words_and_path_signs_are_told_apart_and_keep_their_line() {
        let tokens = tokens("use a::b_1;\n\n c");
        assert_eq!(tokens.iter().map(|t| t.text).collect::<Vec<_>>(), ["use", "a", "::", "b_1", ";", "c"]);
        assert_eq!(tokens.last().unwrap().line, 3);
    }

    #[test]
    fn a_literal_over_several_lines_keeps_the_lines_after_it_in_place() {
        let blanked = without_comments_and_strings("\"one\ntwo\" /* é\n*/ x");
        assert_eq!(tokens(&blanked), [Token { text: "x", line: 3 }]);
    }

    #[test]
    fn test_only_items_are_not_seen() {
        assert_eq!(words("#[cfg(test)] mod t { fn f() { g([0; 2]); } } a"), ["a"]);
        assert_eq!(words("#[cfg(test)]\n#[allow(x)]\nuse b::c; a"), ["a"]);
        assert_eq!(words("#[cfg(test)] fn f() -> [u8; 2] { [0; 2] } a"), ["a"]);
    }

    #[test]
    fn items_that_are_not_only_for_tests_are_seen() {
        assert!(words("#[cfg(any(test, unix))] use b::c;").contains(&"c".to_string()));
    }
}
