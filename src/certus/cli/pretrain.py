"""certus pretrain: RotNet, in the same loop as every method, on all images and without labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from certus.cli.flags import many
from certus.cli.settings import config_flags
from certus.cli.train import NewRun, new_config, train_in
from certus.distributed.launch import current
from certus.training.run_folder import RunFolder
from certus.training.shared_folder import opened_by

FIXED = {"method": "rotation", "validation": 0}
UNUSED = ("labels", "balanced", "label_noise", "init", "from_", "labelled_batch")


@dataclass(frozen=True)
class Options(NewRun):
    """Train a network without labels, as a start for certus train.

    The network learns to recognise by how much each image was rotated (RotNet).

    certus train --init RUN starts every student from its trunk, with a new classifier.
    """

    settings: Mapping[str, Any] = many(config_flags(*FIXED, *UNUSED))


def run(options: Options) -> int:
    config = new_config(replace(options, settings={**options.settings, **FIXED}), {}, {})
    with opened_by(current(), RunFolder.new(options.out, config)) as folder:
        code = train_in(folder, config, options)
    if not options.json:
        print(f"Start from it with: certus train --data {config.data} --init {folder.path}")
    return code
