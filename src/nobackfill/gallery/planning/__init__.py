"""Which items to embed again first, and what each share of them gains."""
