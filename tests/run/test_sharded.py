"""Training in shards in this process: cut by the collection alone, the same bytes for any threads, and resumed."""

from pathlib import Path

import pytest
from PIL import Image
from running import scene

from dstl_cli.learning.settings import CollectionSettings
from dstl_cli.run import sharded
from dstl_cli.run.collections import find_collection
from dstl_cli.run.sharded import Here, in_shards
from dstl_cli.run.training import TrainRun, checkpoint_of

SETTINGS = CollectionSettings.of(patch_size=4, iterations=6, batches=3, sigma=15.0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six pictures of growing sizes, one of them no picture."""
    monkeypatch.setattr(sharded, "SHARD_PATCHES", 4000)
    (tmp_path / "in").mkdir()
    for number in range(6):
        Image.fromarray(scene((40 + 5 * number, 50), seed=number)).save(tmp_path / "in" / f"{number}.png")
    (tmp_path / "in" / "2.png").write_text("nothing")
    return tmp_path


def training(folder: Path, threads: int, *, wanted: int | None = None, held_out: bool = False) -> TrainRun:
    found = find_collection([str(folder / "in")])
    beside = find_collection([str(folder / "in" / "5.png")] if held_out else [])
    settings, pictures, others = in_shards(SETTINGS, found, beside, Here(threads), wanted=wanted)
    return TrainRun(settings, folder / "t.npz", pictures, others)


def finished(run: TrainRun, steps: int = 100) -> bytes:
    """Read and learn so many steps; the file."""
    told = [problem for part in (run.pictures, run.held_out) for problem in run.read(part)]
    assert [problem is None for problem in told[:6]] == [True, True, False, True, True, True]
    for _, _ in zip(range(steps), run.learn(), strict=False):
        pass
    run.finish()
    return run.output.read_bytes()


def test_files_are_cut_in_order_by_the_patches_that_they_say_they_have(folder: Path) -> None:
    run = training(folder, 1)
    sizes = {number: (40 + 5 * number - 3) * 47 for number in (0, 1, 3, 4, 5)}
    assert run.settings.train_patches == sum(sizes.values())
    works = run.pictures._works()  # type: ignore[attr-defined]
    assert [[file.number for file in work.files] for work in works] == [[0, 1, 2], [3], [4], [5]]
    assert training(folder, 1, wanted=1000).pictures.shards == 4  # they hold the whole pictures all the same


def test_the_file_is_the_same_for_any_threads(folder: Path) -> None:
    one, three = (finished(training(folder, threads, held_out=True)) for threads in (1, 3))
    assert one == three
    fewer = training(folder, 2, wanted=2000)
    assert finished(fewer) != one
    assert fewer.training is not None
    assert 0 < fewer.training.data.count <= 2005


def test_a_stopped_training_goes_on_as_if_it_had_not_been(folder: Path) -> None:
    whole = finished(training(folder, 2))
    stopped = training(folder, 1)
    list(stopped.read(stopped.pictures))
    for step, _ in enumerate(stopped.learn(), start=1):
        stopped.stop_asked = step == 2
    assert checkpoint_of(stopped.output).exists()
    resumed = training(folder, 3)
    resumed.take_up()
    assert finished(resumed) == whole
