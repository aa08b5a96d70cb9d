"""Plots: the colours of T are spent on the entries it has, and a plot is there completely or not at all."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstl_cli.errors import FileProblem
from dstl_cli.measure.inspection import channel_statistics
from dstl_cli.measure.paper_experiments import Curve, CurvePoint
from dstl_cli.noise.model import SpectralChannel, SpectralNoise, WhiteNoise
from dstl_cli.pixels.depth import Depth
from dstl_cli.report.plots import (
    draw_white_noise,
    levels_known,
    levels_of,
    magnitude_limits,
    plot_curves,
    plot_transform,
)
from dstl_cli.transforms.files import TransformFile
from dstl_cli.transforms.transform import Transform


@given(st.integers(0, 99), st.integers(1, 12), st.floats(0.05, 1), st.floats(1e-6, 1e6))
def test_the_colours_cover_the_entries_there_are(seed: int, size: int, density: float, scale: float) -> None:
    rng = np.random.default_rng(seed)
    factor = np.where(rng.random((size, size)) < density, rng.standard_cauchy((size, size)), 0.0)
    factor[0, 0] = 3.0
    low, high = magnitude_limits(scale * factor)
    nonzero = scale * np.abs(factor[factor != 0])
    assert high == nonzero.max()
    assert low <= high / 10
    assert np.mean(nonzero < low) <= 0.02
    assert low == pytest.approx(high / 10) or np.mean(nonzero <= low) > 0  # no colour is left without an entry
    np.testing.assert_allclose((low, high), scale * np.array(magnitude_limits(factor)))


def test_zeros_stand_apart_from_the_faintest_entries(tmp_path: Path) -> None:
    """A transform with a block of zeros has white pixels where the same with faint entries instead has none."""
    from PIL import Image

    block = np.eye(64)
    block[:32, 32:] = 1e-9
    white = []
    for factor in (np.where(block == 1e-9, 0.0, block), block):
        plot_transform(TransformFile(Transform(8, factor, "test")), None, tmp_path / "t.png", overwrite=True)
        with Image.open(tmp_path / "t.png") as image:
            white.append(np.mean((np.asarray(image.convert("RGB")) == 255).all(axis=2)))
    assert white[0] > white[1] + 0.01


@pytest.mark.parametrize("deviation", [0.0, 20.0])
def test_bars_of_deviations_stand_on_zero(deviation: float) -> None:
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    pixels = np.clip(np.random.default_rng(0).normal(100, deviation, (64, 64, 3)), 0, 255).astype(np.uint8)
    draw_white_noise(axis, channel_statistics(1, pixels))
    low, high = axis.get_ylim()
    assert low == 0
    assert high > 1.1 * deviation


def test_noise_is_drawn_over_the_levels_that_are_known() -> None:
    deep = (100 + 15 * np.arange(256, dtype=np.uint16)).reshape(16, 16)
    assert levels_of(deep, Depth.of(deep.dtype)) == pytest.approx((100 / 257, 3925 / 257))
    assert levels_of(deep / 2.0, Depth.of(np.dtype(float))) == (50.0, 3925 / 2)
    channel = SpectralChannel((0.1, 0.5), (9.0, 5.0), 0.0, (3.0, 20.0), (0.8, 1.2))
    assert levels_known(SpectralNoise((channel,)), scaled=True) == (3.0, 20.0)
    assert levels_known(SpectralNoise((channel,) * 3), scaled=False) == pytest.approx((3 / 3**0.5, 20 / 3**0.5))
    assert levels_known(WhiteNoise((5.0,)), scaled=True) == (0.0, 255.0)


def test_a_plot_is_complete_or_not_there(tmp_path: Path) -> None:
    curves = [Curve(weight, "dsect", 2.0, 8.0, 1.5, 0.5, (CurvePoint(1, 4.0, 0.4, 5.0, 0.5),)) for weight in (1.0, 0.1)]
    (tmp_path / "old.png").write_bytes(b"precious")
    stored = TransformFile(Transform.fixed(4))
    with pytest.raises(FileProblem, match=r"old\.png"):
        plot_curves(curves, tmp_path / "old.png")
    with pytest.raises(FileProblem, match=r"old\.png"):
        plot_transform(stored, None, tmp_path / "old.png")
    with pytest.raises(AttributeError):  # fails in the middle
        plot_curves([*curves, None], tmp_path / "new.png")  # type: ignore[list-item]
    assert (tmp_path / "old.png").read_bytes() == b"precious"
    assert [path.name for path in tmp_path.iterdir()] == ["old.png"]
    plot_curves(curves, tmp_path / "old.png", overwrite=True)
    assert (tmp_path / "old.png").read_bytes().startswith(b"\x89PNG")
