"""Train your own network with any of the methods.

    python examples/own_network.py        a few seconds

A network is a function that makes a torch module from inputs to logits. Certainty comes from its dropout.
"""

from sklearn.datasets import make_moons
from torch import nn

from certus import Classifier


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


X, truth = make_moons(500, noise=0.1, random_state=0)
y = truth.copy()
y[20:] = -1  # unlabelled

clf = Classifier(method="mean-teacher", network=network, steps=300).fit(X, y)
print(f"error {100 * (clf.predict(X) != truth).mean():.1f} %")
