"""Classify arrays with a few labels: certus as a scikit-learn classifier.

    python examples/arrays.py        a few seconds

1,797 handwritten digits, of which 50 have a label. -1 means unlabelled.
"""

import numpy as np
from sklearn.datasets import load_digits

from certus import Classifier

images, truth = load_digits(return_X_y=True)
images = images.reshape(-1, 8, 8).astype(np.uint8)
y = truth.copy()
y[50:] = -1

settings = {"translate": 0, "noise": 0.5, "dropout": 0.2}  # small centred digits: noise instead of shifts
clf = Classifier(method="mean-teacher", steps=150, settings=settings).fit(images, y)

right = clf.predict(images) == truth
certain = clf.uncertainty(images).argsort()[: len(images) // 2]
print(f"error {100 * (1 - right[50:].mean()):.1f} %")
print(f"error of the most certain half {100 * (1 - right[certain].mean()):.1f} %")
