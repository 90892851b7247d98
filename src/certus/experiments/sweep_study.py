"""The journal of a sweep: optuna studies on disk, one per method, that any kill leaves readable.

Several processes, also of several machines, may lead a sweep: each write is made under the lock of the sweep's folder.
Each proposal is drawn with a seed of its own number, so a sweep that goes on proposes what it would have proposed,
given the same trials.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from certus.errors import CertusError, UsageError
from certus.experiments.sweep_space import Space
from certus.randomness import seed_of
from certus.training.lock import locked

if TYPE_CHECKING:
    import optuna

JOURNAL = "journal.log"
SPECIFICATION = "certus"
ERRORS = "errors"  # of a trial, by seed
PATIENCE = 60  # seconds for another process that writes
PRUNERS = ("median", "hyperband", "none")
UNPRUNED_TRIALS = 5  # that the median needs
UNPRUNED_SHARE = 0.2  # of a trial, at its start


def the_optuna() -> Any:
    """The package, quiet; or a sentence."""
    try:
        import optuna
    except ImportError:
        raise UsageError("A sweep needs the package optuna: run `pip install 'certus-ssl[sweep]'`.") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@dataclass(frozen=True)
class Tried:
    """A trial that is over."""

    number: int
    values: Mapping[str, Any]
    state: str  # finished, pruned or failed
    errors: Mapping[int, float]  # validation error (%) by seed; only of a finished one
    last: float | None = None  # the error at which it was pruned

    @property
    def error(self) -> float | None:
        return fmean(self.errors.values()) if self.errors else None


class JournalLock:
    """Optuna's lock of the journal is that of the sweep's folder. What a killed process left is put right."""

    def __init__(self, journal: Path) -> None:
        self.journal = journal
        self.held = ExitStack()

    def acquire(self) -> bool:
        self.held.enter_context(locked(self.journal.parent, PATIENCE))
        if self.journal.exists():
            written = self.journal.read_bytes()
            if not written.endswith(b"\n") and written:  # a line that was cut short
                with self.journal.open("rb+") as file:
                    file.truncate(written.rfind(b"\n") + 1)
        return True

    def release(self) -> None:
        self.held.close()


def open_journal(folder: Path) -> Any:
    """The storage."""
    optuna = the_optuna()
    from optuna.storages.journal import JournalFileBackend

    path = folder / JOURNAL
    lock: Any = JournalLock(path)
    try:
        return optuna.storages.JournalStorage(JournalFileBackend(str(path), lock))
    except (ValueError, KeyError, TypeError) as e:
        raise CertusError(
            f"{path} is damaged ({e}): restore it from a copy, or begin the sweep again in another `out`."
        ) from None


@dataclass(frozen=True)
class Study:
    """The trials of one method."""

    name: str
    space: Space
    budget: int  # trials
    seed: int
    study: optuna.Study

    @classmethod
    def open(
        cls, storage: Any, name: str, space: Space, budget: int, pruner: Any, specification: Mapping[str, Any]
    ) -> Study:
        """A new one, or the one that is there if it has the same specification."""
        optuna = the_optuna()
        study = optuna.create_study(
            storage=storage, study_name=name, direction="minimize", pruner=pruner, load_if_exists=True
        )
        plain = json.loads(json.dumps(specification))
        before = study.user_attrs.get(SPECIFICATION)
        if before is None:
            study.set_user_attr(SPECIFICATION, plain)
        elif before != plain:
            unlike = [key for key in plain if before.get(key) != plain[key]]
            raise UsageError(
                f"`out` already holds a sweep of {name} with other {', '.join(unlike)}: give another `out`, or the "
                "same settings."
            )
        return cls(name, space, int(min(budget, space.size)), plain["seeds"][0], study)

    def begun(self) -> int:
        return sum(trial.state.name != "WAITING" for trial in self.study.get_trials(deepcopy=False))

    def under_way(self) -> list[int]:
        """The numbers of the trials that have begun and are not over."""
        running = the_optuna().trial.TrialState.RUNNING
        return [trial.number for trial in self.study.get_trials(deepcopy=False, states=[running])]

    def trial(self, number: int) -> optuna.Trial:
        """One that a process which is gone has left."""
        self.draw_as(number)
        return the_optuna().trial.Trial(self.study, self.study.get_trials(deepcopy=False)[number]._trial_id)

    def ask(self, usual: Mapping[str, Any]) -> optuna.Trial:
        """A new trial: the next point of a grid; or first the usual settings, if they are within the ranges, and then
        what the Parzen estimators propose."""
        optuna, number = the_optuna(), self.begun()
        waiting = self.study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.WAITING])
        if not waiting:  # else a process was killed between the two
            if self.space.size <= self.budget:
                self.study.enqueue_trial(self.untried())
            elif not number and all(axis.holds(usual[axis.name]) for axis in self.space.axes):
                self.study.enqueue_trial({axis.name: usual[axis.name] for axis in self.space.axes})
        self.draw_as(number)
        return self.study.ask()

    def untried(self) -> dict[str, Any]:
        """The first point of a grid that no trial has; there may be trials of a time when fewer were asked for."""
        taken = [trial.params for trial in self.study.get_trials(deepcopy=False)]
        points = map(self.space.point, range(int(self.space.size)))
        return next((point for point in points if point not in taken), self.space.point(0))

    def draw_as(self, number: int) -> None:
        seed = seed_of(self.seed, f"sweep of {self.name}", number) % 2**32
        self.study.sampler = the_optuna().samplers.TPESampler(seed=seed)

    def twin(self, number: int, values: Mapping[str, Any]) -> Tried | None:
        """An earlier trial of the same values, which has the same result."""
        return next(
            (t for t in self.tried() if t.values == values and t.number != number and t.state != "failed"), None
        )

    def finish(self, trial: optuna.Trial, errors: Mapping[int, float]) -> None:
        trial.set_user_attr(ERRORS, {str(seed): error for seed, error in errors.items()})
        self.study.tell(trial, fmean(errors.values()))

    def prune(self, trial: optuna.Trial) -> None:
        self.study.tell(trial, state=the_optuna().trial.TrialState.PRUNED)

    def fail(self, trial: optuna.Trial) -> None:
        self.study.tell(trial, state=the_optuna().trial.TrialState.FAIL)

    def tried(self) -> list[Tried]:
        """The trials that are over, in order."""
        states = {"COMPLETE": "finished", "PRUNED": "pruned", "FAIL": "failed"}
        return [
            Tried(
                number=trial.number,
                values=trial.params,
                state=states[trial.state.name],
                errors={int(seed): error for seed, error in trial.user_attrs.get(ERRORS, {}).items()},
                last=trial.intermediate_values[max(trial.intermediate_values)] if trial.intermediate_values else None,
            )
            for trial in self.study.get_trials(deepcopy=False)
            if trial.state.name in states
        ]

    def importance(self) -> dict[str, float]:
        """The share of the errors' variance that each setting explains (fANOVA), of finished trials; empty if it
        cannot be told."""
        searched = [axis.name for axis in self.space.axes if len(axis.extremes) > 1]
        errors = {t.error for t in self.tried() if t.state == "finished"}
        if len(errors) < 2 or not searched:
            return {}
        from optuna.importance import FanovaImportanceEvaluator, get_param_importances

        try:
            found = get_param_importances(self.study, evaluator=FanovaImportanceEvaluator(seed=0), params=searched)
            return {name: float(share) for name, share in found.items()}
        except (RuntimeError, ValueError):  # no variance in what the trees have learnt
            return {}


def make_pruner(name: str, reports: int) -> Any:
    """`reports`: how many validation errors a trial has."""
    pruners = the_optuna().pruners
    if name == "median":
        return pruners.MedianPruner(UNPRUNED_TRIALS, n_warmup_steps=round(UNPRUNED_SHARE * reports))
    if name == "hyperband":
        return pruners.HyperbandPruner(min_resource=1, max_resource=max(1, reports), reduction_factor=3)
    return pruners.NopPruner()
