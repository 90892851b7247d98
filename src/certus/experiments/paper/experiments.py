"""The paper's experiments by name: which arms are trained on which tasks. A scale decides how large."""

from __future__ import annotations

from typing import Any

from certus.errors import unknown
from certus.experiments.paper.printed import ARMS, TABLE1
from certus.experiments.paper.tasks import MILLION, Arm, Experiment, Task

EVERY_TARGET = {"hard": False, "probabilistic": False, "temper": False}  # FT-CCL without its parts: Mean Teacher


def ccl(variant: str = "", **options: Any) -> Arm:
    """FT-CCL with these options. With its own metric or draws, or without any use of certainty, it does not take the
    paper's certainty at any scale."""
    other = options.keys() & {"metric", "draws"} or options.keys() >= EVERY_TARGET.keys()
    return Arm("ft-ccl", {"certainty": "quick"} | options if other else options, variant)


SUPERVISED, MEAN_TEACHER, FILTERING, TEMPERATURE, FT = map(
    Arm, ("supervised", "mean-teacher", "filtering-ccl", "temperature-ccl", "ft-ccl")
)
VAT = Arm("vat", {"ent": True}, "with entropy")  # the paper's VAT+Ent
TEACHERS = {n: ccl(f"{n} teachers", teachers=n) for n in (2, 3, 4)}
PAPER_CERTAINTY = ccl("the paper's certainty", certainty="paper")  # at each scale one of these two is plain ft-ccl
QUICK_CERTAINTY = ccl("quick certainty", certainty="quick")
RANDOM = ccl("random ranks", metric="random")
CONFIDENCE = ccl("confidence ranks", metric="confidence")
REVERSED = ccl("reversed ranks", metric="reversed")  # are the uncertain targets the informative ones?
STRONG = ccl("strong views", student_view="strong")  # at each scale one of these two is plain ft-ccl
WEAK = ccl("weak views", student_view="weak")
STRONG_CONTROLS = (  # does certainty contribute to the gain of strong views? The last is Mean Teacher with them
    ccl("strong views, random ranks", student_view="strong", metric="random"),
    ccl("strong views, confidence ranks", student_view="strong", metric="confidence"),
    ccl("strong views, every target", student_view="strong", **EVERY_TARGET),
)
RANDOM_WEIGHTS = "from random weights"
STARTS = (  # the gain by RotNet: the paper's CCL starts from it, the rivals that it quotes do not
    *(Arm(method, rotnet=True) for method in ("supervised", "mean-teacher", "ft-ccl")),
    ccl(RANDOM_WEIGHTS),
)

# The paper's rows in its order, then ours: the controls first.
ROWS = (
    *(VAT if name == VAT.name else Arm(name) for name in ARMS if "teachers" not in name),
    TEACHERS[2],
    TEACHERS[3],
    RANDOM,
    CONFIDENCE,
    REVERSED,
    PAPER_CERTAINTY,
    QUICK_CERTAINTY,
    Arm("label-propagation"),
    Arm("pseudo-label"),
    Arm("entropy-minimisation"),
    Arm("fixmatch"),
    STRONG,
    WEAK,
    *STARTS,
)

ABLATION = (
    SUPERVISED,
    MEAN_TEACHER,
    FT,
    RANDOM,
    CONFIDENCE,
    REVERSED,
    PAPER_CERTAINTY,
    QUICK_CERTAINTY,
    FILTERING,
    TEMPERATURE,
    ccl("hard filter alone", probabilistic=False, temper=False),
    ccl("probabilistic filter alone", hard=False, temper=False),
    ccl("without the hard filter", hard=False),
    ccl("without the probabilistic filter", probabilistic=False),
    *(ccl(f"T = {t}", draws=f"independent:{t}") for t in (2, 3, 5, 10, 20)),
    *(ccl(f"metric {name.upper()}", metric=name) for name in ("pv", "ev", "mi")),
    *TEACHERS.values(),
)

# As printed, on the engine's network: weak views, squared error, the paper's λ, ramp, average, filters and temperature.
PRINTED = {
    "student_view": "weak",
    "distance": "mse",
    "sharpen": 1.0,
    "weight": 10.0,
    "ramp": 80.0,
    "horizon": 0.0,
    "decay": 0.99,
    "warm_up": 0.0,
}
PRINTED_TEACHER = Arm("mean-teacher", PRINTED, "as printed")
RANKS: dict[str, dict[str, Any]] = {
    "PV": {"certainty": "paper"},
    **{name: {"metric": name.lower()} for name in ("PE", "confidence", "random", "reversed")},
}


