"""Fleets for tests: real processes or tasks of the test's loop, with means to pause, cut off and kill them."""
