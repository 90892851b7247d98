"""Reading order is the data flow: a module imports only those that stand before it."""

from __future__ import annotations

import ast
from pathlib import Path

import certus

ROOT = Path(certus.__file__).parent
ORDER = """errors text writing randomness data networks distributed views certainty core teachers methods optimisers
config training model onnx export features classifier report review serving experiments api cli __main__""".split()


def position(module: str) -> int:
    """Of a module's package in the order."""
    while module not in ORDER:
        module = module.rpartition(".")[0]
        assert module, "every module stands in ORDER"
    return ORDER.index(module)


def test_imports_point_only_backwards() -> None:
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if module == "__init__":  # the public names
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("certus"):
                base = (node.module or "").removeprefix("certus").removeprefix(".")
                names = [base] if base else [alias.name for alias in node.names if alias.name != "__version__"]
                for name in names:
                    assert position(name) <= position(module), f"{module} imports {name}, which stands after it"


def test_no_file_is_more_than_one_idea_long() -> None:
    long = {p.name: n for p in ROOT.rglob("*.py") if (n := len(p.read_text().splitlines())) > 320}
    assert not long


def test_nothing_is_loaded_by_pickle() -> None:
    banned = ("import pickle", "torch.load(", "torch.save(", "allow_pickle=True", "joblib")
    for path in ROOT.rglob("*.py"):
        lines = [line for line in path.read_text().splitlines() if "weights_only=True" not in line]
        assert not [word for word in banned if word in "\n".join(lines)], path
