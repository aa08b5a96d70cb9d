"""What the models of noise promise, and that a new kind of noise needs nothing but a class and an entry."""

import json
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dstl_cli.denoising.pipeline import denoise_pixels, denoise_region, denoised_rows
from dstl_cli.denoising.plan import Plan
from dstl_cli.denoising.survey import Request, survey
from dstl_cli.noise.model import (
    NOISE_KINDS,
    SCALE_SIGMA,
    ChannelNoise,
    NoiseKind,
    NoiseModel,
    WhiteChannel,
    WhiteNoise,
    model_from_json,
)
from dstl_cli.patches.frame import Frame
from dstl_cli.pixels.planes import Box, Plane
from dstl_cli.pixels.scales import halved
from dstl_cli.pixels.source import ArraySource
from dstl_cli.transforms.transform import Transform

Array = NDArray[np.float64]

SIGMAS = st.lists(st.floats(0, 1e6), min_size=1, max_size=3).map(tuple)


# White noise.


@given(st.floats(1e-6, 1e6), st.integers(1, 6), st.integers(1, 9), st.integers(0, 100))
def test_the_deviation_of_a_coefficient_is_that_of_its_row(sigma: float, count: int, n: int, seed: int) -> None:
    """The root of diag(F C F') with C = sigma^2 I."""
    rows = np.random.default_rng(seed).standard_normal((count, n))
    expected = np.sqrt(np.diag(rows @ (sigma**2 * np.eye(n)) @ rows.T))
    channel = WhiteNoise((sigma,)).channel(0)
    np.testing.assert_allclose(channel.deviations(rows), expected, rtol=1e-12)
    assert channel.deviation() == sigma
    assert channel.deviations(np.zeros((2, n))).tolist() == [0.0, 0.0]
    assert channel.deviations(rows[:0]).shape == (0,)


@pytest.mark.parametrize("scale", [0, 1, 2, 3])
@pytest.mark.parametrize("size", [4, 11])
def test_deviations_at_every_scale_are_those_of_halved_noise(scale: int, size: int) -> None:
    """Of a pixel, and of every coefficient of the DCT but the mean's neighbours by a few percent."""
    plane = Plane.whole(7.0 * np.random.default_rng(scale).standard_normal((1200, 1300)))
    for _ in range(scale):
        plane = halved(plane)
    image = plane.values[10:-10, 10:-10]
    channel = WhiteChannel(7.0)
    assert image.std() == pytest.approx(channel.deviation(scale), rel=0.04)
    forward = Frame.of(Transform.fixed(size)).forward
    height, width = (length // size for length in image.shape)
    blocks = image[: height * size, : width * size].reshape(height, size, width, size)
    coefficients = forward @ blocks.transpose(1, 3, 0, 2).reshape(size**2, -1)
    told = channel.deviations(forward, scale)
    np.testing.assert_allclose(told, channel.deviation(scale), rtol=1e-12)
    ratios = coefficients.std(axis=1) / told
    chance = 1 / np.sqrt(coefficients.shape[1])
    assert np.sqrt(np.mean((ratios - 1) ** 2)) < 0.05 + chance
    assert np.abs(ratios - 1).max() < 0.1 + 4 * chance


def test_white_noise_is_the_same_at_every_level() -> None:
    assert WhiteChannel(5.0).level_factors(np.linspace(0, 255, 9)) is None
    assert WhiteChannel(5.0).counted_from(128.0) == WhiteChannel(5.0)


@given(st.floats(0, 1e6))
def test_white_noise_asks_for_scales_until_it_is_weak(sigma: float) -> None:
    scales = WhiteChannel(sigma).coarser_scales
    assert sigma / 2**scales <= SCALE_SIGMA * (1 + 1e-12)
    assert scales == 0 or sigma / 2 ** (scales - 1) > SCALE_SIGMA


@given(SIGMAS, st.floats(1e-3, 1e3), st.floats(1e-2, 10), st.floats(1e-2, 10))
def test_white_noise_in_other_units_and_strengths(
    sigmas: tuple[float, ...], unit: float, strength: float, chroma: float
) -> None:
    model = WhiteNoise(sigmas)
    assert model.in_units(unit).sigmas == pytest.approx([sigma / unit for sigma in sigmas])
    stronger = [sigma * strength * (chroma if index else 1) for index, sigma in enumerate(sigmas)]
    assert model.scaled(strength, chroma).sigmas == pytest.approx(stronger)
    assert model.scaled(1.0) == model.in_units(1.0) == model.for_channels(len(sigmas)) == model
    assert model.channel(0).scaled(strength) == model.scaled(strength).channel(0)


def test_one_deviation_serves_all_channels() -> None:
    assert WhiteNoise((4.0,)).for_channels(3) == WhiteNoise((4.0, 4.0, 4.0))
    assert WhiteNoise((4.0, 2.0, 2.0)).describe() == "white noise of 4"
    assert WhiteNoise((0.0,)).describe() == "no noise"


def test_every_channel_has_its_own_deviation() -> None:
    model = WhiteNoise((1.0, 0.0, 3.0))
    assert [model.channel(index).deviation() for index in range(3)] == [1.0, 0.0, 3.0]
    assert model.sigmas == (1.0, 0.0, 3.0)
    assert model.kind == "white"


# JSON.


@given(SIGMAS)
def test_models_go_through_json(sigmas: tuple[float, ...]) -> None:
    model = WhiteNoise(sigmas)
    again = model_from_json(json.loads(json.dumps(model.to_json(), allow_nan=False)))
    assert again == model
    assert isinstance(again, WhiteNoise)
    assert pickle.loads(pickle.dumps(model)) == model


@pytest.mark.parametrize("sigmas", [(), (-1.0,), (float("nan"),), (1.0, float("inf"))])
def test_deviations_that_are_none_are_refused(sigmas: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"^sigmas? must .*\.$"):
        WhiteNoise(sigmas)
    with pytest.raises(ValueError, match=r"^sigmas? must .*\.$"):
        model_from_json({"kind": "white", "sigmas": list(sigmas)})


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"kind": "white"},
        {"kind": "pink", "sigmas": [1.0]},
        {"kind": None},
        {"kind": "white", "sigmas": None},
        {"kind": "white", "sigmas": 5.0},
        {"kind": "white", "sigmas": ["much"]},
        {"kind": "white", "sigmas": [None]},
        {"kind": "white", "sigmas": [[1.0]]},
        [],
        None,
    ],
    ids=str,
)
def test_what_is_no_model_is_refused_in_one_sentence(facts: Any) -> None:
    with pytest.raises(ValueError, match=r"^[A-Za-z].*\.$") as refused:
        model_from_json(facts)
    sentence = str(refused.value)
    assert "\n" not in sentence
    assert "object is not" not in sentence  # Python's words
    assert "argument must" not in sentence


