"""The report in a real browser: it opens without a complaint, and its slider follows mouse, touch and keyboard.

Chromium is driven over its debugging pipe, which needs no driver and no package. Without Chromium: skipped.
"""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dstl_cli.cli.app import app
from dstl_cli.picture.model import picture_from_array
from dstl_cli.picture.write import write_picture

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--remote-debugging-pipe", "about:blank",
)  # fmt: skip
LAUNCH = """
import os, sys
for end, place in zip(sys.argv[1:3], (3, 4)):  # where Chromium looks for its pipe
    os.dup2(int(end), place)
os.execv(sys.argv[3], sys.argv[3:])
"""
PHONE, DESKTOP = (390, 844), (1280, 900)
SECONDS = 60.0  # the most an answer may take

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


class Browser:
    """A page of a headless Chromium: commands go out and answers and events come back as JSON between zero bytes."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        child_reads, self.outgoing = os.pipe()
        self.incoming, child_writes = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (child_reads, child_writes)]  # clear of 3 and 4
        command = [sys.executable, "-c", LAUNCH, *map(str, ends), CHROMIUM, f"--user-data-dir={profile}", *FLAGS]
        self.process = subprocess.Popen(command, pass_fds=ends, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (child_reads, child_writes, *ends):
            os.close(end)
        os.set_blocking(self.incoming, False)
        self.buffer = b""
        self.number = 0
        self.session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.loaded = 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        os.close(self.outgoing)
        os.close(self.incoming)
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.outgoing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer)
                result = answer["result"]
                assert isinstance(result, dict)
                return result

    def _next(self) -> dict[str, Any]:
        """The next message; events are noted."""
        end = time.monotonic() + SECONDS
        while b"\0" not in self.buffer:
            assert time.monotonic() < end, "Chromium does not answer"
            assert self.process.poll() is None, "Chromium has ended"
            try:
                self.buffer += os.read(self.incoming, 2**20)
            except BlockingIOError:
                time.sleep(0.005)
        raw, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(raw)
        assert isinstance(message, dict)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(str(parameters["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded += 1

    def open(self, page: Path) -> None:
        """Load a file and wait until it is complete."""
        before = self.loaded
        self.call("Page.navigate", url=page.as_uri())
        while self.loaded == before:
            self._next()

    def resize(self, size: tuple[int, int], *, touch: bool = False, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=touch
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        self.call("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y} for x, y in points])

    def key(self, name: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on a grey and a colour picture, one of them with a wicked name, two noise levels and two methods."""
    folder = tmp_path_factory.mktemp("report")
    rows, columns = np.mgrid[:64, :80]
    grey = (127 + 80 * np.sin(rows / 9) * np.cos(columns / 13) + 40 * (columns > 40)).clip(0, 255).astype(np.uint8)
    colour = np.dstack((grey, grey[::-1], grey[:, ::-1]))
    (folder / "clean").mkdir()
    for name, pixels in (("a<b>&\"quotes'.png", grey), ("colour.png", colour)):
        write_picture(picture_from_array(pixels), folder / "clean" / name)
    command = ["evaluate", folder / "clean", "--sigma", "10,30", "--repeats", "2", "--method", "dct"]
    command += ["--transform", _orthonormal(folder / "t.npz"), "--report", folder / "report.html"]
    app(list(map(str, command)), standalone_mode=False)
    return folder / "report.html"


def _orthonormal(path: Path) -> Path:
    """A transform file that needs no learning."""
    from dstl_cli.transforms.files import TransformFile, save_transform
    from dstl_cli.transforms.transform import Transform

    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((36, 36)))[0]
    save_transform(path, TransformFile(Transform(6, basis, "test")))
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    driven = Browser(tmp_path_factory.mktemp("profile"))
    try:
        yield driven
    finally:
        driven.close()


def cut(browser: Browser, index: int = 0) -> float:
    """How much of the overlay of a slider is cut off, in percent, as the browser computed it."""
    clip = browser.value(f"getComputedStyle(document.querySelectorAll('.compare .after')[{index}]).clipPath")
    assert clip.startswith("inset(0px 0px 0px ")
    return float(clip.rpartition(" ")[2].rstrip("%)"))


