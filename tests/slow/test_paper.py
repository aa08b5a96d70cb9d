"""The paper's own data: its table and its convergence figure. Skipped where ../shared is missing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
TABLE = SHARED / "paper_table"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not TABLE.is_dir(), reason="the paper's data is not beside this checkout"),
]


def run(*arguments: str | Path) -> list[dict[str, Any]]:
    """The rows of a `dstl reproduce` run."""
    command = [sys.executable, "-m", "dstl_cli", "reproduce", *map(str, arguments), "--json"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["rows"]
    assert isinstance(rows, list)
    return rows


def reference() -> dict[str, Any]:
    values = json.loads((SHARED / "reference.json").read_text())
    assert isinstance(values, dict)
    return values


def best_printed(row: dict[str, Any]) -> float:
    cell = reference()["paper"][row["image"]][f"{row['sigma']:g}"]
    return max(float(column["psnr"]) for column in cell.values())


def test_dct_column_is_the_printed_one() -> None:
    rows = run("table", TABLE, "--methods", "dct")
    assert len(rows) == 20
    for row in rows:
        assert row["psnr"] == pytest.approx(row["printed_psnr"], abs=0.01), row
        assert row["ssim"] == pytest.approx(row["printed_ssim"], abs=0.002), row


@pytest.mark.parametrize("method", ["bresler", "conditioned", "dsect"])
def test_learnt_columns_are_near_the_printed_ones(method: str) -> None:
    rows = run("table", TABLE, "--methods", method, "--sigmas", "5,10,15,20")
    differences = [abs(row["psnr"] - row["printed_psnr"]) for row in rows]
    assert len(rows) == 16
    assert sum(differences) / 16 <= 0.08
    assert max(differences) <= 0.20


def test_sparse_logdet_is_not_worse_than_printed() -> None:
    rows = run("table", TABLE, "--methods", "sparse-bresler", "--sigmas", "5,10,15,20")
    assert len(rows) == 16
    for row in rows:
        assert row["psnr"] >= row["printed_psnr"] - 0.10, row
        assert row["density"] <= 0.2001, row


def test_default_error_scale_beats_every_printed_column() -> None:
    rows = run("table", TABLE, "--methods", "dct,dsect", "--sigmas", "5,10,15,20", "--error-scale", "1.04")
    assert len(rows) == 32
    for row in rows:
        if (row["image"], row["sigma"]) != ("baboon", 5):
            assert row["psnr"] > best_printed(row), row


def test_convergence_is_that_of_the_reference_or_better() -> None:
    curves = run("figure", TABLE, SHARED / "convergence", "--iterations", "300")
    assert len(curves) == 12
    for curve in curves:
        expected = reference()["convergence"][f"{curve['logdet_weight']:.10g}".replace("e-7", "e-07")]
        last = curve["points"][-1]
        if curve["method"] == "dct":
            assert last["train_error"] == pytest.approx(expected["dct"]["all"][0], rel=1e-5)
            continue
        train, _, test, _ = expected[curve["method"]]["300"]
        if curve["method"] == "bresler":
            assert last["train_error"] == pytest.approx(train, rel=0.02)
            assert last["test_error"] == pytest.approx(test, rel=0.02)
            assert curve["condition"] == pytest.approx(expected["rho"], rel=0.02)
            assert curve["frobenius_norm"] == pytest.approx(expected["tau"], rel=0.02)
        else:
            assert last["train_error"] <= 1.2 * train, curve["method"]
            assert last["test_error"] <= 1.2 * test, curve["method"]
            assert curve["condition"] <= curve["max_condition"] * (1 + 1e-6)