def test_the_sentence_names_the_kinds_there_are() -> None:
    with pytest.raises(ValueError, match=r"^noise kind must be one of white, spectral, not 'pink'\.$"):
        model_from_json({"kind": "pink"})


# A kind of noise that this test adds.


@dataclass(frozen=True)
class ToyChannel:
    """Noise that is smoothed along rows by `taps` and grows with the grey level, counted from `zero`: 1 at `level`."""

    sigma: float
    taps: tuple[float, ...] = (1.0,)
    level: float | None = None
    zero: float = 0.0

    @property
    def coarser_scales(self) -> int:
        return WhiteChannel(self.sigma).coarser_scales

    def covariance(self, size: int) -> Array:
        """Of the pixels of a patch, (n, n)."""
        correlations = np.correlate(self.taps, self.taps, "full") / np.sum(np.square(self.taps))
        along = np.zeros((size, size))
        for lag, value in enumerate(correlations[len(self.taps) - 1 :]):
            along += value * (np.eye(size, k=lag) + (np.eye(size, k=-lag) if lag else 0))
        return np.asarray(self.sigma**2 * np.kron(np.eye(size), along))

    def deviation(self, scale: int = 0) -> float:
        return self.sigma * 0.5**scale

    def deviations(self, rows: Array, scale: int = 0) -> Array:
        size = round(rows.shape[1] ** 0.5)
        return np.asarray(np.sqrt(np.einsum("ij,jk,ik->i", rows, self.covariance(size), rows)) * 0.5**scale)

    def level_factors(self, levels: NDArray[Any], scale: int = 0) -> NDArray[np.float32] | None:
        if self.level is None:
            return None
        return np.asarray(np.maximum(levels + self.zero, 1.0) / self.level, dtype=np.float32)

    @property
    def coarse_excess(self) -> float:
        return 0.0

    def stabilised(self, levels: NDArray[Any]) -> NDArray[Any]:
        return levels if self.level is None else np.asarray(self.level * np.log(np.maximum(levels + self.zero, 1.0)))

    def scaled(self, strength: float) -> "ToyChannel":
        return replace(self, sigma=strength * self.sigma)

    def counted_from(self, level: float) -> "ToyChannel":
        return replace(self, zero=self.zero + level)

    def halved(self) -> "ToyChannel":
        return self.scaled(0.5)


