"""A run's settings in full: one frozen dataclass for the command line, Python and the saved run file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from certus.config.run_file import EARLIER, from_toml, missing, seal_in, seal_of, sealed
from certus.data.fitting import FITS
from certus.errors import CertusError, UsageError, unknown
from certus.methods.options import at_least, between, one_of, typed
from certus.networks.precision import PRECISIONS
from certus.views.looks import Looks

GROUPS = ("data and labels", "method", "network", "views", "training", "length", "machine")
MOST_STEPS = 99_999_999  # names of checkpoints have eight digits
DATA, METHOD, NETWORK, VIEWS, TRAINING, LENGTH, MACHINE = GROUPS


def setting(group: str, default: Any, help: str, check: Any = None, auto: bool = False) -> Any:
    """A setting: what it is about, its default, what it does, which values it takes, and whether auto is one of them
    until the data decide."""
    return field(default=default, metadata={"group": group, "help": help, "check": check, "auto": auto})


@dataclass(frozen=True)
class Config:
    """Everything that decides a run's result."""

    data: str = setting(DATA, "digits", "the data set's name (`certus data` lists them), or a folder of pictures")
    data_dir: str = setting(DATA, "", "folder of the data sets' files; not given: $CERTUS_DATA or the user's cache")
    size: int = setting(DATA, 0, "resize your own pictures to this many pixels; 0: chosen from them", at_least(0))
    fit: str = setting(
        DATA,
        "crop",
        "how your own pictures become squares: crop (their middle), pad (with a margin) or stretch",
        one_of(*FITS),
    )
    method: str = setting(METHOD, "ft-ccl", "the method's name (`certus methods` lists them)")
    labels: int = setting(DATA, 20, "how many labels are used; 0: all", at_least(0))
    seed: int = setting(
        TRAINING, 0, "seed of the split, the initialisation and every random draw", at_least(0, 2**63 - 1)
    )
    validation: int = setting(
        DATA,
        200,
        "extra labelled images for the validation error, never trained on; −1: a fifth of the labels, or none if "
        "they are fewer than ten per class",
        at_least(-1),
    )
    unlabelled: int = setting(DATA, 0, "how many unlabelled images are used; 0: all", at_least(0))
    balanced: bool = setting(DATA, True, "the same number of labels for every class; off: drawn at random")
    balance: str = setting(
        TRAINING,
        "none",
        "against uneven classes: batches (each class is drawn equally often), logits (adjusted in the loss) or none; "
        "auto: logits if a class has over three times the labels of another",
        one_of("auto", "none", "batches", "logits"),
    )
    label_noise: float = setting(DATA, 0.0, "replace this fraction of the labels by random ones", between(0, 1))

    network: str = setting(
        NETWORK,
        "auto",
        "the network, also timm:NAME or transformers:NAME where that package is installed; auto: the one that fits the "
        "images",
    )
    width: int = setting(
        NETWORK, 0, "channels of the first layers; 0: what suits the network and the machine", between(0, 4096)
    )
    dropout: float = setting(NETWORK, 0.5, "probability of dropout", between(0, 0.95))
    weights: str = setting(
        NETWORK, "", "weights to start from: imagenet, or a file; not given: imagenet where the network has them"
    )
    depth: str = setting(
        NETWORK,
        "all",
        "how much of a network with weights learns: all, last (its last blocks) or head (every picture is embedded "
        "once, and one layer learns in seconds)",
        one_of("all", "last", "head"),
    )
    guess: bool = setting(
        NETWORK,
        False,
        "the warm-up of a network with weights also learns labels that are guessed from similar pictures; auto: with "
        "fewer than 25 labels per class",
        auto=True,
    )
    init: str = setting(NETWORK, "", "start from this run of `certus pretrain`; several with commas, one per student")
    from_: str = setting(
        NETWORK,
        "",
        "go on from this finished run, with its weights, its settings and its validation images, and the labels that "
        "were given since",
    )

    translate: int = setting(VIEWS, 2, "shift by up to this many pixels", at_least(0))
    flip: bool = setting(VIEWS, False, "mirror left to right at random; auto: if the labels allow it", auto=True)
    labelled_view: str = setting(
        VIEWS, "weak", "view of labelled images for the student: weak or strong", one_of("weak", "strong")
    )
    mirror: bool = setting(
        VIEWS, False, "answer with the mean over each image and its mirror image; auto: as flip", auto=True
    )
    nudge: int = setting(
        VIEWS, 0, "answer with the mean over each image and two copies shifted by this many pixels", between(0, 7)
    )
    strong: str = setting(
        VIEWS,
        "randaugment",
        "strong views: randaugment, or distort (one affine map, one change of colour, one hole: quicker)",
        one_of("randaugment", "distort"),
    )
    strength: float = setting(VIEWS, 0.6, "how much distort changes an image", between(0, 2))
    noise: float = setting(VIEWS, 0.0, "add Gaussian noise of this standard deviation", between(0, 1000))

    labelled_batch: int = setting(TRAINING, 128, "labelled images per step", between(1, 100_000))
    unlabelled_batch: int = setting(TRAINING, 384, "unlabelled images per step", between(1, 100_000))
    steps: int = setting(LENGTH, 0, "training steps; 0: as many as the epochs need", between(0, MOST_STEPS))
    clock: int = setting(
        LENGTH,
        300,
        "epochs that a run of any length stands for: ramps, filters and temperature are laid out on them",
        between(1, 100_000),
    )
    optimiser: str = setting(
        TRAINING,
        "sgd",
        "sgd with Nesterov momentum; muon for filters and hidden matrices; adam to go on from other weights",
        one_of("sgd", "muon", "adam"),
    )
    learning_rate: float = setting(TRAINING, 0.1, "learning rate at the start of the run", between(0, 1000))
    pace: str = setting(
        TRAINING, "cosine", "how the learning rate falls to 0: cosine or linear", one_of("cosine", "linear")
    )
    momentum: float = setting(TRAINING, 0.9, "momentum of SGD", between(0, 0.999))
    weight_decay: float = setting(TRAINING, 2e-4, "weight decay of SGD and Adam", between(0, 1000))
    warm_up: float = setting(
        TRAINING,
        0.0,
        "share of the run, at its start, that learns from the labels alone; −1: by its length",
        lambda name, value: None if value == -1 else between(0, 1)(name, value),
    )
    label_smoothing: float = setting(
        TRAINING, 0.0, "share of each label that is spread over all classes", between(0, 0.9)
    )

    device: str = setting(MACHINE, "auto", "cpu or cuda; auto: a GPU if there is one")
    precision: str = setting(
        MACHINE,
        "fp32",
        "fp32, or bf16 in forward passes; auto: bf16 if the machine gains",
        one_of(*PRECISIONS),
    )
    threads: int = setting(MACHINE, 0, "CPU threads; 0: one per core", between(0, 1024))

    options: Mapping[str, Any] = field(default_factory=dict)  # of the method, in full

    @property
    def looks(self) -> Looks:
        """The copies of an image whose answers are averaged."""
        return Looks(self.mirror, self.nudge)

    def text(self) -> str:
        """As a run file, with its seal."""
        return sealed(asdict(self))

    @staticmethod
    def read(path: Path) -> dict[str, Any]:
        """What a run file gives, with the same checks as the command line. It may leave settings out."""
        return checked_types(from_toml_file(path)[1], f" in {path}")

    @staticmethod
    def read_whole(path: Path) -> dict[str, Any]:
        """What a run's own file gives; one that was cut or edited is refused."""
        text, given = from_toml_file(path)
        seal = seal_in(text)
        if absent := missing(given, seal is not None):
            names = ", ".join(f"`{name}`" for name in absent)
            raise Altered(f"{path} is not as certus wrote it: it has no {names}.")
        if seal not in (None, seal_of(given)):
            raise Altered(f"{path} is not as certus wrote it: it was edited or cut.")
        return checked_types(EARLIER | given, f" in {path}")


AUTO = "auto"
OPEN = {f.name for f in fields(Config) if f.metadata.get("auto")}  # bools that may be auto until the data decide


def undecided(value: object) -> bool:
    return value == AUTO


class Altered(CertusError):
    """A run's own file that was cut or edited."""


def from_toml_file(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a run file, and what it gives."""
    try:
        text = path.read_bytes().decode()
        return text, from_toml(text)
    except OSError as e:
        raise UsageError(f"Cannot read {path}: {e.strerror or e}.") from None
    except ValueError as e:
        raise UsageError(f"{path} is not a run file: {e}.") from None


def checked_types(given: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Settings with a known name and the right type; whole numbers serve as floats, numpy's numbers as Python's."""
    kinds = {name: kind for name, kind in get_type_hints(Config).items() if name != "options"}
    checked: dict[str, Any] = {}
    for name, value in given.items():
        if name == "options":
            if not isinstance(value, Mapping):
                raise UsageError(f"`options`{where} must be a table of the method's options, but is {value!r}.")
            checked[name] = value
            continue
        if name not in kinds:
            raise unknown(f"setting{where}", name, kinds)
        checked[name] = AUTO if name in OPEN and undecided(value) else typed(name, value, kinds[name], where)
    return checked
