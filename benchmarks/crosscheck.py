"""Do certus's losses agree with those of others? The same networks and images go through certus and through the others.

    python benchmarks/crosscheck.py [--torchssl CHECKOUT] [--pcr CHECKOUT]

It compares with USB (benchmarks/usb.py says how to install it) and, if a checkout is given, with TorchSSL/TorchSSL and
perrying/pytorch-consistency-regularization (PCR). Values and gradients are compared in double precision. A ratio that
is not 1 must be the factor that its row explains, within 1e-5. The exit code is 1 if a ratio is wrong, and 2 if USB is
not installed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import usb
from torch import Tensor, nn

from certus.core import losses
from certus.core.losses import Distance
from certus.core.refinements import Harden, Threshold
from certus.core.schedules import Clock, Constant
from certus.core.target import Target
from certus.core.terms import Consistency, CrossEntropy, Refine
from certus.networks.modes import frozen_statistics
from certus.teachers import EMA

CLASSES, LABELLED, UNLABELLED = 10, 6, 24
LAMBDA = 50.0  # so large that the consistency term is a good part of every step that is compared
XI, EPS, ENTROPY = 1e-6, 6.0, 0.06
WIDER_XI = 1e-2  # for PCR, whose guards against division by 0 shorten r where the gradient is as small as XI makes it
SGD = {"lr": 0.03, "momentum": 0.9}  # with Nesterov's momentum, which USB's SGD always has
TOLERANCE = 1e-5

CLASS_MEAN = "they average the squared error over the classes, certus sums it: C"
SET_EQUAL = """\
Set equal here, different by design:
  teacher     certus: evaluation mode, averaged statistics; USB, TorchSSL: training mode, batch statistics, dropout on
  statistics  of the student's batch norm: certus: of all images, weak view; USB: labelled images only (FixMatch: all)
  images      certus: consistency over the whole batch, labelled images included; others: over the unlabelled ones
  ramp        certus: exp(−5(1−x)²); USB, TorchSSL: linear, and none for FixMatch
  average     certus: α rises as 1 − 1/(s+1) to its final value, buffers too; USB: α from the start, weights only"""

Measured = tuple[Tensor, Tensor]  # a value, and the gradient (or the change of the weights) that belongs to it


@dataclass(frozen=True)
class Row:
    """One quantity, by certus and by someone else, and the factor that should be between them."""

    quantity: str
    whose: str
    ours: Measured
    theirs: Measured
    factor: float = 1.0
    reason: str = ""

    @property
    def error(self) -> float:
        """The largest relative deviation of value and gradient from the stated factor."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return max(((a - self.factor * b).norm() / a.norm()).item() for a, b in pairs if a.numel())

    @property
    def agrees(self) -> bool:
        return self.error <= TOLERANCE  # and not if it is nan


class Scene:
    """What both sides look at: a student, a teacher, labelled images, and two views of unlabelled ones."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net, self.teacher = network(), network()
        self.x_lb, self.y_lb = torch.randn(LABELLED, 3, 8, 8), torch.randint(CLASSES, (LABELLED,))
        self.x_w = torch.randn(UNLABELLED, 3, 8, 8)
        self.x_s = self.x_w + 0.3 * torch.randn_like(self.x_w)
        self.d0 = torch.randn_like(self.x_w)  # VAT's first direction
        self.weak, self.strong = (unlabelled(self.net, x).detach() for x in (self.x_w, self.x_s))
        sure = (self.weak.softmax(1).amax(1) >= 0.95).sum()
        assert 3 <= sure <= UNLABELLED - 3, (
            f"{sure} confident images of {UNLABELLED}: the threshold is not put to the test"
        )


def network() -> nn.Module:
    """A small network with batch norm, confident enough for a threshold of 0.95."""
    head = nn.Linear(16, CLASSES)
    with torch.no_grad():
        head.weight.mul_(60)
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AvgPool2d(6), nn.Flatten(), head)


def unlabelled(net: nn.Module, x: Tensor) -> Tensor:
    """The answer with the batch's own statistics, not remembered: as others look at unlabelled images."""
    with frozen_statistics(net):
        return net(x)


def consistency(student: Tensor, target: Tensor, distance: Distance, *refine: Refine, weight: float = 1.0) -> Tensor:
    """certus's consistency term on logits that are known already."""
    term = Consistency(lambda _: student, lambda _: Target.plain(target), refine, distance, Constant(weight))  # type: ignore[arg-type]
    return term(SimpleNamespace(clock=Clock(0, 1)))  # type: ignore[arg-type]