def ranked(variant: str, own: str, **options: Any) -> tuple[Arm, ...]:
    """FT-CCL with each kind of ranks; the one with its `own` kind has the plain name."""
    names = {kind: ", ".join(filter(None, (variant, f"{kind} ranks" * (kind != own)))) for kind in RANKS}
    return tuple(
        Arm("ft-ccl", {**options, **RANKS[kind]}, names[kind]) for kind in sorted(RANKS, key=lambda kind: kind != own)
    )


PRINTED_CCL = ranked("as printed", "PV", **PRINTED, rho=0.4, heat=4.0)
STRONG_CCL = ranked("", "PE")  # the engine's: strong views, cross-entropy

THOUSAND = (Task("cifar10", 1000), Task("svhn", 1000))  # the paper's analyses use only the first

EXPERIMENTS = {
    e.name: e
    for e in (
        Experiment(
            "table1",
            "test errors of every method on CIFAR-10, CIFAR-100 and SVHN, beside the paper's",
            ROWS,
            tuple(Task(*task) for task in TABLE1),
            ("supervised", "mean-teacher"),
        ),
        Experiment(
            "uncertainty",
            "how well each uncertainty finds wrong answers, on the unlabelled and on the test images",
            (FT,),
            THOUSAND,
            ("ft-ccl",),
            about="uncertainty",
            panels=("bins",),
        ),
        Experiment(
            "selection",
            "the accuracy of the selected targets and of all targets during training",
            (MEAN_TEACHER, FT, FILTERING, CONFIDENCE, RANDOM, REVERSED),
            THOUSAND,
            ("ft-ccl", "ft-ccl, random ranks"),
            about="selection",
            panels=("targets", "losses"),
        ),
        Experiment(
            "noise",
            "4,000 labels of which 20, 30 or 50 % are replaced by random ones",
            (SUPERVISED, MEAN_TEACHER, FILTERING, TEMPERATURE, FT),
            tuple(Task("cifar10", 4000, noise) for noise in (0.2, 0.3, 0.5)),
            ("supervised", "mean-teacher"),
        ),
        Experiment(
            "ablation",
            "ours: FT-CCL without each of its parts, and with other ranks instead of certainty",
            ABLATION,
            THOUSAND,
            ("ft-ccl", "mean-teacher"),
        ),
        Experiment(
            "views",
            "ours: the student sees strongly augmented images; does certainty help then?",
            (SUPERVISED, MEAN_TEACHER, FT, Arm("fixmatch"), WEAK, STRONG, *STRONG_CONTROLS),
            THOUSAND,
            ("ft-ccl", "ft-ccl, strong views", "supervised"),
            about="selection",
            panels=("errors", "targets"),
        ),
        Experiment(
            "ladder",
            "ours: test errors against the unlabelled images that are seen; where does the gap open?",
            (SUPERVISED, PRINTED_TEACHER, MEAN_TEACHER, PRINTED_CCL[0], FT),
            (Task("cifar10", 4000), Task("cifar10", 1000), Task("svhn", 1000)),
            ("supervised", "mean-teacher"),
            panels=("ladder",),
            scale="images",
        ).seeing((0.2 * MILLION, 0.6 * MILLION, 2.5 * MILLION, 10 * MILLION)),
        Experiment(
            "map",
            "ours: the gain of certainty over random ranks against the share of right targets",
            (SUPERVISED, PRINTED_TEACHER, MEAN_TEACHER, *PRINTED_CCL, *STRONG_CCL, Arm("fixmatch")),
            tuple(Task(data, labels) for data in ("svhn", "cifar10") for labels in (40, 100, 250, 1000, 4000)),
            ("mean-teacher", "ft-ccl, random ranks", "ft-ccl, as printed, random ranks"),
            about="selection",
            panels=("map",),
            scale="images",
        ).seeing((0.2 * MILLION,)),
        Experiment(
            "record",
            "ours: the lowest error within three hours of two cores, beside the paper's",
            (Arm("mean-teacher", variant="record", beside="ft-ccl, 3 teachers"),),
            (Task("cifar10", 4000), Task("svhn", 1000), Task("cifar10", 1000)),
            (),
            panels=("record",),
            scale="record",
        ),
    )
}


def experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]
