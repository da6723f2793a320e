"""Live galleries: vector databases read, searched and filled again, beside what is stored."""