@dataclass(frozen=True)
class ToyNoise:
    """The same in one grey channel."""

    own: ToyChannel
    kind = "toy"

    @property
    def sigmas(self) -> tuple[float, ...]:
        return (self.own.sigma,)

    def channel(self, index: int) -> ChannelNoise:
        return self.own

    def for_channels(self, count: int) -> "ToyNoise":
        assert count == 1
        return self

    def in_units(self, unit: float) -> "ToyNoise":
        level = None if self.own.level is None else self.own.level / unit
        return ToyNoise(replace(self.own.scaled(1 / unit), level=level))

    def scaled(self, strength: float, chroma: float = 1.0) -> "ToyNoise":
        return ToyNoise(self.own.scaled(strength))

    def halved(self) -> "ToyNoise":
        return self.scaled(0.5)

    def describe(self) -> str:
        return f"a toy of {self.own.sigma}"

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "sigma": self.own.sigma, "taps": list(self.own.taps), "level": self.own.level}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> NoiseModel:
        return cls(ToyChannel(float(facts["sigma"]), tuple(facts["taps"]), facts["level"]))


@pytest.fixture
def toy_kind() -> Iterator[None]:
    NOISE_KINDS.register(NoiseKind("toy", ToyNoise.from_json))
    yield
    NOISE_KINDS.remove("toy")


def with_noise(plan: Plan, model: NoiseModel, pixels: NDArray[Any], jobs: int = 1) -> Array:
    """The picture denoised by the plan with another model."""
    rows = [part for _, part in denoised_rows(ArraySource(pixels), replace(plan, noise=model), jobs)]
    return np.concatenate(rows).astype(np.float64)


def plan_for(pixels: NDArray[Any], sigma: float) -> Plan:
    return survey(ArraySource(pixels), sigma, Request.named("fast", jobs=1, method="dct", patch_size=8, stride=1))


def rms(image: Array, clean: Array) -> float:
    return float(np.sqrt(np.mean((image - clean) ** 2)))


