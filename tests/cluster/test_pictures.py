"""Many pictures on real workers: the bytes of one machine, whatever dies on the way."""

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed")
pytest.importorskip("zarr")

from clusters import POISON, contents, scheduler_with_workers, wait_until, worker_processes, write_pictures
from running import command, environment, run_process, scene, temporaries
from zarr_folders import ome_folder

from dstl_cli.picture.formats import FORMATS, format_of_folder, format_of_suffix
from dstl_cli.run.journal import last_words

pytestmark = pytest.mark.slow
COUNT = 500
HOW = ("--quality", "fast", "--sigma", "20", "-r")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pictures, in `in` and a folder below it, and what one machine makes of them, in `alone`.

    There are files of all formats, and one Zarr folder.
    """
    top = tmp_path_factory.mktemp("pictures")
    for path in write_pictures(top / "in", COUNT - 1)[::3]:
        (top / "in" / "below").mkdir(exist_ok=True)
        path.rename(top / "in" / "below" / path.name)
    ome_folder(top / "in" / f"{COUNT}.ome.zarr", np.stack([scene((40, 50), seed=plane) for plane in range(2)]))
    done = run_process("denoise", top / "in", "-o", top / "alone", *HOW, "--json")
    assert (done.code, done.stderr) == (0, "")
    assert done.report["summary"]["done"] == COUNT
    formats = {format_of_suffix(path) or format_of_folder(path) for path in (top / "in").rglob("*.*")}
    assert formats >= {entry for entry in FORMATS if entry.name != "heic"}
    return top


def test_two_workers_give_the_bytes_of_one_machine(folder: Path, tmp_path: Path) -> None:
    done = run_process("denoise", "in", "-o", tmp_path / "out", *HOW, "--scheduler", "local:2", "--json", cwd=folder)
    assert (done.code, done.stderr) == (0, "")
    assert contents(tmp_path / "out") == contents(folder / "alone")
    names = [record["input"] for record in done.report["files"]]
    assert names == sorted(names, key=lambda name: Path(name).parts)
    assert sorted(entry["input"] for entry in last_words(tmp_path / "out.journal.jsonl")) == sorted(names)


def test_workers_killed_three_times_and_a_file_that_kills_them(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in").symlink_to(folder / "in")
    (tmp_path / "poison.png").write_bytes((folder / "in" / "0001.png").read_bytes())
    with scheduler_with_workers(tmp_path, preload=POISON) as file:
        asked = command("denoise", tmp_path / "in", tmp_path / "poison.png", "-o", "out", *HOW, "--scheduler", file)
        asked += ["--json"]
        with subprocess.Popen(
            asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=environment()
        ) as process:
            for share in (0.1, 0.3, 0.5):
                wait_until(lambda share=share: len(list((tmp_path / "out").rglob("*.*"))) > share * COUNT)
                for number in worker_processes(file)[:1]:
                    with suppress(ProcessLookupError):
                        os.kill(number, signal.SIGKILL)
            stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 1, stderr
    assert all(line.startswith("dstl: ") for line in stderr.decode().splitlines()), stderr
    report = json.loads(stdout)
    assert report["summary"] == {"done": COUNT, "unchanged": 0, "failed": 1, "resumed": 0, "skipped": 0}
    assert [Path(record["input"]).name for record in report["files"] if record["error"]] == ["poison.png"]
    assert "poison.png is left out" in stderr.decode()
    assert contents(tmp_path / "out") == contents(folder / "alone")
    assert not temporaries(tmp_path)
    said = {Path(entry["input"]).name: entry["error"] for entry in last_words(tmp_path / "out.journal.jsonl")}
    assert len(said) == COUNT + 1
    assert [name for name, error in said.items() if error] == ["poison.png"]


def test_ctrl_c_leaves_no_half_file_and_resume_goes_on(folder: Path, tmp_path: Path) -> None:
    asked = ("denoise", folder / "in", "-o", tmp_path / "out", *HOW, "-q", "--scheduler", "local:2")
    with subprocess.Popen(
        command(*asked), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), start_new_session=True
    ) as process:
        wait_until(lambda: len(list((tmp_path / "out").rglob("*"))) > 50)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does, the workers too
        began = time.monotonic()
        _, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr.decode()) == (130, "dstl: Interrupted; nothing was left half-written.\n")
    assert time.monotonic() < began + 20
    there, whole = contents(tmp_path / "out"), contents(folder / "alone")
    assert 50 < len(there) < len(whole)
    assert there == {name: whole[name] for name in there}
    again = run_process(*asked, "--resume")
    assert (again.code, again.stderr) == (0, "")
    assert contents(tmp_path / "out") == whole
