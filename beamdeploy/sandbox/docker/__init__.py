"""The docker command of a sandbox: Docker's own answers and exit codes, containers as local processes, state as files.

Standard library only, and no more of it than needed: a look asks ten times, and each is a process.
"""
