"""A finished run's answers to its own unlabelled images, whose labels are read only now."""

from __future__ import annotations

from dataclasses import replace

from certus.data import Part
from certus.errors import CertusError, UsageError
from certus.randomness import untouched_generator
from certus.training import checkpoint
from certus.training.artefacts import tensor_bytes
from certus.training.build import build
from certus.training.evaluation import answers
from certus.training.identity import check_settings
from certus.training.loop import restore
from certus.training.run import Run
from certus.training.run_folder import RunFolder
from certus.training.threads import threads
from certus.writing import put


def answer_unlabelled(folder: RunFolder) -> None:
    """Write unlabelled.safetensors: the run's answers to its unlabelled images, as predictions.safetensors has them.

    Images without a known label are left out. An existing file is kept.
    """
    if folder.unlabelled.exists():
        return
    config = folder.load_config()
    if not folder.finished():
        raise UsageError(f"{folder.path} is not finished: train it to the end with `resume` {folder.path}.")
    with threads(config.threads), untouched_generator():
        run = build(replace(config, init=""), folder)  # the weights come from the checkpoint
        part = unlabelled_part(run, folder)
        found = checkpoint.read(folder.checkpoints)
        if found is None:
            raise CertusError(f"{folder.path} has no checkpoint any more, so its networks cannot answer.")
        check_settings(found[1], config, folder.path)
        restore(run, found)
        given = answers(run.method, run.inputs.normalised, part, config.seed, config.looks)
        put(folder.unlabelled, tensor_bytes(given))


def unlabelled_part(run: Run, folder: RunFolder) -> Part:
    """The run's unlabelled images that have a known label, with it."""
    if not run.method.answers:
        raise UsageError(f"{folder.path} is a pretraining run, which has no answers.")
    folder.check_data(run)
    train, index = run.inputs.train, run.split.unlabelled
    index = index[train.labels[index] >= 0]
    if not len(index):
        raise UsageError(f"No unlabelled image of {folder.path} has a known label, so accuracy cannot be computed.")
    return Part(train.images[index], train.labels[index])