def scene(shape: tuple[int, int]) -> Array:
    """Dark on the left and bright on the right, with some edges."""
    rows, columns = np.indices(shape)
    return np.asarray(40.0 + 160.0 * columns / shape[1] + 12.0 * ((rows // 24 + columns // 24) % 2))


def test_a_toy_goes_through_json_and_the_plan(toy_kind: None) -> None:
    model = ToyNoise(ToyChannel(3.0, (1.0, 2.0, 1.0), 100.0))
    plan = replace(plan_for(scene((40, 40)), 3.0), noise=model)
    facts = json.loads(json.dumps(plan.to_json(), allow_nan=False))
    assert facts["noise"]["kind"] == "toy"
    assert model_from_json(facts["noise"]) == model
    with pytest.raises(ValueError, match=r"^The noise model has no usable entry 'taps'\.$"):
        model_from_json({"kind": "toy", "sigma": 1.0})


def test_it_is_gone_afterwards() -> None:
    assert "toy" not in NOISE_KINDS
    assert NOISE_KINDS.names == ("white", "spectral")


@pytest.mark.parametrize("sigma", [10.0, 40.0])
def test_a_toy_of_white_noise_denoises_as_white_noise(sigma: float) -> None:
    """At one scale to the bit; where there are more of them, up to the toy's round gain."""
    clean = scene((90, 110))
    noisy = clean + sigma * np.random.default_rng(0).standard_normal(clean.shape)
    plan = plan_for(noisy, sigma)
    white, toy = (with_noise(plan, model, noisy) for model in (plan.noise, ToyNoise(ToyChannel(sigma))))
    np.testing.assert_allclose(toy, white, rtol=0, atol=1e-3 if sigma < 30 else 2.0)
    np.testing.assert_array_equal(
        white, denoise_pixels(noisy, sigma, Request.named("fast", jobs=1, method="dct", patch_size=8, stride=1)).pixels
    )


def test_noise_that_grows_with_the_level_is_removed_where_it_is() -> None:
    """A deviation of a tenth of the grey level: white noise of the mean deviation is wrong on both sides."""
    clean = scene((120, 160))
    noisy = clean * (1 + 0.1 * np.random.default_rng(0).standard_normal(clean.shape))
    plan = plan_for(noisy, 12.0)
    white = with_noise(plan, plan.noise, noisy)
    toy = with_noise(plan, ToyNoise(ToyChannel(12.0, level=120.0)), noisy)
    assert rms(toy, clean) < 0.9 * rms(white, clean)
    for part in (slice(0, 50), slice(110, 160)):
        assert rms(toy[:, part], clean[:, part]) < rms(white[:, part], clean[:, part])


def test_factors_of_one_level_are_another_sigma() -> None:
    """Twice the noise at every level is twice the noise."""

    @dataclass(frozen=True)
    class Twice(ToyChannel):
        def level_factors(self, levels: NDArray[Any], scale: int = 0) -> NDArray[np.float32]:
            return np.full(levels.shape, 2.0, np.float32)

    clean = scene((90, 110))
    noisy = clean + 10.0 * np.random.default_rng(0).standard_normal(clean.shape)
    plan = plan_for(noisy, 10.0)
    single, double = ToyNoise(ToyChannel(20.0)), ToyNoise(Twice(10.0))
    np.testing.assert_allclose(with_noise(plan, double, noisy), with_noise(plan, single, noisy), rtol=0, atol=1e-3)


def test_levels_are_those_of_the_picture() -> None:
    """The model is asked about grey levels as they are, not counted from the picture's mean."""
    seen: list[NDArray[Any]] = []

    @dataclass(frozen=True)
    class Listening(ToyChannel):
        def level_factors(self, levels: NDArray[Any], scale: int = 0) -> NDArray[Any]:
            if levels.size > 1:  # a single one asks whether there are factors at all
                seen.append(levels + self.zero)
            return np.ones(levels.shape)

    clean = scene((60, 70)) + 1000.0
    noisy = clean + 5.0 * np.random.default_rng(0).standard_normal(clean.shape)
    with_noise(plan_for(noisy, 5.0), ToyNoise(Listening(5.0)), noisy)
    levels = np.concatenate(seen)
    assert clean.min() - 10 < levels.min() < clean.min() + 10
    assert clean.max() - 10 < levels.max() < clean.max() + 10


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e9])
def test_the_survey_takes_a_toy(unit: float) -> None:
    """In the units of the picture; the plan has it in its own."""
    clean = scene((60, 70))
    noisy = unit * clean * (1 + 0.1 * np.random.default_rng(0).standard_normal(clean.shape))
    request = Request.named("fast", jobs=1, method="dct", patch_size=8, stride=1)
    plan = survey(ArraySource(noisy), ToyNoise(ToyChannel(12.0 * unit, level=120.0 * unit)), request)
    assert isinstance(plan.noise, ToyNoise)
    assert plan.sigmas == pytest.approx((12.0 * unit,))
    assert plan.warnings == ()
    ratio = plan.noise.own.sigma / 12.0
    assert plan.noise.own.level == pytest.approx(120.0 * ratio)
    plain = with_noise(plan_for(noisy / unit, 12.0), ToyNoise(ToyChannel(12.0, level=120.0)), noisy / unit)
    np.testing.assert_allclose(with_noise(plan, plan.noise, noisy) / unit, plain, rtol=0, atol=1e-2)


def test_coloured_noise_is_removed_where_it_is() -> None:
    """Noise smoothed along rows: white noise of the same deviation keeps its low frequencies."""
    taps = (1.0, 2.0, 3.0, 2.0, 1.0)
    clean = scene((120, 160))
    white_noise = np.random.default_rng(0).standard_normal((120, 164))
    kernel = np.array(taps) / np.sqrt(np.sum(np.square(taps)))
    coloured = np.array([np.convolve(row, kernel, "valid") for row in white_noise])
    noisy = clean + 15.0 * coloured
    plan = plan_for(noisy, 15.0)
    white = with_noise(plan, plan.noise, noisy)
    toy = with_noise(plan, ToyNoise(ToyChannel(15.0, taps)), noisy)
    assert rms(toy, clean) < 0.8 * rms(white, clean)


def test_regions_and_threads_with_a_toy_are_the_whole() -> None:
    clean = scene((150, 90))
    noisy = (clean * (1 + 0.1 * np.random.default_rng(0).standard_normal(clean.shape))).astype(np.float32)
    model = ToyNoise(ToyChannel(12.0, (1.0, 1.0), 120.0))
    plan = replace(plan_for(noisy, 12.0), noise=model)
    whole = np.concatenate([part for _, part in denoised_rows(ArraySource(noisy), plan, 1)])
    again = np.concatenate([part for _, part in denoised_rows(ArraySource(noisy), plan, 3)])
    assert whole.tobytes() == again.tobytes()
    for box in (Box(0, 0, 40, 90), Box(140, 3, 150, 9)):
        seen = plan.window(box)
        part = denoise_region(noisy[seen.top : seen.bottom, seen.left : seen.right], box, plan, jobs=2)
        assert part.tobytes() == whole[box.top : box.bottom, box.left : box.right].tobytes()
