"""Clusters of a growing number of workers, which has to begin at none, and what is asked of them when all is done."""

import logging
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

pytest.importorskip("distributed")

from distributed import Client, LocalCluster

from dstl_cli.picture.decoding import asking
from dstl_cli.run.cluster import Cluster, Means, connected

pytestmark = pytest.mark.slow
FREE_PORT = "127.0.0.1:0"  # Dask serves its state in any case, and clusters of other tests may have its usual port


def squares(part: list[int], means: Means) -> list[Any]:
    del means
    return [number**2 for number in part]


def cut(numbers: Iterable[int], most: int) -> Iterator[list[int]]:
    whole = list(numbers)
    return (whole[start : start + most] for start in range(0, len(whole), most))


def test_a_cluster_without_workers_gets_some_and_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    checked = Cluster.checked_workers

    def counted(self: Any) -> int:
        asked.append(self)
        return checked(self)

    monkeypatch.setattr(Cluster, "checked_workers", counted)
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=FREE_PORT) as workers,
        Client(workers, set_as_default=False) as client,
    ):
        workers.adapt(minimum=0, maximum=1, interval="100ms")
        done = dict(Cluster(client, "here", 1).each(squares, range(5), cut, list, most=2))
    assert done == {number: number**2 for number in range(5)}
    assert len(asked) == 1


def test_only_we_tell_what_happens_to_workers() -> None:
    """Dask's own warnings say nothing to users, and come where a worker dies with a result."""
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with connected("local:1", 1):
        assert not logging.getLogger("distributed.client").isEnabledFor(logging.WARNING)


def trusts(part: int, means: Means) -> bool:
    del part, means
    return asking._State.trusted


@pytest.mark.parametrize("trusted", [False, True])
def test_workers_trust_files_for_as_long_as_they_are_told_to(trusted: bool) -> None:
    with (
        LocalCluster(n_workers=1, dashboard_address=FREE_PORT) as workers,
        Client(workers, set_as_default=False) as client,
    ):
        for told in (trusted, False):
            cluster = Cluster(client, "here", 1, trusted=told)
            assert [found for _, found in cluster.completed(trusts, range(2))] == [told] * 2


def warns(part: int, means: Means) -> bool:
    del means
    warnings.warn(f"a library warns {part}", UserWarning, stacklevel=1)
    return True


def test_libraries_on_local_workers_say_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with connected("local:1", 1) as cluster:
        assert [found for _, found in cluster.completed(warns, range(2))] == [True, True]
    assert capfd.readouterr() == ("", "")
