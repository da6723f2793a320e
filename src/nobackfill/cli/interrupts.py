"""What to do after Ctrl-C: how to continue a stopped command, if it kept its work."""

SAME_COMMAND = "Run the same command again to continue."
CONTINUED = {  # commands that keep finished work
    ("train",): "Finished epochs are kept. Run the same command with --resume to continue.",
    ("demo",): SAME_COMMAND,
    ("gallery", "pull"): SAME_COMMAND,
    ("gallery", "backfill"): SAME_COMMAND,
    ("bench", "quality"): "Finished runs are kept. Run the same command again for the others.",
}


def how_to_continue(arguments: list[str]) -> str:
    """How to continue a stopped command; empty if it kept no work.

    Example:
        >>> how_to_continue(["gallery", "pull", "flat://shop.parquet", "-o", "shop.parquet"])
        'Stopped. Run the same command again to continue.'
        >>> how_to_continue(["gallery", "status", "flat://shop.parquet"])
        ''
    """
    if arguments[:1] == ["train"] and "--pairs" in arguments:
        return "Stopped. Saved steps are kept. Run the same command with --resume to continue."
    hint = CONTINUED.get(tuple(arguments[:1])) or CONTINUED.get(tuple(arguments[:2]))
    return f"Stopped. {hint}" if hint and "--dry-run" not in arguments else ""
