"""Pooling: the laws of a median, and nearer the truth than one picture alone."""

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from skimage import data

from dstl_cli.noise.blind import estimate_model
from dstl_cli.noise.model import NoiseModel, SpectralChannel, SpectralNoise, WhiteNoise, model_from_json
from dstl_cli.noise.pool import pooled, pooled_flat_fields
from dstl_cli.noise.synthetic import add_noise, add_poisson_noise

LEVELS = np.array([40.0, 90.0, 140.0, 190.0])


@st.composite
def channels(draw: st.DrawFn) -> SpectralChannel:
    """Spectra with and without levels and floors."""
    frequencies = draw(st.lists(st.sampled_from([0.02, 0.05, 0.1, 0.2, 0.35, 0.5]), min_size=1, unique=True))
    levels = draw(st.lists(st.sampled_from([0.0, 30.0, 80.0, 160.0, 250.0]), unique=True))
    deviations = [draw(st.floats(0.5, 40)) for _ in frequencies]
    factors = [draw(st.floats(0.3, 3)) for _ in levels]
    floor = draw(st.sampled_from([0.0, 2.0]))
    return SpectralChannel(tuple(sorted(frequencies)), tuple(deviations), floor, tuple(sorted(levels)), tuple(factors))


MODELS = st.one_of(
    st.tuples(channels(), channels()).map(SpectralNoise),
    st.tuples(st.floats(0.5, 40), st.floats(0, 40)).map(WhiteNoise),
)


def level_deviations(model: NoiseModel, levels: NDArray[np.float64] = LEVELS) -> NDArray[np.float64]:
    """Deviation of a pixel of the luminance over the level."""
    factors = model.channel(0).level_factors(levels)
    return np.asarray(model.channel(0).deviation() * (np.ones(len(levels)) if factors is None else factors), float)


@given(MODELS, st.integers(1, 5))
def test_equal_models_give_that_model(model: NoiseModel, count: int) -> None:
    """Be they the same object or only equal after a way through a file; so does one alone."""
    pool = pooled([model_from_json(model.to_json()) for _ in range(count)])
    assert pool.model == model
    assert not pool.left_out
    assert pool.spread is None if count == 1 else pool.spread == pytest.approx(0)


