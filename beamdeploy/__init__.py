"""beamdeploy: declarative deployment of large language model servers on GPU hosts over SSH."""

__version__ = "0.1.0"
