"""The functions that one imports: `certus.train`, `certus.compare` and `certus.calibrate`."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from certus.certainty.calibration import Calibration, Level, fit, least_bound
from certus.config import resolve
from certus.data import load as load_data
from certus.distributed.launch import joined
from certus.errors import CertusError, UsageError, unknown
from certus.experiments.compare import comparison_cells, run_cells, write_comparison
from certus.model import Model, load
from certus.report.statistics import Comparison
from certus.training.build import build
from certus.training.calibrating import validation_part, write_calibration
from certus.training.card import write_card
from certus.training.continuing import inherited
from certus.training.loop import Tick, ignore
from certus.training.loop import train as train_run
from certus.training.planning import check_length, complete, told_config
from certus.training.race import race, wanted
from certus.training.run_folder import RunFolder
from certus.training.shared_folder import opened_by
from certus.training.threads import threads

notices = logging.getLogger("certus")


def train(
    data: str | Path | None = None,
    *,
    method: str | None = None,
    labels: int | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    listen: Callable[[Tick], None] = ignore,
    **settings: Any,
) -> Model:
    """Train a classifier from a few labels and many unlabelled images.

    A setting that is not given has the value that suits the data set and the method. Ctrl-C saves the run and raises
    `certus.errors.Interrupted`; `resume` continues it to the bit-identical result.

    Parameters
    ----------
    data : str or Path
        A data set by name (`certus data` lists them), or a folder of pictures.
    method : str
        One of `certus methods`.
    labels : int
        How many labels the run may see; 0 means all.
    steps, epochs, minutes : number
        How long to train; give one of them at most. An epoch is a pass over the unlabelled images.
    seed : int
        Of the split, the initialisation and every random draw.
    options : dict
        Options of the method, as in `certus methods NAME`: {"weight": 5.0}.
    out : str or Path
        The run's folder. The default is a new folder under `runs/`.
    resume : str or Path
        Continue the run in this folder instead of starting one. Then give nothing else, except `listen`.
    listen : callable
        Called with a `Tick` after every step: step, steps, epoch, losses, validation_error, …
    **settings
        Any other setting of `certus train --help`: width=32, dropout=0.3, learning_rate=0.05, …
        `from_` is a finished run to go on from, with its weights, its settings and labels that came since.

    Returns
    -------
    Model
        `model.predict(images)` answers; `model.result` has the errors; `model.folder` is the run's folder.

    Examples
    --------
    >>> import certus
    >>> model = certus.train("digits", labels=20, steps=60, out="my-run")
    >>> sorted(model.result)[:3]
    ['bytes', 'class_errors', 'data']
    >>> import numpy as np
    >>> prediction = model.predict(np.zeros((2, 8, 8), np.uint8))
    >>> prediction.probabilities.shape, sorted(prediction.rank().tolist())
    ((2, 10), [1, 2])
    """
    given = {"data": data and str(data), "method": method, "labels": labels, "steps": steps, "seed": seed}
    chosen = {name: value for name, value in given.items() if value is not None} | settings
    if resume is not None:
        lengths = {"epochs": epochs, "minutes": minutes, "options": options, "out": out}
        extra = [*chosen, *(name for name, value in lengths.items() if value is not None)]
        if extra:
            names = ", ".join(f"`{name}`" for name in extra)
            raise UsageError(f"`resume` continues a run as it was started: leave out {names}.")
        with joined() as team, opened_by(team, RunFolder(Path(resume)).held()) as folder:
            config = told_config(team, folder.load_config)
            if not team.told(lambda: "finished" * folder.finished()):
                train_run(build(config, folder, team), folder, listen)
            return load(folder.path)
    check_length(steps, epochs, minutes)
    chosen["options"] = dict(options or {})
    if chosen.get("from_"):
        base = inherited(chosen)
        if epochs or minutes:
            base.pop("steps")
        if chosen.get("method", base["method"]) == base["method"]:
            chosen["options"] = {**base["options"], **chosen["options"]}
        chosen = {**base, **chosen}
    config = resolve(chosen)
    if wanted(chosen):
        found = race(chosen, load_data(config.data, config.data_dir, config.size, config.fit), minutes)
        for remark in found.remarks:
            notices.info(remark)
        config = resolve({**chosen, **found.settings})
        minutes = found.left(minutes)
    with joined() as team:
        config = complete(config, epochs, minutes, team)
        with opened_by(team, RunFolder.new(out, config)) as folder:
            train_run(build(config, team=team), folder, listen)
            return load(folder.path)


def compare(
    data: str | Path | None = None,
    methods: Sequence[str] = ("supervised", "mean-teacher", "ft-ccl"),
    *,
    seeds: int = 5,
    labels: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    options: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    workers: int = 0,
    on: str = "local",
    **settings: Any,
) -> Comparison:
    """Train several methods on the same few labels over several seeds.

    Runs are trained in other processes, so a script that calls it needs the guard `if __name__ == "__main__":`. If
    it is stopped, the same call continues where it was.

    Parameters
    ----------
    data : str or Path
        A data set by name, or a folder of pictures.
    methods : sequence of str
        Their names; `certus methods` lists them.
    seeds : int
        How many: 0, 1, … Every method has the same labels at the same seed.
    labels : int
        How many labels each run may see; 0 means all.
    epochs : float
        Passes over the unlabelled images.
    minutes : float
        Of one core, for each run: every method gets the same time. A few steps of each are timed first.
    options : dict
        Options of the methods. Each method gets those that it has.
    out : str or Path
        The folder of the runs and of the results. The default is `runs/compare-DATA-LABELS`.
    workers : int
        Runs that are trained at the same time; 0 means one per core.
    on : str
        Where they are trained: "local", or "ray", "auto" or "HOST:PORT" for a Ray cluster.
    **settings
        Any other setting of `certus compare --help`.

    Returns
    -------
    Comparison
        Mean ± standard deviation over seeds, and the difference to supervised learning, paired by seed.
        `print(comparison)` shows the table.

    Examples
    --------
    >>> import certus
    >>> comparison = certus.compare("moons", ["supervised", "ft-ccl"], seeds=2, epochs=1, workers=1, out="two")
    >>> comparison.reference, comparison["ft-ccl"].n
    ('supervised', 2)
    """
    given = {"data": data and str(data), "labels": labels}
    chosen = {name: value for name, value in given.items() if value is not None} | settings
    cells = comparison_cells(methods, seeds, chosen, options, epochs, None if out is None else Path(out), minutes)
    results, failures = run_cells(cells, workers, on=on)
    if failures:
        name, reason = next(iter(failures.items()))
        raise CertusError(f"{len(failures)} of {len(cells)} runs failed. {name}: {reason}")
    return write_comparison(cells, results, cells[0].folder.path.parent)[0]


def calibrate(
    folder: str | Path, error: float = 2.0, *, confidence: float = 95.0, metric: str = "auto", draws: int = 10
) -> Calibration:
    """Find when a run may answer so that at most `error` percent of its answers are wrong, and keep it in the run.

    It needs the run's data: the validation labels, which the run never learnt. The promise holds with a probability
    of `confidence` percent over the draw of these labels, for pictures from the same source
    (`certus.certainty.calibration` says why). Afterwards `predict` says which pictures are answered.

    Parameters
    ----------
    folder : str or Path
        The run's folder.
    error : float
        Wanted percent of wrong answers, at most.
    confidence : float
        Of the promise, in percent.
    metric : str
        The uncertainty that decides; auto: the best that the run has.
    draws : int
        Monte-Carlo draws that it is computed from.

    Returns
    -------
    Calibration

    Examples
    --------
    >>> import certus
    >>> model = certus.train("digits", method="supervised", steps=60, labels=400, out="certain-run")
    >>> found = certus.calibrate("certain-run", error=20)
    >>> found.labels, bool(found.chosen.bound <= 0.2)
    (200, True)
    """
    if not 0 < error < 100:
        raise UsageError(f"`error` must be between 0 and 100 percent, but is {error:g}.")
    if not 50 <= confidence < 100:
        raise UsageError(f"`confidence` must be from 50 to below 100 percent, but is {confidence:g}.")
    run = RunFolder(Path(folder))
    config, model = run.load_config(), replace(load(folder), calibration=None)
    part = validation_part(run, config)
    with threads(config.threads):
        given = model.predict(part.images, draws, config.seed)
    if (chosen := given.metric if metric == "auto" else metric) not in given.uncertainty:
        raise unknown("metric of this run", chosen, given.uncertainty)
    found = fit(
        torch.from_numpy(given.probabilities),
        torch.from_numpy(given.uncertainty[chosen]),
        part.labels,
        metric=chosen,
        draws=draws,
        error=error / 100,
        confidence=confidence / 100,
        weights=model.digest,
        data=Path(config.data).name,
    )
    if isinstance(found, Calibration):
        write_calibration(run, found)
        if run.finished():
            write_card(run)
        return found
    raise CertusError(no_promise(found, len(part), error, confidence))


def no_promise(found: Sequence[Level], labels: int, error: float, confidence: float) -> str:
    """Why this error cannot be promised, and which one can."""
    least, best = 100 * least_bound(labels, confidence / 100), min(found, key=lambda level: level.bound)
    why = (
        f"{labels:,} validation labels are too few to promise at most {error:g} % wrong answers with {confidence:g} % "
        f"confidence (they can promise {least:.1f} % at best)"
        if least > error
        else f"At most {error:g} % wrong answers cannot be promised with {confidence:g} % confidence: on its "
        f"{labels:,} validation labels this run is wrong too often for any threshold"
    )
    percent = math.ceil(1000 * best.bound) / 10
    could = f"`error` {percent:g} would answer {best.answered:,} of them ({best.answered / labels:.0%})"
    return f"{why}. {could}; or hold out more labels with `validation`."
