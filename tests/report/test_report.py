"""certus report, end to end: from run folders to a page that a browser shows without a complaint."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score

from certus.certainty import scores
from certus.cli.main import run
from certus.config import resolve
from certus.errors import UsageError
from certus.experiments.cells import cell_folder
from certus.report import answers, curves, targets
from certus.report.report import write_report
from certus.report.runs import Arm, RunRecord
from certus.training.build import build
from certus.training.loop import Progress, train
from certus.training.planning import complete
from certus.training.run_folder import RunFolder
from certus.training.unlabelled import answer_unlabelled

DIGITS = {"data": "digits", "labels": 10, "validation": 50, "width": 2, "labelled_batch": 10, "unlabelled_batch": 200}
STEPS = 12
BROWSER = Path("/usr/bin/chromium")


def make(folder: Path, method: str, seed: int = 0, **given: object) -> RunFolder:
    settings = {**DIGITS, "steps": STEPS, "threads": 1, "method": method, "seed": seed, **given}
    found = RunFolder(folder)
    train(build(complete(resolve(settings))), found)
    return found


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "compare"
    for seed in (0, 1):
        make(cell_folder(out, "supervised", seed).path, "supervised", seed)
        make(cell_folder(out, "ft-ccl", seed).path, "ft-ccl", seed, options={"draws": "2"})
    return out


@pytest.fixture(scope="module")
def reported(comparison: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    folder = tmp_path_factory.mktemp("report")
    assert run(["report", str(comparison), "--out", str(folder / "r.html"), "--figures", str(folder / "figures")]) == 0
    return (folder / "r.html").read_text(), folder / "r.html", folder / "figures"


class Page(HTMLParser):
    """Every address and image on a page, its figures with their captions and CSVs, and names used twice."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.images: list[str] = []
        self.ids: list[str] = []
        self.figures: dict[str, str] = {}  # name -> CSV
        self.captions: dict[str, str] = {}
        self._figure, self._caption = "", False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {k: v or "" for k, v in attrs}
        self.addresses += [given[k] for k in ("src", "href", "xlink:href", "action") if k in given]
        self.ids += [given["id"]] if "id" in given else []
        if tag == "img":
            self.images.append(given["src"])
        if tag == "figure":
            self._figure = given["id"]
        self._caption = self._caption or tag == "figcaption"
        if tag == "a" and "download" in given and self._figure:
            head, _, body = given["href"].partition(",")
            assert head == "data:text/csv;charset=utf-8"
            self.figures[self._figure] = unquote(body)

    def handle_endtag(self, tag: str) -> None:
        if tag == "figcaption":
            self._caption = False
        if tag == "figure":
            self._figure = ""

    def handle_data(self, data: str) -> None:
        if self._caption:
            self.captions[self._figure] = self.captions.get(self._figure, "") + data


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_page_needs_nothing_from_elsewhere_and_every_figure_has_caption_and_numbers(
    reported: tuple[str, Path, Path],
) -> None:
    text, _, figures = reported
    page = Page(text)
    assert all(a.startswith(("data:", "#")) for a in page.addresses)
    assert not re.search(r"https?://|@import|<script", text)
    assert len(page.ids) == len(set(page.ids))
    assert page.images
    for image in page.images:
        assert base64.b64decode(image.removeprefix("data:image/png;base64,"))[:4] == b"\x89PNG"
    names = re.findall(r'<figure id="([^"]+)"', text)
    assert set(names) == set(page.figures) == set(page.captions)
    assert {"learning-curves", "risk-coverage", "reliability", "losses", "time"} <= set(names)
    of_targets = [f"consistency-{kind}" for kind in ("targets", "filter", "classes", "uncertainty")]
    for kind in (*of_targets, "bins", "class-pv", "confusion"):
        assert f"ft-ccl-{kind}" in names
    assert "ft-ccl-unlabelled-bins" not in names  # not answered
    for name in names:
        assert len(page.captions[name]) > 40
        assert len(table(page.figures[name])) > 0
        assert (figures / f"{name}.csv").read_text() == page.figures[name]
        assert imread(figures / f"{name}.png").shape[2] == 4
        assert "<svg" in (figures / f"{name}.svg").read_text()
    for anchor in (a for a in page.addresses if a.startswith("#")):
        assert anchor[1:] in page.ids


