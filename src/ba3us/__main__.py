"""``python -m ba3us`` is the command ``ba3us``."""

from ba3us.cli import main

main()