def supervised(logits: Tensor, labels: Tensor) -> Tensor:
    """certus's cross-entropy on logits that are known already."""
    term = CrossEntropy(lambda _: logits)  # type: ignore[arg-type]
    return term(SimpleNamespace(batch=SimpleNamespace(labels=labels)))  # type: ignore[arg-type]


def fixmatch(strong: Tensor, weak: Tensor) -> Tensor:
    """FixMatch's consistency, and Pseudo-Label's where both views are one."""
    return consistency(strong, weak, losses.cross_entropy, Threshold(0.95), Harden())


def ours_vat(net: nn.Module, x: Tensor, d0: Tensor, xi: float, eps: float) -> Tensor:
    """Mean KL(net(x) ‖ net(x + r)), r of length eps in the direction that one power iteration from d0 finds."""
    from certus.views.adversarial import worst_direction

    target, one = unlabelled(net, x).detach(), x.new_ones(len(x))

    def divergence(r: Tensor) -> Tensor:
        return losses.kl(unlabelled(net, x + r), target, one)

    return divergence(eps * worst_direction(divergence, d0, xi)).mean()


def by_logits(loss: Callable[[Tensor], Tensor], logits: Tensor) -> Measured:
    """A loss of the student's logits, and its gradient."""
    student = logits.clone().requires_grad_()
    value = loss(student)
    return value.detach(), torch.autograd.grad(value, student)[0]


def by_weights(loss: Callable[[nn.Module], Tensor], net: nn.Module) -> Measured:
    """A loss of the network, and its gradient."""
    net = deepcopy(net)
    value = loss(net)
    return value.detach(), flat(torch.autograd.grad(value, list(net.parameters())))


def flat(tensors: Any) -> Tensor:
    return torch.cat([t.detach().flatten() for t in tensors])


def stepped(loss: Callable[[nn.Module], Tensor], net: nn.Module) -> Measured:
    """How one step on this loss changes the weights."""
    after = deepcopy(net)
    optimizer = torch.optim.SGD(after.parameters(), **SGD, nesterov=True)
    loss(after).backward()
    optimizer.step()
    return change(net, after)


def change(before: nn.Module, after: nn.Module) -> Measured:
    moved = flat(after.parameters()) - flat(before.parameters())
    return moved.norm(), moved


@contextmanager
def first_direction(d0: Tensor) -> Iterator[None]:
    """Every draw of normal numbers gives d0."""
    with patch.object(torch.Tensor, "normal_", lambda self: self.copy_(d0)):
        with patch.object(torch, "randn_like", lambda _: d0.clone()):
            yield


def usb_rows(scene: Scene) -> Iterator[Row]:
    """Losses, whole steps and the moving average of USB's own algorithms."""
    x_lb, y_lb, x_w, x_s = scene.x_lb, scene.y_lb, scene.x_w, scene.x_s

    def theirs(name: str, **settings: Any) -> tuple[Any, dict[str, float]]:
        given = {"ulb_loss_ratio": LAMBDA, "weight_decay": 0.0, "num_train_iter": 100, "ema_m": 0.9} | SGD | settings
        algorithm = usb.algorithm(name, deepcopy(scene.net), CLASSES, **given)
        algorithm.ema.load(usb.Answering(scene.teacher))
        algorithm.it = 50  # past the ramp
        with first_direction(scene.d0):
            return algorithm, usb.step(algorithm, x_lb, y_lb, x_w, x_s)

    def rows(name: str, shown: str, term: Callable[[nn.Module], Tensor], factor: float = 1.0, reason: str = "") -> Any:
        def total(net: nn.Module) -> Tensor:
            entropy = losses.entropy(unlabelled(net, x_w), torch.ones(UNLABELLED)).mean() if name == "vat" else 0.0
            return supervised(net(x_lb), y_lb) + LAMBDA / factor * term(net) + ENTROPY * entropy

        none = torch.empty(0)
        algorithm, log = theirs(name)
        unsupervised = torch.tensor(log["train/unsup_loss"])
        yield Row(shown, "USB", (term(deepcopy(scene.net)).detach(), none), (unsupervised, none), factor, reason)
        note = "" if factor == 1 else f"the same step with λ of certus = λ_u of USB / {factor:g}"
        yield Row(
            f"{shown}: one step", "USB", stepped(total, scene.net), change(scene.net, algorithm.model.net), 1.0, note
        )

    def mean_teacher(net: nn.Module) -> Tensor:
        return consistency(unlabelled(net, x_s), unlabelled(scene.teacher, x_w), losses.mse)

    def pi(net: nn.Module) -> Tensor:
        return consistency(unlabelled(net, x_s), unlabelled(net, x_w), losses.mse)

    def pseudo_label(net: nn.Module) -> Tensor:
        logits = unlabelled(net, x_w)
        return fixmatch(logits, logits)

    ce = usb.load().core.criterions.CELoss()
    labelled = unlabelled(scene.net, x_lb).detach()
    yield Row(
        "supervised",
        "USB",
        by_logits(lambda z: supervised(z, y_lb), labelled),
        by_logits(lambda z: ce(z, y_lb, reduction="mean"), labelled),
    )
    yield from rows("meanteacher", "mean-teacher", mean_teacher, CLASSES, CLASS_MEAN)
    yield from rows("pimodel", "pi", pi, CLASSES, CLASS_MEAN)
    yield from rows("vat", "vat", lambda net: ours_vat(net, x_w, scene.d0, XI, EPS))
    yield from rows("pseudolabel", "pseudo-label", pseudo_label)
    yield from fixmatch_rows(scene, *theirs("fixmatch"))
    yield average_row(scene, theirs("meanteacher")[0])


