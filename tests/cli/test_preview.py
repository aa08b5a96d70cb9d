"""`dstl denoise --preview`: the part that is chosen, the sheet that is drawn, and what is refused."""

from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest
from PIL import Image, ImageOps
from running import Pixels, refused, run, run_process, scene
from skimage import data

from dstl_cli.denoising.pipeline import denoised_rows
from dstl_cli.denoising.survey import Request, survey
from dstl_cli.noise.synthetic import add_noise, add_poisson_noise, photograph
from dstl_cli.pixels.planes import Box
from dstl_cli.pixels.source import ArraySource
from dstl_cli.report.sheet import LINE, MARGIN, enlargement
from dstl_cli.run.preview import NEAR, SIDE, block_means, denoised_part, shown_range, telling_box, to_bytes, upright

PLACES = [0, 1, 2, 3, 5, 6, 7]  # of the tiles in two rows of four: noisy, three strengths, three qualities


def chosen(pixels: Pixels, **options: Any) -> tuple[int, int, int, int]:
    """Top, left, bottom and right of the part that is chosen."""
    source = ArraySource(pixels)
    limits = (float(pixels.min()), float(pixels.max()))
    box = telling_box(block_means(source), source.shape, limits, **options)
    return box.top, box.left, box.bottom, box.right


def half_textured(level: float = 100.0) -> Pixels:
    """Flat on the left and blocks of 6 x 6 pixels on the right, with a little noise and both ends of the range."""
    rng = np.random.default_rng(3)
    pixels = np.full((600, 800), level)
    pixels[:, 400:] += 60 * np.kron(rng.standard_normal((100, 67)), np.ones((6, 6)))[:, :400]
    pixels += 3 * rng.standard_normal(pixels.shape)
    pixels[0, 0], pixels[0, 1] = 0, 255
    return np.asarray(np.clip(pixels, 0, 255), np.uint8)


def test_the_border_between_flat_and_textured_is_chosen() -> None:
    top, left, bottom, right = chosen(half_textured())
    assert (bottom - top, right - left) == (SIDE, SIDE)
    assert left + SIDE // 4 <= 400 <= right - SIDE // 4


def test_clipped_areas_are_avoided() -> None:
    pixels = half_textured()
    pixels[:400, :400] = 255
    top, left, _, right = chosen(pixels)
    assert top >= 400 - SIDE // 8
    assert left < 400 < right
    dark = half_textured()
    dark[200:, :400] = 0
    assert chosen(dark)[2] <= 200 + SIDE // 8


@pytest.mark.parametrize(
    "pixels", [np.full((500, 700), 80, np.uint8), scene((500, 700), 5.0) * 0], ids=["flat", "zero"]
)
def test_where_nothing_tells_places_apart_it_is_the_middle(pixels: Pixels) -> None:
    assert chosen(pixels) == (154, 254, 154 + SIDE, 254 + SIDE)


@pytest.mark.parametrize("shape", [(1, 1), (3, 500), (500, 3), (191, 193), (192, 192), (17, 16), (40, 50)])
def test_small_pictures_are_shown_whole_or_within(shape: tuple[int, int]) -> None:
    top, left, bottom, right = chosen(scene(shape))
    assert (bottom - top, right - left) == (min(SIDE, shape[0]), min(SIDE, shape[1]))
    assert 0 <= top < bottom <= shape[0]
    assert 0 <= left < right <= shape[1]


@pytest.mark.parametrize("quality", ["fast", "standard", "best"])
def test_pixels_that_are_no_numbers_are_shown_black(quality: str, tmp_path: Path) -> None:
    pixels = scene((90, 120)).astype(np.float32)
    pixels[20:30, 40:60], pixels[5, 5] = np.nan, np.inf
    np.save(tmp_path / "a.npy", pixels)
    sheet = tmp_path / "sheet.png"
    refused(run("denoise", tmp_path / "a.npy", "--preview", sheet), 1, "--nan keep")
    done = run("denoise", tmp_path / "a.npy", "--preview", sheet, "--nan", "keep", "--quality", quality)
    assert (done.code, done.sentences) == (0, [])
    factor = enlargement(pixels.shape)
    left, top = MARGIN + 40 * factor, MARGIN + 2 * LINE + 20 * factor
    shown = iio.imread(sheet)[top : top + 10 * factor, left : left + 20 * factor]
    assert (shown == 0).all()
    assert iio.imread(sheet)[top, left - 1].min() > 0


def test_block_means_are_those_of_the_pixels() -> None:
    pixels = scene((21, 34, 3))
    means = block_means(ArraySource(pixels))
    naive = [[pixels[4 * i : 4 * i + 4, 4 * j : 4 * j + 4].mean() for j in range(8)] for i in range(5)]
    np.testing.assert_allclose(means, naive)


