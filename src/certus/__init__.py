"""certus: image classifiers from a few labels and many unlabelled images, with the certainty of every answer."""

__version__ = "0.1.0"
