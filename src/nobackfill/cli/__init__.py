"""The `nobackfill` command: one file per command, one sentence and one call each."""
