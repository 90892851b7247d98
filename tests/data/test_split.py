"""The split into labelled, unlabelled and validation images: complete, disjoint, balanced, equal at the same seed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from certus.data.dataset import Dataset, Part
from certus.data.split import corrupt, split
from certus.errors import UsageError


def data_of(counts, unknown=0):
    """A data set with this many training images of each class, mixed with `unknown` images without a label."""
    labels = torch.tensor([-1] * unknown + [c for c, n in enumerate(counts) for _ in range(n)])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    part = Part(torch.zeros(len(labels), 1), labels)
    return Dataset("toy", tuple(f"class {c}" for c in range(len(counts))), part, part)


@st.composite
def tasks(draw):
    """A data set, a number of labels that it can give to every class, and of validation images."""
    classes = draw(st.integers(2, 5))
    labels = draw(st.integers(classes, 4 * classes))
    share = -(-labels // classes)
    counts = draw(st.lists(st.integers(share + 1, share + 10), min_size=classes, max_size=classes))
    unknown = draw(st.integers(0, 5))
    spare = sum(counts) - labels - (unknown == 0)  # one image at least is left unlabelled
    return data_of(counts, unknown), labels, draw(st.integers(0, spare))


seeds = st.integers(0, 2**32)


def indices(parts):
    return [part.tolist() for part in (parts.labelled, parts.unlabelled, parts.validation)]


@given(tasks(), seeds)
def test_parts_are_disjoint_and_complete(task, seed):
    data, labels, validation = task
    labelled, unlabelled, validated = indices(split(data, labels, seed, validation))
    assert sorted(labelled + unlabelled + validated) == list(range(len(data.train)))
    assert len(labelled) == labels
    assert len(validated) == validation
    assert (data.train.labels[labelled + validated] >= 0).all()


@given(tasks(), seeds)
def test_all_labels_are_seen_but_those_for_validation_and_one_at_least_of_every_class(task, seed):
    data, _, validation = task
    validation = min(validation, int((data.train.labels >= 0).sum()) - len(data.classes))
    labelled, unlabelled, validated = indices(split(data, 0, seed, validation))
    assert sorted(labelled + unlabelled + validated) == list(range(len(data.train)))
    assert unlabelled == (data.train.labels < 0).nonzero().flatten().tolist()
    assert len(validated) == validation
    assert set(data.train.labels[labelled].tolist()) == set(range(len(data.classes)))


@given(tasks(), seeds)
def test_balanced_labels_are_spread_as_equally_as_they_go(task, seed):
    data, labels, _ = task
    counts = data.train.labels[split(data, labels, seed).labelled].bincount(minlength=len(data.classes))
    assert counts.max() - counts.min() == (1 if labels % len(data.classes) else 0)


@given(tasks(), seeds)
def test_same_seed_is_the_same_split(task, seed):
    torch.rand(1)  # the global generator does not matter
    assert indices(split(*task[:2], seed, task[2])) == indices(split(*task[:2], seed, task[2]))


@given(tasks(), seeds)
def test_the_labelled_images_do_not_depend_on_how_many_are_kept_for_validation(task, seed):
    data, labels, validation = task
    assert torch.equal(split(data, labels, seed, validation).labelled, split(data, labels, seed).labelled)


@pytest.mark.parametrize("balanced", [True, False])
def test_other_seeds_give_other_splits_and_every_image_is_in_every_part_sometimes(balanced):
    data, seen = data_of([10, 10]), torch.zeros(3, 20, dtype=torch.long)
    for seed in range(100):
        for part, row in zip(indices(split(data, 6, seed, 6, balanced)), seen, strict=True):
            row[part] += 1
    mean = torch.tensor([30, 40, 30])[:, None]  # of 100 splits into 6, 8 and 6 images
    assert (seen - mean).abs().max() <= 4.5 * (100 * 0.4 * 0.6) ** 0.5


def test_labels_left_over_go_to_classes_drawn_at_random():
    data = data_of([5, 5, 5])
    extra = [data.train.labels[split(data, 4, seed).labelled].bincount().argmax().item() for seed in range(60)]
    assert min(extra.count(c) for c in range(3)) >= 8


def test_labels_drawn_at_random_follow_the_share_of_each_class():
    data = data_of([150, 50])
    drawn = torch.cat([data.train.labels[split(data, 40, seed, balanced=False).labelled] for seed in range(50)])
    assert abs(drawn.double().mean() - 0.25) <= 4.5 * (0.25 * 0.75 / len(drawn)) ** 0.5


def test_fewer_labels_than_classes_are_refused():
    with pytest.raises(UsageError, match="2 labels cannot cover the 3 classes of toy: set `labels` to at least 3"):
        split(data_of([5, 5, 5]), 2, seed=0)


@pytest.mark.parametrize(("labels", "validation"), [(10, 0), (6, 4), (4, 100)])
@pytest.mark.parametrize("balanced", [True, False])
def test_labels_that_leave_nothing_unlabelled_are_refused(labels, validation, balanced):
    with pytest.raises(UsageError, match="toy has 10 labelled training images, too few"):
        split(data_of([5, 5]), labels, 0, validation, balanced)


def test_more_labels_than_there_are_are_refused():
    split(data_of([5, 5], unknown=9), 6, 0, validation=4)
    with pytest.raises(UsageError, match="toy has 10 labelled training images, too few"):
        split(data_of([5, 5], unknown=9), 6, 0, validation=5)


def test_all_labels_but_too_many_for_validation_are_refused():
    split(data_of([5, 5]), 0, 0, validation=8)
    with pytest.raises(UsageError, match=r"1 labels cannot cover the 2 classes of toy: ask for fewer `validation`"):
        split(data_of([5, 5]), 0, 0, validation=9)


def test_a_class_too_small_for_its_share_is_refused():
    with pytest.raises(UsageError, match="Class class 1 has 2 labelled images, too few for its share of 3 of 6"):
        split(data_of([20, 2]), 6, seed=0)


def test_a_random_draw_that_misses_a_class_is_refused_by_name():
    with pytest.raises(UsageError, match=r"do not cover every class \(none of class 1\)"):
        split(data_of([500, 1]), 2, seed=0, balanced=False)


@given(tasks(), seeds)
def test_only_labels_of_labelled_images_are_visible(task, seed):
    data, labels, validation = task
    labelled, *_ = indices(parts := split(data, labels, seed, validation))
    truth = data.train.labels.clone()
    expected = [label if i in labelled else -1 for i, label in enumerate(truth.tolist())]
    assert parts.visible(data.train.labels).tolist() == expected
    assert torch.equal(data.train.labels, truth)


visible = st.lists(st.integers(-1, 3), min_size=1, max_size=30).map(torch.tensor)
many = 10**9  # classes, so that a random label is not the right one by chance


@given(visible, st.floats(0, 1), seeds)
def test_label_noise_replaces_this_fraction_of_the_visible_labels(labels, fraction, seed):
    before = labels.clone()
    noisy = corrupt(labels, fraction, many, seed)
    assert torch.equal(labels, before)
    assert ((noisy == -1) == (labels == -1)).all()
    assert (noisy != labels).sum() == round(fraction * int((labels >= 0).sum()))


def test_noisy_labels_are_uniform_over_the_classes_and_all_images():
    labels = torch.zeros(2000, dtype=torch.long)
    counts = corrupt(labels, 1.0, 4, seed=0).bincount(minlength=4)
    assert (counts - 500).abs().max() <= 4.5 * (2000 * 0.25 * 0.75) ** 0.5
    halves = (corrupt(labels, 0.5, many, seed=0) != 0).view(2, 1000).sum(1)
    assert (halves - 500).abs().max() <= 4.5 * (1000 * 0.25) ** 0.5


def test_label_noise_is_a_function_of_its_seed():
    labels = torch.arange(100) % 5
    assert torch.equal(corrupt(labels, 0.3, 5, seed=1), corrupt(labels, 0.3, 5, seed=1))
    assert not torch.equal(corrupt(labels, 0.3, 5, seed=1), corrupt(labels, 0.3, 5, seed=2))


def test_all_labels_of_data_that_lack_a_class_are_refused_by_its_name():
    images, labels = torch.zeros(5, 2), torch.tensor([0, 1, 0, 1, -1])
    part = Part(images, labels)
    with pytest.raises(UsageError, match="no labelled training image of class c"):
        split(Dataset("toy", ("a", "b", "c"), part, part), 0, seed=0)


def test_a_negative_number_of_validation_images_is_refused():
    with pytest.raises(UsageError, match="`validation` must be at least 0, but is -1"):
        split(data_of([5, 5]), 4, seed=0, validation=-1)


@given(tasks(), seeds, st.data())
def test_a_part_of_the_unlabelled_images_leaves_everything_else_as_it_was(task, seed, more):
    data, labels, validation = task
    whole = split(data, labels, seed, validation)
    count = more.draw(st.integers(1, len(whole.unlabelled)))
    part = split(data, labels, seed, validation, unlabelled=count)
    assert part.labelled.equal(whole.labelled)
    assert part.validation.equal(whole.validation)
    assert len(part.unlabelled) == count
    assert set(part.unlabelled.tolist()) <= set(whole.unlabelled.tolist())


def test_the_part_of_the_unlabelled_images_is_drawn_at_random_and_by_the_seed():
    data = data_of([30, 30], unknown=40)
    draws = [split(data, 4, seed, unlabelled=10).unlabelled for seed in range(60)]
    assert split(data, 4, 7, unlabelled=10).unlabelled.equal(draws[7])
    unknown = torch.cat([data.train.labels[d] == -1 for d in draws]).float().mean()
    assert abs(unknown - 40 / 96) < 0.1  # 600 draws: a standard deviation is 0.02


def test_more_unlabelled_images_than_there_are_are_refused():
    with pytest.raises(UsageError, match="toy has only 6 unlabelled images, but `unlabelled` is 7"):
        split(data_of([5, 5]), 4, 0, unlabelled=7)
