"""`python -m beamdeploy`."""

from beamdeploy.cli import run

if __name__ == "__main__":
    run()
