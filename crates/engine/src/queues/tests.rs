use slipstream_keys::rsa::Size;
use slipstream_offload::Coding;

use super::*;

const RSA: Kind = Kind::Rsa(Size::Rsa2048);
const CONTENT: Kind = Kind::Compress(Coding::Deflate);
const LINGER: Option<Duration> = Some(Duration::from_micros(100));

/// Requests of these kinds, each a microsecond after the one before.
fn filled(kinds: &[(Kind, usize)]) -> (Queues<usize>, Instant) {
    let mut queues = Queues::default();
    let mut now = Instant::now();
    let user = queues.place(0);
    for (kind, count) in kinds {
        for number in 0..*count {
            queues.push(*kind, user, now, number);
            now += Duration::from_micros(1);
        }
    }
    (queues, now)
}

#[test]
fn a_full_batch_goes_at_once_and_in_order() {
    let (mut queues, now) = filled(&[(Kind::X25519, 1), (RSA, 11)]);
    queues.measured(Kind::X25519, Duration::from_secs(1));
    assert_eq!(queues.choose(now, LINGER, || 100), Choice::Batch(RSA));
    assert_eq!(
        queues.take(RSA, LINGER).as_slice(),
        [0, 1, 2, 3, 4, 5, 6, 7]
    );
    assert!(!queues.has_enough(0));
    assert_eq!(queues.take(RSA, LINGER).as_slice(), [8, 9, 10]);
    assert_eq!(queues.take(Kind::X25519, LINGER).as_slice(), [0]);
    assert_eq!(queues.choose(now, LINGER, || 100), Choice::Nothing);
}

#[test]
fn what_has_waited_for_as_long_as_it_takes_goes_before_full_batches() {
    let (mut queues, now) = filled(&[(Kind::X25519, 1), (RSA, 8)]);
    queues.measured(Kind::X25519, Duration::from_micros(40));
    assert_eq!(queues.choose(now, LINGER, || 100), Choice::Batch(RSA));
    let later = now + Duration::from_micros(80);
    assert_eq!(
        queues.choose(later, LINGER, || 100),
        Choice::Batch(Kind::X25519)
    );
}

#[test]
fn what_does_not_fill_a_batch_lingers_while_more_can_come() {
    let (queues, now) = filled(&[(RSA, 2), (Kind::X25519, 1)]);
    let deadline = now - Duration::from_micros(3) + LINGER.expect("some");
    assert_eq!(queues.choose(now, LINGER, || 4), Choice::Linger(deadline));
    assert_eq!(
        queues.choose(now, LINGER, || 3),
        Choice::Batch(RSA),
        "all are here"
    );
    assert_eq!(
        queues.choose(now, LINGER, || 0),
        Choice::Batch(RSA),
        "unknown"
    );
    assert_eq!(
        queues.choose(now, Some(Duration::ZERO), || 4),
        Choice::Batch(RSA)
    );
    assert_eq!(queues.choose(deadline, LINGER, || 4), Choice::Batch(RSA));
}

#[test]
fn without_a_limit_four_operations_of_rsa_are_enough() {
    let (mut queues, now) = filled(&[(RSA, 6)]);
    assert!(matches!(
        queues.choose(now, LINGER, || 100),
        Choice::Linger(_)
    ));
    assert_eq!(queues.choose(now, None, || 100), Choice::Batch(RSA));
    assert_eq!(queues.take(RSA, None).as_slice(), [0, 1, 2, 3]);
    assert_eq!(queues.take(RSA, None).as_slice(), [4, 5]);
}

#[test]
fn without_a_limit_it_lingers_as_long_as_it_takes() {
    let (mut queues, now) = filled(&[(RSA, 1), (Kind::X25519, 1)]);
    let start = now - Duration::from_micros(2);
    queues.measured(RSA, Duration::from_micros(800));
    queues.measured(Kind::X25519, Duration::from_micros(40));
    let deadline = start + Duration::from_micros(41);
    assert_eq!(queues.choose(now, None, || 4), Choice::Linger(deadline));
    let batch = Choice::Batch(Kind::X25519);
    assert_eq!(queues.choose(deadline, None, || 4), batch, "not the oldest");
    assert_eq!(queues.choose(now, None, || 2), Choice::Batch(RSA));
}

#[test]
fn content_goes_one_by_one_and_waits_for_nobody() {
    let (mut queues, now) = filled(&[(CONTENT, 10)]);
    for number in 0..10 {
        for linger in [None, LINGER] {
            assert_eq!(queues.choose(now, linger, || 100), Choice::Batch(CONTENT));
        }
        assert_eq!(queues.take(CONTENT, LINGER).as_slice(), [number]);
    }
    assert_eq!(queues.choose(now, None, || 100), Choice::Nothing);
}

#[test]
fn little_content_is_taken_ahead() {
    for (kind, count, is_enough) in [
        (CONTENT, 1, false),
        (CONTENT, 2, true),
        (RSA, 7, false),
        (RSA, 8, true),
    ] {
        let (queues, _) = filled(&[(kind, count)]);
        assert_eq!(queues.has_enough(0), is_enough, "{count} of {kind:?}");
    }
}

