"""`nobackfill methods`."""

from typing import Annotated

import typer

from nobackfill.cli.options import Json


def methods(
    given: Annotated[
        list[str] | None,
        typer.Option(
            help="Part of the old model that you have: prototypes, embeddings, classifier …"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the methods and what each needs of the old model."""
    from nobackfill.cli.output import print_methods

    parts = None if given is None else [part for text in given for part in text.split(",")]
    print_methods(parts, as_json=json)
