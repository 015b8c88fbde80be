"""Finding tasks: in a folder, a file, a module, or an attribute of one. Start in `load`."""
