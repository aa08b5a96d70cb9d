"""The page of a report: names cannot change what it is made of, and its charts have round ticks."""

import math
from functools import lru_cache
from html.parser import HTMLParser

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dstl_cli.measure.trials import Measurement, Row, mean_rows
from dstl_cli.report.exhibits import Exhibit
from dstl_cli.report.page import Report, nice_ticks, render

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30).map(lambda text: f"a{text}z")


class Page(HTMLParser):
    """The elements of a page with the names of their attributes, and all its words: texts and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.words: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(key for key, _ in attrs)))
        self.words |= {value for _, value in attrs if value is not None}

    def handle_data(self, data: str) -> None:
        self.words.add(data)


@lru_cache
def page(name: str) -> Page:
    """The page of two methods at two sigmas, where everything is called `name`."""
    picture = np.add.outer(np.arange(9.0), 20 * np.arange(7.0))
    rows = [
        Row(
            image=image, page=1, sigma=sigma, method=method, psnr=30 - sigma, ssim=0.9, identical=False, noisy_psnr=20.0
        )
        for image in (name, "other")
        for sigma in (5.0, 10.0)
        for method in (name, "dct")
    ]
    exhibit = Exhibit.of(name, picture, 100)
    for row in rows:
        if row.image == name:
            exhibit.add(Measurement(row, picture, picture + 3))
    titles: dict[tuple[str | None, int | None], str] = {(name, 1): name, ("other", 1): "other"}
    means, each = mean_rows(rows), mean_rows(rows, of_each_picture=True)
    return Page(render(Report(name, (name,), name, name, name, means, each, titles, [exhibit])))


@given(names)
@settings(max_examples=12)
@example("</title><script>alert(1)</script>")
@example("\" onload='x'")
@example("{{ 7 * 7 }}{% raw %}")
@example("&lt;&#60;")
def test_names_are_shown_as_they_are_and_change_nothing(name: str) -> None:
    plain, shown = page("plain"), page(name)
    assert shown.elements == plain.elements
    for words in (
        "{}",
        "{}, {}",
        "{}, most detail, {}",
        "{}, sigma 5: 25",
        "{}: how much of the picture is shown {}, in percent",
    ):
        assert words.replace("{}", name) in shown.words


@given(st.floats(-50, 50), st.floats(0, 100))
def test_ticks_span_the_values_in_a_few_round_steps(low: float, span: float) -> None:
    ticks = nice_ticks(low, low + span)
    assert 2 <= len(ticks) <= 8
    slack = 1e-6 + 1e-6 * abs(low)
    assert ticks[0] <= low + slack
    assert ticks[-1] >= low + span - slack
    step = (ticks[-1] - ticks[0]) / (len(ticks) - 1)
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert min(abs(mantissa - good) for good in (1, 2, 5, 10)) < 1e-3
