"""Cases from the field, one module a group; each test names its case. Inputs are in tests/data/cases/ID."""
