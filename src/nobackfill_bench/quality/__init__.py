"""Methods measured on whole upgrades."""
