"""Is an upgrade worth making? Answers from two files of vectors."""
