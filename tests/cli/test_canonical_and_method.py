"""Any orthonormal basis can be Phi, and any method learn on it: those registered, and one that a stranger registers."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from running import refused, run

from dstl_cli.learning.methods import METHODS, FactorUpdate, LearningMethod
from dstl_cli.transforms.canonical import CANONICAL, Canonical
from dstl_cli.transforms.files import load_transform

Array = NDArray[np.float64]

SMALL = ("--patch-size", 4, "--iterations", 3, "--train-patches", 1200)
RUNS: dict[str, tuple[str | float, ...]] = {
    "standard": ("--quality", "standard", *SMALL),
    "best": ("--quality", "best", "--method", "procrustes", *SMALL),
    "fast": ("--quality", "fast", "--method", "dct", "--patch-size", 4),
    "paper": ("--preset", "paper", "--rounds", 2, *SMALL),
}


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Slanted bars with noise."""
    y, x = np.mgrid[:56, :64]
    bars = 128 + 70 * np.sign(np.sin(0.9 * x + 0.5 * y)) + 15 * np.random.default_rng(0).standard_normal((56, 64))
    path = tmp_path_factory.mktemp("pictures") / "noisy.png"
    Image.fromarray(np.clip(bars, 0, 255).astype(np.uint8)).save(path)
    return path


def used_as_kept(noisy: Path, folder: Path, kept: Path, *settings: str | float) -> bytes:
    """The picture denoised with a kept transform."""
    out = folder / "again.png"
    done = run("denoise", noisy, "-o", out, "--force", "--sigma", 15, "--transform", kept, *settings)
    assert done.code == 0, done.stderr
    return out.read_bytes()


@pytest.mark.parametrize("canonical", CANONICAL.names)
@pytest.mark.parametrize("name", RUNS)
def test_every_quality_works_on_every_basis_and_what_it_keeps_gives_the_same_bytes(
    name: str, canonical: str, noisy: Path, tmp_path: Path
) -> None:
    out, kept = tmp_path / "out.png", tmp_path / "T.npz"
    settings = ("--canonical", canonical, *RUNS[name], "--sigma", 15)
    done = run("denoise", noisy, "-o", out, *settings, "--save-transform", kept)
    assert done.code == 0, done.stderr
    transform = load_transform(kept).transform
    assert (transform.canonical, transform.patch_size) == (canonical, 4)
    assert np.array_equal(transform.factor, np.eye(16)) == (name == "fast")
    assert used_as_kept(noisy, tmp_path, kept, *RUNS[name][:2]) == out.read_bytes()
    other = tmp_path / "other.png"
    plain = run("denoise", noisy, "-o", other, *RUNS[name], "--sigma", 15)
    assert plain.code == 0
    assert (other.read_bytes() == out.read_bytes()) == (canonical == "dct")


@pytest.mark.parametrize("canonical", CANONICAL.names)
def test_training_works_on_every_basis(canonical: str, noisy: Path, tmp_path: Path) -> None:
    kept = tmp_path / "T.npz"
    done = run("train", noisy, "-o", kept, *SMALL, "--canonical", canonical, "--json")
    assert done.code == 0, done.stderr
    stored = load_transform(kept)
    assert stored.transform.canonical == stored.provenance["settings"]["canonical"] == canonical
    assert done.report["transform"]["canonical"] == done.report["settings"]["canonical"] == canonical
    assert stored.provenance["cost"] < stored.provenance["canonical_cost"]
    assert stored.transform.condition <= 1.25
    assert stored.transform.density <= 0.3
    mean_alone = np.count_nonzero(stored.transform.factor[0]) == np.count_nonzero(stored.transform.factor[:, 0]) == 1
    assert mean_alone == CANONICAL[canonical].mean_first
    assert canonical in run("inspect", kept).text
    used_as_kept(noisy, tmp_path, kept)


@pytest.mark.parametrize("canonical", ["hadamard", "haar"])
def test_patches_that_a_basis_has_not_are_refused(canonical: str, noisy: Path, tmp_path: Path) -> None:
    for command in ("denoise", "train"):
        words = ("--patch-size must be a power of two", canonical)
        refused(run(command, noisy, "-o", tmp_path / "out", "--canonical", canonical), 2, *words, "11")
        refused(run(command, noisy, "-o", tmp_path / "out", "--canonical", canonical, "--patch-size", 6), 2, *words)
    refused(run("train", "nowhere", "-o", tmp_path / "out", "--canonical", "magic"), 2, "--canonical must be one of")


# Strangers: one entry each, nothing else.


def turned(patch_size: int) -> Array:
    """A random rotation, the same each time."""
    return np.asarray(np.linalg.qr(np.random.default_rng(0).standard_normal((patch_size**2, patch_size**2)))[0])


class Rotation(FactorUpdate):
    """Learns by the nearest rotation to X Yt'."""

    def update(self, factor: Array, cross: Array) -> Array:
        u, _, vt = np.linalg.svd(cross)
        return np.asarray(u @ vt)


@pytest.fixture
def strangers() -> Iterator[None]:
    CANONICAL.register(Canonical("turned", "a random rotation", turned, mean_first=False))
    METHODS.register(LearningMethod("rotation", "the nearest rotation", Rotation))
    yield
    CANONICAL.remove("turned")
    METHODS.remove("rotation")


@pytest.mark.usefixtures("strangers")
@pytest.mark.parametrize("chosen", [("--canonical", "turned"), ("--method", "rotation"), ("--method", "dsect")])
def test_what_is_registered_is_there_on_the_command_line(chosen: tuple[str, str], noisy: Path, tmp_path: Path) -> None:
    kept, out = tmp_path / "T.npz", tmp_path / "out.png"
    for name in ("standard", "best") if chosen[1] == "rotation" else ("standard", "best", "paper"):
        settings = (*RUNS[name], *chosen, "--sigma", 15)
        done = run("denoise", noisy, "-o", out, *settings, "--save-transform", kept, "--force")
        assert done.code == 0, done.stderr
        found = load_transform(kept).transform
        assert chosen[1] in (found.canonical, found.method)
        assert not np.array_equal(found.factor, np.eye(16))
        assert used_as_kept(noisy, tmp_path, kept, *RUNS[name][:2]) == out.read_bytes()
    assert run("train", noisy, "-o", kept, *SMALL, *chosen, "--force").code == 0
    found = load_transform(kept).transform
    assert chosen[1] in (found.canonical, found.method)
    assert chosen[1] in run("train", "--help").text
    if chosen[1] == "rotation":
        refused(run("train", noisy, "-o", kept, *chosen, "--density", 0.5), 2, "--density", "not of rotation")


def test_strangers_are_gone_afterwards(noisy: Path, tmp_path: Path) -> None:
    refused(run("train", noisy, "-o", tmp_path / "T.npz", "--canonical", "turned"), 2, "not 'turned'")
    refused(run("denoise", noisy, "-o", tmp_path / "x.png", "--method", "rotation"), 2, "not 'rotation'")