def test_bytes_are_shown_as_they_are_and_others_over_their_range() -> None:
    pixels = scene((20, 20))
    np.testing.assert_array_equal(to_bytes(pixels, shown_range(pixels)), pixels)
    deep = np.linspace(1000, 4095, 10_000).reshape(100, 100).astype(np.uint16)
    shown = to_bytes(deep, shown_range(deep))
    assert (shown.min(), shown.max()) == (0, 255)
    assert (np.diff(shown.reshape(-1).astype(int)) >= 0).all()
    flat = np.full((4, 4), 2.5, np.float32)
    assert (to_bytes(flat, shown_range(flat)) == 0).all()


def tiles_of(sheet: Path, shape: tuple[int, int]) -> list[Pixels]:
    """The pictures on a sheet, at their own size; the places between them are those that the layout says."""
    pixels = iio.imread(sheet)
    factor = enlargement(shape)
    high, wide = (factor * side for side in shape)
    cell = (high + 2 * LINE + 2 * MARGIN, max(wide, 300) + MARGIN)
    assert pixels.shape == (2 * cell[0], 4 * cell[1] + MARGIN, 3)
    found = []
    for place in PLACES:
        top, left = MARGIN + 2 * LINE + place // 4 * cell[0], MARGIN + place % 4 * cell[1]
        part = pixels[top : top + high, left : left + wide]
        tile = part[::factor, ::factor]
        np.testing.assert_array_equal(part, tile.repeat(factor, axis=0).repeat(factor, axis=1))
        assert len(np.unique(pixels[top - 2 * LINE : top, left : left + wide])) > 2  # its caption
        found.append(tile)
    return found


@pytest.mark.parametrize("colour", [False, True], ids=["grey", "colour"])
def test_every_tile_is_the_part_of_what_denoise_gives(colour: bool, tmp_path: Path) -> None:
    source, sheet = tmp_path / "noisy.png", tmp_path / "sheet.png"
    iio.imwrite(source, scene((90, 120, 3) if colour else (90, 120)))
    crop = ("--crop", "20,10,60,50")
    done = run("denoise", source, *crop, "--preview", sheet)
    assert (done.code, done.stderr) == (0, "")
    assert str(sheet) in done.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["noisy.png", "sheet.png"]
    tiles = tiles_of(sheet, (50, 60))
    noisy = iio.imread(source)[10:60, 20:80]
    np.testing.assert_array_equal(tiles[0], noisy if colour else np.dstack([noisy] * 3))
    ways = [("--strength", value) for value in (0.5, 1, 1.5)] + [
        ("--quality", name) for name in ("fast", "standard", "best")
    ]
    for way, tile in zip(ways, tiles[1:], strict=True):
        result = tmp_path / "result.png"
        assert run("denoise", source, *crop, *way, "-f", "-o", result).code == 0
        wanted = iio.imread(result)
        np.testing.assert_array_equal(tile, wanted if colour else np.dstack([wanted] * 3))


NEARLY = [  # what is denoised, by how much noise: its white deviation, or none where it has it already
    pytest.param("white grey", 18.0, id="white grey"),
    pytest.param("white colour", 18.0, id="white colour", marks=pytest.mark.slow),
    pytest.param("photons", None, id="photons", marks=pytest.mark.slow),
    pytest.param("camera grey", None, id="camera grey", marks=pytest.mark.slow),
    pytest.param("camera colour", None, id="camera colour", marks=pytest.mark.slow),
]


def noisy_scene(kind: str) -> Pixels:
    """Texture, edges and flat areas with noise of a kind, larger than what `best` gets of it for a small part."""
    sides = (420, 470) if kind == "white grey" else (640, 720)
    clean = np.asarray(np.pad(data.astronaut(), ((0, 250), (0, 250), (0, 0)), mode="symmetric")[: sides[0], : sides[1]])
    if kind.endswith("grey"):
        clean = clean[..., 1]
    if kind.startswith("camera"):
        return photograph(clean, 6400, seed=1)
    noisy = add_poisson_noise(clean, 10.0, 4.0, seed=1) if kind == "photons" else add_noise(clean, 18.0, seed=1)
    return np.asarray(np.rint(np.clip(noisy, 0, 255)), np.uint8)


@pytest.mark.parametrize(("kind", "sigma"), NEARLY)
def test_a_part_of_best_is_next_to_that_of_the_whole_picture(kind: str, sigma: float | None) -> None:
    source, part = ArraySource(noisy_scene(kind)), Box(210, 250, 280, 320)
    request = Request.named("best")
    plan = survey(source, sigma, request)
    cut = plan.cut_near(part, NEAR)
    assert cut is not None
    assert cut[1] != Box.whole(plan.shape)
    whole = np.concatenate([rows for _, rows in denoised_rows(source, plan, part=part)])
    difference = np.abs(denoised_part(source, plan, part, request).astype(int) - whole)
    assert np.quantile(difference, 0.999) <= 1
    assert difference.max() <= 4
    assert difference.mean() <= 0.15


