"""`nobackfill doctor`."""

from nobackfill.cli.options import Json


def doctor(json: Json = False) -> None:
    """Tell what is installed, which devices there are, and what works."""
    from nobackfill.cli.doctor_show_doctor import print_examination
    from nobackfill.core.environment import examine

    print_examination(examine(), as_json=json)
