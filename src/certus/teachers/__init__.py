"""Where targets come from: teachers that follow their students, and the certainty of what they say."""

from certus.teachers.ema import EMA
from certus.teachers.sources import Clean, Confidence, MonteCarlo, RandomRanks, Twin

__all__ = ["EMA", "Clean", "Confidence", "MonteCarlo", "RandomRanks", "Twin"]
