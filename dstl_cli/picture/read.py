"""Picture files are told by their bytes and read with everything in them.

    picture = read_picture(Path("noisy.tiff"))
    picture.pages[0]            # decoded when asked for

The environment variable DSTL_MAX_PIXELS raises or lowers the limit of 500 million pixels per page, and switches off
the check that a file is long enough for the size it claims.
"""

from dataclasses import replace
from functools import partial

from dstl_cli.base.addresses import Place
from dstl_cli.picture.formats import LEAD, format_of_folder, recognise
from dstl_cli.picture.model import Picture
from dstl_cli.picture.problems import decoding
from dstl_cli.picture.source import folder_source, open_source, standard_input


def read_picture(source: Place | bytes | None, *, name: str | None = None) -> Picture:
    """Read the headers of a picture file, or of a folder that is one picture; every problem with it is a FileProblem.

    None is standard input.
    """
    if source is None:
        name = name or "standard input"
        source = standard_input(partial(recognise, name=name), LEAD)
    folder = None if isinstance(source, bytes) else format_of_folder(source)
    if folder is not None and not isinstance(source, bytes):
        opened, entry = folder_source(source, name), folder
    else:
        opened = open_source(source, name)
        entry = recognise(opened.lead(LEAD), opened.name)
    with decoding(opened.name, "its headers make no sense"):
        picture: Picture = entry.load().read(opened)
    return replace(picture, format=entry.name, original=opened.blocks)