def stage(browser: Browser) -> tuple[float, float, float, float]:
    """Left, top, width and height of the first slider, scrolled into view."""
    browser.value("document.querySelector('.compare').scrollIntoView({block: 'center'})")
    box = browser.value(
        "(b => [b.left, b.top, b.width, b.height])(document.querySelector('.compare').getBoundingClientRect())"
    )
    left, top, width, height = map(float, box)
    return left, top, width, height


def test_the_page_opens_without_a_complaint_and_loads_nothing_else(browser: Browser, report: Path) -> None:
    browser.resize(DESKTOP)
    browser.requests.clear()
    browser.open(report)
    assert browser.complaints == []
    assert {url for url in browser.requests if not url.startswith("data:")} == {report.as_uri()}
    assert browser.value("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert browser.value("document.images.length") >= 2 * 2 * (3 + 2)
    assert browser.value("document.querySelector('.exhibit h2').textContent") == "a<b>&\"quotes'.png"
    assert browser.value("document.querySelectorAll('.charts svg').length") == 3


def test_the_slider_follows_the_mouse(browser: Browser, report: Path) -> None:
    browser.resize(DESKTOP)
    browser.open(report)
    assert cut(browser) == 50
    left, top, width, height = stage(browser)
    browser.mouse("mousePressed", left + 0.2 * width, top + height / 2)
    assert cut(browser) == pytest.approx(20, abs=0.5)
    browser.mouse("mouseMoved", left + 0.7 * width, top + height / 2)
    assert cut(browser) == pytest.approx(70, abs=0.5)
    browser.mouse("mouseMoved", left + 2 * width, top + height / 2)
    assert cut(browser) == 100
    browser.mouse("mouseReleased", left + 0.7 * width, top + height / 2)
    browser.mouse("mouseMoved", left + 0.1 * width, top + height / 2)
    assert cut(browser) >= 70
    assert browser.complaints == []


def test_the_slider_follows_the_keyboard(browser: Browser, report: Path) -> None:
    browser.resize(DESKTOP)
    browser.open(report)
    browser.value("document.querySelector('.compare input').focus()")
    browser.key("ArrowRight", 39)
    assert cut(browser) == 51
    browser.key("Home", 36)
    assert cut(browser) == 0
    browser.key("End", 35)
    assert cut(browser) == 100
    assert browser.value("document.querySelector('.compare input').getAttribute('aria-label')")


def test_the_slider_follows_a_finger_on_a_phone(browser: Browser, report: Path) -> None:
    browser.resize(PHONE, touch=True)
    browser.open(report)
    left, top, width, height = stage(browser)
    browser.touch("touchStart", (left + 0.5 * width, top + height / 2))
    for share in (0.55, 0.65, 0.75, 0.8):
        browser.touch("touchMove", (left + share * width, top + height / 2))
    browser.touch("touchEnd")
    assert cut(browser) == pytest.approx(80, abs=1)
    assert browser.complaints == []


@pytest.mark.parametrize("size", [PHONE, DESKTOP, (320, 568)])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_sticks_out_of_the_page(browser: Browser, report: Path, size: tuple[int, int], dark: bool) -> None:
    browser.resize(size, touch=size is not DESKTOP, dark=dark)
    browser.open(report)
    assert browser.value("document.documentElement.scrollWidth") <= size[0]
    lightness = browser.value("Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])")
    assert (lightness < 60) == dark


def test_the_choices_show_what_they_name(browser: Browser, report: Path) -> None:
    browser.resize(DESKTOP)
    browser.open(report)
    shown = (
        "[...document.querySelectorAll('#picture-1 .compare .after')].filter(image => image.offsetParent)"
        ".map(image => image.alt)"
    )
    sigma = "[...document.querySelectorAll('#picture-1 [data-sigma]')].map(part => part.hidden)"
    assert browser.value(shown) == ["colour.png, dct"]
    assert browser.value(sigma) == [False, True]
    browser.value("document.querySelectorAll('#picture-1 input[name=p1-method]')[1].click()")
    browser.value("document.querySelectorAll('#picture-1 input[name=p1-sigma]')[1].click()")
    assert browser.value(sigma) == [True, False]
    assert browser.value(shown) == ["colour.png, t.npz"]
    assert browser.value("document.querySelectorAll('#picture-0 input[name=p0-sigma]')[0].checked")
    assert browser.complaints == []
