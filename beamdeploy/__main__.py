"""`python -m beamdeploy`."""

from beamdeploy.cli import main

main()