@given(st.lists(MODELS, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_the_order_does_not_matter(models: list[NoiseModel], random: Random) -> None:
    order = list(range(len(models)))
    random.shuffle(order)
    first, second = pooled(models), pooled([models[index] for index in order])
    assert first.model.sigmas == pytest.approx(second.model.sigmas)
    np.testing.assert_allclose(level_deviations(first.model), level_deviations(second.model))
    assert {order.index(index) for index in first.left_out} == second.left_out
    assert [first.ratios[index] for index in order] == pytest.approx(list(second.ratios))


@given(st.lists(MODELS, min_size=1, max_size=5), st.floats(0.1, 10))
def test_stronger_models_give_a_stronger_one(models: list[NoiseModel], strength: float) -> None:
    """Levels that are near each other count as one, which depends on the noise: none of them changes that here."""
    even = [SpectralNoise(tuple(_even(model, index) for index in range(2))) for model in models]
    before, after = pooled(even), pooled([model.scaled(strength) for model in even])
    assert after.model.sigmas == pytest.approx([strength * sigma for sigma in before.model.sigmas])
    assert after.left_out == before.left_out


def _even(model: NoiseModel, index: int) -> SpectralChannel:
    channel = model.channel(index)
    if isinstance(channel, SpectralChannel):
        return SpectralChannel(channel.frequencies, channel.deviations_at, channel.floor)
    return SpectralChannel((0.5,), (max(channel.deviation(), 0.1),))


@given(MODELS, st.floats(0.9, 1.1), st.floats(0.9, 1.1), st.sampled_from([0.02, 0.3, 5.0, 100.0]))
def test_one_outlier_among_five_hardly_moves_it(model: NoiseModel, less: float, more: float, wild: float) -> None:
    models = [model, model.scaled(less), model.scaled(more), model, model.scaled(wild)]
    pool = pooled(models)
    assert pool.left_out == {4}
    assert pool.ratios[4] == pytest.approx(wild, rel=0.15)
    assert pool.model.sigmas == pytest.approx(pooled(models[:4]).model.sigmas)
    np.testing.assert_allclose(level_deviations(pool.model), level_deviations(model), rtol=0.11)


def test_two_that_contradict_each_other_are_both_told_and_both_used() -> None:
    pool = pooled([WhiteNoise((4.0,)), WhiteNoise((16.0,))])
    assert isinstance(pool.model, WhiteNoise)
    assert pool.model.sigmas == pytest.approx((8.0,))
    assert not pool.left_out
    assert pool.agreement == "disagree"
    assert pool.far == pytest.approx({0: 0.5, 1: 2.0})


def test_white_is_a_flat_spectrum() -> None:
    """Of a white and a coloured model, the middle is the geometric mean at every frequency, for equal deviations."""
    spectrum = SpectralChannel((0.05, 0.1, 0.3), (20.0, 10.0, 4.0))
    coloured = spectrum.scaled(8 / spectrum.deviation())
    made = pooled([WhiteNoise((8.0,)), SpectralNoise((coloured,))]).model.channel(0)
    assert isinstance(made, SpectralChannel)
    ratios = [made.at_frequency(f) / math.sqrt(8 * coloured.at_frequency(f)) for f in (0.05, 0.08, 0.2, 0.3)]
    assert ratios == pytest.approx([ratios[0]] * 4)
    assert made.deviation() == pytest.approx(8.0)


def test_a_mostly_white_pool_is_white() -> None:
    odd = SpectralNoise((SpectralChannel((0.1, 0.5), (12.0, 9.0), 0.0, (0.0, 255.0), (0.8, 1.2)),))
    pool = pooled([WhiteNoise((9.0,)), odd, WhiteNoise((10.0,)), WhiteNoise((11.0,))])
    assert isinstance(pool.model, WhiteNoise)
    assert 9.5 < pool.model.sigmas[0] < 10.6


def test_pictures_of_different_brightness_make_one_level_function() -> None:
    """Each knows its own levels; that their means differ is no disagreement."""

    def seen(low: float, high: float) -> SpectralNoise:
        levels = np.linspace(low, high, 7)
        return _with_factors(levels, np.sqrt(2 * levels + 9))

    pool = pooled([seen(10, 120), seen(80, 160), seen(100, 250)])
    levels = np.linspace(10, 250, 40)
    np.testing.assert_allclose(level_deviations(pool.model, levels), np.sqrt(2 * levels + 9), rtol=0.05)
    assert pool.spread is not None
    assert pool.spread < 0.05


def _with_factors(levels: NDArray[np.float64], deviations: NDArray[np.float64]) -> SpectralNoise:
    mean = float(deviations.mean())
    return SpectralNoise((SpectralChannel((0.5,), (mean,), 0.0, tuple(levels), tuple(deviations / mean)),))


def test_flat_fields_make_the_level_function() -> None:
    """Three exposures, two of them twice; even noise has no levels at all."""
    fields = [
        SpectralNoise((SpectralChannel((0.1, 0.5), (2 * d, d), 0.0, (level,), (1.0,)),))
        for level, d in ((30.0, 8.0), (100.0, 5.0), (100.4, 5.2), (200.0, 3.0), (199.0, 3.1))
    ]
    pool = pooled_flat_fields(fields)
    shape = SpectralChannel((0.1, 0.5), (2.0, 1.0)).deviation()
    expected = shape * np.array([8, math.sqrt(5 * 5.2), math.sqrt(3 * 3.1)])
    np.testing.assert_allclose(level_deviations(pool.model, np.array([30.0, 100.2, 199.5])), expected, rtol=0.02)
    assert pool.ratios[0] is None
    assert pool.agreement == "agree well"
    even = pooled_flat_fields([fields[1], fields[2]])
    assert even.model.channel(0).level_factors(LEVELS) is None
    alone = pooled_flat_fields(fields[:1])
    assert alone.model.sigmas == pytest.approx(fields[0].sigmas)
    assert alone.describe() == ""


def test_models_of_other_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="channels"):
        pooled([WhiteNoise((1.0,)), WhiteNoise((1.0, 1.0, 1.0))])
    with pytest.raises(ValueError, match="one at least"):
        pooled([])


def test_many_models_make_a_small_one() -> None:
    rng = np.random.default_rng(0)
    models = [_with_factors(np.sort(rng.uniform(0, 255, 9)), np.full(9, 5.0)) for _ in range(40)]
    (channel,) = pooled(models).model.to_json()["channels"]
    assert len(channel["levels"]) <= 48
    np.testing.assert_allclose(level_deviations(pooled(models).model), 5, rtol=1e-6)


@pytest.mark.parametrize("kind", ["white", "poisson"])
def test_ten_estimates_are_nearer_the_truth_than_one(kind: str) -> None:
    """Cuts of a photograph with one noise: the pool against the median of their errors."""
    cuts = [data.camera()[60 * i : 60 * i + 220, 100 * j : 100 * j + 260] for i in range(5) for j in (0, 2)]
    models = []
    for seed, cut in enumerate(cuts):
        clean = cut.astype(float)
        noisy = add_noise(clean, 10, seed=seed) if kind == "white" else add_poisson_noise(clean, 2, 9, seed=seed)
        models.append(estimate_model(np.clip(np.rint(noisy), 0, 255).astype(np.uint8))[0])
    truth = np.full(len(LEVELS), 10.0) if kind == "white" else np.sqrt(2 * LEVELS + 9)
    errors = [float(np.abs(np.log(level_deviations(model) / truth)).mean()) for model in models]
    pool = pooled(models)
    assert float(np.abs(np.log(level_deviations(pool.model) / truth)).mean()) < np.median(errors)
    assert pool.agreement == "agree well"
