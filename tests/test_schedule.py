"""The scheduler: every rollout exactly once, oldest group first, no update before its buffer is whole."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_env.schedule import (
    Close,
    Failed,
    Finished,
    GiveUp,
    Halt,
    Idle,
    Rollout,
    Scheduler,
    Start,
    Submit,
    Update,
    Updated,
)


def drive(scheduler, groups, workers, *, seed=0, fails=lambda start: False):
    """Play a run out in an arbitrary but seeded order of completion; everything that was decided, in order."""
    rng = random.Random(seed)
    running, decided = [], []

    def tell(event):
        for decision in scheduler.handle(event):
            decided.append(decision)
            if isinstance(decision, Start):
                running.append(decision)
            if isinstance(decision, Update):
                pending.append(Updated())

    pending = [Submit(samples, frozenset(done)) for samples, done in groups]
    pending += [Close(), *(Idle(worker) for worker in range(workers))]
    while pending or running:
        if pending:
            tell(pending.pop(0))
            continue
        start = running.pop(rng.randrange(len(running)))
        tell(Failed(start.rollout) if fails(start) else Finished(start.rollout))
        pending.insert(0, Idle(start.worker))
    return decided


group = st.integers(1, 4).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1))))


@given(
    groups=st.lists(group, max_size=6),
    workers=st.integers(1, 5),
    per_update=st.none() | st.integers(1, 3),
    retries=st.integers(0, 2),
    broken=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 3))),
    seed=st.integers(0, 1000),
)
def test_every_rollout_is_settled_once_and_handed_over_once(groups, workers, per_update, retries, broken, seed):
    def fails(start):
        return (start.rollout.group, start.rollout.sample) in broken

    decided = drive(Scheduler(retries=retries, groups_per_update=per_update), groups, workers, seed=seed, fails=fails)

    every = {Rollout(g, s) for g, (n, _) in enumerate(groups) for s in range(n)}
    before = {Rollout(g, s) for g, (_, done) in enumerate(groups) for s in done}
    starts = [d.rollout for d in decided if isinstance(d, Start)]
    lost = {r for r in every - before if (r.group, r.sample) in broken}
    assert set(starts) == every - before
    assert all(starts.count(r) == (retries + 1 if r in lost else 1) for r in set(starts))
    updates = [d for d in decided if isinstance(d, Update)]
    assert [r for u in updates for r in u.finished] == sorted(every - lost)
    assert {d.rollout for d in decided if isinstance(d, GiveUp)} == {r for u in updates for r in u.given_up} == lost
    sizes = [len({r.group for r in (*u.finished, *u.given_up)}) for u in updates]
    assert all(size == per_update for size in sizes[:-1])


@given(st.lists(st.integers(1, 3), min_size=1, max_size=5), st.integers(1, 4), st.integers(0, 100))
def test_the_oldest_ready_rollout_starts_first(sizes, workers, seed):
    decided = drive(
        Scheduler(retries=1), [(n, ()) for n in sizes], workers, seed=seed, fails=lambda start: start.attempt == 0
    )
    outstanding = sorted([Rollout(g, s) for g, n in enumerate(sizes) for s in range(n)] * 2)
    running_at_most = workers
    for start in (d for d in decided if isinstance(d, Start)):
        # Whatever is older and not started now is held by another worker.
        older = {r for r in outstanding if r < start.rollout}
        assert len(older) < running_at_most
        outstanding.remove(start.rollout)
    assert not outstanding


@given(st.integers(1, 3), st.integers(1, 6), st.integers(0, 100))
def test_nothing_of_the_next_update_starts_before_this_one_is_done(per_update, workers, seed):
    decided = drive(Scheduler(retries=0, groups_per_update=per_update), [(2, ())] * 5, workers, seed=seed)
    batch = 0
    for decision in decided:
        if isinstance(decision, Update):
            batch += 1
        elif isinstance(decision, Start):
            assert decision.rollout.group // per_update == batch


def test_it_halts_when_nothing_works_and_not_while_something_does():
    halted = drive(Scheduler(retries=0, halt_after=3), [(1, ())] * 9, 1, fails=lambda start: True)
    assert isinstance(halted[-1], Halt)
    assert sum(isinstance(d, Start) for d in halted) == 3

    limping = drive(Scheduler(retries=0, halt_after=3), [(1, ())] * 9, 1, fails=lambda s: s.rollout.group % 3 != 0)
    assert not any(isinstance(d, Halt) for d in limping)


@pytest.mark.parametrize("event", [Finished(Rollout(0, 0)), Failed(Rollout(0, 0)), Updated()])
def test_an_event_that_cannot_have_happened_is_refused(event):
    with pytest.raises(ValueError, match=r"running|under way"):
        Scheduler(retries=0).handle(event)
