"""One thread per test process, and the same hypothesis examples on every machine."""

import torch
from hypothesis import settings

torch.set_num_threads(1)

settings.register_profile("certus", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("certus")
