"""What a finished run says of the images that it learnt from without their labels, which are read only now."""

from __future__ import annotations

from dataclasses import replace

from safetensors.torch import save

from certus.data import Part
from certus.errors import CertusError, UsageError
from certus.randomness import untouched_generator
from certus.training import checkpoint
from certus.training.build import build
from certus.training.evaluation import answers
from certus.training.loop import restore
from certus.training.run import Run
from certus.training.run_folder import RunFolder, put
from certus.training.threads import threads


def answer_unlabelled(folder: RunFolder) -> None:
    """Write unlabelled.safetensors: the run's answers to its unlabelled images, as predictions.safetensors has them.

    Images whose label nobody knows are left out. Where the file is there already, nothing is done.
    """
    if folder.unlabelled.is_file():
        return
    config = folder.load_config()
    if not folder.finished():
        raise UsageError(f"{folder.path} is not finished: train it to the end with --resume {folder.path}.")
    with threads(config.threads), untouched_generator():
        run = build(replace(config, init=""))  # the weights are the checkpoint's, whatever they started from
        part = unlabelled_part(run, folder)
        found = checkpoint.read(folder.checkpoints)
        if found is None:
            raise CertusError(f"{folder.path} has no checkpoint any more, and so no networks to ask.")
        restore(run, found)
        put(folder.unlabelled, save(answers(run.method.answers, run.data.normalised, part, config.seed)))


def unlabelled_part(run: Run, folder: RunFolder) -> Part:
    """The run's own unlabelled images with their true labels, as far as anybody knows them."""
    if not run.method.answers:
        raise UsageError(f"{folder.path} is a pretraining run, which has no answers.")
    folder.check_data(run)
    train, places = run.data.train, run.split.unlabelled
    places = places[train.labels[places] >= 0]
    if not len(places):
        raise UsageError(
            f"Nobody knows the label of any unlabelled image of {folder.path}, so how right its answers are cannot be "
            "told."
        )
    return Part(train.images[places], train.labels[places])
