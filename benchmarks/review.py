"""What is a person's next minute worth? Simulated persons label pictures, and look for wrong labels.

    CERTUS_DATA=… python benchmarks/review.py
    python benchmarks/review.py --report

The first command can be stopped at any time, and the same command goes on with what is missing: every finished cell is
a row of OUT/next.csv or OUT/suspects.csv. The second one prints the tables of docs/review.md and draws its figure.

Rounds: logistic regression on frozen features (benchmarks/review_data.py) begins with 5 labels of each class, then
chooses 50 pictures out of 10,000, five times, and a person who makes no mistake labels them. The error is that on 5,000
test pictures, which choose nothing. Suspects: of 1,000 labels some are wrong, at random or by the most similar class.
All settings were chosen with other seeds (100 and more), on training pictures of CIFAR-10 and Fashion-MNIST alone.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from resumable import append, read
from review_data import SETS, Frozen, frozen
from review_report import NOISES, draw, tables
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from certus.randomness import seed_of
from certus.review.choosing import STRATEGIES, label_next
from certus.review.suspecting import find_suspects, held_out_probabilities, log_odds, scaled

FIRST, EACH, ROUNDS = 5, 50, 5  # labels of each class at the start, labels of a round, rounds
LABELLED = 1_000  # labels among which suspects are sought
PENALTY = 0.1  # of the model that is trained in each round
Array = NDArray[Any]
Suspicion = Callable[[Array, Array, int], tuple[Array, Array]]  # features, labels, seed -> found (N,), how suspect (N,)


@dataclass(frozen=True)
class Cell:
    data: str
    arm: str  # a strategy, or a way to find suspects
    seed: int
    noise: str = ""  # of suspects

    @classmethod
    def of(cls, row: Mapping[str, str]) -> Cell:
        return cls(row["data"], row["arm"], int(row["seed"]), row.get("noise", ""))


# --- rounds of labelling


def errors_of_rounds(data: Frozen, strategy: str, seed: int) -> list[float]:
    """The test error (%) at the start and after each round."""
    x, test_x = at_one_scale(data.x, data.test_x)
    order = np.random.default_rng(seed_of(seed, "first labels")).permutation(len(x))
    labels = np.full(len(x), -1)
    for c in np.unique(data.y):
        mine = order[data.y[order] == c][:FIRST]
        labels[mine] = c
    errors = []
    for number in range(ROUNDS + 1):
        known = labels >= 0
        model = LogisticRegression(C=1 / PENALTY, max_iter=300, tol=1e-3).fit(x[known], labels[known])
        errors.append(100 * float((model.predict(test_x) != data.test_y).mean()))
        if number < ROUNDS:
            chosen = label_next(model.predict_proba(x), x, labels, EACH, strategy, seed_of(seed, number))
            labels[chosen] = data.y[chosen]  # the person
    return errors


def at_one_scale(x: Array, test: Array) -> tuple[Array, Array]:
    """Training features have length 1 in the mean."""
    both = np.concatenate([x, test])
    both = (both - x.mean(0)) / np.sqrt(np.square(x - x.mean(0)).sum(1).mean())
    return both[: len(x)], both[len(x) :]


# --- suspect labels


def spoiled(data: Frozen, noise: str, seed: int) -> tuple[Array, Array, Array]:
    """Features, labels of which some are wrong, and whether they are."""
    kind, share = noise.split()[0], int(noise.split()[1]) / 100
    random = np.random.default_rng(seed_of(seed, "spoiled labels"))
    rows = random.permutation(len(data.x))[:LABELLED]
    classes, truth = int(data.y.max()) + 1, data.y[rows]
    labels, chosen = truth.copy(), random.permutation(LABELLED)[: round(share * LABELLED)]
    if kind == "random":
        labels[chosen] = (truth[chosen] + random.integers(1, classes, len(chosen))) % classes
    else:
        labels[chosen] = most_similar(data)[truth[chosen]]
    return data.x[rows], labels, labels != truth


def most_similar(data: Frozen) -> Array:
    """(C,) for each class the other one whose mean features are nearest."""
    means = np.stack([data.x[data.y == c].mean(0) for c in range(int(data.y.max()) + 1)])
    apart = np.square(means[:, None] - means).sum(-1)
    np.fill_diagonal(apart, np.inf)
    return apart.argmin(1)


def by_certus(x: Array, labels: Array, seed: int, rule: str = "ranked") -> tuple[Array, Array]:
    p = held_out_probabilities(x, labels, seed=seed)
    found = np.zeros(len(labels), bool)
    found[find_suspects(p, labels, rule)] = True
    return found, log_odds(p, labels)


def by_cleanlab(x: Array, labels: Array, seed: int, p: Array | None = None) -> tuple[Array, Array]:
    """Its own filter and score, on the cross-validated probabilities of certus's regression."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    if p is None:
        p = held_out_probabilities(x, labels, seed=seed, cleaned=False)
    return find_label_issues(labels, p, n_jobs=1), -get_label_quality_scores(labels, p)


