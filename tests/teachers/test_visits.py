"""Certainty over visits: mixtures of moments against those of all draws, and what is stored at which visit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from certus.certainty.metrics import METRICS
from certus.certainty.streaming import Moments, Summary, mix
from certus.config import resolve
from certus.training.build import build
from certus.training.planning import complete
from certus.training.run import Run


def drawn(count: int, seed: int, images: int = 4, classes: int = 3) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(count, images, classes, generator=random, dtype=torch.float64).mul(2).softmax(-1)


def summary(draws: torch.Tensor) -> Summary:
    moments = Moments(*draws.shape[1:])
    for p in draws:
        moments.add(p)
    return moments.summary()


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 99))
def test_a_mixture_has_the_moments_of_all_draws_together(old: int, new: int, seed: int) -> None:
    a, b = drawn(old, seed), drawn(new, seed + 100)
    share = torch.full((4,), new / (old + new), dtype=torch.float64)
    mixed, together = mix(summary(a), summary(b), share), torch.cat([a, b])
    for metric in ("pv", "ev", "pe", "mi"):
        assert torch.allclose(getattr(mixed, metric), METRICS[metric](together), atol=1e-9), metric


def test_a_share_of_one_forgets_the_past_and_a_share_of_zero_keeps_it() -> None:
    a, b = summary(drawn(3, 0)), summary(drawn(3, 1))
    for share, expected in ((1.0, b), (0.0, a)):
        mixed = mix(a, b, torch.full((4,), share, dtype=torch.float64))
        assert torch.allclose(mixed.pv, expected.pv)
        assert torch.allclose(mixed.mean, expected.mean)


def remembering(**options: object) -> Run:
    given = {"data": "moons", "method": "ft-ccl", "labels": 6, "validation": 0, "width": 8, "threads": 1, "steps": 6}
    return build(complete(resolve({**given, "unlabelled_batch": 30, "options": {"remember": True, **options}})))


def test_the_first_visit_is_ranked_by_its_own_draws_and_then_stored() -> None:
    run = remembering()
    visits = run.method.terms["consistency"].source  # type: ignore[attr-defined]
    step = run.step(0)
    fresh = visits.source.moments(step).summary()
    assert torch.allclose(visits.mixed(step).pe, fresh.pe, atol=1e-6)
    assert visits.visits.sum() == 0  # a mixture alone stores nothing
    visits.follow(step)
    seen = step.batch.index.unique()
    assert (visits.visits[seen] == 1).all()
    assert visits.visits.sum() == len(seen)
    last = {int(i): n for n, i in enumerate(step.batch.index)}
    for i, n in last.items():
        assert torch.allclose(visits.mean[i], fresh.mean[n], atol=1e-6)


def test_a_second_visit_is_mixed_half_and_half() -> None:
    run = remembering()
    visits = run.method.terms["consistency"].source  # type: ignore[attr-defined]
    first, second = run.step(0), run.step(0)
    visits.mixed(first)
    visits.follow(first)
    before = visits.mean[second.batch.index].clone()
    fresh = visits.source.moments(second).summary()
    assert torch.allclose(visits.mixed(second).mean, (before + fresh.mean) / 2, atol=1e-6)


def test_nothing_is_stored_when_no_rank_is_used() -> None:
    run = remembering(beta=1e9, probabilistic=False, temper=False)
    for number in range(3):
        run.advance(number)
    visits = run.method.terms["consistency"].source  # type: ignore[attr-defined]
    assert visits.visits.sum() == 0


@pytest.mark.parametrize("metric", ["pv", "ev", "pe", "mi"])
def test_it_trains_with_every_metric_and_is_part_of_the_state(metric: str) -> None:
    run = remembering(metric=metric)
    for number in range(3):
        assert all(torch.isfinite(loss) for loss in run.advance(number).values())
    assert any(name.endswith(".visits") for name in run.method.state.state_dict())
