"""What several commands share: flags, settings, the client, output, processes."""
