use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::claim::{Claim, ClaimId, Demand, Note, Ticket};
use crate::engine::Key;
use crate::error::Error;
use crate::name::Name;
use crate::store::Leaving;

fn claim(secret: u8) -> Arc<Claim> {
    let note = Note { host: "host-of-claim".into(), text: Some("text-of-claim".into()), ..Note::default() };
    Arc::new(Claim {
        id: ClaimId::from_secret([secret; 16]),
        client: ClientId(9),
        demands: Demand::exclusive(Name::prefixed(&"p".repeat(64), &"\"{\\\n\u{1f512}".repeat(60)).unwrap()).into(),
        ttl: Duration::MAX,
        block: 3,
        floor: Ticket(u64::MAX),
        detached: false,
        note: Arc::new(note),
    })
}

#[test]
fn ids_are_written_as_hashes() {
    let ids: Vec<_> = (200..=231).map(|secret| ClaimId::from_secret([secret; 16])).collect();
    let written = InputRecord::new(&Input::Ids(ids.clone())).0;
    for id in &ids {
        let secret = id.expose_secret();
        let hex = format!("{:02x}", secret[0]).repeat(4);
        let decimal = format!("{0},{0}", secret[0]);
        assert!(written.contains(&id.hash().to_string()), "{written}");
        assert!(!written.contains(&hex) && !written.contains(&decimal), "{written}");
    }
}

#[test]
fn a_digest_names_effects_and_differs_between_them() {
    let key = |text: &str| text.parse::<Key>().unwrap();
    let (next, wakes) = (Next::Wait, [Effect::Wake(key("1.0")), Effect::Wake(key("2.0"))]);
    let one = digest(&next, &wakes, true);
    assert!(one.starts_with("Wait +Wake*2 +keeper #"), "{one}");
    assert_eq!(one, digest(&next, &wakes, true));
    for other in [
        digest(&next, &wakes, false),
        digest(&next, &wakes[..1], true),
        digest(&next, &[Effect::Wake(key("1.0")), Effect::Wake(key("2.1"))], true),
        digest(&Next::Nothing, &wakes, true),
    ] {
        assert_ne!(one, other);
    }
}

#[test]
fn unwritten_fields_change_no_digest() {
    let send = |leaving| digest(&Next::Send { leaving, keeps: false, lost: None }, &[], false);
    let bare = Arc::new(Claim { note: Arc::default(), ..Claim::clone(&claim(1)) });
    assert_eq!(send(Leaving::Done(claim(1))), send(Leaving::Done(bare)));
    let seal = |value: &'static [u8]| {
        send(Leaving::Seal { claim: claim(1), value: Bytes::from_static(value), keep: Duration::ZERO })
    };
    assert_eq!(seal(b"value"), seal(b"other"));
    assert_ne!(seal(b"value"), seal(b"another length"));
    let fails = |cause: &str| digest(&Next::Fail(Box::new(Error::unavailable("asking", cause))), &[], false);
    assert_eq!(fails("the network"), fails("as recorded"));
}

#[cfg(feature = "engine")]
mod reading {
    use super::*;

    /// An input that was written and read.
    fn read(input: &Input) -> Input {
        let line = InputRecord::new(input).line(ClientId(u64::MAX), 7, Moment::NEVER, 255, "Wait #0");
        assert!(line.ends_with("}\n") && line.lines().count() == 1, "{line}");
        match Line::parse(line.as_bytes()).unwrap() {
            Line::Step { client: ClientId(u64::MAX), step: 7, now: Moment::NEVER, event_rank: 255, input, led } => {
                assert_eq!(led, "Wait #0");
                *input
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_input_that_was_read_is_written_the_same() {
        let asked = crate::engine::AcquireCall {
            key: "4294967295.7".parse().unwrap(),
            claim: claim(5),
            sent: Moment::NEVER,
            inline: true,
            unsure: false,
        };
        let errors = [
            Error::unavailable("a", "b"),
            Error::invalid("a"),
            Error::unsupported("a"),
            Error::Closed("a"),
            Error::Lost { name: "a".into(), why: crate::error::LostWhy::Broken },
        ];
        for error in errors {
            let input = Input::Admitted { asked: asked.clone(), answer: Err(error.clone()) };
            let again = read(&input);
            assert_eq!(InputRecord::new(&again).0, InputRecord::new(&input).0);
            let Input::Admitted { asked: read, answer: Err(kind) } = again else { panic!("{again:?}") };
            assert_eq!((read.key, read.claim.demands.clone()), (asked.key, asked.claim.demands.clone()));
            assert_eq!(read.claim.id.hash(), asked.claim.id.hash());
            assert_eq!(read.claim.id.expose_secret(), &[0; 16], "the secret is not there to be read");
            assert_eq!(std::mem::discriminant(&kind), std::mem::discriminant(&error));
        }
    }

    #[test]
    fn an_unreadable_part_is_named_with_its_path() {
        let wrong = |text: &str| Line::parse(text.as_bytes()).unwrap_err();
        let line = InputRecord::new(&Input::Elapsed).line(ClientId(1), 1, Moment::START, 0, "Wait #0");
        let unknown = wrong(&line.replace("Elapsed", "Collapsed"));
        assert!(unknown.contains("there is no Input::Collapsed"), "{unknown}");
        let lacking = wrong(&line.replace("\"now\"", "\"then\""));
        assert!(lacking.contains("lacks now"), "{lacking}");
        let header = Header { lockfast: "1".into(), client: ClientId(1), seed: 2, start: Moment::START };
        let newer = header.line().replace("\"format\":1", "\"format\":2");
        assert!(wrong(&newer).contains("format 2"), "{newer}");
        let nested = r#"{"step":1,"client":"1","now":1,"heard":0,"input":{"Polled":{"key":"x"}},"led":""}"#;
        assert!(wrong(nested).contains("Input::Polled.key: \"x\" is no key"), "{}", wrong(nested));
    }
}
