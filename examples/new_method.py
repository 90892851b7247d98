"""Add a method from outside certus in twenty lines, and train it.

    python examples/new_method.py        a few seconds

Mean Teacher that learns strong views of the unlabelled images, from targets of at least 40 % confidence.
"""

from dataclasses import dataclass

import certus
from certus.core.build_context import BuildContext
from certus.core.losses import cross_entropy
from certus.core.method import Method
from certus.core.refinements import Threshold
from certus.core.schedules import RampUp
from certus.core.student import See
from certus.core.terms import Consistency, CrossEntropy
from certus.methods import Recipe, at_least, between, one_of, option
from certus.teachers import EMA, Clean


@dataclass(frozen=True)
class Options:
    weight: float = option(1.0, "weight of the consistency term", at_least(0))
    threshold: float = option(0.6, "least confidence of a target", between(0, 1))
    student_view: str = option("strong", "view of unlabelled images: weak or strong", one_of("weak", "strong"))


def confident_teacher(context: BuildContext, options: Options) -> Method:
    student = context.network(0)
    teacher = EMA(student, horizon=0.2)  # it looks back over a fifth of the steps so far
    kind = "mixed" if options.student_view == "strong" else "weak"  # mixed: only unlabelled images are seen strongly
    seen = See(student, "a", kind)
    consistency = Consistency(
        seen,
        Clean(teacher.net, "b"),
        (Threshold(options.threshold),),
        distance=cross_entropy,
        weight=RampUp(options.weight),
    )
    terms = {"supervised": CrossEntropy(seen, context.smoothing), "consistency": consistency}
    return Method("confident-teacher", (student,), terms, answers=(teacher.net,), followers=(teacher,))


certus.register(
    Recipe("confident-teacher", "mean teacher that teaches confident answers", "ours", Options, confident_teacher)
)

if __name__ == "__main__":
    model = certus.train("digits", method="confident-teacher", labels=20, options={"threshold": 0.4})
    print(f"test error {model.result['test_error']:.1f} %, saved in {model.folder}")
