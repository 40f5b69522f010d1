//! A store's URL, as people may see it.

/// The URL without what may be a secret: the password before the `@`, and the values after the `?`.
pub(crate) fn shown(url: &str) -> String {
    let (address, query) = match url.split_once('?') {
        Some((address, query)) => (address, Some(query)),
        None => (url, None),
    };
    let mut text = match address.split_once("://") {
        Some((scheme, rest)) => {
            // The last `@` of all: a password may hold a slash or an `@` that nobody has escaped.
            match rest.rsplit_once('@') {
                Some((user, host)) => {
                    let user = user.split_once(':').map_or(user, |(user, _)| user);
                    format!("{scheme}://{user}:***@{host}")
                }
                None => address.to_owned(),
            }
        }
        None => address.to_owned(),
    };
    if let Some(query) = query {
        let keys: Vec<_> = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default()).collect();
        text += &format!("?{}=***", keys.join("=***&"));
    }
    crate::out::plain(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        assert_eq!(shown("sqlite:/var/lib/locks.db"), "sqlite:/var/lib/locks.db");
        assert_eq!(shown("redis://db:6379/1"), "redis://db:6379/1");
        assert_eq!(shown("redis://:s3cret@db/1"), "redis://:***@db/1");
        assert_eq!(
            shown("postgres://me:s3cret@db/locks?password=t0p&sslmode=x"),
            "postgres://me:***@db/locks?password=***&sslmode=***"
        );
        assert_eq!(shown("redis://me:s3/c@ret@db"), "redis://me:***@db");
        assert_eq!(shown("redis://a:s3cret@one,b:t0p@two"), "redis://a:***@two");
    }
}
