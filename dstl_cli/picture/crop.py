"""A part of a picture as a picture of its own, to be written: what its file says is made to fit the smaller size."""

from dataclasses import replace

from dstl_cli.errors import FileProblem
from dstl_cli.picture.formats import FORMATS
from dstl_cli.picture.formats.exif import exif_for_part, exif_orientation
from dstl_cli.picture.model import Picture


def check_part(picture: Picture, rows: slice, columns: slice) -> None:
    """Refuse a part that some page does not hold."""
    for number, spec in enumerate(picture.specs, 1):
        if rows.stop > spec.height or columns.stop > spec.width:
            page = f"Page {number} of {picture.name}" if len(picture.specs) > 1 else picture.name
            asked = f"{columns.start},{rows.start},{columns.stop - columns.start},{rows.stop - rows.start}"
            turned = exif_orientation(picture.metadata.exif) > 4
            stored = " as they are stored, before its EXIF data turn it," if turned else ","
            size = f"{spec.width} x {spec.height} pixels{stored}"
            raise FileProblem(f"{page} has {size} which do not hold --crop {asked}; give a part within.")


def cropped(picture: Picture, rows: slice, columns: slice) -> Picture:
    """The same part of every page, without pixels; refused where a page does not hold it.

    Sizes in EXIF data, descriptions and layouts become those of the part; small copies of the whole picture are left
    out. A format whose `native` depends on the size has a function `cropped_native(picture, rows, columns)`.
    """
    check_part(picture, rows, columns)
    height, width = rows.stop - rows.start, columns.stop - columns.start
    exif = exif_for_part(picture.metadata.exif, width, height)
    lost = picture.metadata.exif is not None and exif is None
    notes = (*picture.notes, "Its EXIF data cannot be read and are left out.") if lost else picture.notes
    if FORMATS[picture.format].marks:
        notes = (*notes, "Its attributes and reduced copies are not carried over to a part of it.")
    native_of = getattr(FORMATS[picture.format].load(), "cropped_native", None)
    return Picture(
        picture.name,
        tuple(replace(spec, height=height, width=width) for spec in picture.specs),
        metadata=replace(picture.metadata, exif=exif),
        native=native_of(picture, rows, columns) if native_of and picture.native is not None else picture.native,
        notes=notes,
        format=picture.format,
        premultiplied=picture.premultiplied,
    )
