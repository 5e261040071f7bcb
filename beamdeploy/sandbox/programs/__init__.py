"""What else a look asks of a host and must be the sandbox's own: nvidia-smi, ss, df, and which dockerd there is."""
