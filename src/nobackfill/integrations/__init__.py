"""Compatible training inside the libraries that people train with. One package or file each."""
