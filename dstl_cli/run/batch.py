"""A run of `dstl denoise` over many pictures: what became of each, and the sums; it says nothing to anyone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dstl_cli.base.progress import Progress, part_of
from dstl_cli.errors import DstlError, refusals
from dstl_cli.picture.inputs import Job, Selection
from dstl_cli.run.files import DenoisedFile, DenoiseOptions, denoise_file
from dstl_cli.transforms.files import TransformFile, save_transform

PICTURE_KEYS = ("width", "height", "pages", "channels", "dtype", "sigma", "sigma_channels", "sigma_source")
RECORD_KEYS = ("input", "output", *PICTURE_KEYS, "seconds", "warnings", "settings", "transform", "error")


@dataclass
class DenoiseRun:
    """Goes through the pictures one by one; a failed one does not stop the rest."""

    options: DenoiseOptions
    found: Selection
    todo: Sequence[Job]
    done_before: Sequence[Job]
    records: list[dict[str, Any]] = field(default_factory=list)

    def all(
        self, progress: Progress | None, describe: Callable[[str], None]
    ) -> Iterator[tuple[dict[str, Any], DenoisedFile | None]]:
        """Denoise every picture, after those of the arguments that cannot be looked into.

        Of each, what the JSON report tells of it, and what it has become: None where its record has an error.
        """
        for name, sentence in self.found.problems:
            yield self._recorded(name, None, error=sentence), None
        for index, job in enumerate(self.todo):
            name = job.source.name
            describe(name)
            try:
                with refusals(name, "cannot be denoised"):
                    finished = denoise_file(job, self.options, progress=part_of(progress, index, len(self.todo)))
                    self._keep_transform(finished)
            except DstlError as error:
                yield self._recorded(name, job.output_name, error=str(error)), None
            else:
                yield self._recorded(name, job.output_name, **finished.facts()), finished

    def _recorded(self, name: str, output: str | None, **facts: Any) -> dict[str, Any]:
        self.records.append(dict.fromkeys(RECORD_KEYS) | {"input": name, "output": output} | facts)
        return self.records[-1]

    def _keep_transform(self, finished: DenoisedFile) -> None:
        """Write the transform that the picture was denoised with, where that is asked for."""
        page = finished.first_page
        if self.options.save_transform is not None and page.transform is not None:
            provenance = {"settings": page.settings, "sigma": finished.sigma, "images": 1, "source": "denoise"}
            kept = TransformFile(page.transform, provenance, page.history)
            save_transform(self.options.save_transform, kept, overwrite=self.options.force)

    @property
    def summary(self) -> dict[str, int]:
        """How many pictures met which end."""
        failed = sum(record["error"] is not None for record in self.records)
        done = len(self.records) - failed
        return {"done": done, "failed": failed, "resumed": len(self.done_before), "skipped": self.found.skipped}
