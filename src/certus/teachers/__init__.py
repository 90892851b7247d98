"""Where targets come from: teachers that follow their students, and the certainty of their answers."""

from certus.teachers.average import Average
from certus.teachers.ema import EMA
from certus.teachers.ensemble import Ensemble
from certus.teachers.memory import ClassMemory
from certus.teachers.propagation import Propagation
from certus.teachers.sources import Clean, Confidence, MonteCarlo, Own, RandomRanks, StochasticAnswer
from certus.teachers.visits import Visits

__all__ = [
    "EMA",
    "Average",
    "ClassMemory",
    "Clean",
    "Confidence",
    "Ensemble",
    "MonteCarlo",
    "Own",
    "Propagation",
    "RandomRanks",
    "StochasticAnswer",
    "Visits",
]
