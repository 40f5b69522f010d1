//! Any text is a name, and different names are independent.

use std::sync::Arc;

use crate::claim::{Claim, Demand};
use crate::name::Name;
use crate::store::Admission;

use super::fixture::{Client, Fixture};

async fn assert_independent(client: &Client<'_>, names: &[Name]) {
    let claim = |name: &Name| client.claim(Demand::exclusive(name.clone()));
    let claims: Vec<Arc<Claim>> = names.iter().map(claim).collect();
    for held in &claims {
        assert!(matches!(client.try_acquire(held).await, Admission::Held(_)), "{:?} is not free", held.demands);
    }
    for (name, held) in names.iter().zip(&claims) {
        client.acquire_refused(&claim(name)).await;
        client.release(held).await;
        let again = claim(name);
        assert!(matches!(client.try_acquire(&again).await, Admission::Held(_)), "{name:?} was not freed");
    }
}

/// Names with braces, slashes, patterns, quotes, other scripts, control characters, and of the maximum length are
/// independent of each other.
pub async fn odd_names_are_independent(fixture: &Fixture) {
    let client = fixture.client().await;
    let short = [
        "a}b",
        "{}x",
        "{",
        "}",
        "{a}",
        "{a}b",
        "{{a}}",
        "a/b",
        "a/",
        "/",
        "/a",
        ".",
        "..",
        " ",
        "a ",
        " a",
        "a b",
        "*",
        "a*",
        "?",
        "[a]",
        "^a",
        "%",
        "_",
        "a%b",
        "a_b",
        "'",
        "\"",
        "';--",
        "\\",
        "\\0",
        "$1",
        ":",
        "a:b",
        "lock:a",
        "#",
        "a#b",
        "é",
        "e\u{301}",
        "ключ",
        "钥匙",
        "🔒",
        "\u{202e}a",
        "\0",
        "a\0",
        "a\0b",
        "\r\n",
        "a\r\nb",
        "\n",
        "\t",
        "\x1b[31m",
        "\x7f",
        "A",
        "a",
    ];
    let mut names: Vec<Name> = short.iter().map(|text| fixture.plain_name(text)).collect();
    names.push(fixture.plain_name(&"n".repeat(Name::LONGEST)));
    names.push(fixture.plain_name(&("n".repeat(Name::LONGEST - 1) + "m")));
    names.push(fixture.plain_name(&"🔒".repeat(Name::LONGEST / 4)));
    assert_independent(&client, &names).await;
}

/// A name that begins like another, or ends like a suffix that a store might append, is independent of it.
pub async fn a_name_and_its_prefix_are_independent(fixture: &Fixture) {
    let client = fixture.client().await;
    let texts = ["a", "aa", "a:", "a:a", "a/a", "a:line", "a:queue", "a:claims", "a:seal", "a:gone", "a/0", "a\0a"];
    let names: Vec<Name> = texts.iter().map(|text| fixture.name(text)).collect();
    assert_independent(&client, &names).await;
}
