"""From a spec to a run: open, build, train, save, predict."""
