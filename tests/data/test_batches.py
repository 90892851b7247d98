"""The order of the images: each is used equally often, and any step can be read directly."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from certus.data.batches import Batches, Stream

sizes = st.tuples(st.integers(1, 12), st.integers(1, 30))  # n indices, and how many are taken at a time
seeds = st.integers(0, 2**32)


def takes(n, size, steps, seed=0):
    stream = Stream(n, seed)
    return [stream.take(step, size).tolist() for step in range(steps)]


@given(sizes, seeds)
def test_every_lap_is_a_permutation(shape, seed):
    n, size = shape
    flat = [index for taken in takes(n, size, n, seed) for index in taken]
    laps = [flat[i : i + n] for i in range(0, len(flat), n)]
    assert len(laps) == size
    assert all(sorted(lap) == list(range(n)) for lap in laps)


@given(sizes, st.lists(st.integers(0, 20), min_size=1, max_size=8), seeds)
def test_random_access_equals_sequential_reading(shape, steps, seed):
    n, size = shape
    sequence, stream = takes(n, size, 21, seed), Stream(n, seed)
    assert [stream.take(step, size).tolist() for step in steps] == [sequence[step] for step in steps]


@given(sizes, st.integers(1, 20), seeds)
def test_no_index_is_ahead_of_another_by_more_than_one(shape, steps, seed):
    n, size = shape
    counts = Counter(index for taken in takes(n, size, steps, seed) for index in taken)
    seen = [counts[index] for index in range(n)]
    assert sum(seen) == steps * size
    assert max(seen) - min(seen) <= 1


def test_laps_and_seeds_are_shuffled_each_in_its_own_way():
    orders = [tuple(lap) for seed in range(3) for lap in takes(20, 20, 3, seed)]
    assert len(set(orders)) == 9
    assert tuple(range(20)) not in orders


SEES = ["both", "labelled", "everything"]
LABELLED, UNLABELLED = torch.arange(100, 106), torch.arange(200, 206)


@pytest.mark.parametrize("step", [0, 1, 2, 50])
def test_a_batch_has_labelled_images_first_then_unlabelled_ones(step):
    indices = Batches(LABELLED, UNLABELLED, (4, 3), seed=0)(step).tolist()
    assert len(indices) == 7
    assert set(indices[:4]) <= set(LABELLED.tolist())
    assert set(indices[4:]) <= set(UNLABELLED.tolist())


def test_a_batch_without_unlabelled_images_has_the_same_labelled_ones():
    batches = Batches(LABELLED, UNLABELLED, (4, 3), seed=0)
    for step in range(10):
        assert batches(step, "labelled").tolist() == batches(step)[:4].tolist()


def test_a_stream_over_everything_has_labelled_and_unlabelled_images_equally_often():
    batches = Batches(LABELLED, UNLABELLED, (4, 3), seed=0)
    met = torch.cat([batches(step, "everything") for step in range(4)])  # one lap of 12 indices, 3 at a time
    assert sorted(met.tolist()) == [*LABELLED.tolist(), *UNLABELLED.tolist()]
    assert met[:6].tolist() != sorted(met[:6].tolist())


@pytest.mark.parametrize("sees", SEES)
def test_size_is_how_many_images_a_step_sees(sees):
    batches = Batches(LABELLED, UNLABELLED, (4, 3), seed=0)
    assert len(batches(1, sees)) == batches.size(sees) == {"both": 7, "labelled": 4, "everything": 3}[sees]


@pytest.mark.parametrize("sees", SEES)
@given(steps=st.lists(st.integers(0, 30), min_size=1, max_size=8))
def test_a_batch_depends_on_nothing_but_seed_and_step(sees, steps):
    batches = Batches(LABELLED, UNLABELLED, (4, 3), seed=5)
    for step in steps:
        assert batches(step, sees).tolist() == Batches(LABELLED, UNLABELLED, (4, 3), seed=5)(step, sees).tolist()


@pytest.mark.parametrize("sees", SEES)
def test_another_seed_is_another_order(sees):
    orders = {tuple(Batches(LABELLED, UNLABELLED, (6, 6), seed)(0, sees).tolist()) for seed in range(5)}
    assert len(orders) == 5


def test_labelled_and_unlabelled_images_are_shuffled_separately():
    indices = torch.arange(20)
    batches = Batches(indices, indices, (20, 20), seed=0)
    labelled, unlabelled = batches(0).split(20)
    assert labelled.tolist() != unlabelled.tolist()


def test_an_epoch_has_every_unlabelled_image_once():
    batches = Batches(LABELLED, UNLABELLED, (4, 3), seed=0)
    for epoch in range(3):
        steps = range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch)
        met = torch.cat([batches(step)[4:] for step in steps])
        assert sorted(met.tolist()) == UNLABELLED.tolist()


@pytest.mark.parametrize(("n", "size", "steps"), [(6, 3, 2), (7, 3, 2), (8, 3, 3), (2, 384, 1), (46000, 384, 120)])
def test_steps_per_epoch_are_the_nearest_whole_number_and_at_least_1(n, size, steps):
    assert Batches(LABELLED, torch.arange(n), (4, size), seed=0).per_epoch == steps


@pytest.mark.parametrize(("n", "steps"), [(8, 2), (9, 2), (11, 3), (1, 1)])
def test_without_unlabelled_images_an_epoch_is_one_pass_over_the_labelled_ones(n, steps):
    batches = Batches(torch.arange(n), torch.arange(0), (4, 3), seed=0)
    assert batches.per_epoch == steps
    assert len(batches(5, "labelled")) == 4


def test_parts_smaller_than_their_share_of_a_batch_are_repeated_evenly():
    indices = Batches(torch.tensor([7, 8]), torch.tensor([9]), (5, 3), seed=0)(0).tolist()
    assert sorted(Counter(indices[:5]).values()) == [2, 3]
    assert indices[5:] == [9, 9, 9]


LABELS = torch.tensor([0, 0, 0, 0, 2, 1])  # of LABELLED


@given(st.integers(1, 9), st.integers(1, 12), seeds)
def test_balanced_batches_have_every_class_equally_often(size, steps, seed):
    batches = Batches(LABELLED, UNLABELLED, (size, 3), seed, LABELS)
    for warm in (False, True):
        taken = [batches.warm(i) if warm else batches(i, "labelled") for i in range(steps)]
        counts = LABELS[torch.cat(taken) - 100].bincount(minlength=3)
        assert counts.sum() == steps * (size + 3 if warm else size)
        assert counts.max() - counts.min() <= 1


def test_within_a_class_balanced_batches_are_a_stream():
    taken = torch.cat([Batches(LABELLED, UNLABELLED, (6, 3), 0, LABELS)(step, "labelled") for step in range(4)])
    of_first = taken[LABELS[taken - 100] == 0]
    assert sorted(of_first[:4].tolist()) == sorted(of_first[4:].tolist()) == [100, 101, 102, 103]
    assert len({tuple(Batches(LABELLED, UNLABELLED, (6, 3), s, LABELS)(0, "labelled").tolist()) for s in range(9)}) > 3


def test_a_balanced_step_can_be_read_directly_and_its_unlabelled_images_are_the_same():
    batches, plain = Batches(LABELLED, UNLABELLED, (4, 3), 0, LABELS), Batches(LABELLED, UNLABELLED, (4, 3), 0)
    in_order = [batches(step).tolist() for step in range(7)]
    assert Batches(LABELLED, UNLABELLED, (4, 3), 0, LABELS)(6).tolist() == in_order[6]
    assert [plain(step)[4:].tolist() for step in range(7)] == [taken[4:] for taken in in_order]
