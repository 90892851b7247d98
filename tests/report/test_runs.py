"""Which runs belong to one arm, and how arms are named."""

from __future__ import annotations

from pathlib import Path

from certus.config import resolve
from certus.report.runs import RunRecord, arms, flat, name_of
from certus.training.run_folder import RunFolder


def test_an_arm_is_named_by_what_sets_it_apart() -> None:
    def config(**given: object) -> dict[str, object]:
        return flat(resolve({"data": "digits", **given}))

    plain, mi = config(method="ft-ccl"), config(method="ft-ccl", options={"metric": "mi"})
    noisy = config(method="supervised", label_noise=0.5)
    assert name_of(plain, [plain]) == "ft-ccl"
    assert name_of(mi, [plain, mi]) == "ft-ccl, metric mi"
    assert name_of(plain, [plain, mi]) == "ft-ccl"  # as the method comes
    assert name_of(mi, [mi]) == "ft-ccl"  # nothing to be told apart from
    heavy, preset = config(options={"weight": 6.0}), plain["weight"]
    assert preset != 6.0
    assert [name_of(c, [plain, mi, heavy]) for c in (plain, heavy)] == ["ft-ccl", "ft-ccl, weight 6"]
    assert name_of(noisy, [plain, mi, noisy]) == "supervised, label noise 0.5"
    assert config(seed=1) == config(seed=2)


def test_a_method_as_it_comes_stands_before_its_variants(tmp_path: Path) -> None:
    settings = [{"options": {"metric": "mi"}}, {"method": "supervised"}, {}, {"options": {"hard": False}, "seed": 3}]
    runs = [RunRecord(RunFolder(tmp_path / str(i)), resolve({"method": "ft-ccl", **g})) for i, g in enumerate(settings)]
    grouped, notes = arms([*runs, RunRecord(RunFolder(tmp_path / "again"), runs[0].config)])
    assert [a.name for a in grouped] == ["supervised", "ft-ccl", "ft-ccl, metric mi", "ft-ccl, hard off"]
    assert len(notes) == 1


def test_a_run_that_lost_its_result_is_told_from_one_under_way(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    record = RunRecord(folder, resolve({"method": "ft-ccl", "steps": 7}))
    folder.metrics.write_text('{"epoch": 1, "step": 7, "losses": {}}\n')
    (folder.checkpoints / "step-00000006").mkdir(parents=True)
    assert record.read() == []
    (folder.checkpoints / "step-00000007").mkdir()
    assert record.read() == [f"{folder.result} is missing: continue the run, which writes it again."]
