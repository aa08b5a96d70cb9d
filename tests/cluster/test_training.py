"""Training in shards: the same file from one process and from any number of workers, also when they die."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from running import refused, run, scene

pytest.importorskip("distributed")

from clusters import scheduler_with_workers, worker_processes

from dstl_cli.learning.on_collection import Training
from dstl_cli.learning.settings import CollectionSettings
from dstl_cli.run import sharded
from dstl_cli.run.cluster import Cluster
from dstl_cli.run.collections import find_collection
from dstl_cli.run.sharded import Here, in_shards
from dstl_cli.run.training import TrainRun, checkpoint_of

pytestmark = pytest.mark.slow
OPTIONS = ("--patch-size", "5", "--iterations", "12", "--batches", "4", "--sigma", "15")
SETTINGS = CollectionSettings.of(patch_size=5, iterations=12, batches=4, sigma=15.0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight pictures in four shards, one of them no picture; and two held out."""
    monkeypatch.setattr(sharded, "SHARD_PATCHES", 20_000)
    for number in range(10):
        path = tmp_path / ("held_out" if number > 7 else "in") / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(scene((90, 100 + number), seed=number)).save(path)
    (tmp_path / "in" / "5.png").write_text("nothing")
    return tmp_path


def asked(folder: Path, output: str, *more: str | Path) -> tuple[str | Path, ...]:
    return ("train", folder / "in", "-o", folder / output, "--validation", folder / "held_out", *OPTIONS, *more)


def trained_here(folder: Path, *, resume: bool = False) -> bytes:
    """The file that this process makes of the same shards."""
    found = [find_collection([str(folder / name)]) for name in ("in", "held_out")]
    settings, pictures, held_out = in_shards(SETTINGS, found[0], found[1], Here(2), wanted=None)
    assert (pictures.shards, held_out.shards) == (4, 1)
    run_here = TrainRun(settings, folder / "here.npz", pictures, held_out)
    if resume:
        run_here.take_up()
    for part in (pictures, held_out):
        list(run_here.read(part))
    for _ in run_here.learn():
        pass
    run_here.finish()
    return (folder / "here.npz").read_bytes()


def test_any_number_of_workers_makes_the_file_of_one_process(folder: Path) -> None:
    expected = trained_here(folder)
    for count in (1, 2, 5):
        done = run(*asked(folder, f"{count}.npz", "--scheduler", f"local:{count}", "--json"))
        assert done.code == 0, done.stderr
        told = done.report["summary"]
        assert (told["pictures"], told["unreadable"], told["held_out_pictures"]) == (7, 1, 2)
        assert (folder / f"{count}.npz").read_bytes() == expected
    share = run(*asked(folder, "share.npz", "--scheduler", "local:1", "--train-patches", "5000", "--json"))
    assert 4500 < share.report["summary"]["patches"] <= 5010


def test_shards_of_a_killed_worker_are_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, step = trained_here(folder), Training.step
    with scheduler_with_workers(folder) as file:

        def fatal(training: Training) -> Any:
            if len(training.history) in (2, 6):
                os.kill(worker_processes(file)[0], signal.SIGKILL)
            return step(training)

        monkeypatch.setattr(Training, "step", fatal)
        done = run(*asked(folder, "killed.npz", "--scheduler", file, "-q"))
    assert done.code == 0, done.stderr
    assert (folder / "killed.npz").read_bytes() == expected


def test_what_workers_began_goes_on_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, step = trained_here(folder), Training.step

    def interrupting(training: Training) -> Any:
        if len(training.history) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return step(training)

    monkeypatch.setattr(Training, "step", interrupting)
    stopped = run(*asked(folder, "here.npz", "--scheduler", "local:2", "-q", "--force"))
    assert stopped.code == 130
    assert checkpoint_of(folder / "here.npz").exists()
    monkeypatch.setattr(Training, "step", step)
    refused(run(*asked(folder, "here.npz", "--resume", "-q")), 2, "was made with other settings")
    assert trained_here(folder, resume=True) == expected


def test_an_iteration_sends_matrices_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes out to a shard, and comes back, is as large as T; the pictures are not sent again."""
    import pickle

    sizes: list[int] = []
    over = Cluster.over

    def measured(self: Cluster, held: Any, task: Any, *given: Any) -> Any:
        for result in over(self, held, task, *given):
            if task is sharded.code_shard:
                sizes.append(max(len(pickle.dumps(given)), len(pickle.dumps(result))))
            yield result

    monkeypatch.setattr(Cluster, "over", measured)
    assert run(*asked(folder, "t.npz", "--scheduler", "local:1", "-q")).code == 0
    assert len(sizes) > 12 * 4
    assert max(sizes) < 24 * 24 * 8 + 1000
