"""The fixtures `lab`, `clean_host` and `clean_hosts` are in tests/conftest.py: one lab serves every folder of tests."""