#[test]
fn content_and_lanes_take_turns_by_age() {
    let (mut queues, now) = filled(&[(CONTENT, 1), (RSA, 8), (CONTENT, 1)]);
    for expected in [CONTENT, RSA, CONTENT] {
        assert_eq!(queues.choose(now, LINGER, || 100), Choice::Batch(expected));
        queues.take(expected, LINGER);
    }
    // What lingers is passed by content that is younger, and goes on lingering.
    let (mut queues, now) = filled(&[(RSA, 2), (CONTENT, 3)]);
    let deadline = now - Duration::from_micros(5) + LINGER.expect("some");
    assert_eq!(queues.choose(now, LINGER, || 3), Choice::Batch(CONTENT));
    assert_eq!(queues.choose(now, LINGER, || 2), Choice::Batch(RSA));
    assert_eq!(queues.choose(deadline, LINGER, || 3), Choice::Batch(RSA));
    for _ in 0..3 {
        queues.take(CONTENT, LINGER);
    }
    assert_eq!(queues.choose(now, LINGER, || 3), Choice::Linger(deadline));
}

#[test]
fn what_is_discarded_does_not_wait() {
    let (mut queues, now) = filled(&[(RSA, 8), (Kind::X25519, 2)]);
    queues.discard(|number| number % 2 == 1);
    assert_eq!(queues.take(RSA, LINGER).as_slice(), [0, 2, 4, 6]);
    assert_eq!(
        queues.choose(now, LINGER, || 1),
        Choice::Batch(Kind::X25519)
    );
}

/// Requests of several users; those of a flood have been there for longer.
fn of_users(kinds: &[(u32, Kind, usize)]) -> (Queues<u32>, Instant) {
    let mut queues = Queues::default();
    let mut now = Instant::now();
    for (user, kind, count) in kinds {
        let place = queues.place(*user);
        for _ in 0..*count {
            queues.push(*kind, place, now, *user);
            now += Duration::from_micros(1);
        }
    }
    (queues, now)
}

const FLOOD: u32 = 1000;
const QUIET: u32 = 33;

/// Its batch takes long, so it would wait long for company.
#[test]
fn a_lone_request_of_a_quiet_user_is_next() {
    let slow = Kind::Rsa(Size::Rsa4096);
    let (mut queues, now) = of_users(&[(QUIET, slow, 0), (FLOOD, Kind::X25519, 8)]);
    queues.measured(slow, Duration::from_millis(5));
    queues.measured(Kind::X25519, Duration::from_micros(50));
    for _ in 0..500 {
        let flood = queues.place(FLOOD);
        assert_eq!(queues.choose(now, None, || 99), Choice::Batch(Kind::X25519));
        assert_eq!(queues.take(Kind::X25519, None), [FLOOD; 8]);
        for _ in 0..8 {
            queues.push(Kind::X25519, flood, now, FLOOD);
        }
    }
    let quiet = queues.place(QUIET);
    queues.push(slow, quiet, now, QUIET);
    assert_eq!(queues.choose(now, None, || 99), Choice::Batch(slow));
    assert_eq!(queues.take(slow, None), [QUIET]);
    // It has had its turn, not the lanes.
    assert_eq!(queues.choose(now, None, || 99), Choice::Batch(Kind::X25519));
}

#[test]
fn users_that_flood_take_turns_by_time_not_by_requests() {
    let slow = Kind::Rsa(Size::Rsa4096);
    let (mut queues, now) = of_users(&[(1, slow, 8), (2, RSA, 8)]);
    queues.measured(slow, Duration::from_millis(4));
    queues.measured(RSA, Duration::from_millis(1));
    let mut batches = [0; 2];
    for _ in 0..100 {
        let Choice::Batch(kind) = queues.choose(now, None, || 99) else {
            panic!("full batches wait");
        };
        let batch = queues.take(kind, None);
        let user = batch[0];
        batches[user as usize - 1] += 1;
        let place = queues.place(user);
        for _ in batch {
            queues.push(kind, place, now, user);
        }
    }
    assert_eq!(batches, [20, 80]);
}

#[test]
fn a_batch_has_those_first_that_have_been_served_least() {
    let (mut queues, now) = of_users(&[(FLOOD, RSA, 8)]);
    queues.measured(RSA, Duration::from_millis(1));
    queues.take(RSA, LINGER);
    let (flood, quiet) = (queues.place(FLOOD), queues.place(QUIET));
    for _ in 0..8 {
        queues.push(RSA, flood, now, FLOOD);
    }
    assert!(queues.has_enough(flood) && !queues.has_enough(quiet));
    queues.push(RSA, quiet, now, QUIET);
    let batch = queues.take(RSA, LINGER);
    assert_eq!((batch[0], batch.len()), (QUIET, 8));
    assert_eq!(queues.take(RSA, LINGER), [FLOOD]);
}
