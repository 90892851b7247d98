"""One thread per test process, the same hypothesis examples on every machine, and no weights but a test's own."""

import os
from tempfile import mkdtemp

import torch
from hypothesis import settings

from certus.networks import pretrained
from certus.training import embedding

torch.set_num_threads(1)
os.environ["CERTUS_WEIGHTS"] = mkdtemp(prefix="no-weights-")  # own pictures are learnt from scratch, which is quicker

pretrained.SMALLEST = embedding.SIZE = 32  # pixels; a picture is not enlarged, which is quicker

settings.register_profile("certus", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("certus")
