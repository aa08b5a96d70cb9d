"""Runs of a job in children that are forked once everything is imported, each with a fault of its own."""

import io
import os
import shutil
import signal
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import NoReturn

from .faults import FAULTS
from .jobs import TEMPORARY, End, Job, contents, make_pictures, what_is_wrong

LONGEST = 60.0  # seconds that a run may take


class Runner:
    """Runs a job in fresh copies of a folder of pictures, below a folder of its own."""

    def __init__(self, job: Job, place: Path) -> None:
        self.job, self.place = job, place
        make_pictures(place / "pictures")
        self.inputs = contents(place / "pictures")
        self.calls: list[str] = []
        self._warm_up()
        start = time.monotonic()
        first, again = self.run(self._fresh(), ()), self.run(self._fresh(), ())
        if first.code != 0 or first != again:
            raise AssertionError(f"{job.name} does not run, or not twice the same: {first.code} {first.stderr}")
        self.expected = first.files
        self.seconds = (time.monotonic() - start) / 2

    def _warm_up(self) -> None:
        """Run the job in this process once, so that nothing is left to import or compile in the children."""
        from dstl_cli.cli.app import main
        from dstl_cli.cli.ending import run_to_the_end

        before, sys.argv = os.getcwd(), ["dstl", *self.job.arguments]
        os.chdir(self._fresh())
        try:
            with redirect_stdout(io.StringIO()):
                run_to_the_end(main)
        finally:
            os.chdir(before)

    def _fresh(self) -> Path:
        folder = self.place / "work"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.place / "pictures", folder)
        return folder

    def run(
        self, folder: Path, more: tuple[str, ...], at: int = 0, how: str = "once", after: float | None = None
    ) -> End:
        """Run the job in a child; at, how: its fault. after: seconds until it is killed, or ended."""
        said, counted = self.place / "stderr", self.place / "calls"
        child = os.fork()
        if child == 0:
            self._child(folder, more, at, how)
        code = _ended(child, after, signal.SIGTERM if how == "end" else signal.SIGKILL)
        if at == 0 and after is None:
            self.calls = counted.read_text().split()
        return End(code, said.read_text(errors="replace"), contents(folder))

    def _child(self, folder: Path, more: tuple[str, ...], at: int, how: str) -> None:
        """The program in the child; it never comes back."""
        from dstl_cli.__main__ import program

        leave = os._exit

        def ended(status: int) -> NoReturn:
            FAULTS.watching = False
            (self.place / "calls").write_text(" ".join(FAULTS.kinds))
            leave(status)

        try:
            os.chdir(folder)
            to = os.open(self.place / "stderr", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for number, target in ((0, nowhere), (1, nowhere), (2, to)):
                os.dup2(target, number)
            sys.argv = ["dstl", *self.job.arguments, *more]
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os._exit = ended  # where the program ends
            FAULTS.kinds.clear()
            FAULTS.begin(at, how)
            program()
        finally:
            leave(99)

    def failing(self, at: int, how: str) -> list[str]:
        """What is wrong after a run in which a call fails, and after the run that makes up for it."""
        folder = self._fresh()
        end = self.run(folder, (), at, how)
        left = "unlink" if how == "once" and self.calls[at - 1] == "unlink" else how
        return [*what_is_wrong(self.job, end, self.expected, self.inputs, left), *self.made_up_for(folder, end)]

    def made_up_for(self, folder: Path, end: End) -> list[str]:
        """What is wrong after the same command once more, which must end with all files and nothing else."""
        again = self.job.again
        if self.job.unfinished and self.job.unfinished not in end.files:
            again = ("--force",)
        if end.code == 0 and not any(name.endswith(TEMPORARY) for name in end.files):
            return []
        last = self.run(folder, again, at=-1)
        if last.code != 0 or last.files != self.expected:
            differ = sorted(
                name for name in last.files | self.expected if last.files.get(name) != self.expected.get(name)
            )
            return [f"once more: exit code {last.code}, {differ[:3]}, {last.stderr.strip()}"]
        return []

    def stopped(self, after: float, how: str) -> list[str]:
        """What is wrong after a run that is killed or ended at a moment, and after the next one."""
        folder = self._fresh()
        end = self.run(folder, (), at=-1, how=how, after=after)
        if how == "end" and end.code is None and end.files in (self.inputs, self.expected):
            return []  # before the program could hear it, or when all was done
        return [*what_is_wrong(self.job, end, self.expected, self.inputs, how), *self.made_up_for(folder, end)]


def _ended(child: int, after: float | None, number: int) -> int | None:
    """The exit code of a child, None where a signal ended it; after: seconds until it gets one."""
    start = time.monotonic()
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None
        past = time.monotonic() - start
        if after is not None and past >= after:
            os.kill(child, number)
            after = None
        if past > LONGEST:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return 98
        time.sleep(0.0005)
