//! Laws, which hold in every state, and milestones, which some state must reach. `fenced`, `exclusive` and
//! `honest` are the invariants I1 to I3 of the simulation.

use stateright::Property;

use crate::client::{InFlight, Phase};
use crate::messages::{Call, Push, Verb};
use crate::notes::{MILESTONES, Notes};
use crate::setups::Setup;
use crate::table::{ALL, Entry, Execution, NextWaiter};
use crate::world::World;

/// The laws, and the milestones that the search of this setup must reach.
pub fn properties(setup: &Setup) -> Vec<Property<Setup>> {
    let mut properties = vec![
        Property::always("exclusive: no two valid holders exceed a capacity", exclusive),
        Property::always("honest: the store's lease outlives local validity", honest),
        Property::always("fenced: a write inside validity is never refused", |_, world: &World| {
            !world.notes.has(Notes::VALID_WRITE_REFUSED)
        }),
        Property::always("fenced: fences rise between claims that cannot share", |_, world: &World| {
            !world.notes.has(Notes::FENCE_FELL)
        }),
        Property::always("fenced: a fence is one of its claim's block, and blocks never overtake", blocks),
        Property::always("safe: the store grants no more than there is", safe),
        Property::always("no ghost: every claim in the queue has a request, or a release in flight", no_ghost),
        Property::always("progress: a waiter that asks when all leases ahead have ended gets the lock", progress),
        Property::always("awake: every waiter for a free lock has a recheck, a call or a push to come", awake),
    ];
    let required = (0..MILESTONES.len()).filter(|index| setup.milestones.has(MILESTONES[*index].0));
    properties.extend(required.map(|index| Property::sometimes(MILESTONES[index].1, REACHED[index])));
    properties
}

type Condition = fn(&Setup, &World) -> bool;

/// Whether each milestone was just reached. A condition cannot carry a value, so each has a function of its own.
const REACHED: [Condition; MILESTONES.len()] = [
    reached::<0>,
    reached::<1>,
    reached::<2>,
    reached::<3>,
    reached::<4>,
    reached::<5>,
    reached::<6>,
    reached::<7>,
    reached::<8>,
    reached::<9>,
    reached::<10>,
    reached::<11>,
    reached::<12>,
    reached::<13>,
    reached::<14>,
    reached::<15>,
];

fn reached<const INDEX: usize>(_: &Setup, world: &World) -> bool {
    world.notes.has(MILESTONES[INDEX].0)
}

fn exclusive(setup: &Setup, world: &World) -> bool {
    let inside = |c: &usize| world.clients[*c].is_validly_inside();
    let all: Vec<usize> = (0..world.clients.len()).filter(inside).collect();
    all.iter().all(|c| {
        all.iter().filter(|d| *d < c).all(|d| {
            let (one, other) = (&setup.plans[*c], &setup.plans[*d]);
            one.names & other.names == 0 || one.weight + other.weight <= ALL
        })
    })
}

fn honest(_: &Setup, world: &World) -> bool {
    world.clients.iter().filter(|client| client.valid_ticks > 0).all(|client| {
        let entry = world.table.find(client.id);
        match client.phase {
            // A waiter may have been evicted from the queue, and learns it when it polls.
            Phase::Waiting { .. } => entry.is_none_or(|entry| entry.lease > client.valid_ticks),
            Phase::Inside { .. } => {
                entry.is_some_and(|entry| entry.lease > client.valid_ticks && world.table.holds(entry))
            }
            _ => true,
        }
    })
}

fn blocks(_: &Setup, world: &World) -> bool {
    let fences_are_own = world.clients.iter().all(|client| match client.phase {
        Phase::Inside { fence } => client.block.contains(fence),
        _ => true,
    });
    let entries = &world.table.entries;
    fences_are_own && entries.windows(2).all(|pair| pair[0].block.last() < pair[1].block.first)
}

fn safe(_: &Setup, world: &World) -> bool {
    // The bits of the two resources.
    [1, 2].into_iter().all(|name| {
        let is_holder = |it: &&Entry| it.lease > 0 && it.names & name != 0 && world.table.holds(it);
        let held: u32 = world.table.entries.iter().filter(is_holder).map(|it| u32::from(it.weight)).sum();
        held <= u32::from(ALL)
    })
}

fn no_ghost(_: &Setup, world: &World) -> bool {
    world.table.entries.iter().filter(|entry| entry.lease > 0).all(|entry| {
        let client = &world.clients[usize::from(entry.id.client)];
        let has_request = client.id == entry.id && client.phase != Phase::Idle;
        let is_its_release = |call: &Call| call.id == entry.id && call.verb.is_release();
        client.phase == Phase::Crashed || has_request || world.unawaited_calls.iter().any(is_its_release)
    })
}

/// Running clients that wait with only ended leases ahead of them, each with its entry.
fn next_in_queue(world: &World) -> impl Iterator<Item = (usize, &Entry)> {
    let is_waiting =
        |c: &usize| world.clients[*c].is_running() && matches!(world.clients[*c].phase, Phase::Waiting { .. });
    let entries =
        (0..world.clients.len()).filter(is_waiting).filter_map(|c| Some((c, world.table.find(world.clients[c].id)?)));
    entries.filter(|(_, entry)| entry.lease > 0 && world.table.ahead(entry).all(|it| it.lease == 0))
}

fn progress(setup: &Setup, world: &World) -> bool {
    next_in_queue(world).all(|(c, entry)| {
        let mut table = world.table.clone();
        let renewal = Call { id: entry.id, verb: Verb::Renew { ttl: setup.lease, waits: true }, age: 0 };
        table.run(&renewal, setup.claim_spec(c), &mut Execution::new(setup.rules, NextWaiter::Reachable));
        table.find(entry.id).is_some_and(|entry| table.holds(entry))
    })
}

fn awake(_: &Setup, world: &World) -> bool {
    next_in_queue(world).all(|(c, entry)| {
        let client = &world.clients[c];
        let is_granted = |push: &Push| matches!(push, Push::Held { id, .. } if *id == entry.id);
        let will_poll_or_renew =
            matches!(client.phase, Phase::Waiting { is_settling, will_poll } if is_settling || will_poll);
        will_poll_or_renew || client.in_flight != InFlight::Nothing || world.pushes.iter().any(is_granted)
    })
}
