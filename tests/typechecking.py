"""The run-time type checker of the tests: beartype, where an int is a float as the type system says."""

from beartype import BeartypeConf, beartype

typechecker = beartype(conf=BeartypeConf(is_pep484_tower=True))
