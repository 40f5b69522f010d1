//! Which keys a command applies to: a prefix, or a pattern with `*` (any text) and `?` (one character).

/// The pattern as the user wrote it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pattern(String);

impl Pattern {
    /// Without a text, every key matches.
    pub(crate) fn new(text: Option<&str>) -> Self {
        Self(text.unwrap_or_default().to_owned())
    }

    /// The common prefix of all keys that match.
    pub(crate) fn prefix(&self) -> &str {
        self.0.split(['*', '?']).next().unwrap_or_default()
    }

    pub(crate) fn matches(&self, key: &str) -> bool {
        if !self.0.contains(['*', '?']) {
            return key.starts_with(&self.0);
        }
        let (pattern, key): (Vec<char>, Vec<char>) = (self.0.chars().collect(), key.chars().collect());
        let (mut pattern_at, mut key_at) = (0, 0);
        // Where the last star is in the pattern, and where its match ends in the key: one character later after each mismatch.
        let mut last_star = None;
        while key_at < key.len() {
            match pattern.get(pattern_at) {
                Some('*') => {
                    last_star = Some((pattern_at, key_at));
                    pattern_at += 1;
                }
                Some(character) if *character == '?' || *character == key[key_at] => {
                    (pattern_at, key_at) = (pattern_at + 1, key_at + 1);
                }
                _ => match last_star {
                    Some((star_at, match_end)) => {
                        last_star = Some((star_at, match_end + 1));
                        (pattern_at, key_at) = (star_at + 1, match_end + 1);
                    }
                    None => return false,
                },
            }
        }
        pattern[pattern_at..].iter().all(|character| *character == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_without_wildcards_is_a_prefix() {
        let accounts = Pattern::new(Some("account:"));
        assert_eq!(accounts.prefix(), "account:");
        assert!(accounts.matches("account:1") && !accounts.matches("an account:1"));
        assert!(Pattern::new(None).matches("anything"));
    }

    #[test]
    fn a_star_is_any_text_and_a_question_mark_one_character() {
        for (pattern, key, fits) in [
            ("*", "", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbbd", false),
            ("*:daily", "cron:daily", true),
            ("*:daily", "cron:daily:2", false),
            ("a*b*c", "aXbXbXc", true),
            ("?", "я", true),
            ("?", "ab", false),
            ("cron:?*", "cron:", false),
            ("**", "x", true),
            ("a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(Pattern::new(Some(pattern)).matches(key), fits, "{pattern} {key}");
        }
        assert_eq!(Pattern::new(Some("cron:*ly")).prefix(), "cron:");
    }
}