def fixmatch_rows(scene: Scene, algorithm: Any, log: dict[str, float]) -> Iterator[Row]:
    """FixMatch, which USB runs in one pass over all images; also with labelled images in the mean, as certus counts."""

    def answers(net: nn.Module) -> tuple[Tensor, ...]:
        return net(torch.cat((scene.x_lb, scene.x_w, scene.x_s))).split((LABELLED, UNLABELLED, UNLABELLED))

    def total(net: nn.Module) -> Tensor:
        labelled, weak, strong = answers(net)
        return supervised(labelled, scene.y_lb) + LAMBDA * fixmatch(strong, weak)

    none = torch.empty(0)
    theirs = torch.tensor(log["train/unsup_loss"]), none
    labelled, weak, strong = (z.detach() for z in answers(deepcopy(scene.net)))
    unsure = torch.zeros_like(labelled)  # a target that no threshold keeps
    whole = fixmatch(torch.cat((labelled, strong)), torch.cat((unsure, weak)))
    share = UNLABELLED / (LABELLED + UNLABELLED)
    kept = Threshold(0.95)(Target.plain(weak), None).weight.mean()  # type: ignore[arg-type]
    yield Row("fixmatch", "USB", (fixmatch(strong, weak), none), theirs)
    yield Row("fixmatch: images kept", "USB", (kept, none), (torch.tensor(log["train/util_ratio"]), none))
    yield Row(
        "fixmatch: whole batch", "USB", (whole, none), theirs, share, "labelled images dropped but counted: |U|/|B|"
    )
    yield Row("fixmatch: one step", "USB", stepped(total, scene.net), change(scene.net, algorithm.model.net))


def average_row(scene: Scene, algorithm: Any) -> Row:
    """The moving average after one step of the student."""
    student = deepcopy(algorithm.model.net)
    follower = EMA(student, algorithm.ema_m)
    follower.net.load_state_dict(scene.teacher.state_dict())
    follower.follow(SimpleNamespace(clock=Clock(10_000, 20_000)))  # type: ignore[arg-type]
    return Row(
        "teacher: one step", "USB", change(scene.teacher, follower.net), change(scene.teacher, algorithm.ema_model.net)
    )


def torchssl_rows(scene: Scene, checkout: Path) -> Iterator[Row]:
    """TorchSSL's loss functions."""
    weak, strong = scene.weak, scene.strong
    usb.without_gpu()
    with importable(checkout), usb.stand_ins():
        names = ("meanteacher", "pimodel", "fixmatch", "pseudolabel", "vat")
        mean_teacher, pi, fix, pseudo, vat = (import_module(f"models.{name}.{name}_utils") for name in names)
    ours = by_logits(lambda z: consistency(z, weak, losses.mse), strong)
    for name, module in (("mean-teacher", mean_teacher), ("pi", pi)):
        theirs = by_logits(lambda z, module=module: module.consistency_loss(z, weak), strong)
        yield Row(name, "TorchSSL", ours, theirs, CLASSES, CLASS_MEAN)
    with first_direction(scene.d0):
        theirs = by_weights(
            lambda net: vat.vat_loss(looking(net), scene.x_w, unlabelled(net, scene.x_w), XI, EPS), scene.net
        )
    yield Row("vat", "TorchSSL", by_weights(lambda net: ours_vat(net, scene.x_w, scene.d0, XI, EPS), scene.net), theirs)
    yield Row(
        "pseudo-label",
        "TorchSSL",
        by_logits(lambda z: fixmatch(z, z), weak),
        by_logits(lambda z: pseudo.consistency_loss(z, None, 0, "", 0.95)[0], weak),
    )
    yield Row(
        "fixmatch",
        "TorchSSL",
        by_logits(lambda z: fixmatch(z, weak), strong),
        by_logits(lambda z: fix.consistency_loss(z, weak, "ce", p_cutoff=0.95)[0], strong),
    )