def test_other_qualities_are_given_all_they_look_at() -> None:
    source, part = ArraySource(scene((300, 400))), Box(210, 250, 280, 320)
    for quality in ("fast", "standard"):
        request = Request.named(quality)
        plan = survey(source, 25.0, request)
        whole = np.concatenate([rows for _, rows in denoised_rows(source, plan)])
        np.testing.assert_array_equal(denoised_part(source, plan, part, request), whole[210:280, 250:320])


def test_the_real_program_draws_the_same_sheet_again(tmp_path: Path) -> None:
    source = tmp_path / "deep.png"
    iio.imwrite(source, scene((64, 80)) * np.uint16(16))
    done = [
        run_process("denoise", source, "--preview", tmp_path / name, "--jobs", jobs)
        for name, jobs in (("a.png", 1), ("b.png", 2))
    ]
    assert [item.code for item in done] == [0, 0], done[0].stderr
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with Image.open(tmp_path / "a.png") as sheet:
        assert 1600 <= sheet.size[0] <= 2400
    refused(run("denoise", source, "--preview", tmp_path / "a.png"), 2, "a.png exists", "--force")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_upright_is_what_pillow_makes_of_an_orientation(orientation: int) -> None:
    pixels = scene((5, 7, 3))
    stored = Image.fromarray(pixels)
    stored.getexif()[274] = orientation
    np.testing.assert_array_equal(upright(pixels, orientation), np.asarray(ImageOps.exif_transpose(stored)))


def test_the_sheet_is_upright_and_the_part_is_counted_as_stored(tmp_path: Path) -> None:
    source, sheet = tmp_path / "turned.png", tmp_path / "sheet.png"
    exif = Image.Exif()
    exif[274] = 6
    Image.fromarray(scene((90, 120))).save(source, exif=exif)
    assert run("denoise", source, "--crop", "20,10,60,50", "--preview", sheet).code == 0
    tiles = tiles_of(sheet, (60, 50))
    np.testing.assert_array_equal(tiles[0], np.dstack([np.rot90(scene((90, 120))[10:60, 20:80], -1)] * 3))
    assert run("denoise", source, "--crop", "20,10,60,50", "-o", tmp_path / "part.png").code == 0
    np.testing.assert_array_equal(tiles[2][..., 0], np.rot90(iio.imread(tmp_path / "part.png", rotate=False), -1))


def test_a_picture_without_noise_has_no_sheet(tmp_path: Path) -> None:
    source = tmp_path / "flat.png"
    iio.imwrite(source, np.full((64, 64), 90, np.uint8))
    refused(run("denoise", source, "--preview", tmp_path / "sheet.png"), 1, "flat.png has no noise")
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    "options",
    [
        ("-o", "x.png"),
        ("--residual", "r.png"),
        ("--compare", "c.png"),
        ("--save-transform", "t.npz"),
        ("--resume",),
        ("--dry-run",),
        ("--strip",),
        ("--jpeg-quality", 90),
        ("--suffix", "_x"),
        ("--strength", 0.7),
        ("--recursive",),
        ("--json",),
        ("--verbose",),
        ("--crop", "0,0,577,10"),
    ],
    ids=lambda options: options[0],
)
def test_options_that_a_sheet_has_no_use_for_are_refused(options: tuple[Any, ...], tmp_path: Path) -> None:
    done = run("denoise", tmp_path / "missing.png", "--preview", tmp_path / "sheet.png", *options)
    refused(done, 2, "--preview", {"-o": "--output"}.get(options[0], options[0]))


def test_one_picture_and_a_png_are_asked_for(tmp_path: Path) -> None:
    refused(run("denoise", tmp_path / "a.png", tmp_path / "b.png", "--preview", tmp_path / "s.png"), 2, "one picture")
    refused(run("denoise", tmp_path, "--preview", tmp_path / "s.png"), 2, "one picture")
    refused(run("denoise", tmp_path / "a.png", "--preview", tmp_path / "s.jpg"), 2, ".png")
    iio.imwrite(tmp_path / "a.png", scene())
    refused(run("denoise", tmp_path / "a.png", "--preview", tmp_path / "a.png", "-f"), 2, "is an input")
    refused(
        run("denoise", tmp_path / "a.png", "--preview", tmp_path / "s.png", "--crop", "40,0,25,9"), 1, "64 x 48 pixels"
    )
