//! The precedence of sources, and the errors about wrong settings.

use std::path::Path;

use super::*;

/// A directory that is removed at the end of the test.
struct Dir(PathBuf);

impl Dir {
    fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("lockfast-settings-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.0.join(name);
        std::fs::write(&file, text).unwrap();
        file
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn resolve(globals: &Globals, env: &[(&str, &str)], files: Vec<PathBuf>) -> Result<Settings, String> {
    let env = |key: &str| env.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned());
    let mut stdin = || Ok("redis://:from-stdin@db\n".to_owned());
    Settings::merge(globals, Inputs { env: &env, files, stdin: &mut stdin })
}

#[test]
fn without_any_setting_the_locks_are_in_a_file_of_this_user() {
    let settings = resolve(&Globals::default(), &[], vec![]).unwrap();
    assert_eq!((settings.store.as_str(), settings.prefix, settings.ttl), ("sqlite:", None, None));
}

#[test]
fn each_key_comes_from_the_most_important_source_that_has_it() {
    let dir = Dir::new("order");
    let here = dir.file("here.toml", "store = \"memory:here\"\nprefix = \"here:\"\nttl = \"10s\"\n");
    let user = dir.file("user.toml", "prefix = \"user:\"\nttl = 20\nname = \"user\"\nlabels = { team = \"a\" }\n");
    let system = dir.file("system.toml", "name = \"system\"\nrenew_every = 1.5\nlog_format = \"json\"\n");
    let flags = Globals { prefix: Some("flag:".to_owned()), ..Globals::default() };
    let files = vec![here, user, dir.0.join("missing.toml"), system];
    let settings = resolve(&flags, &[("LOCKFAST_URL", "memory:env"), ("LOCKFAST_PREFIX", "env:")], files).unwrap();
    assert_eq!((settings.store.as_str(), settings.prefix.as_deref()), ("memory:env", Some("flag:")));
    assert_eq!(settings.ttl, Some(Duration::from_secs(10)));
    assert_eq!(settings.renew_every, Some(Duration::from_millis(1500)));
    assert_eq!((settings.name.as_deref(), settings.log_format), (Some("user"), LogFormat::Json));
    assert_eq!(settings.labels, [("team".to_owned(), "a".to_owned())]);
}

#[test]
fn a_named_config_file_is_the_only_one_and_must_exist() {
    let dir = Dir::new("named");
    let (mine, other) = (dir.file("mine.toml", "ttl = 5"), dir.file("other.toml", "prefix = \"no\""));
    let flags = Globals { config: Some(mine.clone()), ..Globals::default() };
    let settings = resolve(&flags, &[], vec![other.clone()]).unwrap();
    assert_eq!((settings.ttl, settings.prefix), (Some(Duration::from_secs(5)), None));
    let by_env = resolve(&Globals::default(), &[("LOCKFAST_CONFIG", mine.to_str().unwrap())], vec![other]).unwrap();
    assert_eq!(by_env.ttl, Some(Duration::from_secs(5)));
    let flags = Globals { config: Some(dir.0.join("missing.toml")), ..Globals::default() };
    assert!(resolve(&flags, &[], vec![]).unwrap_err().contains("no such file"));
}

#[test]
fn an_error_in_a_file_names_its_line_and_the_choices() {
    let error_of = |text: &str| match Source::of_text(text, Path::new("lockfast.toml")) {
        Ok(_) => panic!("{text:?} was accepted"),
        Err(message) => message,
    };
    let unknown = error_of("ttl = 5\n\nstor = \"memory:\"\n");
    assert!(unknown.starts_with("lockfast.toml:3: unknown field `stor`"), "{unknown}");
    assert!(unknown.contains("`store`") && unknown.contains("`log_format`"), "{unknown}");
    let span = error_of("prefix = \"a\"\nttl = \"soon\"\n");
    assert!(span.starts_with("lockfast.toml:2: ") && span.contains("1m30s"), "{span}");
    let kind = error_of("ttl = true");
    assert!(kind.starts_with("lockfast.toml:1: ") && kind.contains("1m30s"), "{kind}");
    let format = error_of("log_format = \"xml\"");
    assert!(format.contains("text") && format.contains("json"), "{format}");
    let both = error_of("store = \"memory:\"\nstore_file = \"url\"\n");
    assert!(both.contains("keep one"), "{both}");
    let syntax = error_of("ttl = 5\nprefix\n");
    assert!(syntax.starts_with("lockfast.toml:2: "), "{syntax}");
}

#[test]
fn an_error_in_the_environment_names_its_variable() {
    for (key, value) in [("LOCKFAST_TTL", "soon"), ("LOCKFAST_LABELS", "team"), ("LOCKFAST_LOG_FORMAT", "xml")] {
        let message = resolve(&Globals::default(), &[(key, value)], vec![]).unwrap_err();
        assert!(message.contains(key), "{message}");
    }
}

#[test]
fn a_url_can_come_from_a_file_or_from_standard_input() {
    let dir = Dir::new("secret");
    dir.file("url", "redis://:s3cret@db\n");
    let config = dir.file("lockfast.toml", "store_file = \"url\"\n");
    let settings = resolve(&Globals::default(), &[], vec![config.clone()]).unwrap();
    assert_eq!(settings.store, "redis://:s3cret@db", "found beside the config file");
    assert!(!format!("{settings:?}").contains("s3cret"));
    let flags = Globals { store: Some("-".to_owned()), ..Globals::default() };
    assert_eq!(resolve(&flags, &[], vec![config]).unwrap().store, "redis://:from-stdin@db");
    dir.file("url", "\n");
    let empty = dir.0.join("url").to_str().unwrap().to_owned();
    assert!(resolve(&Globals::default(), &[("LOCKFAST_URL_FILE", &empty)], vec![]).unwrap_err().contains("empty"));
}

#[test]
fn the_redis_table_completes_the_url() {
    let dir = Dir::new("redis");
    let here = dir.file("here.toml", "[redis]\nconnect_timeout = 1.5\nca = \"my ca.pem\"\n");
    let system = dir.file("system.toml", "[redis]\nconnect_timeout = \"9s\"\nheartbeat = \"1m30s\"\nreplicas = 2\n");
    let store = |url: &str| {
        let flags = Globals { store: Some(url.to_owned()), ..Globals::default() };
        resolve(&flags, &[], vec![here.clone(), system.clone()]).unwrap().store
    };
    let ca = format!("ca={}/my%20ca.pem", dir.0.display());
    let rest = "connect_timeout=1500ms&heartbeat=90000ms&replicas=2";
    assert_eq!(store("rediss://db"), format!("rediss://db?{ca}&{rest}"));
    assert_eq!(store("redis://db"), format!("redis://db?{rest}"), "ca is for encrypted connections");
    let given = "connect_timeout=2s&replicas=0";
    assert_eq!(store(&format!("redis://db?{given}")), format!("redis://db?{given}&heartbeat=90000ms"));
    assert_eq!(store("sqlite:/tmp/redis://x"), "sqlite:/tmp/redis://x");
    assert_eq!(redacted_url(&store("rediss://:s3cret@db")), format!("rediss://:***@db?{ca}&{rest}"));
}

#[test]
fn a_certificate_and_its_key_come_from_one_source() {
    let dir = Dir::new("pair");
    let file = dir.file("here.toml", "[redis]\ncert = \"/ours.pem\"\nkey = \"/ours.key\"\n");
    let store = |url: &str| resolve(&Globals::default(), &[("LOCKFAST_URL", url)], vec![file.clone()]).unwrap().store;
    assert_eq!(store("rediss://db"), "rediss://db?cert=/ours.pem&key=/ours.key");
    assert_eq!(store("rediss://db?cert=/a&key=/b"), "rediss://db?cert=/a&key=/b");
    assert_eq!(store("rediss://db?cert=/a"), "rediss://db?cert=/a", "the library says what is missing");
}

const EXAMPLE: &str = include_str!("../../../lockfast.example.toml");

/// The example with every key in force: keys that are only proposals begin with `#` and no space.
fn example_in_force() -> String {
    EXAMPLE
        .lines()
        .map(|line| line.strip_prefix('#').filter(|it| !it.starts_with(' ')).unwrap_or(line))
        .fold(String::new(), |text, line| text + line + "\n")
}

/// The same with one of the two ways to name a store.
fn without_store() -> String {
    example_in_force().replace("store = \"sqlite:\"\n", "")
}

#[tokio::test]
async fn the_example_file_shows_the_defaults() {
    let dir = Dir::new("example");
    let with = resolve(&Globals::default(), &[], vec![dir.file("lockfast.toml", EXAMPLE)]).unwrap();
    let without = resolve(&Globals::default(), &[], vec![]).unwrap();
    assert_eq!((with.store, with.log_format), (without.store, without.log_format));
    assert_eq!((with.name, with.labels), (without.name, without.labels));
    assert!(with.retry.is_none());
    // Defaults of the library.
    let usual = format!("{:?}", Locks::builder());
    assert!(usual.contains(&format!("ttl: {:?}", with.ttl.unwrap())), "{usual}");
    let proposed = Source::of_text(&without_store(), Path::new("lockfast.example.toml")).ok().unwrap();
    assert_eq!(proposed.renew_every, with.ttl.map(|ttl| ttl / 3), "in force it would not fit a shorter --ttl");
    assert!(with.prefix.is_none(), "in force it would go before that of a URL");
    let locks = Locks::connect("memory:example").await.unwrap();
    let _held = locks.mutex("a").lock().await.unwrap();
    let proposed = Locks::builder().prefix(proposed.prefix.unwrap()).connect("memory:example").await.unwrap();
    assert!(proposed.mutex("a").is_locked().await.unwrap());
}

#[test]
fn every_key_is_in_the_example_file() {
    let all = toml::from_str::<toml::Table>(&example_in_force()).unwrap();
    let keys_of = |prefix: &str| -> Vec<String> {
        let message = Source::of_text(&format!("{prefix}\nnonsense = 1\n"), Path::new("x")).err().unwrap();
        let (_, allowed) = message.split_once("expected one of ").unwrap();
        allowed.split(", ").map(|key| key.trim_matches('`').to_owned()).collect()
    };
    let keys = keys_of("");
    assert!(keys.len() >= 9, "{keys:?}");
    for key in keys {
        assert!(all.contains_key(&key), "{key} is not in lockfast.example.toml");
    }
    for table in ["retry", "redis"] {
        for key in keys_of(&format!("[{table}]")) {
            assert!(all[table].as_table().unwrap().contains_key(&key), "{table}.{key} is not in lockfast.example.toml");
        }
    }
}

#[test]
fn every_proposal_of_the_example_file_is_accepted() {
    let source = Source::of_text(&without_store(), Path::new("lockfast.example.toml"))
        .unwrap_or_else(|message| panic!("{message}"));
    assert!(source.retry.is_some() && source.labels.is_some() && source.name.is_some());
    assert_eq!(source.redis.len(), 9, "{:?}", source.redis);
}
