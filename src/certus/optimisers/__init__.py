"""Optimisers: how a student's weights follow its gradient, and state that resumes to the bit."""

from certus.optimisers.adam import adam
from certus.optimisers.muon import muon
from certus.optimisers.sgd import sgd
from certus.optimisers.state import restore, state_tensors

__all__ = ["adam", "muon", "restore", "sgd", "state_tensors"]