def by_plain_cleanlab(x: Array, labels: Array, seed: int) -> tuple[Array, Array]:
    """The same with scikit-learn's usual regression: features scaled one by one, its own penalty."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300, tol=1e-3))
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    return by_cleanlab(x, labels, seed, cross_val_predict(model, x, labels, cv=folds, method="predict_proba"))


def by_loss(x: Array, labels: Array, seed: int) -> tuple[Array, Array]:
    """Largest loss of a regression that has seen all labels; as many as certus finds."""
    x = scaled(x)
    model = LogisticRegression(max_iter=300, tol=1e-3).fit(x, labels)
    loss = -model.predict_log_proba(x)[np.arange(len(labels)), labels]
    count = int(by_certus(x, labels, seed)[0].sum())
    return np.argsort(np.argsort(-loss, kind="stable")) < count, loss


WAYS: dict[str, Suspicion] = {
    "certus": by_certus,
    "certus, confident": partial(by_certus, rule="confident"),
    "cleanlab": by_cleanlab,
    "cleanlab, plain regression": by_plain_cleanlab,
    "training loss": by_loss,
}


def measured(data: Frozen, way: str, noise: str, seed: int) -> tuple[float, float, float]:
    """Precision and recall of the labels that are found, and the average precision of the order, in percent."""
    x, labels, wrong = spoiled(data, noise, seed)
    found, score = WAYS[way](x, labels, seed)
    precision = float(wrong[found].mean()) if found.any() else 0.0
    return 100 * precision, 100 * float(found[wrong].mean()), 100 * float(average_precision_score(wrong, score))


# --- the program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/review"))
    parser.add_argument("--figure", type=Path, default=Path("docs/images/review.png"))
    parser.add_argument("--cache", type=Path, default=Path("runs/review"), help="where features are kept")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--report", action="store_true", help="only print the tables and draw the figure")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)
    if not args.report:
        try:
            run(args.out, args.cache, args.seeds)
        except KeyboardInterrupt:
            sys.exit("Stopped; the same command goes on.")
    rounds, suspects = read(args.out / "next.csv"), read(args.out / "suspects.csv")
    if not rounds or not suspects:
        sys.exit(f"{args.out} has no results yet: run without --report.")
    print(*(f"{title}\n\n{table.markdown()}" for title, table in tables(rounds, suspects).items()), sep="\n")
    draw(rounds, suspects).savefig(args.figure, dpi=110)


def run(out: Path, cache: Path, seeds: int) -> None:
    """The cells that have no row yet, by seed, so that a run that is stopped early is a complete comparison."""
    rounds = [*("data", "arm", "seed"), *(f"error_{labels}" for labels in label_counts())]
    finished = {Cell.of(row) for name in ("next", "suspects") for row in read(out / f"{name}.csv")}
    for seed, data in product(range(seeds), SETS):
        for arm in STRATEGIES:
            if (cell := Cell(data, arm, seed)) not in finished:
                errors = errors_of_rounds(frozen(data, cache), arm, seed)
                append(out / "next.csv", rounds, [data, arm, seed, *(f"{e:.2f}" for e in errors)])
                print(f"{cell}: {errors[-1]:.2f} %", flush=True)
        for noise, way in product(NOISES, WAYS):
            if (cell := Cell(data, way, seed, noise)) not in finished:
                found = measured(frozen(data, cache), way, noise, seed)
                columns = ("data", "noise", "arm", "seed", "precision", "recall", "average_precision")
                append(out / "suspects.csv", columns, [data, noise, way, seed, *(f"{v:.2f}" for v in found)])
                print(f"{cell}: precision {found[0]:.0f} %, recall {found[1]:.0f} %", flush=True)


def label_counts() -> list[int]:
    return [10 * FIRST + EACH * number for number in range(ROUNDS + 1)]


if __name__ == "__main__":
    main()