def looking(net: nn.Module) -> nn.Module:
    """A module that looks as at unlabelled images (TorchSSL's VAT also wants a zero_grad of it)."""

    class Unlabelled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return unlabelled(net, x)

    return Unlabelled()


def pcr_rows(scene: Scene, checkout: Path) -> Iterator[Row]:
    """The loss functions of pytorch-consistency-regularization."""
    weak, strong = scene.weak, scene.strong
    with importable(checkout):
        plain = import_module("ssl_lib.algs.consistency").ConsistencyRegularization("ms")
        pseudo = import_module("ssl_lib.algs.pseudo_label").PseudoLabel("ce", 0.95)
        ms = import_module("ssl_lib.consistency.mean_squared").MeanSquared()
        ce = import_module("ssl_lib.consistency.cross_entropy").CrossEntropy()
        vat = import_module("ssl_lib.algs.vat").VAT("ce", None, objective=ce, eps=EPS, xi=WIDER_XI)
    ours = by_logits(lambda z: consistency(z, weak, losses.mse), strong)
    yield Row("mean-teacher, pi", "PCR", ours, by_logits(lambda z: ms(*plain(z, weak)), strong), CLASSES, CLASS_MEAN)

    def their_vat(net: nn.Module) -> Tensor:
        logits = unlabelled(net, scene.x_w).detach()
        entropy = losses.entropy(logits, torch.ones(UNLABELLED)).mean()
        return ce(*vat(logits, scene.x_w, lambda x: unlabelled(net, x))) - entropy

    with first_direction(scene.d0):
        theirs = by_weights(their_vat, scene.net)
    ours = by_weights(lambda net: ours_vat(net, scene.x_w, scene.d0, WIDER_XI, EPS), scene.net)
    reason = f"ξ = {WIDER_XI:g}; they take cross-entropy, KL + the target's entropy, which is subtracted here"
    yield Row("vat", "PCR", ours, theirs, reason=reason)
    for name, student in (("pseudo-label", weak), ("fixmatch", strong)):
        ours = by_logits(lambda z: fixmatch(z, weak), student)
        yield Row(name, "PCR", ours, by_logits(lambda z: ce(*pseudo(z, weak)), student))


@contextmanager
def importable(checkout: Path) -> Iterator[None]:
    """Modules of this folder can be imported."""
    sys.path.insert(0, str(checkout))
    try:
        yield
    finally:
        sys.path.remove(str(checkout))


def show(row: Row) -> str:
    ours, theirs = row.ours[0].item(), row.theirs[0].item()
    verdict = row.reason if row.agrees else f"NOT EXPLAINED by the factor {row.factor:g}. {row.reason}"
    numbers = f"{ours:>13.9f}{theirs:>13.9f}{ours / theirs:>12.8f}{row.error:>9.0e}"
    return f"{row.quantity:<23}{row.whose:<9}{numbers}  {verdict}".rstrip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torchssl", type=Path, metavar="CHECKOUT", help="of TorchSSL/TorchSSL")
    parser.add_argument("--pcr", type=Path, metavar="CHECKOUT", help="of perrying/pytorch-consistency-regularization")
    args = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    missing = usb.available()
    if missing:
        print(f"USB: {missing}", file=sys.stderr)
        return 2
    scene = Scene()
    rows = list(usb_rows(scene))
    for name, checkout, compare in (("TorchSSL", args.torchssl, torchssl_rows), ("PCR", args.pcr, pcr_rows)):
        if checkout:
            rows += compare(scene, checkout)
        else:
            print(f"{name}: not compared, no checkout was given.")
    print(f"{'quantity':<23}{'against':<9}{'ours':>13}{'theirs':>13}{'ratio':>12}{'error':>9}  reason")
    for row in rows:
        print(show(row))
    print(f"\nerror: of value and gradient (of a step: of every weight), against the stated factor\n{SET_EQUAL}")
    return 0 if all(row.agrees for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
