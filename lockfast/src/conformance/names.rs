//! Any text is a name, and every name its own.

use std::sync::Arc;

use crate::claim::{Claim, Demand};
use crate::name::Name;
use crate::store::Admission;

use super::place::{Client, Place};

async fn each_is_its_own(client: &Client<'_>, names: &[Name]) {
    let claim = |name: &Name| client.claim(Demand::exclusive(name.clone()));
    let claims: Vec<Arc<Claim>> = names.iter().map(claim).collect();
    for held in &claims {
        assert!(matches!(client.try_now(held).await, Admission::Held(_)), "{:?} is not free", held.demands);
    }
    for (name, held) in names.iter().zip(&claims) {
        client.refused(&claim(name)).await;
        client.done(held).await;
        let again = claim(name);
        assert!(matches!(client.try_now(&again).await, Admission::Held(_)), "{name:?} was not freed");
    }
}

/// Braces, slashes, patterns, quotes, other scripts, control characters, and the longest there is.
pub async fn odd_names_are_independent(place: &Place) {
    let client = place.client().await;
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
    let mut names: Vec<Name> = short.iter().map(|text| place.plain_name(text)).collect();
    names.push(place.plain_name(&"n".repeat(Name::LONGEST)));
    names.push(place.plain_name(&("n".repeat(Name::LONGEST - 1) + "m")));
    names.push(place.plain_name(&"🔒".repeat(Name::LONGEST / 4)));
    each_is_its_own(&client, &names).await;
}

/// A name that begins like another, or ends like what a store might append, is another name.
pub async fn a_name_and_its_beginning_are_independent(place: &Place) {
    let client = place.client().await;
    let texts = ["a", "aa", "a:", "a:a", "a/a", "a:line", "a:claims", "a:seal", "a:gone", "a/0", "a\0a"];
    let names: Vec<Name> = texts.iter().map(|text| place.name(text)).collect();
    each_is_its_own(&client, &names).await;
}