def test_the_same_runs_give_the_same_bytes_in_another_process(
    reported: tuple[str, Path, Path], comparison: Path, tmp_path: Path
) -> None:
    words = ["report", str(comparison), "--out", "r.html", "--figures", "figures"]
    done = subprocess.run(
        [sys.executable, "-m", "certus", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    _, page, figures = reported
    assert (tmp_path / "r.html").read_bytes() == page.read_bytes()
    assert [p.name for p in sorted(figures.iterdir())] == [p.name for p in sorted((tmp_path / "figures").iterdir())]
    for path in figures.iterdir():
        assert (tmp_path / "figures" / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_numbers_are_those_of_the_run_files(reported: tuple[str, Path, Path], comparison: Path) -> None:
    text, _, _ = reported
    page = Page(text)
    runs = [cell_folder(comparison, "ft-ccl", seed) for seed in (0, 1)]
    lines = [f.load_metrics() for f in runs]
    for row in table(page.figures["learning-curves"]):
        if row["arm"] == "ft-ccl":
            values = [li["validation_error"] for m in lines for li in m if li["epoch"] == int(row["epoch"])]
            assert float(row["mean"]) == pytest.approx(sum(values) / 2)
            assert row["n"] == "2"
    for row in table(page.figures["ft-ccl-consistency-targets"]):
        values = [
            li["targets"]["consistency"]["accuracy"][row["targets"]]
            for m in lines
            for li in m
            if li["epoch"] == int(row["epoch"])
        ]
        assert float(row["mean"]) == pytest.approx(100 * sum(values) / len(values))
    for row in table(page.figures["ft-ccl-consistency-classes"]):
        counts = [
            li["targets"]["consistency"]["classes"] for m in lines for li in m if li["epoch"] == int(row["epoch"])
        ]
        shares = [100 * c[int(row["class"])] / sum(c) for c in counts if sum(c)]
        assert float(row["mean"]) == pytest.approx(sum(shares) / len(shares))
        assert int(row["n"]) == len(shares)
    sure = table(page.figures["ft-ccl-consistency-uncertainty"])
    assert {(r["images"], r["quantity"]) for r in sure} == {
        (part, q) for part in ("labelled", "unlabelled") for q in ("mean", "q05", "q25", "q50", "q75", "q95")
    }
    for row in (r for r in sure if r["quantity"] == "q25"):
        of_both = [
            li["targets"]["consistency"]["uncertainty"] for m in lines for li in m if li["epoch"] == int(row["epoch"])
        ]
        a, b = (u[row["images"]]["quantiles"][1] for u in of_both)
        assert float(row["mean"]) == pytest.approx((a + b) / 2)
        assert float(row["std"]) == pytest.approx(abs(a - b) / 2**0.5)
    given = [RunRecord(f, f.load_config()).answers for f in runs]
    last = [r for r in table(page.figures["risk-coverage"]) if r["arm"] == "ft-ccl"][-1]
    expected = sum(scores.error(a["probabilities"], a["labels"]) for a in given) / 2
    assert float(last["error (%)"]) == pytest.approx(expected)
    counted = sum(int(r["images"]) for r in table(page.figures["ft-ccl-confusion"]))
    assert counted == 2 * len(given[0]["labels"])
    downloads = re.findall(r'download="comparison.csv" href="data:text/csv;charset=utf-8,([^"]*)"', text)
    rows = {r["arm"]: r for r in table(unquote(downloads[0]))}
    errors = {m: [cell_folder(comparison, m, s).load_result()["test_error"] for s in (0, 1)] for m in rows}
    assert float(rows["ft-ccl"]["mean"]) == pytest.approx(sum(errors["ft-ccl"]) / 2)
    gap = sum(a - b for a, b in zip(errors["ft-ccl"], errors["supervised"], strict=True)) / 2
    assert float(rows["ft-ccl"]["difference"]) == pytest.approx(gap)
    assert rows["supervised"]["difference"] == ""
    assert "preliminary" in text


def test_answers_to_unlabelled_images_are_drawn_before_those_to_test_images(comparison: Path, tmp_path: Path) -> None:
    runs = [
        RunFolder(Path(shutil.copytree(cell_folder(comparison, "ft-ccl", s).path, tmp_path / str(s)))) for s in (0, 1)
    ]
    figures, asked = [], []
    for folder in runs:
        answer_unlabelled(folder)
        asked.append(load_file(folder.unlabelled))
        write_report([f.path for f in runs], tmp_path / "r.html")
        page = Page((tmp_path / "r.html").read_text())
        names = list(page.figures)
        assert names.index("ft-ccl-unlabelled-bins") == names.index("ft-ccl-bins") - 1
        assert f"Means over n = {len(asked)}." in page.captions["ft-ccl-unlabelled-bins"]
        assert "Means over n = 2." in page.captions["ft-ccl-bins"]
        figures.append(page.figures)
    text = (tmp_path / "r.html").read_text()
    for images in ("unlabelled images (D_U)", "test images (D_T)"):
        assert f"<h3>Accuracy against uncertainty: {images}</h3>" in text
    assert figures[0]["ft-ccl-bins"] == figures[1]["ft-ccl-bins"]
    for n in (1, 2):
        rows = [r for r in table(figures[n - 1]["ft-ccl-unlabelled-bins"]) if r["uncertainty"] == "pe"]
        missed = [(a["probabilities"][0].argmax(1) != a["labels"]).numpy() for a in asked[:n]]
        areas = [roc_auc_score(m, a["pe"].numpy()) for m, a in zip(missed, asked, strict=False)]
        assert float(rows[0]["AUROC"]) == pytest.approx(sum(areas) / n)
        surest = [m[a["pe"].argsort(stable=True).numpy()[:100]] for m, a in zip(missed, asked, strict=False)]
        assert float(rows[0]["accuracy (%)"]) == pytest.approx(100 - 100 * sum(s.mean() for s in surest) / n)
        assert len(rows) == len(asked[0]["labels"]) // 100


def test_seeds_with_more_known_labels_have_more_bins() -> None:
    def made(n: int, wrong_from: int) -> dict[str, torch.Tensor]:
        probabilities = torch.tensor([[0.9, 0.1]]).expand(n, 2)
        order = torch.arange(n)
        return {"probabilities": probabilities, "labels": (order >= wrong_from).long(), "pe": order / n}

    (drawn,) = answers.ranked("bins", "unlabelled images", "D_U", "", [made(40, 20), made(48, 40)])
    assert [row[2] for row in drawn.rows] == [100] * 5 + [50] * 5 + [0] * 2


def observed(folder: Path, epochs: Sequence[dict[str, Any]], classes: int) -> RunRecord:
    """A run that has recorded only these targets."""
    folder.mkdir()
    whole = [{name: {"kept": {}, "classes": [], **t} for name, t in targets.items()} for targets in epochs]
    lines = [{"epoch": i + 1, "step": i + 1, "losses": {}, "targets": targets} for i, targets in enumerate(whole)]
    RunFolder(folder).metrics.write_text("".join(json.dumps(li) + "\n" for li in lines))
    about = {"classes": [f"class {c}" for c in range(classes)], "shape": [2], "mean": [0.0, 0.0], "std": [1.0, 1.0]}
    RunFolder(folder).model.write_text(json.dumps(about))
    return RunRecord(RunFolder(folder), resolve({**DIGITS, "method": "ft-ccl"}))


def test_of_a_hundred_classes_only_the_rarest_the_median_and_the_most_frequent_are_drawn(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    counts = random.integers(0, 50, (2, 3, 2, 100))  # seed, epoch, student, class
    counts[1, 2] = 0  # a filter that kept nothing: there are no shares to speak of
    made = [
        [{f"consistency {i + 1}": {"classes": c.tolist(), "kept": {"all": 0.5}} for i, c in enumerate(e)} for e in run]
        for run in counts
    ]
    arm = Arm("ft-ccl", tuple(observed(tmp_path / str(s), epochs, 100) for s, epochs in enumerate(made)))
    (drawn,) = targets.classes(arm)
    pooled = counts.sum(2)
    for name, of in (("rarest class", np.min), ("median class", np.median), ("most frequent class", np.max)):
        rows = [r for r in drawn.rows if r[0] == name]
        for epoch in (1, 2):
            each = [100 * of(seed[epoch - 1] / seed[epoch - 1].sum()) for seed in pooled]
            assert rows[epoch - 1][1:] == pytest.approx((epoch, np.mean(each), np.std(each, ddof=1), 2))
        assert rows[2][1:] == pytest.approx((3, 100 * of(pooled[0, 2] / pooled[0, 2].sum()), 0, 1))
    assert len(drawn.rows) == 9
    assert "Here every target is used" not in drawn.caption


@pytest.mark.parametrize("classes", [2, 10, 11])
def test_up_to_ten_classes_have_a_line_each_beside_the_even_share(tmp_path: Path, classes: int) -> None:
    record = {"consistency": {"classes": list(range(1, classes + 1)), "kept": {"all": 1.0}}}
    (drawn,) = targets.classes(Arm("mean-teacher", (observed(tmp_path / "run", [record, record], classes),)))
    (axes,) = drawn.picture.axes
    *lines, even = axes.get_lines()
    assert np.unique(even.get_ydata()).tolist() == [100 / classes]
    labels = [line.get_label() for line in lines]
    assert labels == [f"class {c}" for c in range(classes)] if classes <= 10 else len(lines) == 3
    assert "Here every target is used" in drawn.caption


def test_uncertainty_is_the_mean_of_students_and_seeds_and_its_band_is_over_seeds(tmp_path: Path) -> None:
    def epoch(*medians: float) -> dict[str, Any]:
        spreads = [{"mean": 2 * m, "quantiles": [0.0, m / 2, m, 3 * m / 2, 2 * m]} for m in medians]
        return {
            f"consistency {i + 1}": {"uncertainty": {"labelled": None, "unlabelled": s}} for i, s in enumerate(spreads)
        }

    seeds = [[epoch(1, 3), epoch(2, 4)], [epoch(5, 7)]]  # the second has come less far
    arm = Arm("ft-ccl", tuple(observed(tmp_path / str(i), s, 10) for i, s in enumerate(seeds)))
    (drawn,) = targets.uncertainty(arm)
    rows = {r[1:3]: r[3:] for r in drawn.rows}
    assert {r[0] for r in drawn.rows} == {"unlabelled"}
    assert rows["q50", 1] == pytest.approx((4, 8**0.5, 2))
    assert rows["q50", 2] == pytest.approx((3, 0, 1))
    assert rows["q25", 1] == pytest.approx((2, 2**0.5, 2))
    assert rows["mean", 1] == pytest.approx((8, 32**0.5, 2))
    (shade,) = drawn.picture.axes[0].collections
    assert shade.get_paths()[0].vertices[:, 1].max() == pytest.approx(4 + 8**0.5)
    assert not list(targets.uncertainty(Arm("pi", (observed(tmp_path / "none", [{"consistency": {}}], 10),))))


@pytest.mark.parametrize(
    ("errors", "scale"), [((80.0, 20.0, 10.0), "log"), ((12.0, 11.0, 10.0), "linear"), ((50.0, 10.0, 0.0), "linear")]
)
def test_errors_that_fall_many_times_over_have_a_logarithmic_scale(
    tmp_path: Path, errors: tuple[float, ...], scale: str
) -> None:
    seen = observed(tmp_path / "run", [{}] * len(errors), 10)
    lines = [{**line, "validation_error": e} for line, e in zip(seen.lines, errors, strict=True)]
    seen.folder.metrics.write_text("".join(json.dumps(li) + "\n" for li in lines))
    (drawn,) = curves.learning([Arm("supervised", (RunRecord(seen.folder, seen.config),))])
    (axes,) = drawn.picture.axes
    assert axes.get_yscale() == scale
    assert ("logarithmic" in drawn.caption) == (scale == "log")
    low, high = axes.get_ylim()
    assert low <= min(errors)
    assert high >= max(errors)
    drawn.svg()  # its ticks can be drawn


def test_one_run_and_the_same_run_twice(comparison: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = comparison / "supervised-seed0"
    assert run(["report", str(one), str(one), "--out", str(tmp_path / "one.html")]) == 0
    assert capsys.readouterr().out.startswith("1 run, ")
    text = (tmp_path / "one.html").read_text()
    assert "supervised has no consistency term, and so no targets." in text
    assert "difference to" not in text
    shutil.copytree(one, tmp_path / "copy")
    write_report([one, tmp_path / "copy"], tmp_path / "two.html")
    assert "is the same run as" in (tmp_path / "two.html").read_text()


def test_an_unfinished_run_is_reported_so_far(tmp_path: Path) -> None:
    given = {**DIGITS, "method": "ft-ccl", "steps": STEPS, "warm_up": 0.0, "options": {"draws": "2"}}
    run_ = build(complete(resolve(given)))
    folder = RunFolder(tmp_path / "run")
    folder.create(run_)
    write_report([folder.path], tmp_path / "r.html")
    assert "These runs have recorded nothing yet" in (tmp_path / "r.html").read_text()
    progress = Progress.of(run_, folder, observe=True)
    for _ in range(run_.batches.per_epoch):
        progress.advance()
    with folder.metrics.open("a") as f:
        f.write('{"epoch": 2, "st')  # it is writing just now
    assert write_report([folder.path], tmp_path / "r.html").finished == 0
    text = (tmp_path / "r.html").read_text()
    assert f"{run_.batches.per_epoch} of {STEPS} steps" in text
    assert "No run has finished yet" in text
    assert "ft-ccl-consistency-targets" in Page(text).figures


def test_runs_without_the_observer_and_on_vectors(tmp_path: Path) -> None:
    moons = {"data": "moons", "labels": 6, "validation": 0, "width": 8, "labelled_batch": 6, "unlabelled_batch": 100}
    config = complete(resolve({**moons, "method": "mean-teacher", "steps": 8, "threads": 1}))
    train(build(config), RunFolder(tmp_path / "run"), observe=False)
    write_report([tmp_path / "run"], tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "trained without the observer" in text
    assert "holds vectors" in text
    assert "learning-curves" not in Page(text).figures  # no validation images


def test_curves_under_label_noise_have_a_panel_each(tmp_path: Path) -> None:
    for noise in (0.0, 0.5):
        make(tmp_path / "runs" / f"a{noise}", "supervised", label_noise=noise, steps=4)
    write_report([tmp_path / "runs"], tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    rows = table(Page(text).figures["label-noise"])
    assert {r["label noise"] for r in rows} == {"0.0", "0.5"}
    assert {r["arm"] for r in rows} == {"supervised"}
    assert "50 % of the labels replaced by random ones" in text
    assert '<p class="muted">10 labels; 10 labels, 50 % of them random · 2 runs' in text
    assert text.count('download="comparison-') == 2  # another task is another table


def test_a_folder_of_pictures_and_data_that_are_gone(tmp_path: Path) -> None:
    from PIL import Image

    for name in ("cat", "dog", "unlabeled"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(12):
            shade = 40 * (name == "dog") + 7 * i
            Image.new("RGB", (16, 16), (shade, 90, 255 - shade)).save(tmp_path / "photos" / name / f"{i}.png")
    given = {"data": str(tmp_path / "photos"), "labels": 0, "validation": 4, "steps": 4, "warm_up": 0.0}
    folder = make(tmp_path / "run", "mean-teacher", labelled_batch=4, unlabelled_batch=6, **given)
    write_report([folder.path], tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "No unlabelled image has a known label" in text
    assert "The data set has no test images" in text
    assert "Validation error" in text

    lost = make(tmp_path / "lost", "supervised", steps=2)
    lost.config.write_text(lost.config.read_text().replace('data = "digits"', 'data = "svhn"'))
    lost.config.write_text(lost.config.read_text().replace('data_dir = ""', f'data_dir = "{tmp_path}"'))
    write_report([lost.path], tmp_path / "r.html")
    assert "The test images are not shown, because svhn cannot be loaded" in (tmp_path / "r.html").read_text()


def test_the_report_says_that_answers_were_not_kept(tmp_path: Path) -> None:
    folder = make(tmp_path / "run", "supervised", steps=2)
    folder.predictions.unlink()
    write_report([folder.path], tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "The answers of these runs were not kept, only their results" in text
    assert "The data set has no test images" not in text


def test_a_bin_of_few_images_is_not_drawn_but_is_in_the_csv() -> None:
    labels = torch.zeros(31, dtype=torch.long)
    probabilities = torch.tensor([[0.95, 0.05]]).repeat(31, 1)
    probabilities[0] = torch.tensor([0.55, 0.45])  # alone in its bin
    run = SimpleNamespace(answers={"probabilities": probabilities, "labels": labels})
    (drawn,) = answers.calibration([SimpleNamespace(name="arm", answering=[run])])  # type: ignore[list-item]
    assert [row[1] for row in drawn.rows] == [1, 30]
    _, curve = drawn.picture.axes[0].lines  # the first is the diagonal
    assert list(curve.get_xdata()) == pytest.approx([95])


def test_what_is_no_run_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for words, message in (
        ([str(tmp_path)], "holds no run"),
        ([str(tmp_path / "none")], "There is no folder"),
        ([], "needs the folder of a run"),
    ):
        with pytest.raises(UsageError, match=message) as refused:
            run(["report", *words])
        assert refused.value.exit_code == 2


def browse(page: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Debian's chromium, without a screen and without calling home."""
    with tempfile.TemporaryDirectory() as profile:
        words = [
            *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--enable-logging=stderr", f"--user-data-dir={profile}", *flags, page.as_uri()),
        ]
        return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


CHECK = """<script>addEventListener("load", () => {
  const bad = [...document.images].filter(i => !i.complete || !i.naturalWidth).length;
  const drawn = [...document.querySelectorAll("figure > svg")];
  const empty = drawn.filter(s => s.getBoundingClientRect().height < 50).length;
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  document.title = JSON.stringify({images: document.images.length, bad, empty, wide}) })</script>"""


@pytest.mark.skipif(not BROWSER.exists(), reason="there is no /usr/bin/chromium: apt-get install chromium")
@pytest.mark.parametrize("width", [1200, 390])
def test_a_browser_shows_every_image_without_a_complaint(
    reported: tuple[str, Path, Path], tmp_path: Path, width: int
) -> None:
    text, _, _ = reported
    checked = tmp_path / "checked.html"
    checked.write_text(text.replace("</body>", CHECK + "</body>"))
    shown = browse(checked, f"--window-size={width},900", "--dump-dom")
    found = json.loads(re.findall(r"<title>(.*?)</title>", shown.stdout)[0].replace("&quot;", '"'))
    assert found["images"] > 0
    assert (found["bad"], found["empty"], found["wide"]) == (0, 0, 0)
    assert "CONSOLE" not in shown.stderr
    shot = tmp_path / "shot.png"
    browse(checked, f"--window-size={width},900", f"--screenshot={shot}", "--hide-scrollbars")
    assert imread(shot).shape[:2] == (900, width)


def test_the_unlabelled_option_makes_every_finished_run_answer_its_unlabelled_images(tmp_path: Path) -> None:
    done = make(tmp_path / "done", "ft-ccl")
    begun = make(tmp_path / "begun", "supervised")
    begun.result.unlink()
    begun.predictions.unlink()
    words = ["report", str(done.path), str(begun.path), "--out", str(tmp_path / "r.html"), "--figures", str(tmp_path)]
    assert run(words) == 0
    assert not done.unlabelled.exists()
    assert run([*words, "--unlabelled"]) == 0
    assert done.unlabelled.is_file()
    assert not begun.unlabelled.exists()
    assert list(tmp_path.glob("*unlabelled-bins.png"))
