"""Random numbers by name: the same name gives the same stream, another name another stream."""

import contextlib

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from certus.randomness import generator, seed_global, seed_of, untouched_generator

purposes = st.lists(st.integers() | st.text("ab1 ,'\"\\", max_size=5), max_size=4)


def test_seeds_are_the_same_on_every_machine_and_in_every_version():
    assert seed_of(0, "split") == 8764376260289002719
    assert seed_of(1, 2, "view a") == 4631534852161269804


@given(purposes)
def test_a_seed_fits_a_generator(purpose):
    assert 0 <= seed_of(*purpose) < 2**63
    assert seed_of(*purpose) == seed_of(*purpose)


@given(purposes, purposes)
def test_other_purposes_have_other_seeds(one, other):
    assume(one != other)
    assert seed_of(*one) != seed_of(*other)


@pytest.mark.parametrize(
    ("one", "other"), [((1,), ("1",)), (("a", "b"), ("ab",)), ((1, 2), (2, 1)), ((1, 11), (11, 1)), ((), ("",))]
)
def test_purposes_that_look_alike_have_other_seeds(one, other):
    assert seed_of(*one) != seed_of(*other)


@given(purposes)
def test_a_generator_starts_afresh_each_time(purpose):
    first = torch.rand(8, generator=generator(*purpose))
    assert torch.equal(first, torch.rand(8, generator=generator(*purpose)))
    assert not torch.equal(first, torch.rand(8, generator=generator(*purpose, "more")))


def test_a_named_generator_does_not_change_the_global_one():
    state = torch.get_rng_state()
    torch.rand(8, generator=generator(0, "view"))
    assert torch.equal(torch.get_rng_state(), state)


@given(purposes)
def test_seeding_the_global_generator_gives_the_stream_of_that_name(purpose):
    seed_global(*purpose)
    assert torch.equal(torch.rand(8), torch.rand(8, generator=generator(*purpose)))


def test_dropout_follows_the_global_seed():
    def dropped(*purpose):
        seed_global(*purpose)
        return torch.nn.functional.dropout(torch.ones(64)).tolist()

    assert dropped(0, "dropout a") == dropped(0, "dropout a")
    assert dropped(0, "dropout a") != dropped(0, "dropout b")


@pytest.mark.parametrize("error", [None, RuntimeError])
def test_untouched_generator_gives_the_caller_its_random_numbers_back(error):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with contextlib.suppress(RuntimeError), untouched_generator():
        seed_global("elsewhere")
        if error:
            raise error
    assert torch.equal(torch.rand(4), expected)
