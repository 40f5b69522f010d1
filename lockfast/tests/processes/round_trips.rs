//! Every request, answer and error is decoded as it was encoded.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockfast::store::{
    Admission, Busy, BusyWith, Change, Lease, Leaving, Names, Page, Query, Report, Scope, Standing, Why,
};
use lockfast::store::{Claim, ClaimHash, ClaimId, ClientId, Demand, Demands, Name, Ticket, Tickets};
use lockfast::{Counters, Entry, Error, Guarantees, Holder, Mode, Note, Resource};

use crate::encoding::{Codec, Request, decode_all};

/// With nanoseconds, and more seconds than a double can represent.
const EXTREME_DURATION: Duration = Duration::new(u64::MAX, 999_999_999);
const BLOCK: Tickets = Tickets { first: Ticket(u64::MAX - 4_294_967_295), count: u32::MAX };

#[test]
fn requests_survive_a_round_trip() {
    let (claim, name) = (claim(), name());
    let leases = vec![
        Lease { claim: Arc::clone(&claim), ttl: EXTREME_DURATION },
        Lease { claim: Arc::clone(&claim), ttl: EXTREME_DURATION },
    ];
    let leaving = vec![
        Leaving::Done(Arc::clone(&claim)),
        Leaving::Unknown(Arc::clone(&claim)),
        Leaving::Linger(Arc::clone(&claim), EXTREME_DURATION),
        Leaving::Seal { claim: Arc::clone(&claim), value: Bytes::from_static(&[0, 255, 10]), keep: EXTREME_DURATION },
        Leaving::UnlessAlone { claim: Arc::clone(&claim), block: 7, floor: BLOCK.last() },
        Leaving::Break { name: name.clone(), ticket: Ticket(3), at_once: true },
    ];
    let counters = Counters { acquired: 1, released: 2, contended: 3, lost: u64::MAX };
    let entered = vec![(claim.id.hash(), claim.demands.clone())];
    let report =
        Report { client: ClientId(9), counters, entered, left: vec![ClaimHash([7; 16])], keep: EXTREME_DURATION };
    let one_name = Query { names: Names::One(name.clone()), after: None, limit: usize::MAX, entries: usize::MAX };
    let many_names = Query { names: Names::Beginning("a\0".into()), after: Some(name), limit: 0, entries: usize::MAX };
    for request in [
        Request::Open,
        Request::Close(1),
        Request::Acquire(2, Arc::clone(&claim), Busy::Wait),
        Request::Acquire(3, claim, Busy::Refuse),
        Request::Renew(4, leases),
        Request::Release(5, leaving),
        Request::Inspect(6, one_name),
        Request::Inspect(7, many_names),
        Request::Record(8, report),
        Request::Watch(9, Scope::Client(ClientId(u64::MAX))),
        Request::Watch(10, Scope::Queues(String::new())),
        Request::Forget(11),
        Request::Pass(EXTREME_DURATION),
    ] {
        assert_round_trip(request);
    }
}

#[test]
fn a_secret_survives_a_round_trip() {
    let id = ClaimId::random().unwrap();
    assert_eq!(round_trip(&id).expose_secret(), id.expose_secret());
}

#[test]
fn answers_survive_a_round_trip() {
    let (owner, note) = (ClaimHash([9; 16]), claim().note.clone());
    let passed_on = Why::PassedOn(owner, BLOCK.first);
    let whys = [Why::Left, passed_on, Why::Expired, Why::Broken, Why::Sealed, Why::Unknown];
    let holder = Some(Holder { owner, fence: BLOCK.first, note: Arc::clone(&note) });
    assert_round_trip(whys.map(Admission::Gone).to_vec());
    assert_round_trip(whys.map(Standing::Gone).to_vec());
    assert_round_trip(Ok::<_, Error>(Admission::Held(BLOCK)));
    assert_round_trip(Admission::Queued { ticket: BLOCK.first, position: 4, recheck_in: EXTREME_DURATION });
    assert_round_trip(Admission::Refused(BusyWith { holder, held_for: Some(EXTREME_DURATION), position: 2 }));
    assert_round_trip(Admission::Refused(BusyWith::default()));
    assert_round_trip(Admission::Sealed(Bytes::new()));
    assert_round_trip(vec![
        Standing::Held(BLOCK),
        Standing::Waiting { ticket: BLOCK.first, recheck_in: EXTREME_DURATION },
    ]);
    let entry = |mode: Mode, flag: bool| Entry {
        owner,
        tickets: BLOCK,
        mode,
        weight: 5,
        holds: flag,
        since: EXTREME_DURATION,
        expires_in: Duration::ZERO,
        lingers: !flag,
        broken: flag,
        note: Arc::clone(&note),
    };
    let queue = vec![entry(Mode::Exclusive, true), entry(Mode::Shared, false), entry(Mode::Permits, true)];
    let resources = vec![
        Resource { name: name(), capacity: Demand::ALL, queue, more: 0, sealed_for: None },
        Resource { name: name(), capacity: 1, queue: Vec::new(), more: 70, sealed_for: Some(EXTREME_DURATION) },
    ];
    assert_round_trip(Page { resources, next: Some(name()), fleet: Counters { lost: 1, ..Counters::default() } });
    assert_round_trip(Some(Change::Held(owner, BLOCK.first)));
    assert_round_trip(vec![Change::Gone(owner), Change::Resource(name()), Change::Resync]);
    assert_round_trip(Change::Recheck(owner, Duration::from_millis(2_500)));
    assert_round_trip(None::<Change>);
    assert_round_trip(Guarantees::in_process());
}

#[test]
fn errors_keep_their_kind_and_text() {
    for error in [
        Error::unavailable("asking", "no server there"),
        Error::invalid("cannot"),
        Error::unsupported("no pushes"),
        Error::Closed("it was shut down"),
    ] {
        assert_round_trip(Err::<(), _>(error));
    }
}

fn claim() -> Arc<Claim> {
    let other = Demand::permits(Name::new("ключ\r\n").unwrap(), 2, 5).unwrap();
    let labels = vec![("job".to_owned(), "42".to_owned()), (String::new(), String::new())];
    let note = Note { host: "web-2".into(), pid: 812, program: "p".into(), text: Some("t".into()), labels };
    Arc::new(Claim {
        id: ClaimId::random().unwrap(),
        client: ClientId(u64::MAX),
        demands: Demands::of(vec![Demand::exclusive(name()), other]).unwrap(),
        ttl: EXTREME_DURATION,
        block: 3,
        floor: BLOCK.last(),
        detached: true,
        note: Arc::new(note),
    })
}

/// As long as a name may be.
fn name() -> Name {
    Name::prefixed(&"p".repeat(Name::LONGEST_PREFIX), &"🔒".repeat(Name::LONGEST / 4)).unwrap()
}

fn round_trip<T: Codec>(value: &T) -> T {
    let mut message = Vec::new();
    value.encode(&mut message);
    decode_all(&message)
}

/// Compares by `Debug`, which prints every field.
fn assert_round_trip<T: Codec + Debug>(value: T) {
    assert_eq!(format!("{:?}", round_trip(&value)), format!("{value:?}"));
}
